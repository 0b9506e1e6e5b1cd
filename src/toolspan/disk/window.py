"""Some lines of a file, and how many it has.

In: an open file and a range. Out: the lines as one text, the number of all lines, the digest of
the whole content. The file goes through in pieces, so that ten lines of a gigabyte cost no memory.
"""

import codecs
import os
from dataclasses import dataclass
from pathlib import Path

from toolspan.disk.load import CHUNK, LARGEST, Fingerprint, Stamp, opened, pieces
from toolspan.disk.text import Codec, sniff
from toolspan.disk.words import size_text
from toolspan.errors import ToolError


@dataclass(frozen=True, slots=True)
class Range:
    """Which lines: those behind `skip`, at most `count`; negative `skip` counts from the end."""

    skip: int = 0
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Lines of a file, and what was seen of it on the way."""

    text: str
    lines: int
    total: int
    bad_bytes: bool
    """Some bytes are no text; U+FFFD stands for them."""
    digest: str
    stamp: Stamp


def window(
    path: Path, wanted: Range, most: int, *, utf16: bool = True, chunk: int = CHUNK
) -> Window:
    """Read the lines; a newline at the end of the file begins one more, empty line.

    Raises:
        ToolError: the file cannot be read, or the lines have more than `most` characters.
    """
    if wanted.skip < 0:
        total = window(path, Range(0, 0), most, utf16=utf16, chunk=chunk).total
        wanted = Range(max(0, total + wanted.skip), wanted.count)
    with opened(path) as descriptor:
        found = os.fstat(descriptor)
        seen = Fingerprint()
        pane = _Pane(wanted, most)
        decoder = _Decoder(utf16=utf16)
        for piece in pieces(descriptor, path, LARGEST, chunk):
            seen.add(piece)
            pane.add(decoder.add(piece))
        pane.add(decoder.end())
    total = pane.line + 1
    end = total if wanted.count is None else min(total, wanted.skip + wanted.count)
    lines = max(0, end - wanted.skip)
    return Window(
        pane.text(), lines, total, decoder.bad_bytes, seen.text(), Stamp.of(found)
    )  # fmt: skip


class _Decoder:
    r"""Bytes in pieces to text in pieces, `\r\n` as `\n`."""

    def __init__(self, *, utf16: bool) -> None:
        self._utf16 = utf16
        self._decoder: codecs.IncrementalDecoder | None = None
        self._carriage = ""
        self.bad_bytes = False

    def add(self, piece: bytes) -> str:
        if self._decoder is None:
            codec = sniff(piece)
            if codec.encoding != "utf-8" and not self._utf16:
                codec = Codec("utf-8")
            self._decoder = codecs.getincrementaldecoder(codec.encoding)("strict")
            piece = piece[len(codec.mark) :]
        return self._whole_ends(self._decoded(self._decoder, piece, final=False))

    def end(self) -> str:
        last = "" if self._decoder is None else self._decoded(self._decoder, b"", final=True)
        carriage, self._carriage = self._carriage, ""
        return carriage + last

    def _decoded(self, decoder: codecs.IncrementalDecoder, piece: bytes, *, final: bool) -> str:
        before = decoder.getstate()
        try:
            return decoder.decode(piece, final)
        except UnicodeDecodeError:
            self.bad_bytes = True
            decoder.setstate(before)
            decoder.errors = "replace"
            return decoder.decode(piece, final)

    def _whole_ends(self, text: str) -> str:
        """A carriage return at the end of a piece waits for what follows."""
        text = self._carriage + text
        self._carriage = "\r" if text.endswith("\r") else ""
        return text.removesuffix("\r").replace("\r\n", "\n")


class _Pane:
    """The wanted lines out of text that comes in pieces."""

    def __init__(self, wanted: Range, most: int) -> None:
        self.line = 0
        """How many line ends came so far."""
        self._wanted = wanted
        self._most = most
        self._kept: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        ends = text.count("\n")
        first = max(0, self._wanted.skip - self.line)
        last = ends + 1
        if self._wanted.count is not None:
            last = min(last, self._wanted.skip + self._wanted.count - self.line)
        if first < last and first <= ends:
            self._keep(text if last - first > ends else _between(text, first, last))
        self.line += ends

    def text(self) -> str:
        return "".join(self._kept)

    def _keep(self, text: str) -> None:
        self._size += len(text)
        if self._size > self._most:
            raise ToolError(
                f"The lines asked for have more than {size_text(self._most)}. Ask for fewer lines,"
                " or search for a part of them.",
                kind="too_large",
            )
        self._kept.append(text)


def _between(text: str, first: int, last: int) -> str:
    return "\n".join(text.split("\n")[first:last])
