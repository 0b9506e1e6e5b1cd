"""Find the files that a sandboxed command may read and write.

Start at `build_file_access`. It searches the file system each time a command starts, because earlier commands may
have created repositories and folders.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from toolspan.runtime.sandbox.backend import FileAccess
from toolspan.runtime.sandbox.settings import Sandbox, home_folder, resolve_path

STARTUP_FILES = (
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv",
    ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".inputrc", ".gitconfig",
    ".config/fish", ".config/git", ".config/autostart", ".config/systemd", ".xprofile", ".xinitrc", ".pam_environment",
    ".ssh", ".pythonrc", ".npmrc", ".yarnrc",
)  # fmt: skip
"""Files in the home folder that run, or select programs to run, later."""
_SHELL_FILES = STARTUP_FILES[:11]
SECRET_FILES = (
    ".ssh", ".aws", ".gnupg", ".config/gcloud", ".netrc", ".docker", ".kube", ".azure", ".oci", ".config/gh",
    ".config/op", ".git-credentials", ".config/git/credentials", ".pypirc", ".pgpass", ".my.cnf", ".vault-token",
    ".cargo/credentials", ".cargo/credentials.toml", ".terraform.d/credentials.tfrc.json", ".password-store",
    ".local/share/keyrings", ".bash_history", ".zsh_history", ".claude/.credentials.json", ".claude.json",
    ".codex/auth.json", ".gemini/oauth_creds.json", ".mozilla", ".thunderbird", ".config/google-chrome",
    ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi", ".config/opera",
    "snap/firefox", "snap/chromium", ".var/app/org.mozilla.firefox", ".var/app/com.google.Chrome",
    "Library/Keychains", "Library/Cookies", "Library/Application Support/Google/Chrome",
    "Library/Application Support/Firefox", "Library/Application Support/BraveSoftware", "Library/Safari",
)  # fmt: skip
"""Files in the home folder that a strict sandbox hides."""
SECRET_VARIABLE = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|SECRETS|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY|AUTH)(?:_|$)"
    r"|(?:API|ACCESS|PRIVATE|SECRET|SIGNING|ENCRYPTION|AUTH)_?KEY|^SSH_AUTH_SOCK$|^DBUS_SESSION_BUS_ADDRESS$"
    r"|_(?:DSN|PAT)$|^(?:DATABASE|REDIS|MONGO(?:DB)?|POSTGRES(?:QL)?|AMQP)_UR[IL]$",
    re.IGNORECASE,
)
"""Variables that a strict sandbox removes."""
_PRIVATE_FOLDERS = ("/tmp/", "/var/tmp/", "/run/")
_WORKTREE_FILES = ("commondir", "gitdir", "config.worktree")
_HOOKS_PATH = re.compile(r"^\s*hooksPath\s*=\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
_INCLUDED_PATH = re.compile(r"^\s*path\s*=\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
_WORKTREE_CONFIG = re.compile(r"^\s*worktreeConfig\b", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedFiles:
    """The files of a session that no command may change, in addition to those that every sandbox protects."""

    config: Path | None = None
    """The client's configuration folder."""
    session_folder: Path | None = None
    """The folder with the session's output files, which stays readable."""
    transcript: Path | None = None
    hook_commands: Sequence[str] = ()
    """The command lines of hooks and MCP servers, whose scripts must not change."""


