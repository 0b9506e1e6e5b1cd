"""The options with which toolspan itself runs git, so that a repository does not select programs to run.

A command may have written the repository. Hooks of the user do not run either.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

GIT_OPTIONS = (
    "--no-pager",
    "-c", "core.fsmonitor=false",
    "-c", f"core.hooksPath={os.devnull}",
    "-c", "safe.bareRepository=explicit",
    "-c", "credential.helper=",
    "-c", "core.askPass=",
)  # fmt: skip
"""Git passes these settings on to the commands that it starts in submodules."""
READING_OPTIONS = (*GIT_OPTIONS, "-c", "protocol.allow=never")
"""Options for commands that only read: objects that are missing in a partial clone are not fetched."""


def git_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for git: without prompts and editors, and with messages in English."""
    fixed = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_EDITOR": "true", "LC_ALL": "C"}
    return {**environment, **fixed}


def disable_filters(names: Iterable[str]) -> dict[str, str]:
    """Return variables that disable the filters with settings of these names, such as `filter.lfs.smudge`.

    Options cannot express a name that contains `=`.
    """
    filters = {name.rpartition(".")[0] for name in names if name.startswith("filter.")}
    settings = {"smudge": "", "clean": "", "process": "", "required": "false"}
    entries = [(f"{name}.{key}", value) for name in sorted(filters) for key, value in settings.items()]
    variables = {"GIT_CONFIG_COUNT": str(len(entries))}
    for number, (key, value) in enumerate(entries):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables
