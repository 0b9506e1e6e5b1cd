"""Extract the facts for the tables from one transcript, and the keys that link it to other files.

`read_facts` runs once per source object, on any machine. The facts do not depend on other files, so they can be
stored, and merged again when other files change. Start at `read_facts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import PurePath
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolspan.analysis.agents import AGENTS, FileAgents, StartedAgent
from toolspan.analysis.context_size import CONTEXT, FileContext
from toolspan.analysis.file_history.archive import FileArchive, RecordedChange
from toolspan.analysis.file_time import AgentSlices, CallPlace, measure_file
from toolspan.analysis.flows import FLOWS, FileFlows
from toolspan.analysis.hooks import HOOKS, FileHooks, RecordedHook
from toolspan.analysis.prompts import PROMPTS, FilePrompts, RecordedPrompt
from toolspan.analysis.recovery import ChainEnding, chain_endings
from toolspan.analysis.risks import RISKS, FileRisks, Risk, RiskyCall
from toolspan.analysis.usage import FileUsage, transcript_usage
from toolspan.errors import SourceError
from toolspan.formats.registry import parse_file_name
from toolspan.formats.source import load_source
from toolspan.reading.facts import FactKind, FileReading, FileSummary, unreadable_summary
from toolspan.reading.lineage import call_key
from toolspan.reading.rows import CallRow
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


class StoredFacts(Struct, frozen=True, kw_only=True):
    """Facts that the tables contain as they were read, each in a column of `files`."""

    flows: FileFlows
    context: FileContext
    hooks: FileHooks
    agents: FileAgents
    risks: FileRisks
    prompts: FilePrompts | None = None
    """None without the contents."""


STORED_KINDS: Mapping[str, FactKind[Any]] = {
    kind.name: kind for kind in (FLOWS, CONTEXT, HOOKS, AGENTS, RISKS, PROMPTS)
}
"""The kinds of facts in `StoredFacts`, by field."""


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
    stored: StoredFacts
    contents: dict[str, tuple[str | None, str | None]] = {}
    """Input and result by call id, if they are included."""


def read_facts(path: str, options: ReadOptions) -> FileFacts:
    """Return the facts of one file. If it is unreadable, `head.problem` is set."""
    try:
        transcript = read_known(load_source(path, _MAX_LOADED_BYTES))
        spans = transcript.spans
        reading = FileReading(path, transcript=transcript)
        times = measure_file(reading)
        kinds = {name: kind for name, kind in STORED_KINDS.items() if options.content or kind is not PROMPTS}
        stored = StoredFacts(**{name: kind.measure(reading) for name, kind in kinds.items()})
        archive = FileArchive([transcript], contents=False)
    except SourceError as error:
        return unreadable_facts(path, str(error))
    calls = reading.rows
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
        endings=chain_endings(spans, transcript.message_tokens),
        agents=times.agents,
        places=times.places,
        changes=[RecordedChange.of(change) for change in archive.changes_and_failures],
        stored=stored,
        contents=dict(_read_contents(spans)) if options.content else {},
    )
    return facts if options.redactor is None else _redact_facts(facts, transcript, options.redactor())


def unreadable_facts(path: str, problem: str) -> FileFacts:
    """Return the facts of a file that cannot be read."""
    summary = unreadable_summary(path, problem)
    head = FileHead(file=path, info=summary.info, counts=summary.counts, problem=problem)
    return FileFacts(
        head=head,
        summary=summary,
        requests={},
        endings=[],
        agents=[],
        places={},
        changes=[],
        stored=StoredFacts(**{name: kind.unreadable(path, problem) for name, kind in STORED_KINDS.items()}),
    )


def _read_contents(spans: Iterable[Span]) -> Iterator[tuple[str, tuple[str | None, str | None]]]:
    for span in spans:
        try:
            data = span.call.raw_input
            text = span.result.text if span.result else None
        except SourceError:
            continue
        yield span.id, (data.decode("utf-8", "replace") if data else None, text)


_REDACTED_FIELDS = frozenset(
    {"target", "targets", "message", "error_program", "error_text", "title", "first_prompt", "cwd", "git_branch"}
    | {"explanation", "command", "path"}
)
"""The fields that hold text from users and programs. Ids, transcript paths and numbers are kept."""
_REDACTED_FIELDS_OF: Mapping[type, frozenset[str]] = {
    FileAgents: frozenset({"prompt"}),
    StartedAgent: frozenset({"name", "prompt"}),
    RecordedHook: frozenset({"text"}),
    RecordedPrompt: frozenset({"text"}),
    RiskyCall: frozenset({"prompt"}),
}
"""Further ones, whose names are those of ids elsewhere."""


def _redact_facts(facts: FileFacts, transcript: Transcript, redactor: TextRedactor) -> FileFacts:
    """Redact all text from users and programs."""
    redactor.learn_names(line.data for line in transcript.lines())
    contents = {
        name: tuple(text and redactor.redact_text(text) for text in texts) for name, texts in facts.contents.items()
    }
    redacted: FileFacts = _redact_fields(replace(facts, contents={}), redactor.redact_text)
    return replace(redacted, contents=contents)


def _redact_fields(value: Any, redact: Callable[[str], str]) -> Any:
    """Return a value in which the text fields of all structs are redacted."""
    if isinstance(value, Struct):
        changes: dict[str, Any] = {}
        for name in value.__struct_fields__:
            before = getattr(value, name)
            if name == "evidence":
                after: Any = tuple((rule, text and redact(text)) for rule, text in before)
            elif name not in _REDACTED_FIELDS and name not in _REDACTED_FIELDS_OF.get(type(value), ()):
                after = _redact_fields(before, redact)
            elif isinstance(before, tuple):
                after = tuple(text and redact(text) for text in before)
            else:
                after = before and redact(before)
            if after is not before:
                changes[name] = after
        return replace(value, **changes) if changes else value
    if isinstance(value, dict):
        return {key: _redact_fields(item, redact) for key, item in value.items()}
    if isinstance(value, list):
        return [_redact_fields(item, redact) for item in value]
    if isinstance(value, Risk):
        return value._replace(part=redact(value.part))
    if type(value) is tuple:
        return tuple(_redact_fields(item, redact) for item in value)
    return value


# Conversion to the values that commands use


def make_summary(head: FileHead, calls: list[CallRow], requests: dict[str, RequestUsage]) -> FileSummary:
    """Rebuild the facts `CALLS`, without findings."""
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
    """Rebuild the facts `USAGE`."""
    fields = msgspec.structs.asdict(head.usage)
    return FileUsage(file=head.file, info=head.info, requests=requests, problem=head.problem, **fields)


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
