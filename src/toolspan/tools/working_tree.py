"""The files of a git working tree that a command changed, which is recorded beside the command's output.

A command may have written the repository, so git does not run here. ripgrep lists the files that git does not ignore,
limited to the folder as in a search, and their contents are remembered from one command to the next. Start at
`watch_command`.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import anyio
from anyio import to_thread
from msgspec import to_builtins

from toolspan.diffs import added_removed
from toolspan.diffs.make import make_hunks
from toolspan.errors import ToolError
from toolspan.runtime.context import ToolContext
from toolspan.tools.files.changes import permitted_target
from toolspan.tools.files.paths import replace_surrogates
from toolspan.tools.files.safe_read import read_file

_VARIABLE = "CLAUDE_CODE_BASH_EDIT_DIFF"
_MODE = "bypassPermissions"
_ARGUMENTS = ("--files", "--no-ignore-dot", "--glob", "!.git")
_MAX_FILES = 20_000
_MAX_REMEMBERED = 64 << 20
"""The number of bytes of all contents that are kept in memory. Of other files, only the names are recorded."""
_MAX_BYTES = 2 << 20
_MAX_SECONDS = 10
_SHOWN_FILES, _EXAMINED_FILES, _NAMED_FILES = 5, 50, 1_000
_SHOWN_LINES, _SHOWN_CHARS = 400, 100_000
"""Of a file with more changed lines, or longer ones, only the name is recorded."""
_CLOCK_LAG_NS = 20_000_000
"""A file that was changed this recently may change again without getting another time."""

FindChanges = Callable[[], Awaitable[Mapping[str, object] | None]]
"""Return the record of what changed since the command started, or None if nothing did."""


class _File(NamedTuple):
    status: tuple[int, int, int, int]
    content: bytes | None
    """None if the file is too large or cannot be read."""
    is_settled: bool


_Files = Mapping[str, _File]


class WorkingTree:
    """The files of a working tree at the time of the last look. Unchanged files are read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files: _Files = {}

    async def read(self, ctx: ToolContext) -> _Files | None:
        """Return the files that git does not ignore, by path; None if there are too many, or they cannot be listed."""
        from toolspan.tools.ripgrep import SearchRoot, run_ripgrep  # Bash has none of the messages of a search

        chunks: list[bytes] = []
        count = 0

        def add_output(data: bytes) -> bool:
            nonlocal count
            chunks.append(data)
            count += data.count(b"\0")
            return count > _MAX_FILES

        with suppress(ToolError), anyio.move_on_after(_MAX_SECONDS):
            await run_ripgrep(ctx, _ARGUMENTS, SearchRoot(self.root, is_folder=True), add_output, self.root)
            names = [os.fsdecode(name) for name in b"".join(chunks).split(b"\0") if name]
            if count <= _MAX_FILES:
                target = permitted_target(self.root, ctx)
                self._files = await to_thread.run_sync(self._read_files, names, target, ctx.find_hidden_files())
                return self._files
        return None

    def _read_files(self, names: list[str], target: Path, is_hidden: Callable[[str], bool] | None) -> _Files:
        files: dict[str, _File] = {}
        nested: dict[str, bool] = {}
        remembered = 0
        for name in names:
            path = str(target) + name.removeprefix(str(self.root))
            if self._is_nested(os.path.dirname(path), str(target), nested) or (is_hidden and is_hidden(path)):  # noqa: PTH120 - perf
                continue
            try:
                found = os.lstat(path)
            except OSError:
                continue
            if not stat.S_ISREG(found.st_mode):
                continue
            status = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
            known = self._files.get(name)
            if known is None or known.status != status or not known.is_settled:
                content = None
                is_settled = found.st_ctime_ns < time.time_ns() - _CLOCK_LAG_NS
                if found.st_size <= min(_MAX_BYTES, _MAX_REMEMBERED - remembered):
                    with suppress(ToolError):
                        content = read_file(Path(path), _MAX_BYTES).data
                known = _File(status, content, is_settled)
            files[name] = known
            remembered += len(known.content or b"")
        return files

    def _is_nested(self, folder: str, root: str, known: dict[str, bool]) -> bool:
        """Return whether a folder is in another repository, below the root of this one."""
        if len(folder) <= len(root):
            return False
        if folder not in known:
            parent = os.path.dirname(folder)  # noqa: PTH120 - perf
            known[folder] = os.path.lexists(f"{folder}/.git") or self._is_nested(parent, root, known)
        return known[folder]


