"""Read: return the lines of a text file, an image, a PDF document or a notebook.

Start at `_read_file`. A successful read also records in the conversation's file states that the file has been seen,
which Edit and Write require.
"""

from __future__ import annotations

import base64
import math
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from anyio import to_thread

from toolspan.errors import ToolError
from toolspan.runtime.context import FileState, ToolContext
from toolspan.runtime.output_limits import safe_file_name
from toolspan.runtime.profiles import FileValues, Profile
from toolspan.runtime.profiles.messages import UNRESOLVED_LINK
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.tool import Output, Refusal, Tool, ToolHints, ToolSubject
from toolspan.tools.files.changes import (
    lock_by_path,
    missing_file_refusal,
    null_path_refusal,
    permitted_target,
    remembered_name,
    rename_inputs,
    resolve_tool_path,
    spelled_path,
    stat_tool_path,
    with_stripped_path,
)
from toolspan.tools.files.image import MEDIA_TYPES, read_image_info, scale_to_limits
from toolspan.tools.files.notebook import cell_blocks, parse_cells
from toolspan.tools.files.paths import format_size, number_lines, real_path, replace_surrogates, wrap_os_error
from toolspan.tools.files.pdf import MAX_PAGES, PageRange, excess_page_count, extract_pages
from toolspan.tools.files.safe_read import (
    FileVersion,
    LineRange,
    is_regular_or_null,
    read_file,
    read_line_range,
)
from toolspan.tools.schemas import TEXT, Schema, flag, object_schema, result_schema, text

MAX_TEXT_BYTES = 256 << 10
MAX_LARGE_BYTES = 16 << 20
"""The maximum size in bytes of a notebook, and of a text file with `allow_large`."""
MAX_DOCUMENT_BYTES = 32 << 20
_RANGE = ("offset", "limit")
_PROCESS_FILE = re.compile(
    r"/+proc/(?:(?:self|thread-self|\d+)(?:/task/\d+)?/(?:auxv|cmdline|environ|map_files|maps|mem|numa_maps|pagemap"
    r"|smaps|smaps_rollup|stack|stat|statm|status|syscall|fd/[012])|kcore|kmsg)|/+dev/(?:stdin|stdout|stderr|fd/[012])"
)
"""Files about processes and the kernel that newer clients do not read."""
_MARK_SIZES = (2, 3)
"""The sizes of byte order marks."""
_BEYOND_END = "Warning: the file exists but is shorter than the provided offset ({offset}). The file has {lines} lines."
_BAD_BYTES_NOTE = "\n\n[This file contains bytes that are not valid in its encoding. Each of them is shown as \ufffd.]"
_DESCRIPTION = """\
Return the content of a file: text with line numbers, images, PDF documents, or Jupyter notebooks with their outputs.

Paths are absolute or relative to the current folder. A text file above 256 KB needs a range of lines, `offset` and
`limit`; to find the right lines, search it first. To list a folder, use Bash with ls."""


