"""The home folder and the environment that a command sees in a strict sandbox: empty but for what it needs.

Start at `find_home_view` and `is_passed_variable`. `secrets.py` contains the lists.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from toolspan.runtime.sandbox.pinned import Mount
from toolspan.runtime.sandbox.secrets import (
    CACHE_VARIABLES,
    HOME_FOLDERS,
    PASSED_VARIABLES,
    PATH_VARIABLES,
    SECRET_FILES,
    SECRET_VALUE,
    SECRET_VARIABLE,
    SHOWN_BESIDE_PROGRAMS,
    SHOWN_FILES,
    SHOWN_IN_PRIVATE_CACHE,
    SHOWN_OUTSIDE_HOMES,
    SYSTEM_SECRETS,
)

SECRET_NAMES = tuple(name for names in SECRET_FILES.values() for name in names)
SHOWN_NAMES = tuple(name for names in SHOWN_FILES.values() for name in names)
_PASSED_NAMES = frozenset(name for names in PASSED_VARIABLES.values() for name in names)
_PASSED_PATTERNS = tuple(name for name in _PASSED_NAMES if "*" in name)
_SYSTEM_FOLDERS = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr")
"""Folders that are never emptied, although service accounts name them as their home."""
_MAX_STEPS = 200
_TOP_FOLDERS = frozenset({"/", "/opt", "/var", "/srv", "/run", "/tmp", "/var/tmp", "/mnt", "/media"})


@dataclass(frozen=True, slots=True)
class HomeView:
    """The home folders that a command sees as empty, and the files in them that it sees nevertheless."""

    emptied: tuple[Path, ...]
    mounts: tuple[Mount, ...]

    def find_visible(self, paths: Iterable[Path | str], writable: Sequence[Path]) -> Iterator[str]:
        """Yield the paths that are not in an emptied folder, and those that are visible nevertheless."""
        emptied = tuple(f"{path}/" for path in self.emptied)
        visible = tuple(
            f"{path}/" for path in (*writable, *(item.path for item in self.mounts if not item.is_writable))
        )
        for path in map(str, paths):
            if not f"{path}/".startswith(emptied) or f"{path}/".startswith(visible):
                yield path

    def find_aliases(self, path: Path) -> Iterator[Path]:
        """Yield the other paths at which a mount shows a file."""
        for mount in self.mounts:
            if mount.path != mount.source and not mount.is_writable and is_below(path, (mount.source,)):
                yield mount.path / path.relative_to(mount.source)


def find_home_view(
    homes: Iterable[str], shown: Mapping[str, str], *, writable: Sequence[Path], visible: Sequence[Path]
) -> HomeView:
    """Return the view for home folders, which are paths without links, and files to show: paths and what they lead to.

    `writable` are the folders that commands can change, and `visible` those in which nothing is emptied.
    """
    emptied = [home for home in dict.fromkeys(homes) if _can_be_emptied(home) and not is_below(home, visible)]
    mounts: dict[str, str] = {}
    # Outer folders come first, so that inner ones can be left out.
    for path, source in sorted(shown.items(), key=lambda entry: len(entry[0])):
        # Commands can replace a path in a writable folder with a link, and a folder above a home would show it.
        if is_below(source, writable) or any(is_below(home, (source, path)) for home in emptied):
            continue
        places = {source} if path == source else {_resolve_folder(path), source}
        for place in places:
            if is_below(place, emptied) and not is_below(place, writable) and not _is_mounted(place, source, mounts):
                mounts[place] = source
    return HomeView(
        tuple(map(Path, emptied)), tuple(Mount(Path(path), Path(source)) for path, source in mounts.items())
    )


def _resolve_folder(path: str) -> str:
    """Return the path of a file that may be a link, with links in its folders resolved."""
    folder, _, name = path.rstrip("/").rpartition("/")
    return f"{os.path.realpath(folder)}/{name}"


def _is_mounted(place: str, source: str, mounts: Mapping[str, str]) -> bool:
    """Return whether an outer folder already shows the same file at this place, or the link that leads to it."""
    return any(
        f"{place}/".startswith(f"{outer}/") and (outer == origin or source == origin + place[len(outer) :])
        for outer, origin in mounts.items()
    )


def _can_be_emptied(home: str) -> bool:
    return home not in _TOP_FOLDERS and not is_below(home, _SYSTEM_FOLDERS) and os.access(home, os.R_OK | os.X_OK)


def all_home_folders(homes: Iterable[Path]) -> list[str]:
    """Return these home folders and the folders with those of other users, with links resolved."""
    found = [os.path.realpath(home) for home in homes if home.is_dir()]
    # perf: a mount costs 0.2 ms, and other users' homes are usually closed.
    return found + [folder for folder in HOME_FOLDERS if folder not in found and _has_readable_files(folder, found)]


def _has_readable_files(folder: str, homes: Sequence[str]) -> bool:
    """Return whether this user can read anything in a folder but these home folders."""
    if not os.access(folder, os.X_OK):
        return False
    try:
        names = os.listdir(folder)  # noqa: PTH208 - perf
    except OSError:
        return True  # names that the user knows
    return any(f"{folder}/{name}" not in homes and can_be_read(f"{folder}/{name}") for name in names)


def can_be_read(path: str) -> bool:
    """Return whether a command, which has no capabilities, could read a file or something in a folder."""
    try:
        status = os.stat(path)  # noqa: PTH116 - perf
        is_folder = stat.S_ISDIR(status.st_mode)
        shift = 6 if status.st_uid == os.geteuid() else 3 if status.st_gid in (os.getegid(), *os.getgroups()) else 0
        is_open = bool(status.st_mode >> shift & (stat.S_IXOTH if is_folder else stat.S_IROTH))
        return is_open and not (is_folder and not os.listdir(path))  # noqa: PTH208 - perf
    except OSError:
        return False


def find_shown_files(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths that commands need regardless of their home folder: programs on the `PATH` and toolchains."""
    package = Path(__file__).parents[2]
    homes = [variables.get("HOME", "").rstrip("/") for variables in (environment, os.environ)]
    yield from (sys.prefix, sys.base_prefix, str(package), *SHOWN_OUTSIDE_HOMES)
    for folder in environment.get("PATH", "").split(":"):
        if folder.startswith("/"):
            yield folder
            prefix, _, name = folder.rstrip("/").rpartition("/")
            # The list has the neighbours of `~/bin` and `~/.local/bin`.
            is_listed = prefix.endswith("/.local") or prefix in homes or is_below(prefix, _SYSTEM_FOLDERS)
            if name in ("bin", "sbin", "shims") and not is_listed:
                yield from (f"{prefix}/{neighbour}" for neighbour in SHOWN_BESIDE_PROGRAMS)
    for variable in PATH_VARIABLES:
        yield from (path for path in environment.get(variable, "").split(":") if path.startswith("/"))


