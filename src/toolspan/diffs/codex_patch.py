"""Parse, format and apply patches in the format of Codex's `apply_patch`: an envelope of file sections.

Start at `parse_patch`, then `apply_update`. Sections have no line numbers. Each chunk is located by
its lines, first exactly, then ignoring whitespace and typographic characters, and always after the
previous chunk. `find_embedded_patches` extracts patches from command lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from toolspan.diffs.apply import PatchError
from toolspan.diffs.hunks import ADDED, REMOVED, UNCHANGED, ChangeCount

BEGIN_PATCH = "*** Begin Patch"
END_PATCH = "*** End Patch"
_ENVIRONMENT_HEADER = "*** Environment ID:"
_ADD_HEADER = "*** Add File: "
_DELETE_HEADER = "*** Delete File: "
_UPDATE_HEADER = "*** Update File: "
_MOVE_HEADER = "*** Move to: "
_END_OF_FILE = "*** End of File"
_SECTION_HEADERS = tuple(header.rstrip() for header in (_ADD_HEADER, _DELETE_HEADER, _UPDATE_HEADER))

_COMMAND_NAME = r"(?:apply_patch|applypatch)"
_HEREDOC = re.compile(
    rf"""(?:^|&&|\|\||[;|(]|\n)[ \t]*{_COMMAND_NAME}[ \t]*<<-?[ \t]*(['"]?)(?P<end>\w+)\1[^\n]*\n
    (?P<patch>.*?)(?:\n[ \t]*(?P=end)[ \t]*(?=\n|\)|;|&|\Z)|\Z)""",
    re.DOTALL | re.VERBOSE,
)
_LEADING_CD = re.compile(r"""\A\s*cd[ \t]+(?P<quote>['"]?)(?P<folder>[^'"\n;&|$`]+)(?P=quote)[ \t]*(?:&&|;|\n)""")
_CD_COMMAND = re.compile(r"(?:^|[;&|(\n])\s*(?:cd|pushd)\b")


class EnvelopeError(PatchError):
    """Raised if the text is not a patch. `line` is the number of the first line that cannot be parsed."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


class PatchChunk(Struct, frozen=True, kw_only=True):
    """Consecutive lines of a file and the changes to them."""

    lines: tuple[str, ...]
    """Lines with a prefix: a space (unchanged), `-` (removed) or `+` (added)."""
    contexts: tuple[str, ...] = ()
    """Lines that must be found above the chunk first, in this order."""
    at_end: bool = False
    """True if the chunk is at the end of the file."""

    @property
    def old_lines(self) -> list[str]:
        """The lines that must be in the file before the change."""
        return [line[1:] for line in self.lines if line[0] in {UNCHANGED, REMOVED}]

    @property
    def new_lines(self) -> list[str]:
        """The lines in the file after the change."""
        return [line[1:] for line in self.lines if line[0] in {UNCHANGED, ADDED}]


class AddFile(Struct, frozen=True, kw_only=True, tag="add"):
    """A section that writes a whole file, overwriting an existing one."""

    path: str
    lines: tuple[str, ...]

    @property
    def content(self) -> str:
        """The content of the file."""
        return "".join(f"{line}\n" for line in self.lines)


class DeleteFile(Struct, frozen=True, kw_only=True, tag="delete"):
    """A section that deletes a file."""

    path: str


class UpdateFile(Struct, frozen=True, kw_only=True, tag="update"):
    """A section that changes a file and may rename it."""

    path: str
    chunks: tuple[PatchChunk, ...]
    move_to: str | None = None


FileSection = AddFile | DeleteFile | UpdateFile


def parse_patch(text: str) -> tuple[FileSection, ...]:
    """Parse a patch into its sections, in order.

    Whitespace around marker lines, blank lines around the envelope, and an empty line in place of
    an empty context line are accepted.

    Raises:
        EnvelopeError: `text` is not a patch.
    """
    reader = _PatchReader(text)
    reader.skip_blank()
    if reader.marker != BEGIN_PATCH:
        raise EnvelopeError(reader.line_number, f"expected {BEGIN_PATCH!r}, found {reader.line or ''!r}")
    reader.index += 1
    if reader.marker.startswith(_ENVIRONMENT_HEADER):
        reader.index += 1
    sections: list[FileSection] = []
    reader.skip_blank()
    while reader.marker != END_PATCH:
        if reader.line is None:
            raise EnvelopeError(reader.line_number, f"expected {END_PATCH!r}, found the end of the text")
        sections.append(_parse_section(reader))
        reader.skip_blank()
    reader.index += 1
    reader.skip_blank()
    if reader.marker:
        raise EnvelopeError(reader.line_number, f"expected nothing after {END_PATCH!r}")
    if not sections:
        raise EnvelopeError(reader.line_number, "the patch has no file section")
    return tuple(sections)


def count_changes(section: FileSection) -> ChangeCount:
    """Count the lines that a section adds and removes. The lines in a deleted file are unknown and not counted."""
    match section:
        case AddFile():
            return ChangeCount(len(section.lines), 0)
        case DeleteFile():
            return ChangeCount(0, 0)
        case UpdateFile():
            firsts = [line[0] for chunk in section.chunks for line in chunk.lines]
            return ChangeCount(firsts.count(ADDED), firsts.count(REMOVED))


def apply_update(section: UpdateFile, text: str) -> str:
    """Apply a section to the content of a file and return the new content.

    A missing final newline is added. In a CRLF file, added lines also end in CRLF. If a chunk
    matches in several places, the first match after the previous chunk is used.

    Raises:
        PatchError: a chunk is not in the text.
    """
    return _replace_chunks(section.chunks, text)


def revert_update(section: UpdateFile, text: str) -> str:
    """Revert a section in the new content of a file and return the old content.

    Chunks are located as in `apply_update`.

    Raises:
        PatchError: a chunk is not in the text, or it only removes lines, so its position is unknown.
    """
    opposite = {UNCHANGED: UNCHANGED, ADDED: REMOVED, REMOVED: ADDED}
    chunks = [
        replace(chunk, lines=tuple(opposite[line[0]] + line[1:] for line in chunk.lines)) for chunk in section.chunks
    ]
    if any(not chunk.old_lines for chunk in chunks):
        raise PatchError("A chunk that only removes lines does not show where they were.")
    return _replace_chunks(chunks, text)


# Parsing


class _PatchReader:
    """A cursor over the lines of a patch."""

    def __init__(self, text: str) -> None:
        self._lines = [line.removesuffix("\r") for line in text.split("\n")]
        self.index = 0

    @property
    def line_number(self) -> int:
        return self.index + 1

    @property
    def line(self) -> str | None:
        return self._lines[self.index] if self.index < len(self._lines) else None

    @property
    def marker(self) -> str:
        """The current line, stripped, or an empty string after the last line."""
        return (self.line or "").strip()

    @property
    def is_at_header(self) -> bool:
        return self.marker == END_PATCH or self.marker.startswith(_SECTION_HEADERS)

    def skip_blank(self) -> None:
        while self.line is not None and not self.marker:
            self.index += 1

    def ends_here(self) -> bool:
        """Return whether only blank lines are left before the next section or the end marker."""
        start = self.index
        self.skip_blank()
        ends = self.line is None or self.is_at_header
        self.index = start
        return ends

    def read_header(self, header: str) -> str | None:
        """Consume a line with this header and return its path; None if the current line has no such header."""
        if not self.marker.startswith(header.rstrip()):
            return None
        path = self.marker[len(header.rstrip()) :].strip()
        if not path:
            raise EnvelopeError(self.line_number, f"expected a path after {header.rstrip()!r}")
        self.index += 1
        return path


def _parse_section(reader: _PatchReader) -> FileSection:
    path = reader.read_header(_ADD_HEADER)
    if path is not None:
        added: list[str] = []
        while reader.line is not None and reader.line.startswith(ADDED):
            added.append(reader.line[1:])
            reader.index += 1
        return AddFile(path=path, lines=tuple(added))
    path = reader.read_header(_DELETE_HEADER)
    if path is not None:
        return DeleteFile(path=path)
    path = reader.read_header(_UPDATE_HEADER)
    if path is None:
        raise EnvelopeError(reader.line_number, f"expected one of {', '.join(_SECTION_HEADERS)}; found {reader.line!r}")
    start_line = reader.line_number - 1
    move_to = reader.read_header(_MOVE_HEADER)
    chunks: list[PatchChunk] = []
    while reader.line is not None and not reader.is_at_header:
        if not reader.marker and reader.ends_here():
            break
        chunks.append(_parse_chunk(reader, first=not chunks))
    if not chunks and move_to is None:
        raise EnvelopeError(start_line, f"the update of {path} has no changes")
    return UpdateFile(path=path, chunks=tuple(chunks), move_to=move_to)


def _parse_chunk(reader: _PatchReader, *, first: bool) -> PatchChunk:
    start = reader.index
    contexts: list[str] = []
    while reader.line is not None and (reader.line.rstrip() == "@@" or reader.line.startswith("@@ ")):
        if name := reader.line.rstrip()[3:]:
            contexts.append(name)
        reader.index += 1
    if reader.index == start and not first:
        raise EnvelopeError(start + 1, f"expected '@@' before a further chunk, found {reader.line!r}")
    lines: list[str] = []
    while (line := reader.line) is not None:
        if line[:1] not in {UNCHANGED, ADDED, REMOVED} and (line or reader.ends_here()):
            break
        lines.append(line or UNCHANGED)
        reader.index += 1
    at_end = reader.marker == _END_OF_FILE
    reader.index += at_end
    if not lines:
        raise EnvelopeError(reader.line_number, f"expected ' ', '-' or '+' first, found {reader.line!r}")
    return PatchChunk(lines=tuple(lines), contexts=tuple(contexts), at_end=at_end)


# Applying

_ASCII_EQUIVALENTS = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
    }
)


def _exact_line(line: str) -> str:
    return line


_NORMALIZERS = (_exact_line, str.rstrip, str.strip, lambda line: line.strip().translate(_ASCII_EQUIVALENTS))
"""Functions that normalize lines for comparison, from strict to lenient."""


def _replace_chunks(chunks: Sequence[PatchChunk], text: str) -> str:
    carriage = "\r" if 2 * text.count("\r\n") > text.count("\n") else ""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if carriage:
        lines = [line.removesuffix("\r") for line in lines]
    splices: list[tuple[int, int, list[str]]] = []
    at = 0
    for number, chunk in enumerate(chunks, 1):
        for context in chunk.contexts:
            context_index = _find_lines(lines, [context], at, at_end=False)
            if context_index is None:
                raise PatchError(f"Chunk {number} follows {context!r}, which is not in the text.")
            at = context_index + 1
        old, new = chunk.old_lines, chunk.new_lines
        if not old:
            splices.append((len(lines), len(lines), new))
            continue
        index = _find_lines(lines, old, at, at_end=chunk.at_end)
        if index is None and not old[-1]:  # an empty last line may represent the final newline
            old, new = old[:-1], new[:-1] if new and not new[-1] else new
            index = _find_lines(lines, old, at, at_end=chunk.at_end)
        if index is None:
            raise PatchError(f"Chunk {number} is not in the text; it starts with {old[0]!r}.")
        at = index + len(old)
        splices.append((index, at, new))
    for start, end, new in sorted(splices, key=lambda splice: splice[0], reverse=True):
        lines[start:end] = new
    return "".join(f"{line}{carriage}\n" for line in lines)


def _find_lines(lines: Sequence[str], pattern: Sequence[str], start: int, *, at_end: bool) -> int | None:
    last = len(lines) - len(pattern)
    if at_end:
        start = max(last, 0)
    for normalize in _NORMALIZERS:
        needle = [normalize(line) for line in pattern]
        haystack = lines if normalize is _exact_line else [normalize(line) for line in lines]
        for at in range(start, last + 1):
            if haystack[at : at + len(needle)] == needle:
                return at
    return None


# Patches in commands


class EmbeddedPatch(NamedTuple):
    """A patch inside a command line."""

    patch: str
    folder: str | None = None
    """The folder to which the command changes before it applies the patch, if any."""
    is_folder_unknown: bool = False
    """True if the command changes the folder in an unsupported way, so that relative paths cannot be resolved."""


def find_embedded_patches(command: str | Sequence[str]) -> list[EmbeddedPatch]:
    """Return the patches that a command applies, in order."""
    if isinstance(command, str):
        return _find_in_line(command)
    match [command[0].rpartition("/")[2], *command[1:]] if command else []:
        case ["apply_patch" | "applypatch", patch, *_]:
            return [EmbeddedPatch(patch)] if patch.lstrip().startswith(BEGIN_PATCH) else []
        case ["bash" | "sh" | "zsh", "-c" | "-lc", script, *_]:
            return _find_in_line(script)
        case _:
            return []


def _find_in_line(line: str) -> list[EmbeddedPatch]:
    patches = []
    for match in _HEREDOC.finditer(line):
        before = line[: match.start()]
        cd_match = _LEADING_CD.match(line)
        folder = cd_match["folder"].strip() if cd_match else None
        rest = before[cd_match.end() :] if cd_match else before
        patches.append(EmbeddedPatch(match["patch"], folder, is_folder_unknown=bool(_CD_COMMAND.search(rest))))
    return patches
