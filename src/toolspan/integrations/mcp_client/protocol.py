"""Values and errors shared by servers and their connections. This module does not import the SDK."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from toolspan.runtime.process import ProcessSupervisor

if TYPE_CHECKING:
    from toolspan.integrations.mcp_client.logins import LoginPrompt
    from toolspan.runtime.sandbox.active import ActiveSandbox

ServerState = Literal["new", "connected", "lost", "failed", "closed"]
Negotiation = Literal["legacy", "auto"]
"""The handshake: `legacy`, which every server supports, or `auto`, which probes for the newest revision."""
ProgressHandler = Callable[[float, float | None, str | None], None]
_MAX_TIMES = 1_000

McpErrorKind = Literal["tool", "protocol", "timeout", "closed", "not_connected", "connect", "unreadable", "login"]
"""The kind of failure: the tool reported an error, the server returned one, the call timed out, the
connection broke, the server is not connected, connecting failed, the response is invalid, or a login is needed.
"""
CONNECTION_CLOSED = -32_000
LOGIN_FAILED = -32_401
"""The code in which a `LoginError` travels through the SDK. Servers do not use it."""
URL_ELICITATION_REQUIRED = -32_042
FETCH_FAILED = "fetch failed"
"""The client's error message for a broken connection."""


@dataclass(slots=True)
class Health:
    """The state and counters of one server."""

    state: ServerState = "new"
    reason: str | None = None
    protocol: str | None = None
    """The negotiated protocol revision."""
    calls: int = 0
    errors: Counter[McpErrorKind] = field(default_factory=Counter)
    """Failed calls by kind; `tool` counts errors that the tool itself reported."""
    restarts: int = 0
    garbage_lines: int = 0
    """The number of output lines that are not messages."""
    rejected_tools: list[str] = field(default_factory=list)
    """Tools that are not offered, with the reason for each."""
    times: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_TIMES))
    """Durations of the most recent answered calls, in seconds."""
    stderr_tail: str = ""

    @property
    def timeouts(self) -> int:
        """The number of calls that timed out."""
        return self.errors["timeout"]

    @property
    def p95(self) -> float | None:
        """The 95th percentile of response times in seconds, or None before the first response."""
        ordered = sorted(self.times)
        if not ordered:
            return None
        return ordered[min(len(ordered) - 1, -(-len(ordered) * 95 // 100) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSetup:
    """Settings for new connections."""

    cwd: Path
    environment: Mapping[str, str]
    supervisor: ProcessSupervisor
    sandbox: ActiveSandbox | None = None
    """The sandbox for servers that run inside it."""
    negotiation: Negotiation | None = None
    """The handshake, or None for the default for this kind of server."""
    login: LoginPrompt | None = None
    """The way to let the user log in; None if nobody is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpToolListing:
    """A tool as listed by its server."""

    name: str
    description: str
    input_schema: Mapping[str, object]
    read_only: bool | None
    """The server's read-only hint, or None if there is none."""
    inline_limit: int | None = None
    """The maximum number of result characters that the server wants to keep in the conversation."""


class LoginError(Exception):
    """Raised if a request needs a login that is missing, expired or refused. The message says what to do."""


class McpError(Exception):
    """Raised if a call or a connection fails."""

    def __init__(
        self,
        kind: McpErrorKind,
        message: str,
        code: int | None = None,
        *,
        seconds: float | None = None,
        data: object = None,
    ) -> None:
        super().__init__(message)
        self.kind: McpErrorKind = kind
        self.message = message
        self.code = code
        self.seconds = seconds
        """The timeout in seconds, if the call timed out."""
        self.data = data
        """The data of the server's error."""


def replace_lone_surrogates(line: bytes) -> tuple[object, str]:
    """Decode a line and return its value, and its JSON text with lone surrogates replaced.

    Raise ValueError if the line is not JSON.
    """
    try:
        value: object = json.loads(line)
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value, text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def first_exception(error: BaseException) -> BaseException:
    """Return the first exception in nested exception groups."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error
