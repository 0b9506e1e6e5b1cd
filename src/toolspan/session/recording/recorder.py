"""Record a session as a transcript in the client's format.

`Recorder` converts prompts, replies and events to records in the format of the profile's client, in
order of completion. The parent of a result is the record of its call; the parent of any other
record is the previous one. A record that could not be written gets no id, so no other record refers
to it. Write failures are reported to `on_failure` and never raised. Not thread-safe. Start at
`Recorder.handle` and `Recorder.record_result`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import MAXYEAR, UTC, datetime
from pathlib import Path
from typing import Self

import msgspec
from msgspec import Struct

from toolspan.errors import InUse, SourceError
from toolspan.formats.claude.reader import find_agent_paths
from toolspan.formats.claude.records import CALL_BLOCK_TYPES, Entry, decode_entry
from toolspan.formats.jsonl import encode_json, make_folder, read_lines
from toolspan.formats.registry import parse_file_name
from toolspan.formats.side_files import intent_path, meta_path
from toolspan.formats.source import FileSource
from toolspan.runtime.pending_call import call_block
from toolspan.session.recording import entries
from toolspan.session.recording.entries import EntryTemplate, Fields, RecorderConfig
from toolspan.session.recording.writer import (
    IntentLog,
    LockOwner,
    TranscriptWriter,
    agent_path,
    append_to_hook_log,
    claim_transcript,
    is_transcript_claimed,
    release_transcript,
)
from toolspan.types.events import Content, Decided, Finished, HookRan, LiveEvent, Requested, WriteFailed
from toolspan.types.ids import CallId, SessionId
from toolspan.types.span import parse_timestamp

OnFailure = Callable[[WriteFailed], None]
"""A callback for records that could not be written. It must not raise."""

_STOP_BLOCKED = ("Stop", 2)
"""The hook point and exit code of a hook that keeps a turn from ending."""
_LATEST_TIME = datetime(MAXYEAR, 12, 31, tzinfo=UTC)


class _OpenCall(Struct, frozen=True):
    """A recorded call without a result, and the id of its record."""

    uuid: str
    tool: str
    input: object = None


class Recorder:
    """A recorder for one transcript file."""

    def __init__(self, path: Path, config: RecorderConfig, on_failure: OnFailure) -> None:
        self.path = path
        self.permission_mode = config.permission_mode
        self.session_cwd = str(config.cwd)
        """The session's folder after the last call. A change applies to later records."""
        self.last_uuid: str | None = None
        self._config = config
        self._shape = config.profile.shape
        self._sidechain = config.agent_id is not None
        self._on_failure = on_failure
        self._template = EntryTemplate(config)
        self._writer = TranscriptWriter(path, self._report_failure)
        self._latest_time = 0.0
        """The lower bound for timestamps. Clients treat the latest record as the end of a session, so
        timestamps in a resumed session never decrease. For some profiles, they strictly increase.
        """
        self._latest_user_time = 0.0
        """The time of the last record on the user's side. A reply is always later: readers treat a reply with
        the same timestamp as a copy made by an old client.
        """
        self._open_calls: dict[str, _OpenCall] = {}
        self._unrecorded_calls: set[str] = set()
        """Calls whose record could not be written. Their results are omitted as well."""
        self._pending_results: list[Finished] = []
        self._unwritten_lines: list[bytes] = []
        """With a store, the lines that could not be written. They are written before the next record."""
        self._incomplete: set[Recorder] = set()
        """The recorders of the session that have unwritten lines, shared by all of them."""
        self._held_hooks: dict[str, list[HookRan]] = {}
        """Hooks that ran after a call, by call id. They are recorded after its result."""
        self._last_message: Mapping[str, object] = {}
        self._block_count = 0
        self._turn_count = 0
        self._last_prompt: str | None = None
        self._main_path = path
        self._intent_log: IntentLog | None = None
        self._owns_intent_log = True
        self._resume_answers: dict[str, Content] = {}
        """Results for open calls in a resumed transcript, to be written before the next record."""
        self._ends_with_calls = False
        """True if the resumed transcript ends with calls or results."""
        self._has_claim = False

    @classmethod
    def resume(cls, path: Path, config: RecorderConfig, on_failure: OnFailure) -> Self:
        """Continue a transcript after its last record.

        Raises:
            SourceError: the file cannot be read.
            InUse: another process, or another session in this process, is writing to it.
        """
        if is_transcript_claimed(path):
            raise InUse(_claimed_message(path))
        recorder = cls(path, config, on_failure)
        recorder._writer.ensure_open()
        owner = recorder._writer.owner
        if owner is not None:
            recorder._writer.close()
            raise InUse(_owned_message(path, owner))
        end = _read_transcript_end(path)
        recorder._ends_with_calls = end.ends_with_calls
        recorder.last_uuid, recorder._latest_time = end.last_uuid, end.latest_time + 0.001
        recorder._template.prompt_id = end.prompt_id
        recorder._turn_count = end.turns
        recorder._open_calls = end.open_calls
        return recorder

    def claim(self) -> None:
        """Reserve the transcript for this recorder until it is closed.

        Raises:
            InUse: another session in this process is recording the transcript, or has written to it since this
            recorder was created.
        """
        if self._has_claim:
            return
        if not claim_transcript(self.path):
            raise InUse(_claimed_message(self.path))
        if self._writer.is_changed:
            release_transcript(self.path)
            raise InUse(f"{self.path.stem}: the transcript changed after this session was created; create it again")
        self._has_claim = True

    def subagent_recorder(self, agent_id: str, metadata: Mapping[str, object]) -> Recorder:
        """Return a recorder for a subagent, and write `metadata` next to its transcript."""
        path = agent_path(self._main_path, agent_id, self._shape.agents)
        config = replace(self._config, agent_id=agent_id, cwd=self.cwd)
        make = Recorder.resume if path.is_file() else Recorder
        recorder = make(path, config, self._on_failure)
        recorder._intent_log, recorder._owns_intent_log = self._intent_log, False
        recorder._main_path = self._main_path
        recorder._incomplete = self._incomplete
        recorder.write_metadata(metadata)
        return recorder

    def resume_interrupted_subagents(self) -> list[Recorder]:
        """Return recorders for the session's subagents whose transcripts contain unanswered calls.

        A transcript that cannot be read, or that another session is writing to, is left alone.
        """
        recorders: list[Recorder] = []
        for path in [] if self._sidechain else find_agent_paths(self.path):
            with suppress(SourceError, InUse):
                end = _read_transcript_end(path)
                if end.open_calls:  # only then is the file opened for writing
                    cwd = Path(end.cwd) if end.cwd else self.cwd
                    config = replace(self._config, agent_id=parse_file_name(path).agent_id, cwd=cwd)
                    recorders.append(Recorder.resume(path, config, self._on_failure))
        return recorders

    def write_metadata(self, metadata: Mapping[str, object]) -> None:
        """Write a subagent's metadata file, if the client version uses one."""
        if not self._sidechain or self._shape.agents != "nested":
            return
        path = meta_path(self.path)
        try:
            make_folder(path.parent)
            path.write_bytes(encode_json(metadata))
            path.chmod(0o600)
        except OSError as error:
            self._report_failure(error.strerror or str(error), path)

    def open_intent_log(self) -> IntentLog | None:
        """Open and return the intent log, or return None if the transcript is a pipe or a device."""
        if self.path.exists() and not self.path.is_file():
            return None
        if self._intent_log is None:
            self._intent_log = IntentLog(
                intent_path(self.path),
                self._report_failure,
                fsync=self._config.fsync,
                stored=self._config.stored,
                clock=self._config.clock,
            )
        return self._intent_log

    def set_resume_answers(self, history: Sequence[Mapping[str, object]]) -> None:
        """Store the results that a resumed session's history contains for open calls.

        They are written by `write_resume_answers`, or before the next record of any kind.
        """
        for message in history:
            content = message.get("content")
            for block in content if isinstance(content, list) else ():
                call_id = block.get("tool_use_id")
                if call_id in self._open_calls:
                    self._resume_answers[call_id] = block.get("content") or ""

    @property
    def resume_answers(self) -> Mapping[str, Content]:
        """The results for open calls that have not been written yet, by call id."""
        return self._resume_answers

    @property
    def session_id(self) -> SessionId:
        """The id of the recorded session."""
        return self._config.session_id

    @property
    def cwd(self) -> Path:
        """The folder in new records."""
        return self._template.cwd

    @property
    def open_calls(self) -> frozenset[CallId]:
        """The recorded calls that have no recorded result."""
        return frozenset(map(CallId, self._open_calls))

    def set_cwd(self, cwd: Path) -> None:
        """Set the folder for later records."""
        if cwd != self.cwd:
            self._template.set_cwd(cwd)

    # Recording

    def handle(self, event: LiveEvent | entries.ConversationEvent) -> None:
        """Record an event from the runner or the conversation. Events that have no record are ignored."""
        if isinstance(event, Finished):
            if event.cwd != self.session_cwd and event.cwd is not None:
                self.session_cwd = event.cwd
                self.set_cwd(Path(event.cwd))
            self.record_result(event)
        elif isinstance(event, HookRan):
            self.record_hook(event)
        elif isinstance(event, entries.ConversationEvent):
            self._ensure_open()
            self._write_conversation_event(event)
        elif isinstance(event, Requested) and event.recovers is not None:
            self.record_reply(self._last_message, [call_block(event.call)], last=False)

    def _write_conversation_event(self, event: entries.ConversationEvent) -> None:
        has_attachments = self._shape.hooks == "attachments"
        match event:
            case entries.Interruption():
                text = entries.INTERRUPTED_TOOL if event.during_tool_use else entries.INTERRUPTED
                self._append(entries.user_fields([{"type": "text", "text": text}]), user=True)
            case entries.BackgroundNotice() if has_attachments:
                self._append(*entries.attachment_fields(self._shape, entries.queued_notice(event.text)))
            case entries.BackgroundNotice():
                self._append(entries.user_fields(event.text, isMeta=True), user=True)
            case entries.TurnLimitReached() if has_attachments:
                attachment: Fields = {"type": "max_turns_reached", "maxTurns": event.max_turns}
                self._append(*entries.attachment_fields(self._shape, {**attachment, "turnCount": event.turns}))
            case entries.TurnLimitReached():
                pass
            case entries.StopSummary():
                self._append(entries.stop_summary_fields(event))
            case entries.RefusedPrompt():
                self._append(entries.refused_prompt_fields(event, self._config.profile))
            case entries.Compaction():
                self._append(entries.compaction_fields(event, self.last_uuid), root=True)
                summary = entries.user_fields(event.summary, isVisibleInTranscriptOnly=True, isCompactSummary=True)
                self._append(summary, user=True)
            case entries.RequestFailure() if event.attempt:
                self._append(entries.retry_fields(event))
            case entries.RequestFailure():
                message = entries.message_fields({"id": self._new_message_id(), "model": entries.SYNTHETIC_MODEL})
                message |= {"content": [{"type": "text", "text": event.text}], "stop_reason": "stop_sequence"}
                self._append(entries.reply_fields(message, None, None), entries.failure_fields(event))

    def record_prompt(
        self, content: Content, *, meta: bool = False, prompt_id: str | None = None, is_notification: bool = False
    ) -> None:
        """Record a prompt.

        `meta` marks text that the user did not write, `is_notification` a turn that a background task started.

        Raises:
            InUse: this is the first record, and another process has begun to write to the file.
        """
        self._ensure_open()
        owner = self._writer.owner
        if owner is not None and self.last_uuid is None:
            self._writer.close()
            raise InUse(_owned_message(self.path, owner))
        if meta:
            self._append(entries.user_fields(content, isMeta=True), user=True)
            return
        self._turn_count += 1
        self._last_prompt = content if isinstance(content, str) else self._last_prompt
        self._template.prompt_id = prompt_id or self._config.new_id()
        self._template.set_cwd(self.cwd)  # the branch may have changed
        extra: Fields = {}
        if not self._sidechain:
            extra = entries.prompt_fields(
                self._shape, self.permission_mode, self._turn_count, is_notification=is_notification
            )
        self._append(entries.user_fields(content), extra, user=True)

    def record_reply(
        self,
        message: Mapping[str, object],
        blocks: Sequence[Mapping[str, object]] | None = None,
        *,
        last: bool = True,
        request_id: str | None = None,
        at: float | None = None,
    ) -> None:
        """Record a message from the model, one record per block.

        For a message that is still streaming, `blocks` are the new blocks and `last` is False. A record that cannot be
        written is skipped, and the rest are retried.
        """
        if blocks is None:
            content = message.get("content")
            blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        if not message.get("id"):
            message = {**message, "id": self._new_message_id()}
        records = self._reply_records(message, blocks, last=last, request_id=request_id)
        with_effects = [
            str(block.get("id"))
            for block, _ in records
            if block.get("type") == "tool_use" and not self._config.is_read_only(str(block.get("name")))
        ]
        if with_effects and self._intent_log is not None:
            self._intent_log.record_requested(with_effects)
        extra: Fields = {"madeBy": "model"} if self._shape.blocks_numbered else {}
        while records:
            self._ensure_open()
            uuids = self._append([fields for _, fields in records], extra, at=at)
            for (block, _), uuid in zip(records, uuids, strict=False):
                if block.get("type") == "tool_use":
                    open_call = _OpenCall(uuid, str(block.get("name")), block.get("input"))
                    self._open_calls[str(block.get("id"))] = open_call
            for block, _ in records[len(uuids) : len(uuids) + 1]:
                if block.get("type") == "tool_use":
                    self._unrecorded_calls.add(str(block.get("id")))
            records = records[len(uuids) + 1 :]
        if self in self._incomplete and self._intent_log is not None:
            self._intent_log.refuse(with_effects)

    def _reply_records(
        self,
        message: Mapping[str, object],
        blocks: Sequence[Mapping[str, object]],
        *,
        last: bool,
        request_id: str | None,
    ) -> list[tuple[Mapping[str, object], Fields]]:
        """Return the blocks to record, each with the fields of its record."""
        if message["id"] != self._last_message.get("id"):
            self._block_count = 0
        self._last_message = message
        message_fields, first = entries.message_fields(message), self._block_count
        self._block_count += len(blocks)
        end = self._block_count - 1 if last else self._block_count
        stop_from = first if self._shape.final_stop else end
        records: list[tuple[Mapping[str, object], Fields]] = []
        for number, block in enumerate(blocks, first):
            if block.get("type") == "thinking" and not block.get("signature"):
                continue  # the API does not accept unsigned thinking back
            fields = {**message_fields, "content": [block]}
            if number >= stop_from:
                fields |= {"stop_reason": message.get("stop_reason"), "stop_sequence": message.get("stop_sequence")}
            position = number if self._shape.blocks_numbered else None
            records.append((block, entries.reply_fields(fields, position, request_id)))
        return records

    def record_result(self, finished: Finished) -> None:
        """Record a call's result, followed by its hooks and companion texts."""
        self._ensure_open()
        call_id = finished.span.call.id
        if self._intent_log is not None:
            self._intent_log.record_finished(call_id, finished.span.state)
        if call_id in self._unrecorded_calls:
            self._unrecorded_calls.discard(call_id)
            self._held_hooks.pop(call_id, None)
            self._report_failure(f"{call_id} is not in the file, so its result is omitted")
            return
        for context in finished.contexts:
            if context.model_text is None:  # a blocking hook is recorded with its own event
                self.record_hook(
                    HookRan(
                        call_id=call_id,
                        point=context.point,
                        name=context.name,
                        outcome="context",
                        text=context.text,
                        at=finished.at,
                    )
                )
        if not finished.span.deferred:
            self._write_result(finished)
        if finished.decision is not None and finished.decision.asked:
            self._log_wait(finished, finished.decision)
        for hook_event in self._held_hooks.pop(call_id, ()):
            self._write_hook(hook_event, finished.span.tool)
        flags = {"isMeta": True, "turnCompanion": True} if self._shape.turn_companions else {"isMeta": True}
        for companion in finished.companions:
            self._append(entries.user_fields(companion, **flags), at=finished.at, user=True)

    def _log_wait(self, finished: Finished, decision: Decided) -> None:
        """Add the times of a permission question to the hook log: a transcript has no place for them."""
        if decision.waited_ms < 1:
            return
        asked_at = decision.at - decision.waited_ms / 1e3
        note: Fields = {"v": 1, "call": finished.call_id, "tool": finished.span.tool}
        rows = [{**note, "at": asked_at, "event": event} for event in ("PreToolUse", "PermissionRequest")]
        if decision.allowed:
            ran_ms = max(0.0, finished.at - decision.at) * 1e3
            rows.append({**note, "at": finished.at, "event": "PostToolUse", "duration_ms": ran_ms})
        try:
            append_to_hook_log(self.path, b"".join(encode_json(row) + b"\n" for row in rows))
        except OSError as error:
            self._report_failure(f"the wait for permission of {finished.call_id}: {error.strerror}")

    def record_hook(self, event: HookRan) -> None:
        """Record a hook. Hooks that run after a call are held until its result is recorded."""
        is_late = event.point.startswith("Post") or event.outcome == "stopped"
        if is_late and event.call_id in self._open_calls:
            self._held_hooks.setdefault(event.call_id, []).append(event)
        else:
            self._ensure_open()
            self._write_hook(event)

    def close(self) -> None:
        """Write held records and the session's last prompt, and close the files."""
        held, self._held_hooks = self._held_hooks, {}
        if held or self._pending_results or self.last_uuid:
            self._ensure_open()
        for events in held.values():
            for event in events:
                self._write_hook(event)
        if self.last_uuid and self._last_prompt is not None and not self._sidechain:
            last_prompt = entries.last_prompt_fields(self._shape, self._last_prompt, self.last_uuid)
            self._last_prompt = None  # write it only once: after a second close, the transcript may have another end
            if last_prompt:
                line = encode_json({**last_prompt, "sessionId": self.session_id}) + b"\n"
                self._write_lines([line], sync=self._config.fsync == "always")
        if self in self._incomplete and not self.write_rest():
            self._incomplete.discard(self)
            self._on_failure(self._write_failure(f"the last records could not be written to {self.path}"))
        self._writer.close()
        if self._intent_log is not None and self._owns_intent_log:
            self._intent_log.close()
        if self._has_claim:
            release_transcript(self.path)
            self._has_claim = False

    # Writing

    def _ensure_open(self) -> None:
        """Open the file and write pending results. Must be called before each record."""
        if not self._writer.ensure_open():  # the file was removed along with earlier records
            self.last_uuid = None
            self._unrecorded_calls.update(self._open_calls)
            self._open_calls.clear()
            self._pending_results.clear()
        if self._pending_results:
            pending_results, self._pending_results = self._pending_results, []
            for finished in pending_results:
                self._write_result(finished)
        if self._resume_answers:
            self._write_resume_answers()

    def write_rest(self) -> bool:
        """Try again to write what could not be written, and return whether nothing is left."""
        for recorder in tuple(self._incomplete):
            recorder._ensure_open()
            recorder._write_lines([])
        return not self._incomplete

    def write_resume_answers(self) -> None:
        """Write the results for the calls that were open when the session was resumed."""
        if self._resume_answers:
            self._ensure_open()

    def _append(
        self,
        body: Fields | Sequence[Fields],
        extra: Fields | None = None,
        *,
        parent: str | None = None,
        at: float | None = None,
        user: bool = False,
        root: bool = False,
    ) -> list[str]:
        """Append records in one write, and return the ids of those that were written.

        The parent of a record is the previous one unless `parent` or `root` is set. `user` marks records
        on the user's side, which include results. Call `_ensure_open` first.
        """
        previous = None if root else parent or self.last_uuid
        lines: list[bytes] = []
        uuids: list[str] = []
        for fields in [body] if isinstance(body, dict) else body:
            now = round(max(self._config.clock() if at is None else at, self._latest_time), 3)
            if self._shape.times_rise:
                now = self._latest_time = max(now, round(self._latest_time + 0.001, 3))
            elif fields["type"] == "assistant" and now <= self._latest_user_time:
                now = self._latest_time = round(self._latest_user_time + 0.001, 3)
            if user:
                self._latest_user_time = now
            uuid = self._config.new_id()
            entry = self._template.build_entry(previous, uuid, now, fields, extra or {}, user=user)
            try:
                lines.append(msgspec.json.encode(entry) + b"\n")
            except Exception:  # noqa: BLE001 - tools return arbitrary objects
                # Encode each field separately, so that a value that JSON cannot express affects no other.
                encoded = (b"%b:%b" % (encode_json(key), encode_json(value)) for key, value in entry.items())
                lines.append(b"{%b}\n" % b",".join(encoded))
            uuids.append(uuid)
            previous = uuid
        sync = self._config.fsync == "always" or (user and self._config.fsync == "results")
        written = self._write_lines(lines, sync=sync)
        if written:
            self.last_uuid = uuids[written - 1]
        return uuids[:written]

    def _write_lines(self, lines: Sequence[bytes], *, sync: bool = False) -> int:
        """Append lines to the file, and return how many were written.

        With a store, lines that could not be written count as written, and wait in memory: `Session.run` returns only
        when the store has them, and calls with side effects do not start before.
        """
        stored = self._config.stored
        if stored is None:
            return self._writer.write_lines(lines, sync=sync)
        waiting = [*self._unwritten_lines, *lines]
        self._unwritten_lines = waiting[self._writer.write_lines(waiting, sync=sync) :]
        if self._unwritten_lines or self._writer.ends_mid_line:
            self._incomplete.add(self)
        else:
            self._incomplete.discard(self)
        stored.notify()
        return len(lines)

    def _write_resume_answers(self) -> None:
        answers, self._resume_answers = self._resume_answers, {}
        last = self.last_uuid
        for call_id, content in answers.items():
            open_call = self._open_calls.get(call_id)
            if open_call is not None:
                uuid, denial = open_call.uuid, "interrupted"
                body, extra = entries.result_fields(
                    self._shape, call_id, content, is_error=True, call_uuid=uuid, structured=content, denial=denial
                )
                if self._append(body, extra, parent=uuid if self._shape.parent_is_own_call else None, user=True):
                    del self._open_calls[call_id]
                else:
                    self._resume_answers[call_id] = content
        if not self._ends_with_calls:  # a prompt or reply follows the calls: the conversation continues there
            self.last_uuid = last

    def _write_result(self, finished: Finished) -> None:
        span, shape, decision = finished.span, self._shape, finished.decision
        call_id, result = span.call.id, span.result
        open_call = self._open_calls.get(call_id)
        call_uuid = open_call.uuid if open_call else None
        is_error = result.is_error if result else None
        has_structured = not self._sidechain or shape.companions_aside or is_error
        body, extra = entries.result_fields(
            shape,
            call_id,
            finished.content,
            is_error=is_error,
            call_uuid=call_uuid,
            structured=finished.structured if has_structured else None,
            beside=finished.beside,
            denial=result.denial_kind if result else None,
            decision=entries.decision_fields(decision) if decision else None,
        )
        parent = call_uuid if shape.parent_is_own_call else None
        if self._append(body, extra, parent=parent, at=finished.at, user=True):
            self._open_calls.pop(call_id, None)
        else:
            self._pending_results.append(finished)

    def _write_hook(self, event: HookRan, tool: str | None = None) -> None:
        open_call = self._open_calls.get(event.call_id)
        if tool is None:
            tool = open_call.tool if open_call else ""
        if self._shape.hooks == "progress":
            progress = entries.hook_progress(event, tool)
            if progress:
                self._append(progress, at=event.at)
            return
        if event.outcome == "blocked" and (
            event.point == "PreToolUse" or (event.point, event.exit_code) == _STOP_BLOCKED
        ):
            return  # the result of the call or the feedback to the model contains it
        if event.outcome == "deferred" and open_call:
            attachment: Fields | None = entries.deferred_attachment(event, tool, open_call.input, self.permission_mode)
        else:
            attachment = entries.hook_attachment(event, tool)
        if attachment and self._shape.hooks == "attachments":
            self._append(*entries.attachment_fields(self._shape, attachment), at=event.at)

    def _report_failure(self, reason: str, path: Path | None = None) -> None:
        if self._config.stored is not None:
            if self in self._incomplete:  # reported once
                return
            reason += "; records wait in memory, and calls with side effects are refused"
        self._on_failure(self._write_failure(reason, path))

    def _write_failure(self, reason: str, path: Path | None = None) -> WriteFailed:
        return WriteFailed(path=str(path or self.path), reason=reason, at=self._config.clock())

    def _new_message_id(self) -> str:
        return "msg_" + self._config.new_id().replace("-", "")[:24]


