"""Grep: find the lines or files that match a regular expression, or count the matching lines.

Start at `_run_grep`. Ripgrep searches on all cores. A collector for the output mode receives its
output in chunks, keeps only the part to be returned, and formats it.
"""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from anyio import to_thread

from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import Profile, SearchValues
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.tool import Output, Refusal, Tool, ToolHints, ToolSubject
from toolspan.tools.ripgrep import (
    GROUP_SEPARATOR,
    RecordSplitter,
    RipgrepRecord,
    SearchRoot,
    check_search_root,
    decode_name,
    require_search_root,
    run_ripgrep,
    shorten_name,
    strip_search_path,
)
from toolspan.tools.schemas import NUMBER, TEXT, TEXTS, flag, number, object_schema, result_schema, text

_OutputMode = Literal["content", "files_with_matches", "count"]

_OUTPUT_LIMIT = 20_000
_MAX_COLUMNS = 500
"""The line length above which ripgrep prints a note instead of the line."""
_MAX_CONTENT_CHARS = 16 << 20
"""The maximum number of characters kept for a call without a limit."""
_MAX_FILES = 100_000
"""The maximum number of files kept for a call without a limit."""
_VCS_FOLDERS = (".git", ".svn", ".hg", ".bzr", ".jj", ".sl")
_GLOB_COMMA = re.compile(r",(?![^{]*\})")
_MODE_FLAGS: Mapping[_OutputMode, str] = {
    "content": "--no-heading",
    "files_with_matches": "--files-with-matches",
    "count": "--count",
}
_CONTEXT_DESCRIPTION = "In `content` mode, the number of lines to show"
_NO_FILES_TEXT = "No files found"
_NO_MATCHES_TEXT = "No matches found"
_PAST_END_TEXT = "No entries at this offset"
_OVERFLOW_NOTE = "\n\n[The results are incomplete, because there are too many. Narrow the search.]"


def grep_tool(profile: Profile) -> Tool:
    """Return the Grep tool for a client version."""
    extra = {
        "context": number(f"{_CONTEXT_DESCRIPTION} before and after each match. Overrides -A and -B."),
        "-o": flag("Show only the matching part of each line, in `content` mode."),
    }
    default_limit = profile.search.default_limit
    limit_description = "" if default_limit is None else f" The default is {default_limit}; 0 means no limit."
    schema = object_schema(
        {
            "pattern": text("The regular expression to search for."),
            "path": text("The file or folder to search. The default is the current folder."),
            "glob": text("Search only files that match this glob pattern, such as `*.{ts,tsx}`."),
            "output_mode": text(
                (
                    "`content` returns the matching lines, `files_with_matches` the paths of the files, and"
                    " `count` the number of matching lines per file. The default is `files_with_matches`."
                ),
                enum=[*_MODE_FLAGS],
            ),
            "-B": number(f"{_CONTEXT_DESCRIPTION} before each match."),
            "-A": number(f"{_CONTEXT_DESCRIPTION} after each match."),
            "-C": number(f"{_CONTEXT_DESCRIPTION} before and after each match. Overrides -A and -B."),
            "-n": flag("Show line numbers, in `content` mode. The default is true."),
            "-i": flag("Ignore the difference between upper and lower case."),
            "type": text("Search only files of this type, such as `py`, `rust` or `md`."),
            "head_limit": number(f"The maximum number of lines or files to return.{limit_description}"),
            "offset": number("The number of lines or files to skip at the start."),
            "multiline": flag("Let the pattern match across lines, and `.` match line breaks."),
            **(extra if profile.search.newer_inputs else {}),
        },
        required=["pattern"],
    )
    check = compile_checker(schema, coerce=profile.availability.coerces)

    def parse(raw_input: Mapping[str, object]) -> Valid | Invalid:
        checked = check(raw_input)
        return checked if isinstance(checked, Invalid) else strip_search_path(checked)

    return Tool(
        name="Grep",
        description=(
            "Search the contents of files with a regular expression in ripgrep's syntax. Returns the files that match,"
            " the matching lines with context, or the number of matching lines per file. Files that .gitignore excludes"
            " are skipped."
        ),
        input_schema=schema,
        parse=parse,
        run=_run_grep,
        validate=_validate_grep,
        concurrent=True,
        read_only=True,
        idempotent=True,
        output_limit=None if profile.search.output_limit else _OUTPUT_LIMIT,
        kind="search",
        subject=ToolSubject("file", "path"),
        slow_after=5.0,
        hints=ToolHints("Search in files", read_only=True),
        output_schema=result_schema({"mode": TEXT, "filenames": TEXTS, "numFiles": NUMBER}),
        replayable=True,
    )


