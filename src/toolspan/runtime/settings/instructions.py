"""Files with instructions for the model: CLAUDE.md and AGENTS.md of the user, the project and its folders.

This module only finds them, because trust in a project covers them. `session/instructions.py` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

_PROJECT_NAMES = ("CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md")
_AGENTS_NAMES = ("AGENTS.override.md", "AGENTS.md")
"""The first of these that a folder has is used."""


def user_instruction_files(config: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the instructions of the user for all projects; `config` is the client's configuration folder."""
    home = Path(environment.get("HOME") or Path.home())
    codex = Path(environment.get("CODEX_HOME") or home / ".codex")
    yield from (path for path in (config / "CLAUDE.md", codex / "AGENTS.md") if path.is_file())


def folder_instruction_files(folder: Path) -> Iterator[Path]:
    """Yield the instructions in one folder."""
    yield from (path for name in _PROJECT_NAMES if (path := folder / name).is_file())
    yield from [path for name in _AGENTS_NAMES if (path := folder / name).is_file()][:1]


def project_instruction_files(project: Path) -> Iterator[Path]:
    """Yield the instructions in a project, from the top of its repository down to `project`.

    Folders above the repository do not count, because anybody may be able to write there.
    """
    above = [project, *project.parents]
    top = next((number for number, folder in enumerate(above) if (folder / ".git").exists()), 0)
    for folder in reversed(above[: top + 1]):
        yield from folder_instruction_files(folder)
