"""A session's files become one story: records in the order of the timeline, veiled.

In: the transcripts of one session, its own first. Out: a `Story`; its records are made one by one
when they are asked for, so that bodies of only one call are in memory. Read `Story` first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.export.record import (
    AgentRecord,
    CallRecord,
    DiffRecord,
    EventRecord,
    EvidenceRecord,
    MessageRecord,
    PhaseRecord,
    Record,
    SessionRecord,
    SliceRecord,
)
from toolspan.export.veil import NoVeil, Veil
from toolspan.model.event import Event, Hook, Note, Notification, Permission, Progress
from toolspan.model.inputs import decode_anything
from toolspan.model.message import Message
from toolspan.model.span import Span
from toolspan.patch import Change, PatchError, unified
from toolspan.read.lineage import sum_tokens
from toolspan.read.messages import script
from toolspan.read.timeline import Batch, Item, Said, Strand, opens, timeline
from toolspan.read.transcript import Transcript
from toolspan.report.files.change import FileChange, changes_of
from toolspan.report.files.story import shown
from toolspan.report.files.told import ChangeKind
from toolspan.report.time.heard import read_all_heard
from toolspan.report.time.phases import Phases, phases_among, stamp
from toolspan.report.time.timing import Slice, measure
from toolspan.report.words import words

_CHANGES: Mapping[ChangeKind, Change] = {
    "created": "create", "edited": "update", "deleted": "delete", "moved": "update",
}  # fmt: skip


class Row(Struct, frozen=True):
    """A record, and how deep below the main conversation it stands."""

    record: AgentRecord | MessageRecord | CallRecord
    depth: int = 0


class Choice(Struct, frozen=True, kw_only=True):
    """Which calls and words belong to a story; by default all."""

    call: Callable[[str, str], bool] = lambda _file, _id: True
    """Asked with the file and the id of a call."""
    message: Callable[[Message], bool] = lambda _: True


EVERYTHING = Choice()


class Story:
    """One session, ready to be written in some form."""

    def __init__(
        self,
        transcripts: Sequence[Transcript],
        *,
        veil: Veil | None = None,
        choice: Choice = EVERYTHING,
    ) -> None:
        """Of these transcripts: the session's own, then its subagents'.

        Raises:
            SourceError: a file can no longer be read.
        """
        self._main = transcripts[0]
        self._files = transcripts
        self._veil = veil or NoVeil()
        self._choice = choice
        self.strand = timeline([script(transcript) for transcript in transcripts])
        self._heard = read_all_heard(Path(transcript.file) for transcript in transcripts)
        for transcript in transcripts:
            self._veil.meet(line.data for line in transcript.lines())
        self.head = self._veil.over(self._head())

    def rows(self) -> Iterator[Row]:
        """What was said and done, in order; each record is made when it is asked for."""
        for row in self._strand(self.strand, None, 0):
            yield Row(self._veil.over(row.record), row.depth)

    def records(self) -> Iterator[Record]:
        """The head, then every row without its depth."""
        yield self.head
        for row in self.rows():
            yield row.record

    def calls(self) -> Iterator[CallRecord]:
        """The calls alone."""
        for row in self.rows():
            if isinstance(row.record, CallRecord):
                yield row.record

    @property
    def _name(self) -> str:
        return self._main.session_id or Path(self._main.file).name.partition(".")[0]

    def _head(self) -> SessionRecord:
        info = self._main.info
        slices = _merged(measure(self.strand, self._heard).slices)
        return SessionRecord(
            id=self._name,
            dialect=info.dialect,
            title=info.title or info.first_prompt,
            cwd=info.cwd,
            git_branch=info.git_branch,
            versions=info.versions,
            models=info.models,
            start=stamp(self.strand.began),
            end=stamp(self.strand.ended),
            tokens=sum_tokens(transcript.message_tokens for transcript in self._files),
            files=tuple(transcript.file for transcript in self._files),
            slices=tuple(SliceRecord(part=s.part, start=s.start, end=s.end) for s in slices),
            findings=sum(len(transcript.findings) for transcript in self._files),
        )

    def _strand(self, strand: Strand, parent: str | None, depth: int) -> Iterator[Row]:
        phases = phases_among((placed.span for placed in strand.calls), self._heard)
        around = _Around(strand, parent, phases)
        for turn in strand.turns:
            for item in turn.items:
                yield from self._item(item, around, depth)

    def _item(self, item: Item, around: "_Around", depth: int) -> Iterator[Row]:
        match item:
            case Said():
                record = self._message(item, around.strand)
                if record.text.strip() and self._choice.message(item.message):
                    yield Row(record, depth)
            case Batch():
                for placed in item.calls:
                    if self._choice.call(around.strand.file, placed.span.id):
                        yield Row(self._record(placed.span, around), depth)
                    for agent in placed.agents:
                        yield from self._agent(agent, placed.span.id, depth)
            case Strand():
                yield from self._agent(item, None, depth)

    def _agent(self, strand: Strand, parent: str | None, depth: int) -> Iterator[Row]:
        rows = self._strand(strand, parent, depth + 1)
        first = next(rows, None)
        if first is None:
            return
        record = AgentRecord(
            session=self._name,
            agent=strand.agent_id,
            role=strand.role,
            calls=len(strand.calls),
            linked=strand.linked,
            parent=parent,
            start=stamp(strand.began),
            end=stamp(strand.ended),
        )
        yield Row(record, depth + 1)
        yield first
        yield from rows

    def _message(self, said: Said, strand: Strand) -> MessageRecord:
        message = said.message
        text = words(message)
        return MessageRecord(
            session=self._name,
            agent=strand.agent_id,
            voice=message.voice,
            opens=opens(message),
            at=message.at,
            start=stamp(said.began),
            branch=said.branch,
            text=text,
            chars=len(text),
        )

    def _record(self, span: Span, around: "_Around") -> CallRecord:
        call, result = span.call, span.result
        found = around.phases(span)
        bodies = _bodies(span, self._main.info.cwd)
        place = call.place or (result.place if result else None)
        return CallRecord(
            session=call.session_id or self._name,
            agent=around.strand.agent_id,
            id=span.id,
            parent=call.parent_call or around.parent,
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
            start=stamp(span.requested),
            end=_end(span, found.took),
            duration_ms=span.duration_ms,
            phases=tuple(
                PhaseRecord(phase=p.phase, start=p.start, end=p.end) for p in found.intervals
            ),
            wait_certainty=found.certainty,
            exit_code=result.exit_code if result else None,
            is_error=result.is_error if result else None,
            target=call.target,
            message=span.message,
            input=bodies.input,
            input_chars=bodies.input_chars,
            result=bodies.result,
            result_chars=None if bodies.result is None else len(bodies.result),
            diffs=bodies.diffs,
            events=tuple(_event(event) for event in span.events),
            evidence=tuple(EvidenceRecord(rule=e.rule, text=e.text) for e in span.evidence),
            started_agent=span.agent,
            problem=bodies.problem,
            file=around.strand.file,
            line=place.line if place else None,
        )


class _Around(NamedTuple):
    """What a call of an agent is told with."""

    strand: Strand
    parent: str | None
    """The call that started the agent."""
    phases: Callable[[Span], Phases]


def _end(span: Span, took: int | None) -> int | None:
    """When a call ended, where that is known and not before it began."""
    start, end = stamp(span.requested), stamp(span.finished)
    if start is None or end is None:
        return end
    return None if took is None or end < start else end


def _merged(slices: Sequence[Slice]) -> list[Slice]:
    """Neighbours with the same use as one."""
    found: list[Slice] = []
    for one in slices:
        if found and found[-1].part == one.part and found[-1].end == one.start:
            found[-1] = Slice(found[-1].start, one.end, one.part)
        else:
            found.append(one)
    return found


class _Bodies(Struct, frozen=True, kw_only=True):
    """What is read again from the file."""

    input: object = None
    input_chars: int = 0
    result: str | None = None
    diffs: tuple[DiffRecord, ...] = ()
    problem: str | None = None


def _bodies(span: Span, cwd: str | None) -> _Bodies:
    """Input, result and diffs of a call; a file that changed meanwhile is told, not raised."""
    try:
        raw = span.call.raw_input
        return _Bodies(
            input=decode_anything(raw) if span.call.place else None,
            input_chars=len(raw.decode("utf-8", "replace")) if span.call.place else 0,
            result=span.result.text if span.result else None,
            diffs=tuple(_diff(change) for change in changes_of(span, cwd)),
        )
    except SourceError as error:
        return _Bodies(problem=str(error))


def _diff(change: FileChange) -> DiffRecord:
    """A change as a diff; where nobody knows its place in the file, as what was asked for."""
    try:
        text = unified(
            change.hunks,
            change.moved_to or change.path,
            old_path=change.moved_from or (change.path if change.moved_to else None),
            change="update" if change.moved_to else _CHANGES[change.kind],
        )
    except PatchError:
        text = ""
    return DiffRecord(
        path=change.path,
        kind=change.kind,
        added=change.added,
        removed=change.removed,
        text=text if change.hunks or change.moved_to else "\n".join(shown(change.effect)),
    )


def _event(event: Event) -> EventRecord:
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
            return EventRecord(
                type="progress", at=event.first_at, name=event.kind, count=event.count
            )
        case Permission():
            text = " · ".join(part for part in (event.reason, event.origin, event.scope) if part)
            return EventRecord(
                type="permission", name=event.decision, who=event.source, text=text or None
            )
        case Notification():
            return EventRecord(
                type="notification",
                at=event.at,
                name=event.status,
                who=event.task_id,
                text=event.summary,
            )
        case Note():
            return EventRecord(type="note", at=event.at, name=event.kind, text=event.text)
