"""Find the files that a sandboxed command may read and write.

Start at `build_file_access`. It searches the file system each time a command starts, because earlier commands may
have created repositories and folders.
"""

from __future__ import annotations

import errno
import glob
import os
import pwd
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from toolspan.runtime.protected_files import READ_ONLY_PATHS
from toolspan.runtime.sandbox.backend import FileAccess
from toolspan.runtime.sandbox.git_files import REPOSITORY_FILES, REPOSITORY_MARKS, GitFiles, find_submodules
from toolspan.runtime.sandbox.home import (
    SECRET_NAMES,
    SHOWN_NAMES,
    HomeView,
    all_home_folders,
    find_home_view,
    find_shown_files,
    is_below,
    leads_through,
    mount_private_cache,
    private_cache_folder,
    system_secrets,
)
from toolspan.runtime.sandbox.pinned import open_folder
from toolspan.runtime.sandbox.settings import Sandbox, home_folder, resolve_path

STARTUP_FILES = (
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv",
    ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".inputrc", ".gitconfig",
    ".config/fish", ".config/git", ".config/autostart", ".config/systemd", ".xprofile", ".xinitrc", ".pam_environment",
    ".ssh", ".pythonrc", ".npmrc", ".yarnrc",
)  # fmt: skip
"""Files in the home folder that run, or select programs to run, later."""
_SHELL_FILES = STARTUP_FILES[:15]
_PRIVATE_FOLDERS = ("/tmp/", "/var/tmp/", "/run/")
_CLIENT_SETTINGS = (".claude/settings.json", ".claude/settings.local.json", ".claude/hooks", ".claude/agents")
_WORKTREE_FILES = ("commondir", "gitdir", "config.worktree")
_GIT_TODO_FILES = (".git/rebase-merge/git-rebase-todo",)
"""Files whose `exec` lines git runs when a person continues what a command has begun."""
_INTERPRETER = re.compile(r"(python|pypy|node|deno|bun|tsx|ts-node|ruby|perl|php|lua|bash|sh|dash|zsh|ksh|run)[\d.]*")
"""Words before the name of a script; `run` as in `uv run`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedFiles:
    """The files of a session that no command may change, in addition to those that every sandbox protects."""

    config: Path | None = None
    """The client's configuration folder."""
    session_folder: Path | None = None
    """The folder with the session's output files, which stays readable."""
    transcript: Path | None = None
    hook_commands: Sequence[str] = ()
    """The command lines of hooks. The files that they name must not change."""
    server_commands: Sequence[str] = ()
    """The command lines of MCP servers, whose scripts must not change."""


def build_file_access(
    sandbox: Sandbox,
    folders: Sequence[Path],
    protected: ProtectedFiles,
    temporary: Path,
    environment: Mapping[str, str],
    git: GitFiles,
    shown: Sequence[Path | str] = (),
) -> FileAccess:
    """Return a command's file access. `folders` are the session's writable folders, the project first.

    `shown` are files in the home folder that the command needs.
    """
    project = folders[0]
    homes = _home_folders(environment)
    startup_files, secret_files, shown_files = _find_in_homes(homes, STARTUP_FILES, SECRET_NAMES, SHOWN_NAMES)
    session_folders = [protected.session_folder] if protected.session_folder else []
    writable = find_writable_folders(sandbox, folders)
    read_only = _existing(
        [
            *(path for folder in writable for path in _protected_in(folder, git, is_project=folder == writable[0])),
            *git.configuration,
            *git.folders,
            *(path for path in git.programs if path.is_file()),
            *startup_files,
            *([protected.config, protected.config.with_name(".claude.json")] if protected.config else []),
            *([protected.transcript, protected.transcript.with_suffix("")] if protected.transcript else []),
            *session_folders,
            *_expand(sandbox.deny_write, project),
            *_find_scripts(protected.hook_commands, project),
            *(path for path in _find_programs(protected, project) if path not in writable),
        ]
    )
    read_only = [path for path in read_only if is_below(path, writable)]
    hidden = _existing(_expand(sandbox.deny_read, project))
    readable = [
        path
        for name in _expand(sandbox.allow_read, project)
        for path in _existing([name])
        if is_below(path, writable) or not leads_through(name, writable)
    ]
    hidden = [path for path in hidden if not is_below(path, readable)]
    view = HomeView((), ())
    if sandbox.strict and not sandbox.files_disabled:
        scripts = [*shown, *_find_scripts(protected.hook_commands, project)]
        paths = [*shown_files, *find_shown_files(environment), *session_folders, *scripts, *readable]
        view = find_home_view(
            all_home_folders(homes),
            {
                path: source
                for path in map(str, paths)
                if (source := _resolve_links(path)) and not is_below(path, hidden) and not leads_through(path, writable)
            },
            writable=writable,
            visible=(*writable, *readable, *hidden),
        )
        if sandbox.private_caches:
            view = _mount_cache(view, homes, project, temporary)
        config_files = [protected.config / ".credentials.json"] if protected.config else []
        # perf: most secrets lie in a folder that is empty inside, so they are not even looked up.
        names = view.find_visible([*secret_files, *config_files], writable)
        secrets = _existing([*names, *system_secrets()])
        hidden += [path for path in secrets if path not in readable and not any(is_below(f, [path]) for f in writable)]
        hidden = [Path(path) for path in view.find_visible(hidden, writable)]
        hidden += [place for path in hidden for place in view.find_aliases(path)]
        # Nothing can be mounted inside a hidden folder, and nothing must be, unless `allow_read` shows a part of it.
        shown_inside = [path for path in readable if is_below(path, hidden)]
        hidden = [path for path in hidden if is_below(path, shown_inside) or not is_below(path.parent, hidden)]
    # A private folder would hide these.
    search_path = [path for path in environment.get("PATH", "").split(":") if not leads_through(path, writable)]
    replaced = find_replaced_paths([*session_folders, *search_path], environment)
    replaced += [path for path in find_own_folders() if not is_below(path, writable)]
    read_only += [path for path in replaced if not is_below(path, view.emptied)]
    shown_inside = [path for path in readable if is_below(path, hidden)]
    # Only `allow_read` exposes files inside a hidden folder.
    writable = [path for path in writable if not is_below(path, hidden) or is_below(path, readable)]
    read_only = [path for path in read_only if not is_below(path, hidden) or is_below(path, readable)]
    read_only += [path for path in shown_inside if path not in writable and not is_below(path, writable)]
    return FileAccess(
        writable=tuple(dict.fromkeys([*writable, *_folders_between(writable, [*read_only, *hidden])])),
        read_only=tuple(dict.fromkeys(read_only)),
        hidden=tuple(dict.fromkeys(hidden)),
        emptied=view.emptied,
        mounts=view.mounts,
        temporary=temporary,
        unrestricted=sandbox.files_disabled,
    )


