"""A conversation in terms that all clients share, from which a format can write a session that its client resumes.

`toolspan.export.convert` makes one from a recorded session, and `TranscriptFormat.write_session` writes it.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from msgspec import Struct

from toolspan.formats import json_repair
from toolspan.types.inputs import ToolInput

Fields = dict[str, object]
"""A JSON object."""


class PortableCall(Struct, frozen=True, kw_only=True):
    """A call that other clients may have an equivalent for, with the result that the model received."""

    id: str
    tool: str
    input: ToolInput | None
    """A command, or a read, write, edit or search of files; None for any other tool."""
    arguments: str
    """The arguments as recorded, as JSON."""
    patch: str | None = None
    """The changes of the call as a Codex patch, if they are known."""
    result: str
    is_error: bool
    exit_code: int | None = None


class Prompt(Struct, frozen=True, kw_only=True):
    """A message to the model."""

    text: str
    at: datetime


class Reply(Struct, frozen=True, kw_only=True):
    """A reply of the model, with its calls."""

    text: str
    calls: tuple[PortableCall, ...]
    at: datetime
    model: str | None


class Conversation(Struct, frozen=True, kw_only=True):
    """The active branch of a session since its last compaction, without its subagents' calls."""

    items: tuple[Prompt | Reply, ...]
    cwd: str
    title: str | None
    source: str
    """The title of the client that recorded the session."""

    @property
    def started_at(self) -> datetime:
        """The time of the first message."""
        return self.items[0].at


class MappedCall(Struct, frozen=True, kw_only=True):
    """A call as a client's own tool call."""

    call: PortableCall
    tool: str
    arguments: Fields | str


class MappedReply(Struct, frozen=True, kw_only=True):
    """A reply whose calls either have an equivalent or are text."""

    text: str
    calls: tuple[MappedCall, ...]


_MAX_ARGUMENTS, _MAX_RESULT = 2_000, 10_000


def map_reply(reply: Reply, find_equivalent: Callable[[PortableCall], tuple[str, Fields | str] | None]) -> MappedReply:
    """Return a reply with the calls that have an equivalent, and the others as part of its text."""
    texts, calls = [reply.text] if reply.text.strip() else [], list[MappedCall]()
    for call in reply.calls:
        equivalent = find_equivalent(call)
        if equivalent is not None:
            calls.append(MappedCall(call=call, tool=equivalent[0], arguments=equivalent[1]))
            continue
        outcome = "failed" if call.is_error else "returned"
        arguments, result = _cut(call.arguments, _MAX_ARGUMENTS), _cut(call.result, _MAX_RESULT)
        texts.append(f"[{call.tool} {arguments} {outcome}:]\n{result}")
    return MappedReply(text="\n\n".join(texts), calls=tuple(calls))


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}\n[{len(text) - limit:,} more characters]"


def format_time(at: datetime) -> str:
    """Return a time as the clients write it."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_uuid7() -> UUID:
    """Return a new id that begins with the time."""
    value = int(time.time() * 1000) << 80 | secrets.randbits(80)
    return UUID(int=value & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62)


def write_records(path: Path, records: Iterable[Mapping[str, object]]) -> None:
    """Write a new file of lines that only the user can read.

    Raises:
        OSError: the file exists or cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    data = b"".join(json_repair.encode_document(record) + b"\n" for record in records)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
