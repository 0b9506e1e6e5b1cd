"""Record a session as a transcript in the client's format.

`Recorder` converts prompts, replies and events to records in the format of the profile's client, in
order of completion. The parent of a result is the record of its call; the parent of any other
record is the previous one. Write failures are reported to `on_failure` and never raised. Not
thread-safe. Start at `Recorder.handle` and `Recorder.record_result`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, Self

from msgspec import Struct

from toolspan.errors import InUse
from toolspan.formats.claude.evidence import intent_path
from toolspan.formats.claude.paths import meta_path
from toolspan.formats.jsonl import encode_json
from toolspan.runtime.pending_call import call_block
from toolspan.runtime.tool import Toolset
from toolspan.session.recording import entries
from toolspan.session.recording.chain import EntryChain, OnFailure, RecorderConfig, read_transcript_end
from toolspan.session.recording.writer import IntentLog, agent_path
from toolspan.types.events import Content, Finished, HookRan, LiveEvent, Requested
from toolspan.types.ids import CallId, SessionId

_META_FLAG = b',"isMeta":true'
_SUMMARY_FLAGS = b',"isVisibleInTranscriptOnly":true,"isCompactSummary":true'

_BlockFields = Mapping[str, object]


class ToolSource(Protocol):
    """A provider of a session's current tools."""

    @property
    def tools(self) -> Toolset:
        """The tools that can currently be called."""
        ...


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
        """The permission mode to record with later prompts."""
        self.session_cwd = str(config.cwd)
        """The session's folder after the last call. A change applies to later records."""
        self.tools: ToolSource | None = None
        """The session's tools. Calls to read-only tools are omitted from the intent log."""
        self._config = config
        self._shape = config.profile.shape
        self._sidechain = config.agent_id is not None
        self._on_failure = on_failure
        self._chain = EntryChain(path, config, on_failure)
        self._open_calls: dict[str, _OpenCall] = {}
        self._unrecorded_calls: set[str] = set()
        """Calls whose record could not be written. Their results are omitted as well."""
        self._pending_results: list[Finished] = []
        """Results that could not be written yet."""
        self._held_hooks: dict[str, list[HookRan]] = {}
        """Hooks that ran after a call, by call id. They are recorded after its result."""
        self._last_message: Mapping[str, object] = {}
        self._block_count = 0
        """The number of blocks recorded so far for the last message."""
        self._turn_count = 0
        self._last_prompt: str | None = None
        self._main_path = path
        """The path of the main conversation's transcript."""
        self._intent_log: IntentLog | None = None
        self._owns_intent_log = True
        self._resume_answers: dict[str, Content] = {}
        """Results for open calls in a resumed transcript, to be written with the next prompt."""
        self._ends_with_calls = False
        """True if the resumed transcript ends with calls or results."""

    @classmethod
    def resume(cls, path: Path, config: RecorderConfig, on_failure: OnFailure) -> Self:
        """Continue a transcript after its last record.

        Raises:
            SourceError: the file cannot be read.
            InUse: another process writes to it.
        """
        recorder = cls(path, config, on_failure)
        recorder._chain.ensure_open()
        owner = recorder._chain.owner
        if owner is not None:
            recorder._chain.close()
            raise InUse(f"{path.stem}: {owner} is recording this session; stop it, or fork the session")
        end = read_transcript_end(path)
        recorder._ends_with_calls = end.ends_with_calls
        recorder._chain.last_uuid, recorder._chain.latest_time = (end.last_uuid, end.latest_time + 0.001)
        recorder._chain.template.set_prompt_id(end.prompt_id)
        recorder._turn_count = end.turns
        recorder._open_calls = {call: _OpenCall(uuid, tool) for call, (uuid, tool) in end.open_calls.items()}
        return recorder

    def subagent_recorder(self, agent_id: str, metadata: Mapping[str, object]) -> Recorder:
        """Return a recorder for a subagent, and write `metadata` next to its transcript."""
        path = agent_path(self._main_path, agent_id, self._shape.agents)
        config = replace(self._config, agent_id=agent_id, cwd=self.cwd)
        make = Recorder.resume if path.is_file() else Recorder
        recorder = make(path, config, self._on_failure)
        recorder._intent_log, recorder._owns_intent_log = self._intent_log, False
        recorder._main_path = self._main_path
        recorder.write_metadata(metadata)
        return recorder

    def write_metadata(self, metadata: Mapping[str, object]) -> None:
        """Write a subagent's metadata file, if the client version uses one."""
        if self._sidechain and self._shape.agents == "nested":
            self._chain.write_side_file(meta_path(self.path), encode_json(metadata))

    def open_intent_log(self) -> IntentLog | None:
        """Open and return the intent log, or return None if the transcript is a pipe or a device."""
        if self.path.exists() and not self.path.is_file():
            return None
        if self._intent_log is None:
            path = intent_path(self.path)
            self._intent_log = IntentLog(path, self._chain.report_failure, fsync=self._config.fsync)
        return self._intent_log

    def set_resume_answers(self, history: Sequence[Mapping[str, object]]) -> None:
        """Store the results that a resumed session's history contains for open calls.

        They are written with the next prompt, so that opening a session does not change it.
        """
        last = history[-1].get("content") if history else None
        for block in last if isinstance(last, list) else ():
            call_id = block.get("tool_use_id")
            if call_id in self._open_calls:
                self._resume_answers[call_id] = block.get("content") or ""

    @property
    def session_id(self) -> SessionId:
        """The id of the recorded session."""
        return self._config.session_id

    @property
    def last_uuid(self) -> str | None:
        """The id of the last record."""
        return self._chain.last_uuid

    @property
    def cwd(self) -> Path:
        """The folder in new records."""
        return self._chain.template.cwd

    @property
    def open_calls(self) -> frozenset[CallId]:
        """The recorded calls that have no recorded result."""
        return frozenset(map(CallId, self._open_calls))

    def set_cwd(self, cwd: Path) -> None:
        """Set the folder for later records."""
        if cwd != self.cwd:
            self._chain.template.set_cwd(cwd)

    # Recording

    def handle(self, event: LiveEvent | entries.ConversationEvent) -> None:
        """Record an event from the runner or the conversation. Events that have no record are ignored."""
        match event:
            case Finished():
                if event.cwd != self.session_cwd and event.cwd is not None:
                    self.session_cwd = event.cwd
                    self.set_cwd(Path(event.cwd))
                self.record_result(event)
            case HookRan():
                self.record_hook(event)
            case Requested() if event.recovers is not None:
                self.record_reply_block(self._last_message, call_block(event.call), last=False)
            case _:
                self._handle_conversation(event)

    def _handle_conversation(self, event: LiveEvent | entries.ConversationEvent) -> None:
        match event:
            case entries.Interruption():
                self._ensure_open()
                text = entries.INTERRUPTED_TOOL if event.during_tool_use else entries.INTERRUPTED
                self._write_user([{"type": "text", "text": text}])
            case entries.BackgroundNotice():
                self._ensure_open()
                if self._shape.hooks == "attachments":
                    self._write_attachment(entries.queued_notice(event.text), self._config.clock())
                else:
                    self._write_user(event.text, _META_FLAG)
            case entries.TurnLimitReached() if self._shape.hooks == "attachments":
                self._ensure_open()
                attachment: entries.Fields = {"type": "max_turns_reached", "maxTurns": event.max_turns}
                self._write_attachment({**attachment, "turnCount": event.turns}, self._config.clock())
            case entries.StopSummary():
                self._write_system(entries.stop_summary_fields(event))
            case entries.RefusedPrompt():
                self._write_system(entries.refused_prompt_fields(event, self._config.profile))
            case entries.Compaction():
                self._ensure_open()
                self._write_system(entries.compaction_fields(event, self.last_uuid), root=True)
                self._write_user(event.summary, _SUMMARY_FLAGS)
            case entries.RequestFailure() if event.attempt:
                self._write_system(entries.retry_fields(event))
            case entries.RequestFailure():
                self._write_failure(event)
            case _:
                pass

    def record_prompt(
        self, content: Content, *, meta: bool = False, prompt_id: str | None = None, is_notification: bool = False
    ) -> None:
        """Record a prompt.

        `meta` marks text that the user did not write, `is_notification` a turn that a background task started.
        """
        self._ensure_open()
        if self._resume_answers:
            self._write_resume_answers()
        if meta:
            self._write_user(content, _META_FLAG)
            return
        self._turn_count += 1
        self._last_prompt = content if isinstance(content, str) else self._last_prompt
        self._chain.template.set_prompt_id(prompt_id or self._config.new_id())
        self._chain.template.refresh_branch()
        extra = entries.prompt_fields(self._shape, self.permission_mode, self._turn_count)
        if is_notification:
            extra = entries.notification_fields(self._shape, extra)
        self._write_user(content, extra=b"" if self._sidechain else _encode_fields(extra))

    def record_reply(
        self, message: Mapping[str, object], *, request_id: str | None = None, at: float | None = None
    ) -> None:
        """Record a complete message from the model, one record per block."""
        content = message.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        message_with_id = message if message.get("id") else {**message, "id": self._new_message_id()}
        self._write_blocks(*self._encode_blocks(message_with_id, blocks, last=True, request_id=request_id), at)

    def record_reply_block(
        self,
        message: Mapping[str, object],
        block: Mapping[str, object],
        *,
        last: bool,
        request_id: str | None = None,
        at: float | None = None,
    ) -> None:
        """Record one block of a message as it arrives. The message must have an `id`."""
        self._write_blocks(*self._encode_blocks(message, [block], last=last, request_id=request_id), at)

    def record_result(self, finished: Finished) -> None:
        """Record a call's result, followed by its hooks and companion texts."""
        self._ensure_open()
        call_id = finished.span.call.id
        if self._intent_log is not None and call_id in self._intent_log.started_calls:
            self._intent_log.record_finished(call_id, finished.span.state)
        if call_id in self._unrecorded_calls:
            self._unrecorded_calls.discard(call_id)
            self._held_hooks.pop(call_id, None)
            self._chain.report_failure(f"{call_id} is not in the file, so its result is omitted")
            return
        for context in finished.contexts:
            if context.model_text is None:  # a blocking hook is recorded with its own event
                self.record_hook(entries.context_event(context, finished))
        if not finished.span.deferred:
            self._write_result(finished)
        for hook_event in self._held_hooks.pop(call_id, ()):
            self._write_hook(hook_event, finished.span.tool)
        for companion in finished.companions:
            companion_field = b',"turnCompanion":true' if self._shape.turn_companions else b""
            self._write_user(companion, _META_FLAG + companion_field, at=finished.at)

    def record_hook(self, event: HookRan) -> None:
        """Record a hook. Hooks that run after a call are held until its result is recorded."""
        is_late = event.point.startswith("Post") or event.outcome == "stopped"
        if is_late and event.call_id in self._open_calls:
            self._held_hooks.setdefault(event.call_id, []).append(event)
        else:
            self._ensure_open()
            self._write_hook(event, self._tool_name(event))

    def close(self) -> None:
        """Write held records and the session's last prompt, and close the files."""
        held, self._held_hooks = self._held_hooks, {}
        if held or self._pending_results or self.last_uuid:
            self._ensure_open()
        for event in (event for events in held.values() for event in events):
            self._write_hook(event, self._tool_name(event))
        if self.last_uuid and self._last_prompt is not None and not self._sidechain:
            last_prompt = entries.last_prompt_fields(self._shape, self._last_prompt, self.last_uuid)
            self._last_prompt = None  # write it only once: after a second close, the transcript may have another end
            if last_prompt:
                self._chain.append_state({**last_prompt, "sessionId": self.session_id})
        self._chain.close()
        if self._intent_log is not None and self._owns_intent_log:
            self._intent_log.close()

    # Writing

    def _ensure_open(self) -> None:
        """Open the file and write pending results. Must be called before each record."""
        if not self._chain.ensure_open():
            self._unrecorded_calls.update(self._open_calls)
            self._open_calls.clear()
            self._pending_results.clear()
        if self._pending_results:
            pending_results, self._pending_results = self._pending_results, []
            for finished in pending_results:
                self._write_result(finished)

    def _encode_blocks(
        self, message: Mapping[str, object], blocks: list[_BlockFields], *, last: bool, request_id: str | None
    ) -> tuple[list[_BlockFields], list[bytes]]:
        """Return the blocks to record and their encoded fields. `last` is True if they end the message."""
        if message["id"] != self._last_message.get("id"):
            self._block_count = 0
        self._last_message = message
        fields, numbered = entries.message_fields(message), self._shape.blocks_numbered
        first = self._block_count
        self._block_count += len(blocks)
        end = self._block_count - 1 if last else self._block_count
        stop_from = first if self._shape.final_stop else end
        recorded_blocks: list[_BlockFields] = []
        bodies: list[bytes] = []
        for number, block in enumerate(blocks, first):
            if block.get("type") == "thinking" and not block.get("signature"):
                continue  # the API does not accept unsigned thinking back
            fields["content"] = [block]
            if number >= stop_from:
                fields["stop_reason"] = message.get("stop_reason")
                fields["stop_sequence"] = message.get("stop_sequence")
            recorded_blocks.append(block)
            bodies.append(entries.encode_reply_fields(fields, number if numbered else None, request_id))
        return recorded_blocks, bodies

    def _write_blocks(self, blocks: list[_BlockFields], bodies: list[bytes], at: float | None) -> None:
        """Write a reply's records at once. A record that fails is skipped, and the rest are retried."""
        extra = b',"madeBy":"model"' if self._shape.blocks_numbered else b""
        if self._intent_log is not None:
            calls = [str(block.get("id")) for block in blocks if self._may_have_effects(block)]
            if calls:
                self._intent_log.record_requested(calls)
        while blocks:
            self._ensure_open()
            uuids = self._chain.append_entries(bodies, extra, at=at)
            for block, uuid in zip(blocks, uuids, strict=False):
                if block.get("type") == "tool_use":
                    open_call = _OpenCall(uuid, str(block.get("name")), block.get("input"))
                    self._open_calls[str(block.get("id"))] = open_call
            written = len(uuids)
            if written == len(blocks):
                return
            if blocks[written].get("type") == "tool_use":
                self._unrecorded_calls.add(str(blocks[written].get("id")))
            blocks, bodies = blocks[written + 1 :], bodies[written + 1 :]

    def _may_have_effects(self, block: _BlockFields) -> bool:
        if block.get("type") != "tool_use":
            return False
        tool = self.tools.tools.find(str(block.get("name"))) if self.tools is not None else None
        return tool is None or not tool.read_only

    def _write_resume_answers(self) -> None:
        """Write results for the calls that were open when the session was resumed."""
        answers, self._resume_answers = self._resume_answers, {}
        last = self._chain.last_uuid
        for call_id, content in answers.items():
            open_call = self._open_calls.pop(call_id, None)
            if open_call is None:
                continue
            extra = b',"toolUseResult":' + encode_json(content)
            if self._shape.decisions:
                extra += b',"toolDenialKind":"interrupted"'
            if self._shape.parent_is_own_call:
                extra += b',"sourceToolAssistantUUID":' + encode_json(open_call.uuid)
            message = entries.encode_result_message(call_id, content, is_error=True)
            self._chain.append_entry(
                b',"type":"user","message":' + message,
                extra,
                parent=open_call.uuid if self._shape.parent_is_own_call else None,
                user=True,
            )
        if not self._ends_with_calls:  # a prompt or reply follows the calls: the conversation continues there
            self._chain.last_uuid = last

    def _write_result(self, finished: Finished) -> None:
        span, shape = finished.span, self._shape
        call_id, result = span.call.id, span.result
        open_call = self._open_calls.get(call_id)
        call_uuid = open_call.uuid if open_call else None
        is_error = result.is_error if result else None
        uuid = self._chain.append_entry(
            b',"type":"user","message":' + entries.encode_result_message(call_id, finished.content, is_error=is_error),
            entries.encode_result_extras(finished, call_uuid, shape, sidechain=self._sidechain),
            parent=call_uuid if shape.parent_is_own_call else None,
            at=finished.at,
            user=True,
        )
        if uuid is None:
            self._pending_results.append(finished)
        else:
            self._open_calls.pop(call_id, None)

    def _write_hook(self, event: HookRan, tool: str) -> None:
        match self._shape.hooks:
            case "progress":
                progress = entries.hook_progress(event, tool)
                if progress:
                    self._chain.append_entry(b',"type":"progress"' + _encode_fields(progress), at=event.at)
            case "attachments":
                open_call = self._open_calls.get(event.call_id)
                if event.outcome == "deferred" and open_call:
                    self._write_attachment(
                        entries.deferred_attachment(event, tool, open_call.input, self.permission_mode), event.at
                    )
                elif attachment := entries.hook_attachment(event, tool):
                    self._write_attachment(attachment, event.at)
            case "none":
                pass

    def _write_attachment(self, attachment: entries.Fields, at: float) -> None:
        extra: entries.Fields = {}
        text = entries.render_attachment(attachment) if self._shape.rendered else None
        if text is not None:
            reminder = f"<system-reminder>\n{text}\n</system-reminder>"
            extra = {"rendered": [{"content": reminder}], "renderedRole": "system"}
        body = b',"attachment":' + encode_json(attachment) + b',"type":"attachment"'
        self._chain.append_entry(body, _encode_fields(extra), at=at)

    def _write_failure(self, failure: entries.RequestFailure) -> None:
        """Write the placeholder message for a failed reply."""
        self._ensure_open()
        message = {"id": self._new_message_id(), "model": entries.SYNTHETIC_MODEL, "stop_reason": "stop_sequence"}
        fields = entries.message_fields(message)
        fields |= {"content": [{"type": "text", "text": failure.text}], "stop_reason": "stop_sequence"}
        body = entries.encode_reply_fields(fields, None, None)
        self._chain.append_entry(body, _encode_fields(entries.failure_fields(failure)))

    def _write_system(self, fields: entries.Fields, *, root: bool = False) -> None:
        self._ensure_open()
        self._chain.append_entry(b',"type":"system"' + _encode_fields(fields), root=root)

    def _write_user(self, content: Content, flags: bytes = b"", extra: bytes = b"", at: float | None = None) -> None:
        body = b',"type":"user","message":{"role":"user","content":%s}' % encode_json(content)
        self._chain.append_entry(body + flags, extra, at=at, user=True)

    def _tool_name(self, event: HookRan) -> str:
        open_call = self._open_calls.get(event.call_id)
        return open_call.tool if open_call else ""

    def _new_message_id(self) -> str:
        return "msg_" + self._config.new_id().replace("-", "")[:24]


def _encode_fields(fields: entries.Fields) -> bytes:
    """Encode fields as the continuation of a JSON object."""
    return b"," + encode_json(fields)[1:-1] if fields else b""
