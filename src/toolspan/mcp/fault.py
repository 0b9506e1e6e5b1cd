"""What can go wrong between a call and its answer, in one exception."""

from typing import Literal

FaultKind = Literal[
    "tool", "protocol", "timeout", "closed", "not_connected", "connect", "unreadable"
]
"""The tool reported an error; the server answered with one; no answer in time; the connection broke
in the middle; there is none; it cannot be made; the answer is none that the protocol knows."""

CONNECTION_CLOSED = -32_000
"""The code that stands for a broken connection."""


class Fault(Exception):  # noqa: N818 - never leaves the package
    """A call, or a connection, that came to nothing."""

    def __init__(
        self,
        kind: FaultKind,
        message: str,
        code: int | None = None,
        *,
        seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: FaultKind = kind
        self.message = message
        self.code = code
        self.seconds = seconds
        """How long was waited, for a timeout."""


def words(error: BaseException) -> str:
    """What an exception says, without the groups that task groups wrap it in."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return str(error) or type(error).__name__
