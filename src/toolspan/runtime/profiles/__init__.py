"""The behaviour of client versions as frozen values. `profile("2.1.325")` returns one.

`base.py` defines the dataclasses. Each other file describes one version, derived from the previous
one with `replace`.
"""

from __future__ import annotations

from typing import get_args

from toolspan.errors import NotFound
from toolspan.runtime.profiles.base import (
    AgentValues,
    FetchValues,
    FileValues,
    HookLines,
    HookValues,
    IssueStyle,
    LastPrompt,
    Layout,
    McpValues,
    NotebookValues,
    PlanValues,
    Profile,
    Refusals,
    SearchValues,
    ShellValues,
    Siblings,
    TaskValues,
    TodoValues,
    ToolAvailability,
    TranscriptShape,
    Version,
)
from toolspan.runtime.profiles.seed import SEED
from toolspan.runtime.profiles.v2_0_65 import V2_0_65
from toolspan.runtime.profiles.v2_1_80 import V2_1_80
from toolspan.runtime.profiles.v2_1_197 import V2_1_197
from toolspan.runtime.profiles.v2_1_325 import V2_1_325

VERSIONS: tuple[Version, ...] = get_args(Version)
"""All versions, oldest first."""
DEFAULT: Version = "2.1.325"

__all__ = [
    "DEFAULT",
    "VERSIONS",
    "AgentValues",
    "FetchValues",
    "FileValues",
    "HookLines",
    "HookValues",
    "IssueStyle",
    "LastPrompt",
    "Layout",
    "McpValues",
    "NotebookValues",
    "PlanValues",
    "Profile",
    "Refusals",
    "SearchValues",
    "ShellValues",
    "Siblings",
    "TaskValues",
    "TodoValues",
    "ToolAvailability",
    "TranscriptShape",
    "Version",
    "nearest_version",
    "profile",
]


def nearest_version(version: str) -> Version | None:
    """Return the newest known version that is not newer than a client version, or the oldest one.

    None if it is not a version number.
    """
    try:
        numbers = tuple(map(int, version.split(".")))
    except ValueError:
        return None
    known = [(tuple(map(int, name.split("."))), name) for name in VERSIONS if name != "seed"]
    return max((pair for pair in known if pair[0] <= numbers), default=min(known))[1]


def profile(name: str = DEFAULT, *, model: str | None = None) -> Profile:
    """Return the profile of a client version, with the values that apply to `model`.

    Raises:
        NotFound: no profile has this name.
    """
    for version in (SEED, V2_0_65, V2_1_80, V2_1_197, V2_1_325):
        if version.name == name:
            return version.for_model(model)
    raise NotFound(f"No profile is called {name!r}; there are {', '.join(VERSIONS)}")
