"""The files that a call may access: the session's folders, protected files, and links.

Start at `PathScope`. A link and its target are both checked. The file system is accessed only to
resolve links, and only once per path and decision.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from os.path import normpath
from stat import S_ISLNK, S_ISREG

from msgspec import Struct, field

from toolspan.runtime.protected_files import ASKED_FILES, ASKED_FOLDERS
from toolspan.shell.table import program_table

_SPECIAL_FOLDERS = ASKED_FOLDERS | {"git"}
"""The folders whose place in a path decides whether it is protected."""
_REPOSITORY_MARKS = ("HEAD", "objects", "refs")
_REPOSITORY_PARTS = frozenset({*_REPOSITORY_MARKS, "config", "hooks", "info", "packed-refs"})
_MAX_SEARCHED_FOLDERS = 2_000
_MAX_PATH_LENGTH = 4_096
"""The length above which the system opens no file."""
MAX_GLOB_FILES = 1_000
"""The maximum number of files to which a pattern is expanded."""
_GLOB = re.compile(r"[*?\[]")
_BRACES = re.compile(r"\{([^{}]*(?:,|\.\.)[^{}]*)\}")
"""Innermost braces, which can be expanded independently of enclosing ones."""
_MAX_BRACES = 20
_RENAMED_FILE = re.compile(
    r"~\d|/\.{3,}(?:/|\Z)|[.\s](?:/|\Z)|(?<![/\\])[.\s]\\|\.(?:con|prn|aux|nul|com\d|lpt\d)\Z", re.IGNORECASE
)
"""Names that some file systems shorten or treat as another name."""
_PARENT_AFTER_BACKSLASH = re.compile(r"[/\\]\.\.\\|\\\.\.(?:/|\Z)")
"""`..` beside a backslash: a parent folder on file systems that use backslashes as separators."""
_IGNORED_CHARACTERS = dict.fromkeys((*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF))
_FOLDED_CHARACTERS = {**_IGNORED_CHARACTERS, 0x131: "i"}
"""Characters that some file systems ignore in names, and the dotless i (`ı`), whose capital letter is `I`."""
_PATH_BOUNDARIES = ("", "/")
_PATH_SEGMENT = r"(?!\.{1,2}(?![^/]))[^/]+"
_NORMALIZED_PATH = re.compile(rf"(?!~)/?{_PATH_SEGMENT}(?:/{_PATH_SEGMENT})*")
"""A pattern for paths without empty, `.` and `..` segments."""
_PROCESS_FOLDER = re.compile(r"/proc/[^/]+/(?:task/[^/]+/)?(cwd|root)(?=/|\Z)")


class LinkResolver:
    """A cache of resolved links. It must not be reused for another decision."""

    __slots__ = ("_paths", "linked_files")

    def __init__(self) -> None:
        self._paths: dict[str, str] = {}
        self.linked_files: dict[str, os.stat_result] = {}
        """The files among the resolved paths that have further names."""

    def resolve(self, path: str) -> str:
        """Resolve all symbolic links in an absolute path, in which `..` means the parent of a link's target.

        Links in `/proc` are not followed, because they differ between processes.
        """
        paths = self._paths
        if not paths:
            with suppress(OSError):  # perf: the path that the system reports for the current folder contains no links
                here = os.getcwd()  # noqa: PTH109 - a text
                paths[here] = here
        if path not in paths and len(path) <= _MAX_PATH_LENGTH:
            folder, _, last = path.rpartition("/")
            here, names = (paths[folder], [last]) if folder in paths else ("/", path.split("/"))
            for name in names:
                if name == "..":
                    here = here.rpartition("/")[0] or "/"
                elif name not in ("", "."):
                    step = _join_path(here, name)
                    here = paths.get(step) or self._follow_link(step, here)
            paths[path] = here
        return paths.get(path, path)

    def _follow_link(self, path: str, folder: str) -> str:
        self._paths[path] = path  # stops at link loops
        if folder == "/proc" or folder.startswith("/proc/"):
            return path
        try:
            status = os.lstat(path)
            if S_ISLNK(status.st_mode):
                target = os.readlink(path)  # noqa: PTH115 - texts are faster
                self._paths[path] = self.resolve(target if target[:1] == "/" else f"{folder}/{target}")
            elif status.st_nlink > 1 and S_ISREG(status.st_mode):
                self.linked_files[path] = status
        except (OSError, ValueError):  # missing or not accessible; or a null character
            return path
        return self._paths[path]


def _join_path(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder != "/" else f"/{name}"


class OwnRepository(Struct, frozen=True):
    """The repository above a folder at one time. Another one, which appeared later, is not equal to it."""

    git_folder: str | None
    """The `.git` folder or file; None if there was none."""
    identity: tuple[int, int] | None = None
    """The device and the inode of `git_folder`."""

    @classmethod
    def find(cls, folder: str) -> OwnRepository:
        """Find the repository that git uses in a folder."""
        for above in _folders_above(os.path.realpath(folder)):
            path = _join_path(above, ".git")
            with suppress(OSError):
                status = os.lstat(path)
                return cls(path, (status.st_dev, status.st_ino))
        return cls(None)


class PathScope(Struct, frozen=True, gc=False):
    """The session's folders and the call's current folder. All paths are absolute."""

    cwd: str
    folders: tuple[str, ...]
    """The project folder, followed by the added folders."""
    find_home: Callable[[], str]
    """A function that returns the home folder; called only for paths that begin with `~`."""
    session_folder: str | None = None
    """The session's own folder, which may be read."""
    links: LinkResolver = field(default_factory=LinkResolver)
    search_path: str = ""
    """The folders in which the shell looks for programs, separated by colons."""
    repository: OwnRepository | None = None
    """The repository that existed when the session started; None if that is not known."""

    @property
    def home(self) -> str:
        """The home folder of the user."""
        return self.find_home()

    def absolute_path(self, name: str) -> str:
        """Make a path absolute and normalize it, without resolving links."""
        if _NORMALIZED_PATH.fullmatch(name):
            return name if name[0] == "/" else f"{self.cwd}/{name}" if self.cwd != "/" else f"/{name}"
        path = normpath(self._expand_home(name))
        return path if path[:2] != "//" else path[1:]

    def is_same_on_disk(self, name: str) -> bool:
        """Return whether the shell and the file system interpret `..` in a path in the same way.

        They differ after a link: for the file system, `link/..` is the parent of the link's target.
        """
        return ".." not in name or self.links.resolve(self.absolute_path(name)) == self._resolve_on_disk(name)

    def _resolve_on_disk(self, name: str) -> str:
        return self.links.resolve(self._expand_home(name))

    def possible_paths(self, name: str) -> list[str]:
        """Return all files that a program with this path as an argument may access."""
        path = self.absolute_path(name)
        end = self.links.resolve(path)
        candidates = [path]
        if ".." in name and (end_on_disk := self._resolve_on_disk(name)) != end:
            end = end_on_disk
            candidates.append(end)
        process = _PROCESS_FOLDER.match(end) if end.startswith("/proc/") else None
        if process is not None:
            start = self.cwd if process[1] == "cwd" else ""
            candidates.append(self.absolute_path(start + end[process.end() :] or "/"))
        return candidates

    def _expand_home(self, name: str) -> str:
        if name[:1] == "~" and name[1:2] in ("", "/"):
            name = self.home + name[1:]
        return name if name[:1] == "/" else f"{self.cwd}/{name}"

    def contains_path(self, path: str, *, reading: bool = False) -> bool:
        """Return whether a path, with links resolved, is in one of the session's folders."""
        folders = self.folders if self.session_folder is None or not reading else (*self.folders, self.session_folder)
        if not self._is_below_any(path, folders) or ("\\" in path and _PARENT_AFTER_BACKSLASH.search(path)):
            return False
        end = self.links.resolve(path)
        return end == path or self._is_below_any(end, folders)

    def _is_below_any(self, path: str, folders: Iterable[str]) -> bool:
        for folder in folders:
            if path.startswith(folder) and (folder == "/" or path[len(folder) :][:1] in _PATH_BOUNDARIES):
                return True
            target = self.links.resolve(folder)
            if target != folder and is_within(path, target):
                return True
        return False

    def matches_any_name(self, path: str, paths: re.Pattern[str]) -> bool:
        """Return whether a path, its target or another name of that file, a hard link, matches the pattern."""
        end = self.links.resolve(path)
        if paths.match(path) or (end != path and paths.match(end)):
            return True
        status = self.links.linked_files.get(end)
        names = _list_below(self.folders[0]) if status is not None else ()
        return any(name is not None and paths.match(name) and _is_same_file(name, status) for name in names)

    def may_contain(self, folder: str, paths: re.Pattern[str]) -> bool:
        """Return whether a folder contains a file that matches the pattern, or too many files to check."""
        return any(path is None or paths.match(path) for path in _list_below(folder))

    def may_lead_outside(self, folder: str) -> bool:
        """Return whether a folder contains a link out of the session's folders, or too many files to check."""
        return any(
            path is None or (os.path.islink(path) and not self.contains_path(path, reading=True))  # noqa: PTH114 - a text
            for path in _list_below(folder)
        )

    def is_own_repository(self) -> bool:
        """Return whether git in the current folder uses the repository in which the session started, or none.

        A file `HEAD` beside the project's files is enough for git to use a folder as a repository, with all the
        programs that its configuration names, so such a folder is never the user's own repository.
        """
        folder, root = self.links.resolve(self.cwd), self.links.resolve(self.folders[0])
        if not is_within(folder, root):
            return False
        for above in _folders_above(folder):
            if os.path.lexists(_join_path(above, "HEAD")):
                return False
            if os.path.lexists(_join_path(above, ".git")):
                is_same = self.repository is None or self.repository == OwnRepository.find(folder)
                return is_within(root, above) and is_same
        return True

    @property
    def program_folders(self) -> tuple[str, ...]:
        """The folders in which the shell looks for programs and which commands and edits of the session can change."""
        return _find_program_folders(self.search_path, self.folders, self.cwd)

    def leads_outside(self, path: str) -> bool:
        """Return whether a path in the session's folders passes through a link to another place."""
        return self._is_below_any(path, self.folders) and not self.contains_path(path)

    def is_protected(self, path: str) -> bool:
        """Return whether a file, such as a shell profile, controls the later behaviour of programs."""
        end = self.links.resolve(path)
        for folder, _, name in (path.rpartition("/"), end.rpartition("/")) if self.program_folders else ():
            if folder in self.program_folders and name in program_table():  # the shell would run it in its place
                return True
        if end != path and (_is_special_path(end) or _is_in_bare_repository(end)):
            return True
        return _is_special_path(path) or _is_in_bare_repository(path)


