"""The Linux sandbox for machines without bubblewrap: Landlock. It is weaker; see `LandlockBackend.limitations`.

Landlock grants rights on files and folders, including everything below a folder, and cannot revoke a right below
one. To hide a file, `find_grants` therefore grants reading on its siblings instead of its folder.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from toolspan.runtime.sandbox import landlock_launcher
from toolspan.runtime.sandbox.backend import Availability, FileAccess, NetworkAccess, WrappedCommand
from toolspan.runtime.sandbox.seccomp import build_filter

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_CHANGES = 0b1_0111_1011_0000
"""Remove files and folders; create files, folders, sockets, pipes and links, but no devices."""
_RIGHTS_OF_VERSION_1 = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_CONNECT_TCP = 1 << 1
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1 << 0, 1 << 1
_READ = _EXECUTE | _READ_FILE
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/shm")


class LandlockBackend:
    """A back end that restricts commands with Landlock and a system call filter."""

    name = "Landlock"
    protects_settings = False
    has_mounts = False

    def __init__(self, version: int) -> None:
        self._version = version
        limitations = [
            "Settings, hooks and .git/config inside writable folders can be changed.",
            "Names of hidden files are visible, and commands see the processes of this machine.",
            "Commands share the network of this machine: they can listen on its ports, but not connect to them, and can"
            " reach the proxy's port number on other hosts.",
        ]
        if version < 2:
            limitations.append("Files cannot be moved between folders (needs Linux 5.19).")
        if version < 3:
            limitations.append("Files that are not writable can be truncated (needs Linux 6.2).")
        if version < 4:
            limitations.append("Connections are not restricted (needs Linux 6.7).")
        if version < 6:
            limitations.append("Commands can signal your other processes (needs Linux 6.12).")
        if build_filter(unix_sockets=False) is None:
            limitations.append("System calls are not filtered on this machine, so commands can use UDP.")
        self.limitations = tuple(limitations)

    def wrap(self, argv: Sequence[str], cwd: Path, files: FileAccess, network: NetworkAccess) -> WrappedCommand:  # noqa: ARG002
        """Return the command line that runs `argv` within these limits."""
        unix_sockets = network.all_unix_sockets or bool(network.unix_sockets)
        system_calls = build_filter(unix_sockets=unix_sockets, datagrams=False) or b""
        descriptor = os.memfd_create("restrictions")
        os.write(descriptor, build_restrictions(self._version, files, network, system_calls))
        os.lseek(descriptor, 0, os.SEEK_SET)
        launcher = [sys.executable, "-I", "-S", landlock_launcher.__file__, str(descriptor)]
        env = {} if files.unrestricted else {"TMPDIR": str(files.temporary / "tmp")}
        return WrappedCommand([*launcher, *argv], env, (descriptor,))


def build_restrictions(version: int, files: FileAccess, network: NetworkAccess, system_calls: bytes) -> bytes:
    """Return the restrictions for a kernel with this version of Landlock, encoded for the launcher."""
    rights = _RIGHTS_OF_VERSION_1
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        rights |= right if version >= since else 0
    handled = (
        0 if files.unrestricted else rights,
        _CONNECT_TCP if version >= 4 else 0,
        _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if version >= 6 else 0,
    )
    # Older kernels support only the first fields.
    attributes = struct.pack("=QQQ", *handled)[: 8 if version < 4 else 16 if version < 6 else 24]
    paths = [] if files.unrestricted else [(path, granted & rights) for path, granted in find_grants(files)]
    ports = [(network.proxy_port, _CONNECT_TCP)] if version >= 4 and network.proxy_port else []
    return landlock_launcher.write_restrictions(attributes, paths, ports, system_calls)


def find_grants(files: FileAccess) -> Iterator[tuple[str, int]]:
    """Yield paths and the rights on them. Rights on a folder include everything below it."""
    yield "/", _READ_DIR
    changes = _WRITE_FILE | _TRUNCATE | _CHANGES | _REFER
    for name in ("tmp", "var-tmp"):
        yield str(files.temporary / name), _READ | changes
    for device in _DEVICES:
        yield device, _READ_FILE | _WRITE_FILE | _TRUNCATE | (_CHANGES if device == "/dev/shm" else 0)
    for path in files.writable:
        yield str(path), changes
    # The longest path applies: a writable folder inside a hidden one is readable.
    readable = dict.fromkeys(map(str, (*files.emptied, *files.hidden)), False)
    shown = (*files.writable, *files.read_only, *(mount.source for mount in files.mounts))
    readable |= dict.fromkeys((str(path) for path in shown if path not in files.hidden), True)
    yield from ((path, _READ) for path in _readable_paths("/", readable, is_readable=True))


def _readable_paths(path: str, entries: dict[str, bool], *, is_readable: bool) -> Iterator[str]:
    is_readable = entries.get(path, is_readable)
    below = {entry for entry in entries if entry.startswith(path.rstrip("/") + "/") and entry != path}
    if not any(entries[entry] is not is_readable for entry in below):
        if is_readable:
            yield path
        return
    if not is_readable:
        children = sorted({_child_towards(path, entry) for entry in below})
    else:
        try:
            children = [child.path for child in os.scandir(path) if not child.is_symlink()]
        except OSError:
            return  # nothing to grant in a folder that the user cannot list
    nested = {entry: entries[entry] for entry in below}
    for child in children:
        yield from _readable_paths(child, nested, is_readable=is_readable)


def _child_towards(folder: str, path: str) -> str:
    start = len(folder.rstrip("/")) + 1
    return path[: start + len(path[start:].partition("/")[0])]


@cache
def detect_landlock() -> Availability:
    """Return the availability of Landlock in the running kernel."""
    if sys.platform != "linux":
        return Availability(None, "Landlock exists on Linux only")
    try:
        return Availability(LandlockBackend(landlock_launcher.landlock_version()))
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return Availability(
                None,
                "Landlock is disabled in this kernel",
                "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&lsm=landlock,yama,apparmor,bpf /' /etc/default/grub"
                " && sudo update-grub && sudo reboot",
            )
        return Availability(None, "this kernel has no Landlock; Linux 5.13 or newer has it")
