"""Where a call may go: the session's folders, and the places in them that are special.

In: paths as a call names them. Out: whether they are inside, protected, or too costly to remove.
Both a link and what it leads to are judged. The file system is asked for links, nothing else.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

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
    """The folders of a session, and where in them a call starts."""

    cwd: Path
    folders: tuple[Path, ...]
    """The project first, then what was added."""
    home: Path
    own: Path | None = None
    """The session's own folder: free to read."""

    def place(self, name: str) -> Path:
        """A path as a call names it, made absolute; nothing is looked up."""
        if name == "~" or name.startswith("~/"):
            name = str(self.home) + name[1:]
        return Path(os.path.normpath(self.cwd / name))

    def inside(self, path: Path, *, reading: bool = False) -> bool:
        """Whether a path, and what it leads to, is in one of the folders."""
        folders = self.folders if self.own is None or not reading else (*self.folders, self.own)
        return _within(path, folders) and _within(real(path), folders)


def real(path: Path) -> Path:
    """What a path leads to, with every link followed."""
    return Path(os.path.realpath(path))


def _within(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(one) or path.is_relative_to(real(one)) for one in folders)


def is_protected(path: Path) -> bool:
    """Whether a file decides what programs do later: writing it is never a matter of course."""
    return _special(path) or _special(real(path))


def _special(path: Path) -> bool:
    parts = [part.casefold() for part in path.parts]
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
    critical = any(one == path or one.is_relative_to(path) for one in kept)
    emptied = name.endswith("*") and path in kept
    return critical or emptied or len(path.parts) <= 2
