"""Collect hooks, progress, permissions and background tasks from the lines around calls.

`pairing.py` attaches the events to its spans by call id. Start at `SideRecords.add`.
"""

from __future__ import annotations

from typing import TypeGuard

import msgspec
from msgspec import Struct, field, structs

from toolspan.formats.claude.messages import user_text
from toolspan.formats.claude.records import (
    ABSENT,
    NOTICE_START,
    Attachment,
    Entry,
    parse_task_end,
)
from toolspan.formats.decoding import TaskNotice, extract_text, parse_task_notices
from toolspan.types.ids import CallId, SourceLocation
from toolspan.types.span import POLL, Event, Hook, HookOutcome, Note, Notification, Progress, parse_timestamp

_HOOK_OUTCOMES: dict[str, HookOutcome] = {
    "hook_success": "success",
    "hook_non_blocking_error": "error",
    "hook_error_during_execution": "error",
    "hook_blocking_error": "blocked",
    "hook_cancelled": "cancelled",
    "hook_additional_context": "context",
    "hook_system_message": "message",
    "hook_permission_decision": "decision",
    "hook_stopped_continuation": "stopped",
    "hook_deferred_tool": "deferred",
    "async_hook_response": "success",
}
_NOTE_TEXT_LIMIT = 400
_PAUSE_SECONDS = 300
_TO_THE_MINUTE = len("2026-01-31T00:00")


