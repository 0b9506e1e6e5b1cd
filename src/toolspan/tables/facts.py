"""Extract the facts for the tables from one transcript, and the keys that link it to other files.

`read_facts` runs once per source object, on any machine. The facts do not depend on other files, so they can be
stored, and merged again when other files change. Start at `read_facts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import PurePath
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolspan.analysis.errors import FileRecovery
from toolspan.analysis.file_history.archive import FileArchive, RecordedChange
from toolspan.analysis.recovery import ChainEnding, chain_endings
from toolspan.analysis.timing import AgentTime, CallTime, Certainty, FileTime, TimeSlice, measure_transcript
from toolspan.analysis.usage import FileUsage, transcript_usage
from toolspan.errors import SourceError
from toolspan.formats.registry import parse_file_name
from toolspan.formats.source import load_source
from toolspan.reading.lineage import call_key
from toolspan.reading.parallel import FileSummary, unreadable_summary
from toolspan.reading.rows import CallRow, make_call_row
from toolspan.reading.transcript import Transcript, read_known
from toolspan.types.session import RequestUsage, SessionInfo
from toolspan.types.span import LineCounts, Span

_MAX_LOADED_BYTES = 1 << 25
"""The size above which a transcript is not held in memory while its facts are extracted."""


class TextRedactor(Protocol):
    """The redactor interface that the tables need. `toolspan.export.SecretRedactor` implements it."""

    def learn_names(self, lines: Iterable[bytes]) -> None:
        """Collect user names from the lines of a transcript."""

    def redact_text(self, text: str) -> str:
        """Return a text without secrets and personal data."""


class ReadOptions(Struct, frozen=True, kw_only=True):
    """Options that affect a file's facts."""

    content: bool = False
    """Keep the inputs and results of calls."""
    redactor: Callable[[], TextRedactor] | None = None
    """A function that creates the redactor for one file. Other processes must be able to import it by name."""

    @property
    def key(self) -> str:
        """A string that changes whenever the facts may change."""
        name = f"{self.redactor.__module__}.{self.redactor.__qualname__}" if self.redactor else ""
        return f"{int(self.content)} {name}"


class CallPlace(Struct, frozen=True, array_like=True, gc=False):
    """The time spent in one call, and the agent in its file that made it."""

    agent: int
    """The index of the agent in `FileFacts.agents`."""
    position: int
    """The index of the call among the agent's calls."""
    took_ms: int | None
    wait_ms: int | None
    certainty: Certainty
    hooks_ms: int
    run_ms: int | None
    pauses: tuple[tuple[int, int], ...] = ()


class AgentSlices(Struct, frozen=True, array_like=True):
    """The time of one agent in a file, without its calls."""

    agent: str | None
    role: str | None
    starter: str | None
    slices: tuple[TimeSlice, ...]


class UsageFacts(Struct, frozen=True, kw_only=True):
    """The fields of `FileUsage` other than its requests and session."""

    agent: str | None = None
    starter_call: str | None = None
    started_types: dict[str, str] = {}
    inline_types: dict[str, str] = {}


class FileHead(Struct, frozen=True, kw_only=True):
    """The facts about a file as a whole, which every query needs."""

    file: str
    info: SessionInfo
    counts: LineCounts
    started: dict[str, str] = {}
    last_batch: str | None = None
    usage: UsageFacts = UsageFacts()
    problem: str | None = None


class FileFacts(Struct, frozen=True, kw_only=True):
    """Everything that the tables contain about one file."""

    head: FileHead
    summary: FileSummary
    """The calls and findings; other fields are those of the head."""
    requests: dict[str, RequestUsage]
    endings: list[ChainEnding]
    agents: list[AgentSlices]
    places: dict[str, CallPlace]
    """Times and agents by call id. Orphan results have none."""
    changes: list[RecordedChange]
    contents: dict[str, tuple[str | None, str | None]] = {}
    """Input and result by call id, if they are included."""


