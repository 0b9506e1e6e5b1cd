"""A temporary copy of a project, without links that point outside it.

Start at `open_scratch`. Links inside the project are kept. Other links, pipes, devices and `.git` are omitted,
because git's files can refer to programs to run and to other folders. If a commit is set, only its files are
extracted.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from toolspan.analysis.file_history.shell_writes import absolute_path, is_within
from toolspan.errors import ToolspanError
from toolspan.runtime.git import READING_OPTIONS, disable_filters, git_environment

MAX_BYTES = 2 << 30
MAX_FILES = 200_000
_NEVER_COPIED = frozenset({".git"})
_FICLONE = 0x40049409
"""The Linux ioctl that makes a copy share blocks with the original, if the file system supports it."""
_GIT_SECONDS = 300


@dataclass(slots=True)
class ScratchProject:
    """The folders used by one replay."""

    root: Path
    """The folder that contains the copy, a home folder and session folders."""
    project: Path
    file_count: int = 0
    total_bytes: int = 0
    omitted: list[str] = field(default_factory=list)
    """Project paths that were not copied, with the reason for each."""

    def make_folder(self, name: str) -> Path:
        """Create a folder next to the copy."""
        path = self.root / name
        path.mkdir(exist_ok=True)
        return path


@contextmanager
def open_scratch(
    project: Path | None, *, commit: str | None = None, max_bytes: int = MAX_BYTES, keep: bool = False
) -> Iterator[ScratchProject]:
    """Copy `project` (None for an empty folder), and remove the copy on exit unless `keep` is set.

    Raises:
        ToolspanError: the folder is too large or cannot be copied.
    """
    root = Path(tempfile.mkdtemp(prefix="toolspan-replay-")).resolve()
    scratch = ScratchProject(root, root / "project")
    try:
        scratch.project.mkdir()
        try:
            if project is not None and commit is None:
                _FolderCopier(scratch, project.resolve(), max_bytes).run()
            elif project is not None and commit is not None:
                _extract_commit(scratch, project, commit)
        except OSError as error:
            raise ToolspanError(f"{error.filename or project}: cannot be copied: {error.strerror or error}") from error
        yield scratch
    finally:
        if not keep:
            remove_scratch(root)


class _FolderCopier:
    """Copier that checks the size of a folder before it writes anything."""

    def __init__(self, scratch: ScratchProject, source: Path, max_bytes: int) -> None:
        self._scratch = scratch
        self._source = source
        self._max_bytes = max_bytes
        self._folders: list[str] = []
        self._files: list[str] = []
        self._links: list[str] = []

    def run(self) -> None:
        for path in (self._source, *self._source.parents[:-1]):
            if path == self._scratch.root:
                raise ToolspanError(f"{self._source}: cannot be copied into itself")
        self._scan_folder("")
        target = self._scratch.project
        for name in self._folders:
            (target / name).mkdir()
        for name in self._files:
            _copy_file(self._source / name, target / name)
        for name in self._links:
            end = Path(os.path.realpath(self._source / name))
            link = target / name
            if end.is_relative_to(self._source) and end.exists():
                link.symlink_to(os.path.relpath(target / end.relative_to(self._source), link.parent))
            else:
                self._omit_path(name, "a link that leads out of it, or nowhere")
        self._scratch.file_count = len(self._files)

    def _scan_folder(self, subfolder: str) -> None:
        try:
            with os.scandir(self._source / subfolder) as listing:
                items = sorted(listing, key=lambda item: item.name)
        except PermissionError:
            self._omit_path(subfolder, "it cannot be listed")
            return
        for item in items:
            name = os.path.join(subfolder, item.name)  # noqa: PTH118 - many of them
            if item.name in _NEVER_COPIED:
                self._omit_path(name, "never copied")
            elif Path(item.path) == self._scratch.root:
                continue
            elif item.is_symlink():
                self._links.append(name)
            elif item.is_dir(follow_symlinks=False):
                self._folders.append(name)
                self._scan_folder(name)
            elif item.is_file(follow_symlinks=False):
                self._add_file(name, item.stat(follow_symlinks=False))
            else:
                self._omit_path(name, "not a plain file")

    def _add_file(self, name: str, status: os.stat_result) -> None:
        self._files.append(name)
        self._scratch.total_bytes += status.st_size
        if self._scratch.total_bytes > self._max_bytes or len(self._files) > MAX_FILES:
            raise ToolspanError(
                f"{self._source}: more than {self._max_bytes >> 20:,} MB or {MAX_FILES:,} files, too much to copy;"
                " choose a smaller folder (--project) or a commit (--commit), or raise the limit (--most-mb)"
            )

    def _omit_path(self, name: str, why: str) -> None:
        self._scratch.omitted.append(f"{name}: {why}")


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file with its mode and modification time, sharing its blocks if possible."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(source, flags)
    except PermissionError:
        return  # the recorded session probably could not read it either
    with open(descriptor, "rb") as old, target.open("xb") as new:  # noqa: PTH123 - it is open
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, descriptor)
        except OSError:
            shutil.copyfileobj(old, new, 1 << 20)
    target.chmod(stat.S_IMODE(status.st_mode) & 0o777 | stat.S_IWUSR)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _extract_commit(scratch: ScratchProject, project: Path, commit: str) -> None:
    if commit.startswith("-"):
        raise ToolspanError(f"{commit}: not the name of a commit")
    # A session may have written the repository, so none of its filters runs.
    names = _run_git(project, ["config", "--null", "--name-only", "--get-regexp", r"^filter\."], {}).stdout
    filters = disable_filters(os.fsdecode(names).split("\0"))
    completed = _run_git(project, ["archive", "--format=tar", commit + "^{commit}"], filters)
    if completed.returncode:
        error_lines = completed.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ToolspanError(f"{project}: git has no files of {commit}: {' '.join(error_lines[:1])}")
    with tarfile.open(fileobj=io.BytesIO(completed.stdout)) as archive:
        archive.extraction_filter = lambda member, _: member  # checked below; older Pythons have no filters
        archive.extractall(scratch.project, members=_safe_members(archive))
    for path in scratch.project.rglob("*"):
        if path.is_file() and not path.is_symlink():
            scratch.file_count += 1
            scratch.total_bytes += path.stat().st_size


def has_commit(project: Path, commit: str) -> bool:
    """Return whether the repository of a project has a commit."""
    try:
        return _run_git(project, ["cat-file", "-e", f"{commit}^{{commit}}"], {}).returncode == 0
    except ToolspanError:
        return False


def _run_git(
    project: Path, arguments: Sequence[str], variables: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    command = ["git", *READING_OPTIONS, "-C", str(project), *arguments]
    environment = git_environment({**os.environ, **variables})
    try:
        return subprocess.run(command, check=False, capture_output=True, env=environment, timeout=_GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolspanError(f"git {arguments[0]}: {error}") from error


def _safe_members(archive: tarfile.TarFile) -> list[tarfile.TarInfo]:
    """Return the files and folders, then the links that point inside, so that no file is written through a link."""
    members = [member for member in archive if _is_inside(member.name)]
    for member in members:
        member.mode &= 0o755
    links = [member for member in members if member.issym() and _is_inside(member.linkname, member.name)]
    return [*(member for member in members if member.isreg() or member.isdir()), *links]


def _is_inside(target: str, link: str = "") -> bool:
    """Return whether a path, which may be the target of a link, stays in its archive whatever other links it passes."""
    parts = target.split("/")
    depth = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
    return not target.startswith("/") and ".." not in parts[depth:] and depth <= link.strip("/").count("/")


def remove_scratch(root: Path) -> None:
    """Remove a scratch folder, even if file modes would prevent it."""
    for folder, _, _ in os.walk(root):
        with suppress(OSError):
            Path(folder).chmod(0o700)
    shutil.rmtree(root, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class PathMapping:
    """A recorded folder and its copy."""

    recorded_root: str
    """The recorded folder, as the transcript spells it."""
    copy_root: Path
    """The folder of the copy, with symbolic links resolved."""

    def to_copy_path(self, name: str) -> Path | None:
        """Return the corresponding path in the copy, or None if `name` is invalid or outside the project."""
        path = absolute_path(name, self.recorded_root)
        if "\0" in path or not is_within(path, self.recorded_root):
            return None
        rest = path[len(self.recorded_root.rstrip("/\\")) :].lstrip("/\\")
        return self.copy_root / (rest.replace("\\", "/") if ":" in self.recorded_root[:2] else rest)

    def recorded_path(self, name: str) -> str:
        """Return the absolute form of a recorded path."""
        return absolute_path(name, self.recorded_root)

    def into_copy(self, text: str) -> str:
        """Return a command with the recorded folder replaced by the copy."""
        name = self.recorded_root.rstrip("/")
        if not name:  # the root is a prefix of every path
            return text
        pattern = rf"(?<![\w.~/-]){re.escape(name)}(?![\w.-])"
        return re.sub(pattern, lambda _: str(self.copy_root), text)

    def as_recorded(self, text: str) -> str:
        """Return text with the copy's path replaced by the recorded folder."""
        return text.replace(str(self.copy_root), self.recorded_root.rstrip("/\\"))

    def copy_contains(self, path: str | Path) -> bool:
        """Return whether a path is inside the copy after its links are resolved."""
        try:
            real = os.path.realpath(path)
        except (OSError, ValueError):
            return False
        return is_within(real, str(self.copy_root))
