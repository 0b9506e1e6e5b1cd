"""Patches in the form Codex's `apply_patch` takes: an envelope of file sections.

In: the text of a patch, and the contents of the files it names. Out: `Section`s, and the new
contents. Sections have no line numbers: each chunk is found by the lines it shows, first as they
are, then with blanks and typographic marks forgiven, always behind the chunk before it. Knows no
files and no shell; `heredoc.py` finds patches inside command lines. Read `parse`, then `update`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from toolspan.patch.apply import PatchError
from toolspan.patch.hunks import ADDED, KEPT, REMOVED, ChangeCount

BEGIN = "*** Begin Patch"
END = "*** End Patch"
_ENVIRONMENT = "*** Environment ID:"
_ADD = "*** Add File: "
_DELETE = "*** Delete File: "
_UPDATE = "*** Update File: "
_MOVE = "*** Move to: "
_AT_END = "*** End of File"
_HEADERS = tuple(header.rstrip() for header in (_ADD, _DELETE, _UPDATE))


class EnvelopeError(PatchError):
    """The text is no patch; `line` is the first line that cannot be understood, from 1."""

    def __init__(self, line: int, words: str) -> None:
        super().__init__(f"line {line}: {words}")
        self.line = line


class Chunk(Struct, frozen=True, kw_only=True):
    """Lines that stand together in the file, and what becomes of them."""

    lines: tuple[str, ...]
    """Each begins with a space (kept), `-` (removed) or `+` (added)."""
    contexts: tuple[str, ...] = ()
    """Lines further up, to be found first, one behind the other."""
    at_end: bool = False
    """It stands at the end of the file."""

    @property
    def old(self) -> list[str]:
        """The lines the file must have."""
        return [line[1:] for line in self.lines if line[0] in {KEPT, REMOVED}]

    @property
    def new(self) -> list[str]:
        """The lines it gets instead."""
        return [line[1:] for line in self.lines if line[0] in {KEPT, ADDED}]


class Add(Struct, frozen=True, kw_only=True, tag="add"):
    """A file that is written whole; one that is there is overwritten."""

    path: str
    lines: tuple[str, ...]

    @property
    def content(self) -> str:
        """What the file holds then."""
        return "".join(f"{line}\n" for line in self.lines)


class Delete(Struct, frozen=True, kw_only=True, tag="delete"):
    """A file that goes away."""

    path: str


class Update(Struct, frozen=True, kw_only=True, tag="update"):
    """A file that changes, its name perhaps too."""

    path: str
    chunks: tuple[Chunk, ...]
    move_to: str | None = None


Section = Add | Delete | Update


def parse(text: str) -> tuple[Section, ...]:
    """The sections of a patch, in order.

    Blanks around marker lines and blank lines around the envelope are forgiven, as is an empty
    line for an empty line of context.

    Raises:
        EnvelopeError: the text is no patch.
    """
    reader = _Reader(text)
    reader.enter()
    sections: list[Section] = []
    while not reader.leaves():
        sections.append(_section(reader))
    if not sections:
        raise EnvelopeError(reader.number, "the patch has no file in it")
    return tuple(sections)


def form(sections: Iterable[Section]) -> str:
    """The patch as text; `parse` gives the same sections back."""
    lines = [BEGIN]
    for section in sections:
        lines += _formed(section)
    return "\n".join([*lines, END, ""])


def count(section: Section) -> ChangeCount:
    """How many lines a section adds and removes, as far as it says so: Delete does not."""
    match section:
        case Add():
            return ChangeCount(len(section.lines), 0)
        case Delete():
            return ChangeCount(0, 0)
        case Update():
            firsts = [line[0] for chunk in section.chunks for line in chunk.lines]
            return ChangeCount(firsts.count(ADDED), firsts.count(REMOVED))


def update(section: Update, text: str) -> str:
    """The new text of a file.

    A final newline is added where there is none. Where lines end in CRLF, those that are put in
    do too. Of several places that fit the first one behind the chunk before is taken.

    Raises:
        PatchError: a chunk does not stand in the text.
    """
    return _replaced(section.chunks, text)


def take_back(section: Update, text: str) -> str:
    """The old text of a file, found from the new one in the same manner.

    Raises:
        PatchError: a chunk does not stand in the text, or only its added lines were shown, so that
            it could have stood anywhere.
    """
    chunks = tuple(_reversed(chunk) for chunk in section.chunks)
    if any(not chunk.old for chunk in chunks):
        raise PatchError("A chunk that only removes lines does not say where they stood.")
    return _replaced(chunks, text)


# Reading


class _Reader:
    """The lines of a patch, one after the other."""

    def __init__(self, text: str) -> None:
        self._lines = [line.removesuffix("\r") for line in text.split("\n")]
        self._at = 0

    @property
    def number(self) -> int:
        return self._at + 1

    @property
    def line(self) -> str | None:
        return self._lines[self._at] if self._at < len(self._lines) else None

    @property
    def marker(self) -> str:
        """The line without blanks around it; empty at the end."""
        return (self.line or "").strip()

    def next(self) -> None:
        self._at += 1

    def go_back(self, number: int) -> None:
        self._at = number - 1

    def skip_blank(self) -> None:
        while self.line is not None and not self.marker:
            self.next()

    def enter(self) -> None:
        self.skip_blank()
        if self.marker != BEGIN:
            raise EnvelopeError(self.number, f"expected {BEGIN!r}, found {self.line or ''!r}")
        self.next()
        if self.marker.startswith(_ENVIRONMENT):
            self.next()

    def leaves(self) -> bool:
        """Whether the envelope ends here; then nothing may follow."""
        self.skip_blank()
        if self.line is None:
            raise EnvelopeError(self.number, f"expected {END!r}, found the end of the text")
        if self.marker != END:
            return False
        self.next()
        self._end()
        return True

    def _end(self) -> None:
        self.skip_blank()
        if self.line is not None:
            raise EnvelopeError(self.number, f"expected nothing behind {END!r}")

    def value(self, header: str) -> str | None:
        """What stands behind a header, when the line has it; the line is used up then."""
        if not self.marker.startswith(header.rstrip()):
            return None
        name = self.marker[len(header.rstrip()) :].strip()
        if not name:
            raise EnvelopeError(self.number, f"expected a path behind {header.rstrip()!r}")
        self.next()
        return name


def _section(reader: _Reader) -> Section:
    path = reader.value(_ADD)
    if path is not None:
        return Add(path=path, lines=tuple(_added(reader)))
    path = reader.value(_DELETE)
    if path is not None:
        return Delete(path=path)
    path = reader.value(_UPDATE)
    if path is None:
        raise EnvelopeError(
            reader.number, f"expected one of {', '.join(_HEADERS)}; found {reader.line!r}"
        )
    begun = reader.number - 1
    move_to = reader.value(_MOVE)
    chunks = tuple(_chunks(reader))
    if not chunks and move_to is None:
        raise EnvelopeError(begun, f"{path} is to be updated, but nothing says how")
    return Update(path=path, chunks=chunks, move_to=move_to)


def _added(reader: _Reader) -> Iterator[str]:
    while reader.line is not None and reader.line.startswith(ADDED):
        yield reader.line[1:]
        reader.next()


def _chunks(reader: _Reader) -> Iterator[Chunk]:
    first = True
    while reader.line is not None and not _is_header(reader):
        if not reader.marker and _blank_until_header(reader):
            return
        yield _chunk(reader, first=first)
        first = False


def _is_header(reader: _Reader) -> bool:
    marker = reader.marker
    return marker == END or marker.startswith(_HEADERS)


def _blank_until_header(reader: _Reader) -> bool:
    """Whether nothing but blank lines comes before the next section; they are used up then."""
    begun = reader.number
    reader.skip_blank()
    if reader.line is None or _is_header(reader):
        return True
    reader.go_back(begun)
    return False


def _chunk(reader: _Reader, *, first: bool) -> Chunk:
    begun = reader.number
    contexts: list[str] = []
    marked = False
    while reader.line is not None and _is_mark(reader.line):
        marked = True
        if name := reader.line.rstrip()[3:]:
            contexts.append(name)
        reader.next()
    if not (marked or first):
        raise EnvelopeError(begun, f"expected '@@' before a further chunk, found {reader.line!r}")
    lines = tuple(_chunk_lines(reader))
    at_end = reader.marker == _AT_END
    if at_end:
        reader.next()
    if not lines:
        raise EnvelopeError(reader.number, f"expected ' ', '-' or '+' first, found {reader.line!r}")
    return Chunk(lines=lines, contexts=tuple(contexts), at_end=at_end)


def _is_mark(line: str) -> bool:
    return line.rstrip() == "@@" or line.startswith("@@ ")


def _chunk_lines(reader: _Reader) -> Iterator[str]:
    while (line := reader.line) is not None:
        if line[:1] in {KEPT, ADDED, REMOVED}:
            yield line
        elif not line and not _ends_here(reader):
            yield KEPT
        else:
            return
        reader.next()


def _ends_here(reader: _Reader) -> bool:
    """Whether an empty line stands for nothing: the section or the patch ends behind it."""
    begun = reader.number
    reader.skip_blank()
    ends = reader.line is None or _is_header(reader)
    reader.go_back(begun)
    return ends


def _formed(section: Section) -> Iterator[str]:
    match section:
        case Add():
            yield _ADD + section.path
            yield from (ADDED + line for line in section.lines)
        case Delete():
            yield _DELETE + section.path
        case Update():
            yield _UPDATE + section.path
            if section.move_to is not None:
                yield _MOVE + section.move_to
            for chunk in section.chunks:
                yield from (f"@@ {name}" for name in chunk.contexts)
                if not chunk.contexts:
                    yield "@@"
                yield from chunk.lines
                if chunk.at_end:
                    yield _AT_END


# Applying

_DASHES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"), "-")
_QUOTES = dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b"), "'")
_DOUBLE = dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f"), '"')
_SPACES = dict.fromkeys(
    map(ord, "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"), " "
)
_PLAIN = {**_DASHES, **_QUOTES, **_DOUBLE, **_SPACES}


def _exact(line: str) -> str:
    return line


def _plain(line: str) -> str:
    return line.strip().translate(_PLAIN)


_WAYS = (_exact, str.rstrip, str.strip, _plain)
"""How lines are compared, from strict to lenient."""


class _Splice(NamedTuple):
    """Lines that give way to others."""

    start: int
    length: int
    lines: list[str]


def _replaced(chunks: Sequence[Chunk], text: str) -> str:
    carriage = "\r" if 2 * text.count("\r\n") > text.count("\n") else ""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if carriage:
        lines = [line.removesuffix("\r") for line in lines]
    for splice in sorted(_splices(chunks, lines), key=lambda one: one.start, reverse=True):
        lines[splice.start : splice.start + splice.length] = splice.lines
    return "".join(f"{line}{carriage}\n" for line in lines)


def _splices(chunks: Sequence[Chunk], lines: list[str]) -> Iterator[_Splice]:
    at = 0
    for number, chunk in enumerate(chunks, 1):
        for context in chunk.contexts:
            found = _seek(lines, [context], at, at_end=False)
            if found is None:
                raise PatchError(f"Chunk {number} follows {context!r}, which is not in the text.")
            at = found + 1
        old, new = chunk.old, chunk.new
        if not old:
            yield _Splice(len(lines), 0, new)
            continue
        place = _seek(lines, old, at, at_end=chunk.at_end)
        if place is None and not old[-1]:  # an empty last line may stand for the final newline
            old, new = old[:-1], new[:-1] if new and not new[-1] else new
            place = _seek(lines, old, at, at_end=chunk.at_end)
        if place is None:
            raise PatchError(f"Chunk {number} does not stand in the text: {old[0]!r} and on.")
        yield _Splice(place, len(old), new)
        at = place + len(old)


def _seek(lines: Sequence[str], wanted: Sequence[str], start: int, *, at_end: bool) -> int | None:
    last = len(lines) - len(wanted)
    if at_end:
        start = max(last, 0)
    for way in _WAYS:
        needle = [way(line) for line in wanted]
        hay = lines if way is _exact else [way(line) for line in lines]
        for at in range(start, last + 1):
            if hay[at : at + len(needle)] == needle:
                return at
    return None


def _reversed(chunk: Chunk) -> Chunk:
    marks = {KEPT: KEPT, ADDED: REMOVED, REMOVED: ADDED}
    turned = tuple(marks[line[0]] + line[1:] for line in chunk.lines)
    return Chunk(lines=turned, contexts=chunk.contexts, at_end=chunk.at_end)
