"""Find the files from which git runs programs later: its configuration, hooks, and repositories in its index.

git itself reads the configuration, inside a sandbox in which nothing is writable. Start at `GitFiles.refresh`.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from toolspan.runtime.sandbox.settings import resolve_path

RunContained = Callable[[Sequence[str], Path], Awaitable[bytes]]
"""A function that runs a command line in a folder, inside the sandbox, and returns its output."""

REPOSITORY_FILES = ("config", "config.worktree", "hooks")
REPOSITORY_MARKS = ("HEAD", "objects", "refs")
_READ_ALL = """\
git=$1; shift
"$git" config --list --show-origin --includes -z
for file; do "$git" config --file "$file" --list --show-origin --includes -z; done
"""
_RUN_KEYS = frozenset({
    "alternaterefscommand", "askpass", "clean", "cmd", "command", "defaultkeycommand", "difffilter", "driver", "editor",
    "external", "fsmonitor", "gitproxy", "helper", "packobjectshook", "pager", "path", "process", "program",
    "receivepack", "smudge", "sshcommand", "textconv", "uploadpack",
})  # fmt: skip
"""The last parts of keys whose values git runs as programs."""
_FOLDER_KEYS = ("core.hookspath", "init.templatedir")
_WORD = re.compile(r"""[^\s"'`;|&(){}<>=$!]+""")
_MAX_INCLUDE_ROUNDS = 10
_GITLINK_MODE = (0o160000).to_bytes(4, "big")
_MAX_INDEX_SIZE = 256 << 20


class _Entry(NamedTuple):
    origin: Path
    key: str
    value: str


class GitFiles:
    """The files that git's configuration names, and the repositories in its index, as they were last read."""

    def __init__(self) -> None:
        self.configuration: tuple[Path, ...] = ()
        """The configuration files and those that they include, also if they do not exist."""
        self.folders: tuple[Path, ...] = ()
        """The folders from which git runs or copies hooks."""
        self.programs: tuple[Path, ...] = ()
        """The files that may be named in commands."""
        self.has_worktree_config = False
        self._hash_size = 20
        self._stamp: object = None
        self._lock = asyncio.Lock()
        self._gitlinks: dict[Path, tuple[object, list[Path]]] = {}

    async def refresh(
        self, git: str, folders: Sequence[Path], environment: Mapping[str, str], run: RunContained
    ) -> None:
        """Read the configuration, unless no configuration file has changed. The first folder is the project."""
        async with self._lock:
            repositories = [repository for folder in folders for repository in self.find_repositories(folder)]
            files = [path for repository in repositories for path in _find_configurations(repository)]
            user_files = _find_user_configurations(environment)
            if self._stamp == _read_stamp([*files, *user_files, *self.configuration]):
                return
            entries = await _read_entries(git, files, folders[0], run)
            origins = [entry.origin for entry in entries]
            self.configuration = tuple(dict.fromkeys([*origins, *filter(None, map(_included_path, entries))]))
            bases = [*_find_worktrees(folders), *filter(None, map(_submodule_worktree, entries))]
            named = [entry for entry in entries if entry.key in _FOLDER_KEYS]
            self.folders = tuple(resolve_path(entry.value, base) for entry in named for base in bases)
            words = dict.fromkeys(word for entry in entries for word in _command_words(entry))
            programs = dict.fromkeys(resolve_path(word, base) for word in words for base in bases)
            self.programs = tuple(path for path in programs if any(folder in path.parents for folder in folders))
            self.has_worktree_config = any(entry.key == "extensions.worktreeconfig" for entry in entries)
            is_long = any(entry.key == "extensions.objectformat" and entry.value == "sha256" for entry in entries)
            self._hash_size = 32 if is_long else 20
            self._stamp = _read_stamp([*files, *user_files, *self.configuration])

    def find_repositories(self, folder: Path) -> Iterator[Path]:
        """Yield the git folders of a folder: its own, those of submodules, and those in its index."""
        git = folder / ".git"
        if git.is_dir() or folder.name == ".git":
            candidates = [git, *find_submodules(git), folder]
            candidates += [path / ".git" for path in self.find_embedded(folder)]
            yield from (path for path in candidates if (path / "HEAD").exists())

    def find_embedded(self, folder: Path) -> list[Path]:
        """Return the folders in the index that are repositories of their own, from whose settings git runs programs.

        The git folder of an ordinary submodule is in `.git/modules`.
        """
        git_folder = _find_git_folder(folder)
        if git_folder is None:
            return []
        indexes = [git_folder / "index", *git_folder.glob("sharedindex.*")]
        stamp = _read_stamp(indexes)
        if folder not in self._gitlinks or self._gitlinks[folder][0] != stamp:
            names = [name for index in indexes for name in _read_gitlinks(index, self._hash_size)]
            self._gitlinks[folder] = stamp, [folder / os.fsdecode(name) for name in names]
        modules = f"{os.path.realpath(git_folder)}/modules/"
        paths = [path for path in self._gitlinks[folder][1] if os.path.lexists(f"{path}/.git")]
        return [path for path in paths if not f"{_find_git_folder(path)}".startswith(modules)]


