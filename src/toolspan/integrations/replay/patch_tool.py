"""Codex's `apply_patch`, for calls that are run again.

In: a patch and the folder it was meant for, both as recorded. Out: files in the copy. All sections
are tried before the first file is written.
"""

from __future__ import annotations

from pathlib import Path

from toolspan.analysis.file_history.shell_writes import absolute_path
from toolspan.diffs import PatchError
from toolspan.diffs.codex_patch import AddFile, DeleteFile, UpdateFile, apply_update, parse_patch
from toolspan.errors import ToolError
from toolspan.integrations.replay.plan import PATCH_TOOL
from toolspan.integrations.replay.scratch import PathMapping
from toolspan.runtime.tool import Tool, tool


def patch_tool(mapping: PathMapping) -> Tool:
    """The tool for one copy."""

    @tool(name=PATCH_TOOL)
    async def apply_patch(patch: str, folder: str) -> str:
        """Apply a patch in Codex's form to files of the copy."""
        try:
            changes = _patched_contents(patch, folder, mapping)
        except (PatchError, OSError, UnicodeError) as error:
            raise ToolError(f"the patch does not fit: {error}") from error
        for path, content in changes.items():
            _write_or_delete(path, content)
        return f"{len(changes)} files"

    return apply_patch


def _patched_contents(patch: str, folder: str, mapping: PathMapping) -> dict[Path, str | None]:
    """What each file holds then; None: it is gone."""
    contents: dict[Path, str | None] = {}
    for section in parse_patch(patch):
        path = _resolve_path(section.path, folder, mapping)
        match section:
            case AddFile():
                contents[path] = section.content
            case DeleteFile():
                _current_content(path, contents)
                contents[path] = None
            case UpdateFile():
                content = apply_update(section, _current_content(path, contents))
                if section.move_to is not None:
                    contents[path] = None
                    path = _resolve_path(section.move_to, folder, mapping)
                contents[path] = content
    return contents


def _resolve_path(name: str, folder: str, mapping: PathMapping) -> Path:
    path = mapping.to_copy_path(absolute_path(name, folder))
    if path is None or not mapping.copy_contains(path):
        raise PatchError(f"{name} leads out of the project")
    return path


def _current_content(path: Path, contents: dict[Path, str | None]) -> str:
    content = contents[path] if path in contents else path.read_bytes().decode("utf-8")
    if content is None:
        raise PatchError(f"{path.name} is gone")
    return content


def _write_or_delete(path: Path, content: str | None) -> None:
    if content is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