def build_file_access(
    sandbox: Sandbox,
    folders: Sequence[Path],
    protected: ProtectedFiles,
    temporary: Path,
    environment: Mapping[str, str],
) -> FileAccess:
    """Return a command's file access. `folders` are the session's writable folders, the project first."""
    project = folders[0]
    homes = _home_folders(environment)
    startup_files, secret_files = _find_in_homes(homes, STARTUP_FILES, SECRET_FILES if sandbox.strict else ())
    session_folders = [protected.session_folder] if protected.session_folder else []
    writable = find_writable_folders(sandbox, folders)
    read_only = _existing(
        [
            *(path for folder in writable for path in _protected_in(folder, is_project=folder == writable[0])),
            *startup_files,
            *([protected.config, protected.config.with_name(".claude.json")] if protected.config else []),
            *([protected.transcript, protected.transcript.with_suffix("")] if protected.transcript else []),
            *session_folders,
            *_expand(sandbox.deny_write, project),
            *_find_scripts(protected.hook_commands, project),
        ]
    )
    read_only = [path for path in read_only if _is_below(path, writable)]
    # A private folder would hide these.
    needed = _resolve_all([*homes, *session_folders, *environment.get("PATH", "").split(":")])
    read_only += [Path(path) for path in needed if path.startswith(_PRIVATE_FOLDERS)]
    read_only += [path for path in find_own_folders() if not _is_below(path, writable)]
    hidden = _existing(_expand(sandbox.deny_read, project))
    if sandbox.strict:
        hidden += _existing([*secret_files, *([protected.config / ".credentials.json"] if protected.config else [])])
    readable = _existing(_expand(sandbox.allow_read, project))
    hidden = [path for path in hidden if not _is_below(path, readable)]
    shown = [path for path in readable if _is_below(path, hidden)]
    # Only `allow_read` exposes files inside a hidden folder.
    writable = [path for path in writable if not _is_below(path, hidden) or _is_below(path, readable)]
    read_only = [path for path in read_only if not _is_below(path, hidden) or _is_below(path, readable)]
    read_only += [path for path in shown if path not in writable and not _is_below(path, writable)]
    return FileAccess(
        writable=tuple(dict.fromkeys([*writable, *_folders_between(writable, read_only)])),
        read_only=tuple(dict.fromkeys(read_only)),
        hidden=tuple(dict.fromkeys(hidden)),
        temporary=temporary,
        unrestricted=sandbox.files_disabled,
    )


def find_writable_folders(sandbox: Sandbox, folders: Sequence[Path]) -> list[Path]:
    """Return the files and folders that a command may change. The first of `folders` is the project."""
    project = folders[0]
    writable = _existing([project])
    # Outer folders first: a command may have replaced an inner folder with a link.
    for path in sorted((*folders[1:], *_expand(sandbox.allow_write, project)), key=lambda path: len(path.parts)):
        if not _is_below(path, (project, *writable)):
            writable += _existing([path])
    return writable + _existing(path for folder in folders for path in find_git_folders(folder))


@cache
def find_own_folders() -> tuple[Path, ...]:
    """Return the folders of this interpreter and of toolspan that a command's private folders would hide."""
    folders = _existing([sys.prefix, sys.base_prefix, Path(__file__).parents[2]])
    return tuple(folder for folder in folders if str(folder).startswith(_PRIVATE_FOLDERS))


def restrict_search_path(search_path: str, writable: Sequence[Path]) -> str:
    """Return the folders in a `PATH` that no command can change, with links resolved."""
    folders = [folder for folder in _resolve_all(search_path.split(":")) if not _is_below(folder, writable)]
    # An empty `PATH`, or an empty part of it, would mean the current folder.
    return ":".join(folder for folder in folders if ":" not in folder) or os.devnull


def prepare_protected_folders(folders: Sequence[Path], environment: Mapping[str, str]) -> list[Path]:
    """Create missing folders so that no command can create them, and return those to remove later.

    An empty folder in place of a missing file prevents the creation of that file, and git ignores it.
    """
    project = folders[0]
    missing = [project / ".claude"]
    with suppress(OSError, UnicodeDecodeError), _open_folder(project / ".git") as git:
        with suppress(FileExistsError):
            os.mkdir("hooks", dir_fd=git)
        with suppress(FileExistsError):
            os.close(os.open("config", os.O_CREAT | os.O_EXCL, 0o666, dir_fd=git))
        config = (project / ".git/config").read_text(encoding="utf-8")
        missing += [path for path in _configured_hooks(config, project) if project in path.parents]
        if _WORKTREE_CONFIG.search(config):
            with suppress(FileExistsError):
                os.close(os.open("config.worktree", os.O_CREAT | os.O_EXCL, 0o666, dir_fd=git))
    for repository in _find_submodules(project / ".git"):
        with suppress(OSError), _open_folder(repository) as git:
            os.mkdir("hooks", dir_fd=git)
    for home in _home_folders(environment):
        if _is_below(home, folders):
            missing += [home / name for name in _SHELL_FILES]
    created = []
    for path in missing:
        with suppress(OSError):  # it exists, or this user cannot create it either
            path.mkdir()
            created.append(path)
    return created


