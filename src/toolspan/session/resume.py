"""Continue a recorded session: find its transcript, rebuild the messages, fork it.

The API accepts the rebuilt history even if the transcript is damaged: it consists of the active branch since the last
compaction, with the blocks of a message joined and one result for every call. A call without a recorded result gets a
placeholder with the available evidence; nothing is run again. Start at `load_history`; `Session.resume` is the public
entry point.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from toolspan.errors import Ambiguous, NotFound, ToolspanError, UnknownFormat
from toolspan.formats.evidence import LOST_BEGINNING_MESSAGE, CallEvidence, collect_evidence, format_unanswered
from toolspan.formats.jsonl import make_folder
from toolspan.formats.registry import detect_client, recorded_format
from toolspan.formats.source import FileSource
from toolspan.reading.discovery import TranscriptFile, find_transcripts, recency
from toolspan.reading.transcript import Transcript, read
from toolspan.session.conversation import sanitize_blocks, text_blocks
from toolspan.session.models.history import Block, Message, check_history
from toolspan.session.recording import OnFailure, Recorder, RecorderConfig, check_session_id, transcript_path
from toolspan.session.recording.history import copy_records, model_messages
from toolspan.session.reply import sendable_blocks
from toolspan.types.ids import SessionId

DefaultLocation = Literal["home"]
History = Sequence[Mapping[str, object]]
_RECORD_START = b'{"parentUuid":'
"""The first bytes of a conversation record, which identify it even if the line is incomplete."""


class ConversationStart(NamedTuple):
    """The starting point of a conversation: its id, its transcript and its earlier messages."""

    session_id: SessionId
    target: Path | Recorder | None
    history: History

    def open_recorder(self, config: RecorderConfig, on_failure: OnFailure) -> Recorder | None:
        """Return the session's recorder, or None if the session is not recorded."""
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
    """Resolve a session's arguments to its starting point. A transcript with content is continued."""
    new_id = SessionId(session_id or str(uuid.uuid4()))
    check_session_id(new_id)
    if transcript is None or isinstance(transcript, Recorder):
        return ConversationStart(new_id, transcript, history)
    path = transcript_path(new_id, cwd) if transcript == "home" else Path(transcript).absolute()
    if not _has_content(path):
        return ConversationStart(new_id, path, history)
    source = FileSource(path)
    if detect_client(source) != recorded_format().name:
        with source.open() as file:
            if file.read(len(_RECORD_START)) != _RECORD_START:
                raise UnknownFormat(f"{path} is not a transcript that can be continued; it was left unchanged")
    if session_id is not None and history:
        return ConversationStart(new_id, path, history)
    recorded = read(path)
    if session_id is None and recorded.info.session_ids:
        recorded_id = recorded.info.session_ids[-1]
        with suppress(ToolspanError):
            check_session_id(recorded_id)
            new_id = SessionId(recorded_id)
    return ConversationStart(new_id, path, history or build_history(recorded, path))


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def load_history(path: Path, *, until: str | None = None) -> list[Message]:
    """Return the messages in a transcript, up to the record whose id begins with `until`.

    Raises:
        SourceError: the transcript cannot be read.
        NotFound: no record has that id.
        ToolspanError: the API would not accept the messages.
    """
    return build_history(read(path), path, until=until)


def build_history(transcript: Transcript, path: Path, *, until: str | None = None) -> list[Message]:
    """Return the messages in a transcript that was read from `path`. See `load_history`."""
    builder = _HistoryBuilder()
    for is_reply, message in model_messages(transcript, until):
        builder.add_message(message, is_reply=is_reply)
    calls = builder.unanswered_calls()
    result_texts: dict[str, str] = {}
    if calls:
        deferred_ids = {span.id for span in transcript.spans if span.deferred}
        deferred = CallEvidence("never_started", "a hook deferred it, and it was never started")
        for call, evidence in collect_evidence(path, calls).items():
            result_texts[call] = format_unanswered(deferred if call in deferred_ids else evidence)
    messages = builder.build_messages(result_texts)
    problems = check_history(messages) if messages else []
    if problems:
        raise ToolspanError(f"{path}: the conversation cannot be continued: {problems[0]}")
    return messages


def answer_subagent_calls(recorder: Recorder, main_path: Path) -> None:
    """Record a result for each unanswered call of a subagent. The main session's side files have the evidence.

    A conversation that cannot be continued is left as it is.
    """
    with suppress(ToolspanError):
        recorder.set_resume_answers(build_history(read(recorder.path), main_path))
        recorder.write_resume_answers()


