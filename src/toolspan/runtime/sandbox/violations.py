"""Detect sandbox violations, and distinguish them from errors that would occur without a sandbox.

The kernel reports errors only to the command, so file violations are parsed from its output. A path counts only if
the sandbox denies access that the user would have. The proxy reports refused addresses itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from toolspan.runtime.permissions.rule import matches_command
from toolspan.runtime.sandbox.backend import FileAccess
from toolspan.runtime.sandbox.settings import Sandbox, resolve_path
from toolspan.types.error_kinds import SANDBOX_NOTE
from toolspan.types.events import SandboxViolation

_WRITE_REFUSED = re.compile(r"read-only file system|EROFS|device or resource busy|EBUSY", re.IGNORECASE)
_REFUSED_IN_PLACE = re.compile(r"permission denied|EACCES|operation not permitted|EPERM", re.IGNORECASE)
_READ_REFUSED = re.compile(r"permission denied|EACCES|PermissionError", re.IGNORECASE)
_MISSING = re.compile(r"no such file or directory|ENOENT|cannot access|does not exist", re.IGNORECASE)
_QUOTED = re.compile(r"'([^'\n]+)'|\"([^\"\n]+)\"|‘([^’\n]+)’|`([^`'\n]+)[`']")
_WORD = re.compile(r"[^\s:,;()\[\]<>|'\"‘’`]+")
_UNIX_SOCKET = re.compile(r"unix:(?://)?(/[^\s:,;'\")]+?)(?=[.]?(?:[\s:,;'\")]|$))")
_HOST = r"([A-Za-z0-9](?:[\w.-]*\w)?)"
_UNRESOLVED = re.compile(
    rf"could not resolve host(?:name)?:? [\"'‘]?{_HOST}"
    rf"|getaddrinfo (?:EAI_AGAIN|ENOTFOUND) {_HOST}"
    rf"|unable to resolve host address [\"'‘]{_HOST}"
    rf"|{_HOST}: (?:temporary failure in name resolution|name or service not known)"
    rf"|lookup {_HOST}(?: on [\w.:]+)?: ",
    re.IGNORECASE,
)
_UNREACHABLE = re.compile(
    r"network is unreachable|ENETUNREACH|temporary failure in name resolution|EAI_AGAIN|name or service not known",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"\b(\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7})(?::(\d{1,5}))?\b")
_REFUSED_LOCALLY = re.compile(r"(?:localhost|127\.0\.0\.1|\[?::1\]?)\D{0,40}?(?::| port |\b)(\d{2,5})\b")
_REFUSED = re.compile(r"refused|ECONNREFUSED|(?:failed|unable) to connect|couldn't connect", re.IGNORECASE)
_LISTEN_STATE = "0A"
_MAX_VIOLATIONS = 5
_MAX_OUTPUT = 200_000
_MAX_PATH = 4096


def find_violations(
    output: str, command: str, cwd: Path, access: FileAccess, sandbox: Sandbox
) -> tuple[SandboxViolation, ...]:
    """Return the violations mentioned in the output of a failed command."""
    violations: dict[SandboxViolation, None] = {}
    for line in output[-_MAX_OUTPUT:].splitlines():
        if not access.unrestricted:
            violations.update(dict.fromkeys(_find_in_line(line, cwd, access)))
        violations.update(dict.fromkeys(_find_addresses(line)))
    ignored = [
        resolve_path(path, cwd)
        for pattern, paths in (sandbox.ignore_violations or {}).items()
        if pattern == "*" or matches_command(command, pattern)
        for path in paths
    ]
    kept = [
        item for item in violations if item.action in ("connect", "socket") or not _is_below(Path(item.target), ignored)
    ]
    return tuple(kept[:_MAX_VIOLATIONS])


def describe_violations(violations: Sequence[SandboxViolation], sandbox: Sandbox) -> str:
    """Return a note for the model that lists the violations and the possible remedies.

    Planted files come first, because the last line of a result tells whether something was denied.
    """
    planted = [item.target for item in violations if item.action == "planted"]
    if planted:
        more = f" and {len(planted) - _MAX_VIOLATIONS} more" if len(planted) > _MAX_VIOLATIONS else ""
        files = f"{', '.join(planted[:_MAX_VIOLATIONS])}{more}"
        note = f"The command created {files}. Other programs may run code from there, outside the sandbox."
        note += " Tell the user, who should review it first."
        denied = [item for item in violations if item.action != "planted"]
        return f"{note}\n{describe_violations(denied, sandbox)}" if denied else note
    verbs = {"write": "writing", "read": "reading", "connect": "connecting to", "socket": "connecting to"}
    items = list(dict.fromkeys(f"{verbs[item.action]} {item.target}" for item in violations))
    what = items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
    keys = {
        "write": "the path to `sandbox.filesystem.allowWrite`",
        "read": "the path to `sandbox.filesystem.allowRead`",
        "connect": "the host to `sandbox.network.allowedDomains`",
        "socket": "the socket to `sandbox.network.allowUnixSockets`",
    }
    settings = " or ".join(dict.fromkeys(keys[item.action] for item in violations))
    note = f"{SANDBOX_NOTE}{what}. To permit it, the user can add {settings}"
    if sandbox.allow_unsandboxed:
        note += ", or the call can set `dangerouslyDisableSandbox` to ask for running outside the sandbox"
    return f"{note}."


def _find_in_line(line: str, cwd: Path, access: FileAccess) -> Iterator[SandboxViolation]:
    if match := (_REFUSED_IN_PLACE if access.in_place else _WRITE_REFUSED).search(line):
        for path in _candidates(line, match, cwd):
            is_hidden = access.in_place and _is_below(path, access.hidden)  # reported as a refused read
            if not is_hidden and not is_writable_inside(path, access) and _is_writable_outside(path):
                yield SandboxViolation(action="write", target=str(path))
                return
    if match := _READ_REFUSED.search(line):
        for path in _candidates(line, match, cwd):
            if _is_below(path, access.hidden) and os.access(path, os.R_OK):
                yield SandboxViolation(action="read", target=str(path))
                return
    if match := _MISSING.search(line):
        for path in _candidates(line, match, cwd):
            if _is_replaced(path, access) and os.path.lexists(path):
                yield SandboxViolation(action="read", target=str(path))
                return
    for socket in _UNIX_SOCKET.finditer(line):
        if Path(socket[1]).exists():
            yield SandboxViolation(action="socket", target=socket[1])


def is_writable_inside(path: Path, access: FileAccess) -> bool:
    """Return whether a sandboxed command may write to a path."""
    opened = (*access.writable, *(mount.path for mount in access.mounts if mount.is_writable))
    shown = (mount.path for mount in access.mounts if not mount.is_writable)
    closed = (*access.read_only, *access.hidden, *access.emptied, *shown)
    best = max(
        ((len(folder.parts), rank)
         for rank, folders in enumerate([opened, closed])
         for folder in folders if path == folder or folder in path.parents),
        default=(0, 1),
    )  # fmt: skip
    return best[1] == 0 or (best == (0, 1) and _is_replaced(path, access))


def _is_replaced(path: Path, access: FileAccess) -> bool:
    """Return whether the command sees a private folder in place of a path."""
    if access.in_place:
        return False
    private = [Path("/tmp"), Path("/var/tmp"), Path("/run"), Path("/dev"), *access.emptied]
    shown = (*access.writable, *access.read_only, *(mount.path for mount in access.mounts))
    return _is_below(path, private) and not _is_below(path, shown)


def _is_writable_outside(path: Path) -> bool:
    """Return whether the user could change or create a path without a sandbox."""
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return os.access(path, os.W_OK)


def _candidates(line: str, message: re.Match[str], cwd: Path) -> Iterator[Path]:
    """Yield the paths that a line may contain: quoted ones, then the words next to the message."""
    texts = ["".join(match.groups(default="")) for match in _QUOTED.finditer(line)]
    segment = line[: message.start()].rstrip(": ").rpartition(": ")[2]
    texts += [segment, *_WORD.findall(segment)[-1:], *_WORD.findall(line[message.end() :])]
    for text in dict.fromkeys(texts):
        if text.strip("./") and len(text) < _MAX_PATH and "\0" not in text:
            path = resolve_path(text.rstrip(":,"), cwd)
            yield Path(os.path.realpath(path.parent)) / path.name


def _find_addresses(line: str) -> Iterator[SandboxViolation]:
    match = _UNRESOLVED.search(line)
    if match is not None:
        host = next((text for text in match.groups() if text), None)
        if host and not _is_local(host):
            yield SandboxViolation(action="connect", target=host)
            return
    if _UNREACHABLE.search(line):
        address = _ADDRESS.search(line)
        target = "the network" if address is None else address[0]
        if not _is_local(target):
            yield SandboxViolation(action="connect", target=target)
    elif _REFUSED.search(line):
        for local in _REFUSED_LOCALLY.finditer(line):
            if _listens_outside(int(local[1])):
                yield SandboxViolation(action="connect", target=f"localhost:{local[1]}")


def _listens_outside(port: int) -> bool:
    """Return whether a server outside the sandbox, which commands cannot reach, listens on this port."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for row in Path(table).read_text().splitlines()[1:]:
                fields = row.split()
                if fields[3] == _LISTEN_STATE and int(fields[1].rpartition(":")[2], 16) == port:
                    return True
    return False


def _is_local(host: str) -> bool:
    return host == "localhost" or host.startswith("127.") or host == "::1"


def _is_below(path: Path, folders: Iterable[Path]) -> bool:
    return any(path == folder or folder in path.parents for folder in folders)
