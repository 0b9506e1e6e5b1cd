"""A model, as the loop of an agent sees it: a request in, a stream of events out.

The values are those of the Messages API, whoever serves them; adapters translate. A stream is
`Began`, then deltas and a `BlockDone` for each block, `Usage` whenever it is told, and `Stopped` at
the end. A stream that ends otherwise raises `ModelFailed`. Read `Model` first.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from toolspan.errors import ToolspanError
from toolspan.llm.history import Block, Message

MAX_TOKENS = 16_000
"""How long a reply may get, unless somebody says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a model is asked."""

    messages: Sequence[Message]
    system: str = ""
    tools: Sequence[Mapping[str, object]] = ()
    max_tokens: int = MAX_TOKENS
    model: str | None = None
    """Another model than the adapter's own, by its name."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What the server may know of who asks."""


@dataclass(frozen=True, slots=True)
class Began:
    """A reply begins; one that comes after `Retrying` takes the place of what was there."""

    message_id: str
    model: str
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of a text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """More of what the model thinks."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegan:
    """The model begins to ask for a tool."""

    call_id: str
    tool: str


@dataclass(frozen=True, slots=True)
class InputDelta:
    """More of a call's input, as a piece of JSON text."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class BlockDone:
    """A block is complete; a call's input is an object, whatever the model sent."""

    block: Block


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens so far, in the API's words; later ones add to and replace earlier ones."""

    tokens: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Stopped:
    """The reply is complete."""

    reason: str
    details: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Retrying:
    """The request failed and is made anew: what this reply brought so far does not count."""

    failure: "ModelFailed"
    attempt: int
    of: int
    wait_s: float


ModelEvent = (
    Began | TextDelta | ThinkingDelta | CallBegan | InputDelta | BlockDone | Usage | Stopped
    | Retrying
)  # fmt: skip

Stream = AsyncGenerator[ModelEvent, None]


class Model(Protocol):
    """Gives replies."""

    @property
    def name(self) -> str:
        """What the server knows it by."""
        ...

    def stream(self, request: Request) -> Stream:
        """The reply to a request, as it comes.

        Raises:
            ModelFailed: there will be no reply, or no more of it.
        """
        ...

    async def close(self) -> None:
        """Let its connections go."""
        ...


class ModelFailed(ToolspanError):  # noqa: N818 - reads as a noun where it is caught
    """A request got no reply, or only a part of one."""

    def __init__(
        self,
        message: str,
        *,
        kind: str = "api_error",
        status: int | None = None,
        retry: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        """The API's word for it: `overloaded_error`, `invalid_request_error`, `connection`, …"""
        self.status = status
        self.retry = retry
        """Whether it may go better the next time."""
        self.retry_after = retry_after
        """Seconds that the server wants us to wait."""

    @property
    def too_long(self) -> bool:
        """Whether the conversation does not fit into the model any more."""
        words = self.message.casefold()
        return self.status in (400, 413) and any(hint in words for hint in _TOO_LONG)

    def told(self) -> str:
        """One line for people and transcripts."""
        status = f"{self.status} " if self.status else ""
        return f"API Error: {status}{self.message}"


def broken_off() -> ModelFailed:
    """A stream that ended before its reply did."""
    return ModelFailed(
        "the connection ended in the middle of the reply", kind="connection", retry=True
    )


_TOO_LONG = ("prompt is too long", "context length", "context_length", "context window",
             "maximum context", "too many tokens")  # fmt: skip

_RETRIED = frozenset({408, 409, 425, 429, 529})


def failed_status(
    status: int, message: str, *, kind: str | None = None, headers: Mapping[str, str] | None = None
) -> ModelFailed:
    """An answer that is an error, and whether to ask again."""
    told = headers or {}
    wish = told.get("x-should-retry")
    retry = wish == "true" or (wish != "false" and (status in _RETRIED or status >= 500))
    return ModelFailed(
        message,
        kind=kind or "api_error",
        status=status,
        retry=retry,
        retry_after=_seconds(told),
    )


def _seconds(headers: Mapping[str, str]) -> float | None:
    """What a server says of when to come back; dates are left to our own back-off."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            found = float(headers.get(name, ""))
        except ValueError:
            continue
        if found >= 0:
            return found / unit
    return None
