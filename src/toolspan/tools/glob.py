"""Glob: find files whose names match a pattern, oldest first.

Ripgrep finds and sorts the files, and `FileListing` keeps the first names of its output and counts the rest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from anyio import to_thread

from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.tool import Output, Refusal, Tool, ToolHints, ToolSubject
from toolspan.tools.ripgrep import (
    SearchRoot,
    check_search_root,
    require_search_root,
    run_ripgrep,
    shorten_name,
    strip_search_path,
)
from toolspan.tools.schemas import FLAG, NUMBER, TEXTS, object_schema, result_schema, text

MAX_NAMES = 100
_GLOB_CHARS = "*?[{"
_SCHEMA = object_schema(
    {
        "pattern": text("The glob pattern, such as `**/*.py` or `src/*.{js,ts}`."),
        "path": text("The folder to search. The default is the current folder."),
    },
    required=["pattern"],
)


def glob_tool(profile: Profile) -> Tool:
    """Return the Glob tool for a client version."""
    check = compile_checker(_SCHEMA, coerce=profile.availability.coerces)

    def parse(raw_input: Mapping[str, object]) -> Valid | Invalid:
        checked = check(raw_input)
        return checked if isinstance(checked, Invalid) else strip_search_path(checked)

    return Tool(
        name="Glob",
        description=(
            "Find files whose paths match a glob pattern, in a folder and everything below it. Returns at most"
            f" {MAX_NAMES} paths, the least recently changed first. Hidden files and those that .gitignore"
            " excludes are included. To search inside files, use Grep."
        ),
        input_schema=_SCHEMA,
        parse=parse,
        run=_run_glob,
        validate=_validate_folder if profile.search.checks_early else None,
        concurrent=True,
        read_only=True,
        idempotent=True,
        kind="search",
        subject=ToolSubject("file", "path", pattern="pattern"),
        slow_after=5.0,
        hints=ToolHints("Find files by name", read_only=True),
        output_schema=result_schema({"filenames": TEXTS, "numFiles": NUMBER, "truncated": FLAG}),
        replayable=True,
    )


async def _validate_folder(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    return await check_search_root(value, ctx, "folder")


async def _run_glob(value: Mapping[str, object], ctx: ToolContext) -> Output:
    started = time.perf_counter()
    values, pattern = ctx.profile.search, str(value["pattern"])
    if values.relative_names and pattern.startswith("/"):
        first_special = next((at for at, char in enumerate(pattern) if char in _GLOB_CHARS), len(pattern))
        cut = pattern.rfind("/", 0, first_special)
        value, pattern = {"path": pattern[:cut] or "/"}, pattern[cut + 1 :]
    root = await to_thread.run_sync(require_search_root, value, ctx, "folder", abandon_on_cancel=True)
    place = root.path if values.relative_names else ctx.workspace.project
    listing = await _list_files(pattern, root, place, ctx)
    if values.relative_names and not listing.total and pattern.startswith(f"{root.path.name}/"):
        listing = await _list_files(pattern, root, root.path.parent, ctx)
    cwd = os.fsencode(ctx.cwd).rstrip(b"/") + b"/"
    names = [shorten_name(name, cwd if values.relative_names else b"") for name in listing.names]
    omitted_count = listing.total - len(names)
    record: dict[str, object] = {
        "filenames": names,
        "durationMs": round((time.perf_counter() - started) * 1e3),
        "numFiles": len(names),
        "truncated": omitted_count > 0,
    }
    lines = names or ["No files found"]
    if values.reports_totals:
        record |= {"totalMatches": listing.total, "countIsComplete": True}
    if omitted_count and values.reports_totals:
        note = (
            f"(Showing {len(names)} of {listing.total} matching files; {omitted_count} more are not"
            " listed. Use a narrower pattern or path to see them.)"
        )
        lines = [*lines, note]
    elif omitted_count:
        lines = [*lines, "(Results are truncated. Consider using a more specific path or pattern.)"]
    return Output("\n".join(lines), record)


async def _list_files(pattern: str, root: SearchRoot, place: Path, ctx: ToolContext) -> FileListing:
    """Return the files below a folder whose paths relative to `place` match, as absolute names, oldest first."""
    values, is_hidden = ctx.profile.search, ctx.find_hidden_files()
    arguments = ["--files", "--no-ignore", "--sort=modified", f"--glob={pattern}"]
    listing = FileListing(
        MAX_NAMES,
        count_all=values.reports_totals,
        is_hidden=None if is_hidden is None else lambda name: is_hidden(os.fsdecode(name)),
    )
    await run_ripgrep(ctx, arguments, root, listing.add_output, place)
    return listing


class FileListing:
    """The first names in a stream and the total count, excluding files that may not be read."""

    def __init__(self, max_names: int, *, count_all: bool, is_hidden: Callable[[bytes], bool] | None = None) -> None:
        self.names: list[bytes] = []
        self.total = 0
        self._max_names = max_names
        self._count_all = count_all
        self._is_hidden = is_hidden
        self._pending = b""

    def add_output(self, data: bytes) -> bool:
        """Process a chunk of null-terminated names. Return True if no more are needed."""
        if self._is_hidden is not None:
            *names, self._pending = (self._pending + data).split(b"\0")
            names = [name for name in names if not self._is_hidden(name)]
            self.total += len(names)
            self.names += names[: max(0, self._max_names - len(self.names))]
            return not self._count_all and self.total > self._max_names
        self.total += data.count(b"\0")
        if len(self.names) < self._max_names:
            *complete_names, self._pending = (self._pending + data).split(b"\0")
            self.names += complete_names[: self._max_names - len(self.names)]
        return not self._count_all and self.total > self._max_names
