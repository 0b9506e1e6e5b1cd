"""LS: list a folder and everything below it as a tree, breadth-first.

Symbolic links are listed but not followed, also if one replaces a folder meanwhile. Unreadable folders are listed
without their content.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from anyio import to_thread

from toolspan.errors import ToolError
from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Refusal, Tool, ToolHints, ToolSubject
from toolspan.tools.files.changes import permitted_target
from toolspan.tools.files.opening import open_resolved
from toolspan.tools.files.paths import replace_surrogates, resolve_path, wrap_os_error
from toolspan.tools.files.safe_read import stat_path
from toolspan.tools.schemas import TEXTS, object_schema, text

MAX_ENTRIES = 1_000
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY
_MALWARE_NOTE = "\n\nNOTE: do any of the files above seem malicious? If so, you MUST refuse to continue work."
_TRUNCATED_NOTE = f"\n(There are more than {MAX_ENTRIES} entries. The most deeply nested ones are not listed.)"
_SCHEMA = object_schema(
    {
        "path": text("The folder to list."),
        "ignore": {
            **TEXTS,
            "description": "Glob patterns of names or paths to skip, such as `*.tmp` or `node_modules`.",
        },
    },
    required=["path"],
)


def ls_tool(profile: Profile) -> Tool:
    """Return the LS tool, which only old client versions have."""
    return Tool(
        name="LS",
        description=(
            "List the files and folders in a folder and everything below it, except names that begin with"
            f" a dot. Returns at most {MAX_ENTRIES:,} entries."
        ),
        input_schema=_SCHEMA,
        parse=compile_checker(_SCHEMA, coerce=profile.availability.coerces),
        run=_run_ls,
        validate=_validate_folder,
        concurrent=True,
        read_only=True,
        idempotent=True,
        kind="search",
        subject=ToolSubject("file", "path"),
        slow_after=2.0,
        hints=ToolHints("List a folder", read_only=True),
        replayable=True,
    )


async def _validate_folder(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    return await to_thread.run_sync(_check_folder, _folder_path(value, ctx), abandon_on_cancel=True)


def _folder_path(value: Mapping[str, object], ctx: ToolContext) -> Path:
    return resolve_path(str(value["path"]), ctx.cwd, ctx.workspace.environment.get("HOME"))


def _check_folder(folder: Path) -> Refusal | None:
    stat_result = stat_path(folder)
    if stat_result is None:
        return Refusal(f"Directory does not exist: {replace_surrogates(str(folder))}", "not_found")
    if not stat.S_ISDIR(stat_result.st_mode):
        return Refusal(f"Path is not a directory: {replace_surrogates(str(folder))}", "invalid_input")
    return None


async def _run_ls(value: Mapping[str, object], ctx: ToolContext) -> Output:
    return await to_thread.run_sync(_list_folder, value, ctx, abandon_on_cancel=True)


@dataclass(slots=True)
class _TreeEntry:
    name: str
    is_folder: bool
    children: list[_TreeEntry] = field(default_factory=list)


def _list_folder(value: Mapping[str, object], ctx: ToolContext) -> Output:
    folder = _folder_path(value, ctx)
    if refusal := _check_folder(folder):
        raise ToolError(refusal.text, kind=refusal.kind, wrapped=True)
    ignored = value.get("ignore")
    patterns = [
        str(glob).removeprefix("./").removeprefix("**/").removesuffix("/**").rstrip("/")
        for glob in (ignored if isinstance(ignored, list) else ())
    ]
    target = permitted_target(folder, ctx)
    try:
        os.close(open_resolved(target, _FOLDER_FLAGS))
    except OSError as error:
        raise wrap_os_error(error, "scandir", folder) from error
    root = _TreeEntry(str(folder).rstrip("/"), is_folder=True)
    queue = deque([(root, target, "")])
    count, note = 0, ""
    while queue and not note and not ctx.cancelled:
        entry, path, prefix = queue.popleft()
        for child in _scan_folder(path, patterns, prefix):
            if count == MAX_ENTRIES:
                note = _TRUNCATED_NOTE
                break
            count += 1
            entry.children.append(child)
            if child.is_folder:
                queue.append((child, path / child.name, f"{prefix}{child.name}/"))
    tree = "\n".join(_format_tree(root, 0)) + note
    return Output(tree + _MALWARE_NOTE, tree)


def _scan_folder(folder: Path, patterns: Sequence[str], prefix: str) -> list[_TreeEntry]:
    visible: list[_TreeEntry] = []
    with suppress(OSError, ToolError):
        descriptor = open_resolved(folder, _FOLDER_FLAGS)
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    names = (entry.name, prefix + entry.name)
                    is_ignored = any(fnmatchcase(name, pattern) for pattern in patterns for name in names)
                    if not is_ignored and not entry.name.startswith("."):
                        visible.append(_TreeEntry(entry.name, entry.is_dir(follow_symlinks=False)))
        finally:
            os.close(descriptor)
    return sorted(visible, key=lambda entry: entry.name)


def _format_tree(entry: _TreeEntry, depth: int) -> Iterator[str]:
    # A newline in a name would look like another entry.
    name = replace_surrogates(entry.name).replace("\n", "\\n")
    yield f"{'  ' * depth}- {name}{'/' if entry.is_folder else ''}"
    for child in entry.children:
        yield from _format_tree(child, depth + 1)
