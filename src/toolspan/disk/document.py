"""Pages of a PDF.

In: a document's bytes, and which pages. Out: those pages, each as a document of its own and all as
one. Blocking; tools call it in a worker thread.
"""

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolspan.errors import ToolError

if TYPE_CHECKING:
    from pypdf import PdfReader, PdfWriter

MOST_PAGES = 20
"""That can be asked for at once."""
MOST_WHOLE = 100
"""Pages of a document that is sent whole."""
_SMALL = 100 << 10
"""Bytes that cannot hold more than `MOST_WHOLE` pages worth counting."""
_RANGE = re.compile(r"\s*(\d{1,6})\s*(?:(-)\s*(\d{1,6})?)?\s*")


@dataclass(frozen=True, slots=True)
class Pages:
    """From one page to another, counted from 1; no last one means to the end."""

    first: int
    last: int | None

    @classmethod
    def parse(cls, text: str) -> "Pages | None":
        """The range in `3`, `1-5` or `10-`; None when it is none."""
        found = _RANGE.fullmatch(text)
        if found is None or int(found[1]) < 1:
            return None
        first = int(found[1])
        last = first if found[2] is None else (int(found[3]) if found[3] else None)
        return None if last is not None and last < first else cls(first, last)

    @property
    def too_many(self) -> bool:
        """More than can be had at once."""
        return self.last is not None and self.last - self.first >= MOST_PAGES


@dataclass(frozen=True, slots=True)
class Extract:
    """Some pages of a document."""

    pages: tuple[bytes, ...]
    """Each as a document."""
    whole: bytes
    """All as one document."""


def extract(data: bytes, pages: Pages) -> Extract:
    """The pages that are asked for, as far as there are such.

    Raises:
        ToolError: the document cannot be read, or ends before the first of them.
    """
    try:
        return _extract(data, pages)
    except ToolError:
        raise
    except Exception as error:  # broken documents break a parser in many ways
        raise ToolError(f"The PDF cannot be read: {error}", kind="invalid_input") from error


def _extract(data: bytes, pages: Pages) -> Extract:
    from pypdf import PdfReader, PdfWriter

    reader = PdfReader(io.BytesIO(data))
    count = len(reader.pages)
    if pages.first > count:
        raise ToolError(
            f"The document has {count} pages; there is no page {pages.first}.",
            kind="invalid_input",
        )
    last = min(count, pages.last or count, pages.first + MOST_PAGES - 1)
    numbers = range(pages.first - 1, last)
    return Extract(
        tuple(_written(reader, [number], PdfWriter()) for number in numbers),
        _written(reader, numbers, PdfWriter()),
    )


def _written(reader: "PdfReader", numbers: "range | list[int]", writer: "PdfWriter") -> bytes:
    for number in numbers:
        writer.add_page(reader.pages[number])
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def is_too_long(data: bytes) -> int | None:
    """The number of pages, when a model's server would not take so many; else None."""
    if len(data) < _SMALL:
        return None
    from pypdf import PdfReader

    try:
        count = len(PdfReader(io.BytesIO(data)).pages)
    except Exception:  # noqa: BLE001 - as above; the server may still read it
        return None
    return count if count > MOST_WHOLE else None
