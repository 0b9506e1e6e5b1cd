"""Open paths without following links, and hold a command back until its mounts are the files that were checked.

A running background command can exchange a folder with a link at any time. bwrap resolves each path again when it
mounts it, and the kernel does not let it mount a descriptor of another mount namespace. `MountGate` therefore compares
every mount with a descriptor that was opened at the time of the check, before the command starts. Mounts do not change
afterwards: only their names can.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import SHUT_WR, socketpair

import anyio

from toolspan.runtime.sandbox.settings import SandboxUnavailable

_OPEN = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
_MARK = "/dev/.mounted"
"""The last file that bwrap creates. Its root folder is `newroot` until it enters it."""
_START_TIMEOUT = 30
_POLL_INTERVAL = 0.0005


def open_without_links(path: Path | str, root: int | None = None) -> int:
    """Open an absolute path for `fstat` and as `dir_fd`. `root` is a descriptor of another root folder.

    Raises:
        OSError: the file does not exist, or its path contains a link.
    """
    *parents, name = str(path).strip("/").split("/")
    folder = os.open("/", _OPEN | os.O_DIRECTORY) if root is None else os.dup(root)
    try:
        for part in parents:
            inner = os.open(part, _OPEN | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        descriptor = os.open(name or ".", _OPEN, dir_fd=folder)
    finally:
        os.close(folder)
    if stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return descriptor


@contextmanager
def closing_descriptor(descriptor: int) -> Iterator[int]:
    """Close a descriptor at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_folder(path: Path) -> Iterator[int]:
    """Open a folder for use as `dir_fd`. Raise OSError if its path contains a link."""
    with closing_descriptor(open_without_links(path)) as descriptor:
        yield descriptor


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder that a command sees at `path`."""

    path: Path
    source: Path
    is_writable: bool = False
    is_below_hidden: bool = False


class MountGate:
    """A gate before a command, which opens only if each of its mounts is the file that was checked.

    bwrap closes all descriptors of the gate before it runs the command.
    """

    def __init__(self, mounts: Sequence[Mount]) -> None:
        self._pid: int | None = None
        with ExitStack() as descriptors, ExitStack() as inherited:
            self._mounts = [(mount, descriptors.enter_context(_pin(mount.source))) for mount in mounts]
            ready, theirs = socketpair()
            ready.shutdown(SHUT_WR)  # bwrap reads an empty file
            self._ready, mark = ready.detach(), theirs.detach()
            self._info, info = os.pipe()
            block, self._release = os.pipe()
            # bwrap would continue if all writing ends were closed, which happens if this process is killed. It
            # therefore gets one itself.
            sync = os.dup(self._release)
            for descriptor in (self._ready, self._info, self._release):
                descriptors.callback(os.close, descriptor)
            self.pass_fds = (mark, info, block, sync)
            """Descriptors that bwrap must inherit."""
            for descriptor in self.pass_fds:
                inherited.callback(os.close, descriptor)
            self._descriptors, self._inherited = descriptors.pop_all(), inherited.pop_all()
        os.set_blocking(self._info, False)
        # bwrap creates the file, and closes its descriptor, after all mounts.
        self.last_options = ["--file", str(mark), _MARK, "--info-fd", str(info), "--block-fd", str(block)]
        self.last_options += ["--sync-fd", str(sync)]

    async def release(self) -> None:
        """Let the command start if its mounts are correct. Call it after bwrap has started.

        If bwrap has failed, do nothing, because it reports the reason itself. Raises:
            SandboxUnavailable: another command has replaced a file. The caller must kill this one.
        """
        self._inherited.close()
        with self._descriptors, anyio.CancelScope(shield=True), anyio.move_on_after(_START_TIMEOUT) as timeout:
            await anyio.wait_readable(self._ready)  # bwrap has created the mounts, or has ended
            while (pid := self._find_process()) is not None:
                if (root := _open_root(pid)) is not None:
                    with closing_descriptor(root):
                        _check_mounts(self._mounts, root)
                    os.write(self._release, b"x")
                    return
                await anyio.sleep(_POLL_INTERVAL)
        if timeout.cancelled_caught:
            raise SandboxUnavailable(f"The sandbox was not ready after {_START_TIMEOUT} seconds.")

    def close(self) -> None:
        """Close the gate's descriptors. A command that has not been released never runs."""
        self._inherited.close()
        self._descriptors.close()

    def _find_process(self) -> int | None:
        """Return the first process inside the sandbox, or None if there is none."""
        if self._pid is None:
            with suppress(BlockingIOError):  # bwrap has ended before it wrote anything
                text = os.read(self._info, 4096)
                self._pid = json.loads(text)["child-pid"] if text else None
        return self._pid if self._pid is not None and Path(f"/proc/{self._pid}").exists() else None


@contextmanager
def _pin(path: Path) -> Iterator[int]:
    try:
        descriptor = open_without_links(path)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise SandboxUnavailable(f"{path} cannot be opened: {error.strerror}.") from error
        raise _replaced(path) from error
    with closing_descriptor(descriptor):
        yield descriptor


def _open_root(pid: int) -> int | None:
    """Open the root folder of a process that has created its mounts."""
    for folder in ("root", "root/newroot"):
        with suppress(OSError):
            descriptor = os.open(f"/proc/{pid}/{folder}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.stat(_MARK[1:], dir_fd=descriptor, follow_symlinks=False)
            except OSError:
                os.close(descriptor)
            else:
                return descriptor
    return None


def _check_mounts(mounts: Sequence[tuple[Mount, int]], root: int) -> None:
    """Check that each path leads to the root of another mount, and that this is the checked file.

    bwrap creates one mount for each path. If all of them are found, none is at another place.
    """
    mount_ids = set()
    for mount, source in mounts:
        try:
            with closing_descriptor(open_without_links(mount.path, root)) as target:
                is_same = os.path.samestat(os.fstat(source), os.fstat(target))
                is_protected = mount.is_writable or os.fstatvfs(target).f_flag & os.ST_RDONLY
                mount_id = _read_mount_id(target)
        except PermissionError:
            if not mount.is_below_hidden:  # where the command has no access either
                raise _replaced(mount.path) from None
            continue
        except OSError as error:
            raise _replaced(mount.path) from error
        if not (is_same and is_protected) or mount_id in mount_ids:
            raise _replaced(mount.path)
        mount_ids.add(mount_id)


def _read_mount_id(descriptor: int) -> bytes:
    with open(f"/proc/self/fdinfo/{descriptor}", "rb", buffering=0) as file:  # noqa: PTH123 - perf: for each mount
        return next(line for line in file.read(4096).splitlines() if line.startswith(b"mnt_id:"))


def _replaced(path: Path) -> SandboxUnavailable:
    return SandboxUnavailable(f"{path} was replaced while the sandbox was created. Another command may still run.")
