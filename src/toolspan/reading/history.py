"""Combine many files into sessions in which each call occurs once.

Forks and resumes are merged, and subagents are linked to the calls that started them. `History` reads one file
after another when its spans are needed. `CallTable` holds only facts and reads files on all cores.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from toolspan.errors import Ambiguous, NotFound
from toolspan.formats.registry import format_of_path, get_format, parse_file_name
from toolspan.reading.discovery import TranscriptFile, find_all_transcripts, find_transcripts
from toolspan.reading.parallel import FileSummary, scan_files, summarize_transcript
from toolspan.reading.rows import CallRow
from toolspan.reading.transcript import Transcript, read
from toolspan.types.ids import CallId
from toolspan.types.session import SessionInfo, Tokens
from toolspan.types.span import Span

_STATE_STRENGTH = {"never_answered": 0, "orphan_result": 0, "interrupted": 1, "cancelled": 1}


class Lineages:
    """Groups of files that share sessions or lines."""

    def __init__(self) -> None:
        self._parents: dict[Hashable, Hashable] = {}

    def add(self, file: str, info: SessionInfo) -> None:
        """Add a file and the facts about its session."""
        name = parse_file_name(file)
        marks: list[Hashable] = [("session", session) for session in info.session_ids]
        if name.session_id:
            marks.append(("session", name.session_id))
        if info.root:
            marks.append(("root", info.root))
        if info.forked_from:
            marks.append(("session", info.forked_from))
        for mark in marks:
            self._parents[self._find_root(("file", file))] = self._find_root(mark)

    def group_of(self, file: str) -> Hashable:
        """Return the group that a file belongs to."""
        return self._find_root(("file", file))

    def _find_root(self, mark: Hashable) -> Hashable:
        top = mark
        while self._parents.get(top, top) != top:
            top = self._parents[top]
        while self._parents.get(mark, mark) != top:  # path compression: shorten the chain for the next lookup
            self._parents[mark], mark = top, self._parents.get(mark, top)
        return top


def merge_copies(rows: Iterable[CallRow], lineages: Lineages) -> list[CallRow]:
    """Merge copies of each call into one row: the best copy, at the position of the first."""
    groups: dict[str, list[list[CallRow]]] = {}
    order: list[list[CallRow]] = []
    for row in rows:
        family = groups.setdefault(row.id, [])
        for copies in family:
            first = copies[0]
            is_same_batch = first.batch and first.batch == row.batch
            if is_same_batch or lineages.group_of(first.file) == lineages.group_of(row.file):
                copies.append(row)
                break
        else:
            family.append([row])
            order.append(family[-1])
    return [copies[0] if len(copies) == 1 else min(copies, key=_copy_rank) for copies in order]


def _copy_rank(row: CallRow) -> tuple[int, bool, str]:
    """Return a sort key that puts the best copy first. Old clients give copies new, later times."""
    is_in_own_session = row.session is not None and parse_file_name(row.file).session_id == row.session
    return -_STATE_STRENGTH.get(row.state, 2), not is_in_own_session, row.requested or "~"


def sum_tokens(files: Iterable[dict[str, Tokens]]) -> Tokens:
    """Sum tokens over many files, counting each message once with the largest value of each field."""
    messages: dict[str, Tokens] = {}
    nameless = Tokens()
    for file_tokens in files:
        for name, tokens in file_tokens.items():
            if name.startswith("#"):
                nameless += tokens
            else:
                before = messages.get(name)
                messages[name] = tokens if before is None else before.max_with(tokens)
    return sum(messages.values(), nameless)


def history(root: Path | str | None = None) -> History:
    """Return the transcripts below `root`, or those of this user's clients if `root` is None.

    Raises:
        SourceError: the folder does not exist.
    """
    return History(find_transcripts(Path(root)) if root is not None else find_all_transcripts())


def transcripts(root: Path | str | None = None) -> Iterator[Transcript]:
    """Read the transcripts below a folder one after another.

    Raises:
        SourceError: the folder does not exist, or a file cannot be read.
    """
    return history(root).transcripts()


class History:
    """A set of transcripts that are read together."""

    def __init__(self, files: Sequence[TranscriptFile]) -> None:
        self.files = list(files)

    def transcripts(self) -> Iterator[Transcript]:
        """Read the files one after another."""
        for file in self.files:
            yield read(file.path)

    @cached_property
    def call_table(self) -> CallTable:
        """The merged facts from all files."""
        return CallTable(scan_files([file.path for file in self.files]))

    @property
    def spans(self) -> Iterator[Span]:
        """Yield every call once, in file order. Bodies are read on demand."""
        selected = {(row.file, row.id) for row in self.call_table.calls}
        for transcript in self.transcripts():
            for span in transcript.spans:
                if (transcript.file, span.id) in selected:
                    yield self.call_table.link_span(span)

    @property
    def tokens(self) -> Tokens:
        """The total number of tokens, counting each message once with the largest value of each field."""
        return self.call_table.tokens


class CallTable:
    """The facts from many files, with each call once."""

    def __init__(self, files: Iterator[FileSummary] | Sequence[FileSummary]) -> None:
        self.files = list(files)

    @classmethod
    def from_transcripts(cls, transcripts: Sequence[Transcript]) -> CallTable:
        """Return a table of the calls in these transcripts."""
        return cls([summarize_transcript(transcript, transcript.spans) for transcript in transcripts])

    @cached_property
    def lineages(self) -> Lineages:
        """Groups of files that share sessions or lines."""
        lineages = Lineages()
        for file in self.files:
            lineages.add(file.file, file.info)
        return lineages

    @cached_property
    def calls(self) -> list[CallRow]:
        """Every call once, with subagents' calls linked to the calls that started them."""
        rows = merge_copies((row for file in self.files for row in file.calls), self.lineages)
        starters = self._agent_starters
        for n, row in enumerate(rows):
            starter = starters.get((row.session, row.agent)) if row.agent is not None else None
            if starter is not None and row.parent_call is None:
                rows[n] = replace(row, parent_call=starter)
        return rows

    @cached_property
    def failures(self) -> list[CallRow]:
        """The calls that did not succeed in any file."""
        succeeded = {name for file in self.files for name in file.successes}
        rows = [row for row in self.calls if row.error_group is not None or row.state != "succeeded"]
        return [row for row in rows if row.state == "succeeded" or _success_key(row) not in succeeded]

    @cached_property
    def call_count(self) -> int:
        """The number of calls, excluding orphan results."""
        succeeded = {name for file in self.files for name in file.successes}
        remaining = [row for row in self.calls if _success_key(row) not in succeeded]
        return len(succeeded) + sum(row.state != "orphan_result" for row in remaining)

    @cached_property
    def _agent_starters(self) -> dict[tuple[str | None, str], str]:
        """Ids of the calls that started subagents, by session and agent id. Side files take precedence."""
        starters: dict[tuple[str | None, str], str] = {}
        for file in self.files:
            for agent, call_id in file.started.items():
                starters.setdefault((file.info.session_id, agent), call_id)
                if file.info.agent_id:  # its subagents may refer to it as their session
                    starters.setdefault((file.info.agent_id, agent), call_id)
        for file in self.files:
            agent_id = file.info.agent_id
            origin = format_of_path(file.file).agent_origin(Path(file.file)) if agent_id else None
            if agent_id and origin and origin.starter_call:
                starters[file.info.session_id, agent_id] = origin.starter_call
        return starters

    def link_span(self, span: Span) -> Span:
        """Return a span linked to the call that started its subagent."""
        call = span.call
        starter = self._agent_starters.get((call.session_id, call.agent_id or ""))
        if starter is None or call.parent_call is not None:
            return span
        return replace(span, call=replace(call, parent_call=CallId(starter)))

    @cached_property
    def tokens(self) -> Tokens:
        """The total number of tokens, counting each message once with the largest value of each field."""
        return sum_tokens(file.message_tokens for file in self.files)

    @cached_property
    def tokens_raw_sum(self) -> Tokens:
        """The sum over all records, including repeated ones."""
        return sum((file.tokens_raw_sum for file in self.files), Tokens())

    @cached_property
    def sessions(self) -> list[SessionFiles]:
        """The conversations, newest last. Subagents are part of their session."""
        agents: dict[str, list[FileSummary]] = {}
        main_files: list[FileSummary] = []
        parent_sessions = {file.info.agent_id: file.info.session_id for file in self.files}
        for file in self.files:
            info = file.info
            if not (info.session_ids or info.root or info.title or file.calls):
                continue  # not every `.jsonl` file contains a conversation
            if info.agent_id is None:
                main_files.append(file)
            elif session := _top_session(info.session_id, parent_sessions):
                if get_format(info.dialect).agents_inherit_calls:
                    own_calls = [row for row in file.calls if row.agent == info.agent_id]
                    file = replace(file, calls=own_calls)  # noqa: PLW2901
                agents.setdefault(session, []).append(file)
        sessions = [
            SessionFiles(
                id=file.info.session_id or Path(file.file).name.partition(".")[0],
                file=file,
                agents=agents.pop(file.info.session_id or "", []),
            )
            for file in main_files
        ]
        sessions += [SessionFiles(id=session, file=files[0], agents=files[1:]) for session, files in agents.items()]
        return sorted(sessions, key=lambda session: (session.started_at, session.id))


