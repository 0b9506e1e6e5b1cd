"""Pages of a PDF.

In: a document's bytes, and which pages. Out: those pages, each as a document of its own and all as
one. Blocking; tools call it in a worker thread.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolspan.errors import ToolError

if TYPE_CHECKING:
    from pypdf import PdfReader, PdfWriter


MAX_PAGES = 20
"""That can be asked for at once."""
MAX_WHOLE_PAGES = 100
"""Pages of a document that is sent whole."""
_SMALL_BYTES = 100 << 10
"""Bytes that cannot hold more than `MOST_WHOLE` pages worth counting."""
_PAGE_RANGE = re.compile(r"\s*(\d{1,6})\s*(?:(-)\s*(\d{1,6})?)?\s*")


@dataclass(frozen=True, slots=True)
class PageRange:
    """From one page to another, counted from 1; no last one means to the end."""

    first: int
    last: int | None

    @classmethod
    def parse(cls, text: str) -> PageRange | None:
        """The range in `3`, `1-5` or `10-`; None when it is none."""
        match = _PAGE_RANGE.fullmatch(text)
        if match is None or int(match[1]) < 1:
            return None
        first = int(match[1])
        last = first if match[2] is None else (int(match[3]) if match[3] else None)
        return None if last is not None and last < first else cls(first, last)

    @property
    def has_too_many_pages(self) -> bool:
        """More than can be had at once."""
        return self.last is not None and self.last - self.first >= MAX_PAGES


@dataclass(frozen=True, slots=True)
class ExtractedPages:
    """Some pages of a document."""

    pages: tuple[bytes, ...]
    """Each as a document."""
    combined: bytes
    """All as one document."""


def extract_pages(data: bytes, pages: PageRange) -> ExtractedPages:
    """The pages that are asked for, as far as there are such.

    Raises:
        ToolError: the document cannot be read, or ends before the first of them.
    """
    try:
        return _extract_page_range(data, pages)
    except ToolError:
        raise
    except Exception as error:  # broken documents break a parser in many ways
        raise ToolError(f"The PDF cannot be read: {error}", kind="invalid_input") from error


def _extract_page_range(data: bytes, pages: PageRange) -> ExtractedPages:
    from pypdf import PdfReader, PdfWriter

    reader = PdfReader(io.BytesIO(data))
    count = len(reader.pages)
    if pages.first > count:
        raise ToolError(f"The document has {count} pages; there is no page {pages.first}.", kind="invalid_input")
    last = min(count, pages.last or count, pages.first + MAX_PAGES - 1)
    numbers = range(pages.first - 1, last)
    return ExtractedPages(
        tuple(_write_pages(reader, [number], PdfWriter()) for number in numbers),
        _write_pages(reader, numbers, PdfWriter()),
    )


def _write_pages(reader: PdfReader, numbers: range | list[int], writer: PdfWriter) -> bytes:
    for number in numbers:
        writer.add_page(reader.pages[number])
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def excess_page_count(data: bytes) -> int | None:
    """The number of pages, when a model's server would not take so many; else None."""
    if len(data) < _SMALL_BYTES:
        return None
    from pypdf import PdfReader

    try:
        count = len(PdfReader(io.BytesIO(data)).pages)
    except Exception:  # noqa: BLE001 - as above; the server may still read it
        return None
    return count if count > MAX_WHOLE_PAGES else None
