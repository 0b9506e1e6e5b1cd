"""LS: what is in a folder and below it, as a tree.

In: a folder and globs to leave out. Out: a thousand entries at most, those nearest to the folder.
Links are shown, not followed; folders that cannot be read are shown empty.
"""

import os
import stat
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from anyio import to_thread

from toolspan.disk.faults import fault
from toolspan.disk.load import look
from toolspan.disk.place import placed
from toolspan.disk.words import clean
from toolspan.errors import ToolError
from toolspan.profile import Profile
from toolspan.run.context import ToolContext
from toolspan.run.tool import Output, Refusal, Tool
from toolspan.schema.check import checker

MOST = 1_000
"""Entries that are listed."""
_NOTE = (
    "\n\nNOTE: do any of the files above seem malicious? If so, you MUST refuse to continue work."
)
_MORE = f"\n(There are more than {MOST} entries; those deepest below are not listed.)"
_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The folder to list"},
        "ignore": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Names or paths to leave out, as globs: `*.tmp`, `node_modules`",
        },
    },
    "required": ["path"],
    "additionalProperties": False,
}


def ls_tool(profile: Profile) -> Tool:
    """LS, for the profile that has it."""
    return Tool(
        name="LS",
        description="List a folder and what is below it. Names that begin with a dot are left out.",
        input_schema=_SCHEMA,
        parse=checker(_SCHEMA, coerce=profile.offer.coerces),
        run=_run,
        validate=_validate,
        concurrent=True,
        read_only=True,
        idempotent=True,
    )


async def _validate(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    return await to_thread.run_sync(partial(_refused, _folder(value, ctx)), abandon_on_cancel=True)


async def _run(value: Mapping[str, object], ctx: ToolContext) -> Output:
    return await to_thread.run_sync(partial(_list, value, ctx), abandon_on_cancel=True)


def _folder(value: Mapping[str, object], ctx: ToolContext) -> Path:
    return placed(str(value["path"]), ctx.cwd, ctx.workspace.environment.get("HOME"))


def _refused(folder: Path) -> Refusal | None:
    found = look(folder)
    if found is None:
        return Refusal(f"Directory does not exist: {clean(str(folder))}", "not_found")
    if not stat.S_ISDIR(found.st_mode):
        return Refusal(f"Path is not a directory: {clean(str(folder))}", "invalid_input")
    return None


def _list(value: Mapping[str, object], ctx: ToolContext) -> Output:
    folder = _folder(value, ctx)
    if refusal := _refused(folder):
        raise ToolError(refusal.text, kind=refusal.kind, wrapped=True)
    ignored = value.get("ignore")
    globs = [str(glob) for glob in ignored] if isinstance(ignored, list) else []
    try:
        os.scandir(folder).close()
    except OSError as error:
        raise fault(error, "scandir", folder) from error
    root = _Entry(str(folder).rstrip("/"), is_folder=True)
    complete = _grow(root, folder, globs, ctx)
    tree = "\n".join(_lines(root, 0)) + ("" if complete else _MORE)
    return Output(tree + _NOTE, tree)


@dataclass(slots=True)
class _Entry:
    """A file or folder of the tree."""

    name: str
    is_folder: bool
    below: list["_Entry"] = field(default_factory=list)


def _grow(root: _Entry, folder: Path, globs: Sequence[str], ctx: ToolContext) -> bool:
    """Read folders, the nearest first, until the tree is full; whether it is complete."""
    waiting = deque([(root, folder, "")])
    count = 0
    while waiting and not ctx.cancelled:
        entry, path, prefix = waiting.popleft()
        for child in _entries(path, globs, prefix):
            if count == MOST:
                return False
            count += 1
            below = _Entry(child.name, child.is_dir(follow_symlinks=False))
            entry.below.append(below)
            if below.is_folder:
                waiting.append((below, path / child.name, f"{prefix}{child.name}/"))
    return True


def _entries(folder: Path, globs: Sequence[str], prefix: str) -> list[os.DirEntry[str]]:
    found: list[os.DirEntry[str]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        found = [one for one in entries if not _left_out(one.name, prefix, globs)]
    return sorted(found, key=lambda one: one.name)


def _left_out(name: str, prefix: str, globs: Sequence[str]) -> bool:
    if name.startswith("."):
        return True
    for glob in globs:
        plain = glob.removeprefix("./").removeprefix("**/").removesuffix("/**").rstrip("/")
        if fnmatchcase(name, plain) or fnmatchcase(prefix + name, plain):
            return True
    return False


def _lines(entry: _Entry, depth: int) -> Iterator[str]:
    # A newline in a name would look like one more entry.
    name = clean(entry.name).replace("\n", "\\n")
    yield f"{'  ' * depth}- {name}{'/' if entry.is_folder else ''}"
    for below in entry.below:
        yield from _lines(below, depth + 1)
