"""The behaviour of client versions as frozen values. `profile("2.1.327")` returns one.

`base.py` defines the behaviour, `messages.py` the texts, with the newest version as the default. Each other file
describes one version.
"""

from __future__ import annotations

import re
from typing import get_args

from toolspan.errors import NotFound
from toolspan.runtime.profiles.base import (
    AgentValues,
    FileValues,
    HookValues,
    IssueStyle,
    Layout,
    McpValues,
    NotebookValues,
    Profile,
    Refusals,
    SearchValues,
    ShellValues,
    TranscriptShape,
    Version,
)
from toolspan.runtime.profiles.messages import Messages
from toolspan.runtime.profiles.seed import SEED
from toolspan.runtime.profiles.v2_0_65 import V2_0_65
from toolspan.runtime.profiles.v2_1_327 import V2_1_327

VERSIONS: tuple[Version, ...] = get_args(Version)
"""All versions, oldest first."""
DEFAULT: Version = "2.1.327"

__all__ = [
    "DEFAULT", "VERSIONS", "AgentValues", "FileValues", "HookValues", "IssueStyle", "Layout", "McpValues",
    "Messages", "NotebookValues", "Profile", "Refusals", "SearchValues", "ShellValues", "TranscriptShape",
    "Version", "nearest_version", "profile",
]  # fmt: skip


_NEWER_SINCE = (2, 1, 139)
"""The first version for which the newest profile is used, instead of the oldest.

It is halfway between 2.1.80, which answers like 2.0.65 in most respects, and 2.1.197, which answers like the newest.
"""


def nearest_version(version: str) -> Version | None:
    """Return the profile with this name, else the one that resembles this client version most.

    None if it is neither.
    """
    if known := next((name for name in VERSIONS if name == version), None):
        return known
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    if numbers is None:
        return None
    return "2.1.327" if tuple(map(int, numbers[0].split("."))) >= _NEWER_SINCE else "2.0.65"


def profile(name: str = DEFAULT, *, model: str | None = None) -> Profile:
    """Return the profile of a client version, with the values that apply to `model`.

    Raises:
        NotFound: no profile has this name.
    """
    for version in (SEED, V2_0_65, V2_1_327):
        if version.name == name:
            return version.for_model(model)
    raise NotFound(f"No profile is called {name!r}; there are {', '.join(VERSIONS)}")