async def watch_command(ctx: ToolContext) -> FindChanges | None:
    """Look at the working tree before a command starts, and return the function that finds what it changed.

    As in the client, this is done only if no call is asked about, or if a variable demands it.
    """
    demanded = ctx.workspace.environment.get(_VARIABLE, "").lower()
    mode = ctx.services.context.permission_mode or ctx.workspace.permission_mode
    is_wanted = demanded not in ("0", "false", "no", "off") if demanded else mode == _MODE
    if not ctx.profile.shell.records_edits or not is_wanted:
        return None
    root = _find_root(ctx)
    if root is None:
        return None
    tree = ctx.workspace.working_tree
    if tree is None or tree.root != root:
        tree = ctx.workspace.working_tree = WorkingTree(root)
    before = await tree.read(ctx)
    if before is None:
        return None

    async def find_changes() -> Mapping[str, object] | None:
        after = await tree.read(ctx)
        return None if after is None else await to_thread.run_sync(_describe_changes, before, after)

    return find_changes


def _find_root(ctx: ToolContext) -> Path | None:
    """Return the root of the repository with the current folder, or the folder of the session that is inside it."""
    session_folders = {ctx.workspace.project, *ctx.workspace.added_folders}
    is_outside = False
    inside = ctx.cwd
    for folder in (ctx.cwd, *ctx.cwd.parents):
        if not is_outside:
            inside = folder
        if os.path.lexists(folder / ".git"):
            return inside if is_outside or session_folders.intersection((inside, *inside.parents)) else None
        is_outside = is_outside or folder in session_folders
    return None


def _describe_changes(before: _Files, after: _Files) -> Mapping[str, object] | None:
    changed = sorted(path for path in {*before, *after} if _differ(before.get(path), after.get(path)))
    if not changed:
        return None
    shown: list[Mapping[str, object]] = []
    for path in changed[:_EXAMINED_FILES]:
        if len(shown) < _SHOWN_FILES and (edited := _describe_file(path, before.get(path), after.get(path))):
            shown.append(edited)
    record: dict[str, object] = {
        "files": shown,
        "moreFiles": len(changed) - len(shown),
        "changedFiles": [replace_surrogates(path) for path in changed[:_NAMED_FILES]],
    }
    versions = (files.get(path) for path in changed for files in (before, after))
    if any(version is not None and version.content is None for version in versions):
        record["unavailable"] = True
    return record


def _differ(old: _File | None, new: _File | None) -> bool:
    if old is None or new is None:
        return True
    if old.content is None or new.content is None:
        return old.status != new.status
    return old.content != new.content


def _describe_file(path: str, old: _File | None, new: _File | None) -> Mapping[str, object] | None:
    """Return the change of a text file; None if it has too many changed lines, or one content is not known as text."""
    texts: list[str] = []
    for file in (old, new):
        content = b"" if file is None else file.content
        if content is None or b"\0" in content:
            return None
        try:
            texts.append(content.decode())
        except UnicodeDecodeError:
            return None
    hunks = make_hunks(texts[0], texts[1], notes=True)
    count = added_removed(hunks)
    is_long = sum(len(line) for hunk in hunks for line in hunk.lines) > _SHOWN_CHARS
    if sum(count) > _SHOWN_LINES or is_long:
        return None
    kind = {"created": True} if old is None else {"deleted": True} if new is None else {}
    return {"filePath": replace_surrogates(path), "hunks": to_builtins(hunks), **kind}