def read_tool(profile: Profile) -> Tool:
    """Return the Read tool for a client version."""
    drops_invalid_range = not profile.files.loose_ranges
    number = "number" if profile.files.loose_ranges else "integer"
    offset: Schema = {"type": number, "description": "The number of the first line to return. The default is 1."}
    limit: Schema = {
        "type": number,
        "description": "The maximum number of lines to return. The default is all that follow.",
    }
    if drops_invalid_range:
        offset["minimum"] = 0
        limit["exclusiveMinimum"] = 0
    extra = {
        "pages": text(f"The pages of a PDF to return, such as `3` or `1-5`; at most {MAX_PAGES}."),
        "allow_large": flag("Return a text file above 256 KB, up to 16 MB, without a range."),
    }
    schema = object_schema(
        {
            "file_path": text("The path of the file to read."),
            "offset": offset,
            "limit": limit,
            **(extra if profile.files.newer_inputs else {}),
        },
        required=["file_path"],
    )
    check = compile_checker(schema, coerce=profile.availability.coerces)

    def parse(raw_input: Mapping[str, object]) -> Valid | Invalid:
        if profile.files.newer_inputs:
            raw_input, _ = rename_inputs(raw_input, {"description": "", "length": "limit"})
            raw_input = {name: _unwrap_item(value) if name in _RANGE else value for name, value in raw_input.items()}
        if drops_invalid_range:
            minimums = {"offset": 0, "limit": 1}
            raw_input = {
                name: value
                for name, value in raw_input.items()
                if name not in minimums or not _is_below(value, minimums[name])
            }
        checked = check(raw_input)
        if isinstance(checked, Invalid):
            return checked
        return with_stripped_path(checked.recorded, "file_path", strips=profile.files.expands_home)

    return Tool(
        name="Read",
        description=_DESCRIPTION,
        input_schema=schema,
        parse=parse,
        run=_run_read,
        validate=_validate_read,
        concurrent=True,
        read_only=True,
        idempotent=True,
        output_limit=None,  # the content is already limited and must not be moved to a file
        paths=lock_by_path("file_path"),
        kind="read",
        reports_denied_files=True,
        subject=ToolSubject("file", "file_path"),
        slow_after=2.0,
        hints=ToolHints("Read a file", read_only=True),
        output_schema=result_schema({"type": TEXT, "file": {"type": "object"}}),
        replayable=True,
    )


def _unwrap_item(value: object) -> object:
    return value[0] if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], list) else value


def _is_below(value: object, minimum: int) -> bool:
    if isinstance(value, str) and value.removeprefix("-").isdecimal():
        value = int(value)
    return isinstance(value, int | float) and not isinstance(value, bool) and value < minimum


@dataclass(frozen=True, slots=True)
class _ReadRequest:
    name: str
    """The path as the model wrote it, for messages."""
    path: Path
    offset: int
    limit: int | None
    pages: str | None
    has_range: bool
    """True if the input contains a range that keeps a large file from being refused."""
    max_bytes: int
    values: FileValues
    ctx: ToolContext

    @classmethod
    def parse(cls, value: Mapping[str, object], ctx: ToolContext) -> _ReadRequest:
        values = ctx.profile.files
        name, pages = str(value["file_path"]), value.get("pages")
        offset = _finite_int(value.get("offset"))
        return cls(
            name=spelled_path(value, "file_path"),
            path=resolve_tool_path(name, ctx),
            offset=1 if offset is None or (offset == 0 and values.zero_is_first) else offset,
            limit=_finite_int(value.get("limit")),
            pages=pages if isinstance(pages, str) and pages else None,
            has_range=value.get("limit") is not None or (values.loose_ranges and value.get("offset") is not None),
            max_bytes=MAX_LARGE_BYTES if value.get("allow_large") is True else MAX_TEXT_BYTES,
            values=values,
            ctx=ctx,
        )

    @property
    def target(self) -> Path:
        """The path with its links resolved. Before the call is authorized, they may still change."""
        return permitted_target(self.path, self.ctx)

    @property
    def suffix(self) -> str:
        return "" if self.name.endswith("/.") else self.path.suffix.lower()

    @property
    def ends_with_slash(self) -> bool:
        name = self.name.strip()
        return name.startswith(("/", "~/")) and name.endswith("/")


