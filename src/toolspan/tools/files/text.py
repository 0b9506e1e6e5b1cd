r"""Decode a file so that parts of it can be replaced without changing the rest.

`DecodedText.normalized` is the text that models read and match against: no byte order mark, `\n` as line ending.
Everything outside a replaced range keeps its bytes: mixed line endings, invalid UTF-8, the byte order mark.
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
BYTE_ORDER_MARK = "\ufeff"


_HEAD_BYTES = 8192
_NEWLINE_SAMPLE = 4096
"""The number of characters at the start of a text that determine its line ending."""


class Codec(NamedTuple):
    """A file's encoding and byte order mark."""

    encoding: str
    bom: bytes = b""

    @property
    def errors(self) -> str:
        """The error handler that preserves invalid bytes in a round trip."""
        return "surrogateescape" if self.encoding == "utf-8" else "surrogatepass"


_BOM_CODECS = (
    Codec("utf-8", codecs.BOM_UTF8),
    Codec("utf-16-le", codecs.BOM_UTF16_LE),
    Codec("utf-16-be", codecs.BOM_UTF16_BE),
)


class TextRange(NamedTuple):
    """A range of characters in normalized text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class DecodedText:
    """The decoded text of a file."""

    raw: str
    """All characters with their line endings. Encoding them yields the file's bytes."""
    normalized: str
    codec: Codec

    @property
    def printable(self) -> str:
        """The normalized text with U+FFFD in place of invalid bytes."""
        return replace_undecodable(self.normalized, self.codec)

    def to_record(self, *, raw: bool = False) -> str:
        """Return the text as clients record it: with its byte order mark; with `raw`, also with its line endings."""
        text = replace_undecodable(self.raw, self.codec) if raw else self.printable
        return (BYTE_ORDER_MARK if self.codec.bom else "") + text


def detect_codec(data: bytes) -> Codec:
    """Return the codec indicated by the byte order mark, or UTF-8 if there is none."""
    return next((codec for codec in _BOM_CODECS if data.startswith(codec.bom)), Codec("utf-8"))


def decode_text(data: bytes) -> DecodedText:
    """Decode a whole file. Raise ToolError if the file has a UTF-16 mark but is not valid UTF-16."""
    codec = detect_codec(data)
    try:
        raw = data[len(codec.bom) :].decode(codec.encoding, codec.errors)
    except UnicodeDecodeError as error:
        raise ToolError(
            f"The file begins like UTF-16 text, but is not valid UTF-16 at byte {error.start}: {error.reason}"
        ) from error
    return DecodedText(raw, normalize_newlines(raw), codec)


def encode_text(raw: str, codec: Codec) -> bytes:
    """Encode text, including its byte order mark."""
    return codec.bom + raw.encode(codec.encoding, codec.errors)


def normalize_newlines(raw: str) -> str:
    r"""Replace every `\r\n` with `\n`."""
    return raw.replace("\r\n", "\n") if "\r" in raw else raw


def prevails_crlf(raw: str) -> bool:
    r"""Return whether more lines at the start of a text end with `\r\n` than with `\n`."""
    sample = raw[:_NEWLINE_SAMPLE]
    return 2 * sample.count("\r\n") > sample.count("\n")


def replace_undecodable(text: str, codec: Codec) -> str:
    """Replace escaped invalid bytes with U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode(codec.encoding, codec.errors).decode(codec.encoding, "replace")
    return text


def replace_ranges(text: DecodedText, ranges: Sequence[TextRange], new: str, *, unify: bool = False) -> DecodedText:
    r"""Replace each range with `new`. The ranges must be in order and must not overlap.

    Line endings in `new` become those of the lines it replaces, or else the most common ones in the text. With
    `unify`, all lines get the ending that prevails at the start of the text; if that is `\n`, the endings in `new`
    are kept.
    """
    if unify:
        return _unify_newlines(text, ranges, new)
    newline_positions = [match.start() - index for index, match in enumerate(_CRLF_PATTERN.finditer(text.raw))]
    pieces: list[str] = []
    position = 0
    for text_range in ranges:
        # Normalized positions lack the carriage returns that were removed before them.
        start = text_range.start + bisect_left(newline_positions, text_range.start)
        end = text_range.end + bisect_left(newline_positions, text_range.end)
        replaced = text.raw[start:end]
        sample = replaced if "\n" in replaced else text.raw
        uses_crlf = 2 * sample.count("\r\n") > sample.count("\n")
        written = normalize_newlines(new).replace("\n", "\r\n") if "\n" in new and uses_crlf else new
        pieces += (text.raw[position:start], written)
        position = end
    raw = "".join((*pieces, text.raw[position:]))
    return DecodedText(raw, normalize_newlines(raw), text.codec)


def _unify_newlines(text: DecodedText, ranges: Sequence[TextRange], new: str) -> DecodedText:
    pieces: list[str] = []
    position = 0
    for start, end in ranges:
        pieces += (text.normalized[position:start], new)
        position = end
    raw = "".join((*pieces, text.normalized[position:]))
    if prevails_crlf(text.raw):
        raw = normalize_newlines(raw).replace("\n", "\r\n")
    return DecodedText(raw, normalize_newlines(raw), text.codec)


def find_encoding_problem(data: bytes) -> str | None:
    """Return the reason why a file cannot be changed without changing its encoding, or None if it can."""
    codec = detect_codec(data)
    if codec.encoding == "utf-16-le":
        return None
    if codec.encoding == "utf-16-be":
        return "is UTF-16 big-endian (it starts FE FF), which these tools cannot write."
    if b"\0" in data[:_HEAD_BYTES]:
        return (
            "has NUL bytes in its first 8 KB: binary data, UTF-16/UTF-32 without a byte-order mark, or text with"
            " embedded NULs."
        )
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return "is not valid UTF-8: it uses a legacy encoding such as Windows-1252, Shift-JIS or GBK, or it is binary."
    return None


def match_newlines(text: DecodedText, content: str) -> str:
    r"""Return the content with `\r\n` line endings if the old text has no others."""
    count = text.raw.count("\r\n")
    is_uniform = count > 0 and count == text.raw.count("\n")
    return content.replace("\n", "\r\n") if is_uniform and "\r\n" not in content else content


_STRAIGHT_QUOTES = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'"})
_OPENING_PLACE = r"(?<![^ \t\n\r([{—–“‘])"
"""The places where a quote is an opening quote: at the start of the text and after these characters."""


def find_occurrences(text: str, needle: str) -> list[TextRange]:
    """Return all occurrences of `needle`. If there are none, straight and curly quotes match each other."""
    return _find_exact(text, needle) or _find_exact(
        text.translate(_STRAIGHT_QUOTES), needle.translate(_STRAIGHT_QUOTES)
    )


def _find_exact(text: str, needle: str) -> list[TextRange]:
    ranges: list[TextRange] = []
    at = text.find(needle)
    while at >= 0:
        ranges.append(TextRange(at, at + len(needle)))
        at = text.find(needle, at + len(needle))
    return ranges


def match_quote_style(new: str, replaced: str) -> str:
    """Convert the quotes in `new` to curly quotes if the replaced text has them."""
    for straight, opening, closing in (('"', "“", "”"), ("'", "‘", "’")):
        if opening in replaced or closing in replaced:
            new = re.sub(_OPENING_PLACE + straight, opening, new).replace(straight, closing)
    return new
