"""What a transcript says about the conversation it holds."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from toolspan.types.ids import SourceLocation

Dialect = str
"""The name of a transcript format; `toolspan.formats.registry` lists them."""
_PROMPT_LIMIT = 200


class SessionInfo(Struct, frozen=True, kw_only=True):
    """The outside of a conversation: who, where, when, what about."""

    dialect: Dialect = "claude"
    session_id: str | None = None
    """The file's own session; records copied from an ancestor may name others."""
    session_ids: tuple[str, ...] = ()
    agent_id: str | None = None
    """Set when the transcript is a subagent's."""
    root: str | None = None
    """The first line's uuid: files that share it are copies of one conversation."""
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


def shorten_prompt(prompt: str) -> str | None:
    """A prompt as `SessionInfo.first_prompt` tells it: its beginning, in one line."""
    leading = prompt.split(maxsplit=_PROMPT_LIMIT)[:_PROMPT_LIMIT]  # it may be very long
    return " ".join(leading)[:_PROMPT_LIMIT] or None


MessageAuthor = Literal[
    "prompt", "text", "thinking", "injected", "command", "summary", "notification", "interrupt",
    "error", "system",
]  # fmt: skip


class Message(Struct, frozen=True, kw_only=True):
    """One thing somebody said: a person's prompt, the model's text or thinking, or the client."""

    voice: MessageAuthor
    text: str
    at: str | None
    agent_id: str | None
    place: SourceLocation
