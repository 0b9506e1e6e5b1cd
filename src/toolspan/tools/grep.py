"""Grep: the lines, files or numbers of lines that a pattern is found in.

In: a pattern, where to look, what to give. Out: as much as the limit says, and how much there is.
Ripgrep searches on all cores; its output is taken in pieces, of which only what is given is kept.
`asked.py` reads the input, the classes in `found.py` keep what comes, `told.py` has the words.
"""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from anyio import to_thread

from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import Profile, SearchValues
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Refusal, Tool
from toolspan.tools.ripgrep import (
    GROUP_SEPARATOR,
    RecordSplitter,
    RelativeNames,
    RipgrepRecord,
    SearchRoot,
    check_search_root,
    decode_name,
    require_search_root,
    run_ripgrep,
)

OutputMode = Literal["content", "files_with_matches", "count"]
Number = int | float

_MAX_COLUMNS = 500
"""Columns of a line; of a wider one, only that it is there is told."""
_VCS_FOLDERS = (".git", ".svn", ".hg", ".bzr", ".jj", ".sl")
"""Folders of version control; what is in them is not the project's."""
_GLOB_COMMA = re.compile(r",(?![^{]*\})")
_MODE_FLAGS: Mapping[OutputMode, str] = {
    "content": "--no-heading",
    "files_with_matches": "--files-with-matches",
    "count": "--count",
}


def grep_schema(values: SearchValues) -> dict[str, object]:
    """The input that a client version takes."""
    extra = {
        "context": {"type": "number", "description": "Lines to show around each match"},
        "-o": {"type": "boolean", "description": "Show only what matched of each line"},
    }
    return {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "The regular expression"},
            "path": {"type": "string", "description": "File or folder; the current one if left"},
            "glob": {"type": "string", "description": "Only files with such names: `*.{ts,tsx}`"},
            "output_mode": {
                "type": "string",
                "enum": ["content", "files_with_matches", "count"],
                "description": "Lines, files (the default) or numbers of lines",
            },
            "-B": {"type": "number", "description": "Lines to show before each match"},
            "-A": {"type": "number", "description": "Lines to show after each match"},
            "-C": {"type": "number", "description": "Lines to show around each match"},
            "-n": {"type": "boolean", "description": "Show line numbers; they are unless told not"},
            "-i": {"type": "boolean", "description": "Upper and lower case are the same"},
            "type": {"type": "string", "description": "Only files of this type: py, rust, md"},
            "head_limit": {"type": "number", "description": "How many lines or files to give"},
            "offset": {"type": "number", "description": "How many of them to leave out first"},
            "multiline": {"type": "boolean", "description": "The pattern may span lines"},
            **{name: property_schema for name, property_schema in extra.items() if name in values.grep_inputs},
        },
        "required": ["pattern"],
        "additionalProperties": False,
    }


def range_error(value: Mapping[str, object]) -> str | None:
    """What is wrong with the limit or the offset."""
    for name, advice in (("head_limit", " Pass 0 for unlimited."), ("offset", "")):
        number = _as_number(value.get(name))
        if number is not None and (number < 0 or not isinstance(number, int)):
            return f"{name} must be a whole number of 0 or more, got {number}.{advice}"
    return None


@dataclass(frozen=True, slots=True)
class GrepOptions:
    """One search."""

    value: Mapping[str, object]
    mode: OutputMode
    limit: Number | None
    """As it was given."""
    offset: Number
    max_results: int | None
    """How many are given at most; None: all."""

    @property
    def has_line_numbers(self) -> bool:
        """Whether line numbers are shown."""
        return self.value.get("-n") is not False

    @property
    def skip_count(self) -> int:
        """How many are left out at the beginning."""
        return max(0, int(self.offset))

    @property
    def needed_count(self) -> int | None:
        """How many have to be known: those left out and those given."""
        return None if self.max_results is None else self.skip_count + self.max_results

    def ripgrep_arguments(self, path: Path) -> list[str]:
        """What ripgrep is told, beside what it always is."""
        return [
            _MODE_FLAGS[self.mode],
            "--with-filename",
            *(self._line_arguments() if self.mode == "content" else ()),
            *self._match_arguments(),
            *(f"--glob={glob}" for glob in _split_globs(str(self.value.get("glob") or ""))),
            *(f"--glob=!{name}" for name in _VCS_FOLDERS),
            "--regexp",
            str(self.value["pattern"]),
            "--",
            str(path),
        ]

    def _line_arguments(self) -> Iterator[str]:
        yield f"--max-columns={_MAX_COLUMNS}"
        yield f"--context-separator={os.fsdecode(GROUP_SEPARATOR)}"
        yield "--line-number"  # also when it is not shown: it tells matches from lines around them
        if self.value.get("-o") is True:
            yield "--only-matching"
        context = self.value.get("context", self.value.get("-C"))
        if context is not None:
            yield from ("-C", str(_as_number(context)))
            return
        for flag in ("-B", "-A"):
            if flag in self.value:
                yield from (flag, str(_as_number(self.value[flag])))

    def _match_arguments(self) -> Iterator[str]:
        if self.value.get("-i") is True:
            yield "--ignore-case"
        if self.value.get("multiline") is True:
            yield from ("--multiline", "--multiline-dotall")
        if self.value.get("type"):
            yield from ("--type", str(self.value["type"]))


