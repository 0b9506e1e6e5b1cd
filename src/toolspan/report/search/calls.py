"""What the line of a match does not tell: the tool, the state, the number of the line.

In: matches, and somebody who can give the facts of whole files. Out: the same matches, completed.
Request and result mostly stand close together, and that a call succeeded is to be seen from these
two lines alone, so the neighbourhood of a match is read first; a plain failure needs the lines
that name the call. Only files with calls whose story is longer are read as a whole. Read
`complete` first.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from toolspan.errors import SourceError
from toolspan.model.span import Span
from toolspan.read.facts import CallFacts, facts_of
from toolspan.read.survey import FileFacts
from toolspan.read.transcript import read
from toolspan.report.search.find import Match
from toolspan.report.search.scan import rows
from toolspan.report.search.words import Sieve
from toolspan.wire.jsonl import read_chunks
from toolspan.wire.source import BytesSource, Source, source_of

_NEAR = 1 << 17
"""So many bytes before and after a match are its neighbourhood."""
_SMALL = 2 << 20
"""In a file that is not bigger than this, all lines are looked through at once."""
_FEW = 8
"""With more calls than this in one file, the facts of the whole file come cheaper."""

Survey = Callable[[Sequence[Path]], Iterable[FileFacts]]
"""Gives the facts of files, of all their calls; may read them, on all cores."""

_Calls = dict[tuple[str, str], CallFacts]


def complete(matches: Sequence[Match], survey: Survey) -> list[Match]:
    """The matches with tool, state and target."""
    known = _from_mentions(matches)
    files = {m.file for m in matches if m.call is not None and (m.file, m.call) not in known}
    for facts in survey([Path(file) for file in sorted(files)]) if files else ():
        known |= {(facts.file, row.id): row for row in facts.calls}
    return [_told(match, known.get((match.file, match.call or ""))) for match in matches]


def numbered(matches: Sequence[Match], *, calls: bool = True) -> list[Match]:
    """The matches with the numbers of their lines, those of calls if so wished."""
    wanted: dict[str, set[int]] = {}
    for match in matches:
        if calls or match.kind == "message":
            wanted.setdefault(match.file, set()).add(match.offset)
    lines = {
        (file, offset): number
        for file, offsets in wanted.items()
        for offset, number in _numbers(file, sorted(offsets)).items()
    }
    return [replace(match, line=lines.get((match.file, match.offset))) for match in matches]


def _told(match: Match, row: CallFacts | None) -> Match:
    if row is None:
        return match
    return replace(match, tool=row.tool, state=row.state, error=row.error_kind, target=row.target)


def _from_mentions(matches: Sequence[Match]) -> _Calls:
    """The calls whose story is told by the lines that name them."""
    calls: dict[str, list[Match]] = {}
    for match in matches:
        if match.call is not None:
            calls.setdefault(match.file, []).append(match)
    return {
        (file, span.id): facts_of(span, file)
        for file, those in calls.items()
        if len(those) <= _FEW
        for span in _mentioned(source_of(file), those)
    }


def _mentioned(source: Source, those: Sequence[Match]) -> list[Span]:
    """The calls of some matches in one file, as far as the lines that name them tell."""
    names = {str(match.call): match for match in those}
    found: list[Span] = []
    try:
        if source.read(_SMALL, 1):
            near = {name: _near(source, _bytes(name), match) for name, match in names.items()}
            spans = [span for name in near for span in _spans(near[name]) if span.id == name]
            found = [span for span in spans if span.state == "succeeded"]
        left = names.keys() - {span.id for span in found}
        wanted = [_bytes(name) for name in left]
        spans = _spans(_anywhere(source, wanted)) if wanted else []
    except SourceError:
        return found
    return found + [span for span in spans if span.id in left and _certain(span)]


def _bytes(name: str) -> bytes:
    """A call's id as lines spell it; an odd one is not found so, and its file read as a whole."""
    return name.encode("utf-8", "surrogatepass")


def _certain(span: Span) -> bool:
    """Nothing that other lines say could change the state; in a rollout much could."""
    if span.call.dialect != "claude":
        return False
    if span.state == "failed":
        return span.error_kind not in (None, "unknown") and not span.ambiguous
    return span.state == "succeeded"


def _spans(lines: Iterable[bytes]) -> list[Span]:
    return read(BytesSource(b"".join(line + b"\n" for line in lines))).spans


def _near(source: Source, name: bytes, match: Match) -> list[bytes]:
    start = max(0, match.offset - _NEAR)
    data = source.read(start, match.offset - start + match.length + _NEAR)
    whole = data[: data.rfind(b"\n") + 1].split(b"\n")
    return [line for line in whole[start > 0 :] if name in line]


def _anywhere(source: Source, names: Sequence[bytes]) -> Iterator[bytes]:
    """The lines of a file that name one of several calls, in their order."""
    sieves = [Sieve(literal=name) for name in names]
    for chunk in read_chunks(source):
        for start, end in sorted({row for sieve in sieves for row in rows(chunk, sieve)}):
            yield bytes(chunk.data[start:end])


def _numbers(file: str, offsets: Sequence[int]) -> dict[int, int]:
    """The numbers of the lines that begin at these offsets, in rising order."""
    found: dict[int, int] = {}
    number, waiting = 1, list(reversed(offsets))
    try:
        for chunk in read_chunks(source_of(file)):
            while waiting and waiting[-1] < chunk.offset + chunk.size:
                offset = waiting.pop()
                end = chunk.start + offset - chunk.offset
                found[offset] = number + chunk.data.count(b"\n", chunk.start, end)
            if not waiting:
                break
            number += 1 if chunk.passed else chunk.data.count(b"\n", chunk.start, chunk.end)
    except SourceError:
        pass
    return found