async def _read_entries(git: str, files: Sequence[Path], project: Path, run: RunContained) -> list[_Entry]:
    """Return all entries of the configuration, also those in files whose condition for inclusion is not met."""
    entries: dict[_Entry, None] = {}
    pending, seen = [path for path in files if path.is_file()], set[Path]()
    for _ in range(_MAX_INCLUDE_ROUNDS):
        output = await run(["/bin/sh", "-c", _READ_ALL, "sh", git, *map(str, pending)], project)
        entries |= dict.fromkeys(_parse_entries(output, project))
        seen |= {*pending, *(entry.origin for entry in entries)}
        included = dict.fromkeys(filter(None, map(_included_path, entries)))
        pending = [path for path in included if path not in seen and path.is_file()]
        if not pending:
            break
    return list(entries)


def _parse_entries(output: bytes, folder: Path) -> Iterator[_Entry]:
    """Yield the entries printed by `git config --list --show-origin -z`."""
    fields = os.fsdecode(output).split("\0")
    for origin, entry in zip(fields[::2], fields[1::2], strict=False):
        key, _, value = entry.partition("\n")
        # Other origins are variables and options.
        path = origin.removeprefix("file:") if origin.startswith("file:") else os.devnull
        yield _Entry(resolve_path(path, folder), key, value)


def _included_path(entry: _Entry) -> Path | None:
    is_include = entry.key.startswith(("include.", "includeif.")) and entry.key.endswith(".path")
    return resolve_path(entry.value, entry.origin.parent) if is_include and entry.value else None


def _submodule_worktree(entry: _Entry) -> Path | None:
    return resolve_path(entry.value, entry.origin.parent) if entry.key == "core.worktree" and entry.value else None


def _command_words(entry: _Entry) -> Iterator[str]:
    section, _, name = entry.key.partition(".")
    if section in ("include", "includeif") or entry.value.lower() in ("true", "false"):
        return
    is_alias = section == "alias" and entry.value.startswith("!")
    if is_alias or section == "pager" or name.rpartition(".")[2] in _RUN_KEYS:
        yield from (entry.value, *_WORD.findall(entry.value))


def _find_configurations(repository: Path) -> Iterator[Path]:
    yield from (repository / name for name in ("config", "config.worktree"))
    with suppress(OSError):
        yield from (folder / "config.worktree" for folder in (repository / "worktrees").iterdir())


def _find_user_configurations(environment: Mapping[str, str]) -> list[Path]:
    home = Path(environment.get("HOME") or "/")
    settings = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    return [home / ".gitconfig", settings / "git/config", Path("/etc/gitconfig")]


def _find_worktrees(folders: Iterable[Path]) -> Iterator[Path]:
    """Yield the folders in which git runs programs, which may be above the project."""
    for folder in folders:
        yield folder
        parents = [folder, *folder.parents]
        yield from [parent for parent in parents if (parent / ".git").exists()][:1]


def _find_git_folder(folder: Path) -> Path | None:
    git = folder / ".git"
    with suppress(OSError, UnicodeDecodeError):
        if git.is_file():
            text = git.read_text(encoding="utf-8")
            return Path(os.path.realpath(folder / text.removeprefix("gitdir:").strip()))
    return git if git.is_dir() else None


def find_submodules(git: Path) -> Iterator[Path]:
    """Yield the submodule repositories, which are nested in `modules` as the submodules are in the project."""
    pending = [git / "modules"]
    while pending:
        folder = pending.pop()
        with suppress(OSError):
            for entry in os.scandir(folder):
                if entry.is_dir(follow_symlinks=False):
                    path = folder / entry.name
                    is_repository = (path / "HEAD").exists()
                    pending.append(path / "modules" if is_repository else path)
                    if is_repository:
                        yield path


def _read_stamp(paths: Iterable[Path]) -> tuple[object, ...]:
    return tuple(_identify(path) for path in dict.fromkeys(paths))


def _identify(path: Path) -> tuple[object, ...]:
    try:
        status = path.stat()
    except OSError:
        return (path,)
    return path, status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _read_gitlinks(index: Path, hash_size: int) -> list[bytes]:
    """Return the names of the repositories in an index file. A command may have written anything to it."""
    try:
        descriptor = os.open(index, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            is_readable = stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_INDEX_SIZE
            data = file.read() if is_readable else b""
        # perf: most indexes contain no such entry, and searching for its mode takes no time
        return list(_parse_gitlinks(data, hash_size)) if data[:4] == b"DIRC" and _GITLINK_MODE in data else []
    except (OSError, ValueError, IndexError, struct.error):  # git cannot read it either
        return []


def _parse_gitlinks(data: bytes, hash_size: int) -> Iterator[bytes]:
    """Yield the names of entries for repositories. See gitformat-index(5)."""
    version, count = struct.unpack_from(">II", data, 4)
    at, name = 12, b""
    for _ in range(count):
        flags_at = at + 40 + hash_size
        is_extended = version >= 3 and data[flags_at] & 0x40
        start = flags_at + (4 if is_extended else 2)
        if version == 4:  # the name shares its beginning with the previous one
            removed = data[start] & 0x7F
            while data[start] & 0x80:
                start += 1
                removed = (removed + 1) << 7 | data[start] & 0x7F
            end = data.index(b"\0", start + 1)
            name = name[: len(name) - removed] + data[start + 1 : end]
            mode, at = data[at + 24 : at + 28], end + 1
        else:
            end = data.index(b"\0", start)
            name = data[start:end]
            mode, at = data[at + 24 : at + 28], at + ((end - at + 8) & ~7)
        if mode == _GITLINK_MODE:
            yield name
