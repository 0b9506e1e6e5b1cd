"""Finds transcripts: in Claude Code's own folders, or below any folder named.

In: a folder. Out: `FoundFile`s, in a stable order. Walks without following links, so that a
hostile archive cannot lead out of its folder. Does not open transcripts.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct, field

from toolspan.errors import SourceError
from toolspan.wire.paths import FileName, config_dir, inside, meta_path, parse_name

_META_LIMIT = 1 << 20


class FoundFile(Struct, frozen=True, kw_only=True):
    """A transcript that exists."""

    path: Path
    name: FileName
    size: int
    modified: float


class AgentMeta(Struct, frozen=True, kw_only=True):
    """What the side file of a subagent tells."""

    tool_use_id: str | None = field(default=None, name="toolUseId")
    agent_type: str | None = field(default=None, name="agentType")
    description: str | None = None
    parent_agent_id: str | None = field(default=None, name="parentAgentId")


def default_root() -> Path:
    """The projects folder of this user.

    Raises:
        SourceError: there is none.
    """
    root = config_dir() / "projects"
    if not root.is_dir():
        raise SourceError(
            f"{root}: no such folder; name a file or folder, or set CLAUDE_CONFIG_DIR"
        )
    return root


def discover(root: Path) -> list[FoundFile]:
    """The transcripts below a folder, or the file itself.

    Raises:
        SourceError: the path does not exist or cannot be listed.
    """
    try:
        status = root.stat()
    except (OSError, ValueError) as error:
        raise SourceError(f"{root}: no such file or folder") from error
    if not stat.S_ISDIR(status.st_mode):
        return [_found(root, status)]
    try:
        return sorted(_walk(str(root), root), key=lambda file: str(file.path))
    except OSError as error:
        raise SourceError(f"{root}: {os.strerror(error.errno or 0)}") from error


def _found(path: Path, status: os.stat_result) -> FoundFile:
    return FoundFile(
        path=path, name=parse_name(path), size=status.st_size, modified=status.st_mtime
    )


def _walk(folder: str, root: Path) -> Iterator[FoundFile]:
    try:
        with os.scandir(folder) as listing:
            items = list(listing)
    except PermissionError:
        if folder == str(root):
            raise
        return
    for item in items:
        if item.is_dir(follow_symlinks=False):
            yield from _walk(item.path, root)
        elif item.name.endswith((".jsonl", ".jsonl.zst")) and item.is_file():
            path = Path(item.path)
            if not item.is_symlink() or inside(path, root):
                found = _found(path, item.stat())
                if found.name.role != "other":
                    yield found


def read_meta(path: Path) -> AgentMeta | None:
    """What a subagent's side file tells; None when there is none that can be read."""
    try:
        data = _own_file(meta_path(path), _META_LIMIT)
        return msgspec.json.decode(data, type=AgentMeta)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None


def _own_file(path: Path, limit: int) -> bytes:
    """The bytes of a plain file: no link that leads elsewhere, no pipe that never answers.

    Raises:
        OSError: it is none, or cannot be read.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags)
    with open(descriptor, "rb") as stream:  # noqa: PTH123 - it is open already
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path}: not a regular file")
        return stream.read(limit)
