"""A copy of a repository for one agent: a git worktree on a branch of its own.

In: a folder inside a repository. Out: a folder with the same files as its last commit. When the
agent is done, a copy without changes is removed, and one with changes is kept. Read `open_tree`.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

from toolspan.errors import ToolError
from toolspan.process import Command, Custody, StartError
from toolspan.run.children import Kept

_SECONDS = 120.0
_FOLDER = Path(".claude") / "worktrees"


@dataclass(frozen=True, slots=True)
class Tree:
    """A copy that is there."""

    git: "Git"
    top: Path
    """The repository it is a copy of."""
    path: Path
    branch: str
    commit: str
    """What it began with."""
    cwd: Path
    """The folder in it that is the one the agent was started from."""

    async def close(self) -> Kept | None:
        """Remove it if nothing was changed in it; what is kept otherwise."""
        kept: Kept | None = Kept(path=self.path, branch=self.branch)
        with anyio.CancelScope(shield=True), suppress(ToolError):  # rather kept than lost
            kept = await self._close()
        return kept

    async def _close(self) -> Kept | None:
        status = await self.git.run(self.path, "status", "--porcelain", "--untracked-files=all")
        commit = await self.git.run(self.path, "rev-parse", "HEAD")
        if status or commit != self.commit:
            return Kept(path=self.path, branch=self.branch)
        await self.git.run(self.top, "worktree", "remove", "--force", str(self.path))
        await self.git.run(self.top, "branch", "-D", self.branch)
        return None


async def open_tree(git: "Git", cwd: Path, name: str) -> Tree:
    """A copy of the repository that a folder is in.

    Raises:
        ToolError: there is none, it has no commit, or git is not there.
    """
    try:
        top = Path(await git.run(cwd, "rev-parse", "--show-toplevel"))
    except ToolError as problem:
        raise ToolError(
            f"isolation: {cwd} is in no git repository, so there is nothing to make a copy of"
            f" ({problem.message})",
            kind="invalid_input",
        ) from problem
    commit = await git.run(cwd, "rev-parse", "--verify", "HEAD")
    path, branch = top / _FOLDER / name, f"worktree-{name}"
    await git.run(top, "worktree", "add", "--quiet", "-b", branch, str(path), commit)
    inside = path / cwd.resolve().relative_to(top.resolve())
    return Tree(git, top, path, branch, commit, inside if inside.is_dir() else path)


@dataclass(frozen=True, slots=True)
class Git:
    """Runs git."""

    custody: Custody
    """Its processes are in it."""
    environment: dict[str, str]
    mark: str

    async def run(self, cwd: Path, *arguments: str) -> str:
        """What a command of git prints.

        Raises:
            ToolError: it failed, or takes too long.
        """
        env = {**self.environment, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        command = Command(argv=("git", *arguments), cwd=cwd, env=env, mark=self.mark)
        try:
            with anyio.fail_after(_SECONDS):
                async with self.custody.running(command) as child:
                    exit = await child.wait()
        except StartError as problem:
            raise ToolError(
                f"git cannot be started: {problem.reason}", kind="internal"
            ) from problem
        except TimeoutError as problem:
            raise ToolError(f"git {arguments[0]} took too long", kind="internal") from problem
        if exit.code != 0:
            words = child.stderr.data.decode("utf-8", "replace").strip()
            raise ToolError(f"git {arguments[0]}: {words or exit.status}", kind="internal")
        return child.stdout.data.decode("utf-8", "replace").strip()
