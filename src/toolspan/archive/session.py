"""One session with all its files, or one call of it: `Archive.session`, `Archive.call` and `toolspan show`.

Start at `resolve_names`, which finds the session or call that a name stands for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from toolspan.analysis.usage import MAIN_AGENT, USAGE_JOB, UsageRequest, join_requests, sum_usage, transcript_usage
from toolspan.archive.call_detail import CallDetail, build_call_detail, call_json
from toolspan.archive.calls import TimedCall
from toolspan.archive.engine import Engine, FileEngine, FileMapper, scan_with_cache
from toolspan.archive.filters import Filter
from toolspan.archive.reporter import SILENT, Reporter
from toolspan.archive.selection import read_calls
from toolspan.archive.sources import (
    files_of_session,
    find_session_files,
    match_session,
    mentions_session,
    newest_session,
    path_exists,
    read_transcripts,
    require_known_format,
    transcripts_containing,
)
from toolspan.archive.usage import COST_DIGITS
from toolspan.archive.why import PermissionExplanation, explain_permission
from toolspan.errors import Ambiguous, NotFound
from toolspan.formats.registry import format_of_path, is_collection, parse_file_name
from toolspan.formats.source import COMPRESSED_SUFFIXES, to_path
from toolspan.prices import load_prices
from toolspan.reading.discovery import TranscriptFile, default_roots, find_transcripts, recency
from toolspan.reading.facts import summarize_transcript
from toolspan.reading.history import CallTable, match_prefix, short_id
from toolspan.reading.lineage import find_extreme, group_sessions, sessions_named
from toolspan.reading.rows import CallRow
from toolspan.reading.timeline import AgentTimeline, MessageFilter, build_timeline, turn_rows
from toolspan.reading.transcript import Transcript, read, read_content
from toolspan.types.session import SessionInfo, Tokens
from toolspan.types.span import Span, parse_timestamp

if TYPE_CHECKING:
    from toolspan.archive.files import ChangedFiles

_EARLIEST_TIME = datetime.min.replace(tzinfo=UTC)


def resolve_topic(
    names: Sequence[str], *, last: bool = False, session: str | None = None, reporter: Reporter = SILENT
) -> list[TranscriptFile] | CallDetail:
    """Return the session or call like `resolve_names`, or the only session that is about these words.

    Raises:
        NotFound: there is none.
        Ambiguous: there are several.
    """
    from toolspan.archive.topics import find_sessions_about

    words = [name for name in names if not path_exists(to_path(name))]
    try:
        if len(words) < 2:
            return resolve_names(names, last=last, session=session, reporter=reporter)
        problem = NotFound(f"{' and '.join(words)}: name one session or one call")
    except Ambiguous:
        raise
    except NotFound as error:
        problem = error
    if not words or any("/" in word or word.endswith((".jsonl", *COMPRESSED_SUFFIXES)) for word in words):
        raise problem
    engine = FileEngine([name for name in names if name not in words], reporter=Reporter(progress=reporter.progress))
    about = " ".join(words)
    found = [session for session, _ in find_sessions_about(engine, about)]
    if not found:
        raise NotFound(f"{problem}, and no session is about it") from problem
    if len(found) > 1:
        raise Ambiguous(f"{len(found)} sessions are about {about!r}")
    paths = {file.file for file in found[0].files}
    return [file for file in engine.locate()[0] if str(file.location) in paths]


def resolve_names(
    names: Sequence[str], *, last: bool = False, session: str | None = None, reporter: Reporter = SILENT
) -> list[TranscriptFile] | CallDetail:
    """Return the files of the named session, or the named call."""
    if not all(names):
        raise NotFound("a name is empty; name a file, a folder, a session or a call")
    paths = [path for path in map(to_path, names) if path_exists(path)]
    others = [name for name in names if not path_exists(to_path(name))]
    root = paths[0] if paths and is_collection(paths[0]) else None
    if len(others) > 1:
        raise NotFound(f"{' and '.join(others)}: name one session or one call")
    if others:
        return _find_by_id(others[0], paths, root, session, reporter)
    if session is not None:
        return find_session_files(session, root)
    if last or not paths:
        return newest_session([str(path) for path in paths], reporter)
    if len(paths) > 1:
        raise Ambiguous(f"{len(paths)} files named: name one session or one call")
    if root is None:
        return _file_with_subagents(paths[0])
    stems = {file.name.stem for file in find_transcripts(root) if file.name.role == "session"}
    if len(stems) > 1:
        raise Ambiguous(f"{root}: {len(stems)} sessions in this folder; name one by its id, or add --last")
    return newest_session([str(root)], reporter)


def _file_with_subagents(path: Path) -> list[TranscriptFile]:
    require_known_format(path)
    files = find_transcripts(path)
    if files[0].name.role == "agent":
        return list(files)
    agents = {
        str(file.path): file
        for place in format_of_path(path).agent_places(path)
        for file in find_transcripts(place)
        if file.name.role == "agent"
    }
    session = files[0].name.stem
    named = [file for file in agents.values() if file.name.session_id in (None, session)]
    return [*files, *(file for file in named if file.name.session_id or mentions_session(file, session))]


def _find_by_id(
    prefix: str, paths: Sequence[Path], root: Path | None, session: str | None, reporter: Reporter
) -> list[TranscriptFile] | CallDetail:
    if "/" in prefix or prefix.endswith((".jsonl", *COMPRESSED_SUFFIXES)):
        raise NotFound(f"{prefix}: no such file or folder")
    if session is not None:
        files = find_session_files(session, root)
        return _find_call_detail(prefix, list(transcripts_containing(prefix, files, call=True, reporter=reporter)))
    if any(not is_collection(path) for path in paths):
        groups = (find_transcripts(path) if is_collection(path) else _file_with_subagents(path) for path in paths)
        files = [*chain.from_iterable(groups)]
        return _find_call_detail(prefix, list(transcripts_containing(prefix, files, call=True, reporter=reporter)))
    files = [file for path in paths or default_roots() for file in find_transcripts(path)]
    try:
        stem = match_session(prefix, [file.name.stem for file in files if file.name.role == "session"])
    except Ambiguous:
        raise
    except NotFound:
        agents = [file for file in files if _is_agent(file, prefix)]
        stems = {file.name.stem for file in agents}
        if len(stems) == 1:  # a resumed session may have a copy
            return agents[-1:]
        transcripts = list(transcripts_containing(prefix, files, call=True, reporter=reporter))
        recorded = files_of_session(prefix, CallTable.from_transcripts(transcripts), files)
        try:
            return recorded or _find_call_detail(prefix, transcripts)
        except NotFound:
            if len(stems) > 1:
                raise Ambiguous(f"{len(stems)} subagents begin with {prefix!r}") from None
            raise
    return find_session_files(stem, root)


def _is_agent(file: TranscriptFile, prefix: str) -> bool:
    """Return whether this is the file of a subagent whose id, with or without `agent-`, begins with a prefix."""
    stem = file.name.stem
    return file.name.role == "agent" and (stem.startswith(prefix) or stem.removeprefix("agent-").startswith(prefix))


def _find_call_detail(prefix: str, transcripts: Sequence[Transcript]) -> CallDetail:
    """Return the call whose id begins with `prefix`. If several have the same id, return the newest."""
    call_table = CallTable.from_transcripts(transcripts)
    rows = [row for row in call_table.calls if row.id.startswith(prefix) or short_id(row.id).startswith(prefix)]
    # The client may have removed the file of a subagent, whose call is still there.
    rows = rows or [row for row in call_table.calls if (row.started_agent or "").startswith(prefix)]
    if not rows:
        raise NotFound(f"no session or call begins with {prefix!r}")
    ids = sorted({row.id for row in rows})
    name = ids[0] if len(ids) == 1 else match_prefix(prefix, ids, "call")
    *others, newest = sorted(
        (row for row in rows if row.id == name),
        key=lambda row: parse_timestamp(row.finished or row.requested) or _EARLIEST_TIME,
    )
    transcript = next(candidate for candidate in transcripts if candidate.file == newest.file)
    _mark_running_calls([transcript])
    span = next(span for span in transcript.spans if span.id == name)
    elsewhere = tuple(row.session or to_path(row.file).stem for row in reversed(others))
    return build_call_detail(call_table.link_span(span), transcript, elsewhere)


class SessionDetail(Struct, frozen=True, kw_only=True):
    """A session with all its files."""

    main: Transcript
    files: list[Transcript]
    timeline: AgentTimeline

    @classmethod
    def from_files(cls, files: Sequence[TranscriptFile], reporter: Reporter = SILENT) -> SessionDetail:
        """Read the session that consists of these files."""
        transcripts = read_session(files, reporter)
        timeline = build_timeline([read_content(transcript) for transcript in transcripts])
        return cls(main=transcripts[0], files=transcripts, timeline=timeline)

    @property
    def cwd(self) -> str | None:
        """The working folder."""
        return self.main.info.cwd

    @property
    def spans(self) -> list[Span]:
        """All calls, including subagents' calls."""
        return [placed.span for timeline in self.timeline.iter_timelines() for placed in timeline.calls]

    @property
    def agent_count(self) -> int:
        """The number of subagents."""
        return len(list(self.timeline.iter_timelines())) - 1

    @property
    def max_concurrency(self) -> int:
        """The largest number of calls in one batch that ran at the same time."""
        batches = (batch for timeline in self.timeline.iter_timelines() for batch in timeline.batches)
        groups = (group for batch in batches for group in batch.groups)
        return max((group.concurrency for group in groups), default=0)


