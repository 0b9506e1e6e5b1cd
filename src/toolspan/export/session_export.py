"""The records of one session in timeline order, already redacted. Start at `SessionExport`.

Records are created on demand, so that only one call's bodies are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import asdict, replace

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
    ExportRecord,
    MessageRecord,
    PhaseRecord,
    RequestRecord,
    SessionRecord,
    SliceRecord,
)
from toolspan.formats.source import to_path
from toolspan.reading.lineage import sum_tokens
from toolspan.reading.rows import make_call_row
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
from toolspan.types.session import Message, RequestUsage
from toolspan.types.span import (
    Event,
    Hook,
    Note,
    Notification,
    Permission,
    Progress,
    Span,
    parse_timestamp,
    to_epoch_ms,
)

_PATCH_CHANGES: Mapping[ChangeKind, DiffKind] = {
    "created": "create", "edited": "update", "deleted": "delete", "moved": "update",
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
        self.transcripts = transcripts
        self._main_transcript = transcripts[0]
        self._redactor = redactor or NoRedaction()
        self._filter = export_filter
        self.timeline = build_timeline([read_content(transcript) for transcript in transcripts])
        self.hook_timings = read_all_hook_timings(to_path(transcript.file) for transcript in transcripts)
        for transcript in transcripts:
            self._redactor.learn_names(line.data for line in transcript.lines())
        info = self._main_transcript.info
        slices: list[SliceRecord] = []
        for part in measure_agent(self.timeline, self.hook_timings).slices:
            start = part.start
            if slices and slices[-1].part == part.part and slices[-1].end == start:  # merge adjacent slices
                start = slices.pop().start
            slices.append(SliceRecord(part=part.part, start=start, end=part.end))
        header = SessionRecord(
            id=self._session_id,
            client=info.client,
            title=info.title or info.first_prompt,
            cwd=info.cwd,
            git_branch=info.git_branch,
            versions=info.versions,
            models=info.models,
            start=to_epoch_ms(self.timeline.start_time),
            end=to_epoch_ms(self.timeline.end_time),
            tokens=sum_tokens(transcript.message_tokens for transcript in transcripts),
            files=tuple(transcript.file for transcript in transcripts),
            slices=tuple(slices),
            findings=sum(len(transcript.findings) for transcript in transcripts),
        )
        self.header = self._redactor.redact_record(header)

    def rows(self) -> Iterator[ExportRow]:
        """Yield messages, calls and subagent starts in order. Each record is created when it is requested."""
        for row in self._timeline_rows(self.timeline, None, 0):
            yield ExportRow(self._redactor.redact_record(row.record), row.depth)

    def records(self) -> Iterator[ExportRecord]:
        """Yield the session record and then the record of every row."""
        yield self.header
        for row in self.rows():
            yield row.record

    def calls(self, *, bodies: bool = True) -> Iterator[CallRecord]:
        """Yield only the calls. Without `bodies`, the texts that tables do not contain are empty, which saves time."""
        for row in self._timeline_rows(self.timeline, None, 0):
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
        for item in chain.from_iterable(turn.items for turn in timeline.turns):
            match item:
                case TimelineMessage():
                    if record := self._message_record(item, timeline):
                        yield ExportRow(record, depth)
                case TimelineBatch():
                    phases_of = phases_among((placed.span for placed in item.calls), self.hook_timings)
                    for placed in item.calls:
                        if self._filter.include_call(timeline.file, placed.span.id):
                            call = self._call_record(placed.span, timeline, parent, phases_of(placed.span))
                            yield ExportRow(call, depth)
                        for agent in placed.agents:
                            yield from self._agent_rows(agent, placed.span.id, depth)
                case AgentTimeline():
                    yield from self._agent_rows(item, None, depth)

    def _agent_rows(self, agent: AgentTimeline, parent: str | None, depth: int) -> Iterator[ExportRow]:
        rows = self._timeline_rows(agent, parent, depth + 1)
        first = next(rows, None)
        if first is None:
            return
        yield ExportRow(self._agent_record(agent, parent), depth + 1)
        yield first
        yield from rows

    def includes(self, span: Span, agent: AgentTimeline) -> bool:
        """Return whether the filter accepts a call."""
        return self._filter.include_call(agent.file, span.id)

    def call_record(
        self, span: Span, agent: AgentTimeline, parent: str | None, phases: CallPhases
    ) -> CallRecord | None:  # fmt: skip
        """Return the redacted record of a call, or None if the filter does not accept it."""
        if not self._filter.include_call(agent.file, span.id):
            return None
        return self._redactor.redact_record(self._call_record(span, agent, parent, phases))

    def message_record(self, item: TimelineMessage, agent: AgentTimeline) -> MessageRecord | None:
        """Return the redacted record of a message, or None if it has no text or the filter does not accept it."""
        record = self._message_record(item, agent)
        return record and self._redactor.redact_record(record)

    def agent_record(self, agent: AgentTimeline, parent: str | None) -> AgentRecord:
        """Return the redacted record of a subagent."""
        return self._redactor.redact_record(self._agent_record(agent, parent))

    def request_record(self, name: str, usage: RequestUsage, *, input_includes_cache: bool) -> RequestRecord:
        """Return the redacted record of a model request."""
        record = RequestRecord(
            id=name,
            model=usage.model,
            at=usage.at,
            start=to_epoch_ms(parse_timestamp(usage.at)),
            tokens=usage.tokens.without_cached() if input_includes_cache else usage.tokens,
            cost_usd=usage.cost_usd,
        )
        return self._redactor.redact_record(record)

    def _message_record(self, item: TimelineMessage, agent: AgentTimeline) -> MessageRecord | None:
        message, text = item.message, display_text(item.message)
        if not text.strip() or not self._filter.include_message(message):
            return None
        return MessageRecord(
            session=self._session_id,
            agent=agent.agent_id,
            voice=message.voice,
            opens=starts_turn(message),
            at=message.at,
            start=to_epoch_ms(item.start_time),
            branch=item.branch,
            text=text,
            chars=len(text),
        )

    def _agent_record(self, agent: AgentTimeline, parent: str | None) -> AgentRecord:
        return AgentRecord(
            session=self._session_id,
            agent=agent.agent_id,
            role=agent.role,
            calls=len(agent.calls),
            linked=agent.linked,
            parent_call=parent,
            start=to_epoch_ms(agent.start_time),
            end=to_epoch_ms(agent.end_time),
        )

    def _call_record(self, span: Span, agent: AgentTimeline, parent: str | None, phases: CallPhases) -> CallRecord:
        row = make_call_row(span, agent.file)
        start, end = to_epoch_ms(span.requested), to_epoch_ms(span.finished)
        if start is not None and end is not None and (row.duration_ms is None or end < start):
            end = None
        place = {"session": row.session or self._session_id, "agent": agent.agent_id}
        return CallRecord(
            **(asdict(row) | place | {"parent_call": row.parent_call or parent}),
            **_read_bodies(span, self._main_transcript.info.cwd),
            start=start,
            end=end,
            phases=tuple(PhaseRecord(phase=p.phase, start=p.start, end=p.end) for p in phases.intervals),
            wait_certainty=phases.certainty,
            events=tuple(_event_record(event) for event in span.events),
        )


def _without_bodies(record: CallRecord) -> CallRecord:
    diffs = tuple(replace(diff, path="", text="") for diff in record.diffs)
    return replace(record, target=_whole_target(record), input=None, result=None, diffs=diffs, events=())


def _whole_target(record: CallRecord) -> str | None:
    """Return the text of the input that begins with the target, which lists shorten."""
    values: list[object] = [record.input]
    for value in values:
        if isinstance(value, str) and record.target and value.startswith(record.target):
            return value
        values += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return record.target


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


ExportFormat = Literal["json", "csv", "markdown", "html", "perfetto", "otlp", "atif"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)


def load_writer(export_format: ExportFormat) -> Callable[[Iterable[SessionExport]], Iterator[bytes]]:
    """Return the function that writes sessions in `export_format`. Its module is imported on demand."""
    return import_module(f"toolspan.export.{export_format}").write  # type: ignore[no-any-return]
