"""Combine many files into sessions in which each call occurs once.

Forks and resumes are merged, and subagents are linked to the calls that started them. `History` reads one file
after another when its spans are needed. `CallTable` holds only facts and reads files on all cores. The rules are in
`lineage.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from toolspan.errors import Ambiguous, NotFound
from toolspan.formats.registry import format_of_path, get_format
from toolspan.formats.source import is_remote, to_path
from toolspan.reading.discovery import TranscriptFile, find_all_transcripts, find_transcripts
from toolspan.reading.facts import FileSummary, summarize_transcript
from toolspan.reading.lineage import (
    Lineages,
    SessionFiles,
    group_sessions,
    link_keys,
    merge_copies,
)
from toolspan.reading.parallel import scan_files
from toolspan.reading.rows import CallRow
from toolspan.reading.transcript import Transcript, read
from toolspan.types.ids import CallId
from toolspan.types.session import SessionInfo, Tokens
from toolspan.types.span import Span


def history(root: Path | str | None = None) -> History:
    """Return the transcripts below a folder or URL, or those of this user's clients if `root` is None.

    Raises:
        SourceError: the folder does not exist.
    """
    return History(find_transcripts(to_path(root)) if root is not None else find_all_transcripts())


def transcripts(root: Path | str | None = None) -> Iterator[Transcript]:
    """Read the transcripts below a folder or URL one after another.

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
        """The calls, sessions and tokens of all files, without bodies."""
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
    """The calls, sessions and tokens of many files, without bodies. Each call occurs once."""

    def __init__(self, files: Iterable[FileSummary], *, are_independent: bool = False) -> None:
        """Create a table of files, which `are_independent` if their heads have no common links."""
        self.files = list(files)
        self._are_independent = are_independent

    def narrow(self, sessions: Iterable[SessionFiles[FileSummary]]) -> CallTable:
        """Return a table with the calls and tokens of some sessions, perhaps without those of others.

        perf: joining the calls takes longer than grouping the files.
        """
        if not self._are_independent:
            return self
        paths = {file.file for session in sessions for file in session.files}
        return CallTable((file for file in self.files if file.file in paths), are_independent=True)

    @classmethod
    def from_transcripts(cls, transcripts: Sequence[Transcript]) -> CallTable:
        """Return a table of the calls in these transcripts."""
        return cls([summarize_transcript(transcript, transcript.spans) for transcript in transcripts])

    @cached_property
    def lineages(self) -> Lineages:
        """Groups of files that share sessions or calls."""
        lineages = Lineages()
        for file in self.files:
            lineages.add(file.file, file.info, file.call_keys)
        return lineages

    @cached_property
    def calls(self) -> list[CallRow]:
        """Every call once, in the session it belongs to, with subagents' calls linked to those that started them.

        Successful calls are missing if the files leave them out.
        """
        rows = merge_copies((row for file in self.files for row in file.calls), self.lineages)
        if self._successes:  # a copy of a call may have succeeded
            rows = [row for row in rows if row.state == "succeeded" or self._copy_key(row) not in self._successes]
        starters = self._agent_starters
        for n, row in enumerate(rows):
            starter = starters.get((row.session, row.agent)) if row.agent is not None else None
            if starter is not None and row.parent_call is None:
                rows[n] = row = replace(row, parent_call=starter)  # noqa: PLW2901
            session = self._session_ids.get(row.file)
            if session is not None and session != row.session:
                rows[n] = replace(row, session=session)
        return rows

    @cached_property
    def call_count(self) -> int:
        """Number of calls, without orphan results."""
        return len(self._successes | {self._copy_key(row) for row in self.calls if row.state != "orphan_result"})

    @cached_property
    def _successes(self) -> set[tuple[str, Hashable]]:
        """The keys of the calls that have no row in some file because they succeeded there."""
        return {(call, self.lineages.group_of(file.file)) for file in self.files for call, _ in file.successes}

    def _copy_key(self, row: CallRow) -> tuple[str, Hashable]:
        return row.id, self.lineages.group_of(row.file)

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
            if not agent_id:
                continue
            starter = file.started_by
            if starter is None and not is_remote(file.file):  # it may have been written later
                starter = format_of_path(file.file).agent_origin(Path(file.file)).starter_call
            if starter:
                starters[file.info.session_id, agent_id] = starter
        return starters

    def link_span(self, span: Span) -> Span:
        """Return a span whose `parent_call` is set, if another file names the call that started its subagent."""
        call = span.call
        starter = self._agent_starters.get((call.session_id, call.agent_id or ""))
        if starter is None or call.parent_call is not None:
            return span
        return replace(span, call=replace(call, parent_call=CallId(starter)))

    @cached_property
    def tokens(self) -> Tokens:
        """The total number of tokens, counting each message once with the largest value of each field."""
        return _sum_tokens([("", self.files)])[""]

    @cached_property
    def sessions(self) -> list[SessionFiles[FileSummary]]:
        """The conversations, newest last. Subagents are part of their session."""
        return group_sessions([_without_inherited_calls(file) for file in self.files])

    @cached_property
    def calls_by_session(self) -> dict[str, list[CallRow]]:
        """The calls of each session, by its id. Every call belongs to one session."""
        calls: dict[str, list[CallRow]] = {session.id: [] for session in self.sessions}
        for row in self.calls:
            if (session_id := self._session_ids.get(row.file)) is not None:
                calls[session_id].append(row)
        return calls

    @cached_property
    def tokens_by_session(self) -> dict[str, Tokens]:
        """The tokens of each session, by its id. A message copied by a fork or resume belongs to the original.

        Input excludes cached tokens for every client.
        """
        ordered = sorted(self.sessions, key=lambda session: self.lineages.rank(session.file.file))
        return _sum_tokens((session.id, session.files) for session in ordered)

    @cached_property
    def _session_ids(self) -> dict[str, str]:
        """The session id of each file that belongs to a session, by path."""
        return {file.file: session.id for session in self.sessions for file in session.files}