@lru_cache(maxsize=64)  # perf: every decision needs them
def _find_program_folders(search_path: str, folders: tuple[str, ...], cwd: str) -> tuple[str, ...]:
    """Return the folders of a search path that are, or lead to, places in the session's folders, also resolved.

    Links outside the session's folders are resolved only once.
    """
    roots = {*folders, *map(os.path.realpath, folders)}
    found: list[str] = []
    for name in search_path.split(":") if search_path else ():
        folder = normpath(f"{cwd}/{name}" if name[:1] != "/" else name)
        places = (folder, os.path.realpath(folder))
        if any(is_within(place, root) for place in places for root in roots):
            found += places
    return tuple(dict.fromkeys(found))


def _folders_above(folder: str) -> Iterator[str]:
    """Yield a folder and all folders above it."""
    while folder != "/":
        yield folder
        folder = folder.rpartition("/")[0] or "/"
    yield folder


def _list_below(folder: str) -> Iterator[str | None]:
    """Yield all files and folders below a folder, and None after too many folders."""
    for count, (here, folders, names) in enumerate(os.walk(folder)):
        if count > _MAX_SEARCHED_FOLDERS:
            yield None
            return
        yield from (f"{here}/{name}" for name in (*folders, *names))


def is_within(path: str, folder: str) -> bool:
    """Return whether a path is a folder or below it."""
    return path == folder or path.startswith(folder + "/" if folder != "/" else "/")


