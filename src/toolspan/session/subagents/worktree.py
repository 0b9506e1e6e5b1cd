"""A git worktree for a subagent, on its own branch.

When the subagent ends, a worktree without changes is removed; otherwise it is kept. Start at
`open_worktree`.

Commands may have written the repository, and its configuration and attributes select programs that git runs. While
a sandbox is on, git therefore runs inside, and only in a repository that existed when the session began. Hooks and
`core.fsmonitor` are always off. toolspan removes folders itself, because files of the worktree in `.git` are
protected inside the sandbox.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from toolspan.errors import ToolError
from toolspan.runtime.background import KeptWorktree
from toolspan.runtime.git import GIT_OPTIONS, git_environment
from toolspan.runtime.hooks.events import HookEffects
from toolspan.runtime.process import Command, ProcessSupervisor, StartError
from toolspan.runtime.sandbox.settings import SandboxUnavailable
from toolspan.tools.files.opening import open_folder
from toolspan.types.events import HookReport

if TYPE_CHECKING:
    from toolspan.runtime.sandbox.active import ActiveSandbox

_GIT_TIMEOUT = 120.0
_WORKTREES_FOLDER = Path(".claude") / "worktrees"
RepositoryIdentity = tuple[str, int, int]
"""The path, device and inode of `.git`."""


def identify_repository(folder: Path) -> RepositoryIdentity | None:
    """Return the identity of the repository that contains a folder, or None if there is none."""
    real = Path(os.path.realpath(folder))
    for path in (parent / ".git" for parent in (real, *real.parents)):
        with suppress(OSError):
            status = path.lstat()
            return str(path), status.st_dev, status.st_ino
    return None


@dataclass(frozen=True, slots=True)
class Worktree:
    """An open worktree."""

    git: GitRunner
    repository: Path
    path: Path
    git_folder: Path
    """The folder in `.git` with the worktree's own files."""
    branch: str
    base_commit: str
    cwd: Path
    """The folder in the worktree that corresponds to the folder where the subagent was started."""

    async def close(self) -> KeptWorktree | None:
        """Remove the worktree if it has no changes, and otherwise return it."""
        # If git fails, or a folder cannot be removed, keep the worktree.
        with anyio.CancelScope(shield=True), suppress(ToolError, OSError):
            folders = [self.repository]
            status = await self.git.run_command(self.path, folders, "status", "--porcelain", "--untracked-files=all")
            commit = await self.git.run_command(self.path, folders, "rev-parse", "HEAD")
            if not status and commit == self.base_commit:
                await to_thread.run_sync(_remove_folder, self.path)
                await to_thread.run_sync(_remove_folder, self.git_folder)
                branch = f"refs/heads/{self.branch}"
                await self.git.run_command(self.repository, folders, "update-ref", "-d", branch, self.base_commit)
                return None
        return KeptWorktree(path=self.path, branch=self.branch)


def _remove_folder(path: Path) -> None:
    """Remove a folder without following links, which a command may have put into its path."""
    with open_folder(path.parent) as parent:
        shutil.rmtree(path.name, dir_fd=parent)


async def open_worktree(git: GitRunner, cwd: Path, name: str) -> Worktree:
    """Create a worktree of the repository that contains `cwd`."""
    identity = identify_repository(cwd)
    folders = [cwd if identity is None else Path(identity[0]).parent]
    if git.is_inside and identity not in (None, git.repository):
        raise ToolError(
            f"isolation: {folders[0]} is not the repository in which the session started. In a sandbox,"
            " worktrees are made only of that one. Start a session in the other repository.",
            kind="invalid_input",
        )
    try:
        repository = Path(await git.run_command(cwd, folders, "rev-parse", "--show-toplevel"))
    except ToolError as problem:
        raise ToolError(
            f"isolation: {cwd} is not in a git repository, so there is nothing to copy ({problem.message})",
            kind="invalid_input",
        ) from problem
    commit = await git.run_command(cwd, folders, "rev-parse", "--verify", "HEAD")
    path, branch = repository / _WORKTREES_FOLDER / name, f"worktree-{name}"
    if git.is_inside:  # `.claude` is protected there, except for a folder that exists and is named first
        with open_folder(path.parent, make=True):
            folders.insert(0, path.parent)
    await git.run_command(repository, folders, "worktree", "add", "--quiet", "-b", branch, str(path), commit)
    git_folder = Path((path / ".git").read_text(encoding="utf-8").removeprefix("gitdir:").strip())
    nested_cwd = path / cwd.resolve().relative_to(repository.resolve())
    start = nested_cwd if nested_cwd.is_dir() else path
    return Worktree(git, repository, path, git_folder, branch, commit, start)


