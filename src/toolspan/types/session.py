"""Metadata and messages of a session."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from toolspan.types.ids import SourceLocation

ClientName = str
"""The name of a client's transcript format, as listed in `toolspan.formats.registry`."""
_PROMPT_LIMIT = 200


class SessionInfo(Struct, frozen=True, kw_only=True, gc=False):
    """Metadata about one session: client, folder, times, title."""

    client: ClientName = "claude"
    session_id: str | None = None
    """The session of the file itself; records copied from a parent session may have other ids."""
    session_ids: tuple[str, ...] = ()
    agent_id: str | None = None
    """The id of the subagent, if a subagent wrote the transcript."""
    root: str | None = None
    """The uuid of the first record. Files with the same root are copies of one conversation."""
    forked_from: str | None = None
    versions: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    cwd: str | None = None
    git_branch: str | None = None
    git_commit: str | None = None
    title: str | None = None
    first_prompt: str | None = None
    prompts: int = 0
    compactions: int = 0
    started_at: str | None = None
    ended_at: str | None = None


def with_upper_drive(path: str) -> str:
    """Return a Windows path with its drive in upper case, because clients write `c:` and `C:` for the same drive."""
    return f"{path[0].upper()}{path[1:]}" if path[1:2] == ":" and path[2:3] in ("", "/", "\\") else path


def shorten_prompt(prompt: str) -> str | None:
    """Return the beginning of a prompt as one line, for `SessionInfo.first_prompt`."""
    leading = prompt.split(maxsplit=_PROMPT_LIMIT)[:_PROMPT_LIMIT]  # the prompt may be very long
    return " ".join(leading)[:_PROMPT_LIMIT] or None


MessageAuthor = Literal[
    "prompt", "text", "thinking", "injected", "command", "summary", "notification", "interrupt",
    "error", "system",
]  # fmt: skip


class Message(Struct, frozen=True, kw_only=True):
    """A user's prompt, model text or thinking, or a client note."""

    voice: MessageAuthor
    text: str
    at: str | None
    agent_id: str | None
    place: SourceLocation


class Tokens(Struct, frozen=True, kw_only=True, gc=False):
    """Token usage of one message, or the sum over several."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_creation_input_tokens=self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            cache_read_input_tokens=self.cache_read_input_tokens + other.cache_read_input_tokens,
        )

    def without_cached(self) -> Tokens:
        """Return the tokens with cached ones taken out of the input, for clients that include them."""
        cached = self.cache_read_input_tokens + self.cache_creation_input_tokens
        return replace(self, input_tokens=max(self.input_tokens - cached, 0))

    def max_with(self, other: Tokens) -> Tokens:
        """Return the field-wise maximum, because the records of one message repeat growing counts."""
        return Tokens(
            input_tokens=max(self.input_tokens, other.input_tokens),
            output_tokens=max(self.output_tokens, other.output_tokens),
            cache_creation_input_tokens=max(self.cache_creation_input_tokens, other.cache_creation_input_tokens),
            cache_read_input_tokens=max(self.cache_read_input_tokens, other.cache_read_input_tokens),
        )


class RequestUsage(Struct, frozen=True, kw_only=True, gc=False):
    """The tokens of one request to a model, as counted by the client."""

    at: str | None
    """Time of the first record of the reply, as recorded."""
    model: str | None
    tokens: Tokens
    cache_write_1h: int = 0
    """The part of the cache creation tokens that is kept for an hour."""
    sidechain: bool = False
    """True if a subagent made the request in the file of its session, as older clients record it."""
    fast: bool = False
    """True if the request was served in fast mode, which costs more."""
    cost_usd: float | None = None
    """The cost in dollars, if the client recorded it."""


Severity = Literal["error", "warning", "info"]
Acceptance = Literal["accepts", "skips", "loses", "refuses", "unknown"]


class Finding(Struct, frozen=True, kw_only=True, gc=False):
    """One problem, its location, and the reaction of the client that wrote the file."""

    code: str
    """One of the codes that `toolspan doctor` reports."""
    severity: Severity
    place: SourceLocation | None
    """The first occurrence, or None for the file as a whole."""
    explanation: str
    acceptance: Acceptance
    """The client's reaction on resume: it accepts the file, skips the line, loses a call or refuses the file."""
    count: int = 1