class LinkedFile(Struct, frozen=True, gc=False, array_like=True):
    """The part of a `FileHead` that relates files."""

    links: list[int]
    """Checksums of the `link_keys`, for `FileLinks`. The answer for a file depends only on files with which it has,
    directly or through others, such a number in common.
    """


class FileHead(LinkedFile, frozen=True, gc=False, array_like=True):
    """The facts of a file from which most questions see whether they need more of it."""

    file: str
    info: SessionInfo
    has_content: bool
    calls: int = 0
    """Number of calls, without orphan results."""
    has_failures: bool = False
    """True if a call failed, or was never answered."""


def make_head(file: FileSummary) -> FileHead:
    """Return the head of a file."""
    keys = link_keys(file, file.call_keys, file.message_tokens)
    return FileHead(
        links=checksum_keys(keys),
        file=file.file,
        info=file.info,
        has_content=file.has_content,
        calls=file.call_count,
        has_failures=any(row.error_group is not None or row.state == "never_answered" for row in file.calls),
    )


def checksum_keys(keys: Iterable[str]) -> list[int]:
    """Return the checksums of keys for `FileLinks`."""
    return [zlib.crc32(key.encode("utf-8", "surrogatepass")) for key in keys]


def _sum_tokens(groups: Iterable[tuple[str, Sequence[FileSummary]]]) -> dict[str, Tokens]:
    """Return the tokens of each group of files. A message counts once, in the first group that contains it."""
    owners: dict[str, tuple[str, bool]] = {}
    sums: dict[str, Tokens] = {}
    largest: dict[str, Tokens] = {}
    for group, files in groups:
        sums[group] = Tokens()
        for file in files:
            has_cached = get_format(file.info.client).input_includes_cache
            for name, tokens in file.message_tokens.items():
                if name.startswith("#"):
                    sums[group] += tokens.without_cached() if has_cached else tokens
                    continue
                owners.setdefault(name, (group, has_cached))
                before = largest.get(name)
                largest[name] = tokens if before is None else before.max_with(tokens)
    for name, tokens in largest.items():
        group, has_cached = owners[name]
        sums[group] += tokens.without_cached() if has_cached else tokens
    return sums


def _without_inherited_calls(file: FileSummary) -> FileSummary:
    """Return a file without the calls that a subagent's file repeats from its parent."""
    agent = file.info.agent_id
    if agent is None or not get_format(file.info.client).agents_inherit_calls:
        return file
    return replace(file, calls=[row for row in file.calls if row.agent == agent])


def short_id(name: str) -> str:
    """Return an id without the prefixes that many ids share, such as `toolu_01` and `call_`."""
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
