"""Where a call may go: the session's folders, and the places in them that are special.

In: paths as a call names them. Out: whether they are inside, protected, or too costly to remove.
Both a link and what it leads to are judged. The file system is asked for links, nothing else, and
for each only once in a decision.
"""

import os
import re
from collections.abc import Callable, Iterable
from os import F_OK, access
from os.path import normpath
from stat import S_ISLNK

from msgspec import Struct, field

_FOLDERS = frozenset({
    ".cargo", ".claude", ".devcontainer", ".git", ".husky", ".idea", ".mvn", ".vscode", ".yarn",
})  # fmt: skip
_FILES = frozenset({
    ".bash_aliases", ".bash_login", ".bash_logout", ".bash_profile", ".bashrc", ".bazeliskrc",
    ".bazelrc", ".bazelversion", ".bunfig.toml", ".claude.json", ".devcontainer.json", ".envrc",
    ".gitconfig", ".gitmodules", ".lefthook.yaml", ".lefthook.yml", ".mcp.json", ".npmrc",
    ".pnp.cjs", ".pnp.loader.mjs", ".pnpmfile.cjs", ".pre-commit-config.yaml", ".profile",
    ".ripgreprc", ".yarnrc", ".yarnrc.yml", ".zlogin", ".zlogout", ".zprofile", ".zshenv",
    ".zshrc", "bunfig.toml", "gradle-wrapper.properties", "lefthook.yaml", "lefthook.yml",
    "maven-wrapper.properties", "pyrightconfig.json",
})  # fmt: skip


_BEHIND = ("", "/")
_NOWHERE = "/dev/null"
_GOING = ("", ".", "~")
"""How a word begins that may be more than the name of something in a folder."""
_STEP = r"(?!\.{1,2}(?![^/]))[^/]++"
_CLEAN = re.compile(rf"(?!~)/?+{_STEP}(?:/{_STEP})*+")
"""A path that says nothing twice and does not go up."""
_ASKS_IN_ONE = os.access in os.supports_follow_symlinks and os.getuid() == os.geteuid()
_OF_A_PROCESS = re.compile(r"/proc/[^/]+/(?:task/[^/]+/)?(cwd|root)(?=/|\Z)")


class Links:
    """What paths lead to; each is looked up once, so that it lives no longer than a decision."""

    __slots__ = ("_bare", "_known")

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._bare: set[str] = set()
        """Where nothing is, and so nothing below."""

    def real(self, path: str) -> str:
        """What an absolute path without `..` leads to, with every link followed.

        What stands in `/proc` stays as it is: its links lead each process elsewhere.
        """
        known = self._known or self._begin()
        found = known.get(path)
        if found is None:
            known[path] = path  # links that lead to each other lead nowhere
            folder, _, name = path.rpartition("/")
            above = known.get(folder) or self.real(folder or "/")
            here = path if above == folder else _below(above, name)
            if above in self._bare:
                self._bare.add(here)
                found = here
            else:
                found = self._followed(here, above)
            known[path] = found
        return found

    def is_nothing(self, path: str) -> bool:
        """Whether nothing is there, in a folder that is reached without links."""
        known = self._known
        if path in known:
            return path in self._bare
        if not _ASKS_IN_ONE or access(path, F_OK, follow_symlinks=False):
            return False
        known[path] = path
        self._bare.add(path)
        return True

    def _begin(self) -> dict[str, str]:
        """What is known at once: the system names the folder one is in without its links."""
        known = self._known
        known["/"] = "/"
        known[_NOWHERE] = _NOWHERE
        try:
            here = os.getcwd()  # noqa: PTH109 - a text
        except OSError:  # it has been removed
            return known
        known[here] = here
        return known

    def along(self, path: str) -> str:
        """The same for a path with `..` in it, which is above what a link leads to."""
        here = "/"
        for name in path.split("/"):
            if name == "..":
                here = here.rpartition("/")[0] or "/"
            elif name not in ("", "."):
                here = self.real(_below(here, name))
        return here

    def _followed(self, here: str, above: str) -> str:
        """What a name leads to that stands in a folder without links."""
        foreign = above[:5] == "/proc" and above[5:6] in ("", "/")
        if foreign or (_ASKS_IN_ONE and not access(here, F_OK, follow_symlinks=False)):
            self._bare.add(here)
            return here
        try:
            if not S_ISLNK(os.lstat(here).st_mode):
                return here
            target = os.readlink(here)  # noqa: PTH115 - as above
        except FileNotFoundError:
            self._bare.add(here)
            return here
        except OSError:  # it cannot be looked at
            return here
        return self.along(target if target[:1] == "/" else f"{above}/{target}")


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder != "/" else f"/{name}"