def _is_same_file(path: str, status: os.stat_result | None) -> bool:
    with suppress(OSError):
        other = os.lstat(path)
        return status is not None and (other.st_dev, other.st_ino) == (status.st_dev, status.st_ino)
    return False


def _is_special_path(path: str) -> bool:
    path = path.casefold()
    parts = (path if path.isascii() else path.translate(_FOLDED_CHARACTERS)).split("/")
    if parts[-1] in ASKED_FILES:
        return True
    if _SPECIAL_FOLDERS.isdisjoint(parts):
        return False
    for at, part in enumerate(parts):
        if part in ASKED_FOLDERS and parts[at : at + 2] != [".claude", "worktrees"]:
            return True
        if part == "git" and at and parts[at - 1] == ".config":
            return True
    return False


_NAME_END = re.compile(r"[^\w.-]+")


def mentions_protected(text: str) -> bool:
    """Return whether a word without blanks contains the name of a protected file or folder."""
    if "." not in text or " " in text or "\n" in text:
        return False
    names = _NAME_END.split(text.casefold().replace(".claude/worktrees", ""))
    return not (ASKED_FOLDERS | ASKED_FILES).isdisjoint(names)


def _is_in_bare_repository(path: str) -> bool:
    """Return whether a file is part of a folder that git treats as a repository, or would make it one."""
    parts = path.split("/")
    if _REPOSITORY_PARTS.isdisjoint(parts):
        return False
    for at, part in enumerate(parts):
        if part in _REPOSITORY_PARTS and any(
            os.path.lexists("/".join([*parts[:at], other])) for other in _REPOSITORY_MARKS if other != part
        ):
            return True
    return False


