"""The joined set of files: every session below a folder, each call once.

In: a folder, a file, or nothing for the user's own transcripts. Out: a `History` of sessions, spans
and tokens, forks and resumes merged, subagents tied to the calls that started them. Files are read
one after another when their spans are asked for; `Ledger` is the same from facts alone, on all
cores.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from toolspan.errors import Ambiguous, NotFound
from toolspan.ids import CallId
from toolspan.model.span import Span
from toolspan.model.tokens import Tokens
from toolspan.read.discover import FoundFile, discover, discover_all, read_meta
from toolspan.read.facts import CallFacts
from toolspan.read.lineage import Lineages, merge, sum_tokens
from toolspan.read.survey import FileFacts, facts_from, survey
from toolspan.read.transcript import Transcript, read


def history(root: Path | str | None = None) -> "History":
    """Every transcript below a folder; without one, of this user's own Claude Code and Codex.

    Raises:
        SourceError: there is no such folder.
    """
    return History(discover(Path(root)) if root is not None else discover_all())


def transcripts(root: Path | str | None = None) -> Iterator[Transcript]:
    """Each transcript below a folder by itself, read when its turn comes.

    Raises:
        SourceError: there is no such folder, or a file cannot be read.
    """
    return history(root).transcripts()


class History:
    """Transcripts that are read together."""

    def __init__(self, files: Sequence[FoundFile]) -> None:
        self.files = list(files)

    def transcripts(self) -> Iterator[Transcript]:
        """Each file, read when its turn comes."""
        for file in self.files:
            yield read(file.path)

    @cached_property
    def ledger(self) -> "Ledger":
        """The facts of all files, merged."""
        return Ledger(survey([file.path for file in self.files]))

    @property
    def spans(self) -> Iterator[Span]:
        """Every call once, files in order; bodies are read when asked for."""
        wanted = {(row.file, row.id) for row in self.ledger.calls}
        for transcript in self.transcripts():
            for span in transcript.spans:
                if (transcript.file, span.id) in wanted:
                    yield self.ledger.tied(span)

    @property
    def tokens(self) -> Tokens:
        """The largest value of each field per message, over all files, summed."""
        return self.ledger.tokens


class Ledger:
    """The facts of many files, each call once."""

    def __init__(self, files: Iterator[FileFacts] | Sequence[FileFacts]) -> None:
        self.files = list(files)

    @classmethod
    def of(cls, transcripts: Sequence[Transcript]) -> "Ledger":
        """A ledger of transcripts that are read already."""
        return cls([facts_from(transcript) for transcript in transcripts])

    @cached_property
    def lineages(self) -> Lineages:
        """Which files belong together."""
        found = Lineages()
        for file in self.files:
            found.add(file.file, file.info)
        return found

    @cached_property
    def calls(self) -> list[CallFacts]:
        """Every call once, subagents' calls tied to the call that started them."""
        rows = merge((row for file in self.files for row in file.calls), self.lineages)
        starters = self._starters
        return [_tied(row, starters) for row in rows]

    @cached_property
    def failures(self) -> list[CallFacts]:
        """The calls that succeeded in no file; from a survey of failures alone, or of all calls."""
        succeeded = {name for file in self.files for name in file.successes}
        rows = [row for row in self.calls if row.state != "succeeded"]
        return [row for row in rows if _name(row) not in succeeded]

    @cached_property
    def count(self) -> int:
        """How many calls there are, orphan results not among them."""
        succeeded = {name for file in self.files for name in file.successes}
        left = [row for row in self.calls if _name(row) not in succeeded]
        return len(succeeded) + sum(row.state != "orphan_result" for row in left)

    @cached_property
    def _starters(self) -> dict[tuple[str | None, str], str]:
        """Which call started which subagent of a session: side files know best, then results."""
        found: dict[tuple[str | None, str], str] = {}
        for file in self.files:
            for agent, call_id in file.started.items():
                found.setdefault((file.info.session_id, agent), call_id)
                if file.info.agent_id:  # whose own subagents may name it as their session
                    found.setdefault((file.info.agent_id, agent), call_id)
        for file in self.files:
            agent_id = file.info.agent_id
            meta = read_meta(Path(file.file)) if agent_id else None
            if agent_id and meta and meta.tool_use_id:
                found[file.info.session_id, agent_id] = meta.tool_use_id
        return found

    def tied(self, span: Span) -> Span:
        """A span whose call names the call that started its subagent."""
        call = span.call
        starter = self._starters.get((call.session_id, call.agent_id or ""))
        if starter is None or call.parent_call is not None:
            return span
        return replace(span, call=replace(call, parent_call=CallId(starter)))

    @cached_property
    def tokens(self) -> Tokens:
        """The largest value of each field per message, over all files, summed."""
        return sum_tokens(file.message_tokens for file in self.files)

    @cached_property
    def tokens_raw_sum(self) -> Tokens:
        """What naive adding gives."""
        return sum((file.tokens_raw_sum for file in self.files), Tokens())

    @cached_property
    def sessions(self) -> list["SessionFacts"]:
        """One entry per conversation, the newest last; a subagent belongs to its session."""
        return _sessions(self)


