"""Glob: the files whose names fit a pattern, the oldest first.

In: a pattern and a folder. Out: a hundred names, and how many there are. Ripgrep walks and sorts;
of what it prints, the first names are kept and the others counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from anyio import to_thread

from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Refusal, Tool
from toolspan.tools.ripgrep import RelativeNames, check_search_root, decode_name, require_search_root, run_ripgrep

MAX_NAMES = 100
"""Names that are listed."""
_GLOB_CHARS = "*?[{"
_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string", "description": "What names look like: `**/*.py`, `src/*.{js,ts}`"},
        "path": {"type": "string", "description": "The folder to look in; the current one if left"},
    },
    "required": ["pattern"],
    "additionalProperties": False,
}


def glob_tool(profile: Profile) -> Tool:
    """Glob as a client version has it."""
    return Tool(
        name="Glob",
        description=(
            "Find files by name, in a folder and all below it. Gives a hundred names at most, those"
            " that were not changed for the longest time first."
        ),
        input_schema=_SCHEMA,
        parse=compile_checker(_SCHEMA, coerce=profile.availability.coerces),
        run=_run_glob,
        validate=_validate_folder if profile.search.checks_early else None,
        concurrent=True,
        read_only=True,
        idempotent=True,
    )


class _GlobSearch(NamedTuple):
    """Where to look, and for what."""

    folder: Path
    pattern: str


async def _validate_folder(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    return await check_search_root(value.get("path"), ctx, "folder")


async def _run_glob(value: Mapping[str, object], ctx: ToolContext) -> Output:
    started = time.perf_counter()
    search = await to_thread.run_sync(partial(_parse_search, value, ctx), abandon_on_cancel=True)
    listing = FileListing(MAX_NAMES, count_all=ctx.profile.search.counts_matches)
    arguments = ["--files", "--no-ignore", "--sort=modified", f"--glob={search.pattern}"]
    await run_ripgrep(ctx, arguments, search.folder, listing.add_output)
    names = _format_names(listing.names, search.folder, ctx)
    return _glob_output(names, listing, round((time.perf_counter() - started) * 1e3), ctx.profile)


def _parse_search(value: Mapping[str, object], ctx: ToolContext) -> _GlobSearch:
    pattern = str(value["pattern"])
    folder: object = value.get("path")
    if ctx.profile.search.absolute_patterns and pattern.startswith("/"):
        folder, pattern = _split_pattern(pattern)
    return _GlobSearch(require_search_root(folder, ctx, "folder").path, pattern)


def _split_pattern(pattern: str) -> tuple[str, str]:
    """The folder that an absolute pattern begins with, and the rest of it."""
    first_special = next((at for at, sign in enumerate(pattern) if sign in _GLOB_CHARS), len(pattern))
    cut = pattern.rfind("/", 0, first_special)
    return pattern[:cut] or "/", pattern[cut + 1 :]


class FileListing:
    """The first names out of a stream of them, and how many there were."""

    def __init__(self, max_names: int, *, count_all: bool) -> None:
        self.names: list[bytes] = []
        self.total = 0
        self._max_names = max_names
        self._count_all = count_all
        self._pending = b""

    def add_output(self, data: bytes) -> bool:
        """Take names that end in null bytes; True when no more are needed."""
        self.total += data.count(b"\0")
        if len(self.names) < self._max_names:
            *complete_names, self._pending = (self._pending + data).split(b"\0")
            self.names += complete_names[: self._max_names - len(self.names)]
        return not self._count_all and self.total > self._max_names

    @property
    def omitted_count(self) -> int:
        """How many are not among the names, as far as was heard."""
        return self.total - len(self.names)


def _format_names(names: list[bytes], folder: Path, ctx: ToolContext) -> list[str]:
    base = os.fsencode(folder).rstrip(b"/") + b"/"
    absolute_names = [base + name for name in names]
    if not ctx.profile.search.relative_names:
        return [decode_name(name) for name in absolute_names]
    shorten = RelativeNames(ctx.cwd).shorten
    return [shorten(name) for name in absolute_names]


def _glob_output(names: list[str], listing: FileListing, duration: int, profile: Profile) -> Output:
    is_truncated = listing.omitted_count > 0
    record: dict[str, object] = {
        "filenames": names,
        "durationMs": duration,
        "numFiles": len(names),
        "truncated": is_truncated,
    }
    if profile.search.counts_matches:
        record |= {"totalMatches": listing.total, "countIsComplete": True}
    lines = names or ["No files found"]
    if is_truncated:
        lines = [*lines, _truncation_note(len(names), listing, profile)]
    return Output("\n".join(lines), record)


def _truncation_note(listed: int, listing: FileListing, profile: Profile) -> str:
    if not profile.search.counts_matches:
        return "(Results are truncated. Consider using a more specific path or pattern.)"
    return (
        f"(Showing {listed} of {listing.total} matching files; {listing.omitted_count} more are not"
        " listed. A narrower pattern or path shows them.)"
    )
