"""Pair the calls in a transcript that is still growing, and list running client processes.

The cost of an update depends only on the number of new lines.
"""

from __future__ import annotations

from pathlib import Path

from toolspan.formats.base import RunningProcess
from toolspan.formats.claude.pairing import CallBuilder, Pairing
from toolspan.formats.claude.records import Entry, MessageBlock
from toolspan.formats.claude.side_records import SideRecords
from toolspan.formats.pairing import LiveCallPairing, StateInference
from toolspan.formats.source import Source, read_small_json
from toolspan.types.ids import CallId
from toolspan.types.span import Call, Event, Evidence


class LivePairing(Pairing, LiveCallPairing[CallBuilder]):
    """Pairing for a growing transcript, with open states and change tracking."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.side_records = _LiveSideRecords(source.name, self._changed_ids)
        self._pending_builders: dict[str, dict[CallId, CallBuilder]] = {}
        """Calls without a result, by conversation (see `_conversation_key`)."""
        self._unexplained_failures: dict[str, set[CallId]] = {}
        """Failures of unknown kind, by error message; a later refusal with the same message explains them."""

    def _add_assistant(self, entry: Entry, at: int) -> None:
        conversation = entry.agent_id or entry.parent_tool_use_id_snake or ""
        # A line from an inline subagent without an id may belong to any of several subagents.
        may_be_renamed = entry.is_sidechain and not conversation
        pending = None if may_be_renamed else self._pending_builders.get(conversation)
        message = entry.message
        if pending and message is not None and message.id and message.model != "<synthetic>":
            # Calls from earlier messages can no longer get a result.
            abandoned = [name for name, builder in pending.items() if builder.call.message_id != message.id]
            for call_id in abandoned:
                del pending[call_id]
            self._mark_abandoned(abandoned)
        super()._add_assistant(entry, at)

    def _add_instant_reply(self, entry: Entry, time: str) -> None:
        super()._add_instant_reply(entry, time)
        if self._is_copy_time(time):  # the durations of calls with this time are unknown
            self._changed_ids.update(
                call_id for call_id, builder in self._builders.items() if self._is_copy_time(builder.call.requested_at)
            )

    def _add_call(self, block: MessageBlock, entry: Entry, at: int) -> None:
        call_id = block.id or self._make_missing_id(at)
        before = self._builders.get(call_id)
        new = before is None or not before.call.at
        super()._add_call(block, entry, at)
        builder = self._builders[call_id]
        if new:
            self._assign_position(call_id)
            if builder.result is None:
                self._pending_builders.setdefault(_conversation_key(builder.call), {})[call_id] = builder
        self._changed_ids.add(call_id)

    def _add_result(self, block: MessageBlock, entry: Entry, at: int) -> None:
        call_id = block.tool_use_id or self._make_missing_id(at)
        refusals = len(self._refusal_texts)
        super()._add_result(block, entry, at)
        builder = self._builders[call_id]
        self._mark_id_changed(call_id)
        self._pending_builders.get(_conversation_key(builder.call), {}).pop(call_id, None)
        if builder.inference is not None and builder.inference.kind == "unknown":
            self._unexplained_failures.setdefault(builder.error_text, set()).add(call_id)
        if len(self._refusal_texts) > refusals:
            self._changed_ids.update(self._unexplained_failures.get(builder.error_text, ()))

    def _add_user_text(self, text: str, entry: Entry, at: int) -> None:
        recent = tuple(self._recent_results)
        super()._add_user_text(text, entry, at)
        self._changed_ids.update(builder.call.id for builder in recent if builder.interrupt_follows)

    def _infer_state(self, builder: CallBuilder) -> StateInference:
        inference = super()._infer_state(builder)
        if not self._is_open(builder, inference):
            return inference
        call_id = builder.call.id
        if call_id in self.side_records.started_ids or call_id in self.side_records.progress:
            return StateInference(state="running", evidence=(Evidence("progress"),))
        if call_id in self._started_ids:
            return StateInference(state="running", evidence=(Evidence("subagent started"),))
        return StateInference(state="requested", evidence=(Evidence("no result yet"),))


def _conversation_key(call: Call) -> str:
    """Return the id of the subagent that made a call, or of its parent call; empty for the main conversation."""
    return call.agent_id or call.parent_call or ""


class _LiveSideRecords(SideRecords):
    """Side records that also report the calls to which they refer."""

    def __init__(self, file: str, changed_ids: set[CallId]) -> None:
        super().__init__(file)
        self._changed_ids = changed_ids

    def add(self, entry: Entry, at: int) -> None:
        super().add(entry, at)
        if entry.type == "result" or entry.subtype == "permission_denied":
            self._changed_ids.update(map(CallId, self.denied_ids | self.deferred_ids))

    def _count_progress(self, call_id: str, kind: str, at: str | None) -> None:
        super()._count_progress(call_id, kind, at)
        self._changed_ids.add(CallId(call_id))

    def _add_event(self, call_id: str, event: Event) -> None:
        super()._add_event(call_id, event)
        self._changed_ids.add(CallId(call_id))


_MAX_FILE_SIZE = 1 << 16


def list_running_processes(folder: Path) -> list[RunningProcess]:
    """Return the processes with a status file in a folder, sorted by process id."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.name.endswith(".json"))
    except OSError:
        return []
    entries = (read_small_json(path, RunningProcess, _MAX_FILE_SIZE) for path in paths)
    return sorted((entry for entry in entries if entry is not None), key=lambda entry: entry.pid)