class SessionFiles(Struct, frozen=True, kw_only=True):
    """A conversation and its files."""

    id: str
    file: FileSummary
    agents: list[FileSummary]

    @property
    def started_at(self) -> str:
        """The time of the first line, or an empty string if not recorded."""
        return self.file.info.started_at or ""

    @property
    def files(self) -> list[FileSummary]:
        """The session's own file and those of its subagents."""
        return [self.file, *self.agents]


def _top_session(session: str | None, parent_sessions: dict[str | None, str | None]) -> str | None:
    """Return the top-level session. The recorded parent of a nested subagent may itself be a subagent."""
    seen: set[str | None] = {None}
    while session not in seen and parent_sessions.get(session):
        seen.add(session)
        session = parent_sessions[session]
    return session


def _success_key(row: CallRow) -> str:
    return f"{row.id} {row.batch}"


def short_id(name: str) -> str:
    """Return an id without the prefix that all ids share."""
    bare = name.removeprefix("call_")
    return bare if bare != name else name.removeprefix("toolu_").removeprefix("bdrk_").removeprefix("01")


def match_prefix(name: str, names: Sequence[str], what: str, hint: Callable[[str], str] = str) -> str:
    """Return the only entry of `names` that begins with `name`, or the one that equals it.

    Raises:
        NotFound: there is no match.
        Ambiguous: there are several matches, and none is equal to `name`.
    """
    if name in names:
        return name
    matches = [
        candidate
        for candidate in dict.fromkeys(names)
        if candidate.startswith(name) or short_id(candidate).startswith(name)
    ]
    if not matches:
        raise NotFound(f"no {what} begins with {name!r}")
    if len(matches) > 1:
        some = ", ".join(hint(candidate) for candidate in matches[:4])
        raise Ambiguous(f"{len(matches)} {what}s begin with {name!r}: {some}")
    return matches[0]
