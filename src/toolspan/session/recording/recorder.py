"""What a session says and runs, as lines of a transcript.

In: prompts, the model's messages, and the events of the runner. Out: lines in the shape of the
profile's client, in the order in which things ended. Each line hangs on the one before, a result on
the line of its own call. Nothing here raises for what values or disks do; `on_failure` is told. Not
for several threads at once. Read `Recorder.result` first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from msgspec import Struct

from toolspan.errors import InUse
from toolspan.formats.claude.evidence import intent_path, read_boot_id
from toolspan.formats.claude.paths import meta_path
from toolspan.session.recording import entries
from toolspan.session.recording.chain import EntryChain, OnFailure, RecorderConfig, encode_json
from toolspan.session.recording.entries import (
    Compaction,
    RefusedPrompt,
    RequestFailure,
    StopSummary,
    compaction_fields,
    failure_fields,
    refused_prompt_fields,
    retry_fields,
    stop_summary_fields,
)
from toolspan.session.recording.intent_log import IntentLog
from toolspan.session.recording.resume import agent_path, read_transcript_end, results_folder, transcript_path
from toolspan.types.events import Content, Finished, HookRan, LiveEvent
from toolspan.types.ids import CallId, SessionId

_META_FLAG = b',"isMeta":true'
_SUMMARY_FLAGS = b',"isVisibleInTranscriptOnly":true,"isCompactSummary":true'
SYNTHETIC_MODEL = "<synthetic>"
"""The model of messages that no model made."""


_BlockFields = Mapping[str, object]


class _OpenCall(Struct, frozen=True):
    """A call that waits for its result, and the line that asked for it."""

    uuid: str
    tool: str
    input: object = None


class Recorder:
    """Writes one transcript file."""

    def __init__(self, path: Path, config: RecorderConfig, on_failure: OnFailure) -> None:
        self.path = path
        self.permission_mode = config.permission_mode
        """What prompts from now on tell of it."""
        self._config = config
        self._shape = config.profile.shape
        self._sidechain = config.agent_id is not None
        self._on_failure = on_failure
        self._chain = EntryChain(path, config, on_failure)
        self._open_calls: dict[str, _OpenCall] = {}
        self._unrecorded_calls: set[str] = set()
        """Calls whose line is not in the file: a result without its call helps nobody."""
        self._pending_results: list[Finished] = []
        """Results that could not be written yet."""
        self._held_hooks: dict[str, list[HookRan]] = {}
        """What hooks did after a call; it is told after the call's result."""
        self._current_message: object = None
        """The id of the message the model is in."""
        self._block_count = 0
        """How many of its blocks came."""
        self._turn_count = 0
        self._last_prompt: str | None = None
        self._main_path = path
        """The transcript of the main conversation."""
        self._intent_log: IntentLog | None = None
        self._owns_intent_log = True
        self._has_effects: Callable[[str], bool] = _assume_effects
        self._resume_answers: dict[str, Content] = {}
        """What open calls are answered with, as soon as somebody speaks."""
        self._ends_with_calls = False
        """The file ends with calls or results; see `Left.within`."""

    @classmethod
    def in_config_folder(
        cls, config: RecorderConfig, on_failure: OnFailure, *, config_folder: Path | None = None
    ) -> Self:
        """Record where the client keeps its sessions, so that it can resume this one."""
        return cls(transcript_path(config.session_id, config.cwd, config_folder), config, on_failure)

    @classmethod
    def resume(cls, path: Path, config: RecorderConfig, on_failure: OnFailure) -> Self:
        """Go on with a transcript: lines hang on its last one, open calls can be answered.

        Raises:
            SourceError: the file cannot be read.
            InUse: another process writes to it.
        """
        recorder = cls(path, config, on_failure)
        recorder._chain.ensure_open()
        owner = recorder._chain.owner
        if owner is not None:
            recorder._chain.close()
            raise InUse(f"{path.stem}: {owner} goes on with this session; end it, or fork it")
        end = read_transcript_end(path)
        recorder._ends_with_calls = end.ends_with_calls
        recorder._chain.last_uuid, recorder._chain.latest_time = (end.last_uuid, end.latest_time + 0.001)
        recorder._chain.template.set_prompt_id(end.prompt_id)
        recorder._turn_count = end.turns
        recorder._open_calls = {call: _OpenCall(uuid, tool) for call, (uuid, tool) in end.open_calls.items()}
        return recorder

    def subagent_recorder(self, agent_id: str, metadata: Mapping[str, object]) -> Recorder:
        """The recorder of a subagent; `about` is kept beside it: its kind, the call, …"""
        path = agent_path(self._main_path, agent_id, self._shape.agents)
        config = replace(self._config, agent_id=agent_id, cwd=self.cwd)
        make = Recorder.resume if path.is_file() else Recorder
        recorder = make(path, config, self._on_failure)
        recorder._intent_log, recorder._owns_intent_log = self._intent_log, False
        recorder._main_path = self._main_path
        recorder.write_metadata(metadata)
        return recorder

    def write_metadata(self, metadata: Mapping[str, object]) -> None:
        """Keep beside a subagent's transcript what it is, where clients do."""
        if self._sidechain and self._shape.agents == "nested":
            self._chain.write_side_file(meta_path(self.path), encode_json(metadata))

    def open_intent_log(self, has_effects: Callable[[str], bool]) -> IntentLog | None:
        """Write down which calls are about to do something; who runs them tells the journal.

        `has_effects` says of a tool's name whether it may do anything but read. None when the
        transcript is no file that anybody could go on with: a pipe, a device.
        """
        self._has_effects = has_effects
        if self.path.exists() and not self.path.is_file():
            return None
        if self._intent_log is None:
            self._intent_log = IntentLog(
                intent_path(self.path), self._chain.report_failure, fsync=self._config.fsync, boot=read_boot_id()
            )
        return self._intent_log

    def set_resume_answers(self, history: Sequence[Mapping[str, object]]) -> None:
        """Open calls of the last message get the results that a history has for them.

        They are written when somebody speaks: who only looks at a session does not change it.
        """
        last = history[-1].get("content") if history else None
        for block in last if isinstance(last, list) else ():
            call_id = block.get("tool_use_id")
            if call_id in self._open_calls:
                self._resume_answers[call_id] = block.get("content") or ""

    @property
    def session_id(self) -> SessionId:
        """The session that is recorded."""
        return self._config.session_id

    @property
    def last_uuid(self) -> str | None:
        """The id of the line written last."""
        return self._chain.last_uuid

    @property
    def cwd(self) -> Path:
        """The folder that lines name."""
        return self._chain.template.cwd

    @property
    def results_folder(self) -> Path:
        """Where outputs too large for the conversation go; made by who writes there."""
        return results_folder(self.path)

    @property
    def open_calls(self) -> frozenset[CallId]:
        """Calls in the file that have no result there yet."""
        return frozenset(map(CallId, self._open_calls))

    def set_cwd(self, cwd: Path) -> None:
        """The session is in another folder; tell it before the result that brought it there."""
        if cwd != self.cwd:
            self._chain.template.set_cwd(cwd)

    def record_prompt(
        self, content: Content, *, meta: bool = False, prompt_id: str | None = None, is_notification: bool = False
    ) -> None:
        """Somebody speaks to the model; `meta` when it was not a person.

        `is_news`: work in the background has ended, and a turn begins with that.
        """
        self._ensure_open()
        if self._resume_answers:
            self._write_answers()
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
        """The model speaks: one line for each block of its message."""
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
        """One block of a message, as it comes; the message has its `id`."""
        self._write_blocks(*self._encode_blocks(message, [block], last=last, request_id=request_id), at)

    def record_result(self, finished: Finished) -> None:
        """A call has its result: its line, and what hooks and tool said beside it."""
        self._ensure_open()
        call_id = finished.span.call.id
        if self._intent_log is not None and call_id in self._intent_log.started_calls:
            self._intent_log.record_finished(call_id, finished.span.state)
        if call_id in self._unrecorded_calls:
            self._unrecorded_calls.discard(call_id)
            self._held_hooks.pop(call_id, None)
            self._chain.report_failure(f"{call_id} is not in the file, so its result is left out")
            return
        for context in finished.contexts:
            if context.model_text is None:  # an objection was told with its handler
                self.record_hook(entries.context_event(context, finished))
        if not finished.span.deferred:
            self._write_result(finished)
        for hook_event in self._held_hooks.pop(call_id, ()):
            self._write_hook(hook_event, finished.span.tool)
        for companion in finished.companions:
            companion_field = b',"turnCompanion":true' if self._shape.turn_companions else b""
            self._write_user(companion, _META_FLAG + companion_field, at=finished.at)

    def record_hook(self, event: HookRan) -> None:
        """A handler was run for a call."""
        late = event.point.startswith("Post") or event.outcome == "stopped"
        if late and event.call_id in self._open_calls:
            self._held_hooks.setdefault(event.call_id, []).append(event)
        else:
            self._ensure_open()
            self._write_hook(event, self._tool_name(event))

    def record_interruption(self, *, tool_use: bool = True) -> None:
        """A person stopped the turn."""
        self._ensure_open()
        text = entries.INTERRUPTED_TOOL if tool_use else entries.INTERRUPTED
        self._write_user([{"type": "text", "text": text}])

    def record_refused_prompt(self, refused: RefusedPrompt) -> None:
        """A handler took a prompt away."""
        self._write_system(refused_prompt_fields(refused, self._config.profile))

    def record_turn_end(self, summary: StopSummary) -> None:
        """The handlers at the end of a turn were run."""
        self._write_system(stop_summary_fields(summary))

    def record_compaction(self, compaction: Compaction) -> None:
        """The conversation goes on from a summary: nothing before it is sent any more."""
        self._ensure_open()
        body = b',"type":"system"' + _encode_fields(compaction_fields(compaction, self.last_uuid))
        self._chain.append_entry(body, root=True)
        self._write_user(compaction.summary, _SUMMARY_FLAGS)

    def record_retry(self, failure: RequestFailure) -> None:
        """A request failed and is made again."""
        self._write_system(retry_fields(failure))

    def record_failure(self, failure: RequestFailure, text: str) -> None:
        """A request failed for good: the words that stand where the reply would."""
        self._ensure_open()
        message = {"id": self._new_message_id(), "model": SYNTHETIC_MODEL, "stop_reason": "stop_sequence"}
        fields = entries.message_fields(message)
        fields |= {"content": [{"type": "text", "text": text}], "stop_reason": "stop_sequence"}
        body = entries.encode_reply_fields(fields, None, None)
        self._chain.append_entry(body, _encode_fields(failure_fields(failure)))

    def record_turn_limit(self, max_turns: int, turns: int) -> None:
        """The turn was ended because the model had spoken often enough."""
        if self._shape.hooks == "attachments":
            self._ensure_open()
            attachment: entries.Fields = {"type": "max_turns_reached", "maxTurns": max_turns}
            self._write_attachment({**attachment, "turnCount": turns}, self._config.clock())

    def _write_system(self, fields: entries.Fields) -> None:
        self._ensure_open()
        self._chain.append_entry(b',"type":"system"' + _encode_fields(fields))

    def record_notice(self, text: str) -> None:
        """Work in the background has ended: the model is told within the turn."""
        self._ensure_open()
        if self._shape.hooks == "attachments":
            self._write_attachment(entries.queued_notice(text), self._config.clock())
        else:
            self._write_user(text, _META_FLAG)

    def handle(self, event: LiveEvent) -> None:
        """Take an event of the runner: transcripts have lines for two kinds of them."""
        match event:
            case Finished():
                self.record_result(event)
            case HookRan():
                self.record_hook(event)
            case _:
                pass

    def close(self) -> None:
        """Write what is left to write, and let the file go."""
        held, self._held_hooks = self._held_hooks, {}
        if held or self._pending_results or self.last_uuid:
            self._ensure_open()
        for event in (event for events in held.values() for event in events):
            self._write_hook(event, self._tool_name(event))
        if self.last_uuid and self._last_prompt is not None and not self._sidechain:
            last_prompt = entries.last_prompt_fields(self._shape, self._last_prompt, self.last_uuid)
            self._last_prompt = None  # once: clients go by it to the end, which may be elsewhere later
            if last_prompt:
                self._chain.append_state({**last_prompt, "sessionId": self.session_id})
        self._chain.close()
        if self._intent_log is not None and self._owns_intent_log:
            self._intent_log.close()

    def _ensure_open(self) -> None:
        """Before each line: is the file there, and is a result owed to it?"""
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
        """The blocks that get a line, and what it tells; `last`: the message ends with them."""
        if message["id"] != self._current_message:
            self._current_message, self._block_count = message["id"], 0
        fields, numbered = entries.message_fields(message), self._shape.blocks_numbered
        first = self._block_count
        self._block_count += len(blocks)
        end = self._block_count - 1 if last else self._block_count
        stop_from = first if self._shape.final_stop else end
        recorded_blocks: list[_BlockFields] = []
        bodies: list[bytes] = []
        for number, block in enumerate(blocks, first):
            if block.get("type") == "thinking" and not block.get("signature"):
                continue  # no server takes it back without
            fields["content"] = [block]
            if number >= stop_from:
                fields["stop_reason"] = message.get("stop_reason")
                fields["stop_sequence"] = message.get("stop_sequence")
            recorded_blocks.append(block)
            bodies.append(entries.encode_reply_fields(fields, number if numbered else None, request_id))
        return recorded_blocks, bodies

    def _write_blocks(self, blocks: list[_BlockFields], bodies: list[bytes], at: float | None) -> None:
        """The lines of a reply in one write; after one that the disk did not take, a new try."""
        extra = b',"madeBy":"model"' if self._shape.blocks_numbered else b""
        if self._intent_log is not None:
            self._log_requested_calls(self._intent_log, blocks)
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

    def _log_requested_calls(self, intent_log: IntentLog, blocks: list[_BlockFields]) -> None:
        """Calls that may do something are asked for."""
        call_ids = [
            str(block.get("id"))
            for block in blocks
            if block.get("type") == "tool_use" and self._has_effects(str(block.get("name")))
        ]
        if call_ids:
            intent_log.record_requested(call_ids)

    def _write_answers(self) -> None:
        """What was known of open calls when the session was gone on with, as clients tell it."""
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
        if not self._ends_with_calls:  # somebody has spoken since: the conversation goes on from there
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
                attachment = self._hook_attachment(event, tool)
                if attachment:
                    self._write_attachment(attachment, event.at)
            case "none":
                pass

    def _hook_attachment(self, event: HookRan, tool: str) -> entries.Fields | None:
        open_call = self._open_calls.get(event.call_id)
        if event.outcome == "deferred" and open_call:
            return entries.deferred_attachment(event, tool, open_call.input, self.permission_mode)
        return entries.hook_attachment(event, tool)

    def _write_attachment(self, attachment: entries.Fields, at: float) -> None:
        extra: entries.Fields = {}
        text = entries.render_attachment(attachment) if self._shape.rendered else None
        if text is not None:
            reminder = f"<system-reminder>\n{text}\n</system-reminder>"
            extra = {"rendered": [{"content": reminder}], "renderedRole": "system"}
        body = b',"attachment":' + encode_json(attachment) + b',"type":"attachment"'
        self._chain.append_entry(body, _encode_fields(extra), at=at)

    def _tool_name(self, event: HookRan) -> str:
        open_call = self._open_calls.get(event.call_id)
        return open_call.tool if open_call else ""

    def _write_user(self, content: Content, flags: bytes = b"", extra: bytes = b"", at: float | None = None) -> None:
        body = b',"type":"user","message":{"role":"user","content":%s}' % encode_json(content)
        self._chain.append_entry(body + flags, extra, at=at, user=True)

    def _new_message_id(self) -> str:
        return "msg_" + self._config.new_id().replace("-", "")[:24]


def _assume_effects(_: str) -> bool:
    return True


def _encode_fields(fields: entries.Fields) -> bytes:
    """Fields as a piece of a longer object."""
    return b"," + encode_json(fields)[1:-1] if fields else b""
