"""A git worktree for a subagent, on its own branch.

When the subagent ends, a worktree without changes is removed; otherwise it is kept. Start at
`open_worktree`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

from toolspan.errors import ToolError
from toolspan.runtime.background import KeptWorktree
from toolspan.runtime.hooks.events import HookEffects
from toolspan.runtime.process import Command, ProcessSupervisor, StartError
from toolspan.types.events import HookReport

_GIT_TIMEOUT = 120.0
_WORKTREES_FOLDER = Path(".claude") / "worktrees"


@dataclass(frozen=True, slots=True)
class Worktree:
    """An open worktree."""

    git: GitRunner
    repository: Path
    path: Path
    branch: str
    base_commit: str
    cwd: Path
    """The folder in the worktree that corresponds to the folder where the subagent was started."""

    async def close(self) -> KeptWorktree | None:
        """Remove the worktree if it has no changes, and otherwise return it."""
        with anyio.CancelScope(shield=True), suppress(ToolError):  # if git fails, keep the worktree
            status = await self.git.run_command(self.path, "status", "--porcelain", "--untracked-files=all")
            commit = await self.git.run_command(self.path, "rev-parse", "HEAD")
            if not status and commit == self.base_commit:
                await self.git.run_command(self.repository, "worktree", "remove", "--force", str(self.path))
                await self.git.run_command(self.repository, "branch", "-D", self.branch)
                return None
        return KeptWorktree(path=self.path, branch=self.branch)


async def open_worktree(git: GitRunner, cwd: Path, name: str) -> Worktree:
    """Create a worktree of the repository that contains `cwd`."""
    try:
        repository = Path(await git.run_command(cwd, "rev-parse", "--show-toplevel"))
    except ToolError as problem:
        raise ToolError(
            f"isolation: {cwd} is not in a git repository, so there is nothing to copy ({problem.message})",
            kind="invalid_input",
        ) from problem
    commit = await git.run_command(cwd, "rev-parse", "--verify", "HEAD")
    path, branch = repository / _WORKTREES_FOLDER / name, f"worktree-{name}"
    await git.run_command(repository, "worktree", "add", "--quiet", "-b", branch, str(path), commit)
    nested_cwd = path / cwd.resolve().relative_to(repository.resolve())
    return Worktree(git, repository, path, branch, commit, nested_cwd if nested_cwd.is_dir() else path)


@dataclass(frozen=True, slots=True)
class GitRunner:
    """Runner for git commands, without prompts and with a time limit."""

    supervisor: ProcessSupervisor
    environment: dict[str, str]
    tag: str

    async def run_command(self, cwd: Path, *arguments: str) -> str:
        """Run a git command and return its output."""
        env = {**self.environment, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        command = Command(argv=("git", *arguments), cwd=cwd, env=env, tag=self.tag)
        try:
            with anyio.fail_after(_GIT_TIMEOUT):
                async with self.supervisor.running_child(command) as child:
                    exit = await child.wait()
        except StartError as problem:
            raise ToolError(f"git cannot be started: {problem.reason}", kind="internal") from problem
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
