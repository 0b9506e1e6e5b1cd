"""Where a call may go: the session's folders, and the places in them that are special.

In: paths as a call names them. Out: whether they are inside, protected, or too costly to remove.
Both a link and what it leads to are judged. The file system is asked for links, nothing else, and
for each only once in a decision.
"""

import os
import re
from collections.abc import Iterable
from os.path import islink, normpath
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


_CLEAN = re.compile(r"[^./~][^/]*+(?:/[^./][^/]*+)*+")
"""A path that says nothing twice and does not go up."""
_PLAIN = re.compile(r"[^/.~=][^/=]*+")
_ASKS_IN_ONE = os.access in os.supports_follow_symlinks and os.getuid() == os.geteuid()
_OF_A_PROCESS = re.compile(r"/proc/[^/]+/(?:task/[^/]+/)?(cwd|root)(?=/|\Z)")


def _is_link(path: str) -> bool:
    """Whether a path is a link; most that are asked about are nothing at all."""
    if _ASKS_IN_ONE and not os.access(path, os.F_OK, follow_symlinks=False):
        return False
    return islink(path)  # noqa: PTH114 - many in a decision, and texts all of them


class Links:
    """What paths lead to; each is looked up once, so that it lives no longer than a decision."""

    __slots__ = ("_bare", "_known")

    def __init__(self) -> None:
        self._known: dict[str, str] = {"/": "/"}
        self._bare: set[str] = set()
        """Where nothing is, and so nothing below."""

    def real(self, path: str) -> str:
        """What an absolute path without `..` leads to, with every link followed.

        What stands in `/proc` stays as it is: its links lead each process elsewhere.
        """
        found = self._known.get(path)
        if found is None:
            self._known[path] = path  # links that lead to each other lead nowhere
            found = self._known[path] = self._followed(path)
        return found

    def along(self, path: str) -> str:
        """The same for a path with `..` in it, which is above what a link leads to."""
        here = "/"
        for name in path.split("/"):
            if name == "..":
                here = here.rpartition("/")[0] or "/"
            elif name not in ("", "."):
                here = self.real(_below(here, name))
        return here

    def _followed(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        above = self.real(folder or "/")
        here = _below(above, name)
        if above in self._bare or above == "/proc" or above.startswith("/proc/"):
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
    home: str
    own: str | None = None
    """The session's own folder: free to read."""
    links: Links = field(default_factory=Links)

    def place(self, name: str) -> str:
        """A path as a call names it, made absolute; nothing is looked up."""
        if _CLEAN.fullmatch(name):
            return _below(self.cwd, name)
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

    def is_far_from(self, name: str, paths: re.Pattern[str]) -> bool:
        """Whether a plain name is neither such a path nor a link; False when in doubt."""
        path = f"{self.cwd}/{name}"
        if _PLAIN.fullmatch(name) is None or paths.match(path) is not None or self.cwd == "/":
            return False
        return self.links.real(self.cwd) == self.cwd and not _is_link(path)

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
        return self._in_any(path, folders) and self._in_any(self.links.real(path), folders)

    def _in_any(self, path: str, folders: Iterable[str]) -> bool:
        for folder in folders:
            if _within(path, folder):
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
