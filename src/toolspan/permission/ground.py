"""Where a call may go: the session's folders, and the places in them that are special.

In: paths as a call names them. Out: whether they are inside, protected, or too costly to remove.
Both a link and what it leads to are judged. The file system is asked for links, nothing else.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from os.path import normpath, realpath

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


@dataclass(frozen=True, slots=True)
class Ground:
    """The folders of a session, and where in them a call starts. All paths are absolute texts."""

    cwd: str
    folders: tuple[str, ...]
    """The project first, then what was added."""
    home: str
    own: str | None = None
    """The session's own folder: free to read."""

    def place(self, name: str) -> str:
        """A path as a call names it, made absolute; nothing is looked up."""
        if name[:1] == "~" and name[1:2] in ("", "/"):
            name = self.home + name[1:]
        return normpath(name if name[:1] == "/" else f"{self.cwd}/{name}")

    def inside(self, path: str, *, reading: bool = False) -> bool:
        """Whether a path, and what it leads to, is in one of the folders."""
        folders = self.folders if self.own is None or not reading else (*self.folders, self.own)
        return any(_within(path, one) and _within(real(path), one) for one in folders) or (
            len(folders) > 1 and _in_any(path, folders) and _in_any(real(path), folders)
        )


def real(path: str) -> str:
    """What a path leads to, with every link followed."""
    return realpath(path)


def _in_any(path: str, folders: Iterable[str]) -> bool:
    return any(_within(path, one) for one in folders)


def _within(path: str, folder: str) -> bool:
    if path == folder or path.startswith(folder + "/" if folder != "/" else "/"):
        return True
    target = real(folder)
    return target != folder and (path == target or path.startswith(target + "/"))


def is_protected(path: str) -> bool:
    """Whether a file decides what programs do later: writing it is never a matter of course."""
    return _special(path) or _special(real(path))


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
    path = ground.place(bare)
    kept = (ground.home, ground.cwd, *ground.folders)
    critical = any(one == path or one.startswith(path.rstrip("/") + "/") for one in kept)
    return critical or path.count("/") <= 1
