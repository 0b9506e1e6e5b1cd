"""Claude Code's folders and file names, in the layouts of all versions. Pure functions on paths."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from glob import escape
from pathlib import Path

from toolspan.formats.base import FileName
from toolspan.formats.registry import parse_file_name
from toolspan.formats.side_files import HOOK_LOG_NAME, meta_path, session_folder

MAX_PROJECT_NAME_LENGTH = 200
_AGENT_NAME = re.compile(r"(?:agent-|acompact-)(.+)")
_SESSION_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NOT_TRANSCRIPTS = frozenset({"history.jsonl", "journal.jsonl", "session_index.jsonl", HOOK_LOG_NAME})


def project_name(cwd: str) -> str:
    """Return the name of the project folder for `cwd`, without the hash that is appended to very long names."""
    name = re.sub(r"[^A-Za-z0-9]", "-", unicodedata.normalize("NFC", cwd))
    return name[:MAX_PROJECT_NAME_LENGTH]


def is_project_folder(folder: str, cwd: str) -> bool:
    """Return whether a project folder belongs to `cwd`, with or without a hash after a very long name."""
    name = project_name(cwd)
    return folder == name or (len(name) == MAX_PROJECT_NAME_LENGTH and folder.startswith(f"{name}-"))


def parse_claude_path(folders: Sequence[str], name: str) -> FileName | None:
    """Parse a path, or return None if it does not have a transcript's suffix."""
    if not name.endswith(".jsonl"):
        return None
    stem, last = name.removesuffix(".jsonl"), _last_folder(folders)
    is_memory = last == "memory" and folders[-3:-2] == ["projects"]
    if name in _NOT_TRANSCRIPTS or last == "tool-results" or is_memory:
        return FileName("other", stem, None, None, None)
    agent = _AGENT_NAME.fullmatch(stem)
    if agent is None:
        return FileName("session", stem, None, stem, last)
    if "subagents" not in folders:  # older versions write it beside its session
        return FileName("agent", stem, agent[1], None, _last_folder(folders))
    above = folders[: -1 - folders[::-1].index("subagents")]
    return FileName("agent", stem, agent[1], _last_folder(above) or "", _last_folder(above[:-1]))


def _last_folder(folders: Sequence[str]) -> str | None:
    return (folders[-1] or None) if folders else None


def side_paths(path: Path) -> list[Path]:
    """Return where the client writes other files of a session or subagent; they need not exist."""
    name = parse_file_name(path)
    if name.role == "agent":
        return [meta_path(path)]
    home = path.parent.parent.parent
    if path.parent.parent.name != "projects":
        return [session_folder(path)]
    todos = sorted((home / "todos").glob(f"{escape(name.stem)}*.json"))
    return [session_folder(path), home / "file-history" / name.stem, *todos]


def orphaned_side_paths(root: Path) -> list[Path]:
    """Return copies of edited files and todo lists of sessions without anything below the folder `projects`."""
    if root.name != "projects" or not root.is_dir():
        return []
    sessions = {match[0] for path in root.glob("*/*") if (match := _SESSION_ID.match(path.name))}
    sides = [*sorted(root.parent.glob("file-history/*")), *sorted(root.parent.glob("todos/*.json"))]
    return [path for path in sides if (match := _SESSION_ID.match(path.name)) and match[0] not in sessions]