def _mount_cache(view: HomeView, homes: Sequence[Path], project: Path, temporary: Path) -> HomeView:
    """Mount a private cache folder in each home folder that is empty."""
    source = private_cache_folder(project)
    if source is None:
        source = temporary / "cache"
        source.mkdir(exist_ok=True)
    for home in map(Path, _resolve_all(homes)):
        if is_below(home, view.emptied):
            view = mount_private_cache(view, home, source)
    return view


def find_writable_folders(sandbox: Sandbox, folders: Sequence[Path]) -> list[Path]:
    """Return the files and folders that a command may change. The first of `folders` is the project."""
    project = folders[0]
    writable = _existing([project])
    # Outer folders first: a command may have replaced an inner folder with a link.
    for path in sorted((*folders[1:], *_expand(sandbox.allow_write, project)), key=lambda path: len(path.parts)):
        if not is_below(path, (project, *writable)):
            writable += _existing([path])
    return writable + _existing(path for folder in folders for path in find_git_folders(folder))


def find_replaced_paths(paths: Iterable[Path | str], environment: Mapping[str, str]) -> list[Path]:
    """Return those of the paths, and of the home folders, that a private folder would hide."""
    resolved = _resolve_all([*_home_folders(environment), *paths])
    return [Path(path) for path in resolved if path.startswith(_PRIVATE_FOLDERS)]


@cache
def find_own_folders() -> tuple[Path, ...]:
    """Return the folders of this interpreter and of toolspan that a command's private folders would hide."""
    folders = _existing([sys.prefix, sys.base_prefix, Path(__file__).parents[2]])
    return tuple(folder for folder in folders if str(folder).startswith(_PRIVATE_FOLDERS))


def restrict_search_path(search_path: str, writable: Sequence[Path]) -> str:
    """Return the folders in a `PATH` that no command can change, with links resolved."""
    folders = [folder for folder in _resolve_all(search_path.split(":")) if not is_below(folder, writable)]
    # An empty `PATH`, or an empty part of it, would mean the current folder.
    return ":".join(folder for folder in folders if ":" not in folder) or os.devnull


def prepare_protected_folders(folders: Sequence[Path], environment: Mapping[str, str], git: GitFiles) -> list[Path]:
    """Create missing folders so that no command can create them, and return those to remove later.

    An empty folder in place of a missing file prevents the creation of that file, and git ignores it.
    """
    project = folders[0]
    missing = [project / ".claude", *(path for path in git.folders if project in path.parents)]
    submodules = list(find_submodules(project / ".git"))
    for repository in (project / ".git", *submodules):
        with suppress(OSError), open_folder(repository) as folder:
            os.mkdir("hooks", dir_fd=folder)
    _create_empty_file(project / ".git/config")
    if git.has_worktree_config:
        for repository in (project / ".git", *submodules):
            with suppress(OSError):
                for worktree in (repository, *(repository / "worktrees").glob("*")):
                    _create_empty_file(worktree / "config.worktree")
    for home in _home_folders(environment):
        if is_below(home, folders):
            missing += [home / name for name in _SHELL_FILES]
    created = []
    for path in missing:
        with suppress(OSError), open_folder(path.parent) as folder:  # it exists, or this user cannot create it either
            os.mkdir(path.name, dir_fd=folder)
            created.append(path)
    return created