class SideRecords:
    """Events about calls, collected from the lines around them."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.events: dict[str, list[Event]] = {}
        self.progress: dict[str, dict[str, Progress]] = {}
        """Progress records, by call id and kind."""
        self.started_ids: set[str] = set()
        self.blocked_reasons: dict[str, str] = {}
        self.hooked_ids: set[str] = set()
        self.deferred_ids: set[str] = set()
        self.denied_ids: set[str] = set()
        self.agents_by_call: dict[str, str] = {}
        self.starters_by_task: dict[str, CallId] = {}
        """Ids of the calls that started background tasks, by task id."""
        self._seen_notices: set[tuple[str | None, str | None, str | None]] = set()
        """Notifications already added, since the same one may be queued, attached and repeated in a message."""

    def add(self, entry: Entry, at: int) -> None:
        """Add one entry and its packed location."""
        match entry.type:
            case "progress":
                self._add_progress(entry, at)
            case "attachment":
                self._add_attachment(entry, at)
            case "queue-operation":
                if NOTICE_START.search(memoryview(entry.content)[:80]):
                    self.add_notices(extract_text(entry.content), entry.timestamp, at)
            case "result":  # the last line of a stream, which lists denied and deferred calls
                self.denied_ids.update(d.tool_use_id for d in entry.permission_denials or () if d.tool_use_id)
                deferred = entry.deferred_tool_use
                if deferred and (deferred.id or deferred.tool_use_id):
                    self.deferred_ids.add(deferred.id or deferred.tool_use_id or "")
            case "tool_progress" if entry.tool_use_id_snake is not None:
                self.started_ids.add(entry.tool_use_id_snake)
                self._count_progress(entry.tool_use_id_snake, "tool_progress", entry.timestamp)
            case "system" if entry.subtype == "stop_hook_summary":
                self._add_stop_hooks(entry, at)
            case "system" if entry.subtype == "permission_denied":
                self.denied_ids.add(entry.tool_use_id or entry.tool_use_id_snake or "")

    def add_notices(self, text: str, time: str | None, at: int) -> None:
        """Add the task notifications in conversation text."""
        for notice in parse_task_notices(text):
            if notice.call_id or (notice.status and notice.task_id in self.starters_by_task):
                self._add_notification(notice, None, time, at)

    def add_task_end(self, task_id: str, text: str, time: str | None, at: int) -> None:
        """Add the end of a background task from the text of a result that shows its output."""
        starter, end = self.starters_by_task.get(task_id), parse_task_end(text)
        if starter is not None and end is not None:
            self._add_notification(TaskNotice(task_id, starter, end.status, end.summary), end.output, time, at)

    def add_poll(self, call_id: CallId, time: str | None) -> None:
        """Add a call that read the output of the background command that `call_id` started, or stopped it."""
        self._count_progress(call_id, POLL, time)

    def _add_notification(self, notice: TaskNotice, output: str | None, time: str | None, at: int) -> None:
        call_id = notice.call_id or self.starters_by_task[notice.task_id or ""]
        key = (call_id, notice.task_id, notice.status)
        if key in self._seen_notices:
            return
        self._seen_notices.add(key)
        event = Notification(
            task_id=notice.task_id,
            status=notice.status,
            summary=notice.summary,
            output=output,
            at=time,
            place=self._location_of(at),
        )
        self._add_event(call_id, event)

    def _location_of(self, at: int) -> SourceLocation:
        return SourceLocation.unpack(self._file, at)

    def _add_progress(self, entry: Entry, at: int) -> None:
        data = entry.data
        call_id = entry.parent_tool_use_id or entry.tool_use_id
        if data is None or call_id is None:
            return
        if data.type == "hook_progress":
            if data.hook_event and not data.hook_event.startswith("Pre"):
                self.started_ids.add(call_id)
            hook = Hook(
                point=data.hook_event or "",
                name=data.hook_name or "",
                outcome="started",
                command=data.command,
                at=entry.timestamp,
                place=self._location_of(at),
            )
            self._add_event(call_id, hook)
            return
        if data.type == "agent_progress" and data.agent_id:
            self.agents_by_call.setdefault(call_id, data.agent_id)
        self.started_ids.add(call_id)
        self._count_progress(call_id, data.type, entry.timestamp)

    def _count_progress(self, call_id: str, kind: str, at: str | None) -> None:
        kinds = self.progress.setdefault(call_id, {})
        tally = kinds.get(kind) or Progress(kind=kind, count=0, first_at=at, last_at=at)
        pauses, last = tally.pauses, tally.last_at
        if at and last and at[:_TO_THE_MINUTE] != last[:_TO_THE_MINUTE]:  # perf: most records are seconds apart
            start, end = parse_timestamp(last), parse_timestamp(at)
            if start and end and (end - start).total_seconds() >= _PAUSE_SECONDS:
                pauses += ((last, at),)
        kinds[kind] = structs.replace(tally, count=tally.count + 1, last_at=at, pauses=pauses)

    def _add_attachment(self, entry: Entry, at: int) -> None:
        note = entry.attachment
        if note is None:
            return
        if note.type == "queued_command":
            self.add_notices(extract_text(note.prompt), entry.timestamp, at)
        call_id = note.tool_use_id
        if call_id is None:
            return
        place, text = self._location_of(at), _attachment_text(note)
        objection = _decode_objection(note)
        if objection is not None and objection.text is not None:
            text = objection.text.removeprefix(f"[{objection.command}]: ")[:_NOTE_TEXT_LIMIT]
        outcome = _HOOK_OUTCOMES.get(note.type)
        if outcome is None:
            self._add_event(call_id, Note(kind=note.type, text=text, at=entry.timestamp, place=place))
            return
        point = note.hook_event or (note.hook_name or "").partition(":")[0]
        if point == "PreToolUse":
            self.hooked_ids.add(call_id)
            if outcome == "blocked":
                self.blocked_reasons[call_id] = text or ""
        if outcome == "deferred":
            self.deferred_ids.add(call_id)
        hook = Hook(
            point=point,
            name=note.hook_name or point,
            outcome=outcome,
            command=note.command or (objection.command if objection is not None else None),
            exit_code=note.exit_code,
            duration_ms=note.duration_ms,
            text=text,
            at=entry.timestamp,
            place=place,
        )
        self._add_event(call_id, hook)

    def _add_stop_hooks(self, entry: Entry, at: int) -> None:
        """Add the hooks that ran when the model stopped, unless each already has its own record."""
        event_id = entry.tool_use_id or entry.uuid or ""
        known = {event.command for event in self.events.get(event_id, ()) if _has_ended(event)}
        try:
            infos = msgspec.json.decode(entry.hook_infos, type=list[_HookInfo])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        problem = extract_text(entry.hook_errors) or extract_text(entry.stop_reason)
        outcome: HookOutcome = "success"
        if entry.prevented_continuation:
            outcome = "stopped"
        elif problem and len(infos) == 1:  # the record does not name the hook that failed
            outcome = "error"
        for info in infos:
            if info.command in known:
                continue
            hook = Hook(
                point="Stop",
                name="Stop",
                outcome=outcome,
                command=info.command,
                duration_ms=info.duration_ms,
                text=problem[:_NOTE_TEXT_LIMIT] if outcome != "success" and problem else None,
                at=entry.timestamp,
                place=self._location_of(at),
            )
            self._add_event(event_id, hook)

    def _add_event(self, call_id: str, event: Event) -> None:
        self.events.setdefault(call_id, []).append(event)


class _Objection(Struct, gc=False):
    """The reason with which a hook blocked a call, and the command that gave it."""

    text: str | None = field(default=None, name="blockingError")
    command: str | None = None


def _decode_objection(note: Attachment) -> _Objection | None:
    try:
        return msgspec.json.decode(note.blocking_error, type=_Objection) if note.blocking_error != ABSENT else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class _HookInfo(Struct, gc=False):
    """A hook in the summary of those that ran when the model stopped."""

    command: str | None = None
    duration_ms: int | float | None = field(default=None, name="durationMs")


def _has_ended(event: Event) -> TypeGuard[Hook]:
    return isinstance(event, Hook) and event.outcome != "started"


def _attachment_text(note: Attachment) -> str | None:
    """Return the most specific text of an attachment; an object is returned as its JSON."""
    for raw in (note.blocking_error, note.decision, note.message, note.banner, note.content, note.stderr):
        data = bytes(raw)
        text = data.decode("utf-8", "replace") if data[:1] == b"{" else extract_text(raw)
        if text:
            return text[:_NOTE_TEXT_LIMIT]
    return None


class InlineAgents:
    """Index of the calls that started the subagents in the same file."""

    def __init__(self) -> None:
        self._calls_by_prompt: dict[str, CallId] = {}
        self._calls_by_uuid: dict[str, CallId] = {}

    def add_prompt(self, call_id: CallId, prompt: object) -> None:
        """Add the prompt of a call that starts a subagent; of several calls with the same prompt, the first is used."""
        if isinstance(prompt, str):
            self._calls_by_prompt.setdefault(prompt.strip(), call_id)

    def find_owner(self, entry: Entry) -> CallId | None:
        """Return the call that started a line's subagent, found by its parent line or its prompt."""
        if entry.uuid in self._calls_by_uuid:
            return self._calls_by_uuid[entry.uuid]
        owner = self._calls_by_uuid.get(entry.parent_uuid) if entry.parent_uuid else None
        if owner is None and entry.type == "user":
            owner = self._calls_by_prompt.pop((user_text(entry) or "").strip(), None)
        if owner is not None and entry.uuid is not None:
            self._calls_by_uuid[entry.uuid] = owner
        return owner


WARMUP_PROMPT = "Warmup"
"""The prompt of a subagent that the client starts by itself, to fill the model's cache."""


class WarmupAgents:
    """Index of the lines from subagents whose first prompt is exactly `Warmup`."""

    def __init__(self) -> None:
        self._warmup_by_agent: dict[str, bool] = {}
        self._uuids: set[str] = set()

    def add(self, entry: Entry) -> None:
        """Add a line of a subagent, in file order."""
        if entry.agent_id is not None:
            if entry.agent_id not in self._warmup_by_agent:
                self._warmup_by_agent[entry.agent_id] = _is_warmup_prompt(entry)
        elif entry.uuid is not None:
            is_warmup = entry.parent_uuid in self._uuids or (entry.parent_uuid is None and _is_warmup_prompt(entry))
            if is_warmup:
                self._uuids.add(entry.uuid)

    def contains(self, entry: Entry) -> bool:
        """Return whether a line belongs to a warmup subagent."""
        if entry.agent_id is not None:
            return self._warmup_by_agent.get(entry.agent_id, False)
        return entry.uuid in self._uuids


def _is_warmup_prompt(entry: Entry) -> bool:
    return entry.type == "user" and user_text(entry) == WARMUP_PROMPT
