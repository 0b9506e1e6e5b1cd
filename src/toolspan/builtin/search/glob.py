"""Glob: the files whose names fit a pattern, the oldest first.

In: a pattern and a folder. Out: a hundred names, and how many there are. Ripgrep walks and sorts;
of what it prints, the first names are kept and the others counted.
"""

import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from anyio import to_thread

from toolspan.builtin.search.ripgrep import ripgrep
from toolspan.builtin.search.where import Names, checked, refused_place, text
from toolspan.profile import Profile
from toolspan.run.context import ToolContext
from toolspan.run.tool import Output, Refusal, Tool
from toolspan.schema.check import checker

MOST = 100
"""Names that are listed."""
_MAGIC = "*?[{"
_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "pattern": {
            "type": "string",
            "description": "What names look like: `**/*.py`, `src/*.{js,ts}`",
        },
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
        parse=checker(_SCHEMA, coerce=profile.offer.coerces),
        run=_run,
        validate=_validate if profile.search.checks_early else None,
        concurrent=True,
        read_only=True,
        idempotent=True,
    )


class _Start(NamedTuple):
    """Where to look, and for what."""

    folder: Path
    pattern: str


async def _validate(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    return await refused_place(value.get("path"), ctx, "folder")


async def _run(value: Mapping[str, object], ctx: ToolContext) -> Output:
    begun = time.perf_counter()
    start = await to_thread.run_sync(partial(_start, value, ctx), abandon_on_cancel=True)
    listing = Listing(MOST, counts=ctx.profile.search.counts_matches)
    arguments = ["--files", "--no-ignore", "--sort=modified", f"--glob={start.pattern}"]
    await ripgrep(ctx, arguments, start.folder, listing.take)
    names = _named(listing.names, start.folder, ctx)
    return _output(names, listing, round((time.perf_counter() - begun) * 1e3), ctx.profile)


def _start(value: Mapping[str, object], ctx: ToolContext) -> _Start:
    pattern = str(value["pattern"])
    folder: object = value.get("path")
    if ctx.profile.search.absolute_patterns and pattern.startswith("/"):
        folder, pattern = _split(pattern)
    return _Start(checked(folder, ctx, "folder").path, pattern)


def _split(pattern: str) -> tuple[str, str]:
    """The folder that an absolute pattern begins with, and the rest of it."""
    plain = next((at for at, sign in enumerate(pattern) if sign in _MAGIC), len(pattern))
    cut = pattern.rfind("/", 0, plain)
    return pattern[:cut] or "/", pattern[cut + 1 :]


class Listing:
    """The first names out of a stream of them, and how many there were."""

    def __init__(self, most: int, *, counts: bool) -> None:
        self.names: list[bytes] = []
        self.total = 0
        self._most = most
        self._counts = counts
        self._rest = b""

    def take(self, data: bytes) -> bool:
        """Take names that end in null bytes; True when no more are needed."""
        self.total += data.count(b"\0")
        if len(self.names) < self._most:
            *whole, self._rest = (self._rest + data).split(b"\0")
            self.names += whole[: self._most - len(self.names)]
        return not self._counts and self.total > self._most

    @property
    def left_out(self) -> int:
        """How many are not among the names, as far as was heard."""
        return self.total - len(self.names)


def _named(names: list[bytes], folder: Path, ctx: ToolContext) -> list[str]:
    base = os.fsencode(folder).rstrip(b"/") + b"/"
    whole = [base + name for name in names]
    if not ctx.profile.search.relative_names:
        return [text(name) for name in whole]
    short = Names(ctx.cwd).short
    return [short(name) for name in whole]


def _output(names: list[str], listing: Listing, duration: int, profile: Profile) -> Output:
    cut = listing.left_out > 0
    record: dict[str, object] = {
        "filenames": names,
        "durationMs": duration,
        "numFiles": len(names),
        "truncated": cut,
    }
    if profile.search.counts_matches:
        record |= {"totalMatches": listing.total, "countIsComplete": True}
    lines = names or ["No files found"]
    if cut:
        lines = [*lines, _cut_text(len(names), listing, profile)]
    return Output("\n".join(lines), record)


def _cut_text(shown: int, listing: Listing, profile: Profile) -> str:
    if not profile.search.counts_matches:
        return "(Results are truncated. Consider using a more specific path or pattern.)"
    return (
        f"(Showing {shown} of {listing.total} matching files; {listing.left_out} more are not"
        " listed. A narrower pattern or path shows them.)"
    )
