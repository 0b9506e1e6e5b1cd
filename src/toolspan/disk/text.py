r"""A file's bytes as text that can be changed and written back without touching the rest.

In: bytes. Out: a `Text`, whose `plain` form is what models read and match against (no byte order
mark, `\n` at line ends), and new bytes after some spans of the plain form were replaced. What is
not replaced keeps its bytes: mixed line ends, bytes that are no UTF-8, the mark at the beginning.
"""

import codecs
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from toolspan.errors import ToolError

_CRLF = re.compile("\r\n")


class Codec(NamedTuple):
    """How bytes are text."""

    encoding: str
    mark: bytes = b""
    """The byte order mark the file begins with."""

    @property
    def errors(self) -> str:
        """How bytes that are no text survive a round trip."""
        return "surrogateescape" if self.encoding == "utf-8" else "surrogatepass"


_MARKED = (
    Codec("utf-8", codecs.BOM_UTF8),
    Codec("utf-16-le", codecs.BOM_UTF16_LE),
    Codec("utf-16-be", codecs.BOM_UTF16_BE),
)


class Span(NamedTuple):
    """A piece of a plain text, from the first character to the one behind the last."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Text:
    """A decoded file."""

    raw: str
    """Every character, line ends as they are; encoding it gives the file's bytes back."""
    plain: str
    codec: Codec

    @property
    def shown(self) -> str:
        """The plain form for records: bytes that are no text are U+FFFD."""
        return shown(self.plain, self.codec)


def sniff(data: bytes) -> Codec:
    """The codec that the first bytes tell; UTF-8 when they do not."""
    return next((codec for codec in _MARKED if data.startswith(codec.mark)), Codec("utf-8"))


def decode(data: bytes) -> Text:
    """The text of a whole content.

    Raises:
        ToolError: the bytes are UTF-16 with half a character at the end: no exact text exists.
    """
    codec = sniff(data)
    try:
        raw = data[len(codec.mark) :].decode(codec.encoding, codec.errors)
    except UnicodeDecodeError as error:
        raise ToolError(
            f"The file begins as UTF-16 text but is none at byte {error.start}: {error.reason}"
        ) from error
    return Text(raw, plain(raw), codec)


def encode(raw: str, codec: Codec) -> bytes:
    """The bytes of a text with its mark."""
    return codec.mark + raw.encode(codec.encoding, codec.errors)


def plain(raw: str) -> str:
    r"""The text with `\n` for every `\r\n`."""
    return raw.replace("\r\n", "\n") if "\r" in raw else raw


def shown(text: str, codec: Codec) -> str:
    """The text with U+FFFD for what is not a character."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode(codec.encoding, codec.errors).decode(codec.encoding, "replace")
    return text


def spliced(text: Text, spans: Sequence[Span], new: str) -> Text:
    """The text with each of the plain spans replaced; they are in order and do not overlap.

    Line ends in `new` become those of the lines it replaces, or else those most lines have.
    """
    ends = [found.start() - nth for nth, found in enumerate(_CRLF.finditer(text.raw))]
    pieces: list[str] = []
    done = 0
    for span in spans:
        # A plain position is off by the carriage returns that were left out before it.
        start = span.start + bisect_left(ends, span.start)
        end = span.end + bisect_left(ends, span.end)
        pieces += (text.raw[done:start], _with_ends(new, text.raw[start:end], text.raw))
        done = end
    raw = "".join((*pieces, text.raw[done:]))
    return Text(raw, plain(raw), text.codec)


def like(text: Text, content: str) -> str:
    r"""A whole new content with the line ends of the old text, when that has only `\r\n`."""
    count = text.raw.count("\r\n")
    uniform = count > 0 and count == text.raw.count("\n")
    return content.replace("\n", "\r\n") if uniform and "\r\n" not in content else content


def _with_ends(new: str, replaced: str, raw: str) -> str:
    if "\n" not in new:
        return new
    sample = replaced if "\n" in replaced else raw
    carriage = 2 * sample.count("\r\n") > sample.count("\n")
    return plain(new).replace("\n", "\r\n") if carriage else new
