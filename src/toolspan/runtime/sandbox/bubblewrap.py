"""The Linux sandbox: bubblewrap with a system call filter.

A command gets its own mount, process, IPC and host name namespaces. The network namespace belongs to the session.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from toolspan.runtime.sandbox.backend import Availability, FileAccess, NetworkAccess, WrappedCommand
from toolspan.runtime.sandbox.pinned import Mount, MountGate
from toolspan.runtime.sandbox.seccomp import build_filter
from toolspan.runtime.sandbox.settings import Sandbox

_SHOWN_IN_RUN = ("/run/current-system", "/run/booted-system", "/run/opengl-driver", "/run/systemd/resolve")
_SYSTEM_FOLDERS = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:/run/current-system/sw/bin"
_KERNEL_FILES = ("/proc/sys", "/proc/sysrq-trigger", "/proc/fs")
"""Kernel settings that belong to root. bwrap itself protects `/proc/irq` and `/proc/bus`."""


class Bubblewrap:
    """A back end that runs commands with `bwrap`."""

    name = "bubblewrap"
    protects_settings = True
    has_mounts = True

    def __init__(self, program: str, nsenter: str, *, weaker: bool, disable_namespaces: bool) -> None:
        self._program = program
        self._nsenter = nsenter
        self._weaker = weaker
        self._disable_namespaces = disable_namespaces
        limitations = []
        if weaker:
            limitations.append("Commands see the processes of this container, because it does not permit a new /proc.")
        if build_filter(unix_sockets=False) is None:
            limitations.append("System calls are not filtered on this machine, so commands can use unix sockets.")
            if not disable_namespaces:
                limitations.append("Commands can create namespaces of their own; bubblewrap 0.8 would prevent it.")
        self.limitations = tuple(limitations)

    def wrap(self, argv: Sequence[str], cwd: Path, files: FileAccess, network: NetworkAccess) -> WrappedCommand:
        """Return the command line that runs `argv` within these limits."""
        options = [self._program, "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts"]
        options += ["--cap-drop", "ALL"]
        if self._disable_namespaces:
            options.append("--disable-userns")
        if network.namespace_pid is None:
            options.append("--unshare-net")
        else:
            folder = f"/proc/{network.namespace_pid}/ns"
            join = [self._nsenter, f"--user={folder}/user", f"--net={folder}/net", "--preserve-credentials", "--"]
            options = [*join, *options]
        mounts = [] if files.unrestricted else _find_mounts(files, network)
        options += self._base_mounts(files, network)
        options += [] if files.unrestricted else _mount_options(files, mounts)
        # The folder is resolved among the command's own mounts, so a link leads to nothing that it cannot reach anyway.
        options += ["--chdir", str(cwd)]
        descriptors: tuple[int, ...] = ()
        gate = MountGate(mounts) if mounts else None
        if gate is not None:
            options += gate.last_options
        program = build_filter(unix_sockets=network.all_unix_sockets or bool(network.unix_sockets))
        if program is not None:
            # Each command line reads its own pipe, because several may start at the same time.
            reading, writing = os.pipe()
            os.write(writing, program)
            os.close(writing)
            options += ["--seccomp", str(reading)]
            descriptors = (reading,)
        return WrappedCommand([*options, "--", *argv], {}, descriptors, has_pid_namespace=True, gate=gate)

    def _base_mounts(self, files: FileAccess, network: NetworkAccess) -> Iterator[str]:
        if files.unrestricted:
            yield from ("--bind", "/", "/", "--dev-bind", "/dev", "/dev")
        else:
            yield from ("--ro-bind", "/", "/", "--dev", "/dev")
        if not self._weaker:
            # Process 1 is bwrap, which the filter does not cover.
            yield from ("--proc", "/proc", "--tmpfs", "/proc/1")
            for name in _KERNEL_FILES if os.getuid() == 0 else ():
                yield from ("--ro-bind-try", name, name)
        if files.unrestricted:
            return
        if not network.all_unix_sockets:
            yield from ("--tmpfs", "/run")
            for name in _SHOWN_IN_RUN:
                yield from ("--ro-bind-try", name, name)
            yield from ("--perms", "0700", "--dir", f"/run/user/{os.getuid()}")


def _find_mounts(files: FileAccess, network: NetworkAccess) -> list[Mount]:
    """Return a mount for each path whose access differs from that of its parent, parents first."""
    hidden_file, hidden_folder = files.temporary / "hidden-file", files.temporary / "hidden-folder"
    private = {Path("/tmp"): files.temporary / "tmp", Path("/var/tmp"): files.temporary / "var-tmp"}
    mounts = {path: Mount(path, source, is_writable=True) for path, source in private.items()}
    mounts |= {mount.path: mount for mount in files.mounts}
    mounts |= {path: Mount(path, path, is_writable=True) for path in files.writable}
    mounts |= {path: Mount(path, path) for path in files.read_only}
    mounts |= {path: Mount(path, hidden_folder if path.is_dir() else hidden_file) for path in files.hidden}
    if network.unix_sockets and not network.all_unix_sockets:
        for path in _bound_sockets():
            if path not in network.unix_sockets and not any(map(path.is_relative_to, ("/run", "/tmp"))):
                mounts[path] = Mount(path, hidden_file)
    for path in network.unix_sockets:
        # A command may have put a link to another socket into a folder that it can change.
        if path.is_socket() and not any(map(path.is_relative_to, files.writable)):
            real = Path(os.path.realpath(path))
            mounts[real] = Mount(real, real)
    ordered = sorted(mounts.values(), key=lambda mount: len(mount.path.parts))
    hidden = tuple(f"{path}/" for path in files.hidden)  # perf: comparing the parents would take 1 ms
    return [replace(mount, is_below_hidden=True) if str(mount.path).startswith(hidden) else mount for mount in ordered]


def _mount_options(files: FileAccess, mounts: Sequence[Mount]) -> Iterator[str]:
    """Yield the options for emptied folders and mounts. Parents come first, so that inner ones override them."""
    entries: list[tuple[Path, tuple[str, ...]]] = [
        (path, ("--dir" if _is_inside(path, files.emptied) else "--tmpfs", str(path))) for path in files.emptied
    ]
    for mount in mounts:
        option = "--bind" if mount.is_writable else "--ro-bind"
        entries.append((mount.path, (option, str(mount.source), str(mount.path))))
    for _, options in sorted(entries, key=lambda entry: len(entry[0].parts)):
        yield from options
    for path in files.emptied:
        if not _is_inside(path, files.emptied):
            yield from ("--remount-ro", str(path))


def _is_inside(path: Path, folders: Sequence[Path]) -> bool:
    return any(folder in path.parents for folder in folders)


def _bound_sockets() -> Iterator[Path]:
    """Yield the unix sockets in the file system on which programs are listening."""
    for row in Path("/proc/net/unix").read_text(errors="replace").splitlines()[1:]:
        _, slash, name = row.partition(" /")
        if slash and Path(f"/{name}").exists():
            yield Path(os.path.realpath(f"/{name}"))


def create_private_folder(folder: Path) -> None:
    """Create the files that `FileAccess.temporary` must contain."""
    for name, mode in (("tmp", 0o1777), ("var-tmp", 0o1777), ("hidden-folder", 0)):
        (folder / name).mkdir()
        (folder / name).chmod(mode)
    (folder / "hidden-file").touch(mode=0)


def detect_bubblewrap(sandbox: Sandbox) -> Availability:
    """Try bubblewrap on this machine. If it does not work, report the reason."""
    program = sandbox.bwrap_path or find_program("bwrap")
    nsenter = find_program("nsenter")
    if sys.platform != "linux":
        return Availability(None, "bubblewrap exists on Linux only")
    if program is None:
        return Availability(None, "bubblewrap is not installed", install_command())
    if nsenter is None:
        return Availability(None, "nsenter is not installed", install_command("util-linux"))
    return _try_bubblewrap(program, nsenter, sandbox.weaker_nested)


def find_program(name: str) -> str | None:
    """Return the path of a program, preferring system folders to `PATH`.

    `PATH` may include a folder in the project, such as a virtual environment, where a command could put a program
    with this name.
    """
    return shutil.which(name, path=_SYSTEM_FOLDERS) or shutil.which(name)


@cache
def _try_bubblewrap(program: str, nsenter: str, weaker: bool) -> Availability:  # noqa: FBT001 - a key of the cache
    basic = [program, "--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--dev", "/dev"]
    proc = [] if weaker else ["--proc", "/proc"]
    for disable in (True, False):
        problem = _run(["--disable-userns"] if disable else [], basic, proc)
        if problem is None:
            return Availability(Bubblewrap(program, nsenter, weaker=weaker, disable_namespaces=disable))
    if not weaker and _run([], basic, []) is None:
        fix = 'set "enableWeakerNestedSandbox": true in the sandbox settings, which weakens the sandbox'
        return Availability(None, f"this container does not permit a new /proc ({problem})", fix)
    setting = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    if setting.exists() and setting.read_text().strip() == "1":
        return Availability(None, f"AppArmor does not permit user namespaces ({problem})",
                            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0")  # fmt: skip
    setting = Path("/proc/sys/kernel/unprivileged_userns_clone")
    if setting.exists() and setting.read_text().strip() == "0":
        return Availability(None, f"the kernel does not permit user namespaces ({problem})",
                            "sudo sysctl -w kernel.unprivileged_userns_clone=1")  # fmt: skip
    return Availability(None, f"bubblewrap does not work here: {problem}")


def _run(options: list[str], basic: list[str], proc: list[str]) -> str | None:
    command = [*basic, *options, *proc, "--", find_program("true") or "true"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.decode(errors="replace").strip() or "it failed"


def install_command(package: str = "bubblewrap") -> str | None:
    """Return the command that installs a package with the system's package manager."""
    commands = {
        "apt-get": "sudo apt-get install -y",
        "dnf": "sudo dnf install -y",
        "pacman": "sudo pacman -S --noconfirm",
        "apk": "sudo apk add",
        "zypper": "sudo zypper install -y",
    }
    return next((f"{command} {package}" for program, command in commands.items() if shutil.which(program)), None)