def find_resumed_file(session: str | None, cwd: Path) -> Path | None:
    """Return the transcript of the session whose id begins with `session`, or the newest of a folder if there is one.

    Raises:
        NotFound, Ambiguous: no session, or more than one, has that id.
    """
    if session is not None:
        return find_session_file(session, cwd)
    with suppress(NotFound):
        return latest_session_file(cwd)
    return None


def find_session_file(id_prefix: str, cwd: Path) -> Path:
    """Find a session by its id or an id prefix, first in `cwd` and then in all folders.

    Raises:
        NotFound: no session matches.
        Ambiguous: several sessions match.
    """
    for folder in (_project_folder(cwd), *recorded_format().roots()):
        files = _session_files(folder)
        matching = {file.name.stem: file.path for file in files if file.name.stem.startswith(id_prefix)}
        if id_prefix in matching or len(matching) == 1:
            return matching.get(id_prefix) or next(iter(matching.values()))
        if matching:
            raise Ambiguous(f"{len(matching)} sessions begin with {id_prefix!r}: {', '.join(matching)}")
    raise NotFound(f"no session begins with {id_prefix!r}; see `toolspan sessions`")


def latest_session_file(cwd: Path) -> Path:
    """Return the most recently written transcript for a folder."""
    folder = _project_folder(cwd)
    files = [file for file in _session_files(folder) if file.path.parent == folder]
    if not files:
        raise NotFound(f"{cwd}: no session was recorded in this folder")
    return max(files, key=recency).path


def _project_folder(cwd: Path) -> Path:
    return transcript_path(SessionId("any"), cwd).parent


def _session_files(folder: Path) -> list[TranscriptFile]:
    files = find_transcripts(folder) if folder.is_dir() else []
    return [file for file in files if file.name.role == "session"]


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
    target = transcript_path(session_id, cwd, config)
    make_folder(target.parent)
    target.touch(mode=0o600)
    with target.open("wb") as copy:
        copy_records(transcript, until, session_id, copy)
    return target


@dataclass(slots=True)
class _MessageDraft:
    """A message under construction."""

    role: str
    id: str | None
    blocks: list[Block] = field(default_factory=list)


class _HistoryBuilder:
    """Builder that combines records into messages."""

    def __init__(self) -> None:
        self._drafts: list[_MessageDraft] = []
        self._call_ids: set[object] = set()
        self._results: dict[str, Block] = {}
        """The first result of each call."""
        self._positions: dict[str, int] = {}
        """The order of those results."""

    def add_message(self, message: Message, *, is_reply: bool) -> None:
        """Add the message of the next record."""
        new_blocks: list[Block] = []
        for block in sanitize_blocks(message.get("content")):
            if block["type"] == "tool_result":
                if not is_reply:
                    call_id = str(block["tool_use_id"])
                    self._results.setdefault(call_id, block)
                    self._positions.setdefault(call_id, len(self._positions))
            elif block["type"] != "tool_use":
                new_blocks.append(block)
            elif is_reply and block["id"] not in self._call_ids:  # clients may write part of the history again
                self._call_ids.add(block["id"])
                new_blocks.append(block)
        if not new_blocks:
            return
        # Results may be recorded between two blocks of one message.
        latest = next((draft for draft in reversed(self._drafts) if draft.role == "assistant" or not is_reply), None)
        draft = _MessageDraft("assistant", str(message.get("id"))) if is_reply else _MessageDraft("user", None)
        if latest is not None and (latest.role, latest.id) == (draft.role, draft.id):
            draft = latest
        else:
            self._drafts.append(draft)
        draft.blocks += new_blocks

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
                    messages.append({"role": "user", "content": text_blocks([LOST_BEGINNING_MESSAGE])})
                _append_message(messages, "user", pending_results)
                blocks = sendable_blocks(draft.blocks)
                pending_results = self._result_blocks(blocks, result_texts)
            else:
                blocks, pending_results = pending_results + draft.blocks, []
            _append_message(messages, draft.role, blocks)
        _append_message(messages, "user", pending_results)
        return messages

    def _result_blocks(self, blocks: list[Block], result_texts: Mapping[str, str]) -> list[Block]:
        """Return one result per call: recorded results in order, followed by placeholders."""
        calls = [str(block["id"]) for block in blocks if block["type"] == "tool_use"]
        placeholders: list[Block] = [
            {"type": "tool_result", "tool_use_id": call_id, "content": result_texts[call_id], "is_error": True}
            for call_id in calls
            if call_id not in self._results
        ]
        recorded = sorted((call for call in calls if call in self._results), key=self._positions.__getitem__)
        return [self._results[call] for call in recorded] + placeholders


def _append_message(messages: list[Message], role: str, blocks: list[Block]) -> None:
    if blocks:
        messages.append({"role": role, "content": blocks})
