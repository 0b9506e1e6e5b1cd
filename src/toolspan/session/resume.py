"""Continue a recorded session: find its transcript, rebuild the messages, fork it.

The API accepts the rebuilt history even if the transcript is damaged: it consists of the active branch since the last
compaction, with the blocks of a message joined and one result for every call. A call without a recorded result gets a
placeholder with the available evidence; nothing is run again. Start at `load_history`; `Session.resume` is the public
entry point.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from toolspan.errors import Ambiguous, NotFound, ToolspanError, UnknownDialect
from toolspan.formats import json_repair
from toolspan.formats.claude.evidence import LOST_BEGINNING_MESSAGE, CallEvidence, collect_evidence, format_unanswered
from toolspan.formats.claude.paths import config_dir
from toolspan.formats.claude.records import Entry
from toolspan.formats.claude.tree import RecordTree
from toolspan.formats.jsonl import encode_json, make_folder
from toolspan.formats.registry import detect_dialect
from toolspan.formats.source import FileSource
from toolspan.reading.discovery import find_transcripts
from toolspan.reading.transcript import Transcript, read
from toolspan.session.conversation import sanitize_blocks
from toolspan.session.models.history import Block, Message, check_history
from toolspan.session.recording import OnFailure, Recorder, RecorderConfig, check_session_id, transcript_path
from toolspan.session.recording.entries import SYNTHETIC_MODEL
from toolspan.session.reply import sendable_blocks
from toolspan.types.ids import SessionId, SourceLocation

DefaultLocation = Literal["home"]
History = Sequence[Mapping[str, object]]
LocatedEntry = tuple[Entry, SourceLocation]
_RECORD_START = b'{"parentUuid":'
"""The first bytes of a conversation record, which identify it even if the line is incomplete."""


class ConversationStart(NamedTuple):
    """The starting point of a conversation: its id, its transcript and its earlier messages."""

    session_id: SessionId
    target: Path | Recorder | None
    history: History

    def open_recorder(self, config: RecorderConfig, on_failure: OnFailure) -> Recorder | None:
        """Return the session's recorder, or None if the session is not recorded.

        Raises:
            SourceError: the transcript to continue cannot be read.
            InUse: another process writes to it.
        """
        target = self.target
        if isinstance(target, Recorder):
            target.session_cwd = str(config.cwd)
        if target is None or isinstance(target, Recorder):
            return target
        if not _has_content(target):
            return Recorder(target, config, on_failure)
        recorder = Recorder.resume(target, config, on_failure)
        recorder.set_resume_answers(self.history)
        return recorder


def resolve_start(
    transcript: Path | str | DefaultLocation | Recorder | None, session_id: str | None, cwd: Path, history: History
) -> ConversationStart:
    """Resolve a session's arguments to its starting point. A transcript with content is continued.

    Raises:
        ToolspanError: the id is not a file name, or the file cannot be read or is not a transcript.
    """
    new_id = SessionId(session_id or str(uuid.uuid4()))
    check_session_id(new_id)
    if transcript is None or isinstance(transcript, Recorder):
        return ConversationStart(new_id, transcript, history)
    path = transcript_path(new_id, cwd) if transcript == "home" else Path(transcript).absolute()
    if not _has_content(path):
        return ConversationStart(new_id, path, history)
    _check_transcript(path)
    if session_id is not None and history:
        return ConversationStart(new_id, path, history)
    recorded = read(path)
    if session_id is None:
        new_id = _usable_id(recorded.info.session_ids[-1:]) or new_id
    return ConversationStart(new_id, path, history or build_history(recorded, path))


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _check_transcript(path: Path) -> None:
    """Check that a file is a transcript before appending to it."""
    source = FileSource(path)
    if detect_dialect(source) == "claude":
        return
    with source.open() as file:
        if file.read(len(_RECORD_START)) != _RECORD_START:
            raise UnknownDialect(f"{path} is not a transcript that can be continued; it was left unchanged")


def _usable_id(ids: Sequence[str]) -> SessionId | None:
    for session_id in ids:
        try:
            check_session_id(session_id)
        except ToolspanError:
            continue
        return SessionId(session_id)
    return None


def load_history(path: Path, *, until: str | None = None) -> list[Message]:
    """Return the messages in a transcript, up to the record whose id begins with `until`.

    Raises:
        SourceError: the transcript cannot be read.
        NotFound: no record has that id.
        ToolspanError: the API would not accept the messages.
    """
    return build_history(read(path), path, until=until)


def build_history(transcript: Transcript, path: Path, *, until: str | None = None) -> list[Message]:
    """Return the messages in a transcript that was read from `path`. See `load_history`.

    Raises:
        NotFound: no record has that id.
        ToolspanError: the API would not accept the messages.
    """
    entries = _entries_until(list(transcript.entries()), until)
    builder = _HistoryBuilder()
    for entry, message in _model_messages(transcript, entries, _build_tree(entries)):
        builder.add_entry(entry, message)
    open_calls = builder.unanswered_calls()
    result_texts = _unanswered_texts(path, transcript, open_calls) if open_calls else {}
    messages = builder.build_messages(result_texts)
    problems = check_history(messages) if messages else []
    if problems:
        raise ToolspanError(f"{path}: the conversation cannot be continued: {problems[0]}")
    return messages


def _unanswered_texts(path: Path, transcript: Transcript, calls: list[str]) -> Mapping[str, str]:
    """Return the placeholder text for each missing result, by call id."""
    deferred_ids = {span.id for span in transcript.spans if span.deferred}
    evidence = collect_evidence(path, calls)
    evidence |= {
        call: CallEvidence("never_started", "a hook put it off, and it was never started")
        for call in calls
        if call in deferred_ids
    }
    return {call: format_unanswered(call_evidence) for call, call_evidence in evidence.items()}


def find_session_file(id_prefix: str, cwd: Path) -> Path:
    """Find a session by its id or an id prefix, first in `cwd` and then in all folders.

    Raises:
        NotFound: no session matches.
        Ambiguous: several sessions match.
    """
    projects = config_dir() / "projects"
    for folder in (_project_folder(cwd), projects):
        files = find_transcripts(folder) if folder.is_dir() else []
        session_files = [file for file in files if file.name.role == "session"]
        matching = {file.name.stem: file.path for file in session_files if file.name.stem.startswith(id_prefix)}
        if id_prefix in matching or len(matching) == 1:
            return matching.get(id_prefix) or next(iter(matching.values()))
        if matching:
            raise Ambiguous(f"{len(matching)} sessions begin with {id_prefix!r}: {', '.join(matching)}")
    raise NotFound(f"no session begins with {id_prefix!r}; see `toolspan sessions`")


def latest_session_file(cwd: Path) -> Path:
    """Return the most recently written transcript for a folder.

    Raises:
        NotFound: the folder has no transcripts.
    """
    folder = _project_folder(cwd)
    files = find_transcripts(folder) if folder.is_dir() else []
    session_files = [file for file in files if file.name.role == "session" and file.path.parent == folder]
    if not session_files:
        raise NotFound(f"{cwd}: no session was recorded in this folder")
    return max(session_files, key=lambda file: file.modified).path


def fork_transcript(
    path: Path, session_id: SessionId, cwd: Path, *, config: Path | None = None, until: str | None = None
) -> Path:
    """Copy a transcript under another session id, up to the record whose id begins with `until`.

    `config` is the configuration folder of the client.

    Raises:
        SourceError: the transcript cannot be read.
        NotFound: no record has that id.
        OSError: the copy cannot be written.
    """
    transcript = read(path)
    entries = _entries_until(list(transcript.entries()), until)
    target = transcript_path(session_id, cwd, config)
    make_folder(target.parent)
    target.touch(mode=0o600)
    with target.open("wb") as copy:
        for entry, location in entries:
            if entry.session_id is not None:
                fields = _record_fields(transcript, location)
                copy.write(encode_json({**fields, "sessionId": session_id}) + b"\n")
    return target


def _record_fields(transcript: Transcript, location: SourceLocation) -> dict[str, object]:
    """Return all fields of a record, or an empty object if the line cannot be repaired."""
    data = transcript.source.read(location.offset, location.length)
    try:
        fields = json_repair.decode_document(data)
    except ValueError:
        pieces = json_repair.recover_objects(data).pieces
        fields = json_repair.decode_document(pieces[0].data) if pieces else {}
    return fields if isinstance(fields, dict) else {}


def _entries_until(entries: list[LocatedEntry], until: str | None) -> list[LocatedEntry]:
    """Return the records up to `until`, plus all other blocks and results of its message.

    Raises:
        NotFound: no record has that id.
        Ambiguous: several records have that id prefix.
    """
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


def _build_tree(entries: list[LocatedEntry]) -> RecordTree:
    tree = RecordTree()
    for entry, location in entries:
        tree.add((entry,), location.line)
    return tree


def _project_folder(cwd: Path) -> Path:
    return transcript_path(SessionId("any"), cwd).parent


class _RecordBody(msgspec.Struct):
    """The record fields needed to build the history."""

    message: dict[str, object] | None = None
    rendered: list[dict[str, object]] | None = None


def _model_messages(
    transcript: Transcript, entries: list[LocatedEntry], tree: RecordTree
) -> Iterator[tuple[Entry, Message]]:
    """Yield the records that the model saw, in file order, with their messages."""
    branches = tree.branches()
    is_subagent = transcript.info.agent_id is not None
    lines = [located for located in entries if _is_model_visible(located[0], is_subagent=is_subagent)]
    active = [located for located in lines if branches.branch_of(located[1].line) == "active"]
    ids = {_message_id(entry) for entry, _ in active} - {None}
    calls = {block for entry, _ in lines if _message_id(entry) in ids for block in _entry_call_ids(entry)}
    for entry, location in lines:
        # Concurrent calls create branches, so records and results of siblings may be off the active path.
        belongs_to_active = _message_id(entry) in ids or not calls.isdisjoint(_answered_call_ids(entry))
        if branches.branch_of(location.line) == "active" or belongs_to_active:
            message = _read_message(location, transcript)
            if message is not None:
                yield entry, message


def _is_model_visible(entry: Entry, *, is_subagent: bool) -> bool:
    """Return whether the model saw a record. Sidechain records count only in a subagent's transcript."""
    if (entry.is_sidechain and not is_subagent) or entry.is_api_error:
        return False
    synthetic = entry.message is not None and entry.message.model == SYNTHETIC_MODEL
    return entry.type in ("user", "assistant", "attachment") and not synthetic