def parse_grep_options(value: Mapping[str, object], values: SearchValues) -> GrepOptions:
    """The search that an input describes."""
    limit = _as_number(value.get("head_limit"))
    max_results = values.default_limit if limit is None else max(0, int(limit))
    if limit == 0 and values.zero_is_all:
        max_results = None
    return GrepOptions(
        value=value,
        mode=_parse_output_mode(value.get("output_mode")),
        limit=limit,
        offset=_as_number(value.get("offset")) or 0,
        max_results=max_results,
    )


def _parse_output_mode(value: object) -> OutputMode:
    return next((mode for mode in _MODE_FLAGS if mode == value), "files_with_matches")


def _split_globs(text: str) -> list[str]:
    """Several globs may stand in one text, with blanks or, outside of braces, commas between."""
    return [glob for word in text.split() for glob in _GLOB_COMMA.split(word) if glob]


def _as_number(value: object) -> Number | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value


MAX_CONTENT_CHARS = 16 << 20
"""Characters that are kept for one call that asked for everything."""
MAX_FILES = 100_000
"""The same for files."""


class MatchingLines:
    """Matching lines, with those around them."""

    def __init__(self, options: GrepOptions, ctx: ToolContext, *, show_names: bool) -> None:
        self.lines: list[str] = []
        self.total = 0
        self.is_full = False
        """There is more than may be kept."""
        self._options = options
        self._show_names = show_names
        self._cwd_prefix = os.fsencode(ctx.cwd).rstrip(b"/") + b"/"
        self._short_name = RelativeNames(ctx.cwd).shorten
        self._values = ctx.profile.search
        self._records = RecordSplitter()
        self._char_count = 0

    def add_output(self, data: bytes) -> bool:
        """Take what was printed; True when no more is needed."""
        if self._has_enough():
            self.total += data.count(b"\0")
            return not self._values.reports_totals
        for record in self._records.split_output(data):
            if self.total >= self._options.skip_count and not self._has_enough():
                self._append_record(record)
            self.total += 1
        return self._has_enough() and self._has_more() and not self._values.reports_totals

    def _append_record(self, record: RipgrepRecord) -> None:
        line = self._format_line(record)
        self._char_count += len(line)
        self.is_full = self._char_count > MAX_CONTENT_CHARS
        self.lines.append(line)

    def _format_line(self, record: RipgrepRecord) -> str:
        if not record.name:
            return decode_name(record.line.replace(self._cwd_prefix, b"", 1))
        number, separator, rest = _split_line_number(record.line)
        visible = number + separator + rest if self._options.has_line_numbers else rest
        if not self._show_names:
            return decode_name(visible)
        line = separator + visible
        if separator == b"-" and not self._values.relative_context and b":" not in record.name + line:
            return decode_name(record.name + line)
        return self._short_name(record.name) + decode_name(line)

    def _has_enough(self) -> bool:
        needed = self._options.needed_count
        return self.is_full or (needed is not None and self.total >= needed)

    def _has_more(self) -> bool:
        """Something was left out behind what is given."""
        return self.is_full or (self._options.needed_count is not None and self.total > self._options.needed_count)


def _split_line_number(line: bytes) -> tuple[bytes, bytes, bytes]:
    """The number, the sign behind it (`:` for a match, `-` for a line around one), the line."""
    rest = line.lstrip(b"0123456789")
    return line[: len(line) - len(rest)], rest[:1], rest[1:]


class MatchCounts:
    """How many lines match in each file."""

    def __init__(self, options: GrepOptions, ctx: ToolContext) -> None:
        self.lines: list[str] = []
        self.files = 0
        self.matches = 0
        """Of all files where the client tells totals, else of those given."""
        self.total = 0
        self._options = options
        self._short_name = RelativeNames(ctx.cwd).shorten
        self._count_all = ctx.profile.search.reports_totals
        self._records = RecordSplitter()

    def add_output(self, data: bytes) -> bool:
        """Take what was printed; True when no more is needed."""
        needed = _needed_file_count(self._options)
        for record in self._records.split_output(data):
            is_listed = self._options.skip_count <= self.total < needed
            if is_listed:
                self.lines.append(f"{self._short_name(record.name)}:{decode_name(record.line)}")
            if is_listed or self._count_all:
                self.files += 1
                self.matches += int(record.line) if record.line.isdigit() else 0
            self.total += 1
        return not self._count_all and self.total > needed


