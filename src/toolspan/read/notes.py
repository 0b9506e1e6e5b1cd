"""What the other lines say about calls: hooks, progress, permissions, background tasks.

In: entries that are neither the model's words nor results. Out: notes by call id, which `pair.py`
attaches to its spans. Read `Notes.add` first.
"""

from msgspec import Raw

from toolspan.model.event import Event, Hook, HookOutcome, Note, Notification
from toolspan.model.place import Place
from toolspan.wire.claude import Entry, text_of
from toolspan.wire.claude_parts import NOTHING, Attachment, ProgressData, task_notices

_OUTCOMES: dict[str, HookOutcome] = {
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
_TEXT_LIMIT = 400

Tally = tuple[int, str | None, str | None]
"""How many, the first time, the last time."""


class Notes:
    """Everything known about calls from lines around them."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.events: dict[str, list[Event]] = {}
        self.progress: dict[str, dict[str, Tally]] = {}
        self.started: set[str] = set()
        self.blocked: dict[str, str] = {}
        self.hooked: set[str] = set()
        self.deferred: set[str] = set()
        self.denied: set[str] = set()
        self.agents: dict[str, str] = {}
        self._told: set[tuple[str, str | None, str | None]] = set()
        """Notifications heard: one and the same may be queued, attached and said."""

    def add(self, entry: Entry, at: int) -> None:
        """One entry and its packed place."""
        match entry.type:
            case "progress":
                self._progress(entry, at)
            case "attachment":
                self._attachment(entry, at)
            case "queue-operation":
                if b"<task-notification" in memoryview(entry.content)[:80].tobytes():
                    self.notice(text_of(entry.content), entry.timestamp, at)
            case "result":
                self._stream_end(entry)
            case "tool_progress":
                self._stream_progress(entry)
            case "system" if entry.subtype == "permission_denied":
                self.denied.add(entry.tool_use_id or entry.tool_use_id_snake or "")

    def speak_of(self, call_id: str) -> bool:
        """Whether something happened around a call."""
        return call_id in self.events or call_id in self.progress

    def _stream_progress(self, entry: Entry) -> None:
        call_id = entry.tool_use_id_snake
        if call_id is not None:
            self.started.add(call_id)
            self._tick(call_id, "tool_progress", entry.timestamp)

    def _stream_end(self, entry: Entry) -> None:
        """The last line of a stream: which calls were refused or put off."""
        self.denied.update(d.tool_use_id for d in entry.permission_denials or () if d.tool_use_id)
        deferred = entry.deferred_tool_use
        if deferred and (deferred.id or deferred.tool_use_id):
            self.deferred.add(deferred.id or deferred.tool_use_id or "")

    def notice(self, text: str, time: str | None, at: int) -> None:
        """Task notifications in a text somebody put into the conversation."""
        for notice in task_notices(text):
            if notice.call_id and (notice.call_id, notice.task_id, notice.status) not in self._told:
                self._told.add((notice.call_id, notice.task_id, notice.status))
                self._event(
                    notice.call_id,
                    Notification(
                        task_id=notice.task_id,
                        status=notice.status,
                        summary=notice.summary,
                        at=time,
                        place=self._place(at),
                    ),
                )

    def _place(self, at: int) -> Place:
        return Place.unpacked(self._file, at)

    def _progress(self, entry: Entry, at: int) -> None:
        data = entry.data
        call_id = entry.parent_tool_use_id or entry.tool_use_id
        if data is None or call_id is None:
            return
        if data.type == "hook_progress":
            self._hook_progress(call_id, data, entry.timestamp, self._place(at))
            return
        if data.type == "agent_progress" and data.agent_id:
            self.agents.setdefault(call_id, data.agent_id)
        self.started.add(call_id)
        self._tick(call_id, data.type, entry.timestamp)

    def _hook_progress(
        self, call_id: str, data: ProgressData, at: str | None, place: Place
    ) -> None:
        if data.hook_event and not data.hook_event.startswith("Pre"):
            self.started.add(call_id)
        self._event(
            call_id,
            Hook(
                point=data.hook_event or "",
                name=data.hook_name or "",
                outcome="started",
                command=data.command,
                at=at,
                place=place,
            ),
        )

    def _tick(self, call_id: str | None, kind: str, at: str | None) -> None:
        if call_id is None:
            return
        kinds = self.progress.setdefault(call_id, {})
        count, first, _ = kinds.get(kind, (0, at, at))
        kinds[kind] = (count + 1, first, at)

    def _attachment(self, entry: Entry, at: int) -> None:
        note = entry.attachment
        if note is None:
            return
        if note.type == "queued_command":
            self.notice(text_of(note.prompt), entry.timestamp, at)
        if note.tool_use_id is None:
            return
        place = self._place(at)
        outcome = _OUTCOMES.get(note.type)
        if outcome is not None:
            self._hook(note, note.tool_use_id, outcome, entry.timestamp, place)
            return
        text = _words(note)
        self._event(
            note.tool_use_id, Note(kind=note.type, text=text, at=entry.timestamp, place=place)
        )

    def _hook(
        self, note: Attachment, call_id: str, outcome: HookOutcome, at: str | None, place: Place
    ) -> None:
        point = note.hook_event or (note.hook_name or "").partition(":")[0]
        text = _words(note)
        if point == "PreToolUse":
            self.hooked.add(call_id)
            if outcome == "blocked":
                self.blocked[call_id] = text or ""
        if outcome == "deferred":
            self.deferred.add(call_id)
        self._event(
            call_id,
            Hook(
                point=point,
                name=note.hook_name or point,
                outcome=outcome,
                command=note.command,
                exit_code=note.exit_code,
                duration_ms=note.duration_ms,
                text=text,
                at=at,
                place=place,
            ),
        )

    def _event(self, call_id: str, event: Event) -> None:
        self.events.setdefault(call_id, []).append(event)


def _words(note: Attachment) -> str | None:
    for raw in (
        note.blocking_error, note.decision, note.message, note.banner, note.content, note.stderr
    ):  # fmt: skip
        text = "" if raw is NOTHING else _plain(raw)
        if text:
            return text[:_TEXT_LIMIT]
    return None


def _plain(raw: Raw) -> str:
    """Words as they are; a structure as its JSON."""
    data = bytes(raw)
    if data[:1] == b"{":
        return data.decode("utf-8", "replace")
    return text_of(raw)
