"""Read: the lines of a text file, an image, a PDF or a notebook.

In: a path and perhaps a range of lines. Out: what the model reads and what is recorded, and a mark
in the file states that the conversation has seen the file. `_read` tells the story.
"""

from __future__ import annotations

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

from toolspan.errors import ToolError
from toolspan.files.paths import (
    format_size,
    lock_name,
    number_lines,
    real_path,
    replace_surrogates,
    suggest_sibling,
)
from toolspan.files.safe_read import (
    FileVersion,
    LineRange,
    LineWindow,
    LoadedFile,
    is_regular_or_null,
    open_regular_file,
    read_file,
    read_line_range,
    stat_path,
)
from toolspan.runtime.context import FileState, ToolContext
from toolspan.runtime.output_limits import safe_file_name
from toolspan.runtime.profiles import FileValues, Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.tool import Output, Refusal, Tool
from toolspan.tools.files import notebook
from toolspan.tools.files.changes import resolve_tool_path
from toolspan.tools.files.image import MEDIA_TYPES, ImageInfo, ScaledImage, read_image_info, scale_to_limits
from toolspan.tools.files.pdf import MAX_PAGES, PageRange, excess_page_count, extract_pages


def read_schema(values: FileValues) -> dict[str, object]:
    """What a client version lets a model ask."""
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
            **{name: property_schema for name, property_schema in extra.items() if name in values.extra_inputs},
        },
        "required": ["file_path"],
        "additionalProperties": False,
    }


def drop_invalid_range(raw_input: Mapping[str, object]) -> Mapping[str, object]:
    """The input without a range that makes no sense, which clients overlook."""
    least = {"offset": 0, "limit": 1}
    invalid = {name for name, low in least.items() if _is_below(raw_input.get(name), low)}
    return {name: value for name, value in raw_input.items() if name not in invalid} if invalid else raw_input


