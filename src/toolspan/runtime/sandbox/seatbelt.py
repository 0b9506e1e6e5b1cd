"""The macOS sandbox: a Seatbelt profile for `sandbox-exec`.

The profile is tested only as text and has not been run on macOS. The last matching rule in a profile applies.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from toolspan.runtime.sandbox.backend import Availability, FileAccess, NetworkAccess, WrappedCommand

_PROGRAM = "/usr/bin/sandbox-exec"
_BASE = """\
(version 1)
(deny default)
(allow process-exec*)
(allow process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow user-preference-read)
(allow ipc-posix-sem)
(allow ipc-posix-shm*)
(allow mach-lookup
  (global-name "com.apple.system.notification_center")
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.opendirectoryd.membership")
  (global-name "com.apple.logd")
  (global-name "com.apple.trustd.agent"))
(allow file-read*)
(allow file-write* file-ioctl
  (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty") (literal "/dev/dtracehelper"))
(allow file-write* (regex #"^/dev/fd/[0-9]+$"))"""
_NEEDS_ESCAPE = re.compile(r'["\\\x00-\x1f\x7f]')


class SeatbeltBackend:
    """A back end that runs commands with `sandbox-exec`."""

    name = "Seatbelt"
    protects_settings = True
    has_mounts = False
    limitations: tuple[str, ...] = (
        "The profile has not been tested on macOS.",
        "Commands see the processes of this machine, and share its loopback with them.",
        "Programs that open a terminal of their own, such as script and expect, fail.",
    )

    def wrap(self, argv: Sequence[str], cwd: Path, files: FileAccess, network: NetworkAccess) -> WrappedCommand:  # noqa: ARG002
        """Return the command line that runs `argv` within these limits."""
        env = {} if files.unrestricted else {"TMPDIR": str(files.temporary / "tmp")}
        return WrappedCommand([_PROGRAM, "-p", seatbelt_profile(files, network), *argv], env)


def seatbelt_profile(files: FileAccess, network: NetworkAccess) -> str:
    """Return the text of the profile that enforces these limits."""
    return "\n".join([_BASE, *_file_rules(files), *_network_rules(network), ""])


def _file_rules(files: FileAccess) -> Iterator[str]:
    if files.unrestricted:
        yield "(allow file*)"
        return
    rules = {files.temporary / "tmp": "(allow file-read* file-write* {})"}
    rules |= dict.fromkeys(files.emptied, "(deny file-read-data file-write* {})")
    rules |= dict.fromkeys((mount.source for mount in files.mounts), "(allow file-read* {})")
    rules |= dict.fromkeys(files.writable, "(allow file-read* file-write* {})")
    rules |= dict.fromkeys(files.read_only, "(deny file-write* {})")
    rules |= dict.fromkeys(files.hidden, "(deny file-read* file-write* {})")
    # The last rule applies, so longer paths come later.
    for path, rule in sorted(rules.items(), key=lambda item: (len(item[0].parts), str(item[0]))):
        yield rule.format(f"(subpath {quote_string(str(path))})")
    # Renaming a folder would move its protected files to paths that no rule protects.
    parents = {
        parent
        for path in (*files.read_only, *files.hidden)
        for parent in path.parents
        if any(parent.is_relative_to(folder) for folder in files.writable)
    }
    for parent in sorted(parents):
        yield f"(deny file-write-unlink (literal {quote_string(str(parent))}))"


def _network_rules(network: NetworkAccess) -> Iterator[str]:
    if network.proxy_port is not None:
        yield f'(allow network-outbound (remote ip "localhost:{network.proxy_port}"))'
    if network.local_binding:
        yield '(allow network-bind network-inbound (local ip "localhost:*"))'
    if network.all_unix_sockets:
        yield '(allow network-bind network-outbound (subpath "/"))'
    for path in network.unix_sockets:
        yield f"(allow network-outbound (literal {quote_string(str(path))}))"


def quote_string(text: str) -> str:
    """Return `text` as a string literal of the profile language, escaping characters that would end it."""

    def escape(match: re.Match[str]) -> str:
        return f"\\{match[0]}" if match[0] in '"\\' else f"\\x{ord(match[0]):02x}"

    return '"' + _NEEDS_ESCAPE.sub(escape, text) + '"'


def detect_seatbelt() -> Availability:
    """Return the availability of Seatbelt, which only macOS has."""
    if platform.system() != "Darwin":
        return Availability(None, "Seatbelt exists on macOS only")
    if not Path(_PROGRAM).exists():
        return Availability(None, f"{_PROGRAM} is missing")
    return Availability(SeatbeltBackend())