@dataclass(frozen=True, slots=True)
class GitRunner:
    """Runner for git commands, without prompts and with a time limit, inside the sandbox if one is on."""

    supervisor: ProcessSupervisor
    environment: Mapping[str, str]
    tag: str
    sandbox: ActiveSandbox | None
    repository: RepositoryIdentity | None
    """The repository in which the session began."""

    @property
    def is_inside(self) -> bool:
        """True if git runs inside the sandbox."""
        return self.sandbox is not None and self.sandbox.is_on

    async def run_command(self, cwd: Path, folders: Sequence[Path], *arguments: str) -> str:
        """Run a git command, which can write these folders, and return its output."""
        argv, env = ("git", *GIT_OPTIONS, *arguments), git_environment(self.environment)
        command = Command(argv=argv, cwd=cwd, env=env, tag=self.tag)
        try:
            async with AsyncExitStack() as stack:
                if self.sandbox is not None and self.sandbox.is_on:
                    wrapped = self.sandbox.wrap(command, folders)
                    command = (await stack.enter_async_context(wrapped)).command
                with anyio.fail_after(_GIT_TIMEOUT):
                    async with self.supervisor.running_child(command) as child:
                        exit = await child.wait()
        except (StartError, SandboxUnavailable) as problem:
            reason = problem.reason if isinstance(problem, StartError) else str(problem)
            raise ToolError(f"git cannot be started: {reason}", kind="internal") from problem
        except TimeoutError as problem:
            raise ToolError(f"git {arguments[0]} took too long", kind="internal") from problem
        if exit.code != 0:
            message = child.stderr.text.strip()
            raise ToolError(f"git {arguments[0]}: {message or exit.status}", kind="internal")
        return child.stdout.text.strip()


_FAILED_OUTCOMES = ("error", "blocked", "cancelled")
_NO_PATH_MESSAGE = (
    "WorktreeCreate hook failed: hook succeeded but returned no worktree path (command: echo the"
    " path to stdout; http/callback: return hookSpecificOutput.worktreePath)"
)


@dataclass(frozen=True, slots=True)
class HookWorktree:
    """A worktree created by a WorktreeCreate hook."""

    path: Path
    branch: None = None

    @property
    def cwd(self) -> Path:
        """The folder in which the subagent starts."""
        return self.path

    async def close(self) -> KeptWorktree:
        """Keep the worktree, because removing it is up to the hook's author."""
        return KeptWorktree(path=self.path)


def hook_worktree(effects: HookEffects) -> HookWorktree:
    """Return the worktree created by WorktreeCreate hooks."""
    for report in effects.reports:
        if report.outcome in _FAILED_OUTCOMES:
            message = (report.stderr or report.text or "").strip()
            raise ToolError(f"WorktreeCreate hook failed: {report.command or report.name}: {message}")
    paths = [path for report in effects.reports if (path := _reported_path(report))]
    if not paths:
        raise ToolError(_NO_PATH_MESSAGE)
    if not Path(paths[-1]).is_dir():
        raise ToolError(
            f"WorktreeCreate hook returned a path that is not a directory: {paths[-1]}."
            " The hook must create the directory before echoing its path."
        )
    return HookWorktree(Path(paths[-1]))


def _reported_path(report: HookReport) -> str | None:
    """Return the folder that a hook reported in its JSON output or in the last line of its plain output."""
    printed = (report.stdout or report.text or "").strip()
    if report.outcome == "decision":
        document = json.loads(printed)
        specific = document.get("hookSpecificOutput") if isinstance(document, Mapping) else None
        path = specific.get("worktreePath") if isinstance(specific, Mapping) else None
        return path if isinstance(path, str) else None
    return printed.splitlines()[-1].strip() if printed else None
