"""A copy of a project to run calls in, and the end of it.

In: a folder. Out: a copy that nothing leads out of: links that stay in the project stay links,
others are left out, as are pipes, devices and `.git` (its files can name programs to be started
and folders elsewhere). Of a commit, the files that git has of it. Read `open_scratch` first.
"""

import fcntl
import io
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from toolspan.errors import ToolspanError

MOST_BYTES = 2 << 30
MOST_FILES = 200_000
_LEFT_OUT = frozenset({".git"})
_FICLONE = 0x40049409
"""Linux: the copy shares the original's blocks, where the file system can do that."""
_GIT_SECONDS = 300


@dataclass(slots=True)
class Scratch:
    """A place for one replay."""

    place: Path
    """All of it: the copy, a home, what sessions keep."""
    project: Path
    files: int = 0
    size: int = 0
    left_out: list[str] = field(default_factory=list)
    """What of the project is not in the copy, and why."""

    def folder(self, name: str) -> Path:
        """A folder beside the copy."""
        path = self.place / name
        path.mkdir(exist_ok=True)
        return path


@contextmanager
def open_scratch(
    project: Path | None,
    *,
    commit: str | None = None,
    most_bytes: int = MOST_BYTES,
    keep: bool = False,
) -> Iterator[Scratch]:
    """A copy of a folder, or an empty folder for None; removed at the end unless it is kept.

    Raises:
        ToolspanError: the folder is too large, or cannot be copied.
    """
    place = Path(tempfile.mkdtemp(prefix="toolspan-replay-")).resolve()
    scratch = Scratch(place, place / "project")
    try:
        scratch.project.mkdir()
        if project is not None:
            _fill(scratch, project, commit, most_bytes)
        yield scratch
    finally:
        if not keep:
            remove(place)


def _fill(scratch: Scratch, project: Path, commit: str | None, most_bytes: int) -> None:
    try:
        if commit is None:
            _Copying(scratch, project.resolve(), most_bytes).run()
        else:
            _unpack(scratch, project, commit)
    except OSError as error:
        raise ToolspanError(
            f"{error.filename or project}: it cannot be copied: {error.strerror or error}"
        ) from error


class _Copying:
    """Copies a folder; nothing is written before it is known how much it is."""

    def __init__(self, scratch: Scratch, source: Path, most_bytes: int) -> None:
        self._scratch = scratch
        self._source = source
        self._most = most_bytes
        self._folders: list[str] = []
        self._files: list[str] = []
        self._links: list[str] = []

    def run(self) -> None:
        for path in (self._source, *self._source.parents[:-1]):
            if path == self._scratch.place:
                raise ToolspanError(f"{self._source}: it would be copied into itself")
        self._look("")
        target = self._scratch.project
        for name in self._folders:
            (target / name).mkdir()
        for name in self._files:
            _copy(self._source / name, target / name)
        for name in self._links:
            self._link(name)
        self._scratch.files = len(self._files)

    def _look(self, below: str) -> None:
        """What there is, in folders first order."""
        try:
            with os.scandir(self._source / below) as listing:
                items = sorted(listing, key=lambda item: item.name)
        except PermissionError:
            self._leave_out(below, "it cannot be listed")
            return
        for item in items:
            name = os.path.join(below, item.name)  # noqa: PTH118 - many of them
            if item.name in _LEFT_OUT:
                self._leave_out(name, "never copied")
            elif Path(item.path) == self._scratch.place:
                continue
            elif item.is_symlink():
                self._links.append(name)
            elif item.is_dir(follow_symlinks=False):
                self._folders.append(name)
                self._look(name)
            else:
                self._file(name, item.stat(follow_symlinks=False))

    def _file(self, name: str, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            self._leave_out(name, "not a plain file")
            return
        self._files.append(name)
        self._scratch.size += status.st_size
        if self._scratch.size > self._most or len(self._files) > MOST_FILES:
            raise ToolspanError(
                f"{self._source}: more than {self._most >> 20:,} MB or {MOST_FILES:,} files, too"
                " much to copy; name a smaller folder (--project) or a commit (--commit), or allow"
                " more (--most-mb)"
            )

    def _link(self, name: str) -> None:
        """A link becomes one to the same file in the copy, by the shortest way."""
        end = Path(os.path.realpath(self._source / name))
        own = self._scratch.project / name
        if not end.is_relative_to(self._source) or not end.exists():
            self._leave_out(name, "a link that leads out of it, or nowhere")
            return
        target = self._scratch.project / end.relative_to(self._source)
        own.symlink_to(os.path.relpath(target, own.parent))

    def _leave_out(self, name: str, why: str) -> None:
        self._scratch.left_out.append(f"{name}: {why}")


def _copy(source: Path, target: Path) -> None:
    """A file with its time and mode; sharing its blocks where that is possible."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(source, flags)
    except PermissionError:
        return  # whoever recorded the session could not read it either, or it is not ours
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


def _unpack(scratch: Scratch, project: Path, commit: str) -> None:
    """The files of a commit; git only reads for that, and checks nothing out."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    command = ["git", "-C", str(project), "archive", "--format=tar", commit + "^{commit}"]
    if commit.startswith("-"):
        raise ToolspanError(f"{commit}: not the name of a commit")
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, env=environment, timeout=_GIT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolspanError(f"git archive: {error}") from error
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ToolspanError(f"{project}: git has no files of {commit}: {' '.join(words[:1])}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(scratch.project, filter=_inside)
    for path in scratch.project.rglob("*"):
        if path.is_file() and not path.is_symlink():
            scratch.files += 1
            scratch.size += path.stat().st_size


def _inside(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """Without links that lead out of the folder, and what is no file."""
    try:
        return tarfile.data_filter(member, folder)
    except tarfile.FilterError:
        return None


def remove(place: Path) -> None:
    """Take a scratch place away, whatever modes were left in it."""
    for folder, _, _ in os.walk(place):
        with suppress(OSError):
            Path(folder).chmod(0o700)
    shutil.rmtree(place, ignore_errors=True)
