"""Metadata and messages of a session."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from toolspan.types.ids import SourceLocation

Dialect = str
"""The name of a transcript format; `toolspan.formats.registry` lists them."""
_PROMPT_LIMIT = 200


class SessionInfo(Struct, frozen=True, kw_only=True):
    """Metadata of one session: client, folder, times, title."""

    dialect: Dialect = "claude"
    session_id: str | None = None
    """The session of the file itself; records copied from a parent session may have other ids."""
    session_ids: tuple[str, ...] = ()
    agent_id: str | None = None
    """The id of the subagent, if the transcript is a subagent's."""
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


def shorten_prompt(prompt: str) -> str | None:
    """Return the beginning of a prompt as one line, for `SessionInfo.first_prompt`."""
    leading = prompt.split(maxsplit=_PROMPT_LIMIT)[:_PROMPT_LIMIT]  # the prompt may be very long
    return " ".join(leading)[:_PROMPT_LIMIT] or None


MessageAuthor = Literal[
    "prompt", "text", "thinking", "injected", "command", "summary", "notification", "interrupt",
    "error", "system",
]  # fmt: skip


class Message(Struct, frozen=True, kw_only=True):
    """A prompt of the user, a text or thinking of the model, or a note of the client."""

    voice: MessageAuthor
    text: str
    at: str | None
    agent_id: str | None
    place: SourceLocation
