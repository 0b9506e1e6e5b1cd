"""What a call asks of the shell, and the limits that hold for it.

In: a valid input and the environment's settings. Out: a frozen `Request`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_TIMEOUT_MS = 120_000
MAX_TIMEOUT_MS = 600_000
DEFAULT_OUTPUT = 30_000
MAX_OUTPUT = 150_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One command, as it is to be run."""

    command: str
    description: str | None
    timeout_ms: float
    """Below 0: the command goes to the background at once."""
    background: bool
    may_move: bool
    """There is a background that it can go to."""
    output_limit: int
    """Characters of output that go back to the model."""


def request_of(value: Mapping[str, object], environment: Mapping[str, str]) -> Request:
    """The request of an input that fits the schema."""
    disabled = environment.get("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "").lower()
    may_move = disabled not in {"1", "true", "yes", "on"}
    description = value.get("description")
    return Request(
        command=str(value["command"]),
        description=description if isinstance(description, str) else None,
        timeout_ms=_timeout(value.get("timeout"), environment),
        background=may_move and value.get("run_in_background") is True,
        may_move=may_move,
        output_limit=min(
            _number(environment, "BASH_MAX_OUTPUT_LENGTH", DEFAULT_OUTPUT), MAX_OUTPUT
        ),
    )


def _timeout(asked: object, environment: Mapping[str, str]) -> float:
    default = _number(environment, "BASH_DEFAULT_TIMEOUT_MS", DEFAULT_TIMEOUT_MS)
    longest = max(default, _number(environment, "BASH_MAX_TIMEOUT_MS", MAX_TIMEOUT_MS))
    if not isinstance(asked, int | float) or not asked:
        return default
    return min(asked, longest)


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    """A setting above 0; what is no such number counts as not set."""
    given = environment.get(name, "")
    return int(given) if given.isascii() and given.isdigit() and int(given) > 0 else default
