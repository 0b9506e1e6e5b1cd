"""The records of one session in timeline order, already redacted. Start at `SessionExport`.

Records are created on demand, so that only one call's bodies are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from toolspan.analysis.file_history.archive import describe_effect
from toolspan.analysis.file_history.changes import ChangeKind, FileChange, changes_of
from toolspan.analysis.timing import CallPhases, measure_agent, phases_among, read_all_hook_timings
from toolspan.diffs import DiffKind, PatchError, unified
from toolspan.errors import SourceError
from toolspan.export.records import (
    AgentRecord,
    CallRecord,
    DiffRecord,
    EventRecord,
    EvidenceRecord,
    ExportRecord,
    MessageRecord,
    PhaseRecord,
    SessionRecord,
    SliceRecord,
)
from toolspan.formats.source import to_path
from toolspan.reading.lineage import sum_tokens
from toolspan.reading.rows import CallRow, make_call_row
from toolspan.reading.timeline import (
    AgentTimeline,
    TimelineBatch,
    TimelineMessage,
    build_timeline,
    display_text,
    starts_turn,
)
from toolspan.reading.transcript import Transcript, read_content
from toolspan.redaction.redactor import NoRedaction, Redactor
from toolspan.types.inputs import decode_json_or_text
from toolspan.types.session import Message
from toolspan.types.span import Event, Hook, Note, Notification, Permission, Progress, Span, to_epoch_ms

_PATCH_CHANGES: Mapping[ChangeKind, DiffKind] = {
    "created": "create", "edited": "update", "deleted": "delete", "moved": "update",
}  # fmt: skip
_ROW_FIELDS = set(CallRow.__struct_fields__) & set(CallRecord.__struct_fields__) - {
    "session", "agent", "tool", "evidence",
}  # fmt: skip


class ExportRow(Struct, frozen=True):
    """A record and its nesting depth below the main conversation."""

    record: AgentRecord | MessageRecord | CallRecord
    depth: int = 0


class ExportFilter(Struct, frozen=True, kw_only=True):
    """A filter for calls and messages. By default, it includes all of them."""

    include_call: Callable[[str, str], bool] = lambda _file, _id: True
    include_message: Callable[[Message], bool] = lambda _: True


EXPORT_ALL = ExportFilter()


class SessionExport:
    """One session, ready to be written in any format."""

    def __init__(
        self,
        transcripts: Sequence[Transcript],
        *,
        redactor: Redactor | None = None,
        export_filter: ExportFilter = EXPORT_ALL,
    ) -> None:
        """Read the session's own transcript followed by those of its subagents.

        Raises:
            SourceError: a file can no longer be read.
        """
        self._main_transcript = transcripts[0]
        self._redactor = redactor or NoRedaction()
        self._filter = export_filter
        self._timeline = build_timeline([read_content(transcript) for transcript in transcripts])
        self._hook_timings = read_all_hook_timings(to_path(transcript.file) for transcript in transcripts)
        for transcript in transcripts:
            self._redactor.learn_names(line.data for line in transcript.lines())
        info = self._main_transcript.info
        slices: list[SliceRecord] = []
        for part in measure_agent(self._timeline, self._hook_timings).slices:
            start = part.start
            if slices and slices[-1].part == part.part and slices[-1].end == start:  # merge adjacent slices
                start = slices.pop().start
            slices.append(SliceRecord(part=part.part, start=start, end=part.end))
        header = SessionRecord(
            id=self._session_id,
            dialect=info.dialect,
            title=info.title or info.first_prompt,
            cwd=info.cwd,
            git_branch=info.git_branch,
            versions=info.versions,
            models=info.models,
            start=to_epoch_ms(self._timeline.start_time),
            end=to_epoch_ms(self._timeline.end_time),
            tokens=sum_tokens(transcript.message_tokens for transcript in transcripts),
            files=tuple(transcript.file for transcript in transcripts),
            slices=tuple(slices),
            findings=sum(len(transcript.findings) for transcript in transcripts),
        )
        self.header = self._redactor.redact_record(header)

    def rows(self) -> Iterator[ExportRow]:
        """Yield messages, calls and subagent starts in order. Each record is created when it is requested."""
        for row in self._timeline_rows(self._timeline, None, 0):
            yield ExportRow(self._redactor.redact_record(row.record), row.depth)

    def records(self) -> Iterator[ExportRecord]:
        """Yield the session record and then the record of every row."""
        yield self.header
        for row in self.rows():
            yield row.record

    def calls(self, *, bodies: bool = True) -> Iterator[CallRecord]:
        """Yield only the calls. Without `bodies`, the texts that tables do not contain are empty, which saves time."""
        for row in self._timeline_rows(self._timeline, None, 0):
            if isinstance(row.record, CallRecord):
                yield self._redactor.redact_record(row.record if bodies else _without_bodies(row.record))

    @property
    def redaction_notice(self) -> str | None:
        """A sentence for readers about the data that was replaced; None if the export is complete."""
        return self._redactor.notice

    @property
    def redaction_counts(self) -> Mapping[str, int]:
        """The number of replacements so far, in this and earlier sessions, by kind."""
        return self._redactor.counts

    @property
    def _session_id(self) -> str:
        return self._main_transcript.session_id or to_path(self._main_transcript.file).name.partition(".")[0]

    def _timeline_rows(self, timeline: AgentTimeline, parent: str | None, depth: int) -> Iterator[ExportRow]:
        phases = phases_among((placed.span for placed in timeline.calls), self._hook_timings)
        for item in chain.from_iterable(turn.items for turn in timeline.turns):
            match item:
                case TimelineMessage():
                    message, text = item.message, display_text(item.message)
                    if text.strip() and self._filter.include_message(message):
                        record = MessageRecord(
                            session=self._session_id,
                            agent=timeline.agent_id,
                            voice=message.voice,
                            opens=starts_turn(message),
                            at=message.at,
                            start=to_epoch_ms(item.start_time),
                            branch=item.branch,
                            text=text,
                            chars=len(text),
                        )
                        yield ExportRow(record, depth)
                case TimelineBatch():
                    for placed in item.calls:
                        if self._filter.include_call(timeline.file, placed.span.id):
                            yield ExportRow(self._call_record(placed.span, timeline, parent, phases), depth)
                        for agent in placed.agents:
                            yield from self._agent_rows(agent, placed.span.id, depth)
                case AgentTimeline():
                    yield from self._agent_rows(item, None, depth)

    def _agent_rows(self, agent: AgentTimeline, parent: str | None, depth: int) -> Iterator[ExportRow]:
        rows = self._timeline_rows(agent, parent, depth + 1)
        first = next(rows, None)
        if first is None:
            return
        record = AgentRecord(
            session=self._session_id,
            agent=agent.agent_id,
            role=agent.role,
            calls=len(agent.calls),
            linked=agent.linked,
            parent=parent,
            start=to_epoch_ms(agent.start_time),
            end=to_epoch_ms(agent.end_time),
        )
        yield ExportRow(record, depth + 1)
        yield first
        yield from rows

    def _call_record(
        self, span: Span, agent: AgentTimeline, parent: str | None, phases_of: Callable[[Span], CallPhases]
    ) -> CallRecord:
        row = make_call_row(span, agent.file)
        phases = phases_of(span)
        start, end = to_epoch_ms(span.requested), to_epoch_ms(span.finished)
        if start is not None and end is not None and (phases.took is None or end < start):
            end = None
        shared: dict[str, Any] = {name: getattr(row, name) for name in _ROW_FIELDS}
        return CallRecord(
            **shared,
            **_read_bodies(span, self._main_transcript.info.cwd),
            session=row.session or self._session_id,
            agent=agent.agent_id,
            parent=row.parent_call or parent,
            tool=span.tool,
            start=start,
            end=end,
            phases=tuple(PhaseRecord(phase=p.phase, start=p.start, end=p.end) for p in phases.intervals),
            wait_certainty=phases.certainty,
            events=tuple(_event_record(event) for event in span.events),
            evidence=tuple(EvidenceRecord(rule=rule, text=text) for rule, text in row.evidence),
            line=row.request_line or row.result_line,
        )


def _without_bodies(record: CallRecord) -> CallRecord:
    diffs = tuple(replace(diff, path="", text="") for diff in record.diffs)
    return replace(record, input=None, result=None, diffs=diffs, events=(), evidence=())


class LaneAllocator:
    """An allocator that puts an agent's overlapping calls in different lanes of a chart."""

    def __init__(self, free_from: Iterable[int] = ()) -> None:
        """Start with lanes that are free from these times on."""
        self._free_from = list(free_from)

    @property
    def free_from(self) -> tuple[int, ...]:
        """The time from which each lane is free."""
        return tuple(self._free_from)

    @property
    def count(self) -> int:
        """The number of lanes, at least 1."""
        return max(len(self._free_from), 1)

    def assign_lane(self, start: int, end: int) -> int:
        """Return the first free lane. A call without a duration occupies its lane for 1 ms."""
        until = max(end, start + 1)
        for lane, free_from in enumerate(self._free_from):
            if free_from <= start:
                self._free_from[lane] = until
                return lane
        self._free_from.append(until)
        return len(self._free_from) - 1


