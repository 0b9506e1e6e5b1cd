"""Environment variables that change what a command line does. Their names are in `tables/variables.toml`.

`harden_environment` removes them for lines that nobody approved; `is_harmless_variable` names those that a line may
set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct, convert

from toolspan.shell.table import read_toml
from toolspan.shell.words import ShellWord

_VALUE_FORMS = (
    (r"LANG|LANGUAGE|LC_.*", r"(?:C|POSIX|[a-z]{2}_[A-Z]{2})(?:\.UTF-8)?"),
    (r"COLUMNS|LINES", r"[0-9]+"),
    (r"TZ|TERM", r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*"),
    (r".*", r"(?!/|.*\.\.)[A-Za-z0-9_./:,=+-]*"),
)
"""Patterns for the names of harmless variables and for their permitted values. The first matching name is used."""
_GIT_SETTINGS = {"safe.bareRepository": "explicit", "core.fsmonitor": "false", "core.hooksPath": "/dev/null"}


class _Variables(Struct, frozen=True):
    harmless: frozenset[str]
    executed: frozenset[str]
    shell: frozenset[str]
    programs: frozenset[str]


@lru_cache(maxsize=1)
def _variables() -> _Variables:
    return convert({name: value.split() for name, value in read_toml("variables").items()}, _Variables)


def is_harmless_variable(name: str, value: ShellWord | None = None) -> bool:
    """Return whether a variable, with this value, can be set before a program without requiring approval."""
    if name not in _variables().harmless or value is None:
        return name in _variables().harmless
    form = next(form for names, form in _VALUE_FORMS if re.fullmatch(names, name))
    return not value.has_expansion and re.fullmatch(form, value.text) is not None


def runs_variable(name: str) -> bool:
    """Return whether the shell runs the value of a variable."""
    return name in _variables().executed


def command_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for commands, without those that change the meaning of a line."""
    return {name: value for name, value in environment.items() if name not in _variables().shell}


def harden_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a line that nobody approved, so that its programs start no others.

    git ignores folders that only look like a repository, and runs neither hooks nor a file system monitor.
    """
    hardened = {name: value for name, value in environment.items() if name not in _variables().programs}
    text = hardened.get("GIT_CONFIG_COUNT", "")
    count = int(text) if text.isascii() and text.isdigit() else 0
    for at, (key, value) in enumerate(_GIT_SETTINGS.items(), start=count):
        hardened |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
    return hardened | {"GIT_CONFIG_COUNT": str(count + len(_GIT_SETTINGS))}