class MatchingFiles:
    """The files that match, the newest first."""

    def __init__(self, options: GrepOptions, ctx: ToolContext) -> None:
        self.total = 0
        self._options = options
        self._short_name = RelativeNames(ctx.cwd).shorten
        self._newest: list[tuple[int, bytes]] = []
        """When each was changed, negative, so that the newest come first; and its name."""
        self._pending = b""

    def add_output(self, data: bytes) -> bool:
        """Take names that end in null bytes; all are needed, the newest may be the last."""
        *names, self._pending = (self._pending + data).split(b"\0")
        self.total += len(names)
        self._newest += _with_mtimes(names)
        needed = _needed_file_count(self._options)
        if len(self._newest) > 2 * needed + 1_000:
            self._newest = heapq.nsmallest(needed, self._newest)
        return False

    def list_names(self) -> list[str]:
        """The files to give, named from the current folder."""
        ordered = sorted(self._newest)[self._options.skip_count : _needed_file_count(self._options)]
        return [self._short_name(name) for _, name in ordered]


def _needed_file_count(options: GrepOptions) -> int:
    """How many files have to be known."""
    return options.skip_count + MAX_FILES if options.needed_count is None else options.needed_count


def _with_mtimes(names: list[bytes]) -> list[tuple[int, bytes]]:
    try:
        return [(-os.stat(name).st_mtime_ns, name) for name in names]  # noqa: PTH116 - bytes
    except OSError:  # one was there a moment ago
        return [(-_mtime_or_zero(name), name) for name in names]


def _mtime_or_zero(name: bytes) -> int:
    try:
        return os.stat(name).st_mtime_ns  # noqa: PTH116 - bytes
    except OSError:
        return 0


_NO_FILES_TEXT = "No files found"
_NO_MATCHES_TEXT = "No matches found"
_PAST_END_TEXT = "No entries at this offset"
_OVERFLOW_NOTE = "\n\n[There is more, too much to be kept: ask for less.]"


@dataclass(frozen=True, slots=True)
class _ResultPage:
    """Which part of what was found is given."""

    options: GrepOptions
    values: SearchValues
    total: int
    """How many were found, or heard of before enough was."""

    @property
    def is_cut(self) -> bool:
        """Something is left out behind it."""
        return self.options.needed_count is not None and self.total > self.options.needed_count

    def to_record(self) -> dict[str, object]:
        """As it is recorded."""
        applied: dict[str, object] = {}
        if self.values.reports_whole_range:
            if self.options.limit is not None:
                applied["appliedLimit"] = self.options.limit
        elif self.is_cut:
            limit = self.options.limit
            applied["appliedLimit"] = self.values.default_limit if limit is None else limit
        if self.options.offset:
            applied["appliedOffset"] = self.options.offset
        return applied

    def pagination_text(self) -> str:
        """As the model reads it; empty when all is given."""
        applied = self.to_record()
        if self.values.reports_whole_range:
            if not any(applied.values()):
                return ""
            limit = applied.get("appliedLimit", "undefined")  # as clients of that age say it
            return f"limit: {limit}, offset: {applied.get('appliedOffset', 0)}"
        names = {"appliedLimit": "limit", "appliedOffset": "offset"}
        return ", ".join(f"{names[key]}: {number}" for key, number in applied.items())

    def overflow_note(self, listed_count: int) -> str:
        """What is said when everything was asked for, and that is too much."""
        is_unlimited = self.options.max_results is None
        return (
            _OVERFLOW_NOTE
            if is_unlimited and listed_count and self.total > self.options.skip_count + listed_count
            else ""
        )

    def empty_text(self, text: str) -> str:
        """What is said when nothing is given."""
        return _PAST_END_TEXT if self.values.reports_totals and self.total else text


def files_output(files: MatchingFiles, options: GrepOptions, values: SearchValues) -> Output:
    """The files that match."""
    names = files.list_names()
    page = _ResultPage(options, values, files.total)
    record: dict[str, object] = {"mode": options.mode, "filenames": names, "numFiles": len(names)}
    if values.reports_totals:
        record["totalFiles"] = files.total
    record |= page.to_record()
    pagination = page.pagination_text()
    if names:
        head = " ".join(part for part in (f"Found {_format_file_count(len(names))}", pagination) if part)
        return Output("\n".join((head, *names)) + page.overflow_note(len(names)), record)
    text = page.empty_text(_NO_FILES_TEXT)
    if text == _PAST_END_TEXT:
        text += f". [Showing results with pagination = {pagination}]"
    return Output(text, record)


