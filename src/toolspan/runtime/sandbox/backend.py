"""The interface of a sandbox back end.

`bubblewrap.py`, `landlock.py` and `seatbelt.py` each contain a back end; `active.py` selects one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from toolspan.runtime.sandbox.pinned import Mount, MountGate


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAccess:
    """The files that a command may read and write. All paths are absolute, without links, and exist.

    Paths that no list contains are readable but not writable. If several entries match, the longest path applies.
    """

    writable: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    """Paths inside writable folders that must not change."""
    hidden: tuple[Path, ...] = ()
    """Files and folders that must not be read."""
    emptied: tuple[Path, ...] = ()
    """Folders that the command sees as empty, but for `mounts` and for `writable` and `read_only` paths inside them."""
    mounts: tuple[Mount, ...] = ()
    """Files and folders that the command sees at another path, or inside an emptied folder."""
    temporary: Path
    """The session's private folder, which the command sees as `/tmp` or in `TMPDIR`."""
    unrestricted: bool = False
    """True to restrict the network only."""
    in_place: bool = False
    """True if the command sees the real `/tmp`, because the back end cannot mount anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkAccess:
    """The network that a command may use."""

    proxy_port: int | None = None
    """The port of the proxy on the loopback address that the command sees; None for no network."""
    namespace_pid: int | None = None
    """A process in the session's network namespace, for back ends that can join it."""
    unix_sockets: tuple[Path, ...] = ()
    all_unix_sockets: bool = False
    local_binding: bool = False


@dataclass(frozen=True, slots=True)
class WrappedCommand:
    """A command line that runs another one in a sandbox."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables to add to those of the command."""
    pass_fds: tuple[int, ...] = ()
    """Descriptors that the command line needs. The caller closes them once the command has started."""
    has_pid_namespace: bool = False
    """True if the processes of the command run in a PID namespace of their own."""
    gate: MountGate | None = None
    """A gate before the command, which the caller releases once the command line has started."""


class SandboxBackend(Protocol):
    """A way to run commands in a sandbox."""

    name: str
    """The name shown to users: `bubblewrap`, `Landlock`, `Seatbelt`."""
    has_mounts: bool
    """False if the back end can only deny access, without private folders and read-only mounts."""
    protects_settings: bool
    """True if commands cannot change settings and hooks inside writable folders. Otherwise they need permission."""
    limitations: tuple[str, ...]
    """A sentence for each restriction that this back end cannot enforce."""

    def wrap(self, argv: Sequence[str], cwd: Path, files: FileAccess, network: NetworkAccess) -> WrappedCommand:
        """Return the command line that runs `argv` within these limits."""
        ...


@dataclass(frozen=True, slots=True)
class Availability:
    """The availability of a back end on this machine."""

    backend: SandboxBackend | None
    problem: str | None = None
    """The reason why it does not work."""
    fix: str | None = None
    """The command that would make it work, if there is one."""