@dataclass(slots=True)
class _TranscriptEnd:
    """The end of an existing transcript, after which a recorder continues."""

    last_uuid: str | None = None
    latest_time: float = 0.0
    prompt_id: str | None = None
    cwd: str | None = None
    turns: int = 0
    open_calls: dict[str, _OpenCall] = field(default_factory=dict)
    ends_with_calls: bool = False
    """True if the last record is a call or a result."""

    def add_entry(self, entry: Entry) -> None:
        """Update the state with the next record."""
        if entry.uuid is None:
            return
        self.last_uuid = entry.uuid
        self.cwd = entry.cwd or self.cwd
        self.ends_with_calls = False
        timestamp = parse_timestamp(entry.timestamp)
        if timestamp is not None and timestamp < _LATEST_TIME:  # a later record could not be written after it
            self.latest_time = max(self.latest_time, timestamp.timestamp())
        if entry.type == "user":
            self.prompt_id = entry.prompt_id or self.prompt_id
        content = entry.message.content if entry.message else None
        if not isinstance(content, list):
            self.turns += entry.type == "user" and not entry.is_meta
            return
        for block in content:
            self.ends_with_calls = bool(block.id or block.tool_use_id)
            if block.type in CALL_BLOCK_TYPES and block.id:
                self.open_calls[block.id] = _OpenCall(entry.uuid, block.name or "")
            elif block.tool_use_id:
                self.open_calls.pop(block.tool_use_id, None)


def _owned_message(path: Path, owner: LockOwner) -> str:
    return f"{path.stem}: {owner} is recording this session; stop it, or fork the session"


def _claimed_message(path: Path) -> str:
    return f"{path.stem}: another session of this process is recording it; close that one, or fork the session"


def _read_transcript_end(path: Path) -> _TranscriptEnd:
    """Read the end of a transcript. Damaged lines are skipped, as they are by the client."""
    end = _TranscriptEnd()
    for line in read_lines(FileSource(path)) if path.exists() else ():
        try:
            end.add_entry(decode_entry(line.data).entry)
        except ValueError:
            continue
    return end