def lines_output(lines: MatchingLines, options: GrepOptions, values: SearchValues) -> Output:
    """The lines that match."""
    page = _ResultPage(options, values, lines.total)
    content = "\n".join(lines.lines)
    record: dict[str, object] = {
        "mode": options.mode,
        "numFiles": 0,
        "filenames": [],
        "content": content,
        "numLines": len(lines.lines),
    }
    if values.reports_totals:
        record["totalLines"] = lines.total
    record |= page.to_record()
    text = _truncate_content(content, values.cuts_content) if lines.lines else page.empty_text(_NO_MATCHES_TEXT)
    if pagination := page.pagination_text():
        text += f"\n\n[Showing results with pagination = {pagination}]"
    return Output(text + (_OVERFLOW_NOTE if lines.is_full else ""), record)


def counts_output(counts: MatchCounts, options: GrepOptions, values: SearchValues) -> Output:
    """How many lines match in each file."""
    page = _ResultPage(options, values, counts.total)
    record = {
        "mode": options.mode,
        "numFiles": counts.files,
        "filenames": [],
        "content": "\n".join(counts.lines),
        "numMatches": counts.matches,
        **page.to_record(),
    }
    plural = "" if counts.matches == 1 else "s"
    text = "\n".join(counts.lines) or page.empty_text(_NO_MATCHES_TEXT)
    text += f"\n\nFound {counts.matches} total occurrence{plural} across {_format_file_count(counts.files)}."
    if pagination := page.pagination_text():
        text += f" with pagination = {pagination}"
    return Output(text + page.overflow_note(len(counts.lines)), record)


def _format_file_count(number: int) -> str:
    return f"{number} file" if number == 1 else f"{number} files"


def _truncate_content(content: str, max_chars: int | None) -> str:
    """The first characters, and how many lines are gone."""
    if max_chars is None or len(content) <= max_chars:
        return content
    removed = content.count("\n", max_chars) + 1
    return f"{content[:max_chars]}\n\n... [{removed} lines truncated] ..."


OUTPUT_LIMIT = 20_000
"""Characters that the model gets inline."""


def grep_tool(profile: Profile) -> Tool:
    """Grep as a client version has it."""
    schema = grep_schema(profile.search)
    return Tool(
        name="Grep",
        description=(
            "Search files with a regular expression (ripgrep's). Gives the files that match, or"
            " their matching lines with some around them, or how many lines match in each."
        ),
        input_schema=schema,
        parse=compile_checker(schema, coerce=profile.availability.coerces),
        run=_run_grep,
        validate=_validate_grep,
        concurrent=True,
        read_only=True,
        idempotent=True,
        output_limit=None if profile.search.cuts_content else OUTPUT_LIMIT,
    )


async def _validate_grep(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    values = ctx.profile.search
    if values.checks_range and (message := range_error(value)):
        return Refusal(message, "invalid_input")
    if not values.checks_early:
        return None
    return await check_search_root(value.get("path"), ctx, "any")


async def _run_grep(value: Mapping[str, object], ctx: ToolContext) -> Output:
    resolve_root = partial(require_search_root, value.get("path"), ctx, "any")
    root = await to_thread.run_sync(resolve_root, abandon_on_cancel=True)
    options = parse_grep_options(value, ctx.profile.search)
    match options.mode:
        case "content":
            return await _grep_lines(options, root, ctx)
        case "count":
            return await _grep_counts(options, root, ctx)
        case "files_with_matches":
            return await _grep_files(options, root, ctx)


async def _grep_lines(options: GrepOptions, root: SearchRoot, ctx: ToolContext) -> Output:
    lines = MatchingLines(options, ctx, show_names=root.is_folder)
    await run_ripgrep(ctx, options.ripgrep_arguments(root.path), ctx.cwd, lines.add_output)
    return lines_output(lines, options, ctx.profile.search)


async def _grep_counts(options: GrepOptions, root: SearchRoot, ctx: ToolContext) -> Output:
    counts = MatchCounts(options, ctx)
    await run_ripgrep(ctx, options.ripgrep_arguments(root.path), ctx.cwd, counts.add_output)
    return counts_output(counts, options, ctx.profile.search)


async def _grep_files(options: GrepOptions, root: SearchRoot, ctx: ToolContext) -> Output:
    files = MatchingFiles(options, ctx)
    await run_ripgrep(ctx, options.ripgrep_arguments(root.path), ctx.cwd, files.add_output)
    return files_output(files, options, ctx.profile.search)
