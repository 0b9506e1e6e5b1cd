"""A copy of a project for one agent that hooks have made, in place of a git worktree.

In: what the handlers at `WorktreeCreate` said. Out: a folder, which is theirs: it is kept when the
agent is done. A handler that fails, or names no folder, is why the agent cannot be started.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from toolspan.errors import ToolError
from toolspan.hooks.points import After, Report
from toolspan.run.children import Kept

_FAILED = ("error", "blocked", "cancelled")
_NO_PATH = (
    "WorktreeCreate hook failed: hook succeeded but returned no worktree path (command: echo the"
    " path to stdout; http/callback: return hookSpecificOutput.worktreePath)"
)


@dataclass(frozen=True, slots=True)
class Handmade:
    """A copy that a handler has made."""

    path: Path
    branch: None = None

    @property
    def cwd(self) -> Path:
        """Where the agent begins."""
        return self.path

    async def close(self) -> Kept:
        """Whoever made it may remove it."""
        return Kept(path=self.path)


def handmade(after: After) -> Handmade:
    """The copy that handlers have made.

    Raises:
        ToolError: one of them failed, or there is no copy.
    """
    for one in after.reports:
        if one.outcome in _FAILED:
            words = (one.stderr or one.text or "").strip()
            raise ToolError(f"WorktreeCreate hook failed: {one.command or one.name}: {words}")
    named = [path for one in after.reports if (path := _path(one))]
    if not named:
        raise ToolError(_NO_PATH)
    if not Path(named[-1]).is_dir():
        raise ToolError(
            f"WorktreeCreate hook returned a path that is not a directory: {named[-1]}."
            " The hook must create the directory before echoing its path."
        )
    return Handmade(Path(named[-1]))


def _path(report: Report) -> str | None:
    """The folder that a handler names: in its answer, or in the last line it printed."""
    printed = (report.stdout or report.text or "").strip()
    if report.outcome == "decision":
        answer = json.loads(printed)
        given = answer.get("hookSpecificOutput") if isinstance(answer, Mapping) else None
        found = given.get("worktreePath") if isinstance(given, Mapping) else None
        return found if isinstance(found, str) else None
    return printed.splitlines()[-1].strip() if printed else None