class SessionFacts(Struct, frozen=True, kw_only=True):
    """A conversation and the files that tell it."""

    id: str
    file: FileFacts
    agents: list[FileFacts]

    @property
    def started_at(self) -> str:
        """When its first line was written; empty when no line says."""
        return self.file.info.started_at or ""

    @property
    def files(self) -> list[FileFacts]:
        """Its own file and its subagents'."""
        return [self.file, *self.agents]


def _sessions(ledger: Ledger) -> list[SessionFacts]:
    agents: dict[str, list[FileFacts]] = {}
    mains: list[FileFacts] = []
    above = {file.info.agent_id: file.info.session_id for file in ledger.files}
    for file in ledger.files:
        if not _tells_anything(file):
            continue
        if file.info.agent_id is None:
            mains.append(file)
        elif session := _top(file.info.session_id, above):
            agents.setdefault(session, []).append(_own(file))
    found = [
        SessionFacts(
            id=file.info.session_id or Path(file.file).name.partition(".")[0],
            file=file,
            agents=agents.pop(file.info.session_id or "", []),
        )
        for file in mains
    ]
    found += [
        SessionFacts(id=session, file=files[0], agents=files[1:])
        for session, files in agents.items()
    ]
    return sorted(found, key=lambda session: (session.started_at, session.id))


def _top(session: str | None, above: dict[str | None, str | None]) -> str | None:
    """The session at the top, where subagents name the subagent that started them."""
    seen: set[str | None] = {None}
    while session not in seen and above.get(session):
        seen.add(session)
        session = above[session]
    return session


def _own(file: FileFacts) -> FileFacts:
    """A subagent's file without the calls of the history that some are given to begin with."""
    if file.info.dialect == "claude":
        return file
    return replace(file, calls=[row for row in file.calls if row.agent == file.info.agent_id])


def _tells_anything(file: FileFacts) -> bool:
    """Not every file that ends in .jsonl is a conversation."""
    return bool(file.info.session_ids or file.info.root or file.info.title or file.calls)


def _name(row: CallFacts) -> str:
    return f"{row.id} {row.batch}"


def _tied(row: CallFacts, starters: dict[tuple[str | None, str], str]) -> CallFacts:
    if row.agent is None or row.parent_call is not None:
        return row
    starter = starters.get((row.session, row.agent))
    return row if starter is None else replace(row, parent_call=starter)


def short_id(name: str) -> str:
    """An id without the beginning that all have in common."""
    bare = name.removeprefix("call_")
    return (
        bare
        if bare != name
        else name.removeprefix("toolu_").removeprefix("bdrk_").removeprefix("01")
    )


def pick(name: str, names: Sequence[str], what: str, hint: Callable[[str], str] = str) -> str:
    """The one name that begins with `name`.

    Raises:
        NotFound: none does.
        Ambiguous: several do, and none is it exactly.
    """
    if name in names:
        return name
    found = [
        known
        for known in dict.fromkeys(names)
        if known.startswith(name) or short_id(known).startswith(name)
    ]
    if not found:
        raise NotFound(f"no {what} begins with {name!r}")
    if len(found) > 1:
        some = ", ".join(hint(known) for known in found[:4])
        raise Ambiguous(f"{len(found)} {what}s begin with {name!r}: {some}")
    return found[0]