def _create_empty_file(path: Path) -> None:
    with suppress(OSError), open_folder(path.parent) as folder:
        os.close(os.open(path.name, os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder))


def remove_created_folders(paths: Iterable[Path]) -> None:
    """Remove the folders that `prepare_protected_folders` has created, if they are empty."""
    for path in paths:
        with suppress(OSError), open_folder(path.parent) as folder:
            os.rmdir(path.name, dir_fd=folder)


def remove_forged_files(folders: Iterable[Path]) -> list[Path]:
    """Remove and return files that redirect git to other settings and hooks. Only linked worktrees have them."""
    removed = []
    for path in folders:
        for repository in [path / ".git", *find_submodules(path / ".git")]:
            with suppress(OSError), open_folder(repository) as folder:
                os.unlink("commondir", dir_fd=folder)
                removed.append(repository / "commondir")
    return removed


def find_later_files(folders: Iterable[Path], git: GitFiles) -> frozenset[tuple[str, str]]:
    """Return the files in writable folders from which other programs run code later, with the targets of links.

    A command can create those that do not exist when it starts, and replace links.
    """
    paths = {str(path) for path in (*git.configuration, *git.folders, *git.programs) if is_below(path, folders)}
    for folder in folders:
        paths.update(_find_in_folder(folder, (*READ_ONLY_PATHS, ".git", *_CLIENT_SETTINGS, *_GIT_TODO_FILES)))
        paths.update(f"{path}/.git" for path in git.find_embedded(folder))
        if all(os.path.lexists(f"{folder}/{name}") for name in REPOSITORY_MARKS):
            paths.add(f"{folder}/HEAD")
    files = set()
    for path in paths:
        try:
            files.add((path, os.readlink(path)))  # noqa: PTH115 - perf: for each file and command
        except OSError as error:
            if error.errno == errno.EINVAL:  # it exists, and is not a link
                files.add((path, ""))
    return frozenset(files)


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


def _protected_in(folder: Path, git: GitFiles, *, is_project: bool) -> Iterator[Path | str]:
    """Yield the files in a writable folder that run, or select programs to run, later."""
    yield from _find_in_folder(folder, (*READ_ONLY_PATHS, *([".claude"] if is_project else _CLIENT_SETTINGS)))
    if (folder / ".git").is_file():
        yield folder / ".git"
    for repository in git.find_repositories(folder):
        yield from (f"{repository}/{name}" for name in REPOSITORY_FILES)
        with suppress(OSError):
            for name in os.listdir(f"{repository}/worktrees"):  # noqa: PTH208
                yield from (f"{repository}/worktrees/{name}/{file}" for file in _WORKTREE_FILES)


def _find_scripts(commands: Iterable[str], project: Path) -> Iterator[Path]:
    """Yield the files named in command lines."""
    for command in commands:
        for word in _split_words(command):
            if path := _find_script(word, project):
                yield path


def _find_programs(protected: ProtectedFiles, project: Path) -> Iterator[Path]:
    """Yield the scripts that hooks and servers run, and their folders, from which interpreters load modules."""
    for command in (*protected.hook_commands, *protected.server_commands):
        is_program = True
        for word in _split_words(command):
            if is_program and (path := _find_script(word, project)):
                yield from (path, path.parent)
            is_interpreter = _INTERPRETER.fullmatch(word.rpartition("/")[2]) is not None
            is_program = is_interpreter or (is_program and word.startswith("-"))


def _split_words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _find_script(word: str, project: Path) -> Path | None:
    text = word.replace("${CLAUDE_PROJECT_DIR}", str(project)).replace("$CLAUDE_PROJECT_DIR", str(project))
    path = resolve_path(text, project)
    with suppress(OSError):
        if path.is_file():
            return path
    return None


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
            present = {first for names in groups for first, _ in _split_names(tuple(names))}
        except OSError:
            continue
        for group, names in zip(paths, groups, strict=True):
            group += [f"{home}/{name}" for first, name in _split_names(tuple(names)) if first in present]
    return paths


@cache
def _split_names(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the first part of each name, and the name. perf: there are hundreds of them for each command."""
    return tuple((name.partition("/")[0], name) for name in names)


def _find_in_folder(folder: Path, names: Sequence[str]) -> list[str]:
    return _find_in_homes([folder], names)[0]


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


def _home_folders(environment: Mapping[str, str]) -> list[Path]:
    homes = dict.fromkeys([environment.get("HOME"), home_folder(), _account_home()])
    return [Path(home) for home in homes if home and home != "/"]


@cache
def _account_home() -> str | None:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None
