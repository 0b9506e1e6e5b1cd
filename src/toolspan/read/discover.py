"""Finds transcripts: in the clients' own folders, or below any folder named.

In: a folder. Out: `FoundFile`s, in a stable order. Walks without following links, so that a
hostile archive cannot lead out of its folder. Opens transcripts only to ask a rollout whose
subagent it is.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field, structs

from toolspan.errors import SourceError
from toolspan.wire.codex_paths import codex_home, is_rollout
from toolspan.wire.paths import FileName, config_dir, inside, meta_path, parse_name
from toolspan.wire.source import source_of

_META_LIMIT = 1 << 20
_HEAD = 1 << 13
"""Where the names stand in a rollout's first line; what comes after them may be long."""


_OWNERS = re.compile(rb'"(session_id|parent_thread_id)":"([^"\\]+)"')


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


def default_roots() -> list[Path]:
    """The folders in which this user's clients keep transcripts, those that exist.

    Raises:
        SourceError: there is none, or one that may not be looked at.
    """
    home = codex_home()
    places = (config_dir() / "projects", home / "sessions", home / "archived_sessions")
    found = [place for place in places if _is_there(place)]
    if not found:
        raise SourceError(
            f"{places[0]}: no such folder; name a file or folder, or set CLAUDE_CONFIG_DIR"
            " or CODEX_HOME"
        )
    return found


def _is_there(folder: Path) -> bool:
    try:
        return folder.is_dir()
    except OSError as error:
        raise SourceError(f"{folder}: {os.strerror(error.errno or 0)}") from error


def discover_all(roots: Sequence[Path] | None = None) -> list[FoundFile]:
    """The transcripts below several folders; without any, of this user's own clients.

    Raises:
        SourceError: a folder does not exist or cannot be listed.
    """
    return [
        file for root in (default_roots() if roots is None else roots) for file in discover(root)
    ]


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
        return sorted(_once(_walk(root)), key=lambda file: str(file.path))
    except OSError as error:
        raise SourceError(f"{root}: {os.strerror(error.errno or 0)}") from error


def _found(path: Path, status: os.stat_result) -> FoundFile:
    return FoundFile(
        path=path, name=parse_name(path), size=status.st_size, modified=status.st_mtime
    )


def _walk(root: Path) -> Iterator[FoundFile]:
    """What lies below a folder; of folders and links below it that cannot be read, nothing."""
    waiting = [str(root)]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as listing:
                items = list(listing)
        except OSError:
            if folder == str(root):
                raise
            continue
        for item in items:
            if is_folder(item):
                waiting.append(item.path)
            elif _may_be(item.name) and (found := _file(item, root)) is not None:
                yield found


def is_folder(item: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder itself, not a link to one."""
    try:
        return item.is_dir(follow_symlinks=False)
    except OSError:
        return False


def is_file(item: os.DirEntry[str]) -> bool:
    """Whether an entry is a file or leads to one; a link in a circle leads nowhere."""
    try:
        return item.is_file()
    except OSError:
        return False


def _file(item: os.DirEntry[str], root: Path) -> FoundFile | None:
    path = Path(item.path)
    if not is_file(item) or (item.is_symlink() and not inside(path, root)):
        return None
    try:
        found = _found(path, item.stat())
    except OSError:  # it went away meanwhile
        return None
    return found if found.name.role != "other" else None


def _may_be(name: str) -> bool:
    return name.endswith((".jsonl", ".jsonl.zst")) or is_rollout(name)


def _once(files: Iterator[FoundFile]) -> list[FoundFile]:
    """Without compressed copies of rollouts that are there uncompressed too."""
    found = list(files)
    plain = {str(file.path) for file in found}
    return [
        file
        for file in found
        if not is_rollout(file.path.name)
        or str(file.path).removesuffix(".zst") == str(file.path)
        or str(file.path).removesuffix(".zst") not in plain
    ]


def rollout_agents(files: Sequence[FoundFile], session: str) -> list[FoundFile]:
    """The rollouts among some files that subagents of a session wrote, marked as such."""
    marks = [f'"{key}":"{session}"'.encode() for key in ("parent_thread_id", "session_id")]
    found = []
    for file in files:
        if not is_rollout(file.path.name) or file.name.session_id == session:
            continue
        head = _head(file.path).replace(b'": "', b'":"')
        if any(mark in head for mark in marks):
            thread = file.name.session_id
            name = file.name._replace(role="agent", agent_id=thread, session_id=session)
            found.append(structs.replace(file, name=name))
    return found


def session_of_rollout(file: FoundFile) -> str | None:
    """The session a rollout says it is of: its own, or the one whose subagent wrote it."""
    told = dict(_OWNERS.findall(_head(file.path).replace(b'": "', b'":"')))
    owner = told.get(b"session_id") or told.get(b"parent_thread_id")
    return owner.decode("utf-8", "replace") if owner else file.name.session_id


def worked_in(file: FoundFile, folder: str) -> bool:
    """Whether a rollout's first line names a folder as the one it worked in."""
    head = _head(file.path).replace(b'": "', b'":"')
    return b'"cwd":' + msgspec.json.encode(folder) in head


def _head(path: Path) -> bytes:
    try:
        return source_of(path).read(0, _HEAD).partition(b"\n")[0]
    except SourceError:
        return b""


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
