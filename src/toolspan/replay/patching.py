"""Codex's `apply_patch`, for calls that are run again.

In: a patch and the folder it was meant for, both as recorded. Out: files in the copy. All sections
are tried before the first file is written.
"""

from pathlib import Path

from toolspan.errors import ToolError
from toolspan.patch import PatchError
from toolspan.patch.envelope import Add, Delete, Update, parse, update
from toolspan.replay.ground import Ground
from toolspan.replay.plan import PATCH
from toolspan.report.files.place import whole
from toolspan.run.define import tool
from toolspan.run.tool import Tool


def patch_tool(ground: Ground) -> Tool:
    """The tool for one copy."""

    @tool(name=PATCH)
    async def apply_patch(patch: str, folder: str) -> str:
        """Apply a patch in Codex's form to files of the copy."""
        try:
            changes = _changes(patch, folder, ground)
        except (PatchError, OSError, UnicodeError) as error:
            raise ToolError(f"the patch does not fit: {error}") from error
        for path, content in changes.items():
            _put(path, content)
        return f"{len(changes)} files"

    return apply_patch


def _changes(patch: str, folder: str, ground: Ground) -> dict[Path, str | None]:
    """What each file holds then; None: it is gone."""
    found: dict[Path, str | None] = {}
    for section in parse(patch):
        path = _place(section.path, folder, ground)
        match section:
            case Add():
                found[path] = section.content
            case Delete():
                _read(path, found)
                found[path] = None
            case Update():
                content = update(section, _read(path, found))
                if section.move_to is not None:
                    found[path] = None
                    path = _place(section.move_to, folder, ground)
                found[path] = content
    return found


def _place(name: str, folder: str, ground: Ground) -> Path:
    path = ground.place(whole(name, folder))
    if path is None or not ground.holds(path):
        raise PatchError(f"{name} leads out of the project")
    return path


def _read(path: Path, found: dict[Path, str | None]) -> str:
    content = found[path] if path in found else path.read_bytes().decode("utf-8")
    if content is None:
        raise PatchError(f"{path.name} is gone")
    return content


def _put(path: Path, content: str | None) -> None:
    if content is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
