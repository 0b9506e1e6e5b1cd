"""Finds transcripts: in the clients' own folders, or below any folder named.

In: a folder. Out: `FoundFile`s, in a stable order. Walks without following links, so that a
hostile archive cannot lead out of its folder. Opens transcripts only to ask a rollout whose
subagent it is.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field, structs

from toolspan.errors import SourceError
from toolspan.formats.claude.paths import FileName, config_dir, is_inside_folder, meta_path, parse_file_name
from toolspan.formats.codex.paths import codex_home, is_rollout
from toolspan.formats.source import source_for_path

_META_LIMIT = 1 << 20
_HEAD_BYTES = 1 << 13
"""Where the names stand in a rollout's first line; what comes after them may be long."""


_OWNER_IDS = re.compile(rb'"(session_id|parent_thread_id)":"([^"\\]+)"')


class TranscriptFile(Struct, frozen=True, kw_only=True):
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
    existing_roots = [place for place in places if _folder_exists(place)]
    if not existing_roots:
        raise SourceError(f"{places[0]}: no such folder; name a file or folder, or set CLAUDE_CONFIG_DIR or CODEX_HOME")
    return existing_roots


def _folder_exists(folder: Path) -> bool:
    try:
        return folder.is_dir()
    except OSError as error:
        raise SourceError(f"{folder}: {os.strerror(error.errno or 0)}") from error


def find_all_transcripts(roots: Sequence[Path] | None = None) -> list[TranscriptFile]:
    """The transcripts below several folders; without any, of this user's own clients.

    Raises:
        SourceError: a folder does not exist or cannot be listed.
    """
    return [file for root in (default_roots() if roots is None else roots) for file in find_transcripts(root)]


def find_transcripts(root: Path) -> list[TranscriptFile]:
    """The transcripts below a folder, or the file itself.

    Raises:
        SourceError: the path does not exist or cannot be listed.
    """
    try:
        status = root.stat()
    except (OSError, ValueError) as error:
        raise SourceError(f"{root}: no such file or folder") from error
    if not stat.S_ISDIR(status.st_mode):
        return [_make_transcript_file(root, status)]
    try:
        return sorted(_drop_compressed_copies(_walk_folder(root)), key=lambda file: str(file.path))
    except OSError as error:
        raise SourceError(f"{root}: {os.strerror(error.errno or 0)}") from error


def _make_transcript_file(path: Path, status: os.stat_result) -> TranscriptFile:
    return TranscriptFile(path=path, name=parse_file_name(path), size=status.st_size, modified=status.st_mtime)


def _walk_folder(root: Path) -> Iterator[TranscriptFile]:
    """What lies below a folder; of folders and links below it that cannot be read, nothing."""
    pending_folders = [str(root)]
    while pending_folders:
        folder = pending_folders.pop()
        try:
            with os.scandir(folder) as listing:
                items = list(listing)
        except OSError:
            if folder == str(root):
                raise
            continue
        for item in items:
            if is_folder(item):
                pending_folders.append(item.path)
            elif _may_be_transcript(item.name) and (file := _file_from_entry(item, root)) is not None:
                yield file


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


def _file_from_entry(item: os.DirEntry[str], root: Path) -> TranscriptFile | None:
    path = Path(item.path)
    if not is_file(item) or (item.is_symlink() and not is_inside_folder(path, root)):
        return None
    try:
        file = _make_transcript_file(path, item.stat())
    except OSError:  # it went away meanwhile
        return None
    return file if file.name.role != "other" else None


def _may_be_transcript(name: str) -> bool:
    return name.endswith((".jsonl", ".jsonl.zst")) or is_rollout(name)


def _drop_compressed_copies(files: Iterator[TranscriptFile]) -> list[TranscriptFile]:
    """Without compressed copies of rollouts that are there uncompressed too."""
    all_files = list(files)
    plain = {str(file.path) for file in all_files}
    return [
        file
        for file in all_files
        if not is_rollout(file.path.name)
        or str(file.path).removesuffix(".zst") == str(file.path)
        or str(file.path).removesuffix(".zst") not in plain
    ]


def find_rollout_agents(files: Sequence[TranscriptFile], session: str) -> list[TranscriptFile]:
    """The rollouts among some files that subagents of a session wrote, marked as such."""
    marks = [f'"{key}":"{session}"'.encode() for key in ("parent_thread_id", "session_id")]
    agent_files = []
    for file in files:
        if not is_rollout(file.path.name) or file.name.session_id == session:
            continue
        head = _read_head(file.path).replace(b'": "', b'":"')
        if any(mark in head for mark in marks):
            thread = file.name.session_id
            name = file.name._replace(role="agent", agent_id=thread, session_id=session)
            agent_files.append(structs.replace(file, name=name))
    return agent_files


def rollout_session_id(file: TranscriptFile) -> str | None:
    """The session a rollout says it is of: its own, or the one whose subagent wrote it."""
    header_ids = dict(_OWNER_IDS.findall(_read_head(file.path).replace(b'": "', b'":"')))
    owner = header_ids.get(b"session_id") or header_ids.get(b"parent_thread_id")
    return owner.decode("utf-8", "replace") if owner else file.name.session_id


def has_working_folder(file: TranscriptFile, folder: str) -> bool:
    """Whether a rollout's first line names a folder as the one it worked in."""
    head = _read_head(file.path).replace(b'": "', b'":"')
    return b'"cwd":' + msgspec.json.encode(folder) in head


def _read_head(path: Path) -> bytes:
    try:
        return source_for_path(path).read(0, _HEAD_BYTES).partition(b"\n")[0]
    except SourceError:
        return b""


def read_agent_meta(path: Path) -> AgentMeta | None:
    """What a subagent's side file tells; None when there is none that can be read."""
    try:
        data = _read_regular_file(meta_path(path), _META_LIMIT)
        return msgspec.json.decode(data, type=AgentMeta)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None


def _read_regular_file(path: Path, limit: int) -> bytes:
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