def read_facts(path: str, options: ReadOptions) -> FileFacts:
    """Return the facts of one file. If it is unreadable, `head.problem` is set."""
    try:
        transcript = read_known(load_source(path, _MAX_LOADED_BYTES))
        spans = transcript.spans
        times = measure_transcript(transcript)
        archive = FileArchive([transcript], contents=False)
    except SourceError as error:
        return unreadable_facts(path, str(error))
    rows = {item.call.id: item.call for agent in times.agents for item in agent.calls}
    calls = [rows.get(span.id) or make_call_row(span, transcript.file) for span in spans]
    usage = transcript_usage(transcript)
    head = FileHead(
        file=transcript.file,
        info=transcript.info,
        counts=transcript.counts,
        started=transcript.agent_starters,
        last_batch=next((row.batch for row in reversed(calls) if row.branch == "active"), None),
        usage=UsageFacts(
            agent=usage.agent,
            starter_call=usage.starter_call,
            started_types=usage.started_types,
            inline_types=usage.inline_types,
        ),
    )
    facts = FileFacts(
        head=head,
        summary=replace(make_summary(head, calls, {}), findings=transcript.findings),
        requests=usage.requests,
        endings=chain_endings(spans),
        agents=[AgentSlices(agent.agent, agent.role, agent.starter, agent.slices) for agent in times.agents],
        places=dict(_place_calls(times)),
        changes=[RecordedChange.of(change) for change in archive.changes_and_failures],
        contents=dict(_read_contents(spans)) if options.content else {},
    )
    return facts if options.redactor is None else _redact_facts(facts, transcript, options.redactor())


def unreadable_facts(path: str, problem: str) -> FileFacts:
    """Return the facts of a file that cannot be read."""
    summary = unreadable_summary(path, SourceError(problem))
    head = FileHead(file=path, info=summary.info, counts=summary.counts, problem=problem)
    return FileFacts(head=head, summary=summary, requests={}, endings=[], agents=[], places={}, changes=[])


def _place_calls(times: FileTime) -> Iterator[tuple[str, CallPlace]]:
    for number, agent in enumerate(times.agents):
        for position, item in enumerate(agent.calls):
            yield (
                item.call.id,
                CallPlace(
                    number,
                    position,
                    item.took_ms,
                    item.wait_ms,
                    item.certainty,
                    item.hooks_ms,
                    item.run_ms,
                    item.pauses,
                ),
            )


def _read_contents(spans: Iterable[Span]) -> Iterator[tuple[str, tuple[str | None, str | None]]]:
    for span in spans:
        try:
            data = span.call.raw_input
            text = span.result.text if span.result else None
        except SourceError:
            continue
        yield span.id, (data.decode("utf-8", "replace") if data else None, text)


_REDACTED_FIELDS = ("target", "message", "error_text")


def _redact_facts(facts: FileFacts, transcript: Transcript, redactor: TextRedactor) -> FileFacts:
    """Redact all text from users and programs. Ids, transcript paths and numbers are unchanged."""
    redactor.learn_names(line.data for line in transcript.lines())

    def redact(text: str | None) -> str | None:
        return redactor.redact_text(text) if text else text

    def redact_row(row: CallRow) -> CallRow:
        texts = {name: redact(getattr(row, name)) for name in _REDACTED_FIELDS}
        hooks = tuple(replace(hook, command=redact(hook.command)) for hook in row.hooks)
        evidence = tuple((rule, redact(text)) for rule, text in row.evidence)
        return replace(row, **texts, hooks=hooks, evidence=evidence)

    info = facts.head.info
    texts = {name: redact(getattr(info, name)) for name in ("title", "first_prompt", "cwd", "git_branch")}
    head = replace(facts.head, info=replace(info, **texts))
    calls = [redact_row(row) for row in facts.summary.calls]
    findings = [replace(finding, explanation=redact(finding.explanation)) for finding in facts.summary.findings]
    return replace(
        facts,
        head=head,
        summary=replace(make_summary(head, calls, {}), findings=findings),
        changes=[replace(change, path=redact(change.path)) for change in facts.changes],
        contents={name: (redact(given), redact(result)) for name, (given, result) in facts.contents.items()},
    )


