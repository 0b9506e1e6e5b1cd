"""What was said before: a transcript as the history that a conversation goes on from.

In: a transcript of any quality. Out: messages that a server takes: the active branch from the last
compaction on, the blocks of a message joined again, every call with its one result, wherever in the
file that stands. A call without a result gets one that says so, with what is known of it. Nothing
is run again, and nothing is written, except by `fork`. Read `past` first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import msgspec

from toolspan.errors import Ambiguous, NotFound, ToolspanError
from toolspan.formats import json_repair
from toolspan.formats.claude.evidence import LOST_BEGINNING_MESSAGE, format_unanswered
from toolspan.formats.claude.paths import config_dir
from toolspan.formats.claude.records import Entry
from toolspan.formats.claude.tree import RecordTree
from toolspan.reading.discovery import find_transcripts
from toolspan.reading.transcript import Transcript, read
from toolspan.session.conversation import sanitize_blocks
from toolspan.session.models.history import Block, Message, check_history
from toolspan.session.recording import CallEvidence, collect_evidence, transcript_path
from toolspan.session.recording.chain import encode_json
from toolspan.session.recording.writer import make_folder
from toolspan.session.reply import sendable_blocks
from toolspan.types.ids import SessionId, SourceLocation

_SYNTHETIC_MODEL = "<synthetic>"

LocatedEntry = tuple[Entry, SourceLocation]


def load_history(path: Path, *, until: str | None = None) -> list[Message]:
    """The history of a transcript; `until` is the id of the line it ends with, or its beginning.

    Raises:
        SourceError: it cannot be read.
        NotFound: no line has that id.
        ToolspanError: no server would take it.
    """
    return build_history(read(path), path, until=until)


def build_history(transcript: Transcript, path: Path, *, until: str | None = None) -> list[Message]:
    """As `past`, of a transcript that was read.

    Raises:
        NotFound: no line has that id.
        ToolspanError: no server would take it.
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
        raise ToolspanError(f"{path}: the conversation cannot go on: {problems[0]}")
    return messages


def _unanswered_texts(path: Path, transcript: Transcript, calls: list[str]) -> Mapping[str, str]:
    """What is said in place of each result, in the client's words, and what is known beside."""
    deferred_ids = {span.id for span in transcript.spans if span.deferred}
    evidence = collect_evidence(path, calls)
    evidence |= {
        call: CallEvidence("never_started", "a hook put it off, and it was never started")
        for call in calls
        if call in deferred_ids
    }
    return {call: format_unanswered(call_evidence) for call, call_evidence in evidence.items()}


def find_session_file(id_prefix: str, cwd: Path) -> Path:
    """The transcript of a session by its id or the beginning of it, this folder's first.

    Raises:
        NotFound: there is none, or more than one.
    """
    projects = config_dir() / "projects"
    for folder in (_project_folder(cwd), projects):
        files = find_transcripts(folder) if folder.is_dir() else []
        session_files = [file for file in files if file.name.role == "session"]
        matching = {file.name.stem: file.path for file in session_files if file.name.stem.startswith(id_prefix)}
        if id_prefix in matching or len(matching) == 1:
            return matching.get(id_prefix) or next(iter(matching.values()))
        if matching:
            raise Ambiguous(f"{id_prefix!r} begins {len(matching)} sessions: {', '.join(matching)}")
    raise NotFound(f"no session begins with {id_prefix!r}; see `toolspan sessions`")


def latest_session_file(cwd: Path) -> Path:
    """The transcript in this folder that was written to last.

    Raises:
        NotFound: there is none.
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
    """A copy of a transcript under another id; the original is left as it is.

    `config` is the client's folder, found by itself if not given. `until` is the id of the last
    line that is copied, or its beginning: the conversation is gone on with from there.

    Raises:
        SourceError: it cannot be read.
        NotFound: no line has that id.
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
    """All that a line says; nothing when it is beyond repair."""
    data = transcript.source.read(location.offset, location.length)
    try:
        fields = json_repair.decode_document(data)
    except ValueError:
        pieces = json_repair.recover_objects(data).pieces
        fields = json_repair.decode_document(pieces[0].data) if pieces else {}
    return fields if isinstance(fields, dict) else {}