def _read_bodies(span: Span, cwd: str | None) -> dict[str, Any]:
    """Return the fields that are read again from the file. If it has changed since, only `problem` is set."""
    try:
        raw = span.call.raw_input
        result = span.result.text if span.result else None
        return {
            "input": decode_json_or_text(raw) if span.call.place else None,
            "input_chars": len(raw.decode("utf-8", "replace")) if span.call.place else 0,
            "result": result,
            "result_chars": None if result is None else len(result),
            "diffs": tuple(_diff_record(change) for change in changes_of(span, cwd)),
        }
    except SourceError as error:
        return {"problem": str(error)}


def _diff_record(change: FileChange) -> DiffRecord:
    """Return a change as a diff, or as requested if its position in the file is unknown."""
    try:
        text = unified(
            change.hunks,
            change.moved_to or change.path,
            old_path=change.moved_from or (change.path if change.moved_to else None),
            change="update" if change.moved_to else _PATCH_CHANGES[change.kind],
        )
    except PatchError:
        text = ""
    return DiffRecord(
        path=change.path,
        kind=change.kind,
        added=change.added,
        removed=change.removed,
        text=text if change.hunks or change.moved_to else "\n".join(describe_effect(change.effect)),
    )


def _event_record(event: Event) -> EventRecord:
    match event:
        case Hook():
            return EventRecord(
                type="hook",
                at=event.at,
                name=event.point,
                who=event.name if event.command is None else event.command,
                text=event.text,
                outcome=event.outcome,
                exit_code=event.exit_code,
                duration_ms=event.duration_ms,
            )
        case Progress():
            return EventRecord(type="progress", at=event.first_at, name=event.kind, count=event.count)
        case Permission():
            text = " · ".join(part for part in (event.reason, event.origin, event.scope) if part)
            return EventRecord(type="permission", name=event.decision, who=event.source, text=text or None)
        case Notification():
            return EventRecord(
                type="notification", at=event.at, name=event.status, who=event.task_id, text=event.summary
            )
        case Note():
            return EventRecord(type="note", at=event.at, name=event.kind, text=event.text)


ExportFormat = Literal["json", "csv", "markdown", "html", "perfetto", "otlp"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)


def load_writer(export_format: ExportFormat) -> Callable[[Iterable[SessionExport]], Iterator[bytes]]:
    """Return the function that writes sessions in `export_format`. Its module is imported on demand."""
    return import_module(f"toolspan.export.{export_format}").write  # type: ignore[no-any-return]
