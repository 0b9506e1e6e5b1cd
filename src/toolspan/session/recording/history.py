"""Read the records of a session that is continued or forked: the messages that the model saw, and the copied lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from toolspan.errors import Ambiguous, NotFound
from toolspan.formats import json_repair
from toolspan.formats.claude.records import Entry
from toolspan.formats.claude.tree import RecordTree
from toolspan.formats.jsonl import encode_json
from toolspan.reading.transcript import Transcript
from toolspan.session.recording.entries import SYNTHETIC_MODEL
from toolspan.types.ids import SessionId, SourceLocation

Message = dict[str, object]
LocatedEntry = tuple[Entry, SourceLocation]


def copy_records(transcript: Transcript, until: str | None, session_id: SessionId, copy: BinaryIO) -> None:
    """Write the records up to `until`, as in `model_messages`, under another session id."""
    for entry, location in _entries_until(transcript, until):
        if entry.session_id is not None:
            copy.write(encode_json({**_record_fields(transcript, location), "sessionId": session_id}) + b"\n")


def _record_fields(transcript: Transcript, location: SourceLocation) -> dict[str, object]:
    """Return all fields of a record, or an empty object if the line cannot be repaired."""
    data = transcript.source.read(location.offset, location.length)
    try:
        fields = json_repair.decode_document(data)
    except ValueError:
        pieces = json_repair.recover_objects(data).pieces
        fields = json_repair.decode_document(pieces[0].data) if pieces else {}
    return fields if isinstance(fields, dict) else {}


def _entries_until(transcript: Transcript, until: str | None) -> list[LocatedEntry]:
    """Return the records up to `until`, plus all other blocks and results of its message."""
    entries = list(transcript.entries())
    if until is None:
        return entries
    ids = {str(entry.uuid): n for n, (entry, _) in reversed(list(enumerate(entries))) if entry.uuid}
    matching_ids = [uuid for uuid in ids if uuid.startswith(until)] if until not in ids else [until]
    if len(matching_ids) != 1:
        count = len(matching_ids) or "no"
        raise (Ambiguous if matching_ids else NotFound)(
            f"{count} records of this session have an id that begins with {until!r}"
        )
    last = ids[matching_ids[0]]
    selected, rest = entries[: last + 1], entries[last + 1 :]
    message_id = _message_id(entries[last][0])
    if message_id is None:
        return selected
    message_entries = [located for located in entries if _message_id(located[0]) == message_id]
    calls = {call for entry, _ in message_entries for call in _entry_call_ids(entry)}
    return selected + [
        located
        for located in rest
        if _message_id(located[0]) == message_id or not calls.isdisjoint(_answered_call_ids(located[0]))
    ]


class _RecordBody(msgspec.Struct):
    """The record fields needed to build the history."""

    message: dict[str, object] | None = None
    rendered: list[dict[str, object]] | None = None


def model_messages(transcript: Transcript, until: str | None = None) -> Iterator[tuple[bool, Message]]:
    """Yield the messages that the model saw, in file order, and whether each is a reply.

    Sidechain records count only in a subagent's transcript. `until` is the beginning of the last record's id.

    Raises:
        NotFound: no record has that id.
        Ambiguous: several records have it.
    """
    entries = _entries_until(transcript, until)
    tree = RecordTree()
    for entry, location in entries:
        tree.add((entry,), location.line)
    branches = tree.branches()
    is_subagent = transcript.info.agent_id is not None
    visible = [
        (entry, location)
        for entry, location in entries
        if entry.type in ("user", "assistant", "attachment")
        and not entry.is_api_error
        and (is_subagent or not entry.is_sidechain)
        and (entry.message is None or entry.message.model != SYNTHETIC_MODEL)
    ]
    active_lines = {location.line for _, location in visible if branches.branch_of(location.line) == "active"}
    ids = {_message_id(entry) for entry, location in visible if location.line in active_lines} - {None}
    calls = {  # by line too: damage may have taken a message's id
        call
        for entry, location in visible
        if location.line in active_lines or _message_id(entry) in ids
        for call in _entry_call_ids(entry)
    }
    for entry, location in visible:
        # Concurrent calls create branches, so records and results of siblings may be off the active path.
        belongs_to_active = _message_id(entry) in ids or not calls.isdisjoint(_answered_call_ids(entry))
        if location.line not in active_lines and not belongs_to_active:
            continue
        try:
            body = msgspec.convert(_record_fields(transcript, location), _RecordBody)
        except (msgspec.MsgspecError, RecursionError):
            continue
        if body.rendered is not None:
            texts = [part.get("content") for part in body.rendered]
            blocks = [{"type": "text", "text": text} for text in texts if isinstance(text, str)]
            yield False, {"role": "user", "content": blocks}
        elif body.message is not None:
            yield entry.type == "assistant", body.message


def _message_id(entry: Entry) -> str | None:
    return entry.message.id if entry.type == "assistant" and entry.message else None


def _entry_call_ids(entry: Entry) -> Iterator[str]:
    content = entry.message.content if entry.message else None
    for block in content if isinstance(content, list) else ():
        if block.type == "tool_use" and block.id:
            yield block.id


def _answered_call_ids(entry: Entry) -> Iterator[str]:
    content = entry.message.content if entry.message else None
    for block in content if isinstance(content, list) else ():
        if block.tool_use_id:
            yield block.tool_use_id