def _entries_until(entries: list[LocatedEntry], until: str | None) -> list[LocatedEntry]:
    """The lines up to one, with what belongs to its message: further blocks, and their results.

    Raises:
        NotFound: no line has that id, or several have one that begins so.
    """
    if until is None:
        return entries
    ids = {str(entry.uuid): n for n, (entry, _) in reversed(list(enumerate(entries))) if entry.uuid}
    matching_ids = [uuid for uuid in ids if uuid.startswith(until)] if until not in ids else [until]
    if len(matching_ids) != 1:
        problem = f"begins {len(matching_ids)} lines" if matching_ids else "is the id of no line"
        raise (Ambiguous if matching_ids else NotFound)(f"{until!r} {problem} of this session")
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
    """A line, as far as the history needs it."""

    message: dict[str, object] | None = None
    rendered: list[dict[str, object]] | None = None


def _model_messages(
    transcript: Transcript, entries: list[LocatedEntry], tree: RecordTree
) -> Iterator[tuple[Entry, Message]]:
    """The lines the model saw, in file order, with their messages."""
    branches = tree.branches()
    is_subagent = transcript.info.agent_id is not None
    lines = [located for located in entries if _is_model_visible(located[0], is_subagent=is_subagent)]
    active = [located for located in lines if branches.branch_of(located[1].line) == "active"]
    ids = {_message_id(entry) for entry, _ in active} - {None}
    calls = {block for entry, _ in lines if _message_id(entry) in ids for block in _entry_call_ids(entry)}
    for entry, location in lines:
        # Calls that overlap make a tree: a sibling's line and result may lie beside the way up.
        belongs_to_active = _message_id(entry) in ids or not calls.isdisjoint(_answered_call_ids(entry))
        if branches.branch_of(location.line) == "active" or belongs_to_active:
            message = _read_message(location, transcript)
            if message is not None:
                yield entry, message


def _is_model_visible(entry: Entry, *, is_subagent: bool) -> bool:
    """Whether the model saw it; what subagents say, only in a transcript of theirs."""
    if (entry.is_sidechain and not is_subagent) or entry.is_api_error:
        return False
    synthetic = entry.message is not None and entry.message.model == _SYNTHETIC_MODEL
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
    """One message to be."""

    role: str
    id: str | None = None
    blocks: list[Block] = field(default_factory=list)


class _HistoryBuilder:
    """Lines, joined to messages again."""

    def __init__(self) -> None:
        self._drafts: list[_MessageDraft] = []
        self._call_ids: set[object] = set()
        self._results: dict[str, Block] = {}
        """The result of each call, the first one that is there."""

    def add_entry(self, entry: Entry, message: Message) -> None:
        """The next line."""
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
        """The calls that have no result."""
        return [str(call) for call in self._call_ids if call not in self._results]

    def build_messages(self, result_texts: Mapping[str, str]) -> list[Message]:
        """All of it, such that a server takes it; with what is said of calls without a result."""
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
        """One result for each call: those there are, in the order they came in, then the others."""
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
        """Without calls that were there before: clients may write a part of the history again."""
        for block in blocks:
            if block["type"] != "tool_use":
                yield block
            elif block["id"] not in self._call_ids:
                self._call_ids.add(block["id"])
                yield block

    def _add_reply_blocks(self, message_id: str, blocks: list[Block]) -> None:
        """A result may stand between two blocks of one message."""
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


class ResumeArguments(TypedDict, total=False):
    """Arguments of a `Session`."""

    cwd: Path
    session_id: str
    transcript: Path
    history: Sequence[Mapping[str, object]]


def resume_arguments(cwd: Path | str = ".", *, session: str | None = None) -> ResumeArguments:
    """What a session in this folder goes on from: its last one, or the one that is named.

    `session` is an id or the beginning of one. Without it, a folder that has no session yet gets a
    new one. Nothing is run again: a call that was cut off is answered with what is known of it.

    Raises:
        NotFound: no session has that name.
        Ambiguous: several have.
        SourceError: it cannot be read.
        ToolspanError: no server would take its history.
    """
    folder = Path(cwd).expanduser().resolve()
    try:
        path = latest_session_file(folder) if session is None else find_session_file(session, folder)
    except NotFound:
        if session is not None:
            raise
        return {"cwd": folder}
    return {"cwd": folder, "session_id": path.stem, "transcript": path, "history": load_history(path)}