def session_paths(files: Sequence[TranscriptFile]) -> list[Path]:
    """Return a session's newest file and those of its subagents."""
    mains = [file for file in files if file.name.role != "agent"] or files
    main = max(mains, key=recency)
    return [main.path, *(file.path for file in files if file.name.role == "agent" and file is not main)]


def read_session(files: Sequence[TranscriptFile], reporter: Reporter = SILENT) -> list[Transcript]:
    """Read a session's newest file and those of its subagents."""
    main, *others = session_paths(files)
    transcripts = [read(main), *read_transcripts(others, reporter)]
    _mark_running_calls(transcripts)
    return transcripts


def _mark_running_calls(transcripts: Sequence[Transcript]) -> None:
    if any(span.state == "never_answered" for transcript in transcripts for span in transcript.spans):
        from toolspan.analysis.live_sessions import mark_running_calls  # perf: rarely needed

        mark_running_calls(transcripts)


def session_facts(
    infos: Sequence[SessionInfo], files: Sequence[str], *, calls: Mapping[str, int], agents: int, concurrency: int,
    tokens: Tokens,
) -> dict[str, object]:  # fmt: skip
    """Return the facts about a whole session, as `show --json` prints them. Its own file is the first."""
    return {
        **msgspec.to_builtins(infos[0]), "file": files[0], "files": files, "calls": calls, "agents": agents,
        "concurrency": concurrency, "tokens": tokens,
        "started_at": find_extreme(min, (info.started_at for info in infos)),
        "ended_at": find_extreme(max, (info.ended_at for info in infos)),
    }  # fmt: skip