def remove_forged_files(folders: Iterable[Path]) -> list[Path]:
    """Remove and return files that redirect git to other settings and hooks. Only linked worktrees have them."""
    removed = []
    for folder in folders:
        for repository in [folder / ".git", *_find_submodules(folder / ".git")]:
            with suppress(OSError), _open_folder(repository) as git:
                os.unlink("commondir", dir_fd=git)
                removed.append(repository / "commondir")
    return removed


def find_open_pipes() -> list[Path]:
    """Return the named pipes that this user's programs have open.

    Such a program may run what it reads as commands, and a read-only mount does not prevent writing to a pipe.
    """
    pipes: dict[Path, None] = {}
    for folder in glob.glob("/proc/[0-9]*/fd"):  # noqa: PTH207 - perf: there are thousands of descriptors
        with suppress(OSError):  # the process has ended or belongs to another user
            for name in os.listdir(folder):  # noqa: PTH208
                with suppress(OSError):
                    target = os.readlink(f"{folder}/{name}")  # noqa: PTH115
                    if target.startswith("/") and not target.startswith("/dev/") and Path(target).is_fifo():
                        pipes[Path(target)] = None
    return list(pipes)


@contextmanager
def _open_folder(path: Path) -> Iterator[int]:
    """Open a folder that commands can change. Raise OSError if a link leads elsewhere."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.path.realpath(path) != str(path) or not os.path.samestat(os.fstat(descriptor), path.stat()):
            raise NotADirectoryError(str(path))
        yield descriptor
    finally:
        os.close(descriptor)


def find_git_folders(folder: Path) -> list[Path]:
    """Return the folders outside a linked worktree in which git stores its commits.

    A command may have written the `.git` file, so it is followed only if the repository names this worktree.
    """
    try:
        link = folder / ".git"
        text = link.read_text(encoding="utf-8") if link.is_file() else ""
        git_folder = Path(os.path.realpath(folder / text.removeprefix("gitdir:").strip()))
        if not text.startswith("gitdir:") or git_folder.parent.name != "worktrees":
            return []
        named = (git_folder / "gitdir").read_text(encoding="utf-8").strip()
        common = git_folder.parent.parent
        is_repository = (common / "HEAD").is_file() and (common / "objects").is_dir()
        return [common] if is_repository and os.path.realpath(named) == os.path.realpath(link) else []
    except (OSError, UnicodeDecodeError):
        return []


@cache
def is_secret_variable(name: str) -> bool:
    """Return whether a variable probably contains a secret."""
    return SECRET_VARIABLE.search(name) is not None


def _protected_in(folder: Path, *, is_project: bool) -> Iterator[Path | str]:
    """Yield the files in a writable folder that run, or select programs to run, later."""
    yield f"{folder}/.mcp.json"
    settings = [""] if is_project else ["/settings.json", "/settings.local.json", "/hooks", "/agents"]
    yield from (f"{folder}/.claude{name}" for name in settings)
    git = folder / ".git"
    if git.is_file():
        yield git
    for repository in [git, *_find_submodules(git), folder] if git.is_dir() or folder.name == ".git" else []:
        if not (repository / "HEAD").exists():
            continue
        yield from (f"{repository}/{name}" for name in ("config", "config.worktree", "hooks"))
        with suppress(OSError):
            for name in os.listdir(f"{repository}/worktrees"):  # noqa: PTH208
                yield from (f"{repository}/worktrees/{name}/{file}" for file in _WORKTREE_FILES)
        with suppress(OSError, UnicodeDecodeError):
            config = (repository / "config").read_text(encoding="utf-8")
            yield from _configured_hooks(config, folder)
            for match in _INCLUDED_PATH.finditer(config):
                yield resolve_path(match[1].strip('"'), repository)


def _find_submodules(git: Path) -> Iterator[Path]:
    """Yield the submodule repositories, which are nested in `modules` as the submodules are in the project."""
    pending = [git / "modules"]
    while pending:
        folder = pending.pop()
        with suppress(OSError):
            for entry in os.scandir(folder):
                if entry.is_dir(follow_symlinks=False):
                    path = folder / entry.name
                    is_repository = (path / "HEAD").exists()
                    pending.append(path / "modules" if is_repository else path)
                    if is_repository:
                        yield path


def _configured_hooks(config: str, folder: Path) -> Iterator[Path]:
    """Yield the folders that a git configuration names for hooks, instead of `hooks`."""
    for match in _HOOKS_PATH.finditer(config):
        yield resolve_path(match[1].strip('"'), folder)


def _find_scripts(commands: Iterable[str], project: Path) -> Iterator[Path]:
    """Yield the files named in command lines."""
    for command in commands:
        try:
            words = shlex.split(command)
        except ValueError:
            words = command.split()
        for word in words:
            text = word.replace("${CLAUDE_PROJECT_DIR}", str(project)).replace("$CLAUDE_PROJECT_DIR", str(project))
            path = resolve_path(text, project)
            with suppress(OSError):
                if path.is_file():
                    yield path


def _folders_between(writable: Sequence[Path], read_only: Sequence[Path]) -> Iterator[Path]:
    """Yield the folders between a writable folder and the paths mounted in it: protected files and other writable
    folders.

    As separate mount points, they cannot be renamed and replaced with other files.
    """
    roots = set(writable)
    for path in (*read_only, *writable):
        parents = list(path.parents)
        outermost = max((index for index, parent in enumerate(parents) if parent in roots), default=0)
        yield from (parent for parent in parents[:outermost] if parent not in roots)


def _expand(paths: Iterable[Path | str], project: Path) -> Iterator[Path]:
    for path in paths:
        resolved = resolve_path(path, project)
        if glob.has_magic(str(resolved)) and not resolved.exists():
            yield from _find_matches(str(resolved).removesuffix("/**"))
        else:
            yield resolved


@lru_cache(maxsize=256)
def _find_matches(pattern: str) -> tuple[Path, ...]:
    """Return the files that match a pattern. Cached, because searching a project is slow."""
    return tuple(Path("/").glob(pattern.lstrip("/")))


def _find_in_homes(homes: Iterable[Path], *groups: Sequence[str]) -> list[list[str]]:
    """Return the paths of the named files that may exist in home folders, for each group of names."""
    paths: list[list[str]] = [[] for _ in groups]
    for home in homes:
        try:
            present = set(os.listdir(home))  # noqa: PTH208 - perf: one listing instead of 70 look-ups for each command
        except PermissionError:  # its files may be readable
            present = {name.partition("/")[0] for names in groups for name in names}
        except OSError:
            continue
        for group, names in zip(paths, groups, strict=True):
            group += [f"{home}/{name}" for name in names if name.partition("/")[0] in present]
    return paths


def _existing(paths: Iterable[Path | str]) -> list[Path]:
    """Return the existing paths, with links resolved and without duplicates."""
    return [Path(path) for path in _resolve_all(paths)]


def _resolve_all(paths: Iterable[Path | str]) -> list[str]:
    absolute = dict.fromkeys(path for path in map(str, paths) if path.startswith("/"))
    return [path for path in dict.fromkeys(map(_resolve_links, absolute)) if path is not None]


def _resolve_links(path: str) -> str | None:
    """Return a file's path with links resolved, or None if the file does not exist."""
    if sys.platform != "linux":
        real = os.path.realpath(path)
        return real if os.path.lexists(real) else None
    # perf: one system call for a missing file and three for others, while `realpath` needs one for each folder in it
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
    except OSError:  # /proc is not mounted
        return os.path.realpath(path)
    finally:
        os.close(descriptor)


def _is_below(path: Path | str, folders: Iterable[Path | str]) -> bool:
    text = f"{path}/"  # perf: comparing the parents would take 2 ms of each command
    return any(text.startswith(f"{str(folder).rstrip('/')}/") for folder in folders)


def _home_folders(environment: Mapping[str, str]) -> list[Path]:
    homes = dict.fromkeys([environment.get("HOME"), home_folder(), _account_home()])
    return [Path(home) for home in homes if home and home != "/"]


@cache
def _account_home() -> str | None:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None
