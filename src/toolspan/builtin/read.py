"""Read: the lines of a text file, an image, a PDF or a notebook.

In: a path and perhaps a range of lines. Out: what the model reads and what is recorded, and a mark
in the file states that the conversation has seen the file. `_read` tells the story.
"""

import base64
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from anyio import to_thread
from msgspec import structs

from toolspan.disk import notebook
from toolspan.disk.document import MOST_PAGES, Pages, extract, is_too_long
from toolspan.disk.load import Loaded, Stamp, is_plain, load, look, opened
from toolspan.disk.picture import MEDIA_TYPES, Picture, picture
from toolspan.disk.place import lock_name, meant, real
from toolspan.disk.scale import Fitted, fitted
from toolspan.disk.window import Range, Window, window
from toolspan.disk.words import clean, numbered, size_text
from toolspan.errors import ToolError
from toolspan.profile import FileValues, Profile
from toolspan.run.change import path_of
from toolspan.run.context import ToolContext
from toolspan.run.files import FileState
from toolspan.run.limits import file_name
from toolspan.run.tool import Output, Refusal, Tool
from toolspan.schema.check import checker
from toolspan.schema.issue import Invalid, Valid

MOST_TEXT = 256 << 10
MOST_LARGE = 16 << 20
"""What `allow_large` allows."""
MOST_DOCUMENT = 32 << 20
_HEAD = 8192
_UNCHANGED = (
    "Wasted call — file unchanged since your last Read. Refer to that earlier tool_result instead."
)
_BAD_BYTES = (
    "\n\n[This file has bytes that are not valid text in its encoding; each is shown as \ufffd.]"
)
_DESCRIPTION = """\
Show a file. Text comes with line numbers, from `offset` on and `limit` lines long when these are
given; images, PDF documents and Jupyter notebooks come as what they are. Very large files need a
range. Paths are absolute, or relative to the current folder."""

_BINARY = frozenset({
    ".7z", ".a", ".avi", ".bin", ".bmp", ".bz2", ".class", ".dat", ".db", ".dll", ".dmg", ".doc",
    ".docx", ".dylib", ".eot", ".exe", ".flac", ".gz", ".ico", ".iso", ".jar", ".lib", ".m4a",
    ".mkv", ".mov", ".mp3", ".mp4", ".o", ".obj", ".ogg", ".otf", ".parquet", ".pkl", ".ppt",
    ".pptx", ".pyc", ".pyo", ".rar", ".so", ".sqlite", ".sqlite3", ".tar", ".tgz", ".tiff", ".ttf",
    ".wasm", ".wav", ".webm", ".woff", ".woff2", ".xls", ".xlsx", ".xz", ".zip", ".zst",
})  # fmt: skip


def read_tool(profile: Profile) -> Tool:
    """Read as a client version has it."""
    schema = _schema(profile.files)
    check = checker(schema, coerce=profile.offer.coerces)

    def parse(given: Mapping[str, object]) -> Valid | Invalid:
        return check(_sound_range(given) if profile.files.odd_range == "dropped" else given)

    return Tool(
        name="Read",
        description=_DESCRIPTION,
        input_schema=schema,
        parse=parse,
        run=_run,
        validate=_validate,
        concurrent=True,
        read_only=True,
        idempotent=True,
        output_limit=None,  # what is read is bounded by itself, and must not be spilled to a file
        paths=lambda value: frozenset({lock_name(value["file_path"])}),
    )


def _schema(values: FileValues) -> dict[str, object]:
    number = "integer" if values.whole_numbers else "number"
    offset: dict[str, object] = {"type": number, "description": "The first line to show"}
    limit: dict[str, object] = {"type": number, "description": "How many lines to show"}
    if values.odd_range == "dropped":
        offset["minimum"] = 0
        limit["exclusiveMinimum"] = 0
    extra: dict[str, object] = {
        "pages": {"type": "string", "description": "Pages of a PDF, such as 1-5"},
        "allow_large": {"type": "boolean", "description": "Show a large file whole all the same"},
    }
    return {
        "type": "object",
        "properties": {
            "file_path": {"type": "string", "description": "The file to read"},
            "offset": offset,
            "limit": limit,
            **{name: one for name, one in extra.items() if name in values.extra_inputs},
        },
        "required": ["file_path"],
        "additionalProperties": False,
    }


def _sound_range(given: Mapping[str, object]) -> Mapping[str, object]:
    """The input without a range that makes no sense, which clients overlook."""
    least = {"offset": 0, "limit": 1}
    odd = {name for name, low in least.items() if _below(given.get(name), low)}
    return {name: value for name, value in given.items() if name not in odd} if odd else given


def _below(value: object, low: int) -> bool:
    if isinstance(value, str) and value.removeprefix("-").isdecimal():
        value = int(value)
    return isinstance(value, int | float) and not isinstance(value, bool) and value < low


