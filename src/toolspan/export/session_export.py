"""A session's files become one story: records in the order of the timeline, veiled.

In: the transcripts of one session, its own first. Out: a `Story`; its records are made one by one
when they are asked for, so that bodies of only one call are in memory. Read `Story` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from toolspan.analysis.file_history.archive import describe_effect
from toolspan.analysis.file_history.events import FileChange, changes_of
from toolspan.analysis.file_history.sources import ChangeKind
from toolspan.analysis.phases import CallPhases, phases_among, read_all_hook_timings, to_epoch_ms
from toolspan.analysis.timing import TimeSlice, measure_agent
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
from toolspan.export.redact import NoRedaction, Redactor
from toolspan.reading.lineage import sum_tokens
from toolspan.reading.timeline import (
    AgentTimeline,
    TimelineBatch,
    TimelineItem,
    TimelineMessage,
    build_timeline,
    display_text,
    starts_turn,
)
from toolspan.reading.transcript import Transcript, read_content
from toolspan.types.inputs import decode_json_or_text
from toolspan.types.session import Message
from toolspan.types.span import Event, Hook, Note, Notification, Permission, Progress, Span

_PATCH_CHANGES: Mapping[ChangeKind, DiffKind] = {
    "created": "create", "edited": "update", "deleted": "delete", "moved": "update",
}  # fmt: skip


class ExportRow(Struct, frozen=True):
    """A record, and how deep below the main conversation it stands."""

    record: AgentRecord | MessageRecord | CallRecord
    depth: int = 0


class ExportFilter(Struct, frozen=True, kw_only=True):
    """Which calls and words belong to a story; by default all."""

    include_call: Callable[[str, str], bool] = lambda _file, _id: True
    """Asked with the file and the id of a call."""
    include_message: Callable[[Message], bool] = lambda _: True


EXPORT_ALL = ExportFilter()


class SessionExport:
    """One session, ready to be written in some form."""

    def __init__(
        self,
        transcripts: Sequence[Transcript],
        *,
        redactor: Redactor | None = None,
        export_filter: ExportFilter = EXPORT_ALL,
    ) -> None:
        """Of these transcripts: the session's own, then its subagents'.

        Raises:
            SourceError: a file can no longer be read.
        """
        self._main_transcript = transcripts[0]
        self._transcripts = transcripts
        self._redactor = redactor or NoRedaction()
        self._filter = export_filter
        self.strand = build_timeline([read_content(transcript) for transcript in transcripts])
        self._hook_timings = read_all_hook_timings(Path(transcript.file) for transcript in transcripts)
        for transcript in transcripts:
            self._redactor.learn_names(line.data for line in transcript.lines())
        self.header = self._redactor.redact_record(self._build_header())

    def rows(self) -> Iterator[ExportRow]:
        """What was said and done, in order; each record is made when it is asked for."""
        for row in self._strand_rows(self.strand, None, 0):
            yield ExportRow(self._redactor.redact_record(row.record), row.depth)

    def records(self) -> Iterator[ExportRecord]:
        """The head, then every row without its depth."""
        yield self.header
        for row in self.rows():
            yield row.record

    def calls(self) -> Iterator[CallRecord]:
        """The calls alone."""
        for row in self.rows():
            if isinstance(row.record, CallRecord):
                yield row.record

    @property
    def _session_id(self) -> str:
        return self._main_transcript.session_id or Path(self._main_transcript.file).name.partition(".")[0]

    def _build_header(self) -> SessionRecord:
        info = self._main_transcript.info
        slices = _merge_slices(measure_agent(self.strand, self._hook_timings).slices)
        return SessionRecord(
            id=self._session_id,
            dialect=info.dialect,
            title=info.title or info.first_prompt,
            cwd=info.cwd,
            git_branch=info.git_branch,
            versions=info.versions,
            models=info.models,
            start=to_epoch_ms(self.strand.start_time),
            end=to_epoch_ms(self.strand.end_time),
            tokens=sum_tokens(transcript.message_tokens for transcript in self._transcripts),
            files=tuple(transcript.file for transcript in self._transcripts),
            slices=tuple(SliceRecord(part=s.part, start=s.start, end=s.end) for s in slices),
            findings=sum(len(transcript.findings) for transcript in self._transcripts),
        )

    def _strand_rows(self, strand: AgentTimeline, parent: str | None, depth: int) -> Iterator[ExportRow]:
        phases = phases_among((placed.span for placed in strand.calls), self._hook_timings)
        context = _AgentContext(strand, parent, phases)
        for turn in strand.turns:
            for item in turn.items:
                yield from self._item_rows(item, context, depth)

    def _item_rows(self, item: TimelineItem, context: _AgentContext, depth: int) -> Iterator[ExportRow]:
        match item:
            case TimelineMessage():
                record = self._message_record(item, context.strand)
                if record.text.strip() and self._filter.include_message(item.message):
                    yield ExportRow(record, depth)
            case TimelineBatch():
                for placed in item.calls:
                    if self._filter.include_call(context.strand.file, placed.span.id):
                        yield ExportRow(self._call_record(placed.span, context), depth)
                    for agent in placed.agents:
                        yield from self._agent_rows(agent, placed.span.id, depth)
            case AgentTimeline():
                yield from self._agent_rows(item, None, depth)

    def _agent_rows(self, strand: AgentTimeline, parent: str | None, depth: int) -> Iterator[ExportRow]:
        rows = self._strand_rows(strand, parent, depth + 1)
        first = next(rows, None)
        if first is None:
            return
        record = AgentRecord(
            session=self._session_id,
            agent=strand.agent_id,
            role=strand.role,
            calls=len(strand.calls),
            linked=strand.linked,
            parent=parent,
            start=to_epoch_ms(strand.start_time),
            end=to_epoch_ms(strand.end_time),
        )
        yield ExportRow(record, depth + 1)
        yield first
        yield from rows

    def _message_record(self, item: TimelineMessage, strand: AgentTimeline) -> MessageRecord:
        message = item.message
        text = display_text(message)
        return MessageRecord(
            session=self._session_id,
            agent=strand.agent_id,
            voice=message.voice,
            opens=starts_turn(message),
            at=message.at,
            start=to_epoch_ms(item.start_time),
            branch=item.branch,
            text=text,
            chars=len(text),
        )

    def _call_record(self, span: Span, context: _AgentContext) -> CallRecord:
        call, result = span.call, span.result
        phases = context.phases_of(span)
        bodies = _read_bodies(span, self._main_transcript.info.cwd)
        place = call.place or (result.place if result else None)
        return CallRecord(
            session=call.session_id or self._session_id,
            agent=context.strand.agent_id,
            id=span.id,
            parent=call.parent_call or context.parent_call,
            batch=call.message_id,
            tool=span.tool,
            kind=call.kind,
            dialect=call.dialect,
            state=span.state,
            error_kind=span.error_kind,
            branch=span.branch,
            background=span.background,
            ambiguous=span.ambiguous,
            synthetic=span.synthetic,
            deferred=span.deferred,
            truncated=bool(result and result.truncated),
            requested=call.requested_at,
            finished=result.finished_at if result else None,
            start=to_epoch_ms(span.requested),
            end=_end_ms(span, phases.took),
            duration_ms=span.duration_ms,
            phases=tuple(PhaseRecord(phase=p.phase, start=p.start, end=p.end) for p in phases.intervals),
            wait_certainty=phases.certainty,
            exit_code=result.exit_code if result else None,
            is_error=result.is_error if result else None,
            target=call.target,
            message=span.message,
            input=bodies.input,
            input_chars=bodies.input_chars,
            result=bodies.result,
            result_chars=None if bodies.result is None else len(bodies.result),
            diffs=bodies.diffs,
            events=tuple(_event_record(event) for event in span.events),
            evidence=tuple(EvidenceRecord(rule=e.rule, text=e.text) for e in span.evidence),
            started_agent=span.agent,
            problem=bodies.problem,
            file=context.strand.file,
            line=place.line if place else None,
        )


class _AgentContext(NamedTuple):
    """What a call of an agent is told with."""

    strand: AgentTimeline
    parent_call: str | None
    """The call that started the agent."""
    phases_of: Callable[[Span], CallPhases]


def _end_ms(span: Span, took: int | None) -> int | None:
    """When a call ended, where that is known and not before it began."""
    start, end = to_epoch_ms(span.requested), to_epoch_ms(span.finished)
    if start is None or end is None:
        return end
    return None if took is None or end < start else end


def _merge_slices(slices: Sequence[TimeSlice]) -> list[TimeSlice]:
    """Neighbours with the same use as one."""
    merged: list[TimeSlice] = []
    for time_slice in slices:
        if merged and merged[-1].part == time_slice.part and merged[-1].end == time_slice.start:
            merged[-1] = TimeSlice(merged[-1].start, time_slice.end, time_slice.part)
        else:
            merged.append(time_slice)
    return merged


class _CallBodies(Struct, frozen=True, kw_only=True):
    """What is read again from the file."""

    input: object = None
    input_chars: int = 0
    result: str | None = None
    diffs: tuple[DiffRecord, ...] = ()
    problem: str | None = None


def _read_bodies(span: Span, cwd: str | None) -> _CallBodies:
    """Input, result and diffs of a call; a file that changed meanwhile is told, not raised."""
    try:
        raw = span.call.raw_input
        return _CallBodies(
            input=decode_json_or_text(raw) if span.call.place else None,
            input_chars=len(raw.decode("utf-8", "replace")) if span.call.place else 0,
            result=span.result.text if span.result else None,
            diffs=tuple(_diff_record(change) for change in changes_of(span, cwd)),
        )
    except SourceError as error:
        return _CallBodies(problem=str(error))


def _diff_record(change: FileChange) -> DiffRecord:
    """A change as a diff; where nobody knows its place in the file, as what was asked for."""
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