class RecordedCall:
    """One call of an archive, with its context."""

    def __init__(self, detail: CallDetail) -> None:
        self.detail = detail
        """The call, its prompt, batch, neighbours, diff and recovery."""

    def __repr__(self) -> str:
        span = self.detail.span
        return f"<{span.tool} {span.id}: {span.state}>"

    @property
    def span(self) -> Span:
        """The call's whole life."""
        return self.detail.span

    @property
    def row(self) -> TimedCall:
        """The call as a row of `Archive.calls`."""
        return self.detail.row

    def why(self) -> PermissionExplanation:
        """Explain who allowed or denied the call, and why."""
        return explain_permission(self.detail.span)

    def to_dict(self) -> dict[str, object]:
        """Return the object that `show CALL --json` prints."""
        return call_json(self.detail)


class SessionUsage(Struct, frozen=True, kw_only=True):
    """The cost of a session, and how much of the context its main conversation filled."""

    cost_usd: float | None
    """At list prices, with subagents; null if no model has a price."""
    unpriced_requests: int
    context_max: int
    """Input tokens of the largest request of the main conversation, cached ones included."""
    context_last: int
    """Input tokens of its last request."""


class RecordedSession:
    """One session of an archive, with its subagents. Its files are read on first use."""

    def __init__(self, files: Sequence[TranscriptFile], reporter: Reporter = SILENT, *, is_joined: bool = True) -> None:
        """Create a session of these files. If it is `joined`, calls that other sessions own are not counted."""
        self._files = list(files)
        self._reporter = reporter
        self._is_joined = is_joined

    def __repr__(self) -> str:
        return f"<session {self.id}>"

    @cached_property
    def detail(self) -> SessionDetail:
        """The transcripts and the timeline."""
        return SessionDetail.from_files(self._files, self._reporter)

    @property
    def id(self) -> str:
        """The session's id."""
        info = self.detail.main.info
        return info.session_id or parse_file_name(self.detail.main.file).stem

    @property
    def info(self) -> SessionInfo:
        """Client, folder, times and title."""
        return self.detail.main.info

    @property
    def spans(self) -> list[Span]:
        """All calls, including subagents' calls and those that a fork or compaction copied."""
        return self.detail.spans

    @property
    def calls(self) -> list[CallRow]:
        """Each call of the session once, without the calls that a fork copied from another session."""
        return self._totals[0]

    @property
    def tokens(self) -> Tokens:
        """The tokens of the session, without those of messages that a fork copied from another session."""
        return self._totals[1]

    @cached_property
    def _totals(self) -> tuple[list[CallRow], Tokens]:
        detail = self.detail
        summaries = [summarize_transcript(transcript, transcript.spans) for transcript in detail.files]
        if not self._is_joined:
            table = CallTable(summaries)
            return table.calls, table.tokens
        table = CallTable([*summaries, *(file for file in scan_with_cache(self._neighbours) if not file.problem)])
        sessions = {file.file: session.id for session in table.sessions for file in session.files}
        name = sessions.get(detail.main.file, "")
        rows = table.calls_by_session.get(name, [])
        if detail.main.info.agent_id is not None:  # one subagent, or those of a session whose main file is lost
            own = {transcript.file for transcript in detail.files}
            return [row for row in rows if row.file in own], sum((item.tokens for item in self._requests), Tokens())
        return rows, table.tokens_by_session.get(name, Tokens())

    @cached_property
    def _neighbours(self) -> list[Path]:
        """The other transcripts in the folder, which may be the origin of copied calls."""
        if not self._is_joined:
            return []
        own = {transcript.file for transcript in self.detail.files}
        files = find_transcripts(to_path(self.detail.main.file).parent)
        return [file.path for file in files if str(file.path) not in own]

    @cached_property
    def _requests(self) -> list[UsageRequest]:
        """The model requests of the session or subagent, without those that a fork copied from another session."""
        own = [transcript_usage(transcript) for transcript in self.detail.files]
        others = [usage for usage in FileMapper().map(self._neighbours, USAGE_JOB) if not usage.problem]
        sessions = group_sessions([*own, *others])
        names = [session.id for session in sessions if any(file.file == own[0].file for file in session.files)]
        agents = {usage.info.agent_id for usage in own}  # without None if the main file is lost, or one agent is shown
        return [
            request
            for request in join_requests([*own, *others])
            if (request.session in names or not others) and (None in agents or request.agent_id in agents)
        ]

    @cached_property
    def usage(self) -> SessionUsage:
        """The cost and the context."""
        requests = self._requests
        is_agent = self.info.agent_id is not None
        total = sum_usage(self.id, requests, load_prices())
        contexts = [
            request.tokens.input_tokens
            + request.tokens.cache_read_input_tokens
            + request.tokens.cache_creation_input_tokens
            for request in requests
            if is_agent or request.agent == MAIN_AGENT
        ]
        return SessionUsage(
            cost_usd=None if total.cost_usd is None else round(total.cost_usd, COST_DIGITS),
            unpriced_requests=total.unpriced_requests,
            context_max=max(contexts, default=0),
            context_last=next((context for context in reversed(contexts) if context), 0),
        )

    def timeline(self) -> AgentTimeline:
        """Return the turns of the main conversation, with messages, batches of calls, and the subagents below them."""
        return self.detail.timeline

    def files(self, **words: Any) -> ChangedFiles:
        """Return the files that the session changed. See `Archive.files`."""
        from toolspan.archive.files import list_changed_files

        engine = FileEngine([str(file.path) for file in self._files], last=False, reporter=self._reporter)
        return list_changed_files(engine, Filter.parse(**words))

    def call(self, prefix: str) -> RecordedCall:
        """Return the call whose id begins with `prefix`.

        Raises:
            NotFound: the session has no such call.
        """
        return RecordedCall(_find_call_detail(prefix, self.detail.files))

    def to_dict(
        self, include_message: MessageFilter = lambda message: message.voice != "thinking", line: int | None = None
    ) -> dict[str, object]:
        """Return the object that `show --json` prints, from the turn that contains `line` of its own file on."""
        detail = self.detail
        session = session_facts(
            [transcript.info for transcript in detail.files],
            [transcript.file for transcript in detail.files],
            calls=Counter(row.state for row in self.calls),
            agents=detail.agent_count,
            concurrency=detail.max_concurrency,
            tokens=self.tokens,
        )
        session |= msgspec.to_builtins(self.usage)
        turns = turn_rows(detail.timeline, include_message)
        if line is None:
            return {"session": session, "turns": turns}
        lines = [max(turn.lines_in(detail.main.file), default=0) for turn in detail.timeline.turns]
        first = next((n for n, last in enumerate(lines) if last >= line), len(lines))
        return {"session": session, "line": line, "turns": turns[first:]}