def may_be_renamed(path: str) -> bool:
    """Return whether some file systems treat a path as another one: `x~1`, `...`, `x.` and names of devices."""
    return _RENAMED_FILE.search(path) is not None


def has_parent_after_name(path: str) -> bool:
    """Return whether `..` follows the name of a folder in a path. The folder may be a link."""
    if "/.." not in path:
        return False
    has_name = False
    for part in path.split("/"):
        if part == ".." and has_name:
            return True
        has_name = has_name or part not in ("", ".", "..")
    return False


def expand_glob(text: str, scope: PathScope) -> list[str] | None:
    """Return the folder of a pattern and the files that match it, or None if they are unknown.

    The program may get any file of the folder, even if none matches now: another command may create it first.
    """
    start = _GLOB.search(text)
    fixed, rest = (text[: start.start()], text[start.start() :]) if start else (text, "")
    if ".." in rest or "{" in text:
        return None
    folder = fixed.rpartition("/")[0] or ("/" if text[0] == "/" else ".")
    matches = list(itertools.islice(glob.iglob(scope.absolute_path(text)), MAX_GLOB_FILES + 1))  # noqa: PTH207 - absolute
    return [folder, *matches] if len(matches) <= MAX_GLOB_FILES else None


def expand_braces(text: str) -> Iterator[str]:
    """Yield the strings to which braces expand: `{a,b}c` yields `ac` and `bc`, while `{1..9}` yields a pattern."""
    if text.count("{") > _MAX_BRACES:
        text = f"{text[: text.index('{')]}*{text.rpartition('}')[2]}"
    match = _BRACES.search(text)
    if match is None:
        yield text
        return
    range_glob = "*" if match[1].strip("-.0123456789") else "[-0-9]*"
    for alternative in match[1].split(",") if "," in match[1] else [range_glob]:
        yield from expand_braces(text[: match.start()] + alternative + text[match.end() :])
