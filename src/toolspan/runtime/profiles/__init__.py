"""How a client version behaves, as frozen values: texts, policies, shapes.

`profile("2.1.325")` gives one. A profile has a section per part of the runner; each section derives
its versions from a neighbour by override, so that a difference between two clients is one line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from toolspan.errors import NotFound
from toolspan.runtime.profiles.agents import AGENTS, AgentValues
from toolspan.runtime.profiles.fetch import FETCHES, FetchValues
from toolspan.runtime.profiles.files import FILES, FileValues
from toolspan.runtime.profiles.hooks import HOOKS, HookValues
from toolspan.runtime.profiles.issues import ISSUES, IssueStyle
from toolspan.runtime.profiles.mcp import MCPS, McpValues
from toolspan.runtime.profiles.notebook import NOTEBOOKS, NotebookValues
from toolspan.runtime.profiles.offer import TOOL_AVAILABILITY, ToolAvailability
from toolspan.runtime.profiles.plan import PLANS, PlanValues
from toolspan.runtime.profiles.refusals import REFUSALS, Refusals
from toolspan.runtime.profiles.search import SEARCHES, SearchValues
from toolspan.runtime.profiles.shapes import TRANSCRIPT_SHAPES, TranscriptShape
from toolspan.runtime.profiles.shell import SHELLS, ShellValues
from toolspan.runtime.profiles.tasks import TASKS, TaskValues
from toolspan.runtime.profiles.todo import TODOS, TodoValues

Version = Literal["seed", "2.0.65", "2.1.80", "2.1.197", "2.1.325"]
"""A client version, or `seed`: the behaviour of the first documents."""
VERSIONS: tuple[Version, ...] = get_args(Version)
"""Every version, the oldest first."""
DEFAULT: Version = "2.1.325"
"""The version that is meant when none is named."""

__all__ = [
    "DEFAULT",
    "VERSIONS",
    "AgentValues",
    "FetchValues",
    "FileValues",
    "HookValues",
    "IssueStyle",
    "McpValues",
    "NotebookValues",
    "PlanValues",
    "Profile",
    "Refusals",
    "SearchValues",
    "ShellValues",
    "TaskValues",
    "TodoValues",
    "ToolAvailability",
    "TranscriptShape",
    "Version",
    "profile",
]


@dataclass(frozen=True, slots=True)
class Profile:
    """One client version's behaviour."""

    name: Version
    availability: ToolAvailability
    """Which tools there are, and how their calls are queued."""
    refusals: Refusals
    """What is said when a call is not run."""
    issues: IssueStyle
    """What is said when an input does not fit."""
    files: FileValues
    """Read, Write and Edit."""
    search: SearchValues
    """Glob, Grep and LS."""
    notebook: NotebookValues
    """NotebookEdit."""
    todo: TodoValues
    """The todo list and the task list."""
    shell: ShellValues
    """Bash."""
    tasks: TaskValues
    """Work in the background."""
    plan: PlanValues
    """Plans, and questions to a person."""
    fetch: FetchValues
    """WebFetch."""
    hooks: HookValues
    """Hooks."""
    shape: TranscriptShape
    """The transcript's records."""
    mcp: McpValues
    """Calls of MCP servers."""
    agents: AgentValues
    """Subagents."""


def profile(name: str = DEFAULT, *, model: str | None = None) -> Profile:
    """The profile of a client version; some values hang on the model's name.

    Raises:
        NotFound: there is no such profile.
    """
    for version in VERSIONS:
        if version == name:
            return Profile(
                name=version,
                availability=TOOL_AVAILABILITY[version].for_model(model),
                refusals=REFUSALS[version],
                issues=ISSUES[version],
                files=FILES[version].for_model(model),
                search=SEARCHES[version],
                notebook=NOTEBOOKS[version],
                todo=TODOS[version],
                shell=SHELLS[version],
                tasks=TASKS[version],
                plan=PLANS[version],
                fetch=FETCHES[version],
                hooks=HOOKS[version],
                shape=TRANSCRIPT_SHAPES[version],
                mcp=MCPS[version],
                agents=AGENTS[version],
            )
    raise NotFound(f"No profile is called {name!r}; there are {', '.join(VERSIONS)}")