class Ground(Struct, frozen=True):
    """The folders of a session, and where in them a call starts. All paths are absolute texts."""

    cwd: str
    folders: tuple[str, ...]
    """The project first, then what was added."""
    find_home: Callable[[], str]
    """Asked only when a path begins there; most do not."""
    own: str | None = None
    """The session's own folder: free to read."""
    links: Links = field(default_factory=Links)

    @property
    def home(self) -> str:
        """The home of whoever runs the session."""
        return self.find_home()

    def place(self, name: str) -> str:
        """A path as a call names it, made absolute; nothing is looked up."""
        if _CLEAN.fullmatch(name):
            return name if name[0] == "/" else _below(self.cwd, name)
        path = normpath(self._spelled_out(name))
        return path if path[:2] != "//" else path[1:]

    def has_one_meaning(self, name: str) -> bool:
        """Whether `..` in a path means the same to a shell, which counts names, and to the disk.

        Behind a link it does not: there, `link/..` is the folder above what the link leads to.
        """
        return ".." not in name or self.links.real(self.place(name)) == self.leads_to(name)

    def leads_to(self, name: str) -> str:
        """Where the disk finds what a call names, `..` by `..`."""
        return self.links.along(self._spelled_out(name))

    def near(self, names: Iterable[str], paths: re.Pattern[str]) -> set[str]:
        """Those names that may be such a path or lead to one; most are no files at all."""
        folder, links = self.cwd, self.links
        direct = links.real(folder) == folder and folder != "/" and folder[:5] != "/proc"
        found: set[str] = set()
        for name in names:
            path = top = f"{folder}/{name}" if direct else ""
            if "/" in name or name[:1] in _GOING:
                path, top = self._split(name) if direct else ("", "")
            if path and links.is_nothing(top) and paths.match(path) is None:
                continue
            if not self._is_far_from(name, paths):
                found.add(name)
        return found

    def _split(self, name: str) -> tuple[str, str]:
        """A path, and the first step to it from here or from the root; nothing when in doubt."""
        if name[:2] == "./" and name[2:3] != "/":
            name = name[2:]
        if _CLEAN.fullmatch(name) is None:
            return "", ""
        path = name if name[0] == "/" else f"{self.cwd}/{name}"
        end = path.find("/", 1 if name[0] == "/" else len(self.cwd) + 1)
        return path, path if end < 0 else path[:end]

    def _is_far_from(self, name: str, paths: re.Pattern[str]) -> bool:
        """Whether a name is neither such a path nor behind a link; False when in doubt."""
        if name[:1] == "~" or "/../" in f"/{name}/":
            return False
        path = self.place(name)
        if paths.match(path) is not None or path.startswith("/proc/"):
            return False
        return self.links.real(path) == path

    def meanings(self, name: str) -> list[str]:
        """Everything that a path may mean to the program it is given to."""
        path = self.place(name)
        end = self.leads_to(name) if ".." in name else self.links.real(path)
        found = [path] if ".." not in name or end == self.links.real(path) else [path, end]
        process = _OF_A_PROCESS.match(end) if end.startswith("/proc/") else None
        if process is not None:
            start = self.cwd if process[1] == "cwd" else ""
            found.append(self.place(start + end[process.end() :] or "/"))
        return found

    def _spelled_out(self, name: str) -> str:
        if name[:1] == "~" and name[1:2] in ("", "/"):
            name = self.home + name[1:]
        return name if name[:1] == "/" else f"{self.cwd}/{name}"

    def inside(self, path: str, *, reading: bool = False) -> bool:
        """Whether a path, and what it leads to, is in one of the folders."""
        folders = self.folders if self.own is None or not reading else (*self.folders, self.own)
        if not self._in_any(path, folders):
            return False
        end = self.links.real(path)
        return end == path or self._in_any(end, folders)

    def _in_any(self, path: str, folders: Iterable[str]) -> bool:
        for folder in folders:
            if path.startswith(folder) and (folder == "/" or path[len(folder) :][:1] in _BEHIND):
                return True
            target = self.links.real(folder)
            if target != folder and _within(path, target):
                return True
        return False

    def is_protected(self, path: str) -> bool:
        """Whether a file decides what programs do later: writing it is no matter of course."""
        return _special(path) or _special(self.links.real(path))


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/" if folder != "/" else "/")


def _special(path: str) -> bool:
    parts = path.casefold().split("/")
    if parts and parts[-1] in _FILES:
        return True
    for at, part in enumerate(parts):
        if part in _FOLDERS and parts[at : at + 2] != [".claude", "worktrees"]:
            return True
        if part == "git" and at and parts[at - 1] == ".config":
            return True
    return False


def is_critical(name: str, ground: Ground) -> bool:
    """Whether removing it could cost everything: roots, homes, the session's own folders."""
    bare = name.rstrip("/*") or "/"
    if "$" in bare or "`" in bare:
        return name.endswith(("/", "/*")) or bare.strip("\"'").startswith("$")
    kept = (ground.home, ground.cwd, *ground.folders)
    kept = (*kept, *map(ground.links.real, kept))
    for path in ground.meanings(bare):
        for end in (path, ground.links.real(path)):
            if end.count("/") <= 1 or any(_within(one, end) for one in kept):
                return True
    return False