@dataclass(frozen=True, slots=True)
class _Question:
    """What is asked: a file as named and as placed, and which lines."""

    name: str
    path: Path
    offset: int
    limit: int | None
    pages: str | None
    large: bool
    values: FileValues

    @property
    def whole(self) -> bool:
        return self.offset in (0, 1) and self.limit is None

    @property
    def range(self) -> Range:
        skip = self.offset - 1 if self.offset else 0
        if self.values.odd_range != "from_end":
            skip = max(0, skip)
        return Range(skip, None if self.limit is None else max(0, self.limit))


def _question(value: Mapping[str, object], ctx: ToolContext) -> _Question:
    values = ctx.profile.files
    name = str(value["file_path"])
    first = _whole(value.get("offset"))
    pages = value.get("pages")
    return _Question(
        name=clean(name),
        path=path_of(name, ctx),
        offset=1 if first is None or (first == 0 and values.zero_is_first) else first,
        limit=_whole(value.get("limit")),
        pages=pages if isinstance(pages, str) else None,
        large=value.get("allow_large") is True,
        values=values,
    )


def _whole(value: object) -> int | None:
    if isinstance(value, int | float) and math.isfinite(value):
        return int(value)
    return None


async def _validate(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    return await to_thread.run_sync(partial(_refusal, value, ctx), abandon_on_cancel=True)


def _refusal(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    question = _question(value, ctx)
    early = question.values.checks_early
    if question.pages is not None and (refusal := _odd_pages(question.pages)):
        return refusal
    found = look(question.path)
    if found is None:
        return _missing(question, ctx) if early else None
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
    return _oversize(question, found.st_size) if early else None


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


def _missing(question: _Question, ctx: ToolContext) -> Refusal:
    text = question.values.read_missing.format(cwd=ctx.cwd, path=question.name)
    other = meant(question.path)
    return Refusal(text + (f" Did you mean {other}?" if other else ""), "not_found")


def _error(refusal: Refusal) -> ToolError:
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


def _oversize(question: _Question, size: int) -> Refusal | None:
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


async def _run(value: Mapping[str, object], ctx: ToolContext) -> Output:
    shown = await to_thread.run_sync(partial(_read, value, ctx), abandon_on_cancel=True)
    _remember(shown, ctx)  # here, since a cancelled Read has shown nothing
    return shown.output


@dataclass(frozen=True, slots=True)
class _Shown:
    """What is told of a file, and which content that was."""

    question: _Question
    output: Output
    digest: str
    stamp: Stamp


def _read(value: Mapping[str, object], ctx: ToolContext) -> _Shown:
    question = _question(value, ctx)
    found = look(question.path)
    if found is None:
        raise _error(_missing(question, ctx))
    if stat.S_ISDIR(found.st_mode):
        text = question.values.unreadable_folder.format(path=clean(str(question.path)))
        raise ToolError(text, kind="is_directory")
    ending = question.path.suffix.lower()
    if ending in MEDIA_TYPES:
        return _image(question)
    if ending == ".pdf":
        return _document(question) if question.pages is None else _pages(question, ctx)
    if ending == ".ipynb":
        return _notebook(question)
    if refusal := _oversize(question, found.st_size):
        raise _error(refusal)
    return _text(question, ctx)


def _text(question: _Question, ctx: ToolContext) -> _Shown:
    values = question.values
    most = MOST_LARGE if question.large else MOST_TEXT
    seen = window(question.path, question.range, most, utf16=values.decodes_utf16)
    before = ctx.files.get(question.path)
    if values.tells_unchanged and _same(before, question, seen):
        pointer = {"type": "file_unchanged", "file": {"filePath": question.name}}
        return _Shown(question, Output(_UNCHANGED, pointer), seen.digest, seen.stamp)
    record = {
        "type": "text",
        "file": {
            "filePath": question.name,
            "content": seen.text,
            "numLines": seen.lines,
            "startLine": question.offset,
            "totalLines": seen.total,
        },
    }
    return _Shown(question, Output(_told(question, seen), record), seen.digest, seen.stamp)


def _same(before: FileState | None, question: _Question, seen: Window) -> bool:
    """Whether the last thing the conversation saw of the file are these lines, by a Read."""
    if before is None or before.range is None:
        return False
    return before.digest == seen.digest and before.range == (question.offset, question.limit)


def _told(question: _Question, seen: Window) -> str:
    values = question.values
    nothing = seen.stamp.size == 0
    if not seen.text and (nothing or seen.lines == 0):
        warning = values.empty if nothing and question.offset <= 1 else values.beyond
        text = warning.format(offset=question.offset, lines=seen.total)
        return f"<system-reminder>{text}</system-reminder>"
    text = numbered(seen.text.split("\n"), question.offset, values.numbering)
    return text + (_BAD_BYTES if seen.bad_bytes and values.tells_bad_bytes else "")


def _remember(shown: _Shown, ctx: ToolContext) -> None:
    question = shown.question
    state = FileState(
        digest=shown.digest,
        mtime_ns=shown.stamp.mtime_ns,
        size=shown.stamp.size,
        whole=question.whole,
        call_id=ctx.call.id,
        range=(question.offset, question.limit),
    )
    ctx.files.saw(question.path, state)
    target = real(question.path)
    if target != question.path:  # by its own name no lines were shown, so no range
        ctx.files.saw(target, replace(state, range=None))


def _image(question: _Question) -> _Shown:
    loaded = load(question.path, MOST_DOCUMENT)
    found = picture(loaded.data)
    if found is None and question.values.checks_images:
        raise ToolError(
            "File has an image extension but its content is not a valid PNG/JPEG/GIF/WebP."
            f" It begins with {loaded.data[:16]!r}.",
            kind="invalid_input",
        )
    if found is None:
        media_type = MEDIA_TYPES[question.path.suffix.lower()]
        output = _pictured(loaded.data, media_type, {"originalSize": len(loaded.data)})
    else:
        output = _fitted(question, loaded.data, found)
    return _Shown(question, output, loaded.digest, loaded.stamp)


def _fitted(question: _Question, data: bytes, found: Picture) -> Output:
    sent = fitted(data, found)
    output = _pictured(
        sent.data,
        sent.media_type,
        {
            "originalSize": len(data),
            "dimensions": _dimensions(found, sent, plain=question.values.plain_dimensions),
        },
    )
    if (sent.width, sent.height) == (found.width, found.height):
        return output
    note = (
        f"[Image: original {found.width}x{found.height}, displayed at {sent.width}x{sent.height}."
        f" Multiply coordinates by {found.width / sent.width:.2f} to map to original image.]"
    )
    if question.values.scale_note_inline and isinstance(output.content, list):
        return structs.replace(output, content=[{"type": "text", "text": note}, *output.content])
    return structs.replace(output, companions=(note,))


def _pictured(data: bytes, media_type: str, more: Mapping[str, object]) -> Output:
    text = base64.b64encode(data).decode("ascii")
    source = {"type": "base64", "data": text, "media_type": media_type}
    record = {"type": "image", "file": {"base64": text, "type": media_type, **more}}
    return Output([{"type": "image", "source": source}], record)


def _dimensions(found: Picture, sent: Fitted, *, plain: bool) -> dict[str, int]:
    if plain:
        return {"width": found.width, "height": found.height}
    return {
        "originalWidth": found.width,
        "originalHeight": found.height,
        "displayWidth": sent.width,
        "displayHeight": sent.height,
    }


def _document(question: _Question) -> _Shown:
    loaded = _loaded_document(question)
    if count := is_too_long(loaded.data):
        raise ToolError(
            f"The document has {count} pages, too many to be read at once. Ask for some of them"
            f" with `pages`, {MOST_PAGES} at most.",
            kind="too_large",
        )
    size = len(loaded.data)
    block, data = _document_block(loaded.data)
    record = {
        "type": "pdf",
        "file": {"filePath": question.name, "base64": data, "originalSize": size},
    }
    text = f"PDF file read: {question.name} ({size_text(size)})"
    output = _beside(question, text, block, record)
    return _Shown(question, output, loaded.digest, loaded.stamp)


def _pages(question: _Question, ctx: ToolContext) -> _Shown:
    """Some pages: in the conversation as one document, on the disk as one each."""
    loaded = _loaded_document(question)
    pages = Pages.parse(question.pages or "")
    if pages is None:  # only without the check before the run
        raise ToolError(f"Invalid pages parameter: {question.pages!r}", kind="invalid_input")
    taken = extract(loaded.data, pages)
    folder = ctx.workspace.results_folder / f"pdf-{file_name(ctx.call.id)}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for number, page in enumerate(taken.pages, pages.first):
        (folder / f"page-{number:03}.pdf").write_bytes(page)
    count, size = len(taken.pages), len(loaded.data)
    noun = "page" if count == 1 else "pages"
    text = f"PDF pages extracted: {count} {noun} from {question.name} ({size_text(size)})"
    record = {
        "type": "parts",
        "file": {
            "filePath": question.name,
            "originalSize": size,
            "count": count,
            "outputDir": str(folder),
        },
    }
    output = _beside(question, text, _document_block(taken.whole)[0], record)
    return _Shown(question, output, loaded.digest, loaded.stamp)


def _loaded_document(question: _Question) -> Loaded:
    loaded = load(question.path, MOST_DOCUMENT)
    if not loaded.data.startswith(b"%PDF-"):
        raise ToolError(
            f"{question.name} has the name of a PDF, but its content is none.",
            kind="invalid_input",
        )
    return loaded


def _document_block(document: bytes) -> tuple[dict[str, object], str]:
    data = base64.b64encode(document).decode("ascii")
    source = {"type": "base64", "media_type": "application/pdf", "data": data}
    return {"type": "document", "source": source}, data


def _beside(
    question: _Question, text: str, block: dict[str, object], record: Mapping[str, object]
) -> Output:
    """A text and a document, in the result itself or beside it."""
    if question.values.document_inline:
        return Output([{"type": "text", "text": text}, block], record)
    return Output(text, record, companions=([block],))


def _notebook(question: _Question) -> _Shown:
    loaded = load(question.path, MOST_LARGE)
    cells = notebook.cells(loaded.data)
    record = {
        "type": "notebook",
        "file": {"filePath": question.name, "cells": [cell.record() for cell in cells]},
    }
    output = Output(notebook.blocks(cells), record)
    return _Shown(question, output, loaded.digest, loaded.stamp)