async def _validate_grep(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    values = ctx.profile.search
    for name, advice in (("head_limit", " Pass 0 for unlimited."), ("offset", "")):
        count = _as_number(value.get(name))
        if values.checks_range and count is not None and (count < 0 or not isinstance(count, int)):
            message = f"{name} must be a whole number of 0 or more, got {count}.{advice}"
            return Refusal(message, "invalid_input")
    return await check_search_root(value, ctx, "any") if values.checks_early else None


async def _run_grep(value: Mapping[str, object], ctx: ToolContext) -> Output:
    root = await to_thread.run_sync(require_search_root, value, ctx, "any", abandon_on_cancel=True)
    options = GrepOptions.parse(value, ctx.profile.search)
    collector = _COLLECTORS[options.mode](options, root, ctx)
    await run_ripgrep(ctx, options.ripgrep_arguments(), root, collector.add_output, ctx.cwd)
    return collector.output()


@dataclass(frozen=True, slots=True)
class GrepOptions:
    """The options of one search."""

    value: Mapping[str, object]
    mode: _OutputMode
    limit: float | None
    offset: float
    max_results: int | None
    """The maximum number of lines or files to return, or None for all."""

    @classmethod
    def parse(cls, value: Mapping[str, object], values: SearchValues) -> GrepOptions:
        """Create the options from a validated input."""
        limit = _as_number(value.get("head_limit"))
        max_results = values.default_limit if limit is None else max(0, int(limit))
        if limit == 0 and values.checks_range:
            max_results = None
        return cls(
            value=value,
            mode=next((mode for mode in _MODE_FLAGS if mode == value.get("output_mode")), "files_with_matches"),
            limit=limit,
            offset=_as_number(value.get("offset")) or 0,
            max_results=max_results,
        )

    @property
    def skip_count(self) -> int:
        """The number of results to skip at the start."""
        return max(0, int(self.offset))

    @property
    def needed_count(self) -> int | None:
        """The number of results to find, including those skipped, or None for all."""
        return None if self.max_results is None else self.skip_count + self.max_results

    @property
    def needed_files(self) -> int:
        """The number of files to find, which is always limited."""
        return self.skip_count + _MAX_FILES if self.needed_count is None else self.needed_count

    def ripgrep_arguments(self) -> list[str]:
        """Return ripgrep's arguments for this search, without the path."""
        value = self.value
        arguments = [_MODE_FLAGS[self.mode], "--with-filename"]
        if self.mode != "files_with_matches":
            arguments.append("--sort=path")
        if self.mode == "content":
            arguments += [
                f"--max-columns={_MAX_COLUMNS}",
                f"--context-separator={os.fsdecode(GROUP_SEPARATOR)}",
                "--line-number",  # needed even if it is not shown, to distinguish matches from context lines
            ]
            if value.get("-o") is True:
                arguments.append("--only-matching")
            context = value.get("context", value.get("-C"))
            counts = {"-B": value.get("-B"), "-A": value.get("-A")} if context is None else {"-C": context}
            for name, count in counts.items():
                if count is not None:
                    arguments += [name, str(_as_number(count))]
        if value.get("-i") is True:
            arguments.append("--ignore-case")
        if value.get("multiline") is True:
            arguments += ["--multiline", "--multiline-dotall"]
        if value.get("type"):
            arguments += ["--type", str(value["type"])]
        globs = (glob for word in str(value.get("glob") or "").split() for glob in _GLOB_COMMA.split(word))
        arguments += [f"--glob={glob}" for glob in globs if glob]
        arguments += [f"--glob=!{name}" for name in _VCS_FOLDERS]
        return [*arguments, "--regexp", str(value["pattern"])]


def _as_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value


class _Collector:
    """Collector for the output of one search.

    `total` counts the results that ripgrep printed before enough were found.
    """

    def __init__(self, options: GrepOptions, root: SearchRoot, ctx: ToolContext) -> None:
        self.total = 0
        self._options = options
        self._root = root
        self._cwd = os.fsencode(ctx.cwd).rstrip(b"/") + b"/"
        self._values = ctx.profile.search
        self._records = RecordSplitter()
        self._hidden = ctx.find_hidden_files()

    def _is_hidden(self, name: bytes) -> bool:
        """Return whether rules forbid reading a file. Such files are not mentioned."""
        return self._hidden is not None and self._hidden(os.fsdecode(name))

    def _visible_records(self, data: bytes) -> Iterator[RipgrepRecord]:
        for record in self._records.split_output(data):
            if not self._is_hidden(record.name or record.line.partition(b": ")[0]):
                yield record

    def add_output(self, data: bytes) -> bool:
        """Process a chunk of ripgrep's output. Return True if no more is needed."""
        raise NotImplementedError

    def output(self) -> Output:
        raise NotImplementedError

    def _applied_range(self) -> dict[str, object]:
        limit, needed = self._options.limit, self._options.needed_count
        applied: dict[str, object] = {}
        if not self._values.checks_range:
            if limit is not None:
                applied["appliedLimit"] = limit
        elif needed is not None and self.total > needed:
            applied["appliedLimit"] = self._values.default_limit if limit is None else limit
        if self._options.offset:
            applied["appliedOffset"] = self._options.offset
        return applied

    def _pagination(self) -> str:
        """Describe the limit and offset for the model; empty if all results are returned."""
        applied = self._applied_range()
        if not self._values.checks_range:
            if not any(applied.values()):
                return ""
            limit = applied.get("appliedLimit", "undefined")  # older clients print this
            return f"limit: {limit}, offset: {applied.get('appliedOffset', 0)}"
        names = {"appliedLimit": "limit", "appliedOffset": "offset"}
        return ", ".join(f"{names[key]}: {count}" for key, count in applied.items())

    def _overflow_note(self, listed_count: int) -> str:
        is_unlimited = self._options.max_results is None
        has_more = self.total > self._options.skip_count + listed_count
        return _OVERFLOW_NOTE if is_unlimited and listed_count and has_more else ""

    def _empty_text(self, message: str) -> str:
        return _PAST_END_TEXT if self._values.reports_totals and self.total else message


class _MatchingFiles(_Collector):
    """Collector for the matching files, newest first."""

    def __init__(self, options: GrepOptions, root: SearchRoot, ctx: ToolContext) -> None:
        super().__init__(options, root, ctx)
        self._newest: list[tuple[int, bytes]] = []
        """Pairs of the negated modification time, so that the newest files sort first, and the name."""
        self._pending = b""

    def add_output(self, data: bytes) -> bool:
        """Process a chunk of null-terminated names. All are needed, because the newest may be the last."""
        *names, self._pending = (self._pending + data).split(b"\0")
        names = [name for name in names if not self._is_hidden(name)]
        self.total += len(names)
        for name in names:
            mtime = 0
            with suppress(OSError):
                mtime = os.stat(name).st_mtime_ns  # noqa: PTH116 - bytes
            self._newest.append((-mtime, name))
        needed = self._options.needed_files
        if len(self._newest) > 2 * needed + 1_000:
            self._newest = heapq.nsmallest(needed, self._newest)
        return False

    def output(self) -> Output:
        listed = sorted(self._newest)[self._options.skip_count : self._options.needed_files]
        names = [shorten_name(name, self._cwd) for _, name in listed]
        record: dict[str, object] = {"mode": self._options.mode, "filenames": names, "numFiles": len(names)}
        if self._values.reports_totals:
            record["totalFiles"] = self.total
        record |= self._applied_range()
        pagination = self._pagination()
        if names:
            head = " ".join(filter(None, (f"Found {_format_file_count(len(names))}", pagination)))
            return Output("\n".join((head, *names)) + self._overflow_note(len(names)), record)
        message = self._empty_text(_NO_FILES_TEXT)
        if message == _PAST_END_TEXT:
            message += f". [Showing results with pagination = {pagination}]"
        return Output(message, record)


class _MatchingLines(_Collector):
    def __init__(self, options: GrepOptions, root: SearchRoot, ctx: ToolContext) -> None:
        super().__init__(options, root, ctx)
        self._lines: list[str] = []
        self._char_count = 0
        self._is_full = False
        """True if the lines exceed `_MAX_CONTENT_CHARS`."""

    def add_output(self, data: bytes) -> bool:
        if self._has_enough() and self._hidden is None:
            self.total += data.count(b"\0")
            return not self._values.reports_totals
        for record in self._visible_records(data):
            if self.total >= self._options.skip_count and not self._has_enough():
                line = self._format_line(record)
                self._lines.append(line)
                self._char_count += len(line)
                self._is_full = self._char_count > _MAX_CONTENT_CHARS
            self.total += 1
        needed = self._options.needed_count
        has_more = self._is_full or (needed is not None and self.total > needed)
        return has_more and not self._values.reports_totals

    def output(self) -> Output:
        content = "\n".join(self._lines)
        if not self._values.strips_returns:  # older clients trim ripgrep's whole output
            content = content.lstrip() if self._options.skip_count == 0 else content
            content = content.rstrip() if len(self._lines) + self._options.skip_count == self.total else content
        record: dict[str, object] = {
            "mode": self._options.mode,
            "numFiles": 0,
            "filenames": [],
            "content": content,
            "numLines": len(self._lines),
        }
        if self._values.reports_totals:
            record["totalLines"] = self.total
        record |= self._applied_range()
        max_chars = self._values.output_limit
        if not self._lines:
            content = self._empty_text(_NO_MATCHES_TEXT)
        elif max_chars is not None and len(content) > max_chars:
            removed = content.count("\n", max_chars) + 1
            content = f"{content[:max_chars]}\n\n... [{removed} lines truncated] ..."
        if pagination := self._pagination():
            content += f"\n\n[Showing results with pagination = {pagination}]"
        return Output(content + (_OVERFLOW_NOTE if self._is_full else ""), record)

    def _has_enough(self) -> bool:
        needed = self._options.needed_count
        return self._is_full or (needed is not None and self.total >= needed)

    def _format_line(self, record: RipgrepRecord) -> str:
        if not record.name:
            line = record.line.replace(self._cwd, b"", 1)
            return decode_name(line if self._root.is_folder else line.rpartition(b": ")[2])
        if self._values.strips_returns:
            record = record._replace(line=record.line.removesuffix(b"\r"))
        # The line number is followed by `:` in a match and by `-` in a context line.
        rest = record.line.lstrip(b"0123456789")
        separator = rest[:1]
        visible = rest[1:] if self._options.value.get("-n") is False else record.line
        if not self._root.is_folder:
            return decode_name(visible)
        line = separator + visible
        if separator == b"-" and not self._values.relative_names and b":" not in record.name + line:
            return decode_name(record.name + line)
        return shorten_name(record.name, self._cwd) + decode_name(line)


class _MatchCounts(_Collector):
    def __init__(self, options: GrepOptions, root: SearchRoot, ctx: ToolContext) -> None:
        super().__init__(options, root, ctx)
        self._lines: list[str] = []
        self._files = 0
        self._matches = 0
        """The number of matches in all files if the client reports totals, and otherwise in the listed files."""

    def add_output(self, data: bytes) -> bool:
        needed = self._options.needed_files
        for record in self._visible_records(data):
            is_listed = self._options.skip_count <= self.total < needed
            if is_listed:
                self._lines.append(f"{shorten_name(record.name, self._cwd)}:{decode_name(record.line)}")
            if is_listed or self._values.reports_totals:
                self._files += 1
                self._matches += int(record.line) if record.line.isdigit() else 0
            self.total += 1
        return not self._values.reports_totals and self.total > needed

    def output(self) -> Output:
        content = "\n".join(self._lines)
        record = {
            "mode": self._options.mode,
            "numFiles": self._files,
            "filenames": [],
            "content": content,
            "numMatches": self._matches,
            **self._applied_range(),
        }
        plural = "" if self._matches == 1 else "s"
        message = content or self._empty_text(_NO_MATCHES_TEXT)
        message += f"\n\nFound {self._matches} total occurrence{plural} across {_format_file_count(self._files)}."
        if pagination := self._pagination():
            message += f" with pagination = {pagination}"
        return Output(message + self._overflow_note(len(self._lines)), record)


_COLLECTORS: Mapping[_OutputMode, type[_Collector]] = {
    "content": _MatchingLines,
    "files_with_matches": _MatchingFiles,
    "count": _MatchCounts,
}


def _format_file_count(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"
