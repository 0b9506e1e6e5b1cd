r"""A file's bytes as text that can be changed and written back without touching the rest.

In: bytes. Out: a `Text`, whose `plain` form is what models read and match against (no byte order
mark, `\n` at line ends), and new bytes after some spans of the plain form were replaced. What is
not replaced keeps its bytes: mixed line ends, bytes that are no UTF-8, the mark at the beginning.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from toolspan.errors import ToolError

_CRLF_PATTERN = re.compile("\r\n")


class Codec(NamedTuple):
    """How bytes are text."""

    encoding: str
    bom: bytes = b""
    """The byte order mark the file begins with."""

    @property
    def errors(self) -> str:
        """How bytes that are no text survive a round trip."""
        return "surrogateescape" if self.encoding == "utf-8" else "surrogatepass"


_BOM_CODECS = (
    Codec("utf-8", codecs.BOM_UTF8),
    Codec("utf-16-le", codecs.BOM_UTF16_LE),
    Codec("utf-16-be", codecs.BOM_UTF16_BE),
)


class TextRange(NamedTuple):
    """A piece of a plain text, from the first character to the one behind the last."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class DecodedText:
    """A decoded file."""

    raw: str
    """Every character, line ends as they are; encoding it gives the file's bytes back."""
    normalized: str
    codec: Codec

    @property
    def printable(self) -> str:
        """The plain form for records: bytes that are no text are U+FFFD."""
        return replace_undecodable(self.normalized, self.codec)


def detect_codec(data: bytes) -> Codec:
    """The codec that the first bytes tell; UTF-8 when they do not."""
    return next((codec for codec in _BOM_CODECS if data.startswith(codec.bom)), Codec("utf-8"))


def decode_text(data: bytes) -> DecodedText:
    """The text of a whole content.

    Raises:
        ToolError: the bytes are UTF-16 with half a character at the end: no exact text exists.
    """
    codec = detect_codec(data)
    try:
        raw = data[len(codec.bom) :].decode(codec.encoding, codec.errors)
    except UnicodeDecodeError as error:
        raise ToolError(f"The file begins as UTF-16 text but is none at byte {error.start}: {error.reason}") from error
    return DecodedText(raw, normalize_newlines(raw), codec)


def encode_text(raw: str, codec: Codec) -> bytes:
    """The bytes of a text with its mark."""
    return codec.bom + raw.encode(codec.encoding, codec.errors)


def normalize_newlines(raw: str) -> str:
    r"""The text with `\n` for every `\r\n`."""
    return raw.replace("\r\n", "\n") if "\r" in raw else raw


def replace_undecodable(text: str, codec: Codec) -> str:
    """The text with U+FFFD for what is not a character."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode(codec.encoding, codec.errors).decode(codec.encoding, "replace")
    return text


def replace_ranges(text: DecodedText, ranges: Sequence[TextRange], new: str) -> DecodedText:
    """The text with each of the plain spans replaced; they are in order and do not overlap.

    Line ends in `new` become those of the lines it replaces, or else those most lines have.
    """
    newline_positions = [match.start() - index for index, match in enumerate(_CRLF_PATTERN.finditer(text.raw))]
    pieces: list[str] = []
    position = 0
    for text_range in ranges:
        # A plain position is off by the carriage returns that were left out before it.
        start = text_range.start + bisect_left(newline_positions, text_range.start)
        end = text_range.end + bisect_left(newline_positions, text_range.end)
        pieces += (text.raw[position:start], _with_newlines_of(new, text.raw[start:end], text.raw))
        position = end
    raw = "".join((*pieces, text.raw[position:]))
    return DecodedText(raw, normalize_newlines(raw), text.codec)


def match_newlines(text: DecodedText, content: str) -> str:
    r"""A whole new content with the line ends of the old text, when that has only `\r\n`."""
    count = text.raw.count("\r\n")
    is_uniform = count > 0 and count == text.raw.count("\n")
    return content.replace("\n", "\r\n") if is_uniform and "\r\n" not in content else content


def _with_newlines_of(new: str, replaced: str, raw: str) -> str:
    if "\n" not in new:
        return new
    sample = replaced if "\n" in replaced else raw
    uses_crlf = 2 * sample.count("\r\n") > sample.count("\n")
    return normalize_newlines(new).replace("\n", "\r\n") if uses_crlf else new


_STRAIGHT_QUOTES = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'"})
_CURLY_DOUBLE = re.compile("[“”]")
_CURLY_SINGLE = re.compile("[‘’]")
_OPENS_AFTER = frozenset(" \t\n\r([{—–“‘")
"""A quote behind one of these, or at the beginning, opens; any other closes."""


def find_occurrences(text: str, needle: str) -> list[TextRange]:
    """Every place where the text stands; straight quotes match curly ones if nothing else fits."""
    return _find_exact(text, needle) or _find_exact(
        text.translate(_STRAIGHT_QUOTES), needle.translate(_STRAIGHT_QUOTES)
    )


def match_quote_style(new: str, replaced: str) -> str:
    """The new text with curly quotes of the kinds that the replaced text has."""
    if _CURLY_DOUBLE.search(replaced):
        new = _curl_quotes(new, '"', "“", "”")
    if _CURLY_SINGLE.search(replaced):
        new = _curl_quotes(new, "'", "‘", "’")
    return new


def _find_exact(text: str, needle: str) -> list[TextRange]:
    ranges: list[TextRange] = []
    at = text.find(needle)
    while at >= 0:
        ranges.append(TextRange(at, at + len(needle)))
        at = text.find(needle, at + len(needle))
    return ranges


def _curl_quotes(text: str, straight: str, opening: str, closing: str) -> str:
    def replace_quote(match: re.Match[str]) -> str:
        at = match.start()
        return opening if at == 0 or text[at - 1] in _OPENS_AFTER else closing

    return re.sub(straight, replace_quote, text)