class SessionCopy(Struct, frozen=True, kw_only=True):
    """Another session that counts calls of a session, because a client copied them."""

    session: str
    title: str | None
    first_prompt: str | None
    calls: int
    is_original: bool
    """True if this is the session from which the calls were copied."""


def find_copies(engine: Engine, session_id: str) -> list[SessionCopy]:
    """Return the sessions in which lists count calls that a session contains, too.

    Raises:
        NotFound: there is no such session.
    """
    table = read_calls(engine).call_table
    session = next(iter(sessions_named(table.sessions, session_id)), None)
    if session is None:
        raise NotFound(f"no session {session_id!r}")
    groups = {table.lineages.group_of(file.file) for file in session.files}
    ids = {row.id for file in session.files for row in file.calls if row.state != "orphan_result"}
    owners = Counter(
        row.session
        for row in table.calls
        if row.id in ids and row.session != session.id and table.lineages.group_of(row.file) in groups
    )
    others = {other.id: other.file for other in table.sessions}
    rank = table.lineages.rank
    return [
        SessionCopy(
            session=owner,
            title=others[owner].info.title,
            first_prompt=others[owner].info.first_prompt,
            calls=count,
            is_original=rank(others[owner].file) < rank(session.file.file),
        )
        for owner, count in owners.most_common()
        if owner in others
    ]