def mount_private_cache(view: HomeView, home: Path, source: Path) -> HomeView:
    """Return the view with a private, writable folder in place of `~/.cache`."""
    folder = home / ".cache"
    kept = {str(home / name) for name in SHOWN_IN_PRIVATE_CACHE}
    mounts = [mount for mount in view.mounts if folder not in mount.path.parents or str(mount.path) in kept]
    return HomeView(view.emptied, (*mounts, Mount(folder, source, is_writable=True)))


def private_cache_folder(project: Path) -> Path | None:
    """Create and return the folder with the private caches of a project's commands, or None if that is not possible."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    if os.environ.get("TOOLSPAN_NO_CACHE"):
        return None
    try:
        base = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
        folder = base / "toolspan/sandbox" / hashlib.sha256(os.fsencode(project)).hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder.resolve()
    except (OSError, RuntimeError):  # a read-only home, or none
        return None


def cache_environment(home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that direct package managers to the private cache, unless they direct them elsewhere."""
    folder = home / ".cache"
    variables = {name: str(folder / place) for name, place in CACHE_VARIABLES.items()}
    variables["MAVEN_OPTS"] = f"{environment.get('MAVEN_OPTS', '')} -Dmaven.repo.local={folder}/m2".strip()
    named = {name for name in CACHE_VARIABLES if environment.get(name) and not is_below(environment[name], [home])}
    return {name: value for name, value in variables.items() if name not in named}


def filter_variables(environment: Mapping[str, str], passed: Sequence[str]) -> dict[str, str]:
    """Return the variables that a strict sandbox passes. `passed` are the names that the settings add.

    A variable that differs from toolspan's own environment was set for commands: by the settings, a hook or the host.
    """
    return {
        name: value
        for name, value in environment.items()
        if name in passed
        or (
            (is_passed_variable(name) or os.environ.get(name) != value)
            and not is_secret_variable(name)
            and not SECRET_VALUE.search(value)
        )
    }


@cache
def system_secrets() -> tuple[str, ...]:
    """Return the secrets of the machine that commands could read."""
    return tuple(filter(can_be_read, SYSTEM_SECRETS))


@cache
def is_passed_variable(name: str) -> bool:
    """Return whether a variable is on the list of those that commands need."""
    return name in _PASSED_NAMES or any(fnmatchcase(name, pattern) for pattern in _PASSED_PATTERNS)


@cache
def is_secret_variable(name: str) -> bool:
    """Return whether a variable probably contains a secret."""
    return SECRET_VARIABLE.search(name) is not None


def leads_through(path: Path | str, folders: Sequence[Path]) -> bool:
    """Return whether a path, or a link in it, leads into one of these folders.

    Commands can place links there, so such a path may lead anywhere when it is resolved again.
    """
    place, pending = "", _split_path(path)
    for _ in range(_MAX_STEPS):
        if not pending:
            return False
        place = os.path.normpath(f"{place}/{pending.pop()}").rstrip("/")
        if is_below(place, folders):
            return True
        with suppress(OSError):  # it is not a link
            target = os.readlink(place)  # noqa: PTH115 - perf: for each part of each path and command
            pending += _split_path(target)
            place = "" if target.startswith("/") else place.rpartition("/")[0]
    return True


def _split_path(path: Path | str) -> list[str]:
    return [part for part in reversed(str(path).split("/")) if part not in ("", ".")]


def is_below(path: Path | str, folders: Iterable[Path | str]) -> bool:
    """Return whether a path is one of these folders, or inside one."""
    text = f"{path}/"  # perf: comparing the parents would take 2 ms of each command
    return any(text.startswith(f"{str(folder).rstrip('/')}/") for folder in folders)