def _read_message(location: SourceLocation, transcript: Transcript) -> Message | None:
    try:
        body = msgspec.convert(_record_fields(transcript, location), _RecordBody)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if body.rendered is not None:
        texts = [part.get("content") for part in body.rendered]
        text_blocks = [{"type": "text", "text": text} for text in texts if isinstance(text, str)]
        return {"role": "user", "content": text_blocks}
    return body.message


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


@dataclass(slots=True)
class _MessageDraft:
    """A message under construction."""

    role: str
    id: str | None = None
    blocks: list[Block] = field(default_factory=list)


class _HistoryBuilder:
    """A builder that combines records into messages."""

    def __init__(self) -> None:
        self._drafts: list[_MessageDraft] = []
        self._call_ids: set[object] = set()
        self._results: dict[str, Block] = {}
        """The first result of each call."""

    def add_entry(self, entry: Entry, message: Message) -> None:
        """Add the next record."""
        blocks = sanitize_blocks(message.get("content"))
        if entry.type == "assistant":
            reply_blocks = [block for block in blocks if block["type"] != "tool_result"]
            self._add_reply_blocks(str(message.get("id")), reply_blocks)
            return
        for block in blocks:
            if block["type"] == "tool_result":
                self._results.setdefault(str(block["tool_use_id"]), block)
        self._add_user_blocks([block for block in blocks if block["type"] not in ("tool_use", "tool_result")])

    def unanswered_calls(self) -> list[str]:
        """Return the ids of calls without a result."""
        return [str(call) for call in self._call_ids if call not in self._results]

    def build_messages(self, result_texts: Mapping[str, str]) -> list[Message]:
        """Return the messages, with `result_texts` in place of missing results."""
        messages: list[Message] = []
        pending_results: list[Block] = []
        for draft in self._drafts:
            if draft.role == "assistant":
                if not messages:
                    placeholder: Block = {"type": "text", "text": LOST_BEGINNING_MESSAGE}
                    messages.append({"role": "user", "content": [placeholder]})
                _append_message(messages, "user", pending_results)
                blocks = sendable_blocks(draft.blocks)
                pending_results = list(self._result_blocks(blocks, result_texts))
            else:
                blocks, pending_results = pending_results + draft.blocks, []
            _append_message(messages, draft.role, blocks)
        _append_message(messages, "user", pending_results)
        return messages

    def _result_blocks(self, blocks: list[Block], result_texts: Mapping[str, str]) -> Iterator[Block]:
        """Yield one result per call: recorded results in order, followed by placeholders."""
        calls = {str(block["id"]) for block in blocks if block["type"] == "tool_use"}
        yield from (block for call_id, block in self._results.items() if call_id in calls)
        for block in blocks:
            if block["type"] == "tool_use" and block["id"] not in self._results:
                call_id = str(block["id"])
                yield {
                    "type": "tool_result",
                    "tool_use_id": call_id,
                    "content": result_texts[call_id],
                    "is_error": True,
                }

    def _without_repeated_calls(self, blocks: list[Block]) -> Iterator[Block]:
        """Drop repeated calls, which occur because clients may write part of the history again."""
        for block in blocks:
            if block["type"] != "tool_use":
                yield block
            elif block["id"] not in self._call_ids:
                self._call_ids.add(block["id"])
                yield block

    def _add_reply_blocks(self, message_id: str, blocks: list[Block]) -> None:
        # Results may be recorded between two blocks of one message.
        new_blocks = list(self._without_repeated_calls(blocks))
        if not new_blocks:
            return
        latest = next((draft for draft in reversed(self._drafts) if draft.role == "assistant"), None)
        if latest is None or latest.id != message_id:
            latest = _MessageDraft("assistant", message_id)
            self._drafts.append(latest)
        latest.blocks += new_blocks

    def _add_user_blocks(self, blocks: list[Block]) -> None:
        if not blocks:
            return
        if not self._drafts or self._drafts[-1].role != "user":
            self._drafts.append(_MessageDraft("user"))
        self._drafts[-1].blocks += blocks


def _append_message(messages: list[Message], role: str, blocks: list[Block]) -> None:
    if blocks:
        messages.append({"role": role, "content": blocks})
