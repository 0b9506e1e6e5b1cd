"""What the line of a match does not tell: the tool, the state, the number of the line.

In: matches, and somebody who can give the facts of whole files. Out: the same matches, completed.
Request and result mostly stand close together, and that a call succeeded is to be seen from these
two lines alone, so the neighbourhood of a match is read first; a plain failure needs the lines
that name the call, which ripgrep finds. Only files with calls whose story is longer are read as a
whole. Read `complete` first.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolspan.errors import SourceError
from toolspan.model.span import Span
from toolspan.read.facts import CallFacts, facts_of
from toolspan.read.transcript import read
from toolspan.report.search.find import Match
from toolspan.report.search.places import Naming
from toolspan.report.search.scan import line_at, rows
from toolspan.report.search.words import Sieve
from toolspan.wire.jsonl import read_chunks
from toolspan.wire.source import BytesSource, Source, source_of

if TYPE_CHECKING:
    from toolspan.read.survey import FileFacts

_NEAR = 1 << 16
"""So many bytes before and after a match are its neighbourhood."""
_FEW = 8
"""With more calls than this in one file, the facts of the whole file come cheaper."""
_ASKED = 64
"""ripgrep is not asked for more calls than this at once."""

Survey = Callable[[Sequence[Path]], "Iterable[FileFacts]"]
"""Gives the facts of files, of all their calls; may read them, on all cores."""

_Calls = dict[tuple[str, str], CallFacts]


def complete(
    matches: Sequence[Match], survey: Survey, *, program: str | None = None
) -> list[Match]:
    """The matches with tool, state and target; `program` is ripgrep, where there is one."""
    untold = [match for match in matches if match.call is not None and match.state is None]
    known = _from_mentions(untold, program)
    files = {match.file for match in untold if (match.file, match.call or "") not in known}
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


def _from_mentions(matches: Sequence[Match], program: str | None) -> _Calls:
    """The calls whose story is told by the lines that name them."""
    calls: dict[str, dict[str, Match]] = {}
    for match in matches:
        calls.setdefault(match.file, {})[match.call or ""] = match
    few = {file: names for file, names in calls.items() if len(names) <= _FEW}
    naming = _naming(few, program)
    try:
        known: _Calls = {}
        for file, names in few.items():  # while ripgrep is at work
            known |= {(file, span.id): facts_of(span, file) for span in _nearby(file, names)}
        left = {file: [name for name in few[file] if (file, name) not in known] for file in few}
        for file, lines in _mentions({file: left[file] for file in left if left[file]}, naming):
            spans = (span for span in _spans(lines) if span.id in left[file] and _certain(span))
            known |= {(file, span.id): facts_of(span, file) for span in spans}
    finally:
        naming.close()
    return known


def _naming(calls: dict[str, dict[str, Match]], program: str | None) -> Naming:
    """Have the lines looked for that name calls, where these are not too many."""
    names = [name for those in calls.values() for name in those]
    plain = [file for file in calls if not file.endswith(".zst")]
    return Naming(names if len(names) <= _ASKED else (), plain, program)


def _nearby(file: str, names: dict[str, Match]) -> Iterator[Span]:
    """The calls of some matches in one file, as far as the neighbourhood tells."""
    source = source_of(file)
    try:
        for name, match in () if file.endswith(".zst") else names.items():
            lines, whole = _near(source, _bytes(name), match)
            for span in _spans(lines):
                if span.id == name and _certain(span) and (whole or span.state == "succeeded"):
                    yield span
    except SourceError:
        return


def _near(source: Source, name: bytes, match: Match) -> tuple[list[bytes], bool]:
    """The lines around a match that name its call, and whether there can be no others."""
    start = max(0, match.offset - _NEAR)
    length = match.offset - start + match.length + _NEAR
    data = source.read(start, length)
    whole = not start and len(data) < length
    lines = data[: len(data) if whole else data.rfind(b"\n") + 1].split(b"\n")
    return [line for line in lines[start > 0 :] if name in line], whole


def _mentions(calls: dict[str, list[str]], naming: Naming) -> Iterator[tuple[str, list[bytes]]]:
    """Files with all lines that name one of their calls; nothing of those that cannot be read."""
    found = naming.offsets() if calls else None
    for file, names in calls.items():
        source = source_of(file)
        try:
            if found is not None and not file.endswith(".zst"):
                yield file, [line_at(source, offset) or b"" for offset in found.get(file, ())]
            else:
                yield file, list(_anywhere(source, [_bytes(name) for name in names]))
        except SourceError:
            continue


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