def find_session(engine: FileEngine, name: str) -> RecordedSession:
    """Return the session that `name` stands for: `last`, a file, the beginning of an id, or words that it is about.

    Raises:
        NotFound: there is no such session.
    """
    if name == "last":
        return RecordedSession(resolve_session(engine.names, last=True, reporter=engine.reporter), engine.reporter)
    is_path = path_exists(to_path(name))
    files = resolve_session((name,) if is_path else (name, *engine.names), reporter=engine.reporter)
    return RecordedSession(files, engine.reporter, is_joined=not is_path)


def resolve_session(names: Sequence[str], *, last: bool = False, reporter: Reporter = SILENT) -> list[TranscriptFile]:
    """Return the files of a session like `resolve_topic`.

    Raises:
        NotFound: the names stand for a call.
    """
    target = resolve_topic(names, last=last, reporter=reporter)
    if isinstance(target, list):
        return target
    raise NotFound(f"{target.span.id} is a call, not a session")


def find_call(engine: FileEngine, prefix: str) -> RecordedCall:
    """Return the call whose id begins with `prefix`. If several sessions have it, the newest one counts.

    Raises:
        NotFound: there is no such call.
    """
    target = resolve_names((prefix, *engine.names), reporter=engine.reporter)
    if isinstance(target, list):
        raise NotFound(f"{prefix} is a session, not a call")
    return RecordedCall(target)