# Conversion to the values that commands use


def make_summary(head: FileHead, calls: list[CallRow], requests: dict[str, RequestUsage]) -> FileSummary:
    """Rebuild the result of `scan_file`, without findings."""
    return FileSummary(
        file=head.file,
        info=head.info,
        counts=head.counts,
        calls=calls,
        message_tokens={name: usage.tokens for name, usage in requests.items()},
        findings=[],
        started=head.started,
        started_by=head.usage.starter_call,
        last_batch=head.last_batch,
        problem=head.problem,
    )


def make_usage(head: FileHead, requests: dict[str, RequestUsage]) -> FileUsage:
    """Rebuild the result of `file_usage`."""
    fields = msgspec.structs.asdict(head.usage)
    return FileUsage(file=head.file, info=head.info, requests=requests, problem=head.problem, **fields)


def make_time(
    head: FileHead, agents: Sequence[AgentSlices], calls: Iterable[CallRow], places: dict[str, CallPlace]
) -> FileTime:
    """Rebuild the result of `file_time`."""
    items: list[list[tuple[int, CallTime]]] = [[] for _ in agents]
    for row in calls:
        if (place := places.get(row.id)) is not None:
            time = CallTime(
                call=row,
                took_ms=place.took_ms,
                wait_ms=place.wait_ms,
                certainty=place.certainty,
                hooks_ms=place.hooks_ms,
                run_ms=place.run_ms,
                pauses=place.pauses,
            )
            items[place.agent].append((place.position, time))
    return FileTime(
        file=head.file,
        info=head.info,
        agents=[
            AgentTime(
                agent=agent.agent,
                role=agent.role,
                starter=agent.starter,
                slices=agent.slices,
                calls=tuple(time for _, time in sorted(own, key=lambda item: item[0])),
            )
            for agent, own in zip(agents, items, strict=True)
        ],
        problem=head.problem,
    )


def make_recovery(head: FileHead, calls: list[CallRow], endings: list[ChainEnding], *, all_calls: bool) -> FileRecovery:
    """Rebuild the result of `file_recovery` or, with `all_calls`, `file_recovery_all`."""
    summary = make_summary(head, calls, {})
    if not all_calls:
        failed = [row for row in calls if row.state != "succeeded" or row.error_group is not None]
        successes = [f"{row.id} {row.batch}" for row in calls if row.state == "succeeded"]
        summary = replace(summary, calls=failed, successes=successes)
    return FileRecovery(facts=summary, endings=endings)


# Links between files


class LinkKey(NamedTuple):
    """A hash of an id that a file may share with others."""

    hash: int
    is_agent: bool
    """True for the file's own subagent. It links the file only to files whose session is this subagent, because
    subagents in copies of a session have equal ids.
    """


def link_keys(facts: FileFacts) -> list[LinkKey]:
    """Return the keys of ids that the file may share with others: sessions, first records, calls and requests.

    Two files without a common key, directly or through other files, do not influence each other's rows.
    """
    keys = {LinkKey(_hash(text), is_agent=False) for text in _link_texts(facts)}
    if facts.head.info.agent_id:
        keys.add(LinkKey(_hash(f"session {facts.head.info.agent_id}"), is_agent=True))
    return sorted(keys)


def _link_texts(facts: FileFacts) -> Iterator[str]:
    info, name = facts.head.info, parse_file_name(facts.head.file)
    sessions = {*info.session_ids, info.session_id, info.forked_from, name.session_id}
    if info.session_id is None:
        sessions.add(PurePath(facts.head.file).name.partition(".")[0])
    yield from (f"session {session}" for session in sessions if session)
    if info.root:
        yield f"root {info.root}"
    yield from (f"call {key}" for row in facts.summary.calls if (key := call_key(row.id, row.batch)))
    yield from (f"request {name}" for name in facts.requests if not name.startswith("#"))


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
