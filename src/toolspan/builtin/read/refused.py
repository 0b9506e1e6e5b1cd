"""Which files Read does not show, and in which words it says so.

In: a question. Out: a refusal, or None where nothing speaks against it. Looks at files, and reads
no more than their first bytes. Read `validate` first.
"""

import os
import stat
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from anyio import to_thread

from toolspan.builtin.read.asked import Question, question_of
from toolspan.disk.document import MOST_PAGES, Pages
from toolspan.disk.load import is_plain, look, opened
from toolspan.disk.picture import MEDIA_TYPES
from toolspan.disk.place import meant
from toolspan.disk.words import clean, size_text
from toolspan.errors import ToolError
from toolspan.run.context import ToolContext
from toolspan.run.tool import Refusal

MOST_TEXT = 256 << 10
MOST_LARGE = 16 << 20
"""What `allow_large` allows."""
_HEAD = 8192
_BINARY = frozenset({
    ".7z", ".a", ".avi", ".bin", ".bmp", ".bz2", ".class", ".dat", ".db", ".dll", ".dmg", ".doc",
    ".docx", ".dylib", ".eot", ".exe", ".flac", ".gz", ".ico", ".iso", ".jar", ".lib", ".m4a",
    ".mkv", ".mov", ".mp3", ".mp4", ".o", ".obj", ".ogg", ".otf", ".parquet", ".pkl", ".ppt",
    ".pptx", ".pyc", ".pyo", ".rar", ".so", ".sqlite", ".sqlite3", ".tar", ".tgz", ".tiff", ".ttf",
    ".wasm", ".wav", ".webm", ".woff", ".woff2", ".xls", ".xlsx", ".xz", ".zip", ".zst",
})  # fmt: skip


async def validate(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    """Why a file is not shown, before anybody is asked for consent."""
    return await to_thread.run_sync(partial(_refusal, value, ctx), abandon_on_cancel=True)


def _refusal(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    question = question_of(value, ctx)
    early = question.values.checks_early
    if question.pages is not None and (refusal := _odd_pages(question.pages)):
        return refusal
    found = look(question.path)
    if found is None:
        return missing(question, ctx) if early else None
    if stat.S_ISDIR(found.st_mode):
        return None
    if not is_plain(found):
        return Refusal(question.values.device.format(path=question.name), "invalid_input")
    if _is_binary(question.path):
        kind = f"{question.path.suffix} file".lstrip()
        return Refusal(
            "This tool cannot read binary files. The file appears to be a binary"
            f" {clean(kind)}. Look at it with a program that knows its format.",
            "invalid_input",
        )
    return oversize(question, found.st_size) if early else None


def _odd_pages(text: str) -> Refusal | None:
    pages = Pages.parse(text)
    if pages is None:
        return Refusal(
            f'Invalid pages parameter: "{clean(text)}". Use a page or a range, such as 3 or 1-5;'
            " the first page is 1.",
            "invalid_input",
        )
    if pages.too_many:
        return Refusal(
            f'Page range "{clean(text)}" exceeds maximum of {MOST_PAGES} pages per request.',
            "too_large",
        )
    return None


def missing(question: Question, ctx: ToolContext) -> Refusal:
    """There is no such file."""
    text = question.values.read_missing.format(cwd=ctx.cwd, path=question.name)
    other = meant(question.path)
    return Refusal(text + (f" Did you mean {other}?" if other else ""), "not_found")


def error_of(refusal: Refusal) -> ToolError:
    """A refusal as what a tool raises."""
    return ToolError(refusal.text, kind=refusal.kind)


def _is_binary(path: Path) -> bool:
    """By its name, or because its first bytes have a null, which no text but UTF-16 has."""
    ending = path.suffix.lower()
    if ending in _BINARY:
        return True
    if ending in MEDIA_TYPES or ending == ".pdf":
        return False
    try:
        head = _head(path)
    except ToolError:
        return False  # the run will say what is wrong
    return b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff"))


def _head(path: Path) -> bytes:
    with opened(path) as descriptor:
        return os.read(descriptor, _HEAD)


def oversize(question: Question, size: int) -> Refusal | None:
    """The file is too large to be shown whole."""
    if question.limit is not None or _is_whole_kind(question.path):
        return None
    most = MOST_LARGE if question.large else MOST_TEXT
    if size <= most:
        return None
    text = question.values.too_large.format(size=size_text(size), most=size_text(most))
    return Refusal(f"{text} Read a part of it with offset and limit, or search in it.", "too_large")


def _is_whole_kind(path: Path) -> bool:
    """Whether the file is shown as what it is, not as lines."""
    ending = path.suffix.lower()
    return ending in MEDIA_TYPES or ending in (".pdf", ".ipynb")