def _finite_int(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class _FileView:
    output: Output
    digest: str
    version: FileVersion
    is_whole: bool = True
    """True if the view shows the whole file."""


async def _run_read(value: Mapping[str, object], ctx: ToolContext) -> Output:
    request = _ReadRequest.parse(value, ctx)
    view = await to_thread.run_sync(_read_file, request, ctx, abandon_on_cancel=True)
    # The state is not recorded in the thread, because a cancelled Read has shown nothing.
    state = FileState(
        digest=view.digest,
        mtime_ns=view.version.mtime_ns,
        size=view.version.size,
        whole=view.is_whole,
        call_id=ctx.call.id,
        range=(request.offset, request.limit),
    )
    limit = request.values.remembered_files
    if limit is not None:
        ctx.files.set_state(remembered_name(request.path, request.name), state, limit)
        return view.output
    if request.values.names_slash and request.ends_with_slash:
        ctx.files.set_state(f"{request.path}/", state)  # the client treats this as another file
        return view.output
    ctx.files.set_state(request.path, state)
    target = request.target
    if target != request.path:  # no lines were shown under the target's path, so there is no range
        ctx.files.set_state(target, replace(state, range=None, whole=False))
    return view.output


def _read_file(request: _ReadRequest, ctx: ToolContext) -> _FileView:
    values = request.values
    try:
        stat_result = stat_tool_path(request.name, ctx, operation="open")
    except ToolError as error:
        if request.values.refuses_links and error.message.startswith("ELOOP"):
            message = UNRESOLVED_LINK.format(path=replace_surrogates(str(request.path)))
            raise ToolError(message, kind="invalid_input") from error
        raise
    if stat_result is None:
        refusal = missing_file_refusal(request.path, request.name, ctx.profile.messages.read_missing, ctx)
        raise ToolError(refusal.text, kind=refusal.kind)
    if stat.S_ISDIR(stat_result.st_mode):
        raise _folder_error(request)
    target = request.target
    is_special = values.refuses_process_files and target.is_relative_to("/proc")
    if (is_special and _PROCESS_FILE.fullmatch(str(real_path(target)))) or not is_regular_or_null(stat_result):
        raise ToolError(ctx.profile.messages.device.format(path=request.name), kind="invalid_input")
    if stat_result.st_size == 0 and request.suffix in (*MEDIA_TYPES, ".pdf"):
        noun = "PDF" if request.suffix == ".pdf" else "Image"
        raise ToolError(f"{noun} file is empty: {replace_surrogates(str(request.path))}", kind="invalid_input")
    if request.suffix in MEDIA_TYPES:
        return _view_image(request)
    if request.suffix == ".pdf":
        return _view_document(request, ctx)
    if request.suffix == ".ipynb":
        return _view_notebook(request, ctx)
    if oversize := _oversize_refusal(request, stat_result.st_size):
        raise ToolError(oversize.text, kind=oversize.kind)
    return _view_lines(request)


def _folder_error(request: _ReadRequest) -> ToolError:
    try:
        os.close(os.open(request.path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return wrap_os_error(error, "open", request.path)
    path = replace_surrogates(str(request.path))
    shown = path
    if request.values.names_slash and request.ends_with_slash:
        shown += "/" if request.path.is_symlink() else "//"
    message = request.ctx.profile.messages.unreadable_folder.format(path=shown if path.strip("/") else "/")
    return ToolError(message, kind="is_directory")


async def _validate_read(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    if refusal := null_path_refusal(value, "file_path", ctx):
        return refusal
    return await to_thread.run_sync(_find_refusal, _ReadRequest.parse(value, ctx), ctx, abandon_on_cancel=True)


def _find_refusal(request: _ReadRequest, ctx: ToolContext) -> Refusal | None:
    values = request.values
    if request.pages is not None:
        page_range, pages = PageRange.parse(request.pages), replace_surrogates(request.pages)
        if page_range is None:
            advice = "Use a page or a range of pages, such as 3 or 1-5. The first page is 1."
            return Refusal(f'Invalid pages parameter: "{pages}". {advice}', "invalid_input")
        if page_range.last is None or page_range.last - page_range.first >= MAX_PAGES:
            message = f'Page range "{pages}" exceeds maximum of {MAX_PAGES} pages per request.'
            return Refusal(f"{message} Please use a smaller range.", "too_large")
    if values.refuses_process_files and _PROCESS_FILE.fullmatch(os.path.normpath(request.path)):
        return Refusal(ctx.profile.messages.device.format(path=request.name), "invalid_input")
    is_binary = request.suffix in values.binary_suffixes and not (values.names_slash and request.ends_with_slash)
    try:
        stat_result = stat_tool_path(request.name, ctx, operation="open")
    except ToolError:
        return None  # the run reports the problem
    if stat_result is None and values.checks_early:
        return missing_file_refusal(request.path, request.name, ctx.profile.messages.read_missing, ctx)
    if stat_result is not None:
        if stat.S_ISDIR(stat_result.st_mode):
            return None
        if not is_regular_or_null(stat_result):
            is_link = values.refuses_process_files and request.path.is_symlink()
            return None if is_link else Refusal(ctx.profile.messages.device.format(path=request.name), "invalid_input")
        if values.checks_early and stat_result.st_size == 0 and request.suffix in MEDIA_TYPES:
            return Refusal("Empty image files cannot be processed.", "invalid_input")
    if is_binary:
        kind = f"{request.path.suffix} file".lstrip()
        return Refusal(
            "This tool cannot read binary files. The file appears to be a binary"
            f" {replace_surrogates(kind)}. Use Bash with a program that reads this format.",
            "invalid_input",
        )
    return _oversize_refusal(request, stat_result.st_size) if stat_result and values.checks_early else None


def _oversize_refusal(request: _ReadRequest, size: int) -> Refusal | None:
    is_text = request.suffix not in (*MEDIA_TYPES, ".pdf", ".ipynb")
    if not is_text or request.has_range or size <= request.max_bytes:
        return None
    return Refusal(_oversize_message(request, size), "too_large")


def _oversize_message(request: _ReadRequest, size: int) -> str:
    message = f"File content ({format_size(size)}) exceeds maximum allowed size ({format_size(request.max_bytes)})."
    return f"{message} Read a part of it with `offset` and `limit`, or search it."


def _view_lines(request: _ReadRequest) -> _FileView:
    values, offset = request.values, request.offset
    skip = offset - 1 if offset else 0
    if not values.loose_ranges:
        skip = max(0, skip)
    limit = request.limit
    if limit is not None and values.loose_ranges and (skip < 0 or limit < 0):
        total = read_line_range(
            request.path, LineRange(0, 0), request.max_bytes, request.target, utf16=False
        ).total_lines
        end = skip + limit  # start and end each count from the end of the file if they are negative
        start, end = (max(0, total + at) if at < 0 else at for at in (skip, end))
        limit = end - start
    line_range = LineRange(skip, None if limit is None else max(0, limit))
    window = read_line_range(
        request.path,
        line_range,
        MAX_LARGE_BYTES,
        request.target,
        utf16=values.detects_encodings,
        drops_return=values.detects_encodings,
    )
    if values.loose_ranges and (size := len(window.text.encode())) > request.max_bytes:
        raise ToolError(_oversize_message(request, size), kind="too_large")
    file = {
        "filePath": request.name,
        "content": window.text,
        "numLines": window.line_count,
        "startLine": offset,
        "totalLines": window.total_lines,
    }
    # Files in /proc have no size, and a byte order mark is not content.
    is_mark = values.detects_encodings and window.version.size in _MARK_SIZES and window.line_count == 1
    is_empty = window.total_lines == 1 and not window.text and (window.version.size == 0 or is_mark)
    if not window.text and (is_empty or window.line_count == 0 or values.loose_ranges):
        warning = request.ctx.profile.messages.empty if is_empty and offset <= 1 else _BEYOND_END
        message = warning.format(offset=offset, lines=window.total_lines)
        content = f"<system-reminder>{message}</system-reminder>"
    else:
        *lines, last_line = window.text.split("\n")
        lines = [line.removesuffix("\r") for line in lines]
        lines.append(last_line.removesuffix("\r") if values.detects_encodings else last_line)
        content = number_lines(lines, offset, values.numbering)
    if window.has_bad_bytes and values.detects_encodings:
        content += _BAD_BYTES_NOTE
    # The client may treat a range that ends with the last line as a part of the file.
    is_whole = skip <= 0 and (limit is None or window.total_lines < limit) and not window.lost_return
    return _FileView(Output(content, {"type": "text", "file": file}), window.digest, window.version, is_whole)


def _view_notebook(request: _ReadRequest, ctx: ToolContext) -> _FileView:
    loaded = read_file(request.path, MAX_LARGE_BYTES, request.target)
    cells = parse_cells(loaded.data, ctx.profile.notebook)
    record = {"type": "notebook", "file": {"filePath": request.name, "cells": cells}}
    return _FileView(Output(cell_blocks(cells), record), loaded.digest, loaded.version)


def _view_image(request: _ReadRequest) -> _FileView:
    loaded = read_file(request.path, MAX_DOCUMENT_BYTES, request.target)
    data, media_type = loaded.data, MEDIA_TYPES[request.suffix]
    details: dict[str, object] = {"originalSize": len(data)}
    content: list[dict[str, object]] = []
    companions: tuple[str, ...] = ()
    info = read_image_info(data)
    if info is None and request.values.checks_media:
        raise ToolError(
            "File has an image extension but its content is not a valid PNG/JPEG/GIF/WebP."
            f" It begins with {data[:16]!r}.",
            kind="invalid_input",
        )
    if info is not None:
        scaled = scale_to_limits(data, info)
        data, media_type = scaled.data, scaled.media_type
        if request.values.plain_dimensions:
            details["dimensions"] = {"width": info.width, "height": info.height}
        else:
            details["dimensions"] = {
                "originalWidth": info.width,
                "originalHeight": info.height,
                "displayWidth": scaled.width,
                "displayHeight": scaled.height,
            }
        if (scaled.width, scaled.height) != (info.width, info.height):
            note = (
                f"[Image: original {info.width}x{info.height}, displayed at {scaled.width}x{scaled.height}."
                f" Multiply coordinates by {info.width / scaled.width:.2f} to map to original image.]"
            )
            if request.values.checks_media:
                companions = (note,)
            else:
                content.append({"type": "text", "text": note})
    encoded = base64.b64encode(data).decode("ascii")
    content.append({"type": "image", "source": {"type": "base64", "data": encoded, "media_type": media_type}})
    record = {"type": "image", "file": {"base64": encoded, "type": media_type, **details}}
    return _FileView(Output(content, record, companions=companions), loaded.digest, loaded.version)


def _view_document(request: _ReadRequest, ctx: ToolContext) -> _FileView:
    """Return a whole document, or some pages as one document; each of these is also saved to a separate file."""
    loaded = read_file(request.path, MAX_DOCUMENT_BYTES, request.target)
    size, name = len(loaded.data), replace_surrogates(str(request.path))
    if request.values.checks_media and not loaded.data.startswith(b"%PDF-"):
        raise ToolError(f"File is not a valid PDF (missing %PDF- header): {name}", kind="invalid_input")
    if request.pages is None:
        if page_count := excess_page_count(loaded.data):
            raise ToolError(
                f"The document has {page_count} pages, too many to read at once. Use `pages` to read"
                f" at most {MAX_PAGES} of them.",
                kind="too_large",
            )
        encoded = base64.b64encode(loaded.data).decode("ascii")
        record = {"type": "pdf", "file": {"filePath": name, "base64": encoded, "originalSize": size}}
        message = f"PDF file read: {name} ({format_size(size)})"
    else:
        pages = PageRange.parse(request.pages)
        if pages is None:  # possible only if the call was not validated
            raise ToolError(f"Invalid pages parameter: {request.pages!r}", kind="invalid_input")
        extracted = extract_pages(loaded.data, pages)
        encoded = base64.b64encode(extracted.combined).decode("ascii")
        folder = ctx.workspace.results_folder / f"pdf-{safe_file_name(ctx.call.id)}"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number, page in enumerate(extracted.pages, pages.first):
            (folder / f"page-{number:03}.pdf").write_bytes(page)
        count = len(extracted.pages)
        file = {"filePath": request.name, "originalSize": size, "count": count, "outputDir": str(folder)}
        record = {"type": "parts", "file": file}
        noun = "page" if count == 1 else "pages"
        message = f"PDF pages extracted: {count} {noun} from {request.name} ({format_size(size)})"
    source = {"type": "base64", "media_type": "application/pdf", "data": encoded}
    block: dict[str, object] = {"type": "document", "source": source}
    if request.values.checks_media:
        output = Output([{"type": "text", "text": message}, block], record)
    else:
        output = Output(message, record, companions=([block],))
    return _FileView(output, loaded.digest, loaded.version)
