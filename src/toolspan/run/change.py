"""May a file be changed, and what the conversation knows of it afterwards.

In: a path and what calls have seen so far. Out: a refusal in the client's words, or nothing. For
tools that change parts of files; what they change is not known here.
"""

import stat
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from anyio import to_thread

from toolspan.disk.load import Loaded, Stamp, fingerprint
from toolspan.disk.place import meant, placed, real
from toolspan.disk.swap import swap
from toolspan.disk.words import clean
from toolspan.errors import ToolError
from toolspan.run.context import ToolContext
from toolspan.run.files import FileState
from toolspan.run.tool import Output, Refusal

Input = Mapping[str, object]
_Plan = TypeVar("_Plan")

UNREAD = "File has not been read yet. Read it first before writing to it."
STALE = (
    "File has been modified since read, either by the user or by a linter. Read it again before"
    " attempting to write it."
)


class Planned(Generic[_Plan]):
    """The two steps of a tool that plans before it acts, both in a worker thread.

    A plan that turns out a refusal is the tool's veto. It is made again when the tool runs: the
    file may have changed while somebody was asked for consent.
    """

    def __init__(
        self,
        plan: Callable[[Input, ToolContext], _Plan | Refusal],
        act: Callable[[_Plan, ToolContext], Output],
    ) -> None:
        self._plan = plan
        self._act = act

    async def validate(self, value: Input, ctx: ToolContext) -> Refusal | None:
        """Plan, to see whether it can be done."""
        plan = await to_thread.run_sync(partial(self._plan, value, ctx), abandon_on_cancel=True)
        return plan if isinstance(plan, Refusal) else None

    async def run(self, value: Input, ctx: ToolContext) -> Output:
        """Plan again, and do it; not abandoned on cancel: what was begun is told as it ended."""
        return await to_thread.run_sync(partial(self._planned_and_done, value, ctx))

    def _planned_and_done(self, value: Input, ctx: ToolContext) -> Output:
        plan = self._plan(value, ctx)
        if isinstance(plan, Refusal):
            raise ToolError(plan.text, kind=plan.kind, wrapped=plan.wrapped)
        return self._act(plan, ctx)


def path_of(name: str, ctx: ToolContext) -> Path:
    """The file a name means, as the client's file tools take it."""
    expands = ctx.profile.files.expands_home
    return placed(name, ctx.cwd, ctx.workspace.environment.get("HOME") if expands else None)


def end_of(path: Path, ctx: ToolContext) -> Path | None:
    """What a path led to when consent was given; None when that differs between processes."""
    end = ctx.links.real(str(path))
    return Path(end) if not end.startswith("/proc/") else None


def missing(path: Path, name: str, ctx: ToolContext) -> Refusal:
    """There is no such file; perhaps another was meant."""
    text = ctx.profile.files.missing.format(cwd=ctx.cwd, path=name)
    other = meant(path)
    return Refusal(text + (f" Did you mean {other}?" if other else ""), "not_found")


def known(path: Path, ctx: ToolContext) -> FileState | None:
    """What the conversation knows of a file, by its own name or that of what a link leads to."""
    return ctx.files.get(real(path)) or ctx.files.get(path)


def unread() -> Refusal:
    """The file has to be read first."""
    return Refusal(UNREAD, "read_required")


def stale(loaded: Loaded, state: FileState | None) -> Refusal | None:
    """The file is not as the conversation has seen it."""
    if state is None or state.digest == loaded.digest:
        return None
    return Refusal(STALE, "stale_file")


def not_a_file(name: str, mode: int) -> Refusal | None:
    """There is something else than a regular file."""
    if stat.S_ISDIR(mode):
        return Refusal(f"{clean(name)} is a directory, not a file.", "is_directory")
    if not stat.S_ISREG(mode):
        return Refusal(f"{clean(name)} is not a regular file.", "invalid_input")
    return None


def put(
    path: Path, data: bytes, stamp: Stamp | None, before: str | None, ctx: ToolContext
) -> Stamp:
    """Give a file this content; what is about to happen is written down first.

    `before` is the digest of what it has, None for no file. See `disk.swap.swap` for the rest.

    Raises:
        ToolError: it could not be written, or is not what was expected; nothing has changed.
    """
    end = end_of(path, ctx)
    journal = ctx.workspace.journal
    if journal is not None:
        target, after = str(end or real(path)), fingerprint(data)
        call = ctx.call
        journal.begin(call.id, call.tool, call.arguments, path=target, before=before, after=after)
    return swap(path, data, stamp, end)


def wrote(path: Path, data: bytes, stamp: Stamp, ctx: ToolContext, *, whole: bool) -> None:
    """A call gave the file this content."""
    state = FileState(
        digest=fingerprint(data),
        mtime_ns=stamp.mtime_ns,
        size=stamp.size,
        whole=whole,
        call_id=ctx.call.id,
    )
    for name in {path, real(path)}:
        ctx.files.saw(name, state)
