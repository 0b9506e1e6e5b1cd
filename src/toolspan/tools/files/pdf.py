"""Count and extract the pages of PDF documents.

The functions block; tools call them in a worker thread.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

from toolspan.errors import ToolError

MAX_PAGES = 20
MAX_WHOLE_PAGES = 100
"""The maximum number of pages in a whole document that a model's server accepts."""
_SMALL_BYTES = 100 << 10
"""The size below which a document is assumed to have no more than `MAX_WHOLE_PAGES` pages."""
_PAGE_RANGE = re.compile(r"\s*(\d{1,6})\s*(?:(-)\s*(\d{1,6})?)?\s*")


@dataclass(frozen=True, slots=True)
class PageRange:
    """A range of pages counted from 1. If `last` is None, it extends to the end of the document."""

    first: int
    last: int | None

    @classmethod
    def parse(cls, text: str) -> PageRange | None:
        """Parse `3`, `1-5` or `10-`, or return None for anything else."""
        match = _PAGE_RANGE.fullmatch(text)
        if match is None or int(match[1]) < 1:
            return None
        first = int(match[1])
        last = first if match[2] is None else (int(match[3]) if match[3] else None)
        return None if last is not None and last < first else cls(first, last)


@dataclass(frozen=True, slots=True)
class ExtractedPages:
    """Pages extracted from a document."""

    pages: tuple[bytes, ...]
    combined: bytes


def extract_pages(data: bytes, pages: PageRange) -> ExtractedPages:
    """Extract the pages in the range that exist, up to `MAX_PAGES`.

    Raise ToolError if the document is damaged, or ends before the first page of the range.
    """
    from pypdf import PdfReader, PdfWriter

    def write_pages(numbers: Sequence[int]) -> bytes:
        writer = PdfWriter()
        for number in numbers:
            writer.add_page(reader.pages[number])
        out = io.BytesIO()
        writer.write(out)
        return out.getvalue()

    try:
        reader = PdfReader(io.BytesIO(data))
        count = len(reader.pages)
        if pages.first > count:
            raise ToolError(
                f"The document has {count} pages, so page {pages.first} does not exist.", kind="invalid_input"
            )
        numbers = range(pages.first - 1, min(count, pages.last or count, pages.first + MAX_PAGES - 1))
        return ExtractedPages(tuple(write_pages([number]) for number in numbers), write_pages(numbers))
    except ToolError:
        raise
    except Exception as error:  # damaged documents make the parser fail in many ways
        raise ToolError(f"The PDF cannot be read: {error}", kind="invalid_input") from error


def excess_page_count(data: bytes) -> int | None:
    """Return the number of pages if it exceeds `MAX_WHOLE_PAGES`, and otherwise None."""
    if len(data) < _SMALL_BYTES:
        return None
    from pypdf import PdfReader

    try:
        count = len(PdfReader(io.BytesIO(data)).pages)
    except Exception:  # noqa: BLE001 - see above; the server may still be able to read it
        return None
    return count if count > MAX_WHOLE_PAGES else None