def _is_below(value: object, minimum: int) -> bool:
    if isinstance(value, str) and value.removeprefix("-").isdecimal():
        value = int(value)
    return isinstance(value, int | float) and not isinstance(value, bool) and value < minimum


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What is asked: a file as named and as placed, and which lines."""

    name: str
    path: Path
    offset: int
    limit: int | None
    pages: str | None
    allow_large: bool
    values: FileValues

    @property
    def is_whole(self) -> bool:
        """Whether all of it is asked for."""
        return self.offset in (0, 1) and self.limit is None

    @property
    def line_range(self) -> LineRange:
        """The lines that are asked for."""
        skip = self.offset - 1 if self.offset else 0
        if self.values.odd_range != "from_end":
            skip = max(0, skip)
        return LineRange(skip, None if self.limit is None else max(0, self.limit))


def parse_read_request(value: Mapping[str, object], ctx: ToolContext) -> ReadRequest:
    """The input as a question."""
    values = ctx.profile.files
    name = str(value["file_path"])
    first = _finite_int(value.get("offset"))
    pages = value.get("pages")
    return ReadRequest(
        name=replace_surrogates(name),
        path=resolve_tool_path(name, ctx),
        offset=1 if first is None or (first == 0 and values.zero_is_first) else first,
        limit=_finite_int(value.get("limit")),
        pages=pages if isinstance(pages, str) else None,
        allow_large=value.get("allow_large") is True,
        values=values,
    )


def _finite_int(value: object) -> int | None:
    if isinstance(value, int | float) and math.isfinite(value):
        return int(value)
    return None


MAX_TEXT_BYTES = 256 << 10
MAX_LARGE_BYTES = 16 << 20
"""What `allow_large` allows."""
_HEAD_BYTES = 8192
_BINARY_SUFFIXES = frozenset({
    ".7z", ".a", ".avi", ".bin", ".bmp", ".bz2", ".class", ".dat", ".db", ".dll", ".dmg", ".doc",
    ".docx", ".dylib", ".eot", ".exe", ".flac", ".gz", ".ico", ".iso", ".jar", ".lib", ".m4a",
    ".mkv", ".mov", ".mp3", ".mp4", ".o", ".obj", ".ogg", ".otf", ".parquet", ".pkl", ".ppt",
    ".pptx", ".pyc", ".pyo", ".rar", ".so", ".sqlite", ".sqlite3", ".tar", ".tgz", ".tiff", ".ttf",
    ".wasm", ".wav", ".webm", ".woff", ".woff2", ".xls", ".xlsx", ".xz", ".zip", ".zst",
})  # fmt: skip


async def validate_read(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    """Why a file is not shown, before anybody is asked for consent."""
    return await to_thread.run_sync(partial(_find_refusal, value, ctx), abandon_on_cancel=True)


def _find_refusal(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    request = parse_read_request(value, ctx)
    early = request.values.checks_early
    if request.pages is not None and (refusal := _check_pages(request.pages)):
        return refusal
    stat_result = stat_path(request.path)
    if stat_result is None:
        return missing_file_refusal(request, ctx) if early else None
    if stat.S_ISDIR(stat_result.st_mode):
        return None
    if not is_regular_or_null(stat_result):
        return Refusal(request.values.device.format(path=request.name), "invalid_input")
    if _is_binary(request.path):
        kind = f"{request.path.suffix} file".lstrip()
        return Refusal(
            "This tool cannot read binary files. The file appears to be a binary"
            f" {replace_surrogates(kind)}. Look at it with a program that knows its format.",
            "invalid_input",
        )
    return oversize_refusal(request, stat_result.st_size) if early else None


def _check_pages(text: str) -> Refusal | None:
    pages = PageRange.parse(text)
    if pages is None:
        return Refusal(
            f'Invalid pages parameter: "{replace_surrogates(text)}". Use a page or a range, such as 3 or 1-5;'
            " the first page is 1.",
            "invalid_input",
        )
    if pages.has_too_many_pages:
        return Refusal(
            f'Page range "{replace_surrogates(text)}" exceeds maximum of {MAX_PAGES} pages per request.', "too_large"
        )
    return None


def missing_file_refusal(request: ReadRequest, ctx: ToolContext) -> Refusal:
    """There is no such file."""
    text = request.values.read_missing.format(cwd=ctx.cwd, path=request.name)
    suggestion = suggest_sibling(request.path)
    return Refusal(text + (f" Did you mean {suggestion}?" if suggestion else ""), "not_found")


def refusal_error(refusal: Refusal) -> ToolError:
    """A refusal as what a tool raises."""
    return ToolError(refusal.text, kind=refusal.kind)


def _is_binary(path: Path) -> bool:
    """By its name, or because its first bytes have a null, which no text but UTF-16 has."""
    ending = path.suffix.lower()
    if ending in _BINARY_SUFFIXES:
        return True
    if ending in MEDIA_TYPES or ending == ".pdf":
        return False
    try:
        head = _read_head(path)
    except ToolError:
        return False  # the run will say what is wrong
    return b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff"))


def _read_head(path: Path) -> bytes:
    with open_regular_file(path) as descriptor:
        return os.read(descriptor, _HEAD_BYTES)


def oversize_refusal(request: ReadRequest, size: int) -> Refusal | None:
    """The file is too large to be shown whole."""
    if request.limit is not None or _is_media_or_notebook(request.path):
        return None
    max_bytes = MAX_LARGE_BYTES if request.allow_large else MAX_TEXT_BYTES
    if size <= max_bytes:
        return None
    text = request.values.too_large.format(size=format_size(size), most=format_size(max_bytes))
    return Refusal(f"{text} Read a part of it with offset and limit, or search in it.", "too_large")


def _is_media_or_notebook(path: Path) -> bool:
    """Whether the file is shown as what it is, not as lines."""
    ending = path.suffix.lower()
    return ending in MEDIA_TYPES or ending in (".pdf", ".ipynb")


@dataclass(frozen=True, slots=True)
class FileView:
    """What is told of a file, and which content that was."""

    request: ReadRequest
    output: Output
    digest: str
    version: FileVersion


_UNCHANGED_MESSAGE = "Wasted call — file unchanged since your last Read. Refer to that earlier tool_result instead."
_BAD_BYTES_NOTE = "\n\n[This file has bytes that are not valid text in its encoding; each is shown as \ufffd.]"


def show_text(request: ReadRequest, ctx: ToolContext) -> FileView:
    """Lines of a text."""
    values = request.values
    max_chars = MAX_LARGE_BYTES if request.allow_large else MAX_TEXT_BYTES
    window = read_line_range(request.path, request.line_range, max_chars, utf16=values.decodes_utf16)
    previous_state = ctx.files.get(request.path)
    if values.reports_unchanged and _is_unchanged(previous_state, request, window):
        pointer = {"type": "file_unchanged", "file": {"filePath": request.name}}
        return FileView(request, Output(_UNCHANGED_MESSAGE, pointer), window.digest, window.version)
    record = {
        "type": "text",
        "file": {
            "filePath": request.name,
            "content": window.text,
            "numLines": window.line_count,
            "startLine": request.offset,
            "totalLines": window.total_lines,
        },
    }
    return FileView(request, Output(_format_lines(request, window), record), window.digest, window.version)


def _is_unchanged(previous_state: FileState | None, request: ReadRequest, window: LineWindow) -> bool:
    """Whether the last thing the conversation saw of the file are these lines, by a Read."""
    if previous_state is None or previous_state.range is None:
        return False
    return previous_state.digest == window.digest and previous_state.range == (request.offset, request.limit)


def _format_lines(request: ReadRequest, window: LineWindow) -> str:
    values = request.values
    is_empty = window.version.size == 0
    if not window.text and (is_empty or window.line_count == 0):
        warning = values.empty if is_empty and request.offset <= 1 else values.beyond_end
        text = warning.format(offset=request.offset, lines=window.total_lines)
        return f"<system-reminder>{text}</system-reminder>"
    text = number_lines(window.text.split("\n"), request.offset, values.numbering)
    return text + (_BAD_BYTES_NOTE if window.has_bad_bytes and values.reports_bad_bytes else "")


def show_notebook(request: ReadRequest) -> FileView:
    """The cells of a notebook."""
    loaded = read_file(request.path, MAX_LARGE_BYTES)
    cells = notebook.parse_cells(loaded.data)
    record = {"type": "notebook", "file": {"filePath": request.name, "cells": [cell.to_record() for cell in cells]}}
    output = Output(notebook.cell_blocks(cells), record)
    return FileView(request, output, loaded.digest, loaded.version)


MAX_DOCUMENT_BYTES = 32 << 20


def show_image(request: ReadRequest) -> FileView:
    """An image, made smaller where it is too large for a model."""
    loaded = read_file(request.path, MAX_DOCUMENT_BYTES)
    info = read_image_info(loaded.data)
    if info is None and request.values.checks_images:
        raise ToolError(
            "File has an image extension but its content is not a valid PNG/JPEG/GIF/WebP."
            f" It begins with {loaded.data[:16]!r}.",
            kind="invalid_input",
        )
    if info is None:
        media_type = MEDIA_TYPES[request.path.suffix.lower()]
        output = _image_output(loaded.data, media_type, {"originalSize": len(loaded.data)})
    else:
        output = _scaled_output(request, loaded.data, info)
    return FileView(request, output, loaded.digest, loaded.version)


def _scaled_output(request: ReadRequest, data: bytes, info: ImageInfo) -> Output:
    scaled = scale_to_limits(data, info)
    output = _image_output(
        scaled.data,
        scaled.media_type,
        {
            "originalSize": len(data),
            "dimensions": _image_dimensions(info, scaled, is_simple=request.values.plain_dimensions),
        },
    )
    if (scaled.width, scaled.height) == (info.width, info.height):
        return output
    note = (
        f"[Image: original {info.width}x{info.height}, displayed at {scaled.width}x{scaled.height}."
        f" Multiply coordinates by {info.width / scaled.width:.2f} to map to original image.]"
    )
    if request.values.scale_note_inline and isinstance(output.content, list):
        return structs.replace(output, content=[{"type": "text", "text": note}, *output.content])
    return structs.replace(output, companions=(note,))


def _image_output(data: bytes, media_type: str, details: Mapping[str, object]) -> Output:
    text = base64.b64encode(data).decode("ascii")
    source = {"type": "base64", "data": text, "media_type": media_type}
    record = {"type": "image", "file": {"base64": text, "type": media_type, **details}}
    return Output([{"type": "image", "source": source}], record)


def _image_dimensions(info: ImageInfo, scaled: ScaledImage, *, is_simple: bool) -> dict[str, int]:
    if is_simple:
        return {"width": info.width, "height": info.height}
    return {
        "originalWidth": info.width,
        "originalHeight": info.height,
        "displayWidth": scaled.width,
        "displayHeight": scaled.height,
    }


def show_document(request: ReadRequest) -> FileView:
    """A whole PDF document."""
    loaded = _load_document(request)
    if count := excess_page_count(loaded.data):
        raise ToolError(
            f"The document has {count} pages, too many to be read at once. Ask for some of them"
            f" with `pages`, {MAX_PAGES} at most.",
            kind="too_large",
        )
    size = len(loaded.data)
    block, data = _document_block(loaded.data)
    record = {"type": "pdf", "file": {"filePath": request.name, "base64": data, "originalSize": size}}
    text = f"PDF file read: {request.name} ({format_size(size)})"
    output = _document_output(request, text, block, record)
    return FileView(request, output, loaded.digest, loaded.version)


def show_pages(request: ReadRequest, ctx: ToolContext) -> FileView:
    """Some pages: in the conversation as one document, on the disk as one each."""
    loaded = _load_document(request)
    pages = PageRange.parse(request.pages or "")
    if pages is None:  # only without the check before the run
        raise ToolError(f"Invalid pages parameter: {request.pages!r}", kind="invalid_input")
    extracted = extract_pages(loaded.data, pages)
    folder = ctx.workspace.results_folder / f"pdf-{safe_file_name(ctx.call.id)}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for number, page in enumerate(extracted.pages, pages.first):
        (folder / f"page-{number:03}.pdf").write_bytes(page)
    count, size = len(extracted.pages), len(loaded.data)
    noun = "page" if count == 1 else "pages"
    text = f"PDF pages extracted: {count} {noun} from {request.name} ({format_size(size)})"
    record = {
        "type": "parts",
        "file": {"filePath": request.name, "originalSize": size, "count": count, "outputDir": str(folder)},
    }
    output = _document_output(request, text, _document_block(extracted.combined)[0], record)
    return FileView(request, output, loaded.digest, loaded.version)


def _load_document(request: ReadRequest) -> LoadedFile:
    loaded = read_file(request.path, MAX_DOCUMENT_BYTES)
    if not loaded.data.startswith(b"%PDF-"):
        raise ToolError(f"{request.name} has the name of a PDF, but its content is none.", kind="invalid_input")
    return loaded


def _document_block(document: bytes) -> tuple[dict[str, object], str]:
    data = base64.b64encode(document).decode("ascii")
    source = {"type": "base64", "media_type": "application/pdf", "data": data}
    return {"type": "document", "source": source}, data


def _document_output(request: ReadRequest, text: str, block: dict[str, object], record: Mapping[str, object]) -> Output:
    """A text and a document, in the result itself or beside it."""
    if request.values.document_inline:
        return Output([{"type": "text", "text": text}, block], record)
    return Output(text, record, companions=([block],))


_DESCRIPTION = """\
Show a file. Text comes with line numbers, from `offset` on and `limit` lines long when these are
given; images, PDF documents and Jupyter notebooks come as what they are. Very large files need a
range. Paths are absolute, or relative to the current folder."""


def read_tool(profile: Profile) -> Tool:
    """Read as a client version has it."""
    schema = read_schema(profile.files)
    check = compile_checker(schema, coerce=profile.availability.coerces)

    def parse(raw_input: Mapping[str, object]) -> Valid | Invalid:
        return check(drop_invalid_range(raw_input) if profile.files.odd_range == "dropped" else raw_input)

    return Tool(
        name="Read",
        description=_DESCRIPTION,
        input_schema=schema,
        parse=parse,
        run=_run_read,
        validate=validate_read,
        concurrent=True,
        read_only=True,
        idempotent=True,
        output_limit=None,  # what is read is bounded by itself, and must not be spilled to a file
        paths=lambda value: frozenset({lock_name(value["file_path"])}),
    )


async def _run_read(value: Mapping[str, object], ctx: ToolContext) -> Output:
    view = await to_thread.run_sync(partial(_view_file, value, ctx), abandon_on_cancel=True)
    _record_file_state(view, ctx)  # here, since a cancelled Read has shown nothing
    return view.output


def _view_file(value: Mapping[str, object], ctx: ToolContext) -> FileView:
    request = parse_read_request(value, ctx)
    stat_result = stat_path(request.path)
    if stat_result is None:
        raise refusal_error(missing_file_refusal(request, ctx))
    if stat.S_ISDIR(stat_result.st_mode):
        text = request.values.unreadable_folder.format(path=replace_surrogates(str(request.path)))
        raise ToolError(text, kind="is_directory")
    ending = request.path.suffix.lower()
    if ending in MEDIA_TYPES:
        return show_image(request)
    if ending == ".pdf":
        return show_document(request) if request.pages is None else show_pages(request, ctx)
    if ending == ".ipynb":
        return show_notebook(request)
    if refusal := oversize_refusal(request, stat_result.st_size):
        raise refusal_error(refusal)
    return show_text(request, ctx)


def _record_file_state(view: FileView, ctx: ToolContext) -> None:
    request = view.request
    state = FileState(
        digest=view.digest,
        mtime_ns=view.version.mtime_ns,
        size=view.version.size,
        whole=request.is_whole,
        call_id=ctx.call.id,
        range=(request.offset, request.limit),
    )
    ctx.files.set_state(request.path, state)
    target = real_path(request.path)
    if target != request.path:  # by its own name no lines were shown, so no range
        ctx.files.set_state(target, replace(state, range=None))
