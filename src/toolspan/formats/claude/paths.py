"""Claude Code's folders and file names, in the layouts of all versions. Pure functions on paths."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolspan.formats.base import FileName
from toolspan.formats.registry import parse_file_name
from toolspan.formats.source import COMPRESSED_SUFFIXES, to_path

MAX_PROJECT_NAME_LENGTH = 200
_AGENT_NAME = re.compile(r"(?:agent-|acompact-)(.+)")
HOOK_LOG_NAME = "toolspan-hooks.jsonl"
"""The log that toolspan's hooks write to a session's folder."""
_NOT_TRANSCRIPTS = frozenset({"history.jsonl", "journal.jsonl", "session_index.jsonl", HOOK_LOG_NAME})


def config_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the user's Claude Code folder."""
    named = environ.get("CLAUDE_CONFIG_DIR")
    if named:
        return Path(named).expanduser()
    return Path(environ.get("HOME") or Path.home()) / ".claude"


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


def meta_path(path: Path) -> Path:
    """Return the metadata file that records which call started a subagent."""
    return path.with_name(parse_file_name(path).stem + ".meta.json")


def session_folder(path: Path) -> Path:
    """Return the folder for a session's side files, such as subagents and spilled results."""
    return path.with_name(parse_file_name(path).stem)


def hook_log_path(path: Path) -> Path:
    """Return the path of the log in which toolspan's hooks record a session and its subagents."""
    return to_path(hook_log_path_str(str(path)))


def hook_log_path_str(path: str) -> str:
    """Return the path of the hook log as a string, which is cheaper for very many files."""
    folder, below, name = path.rpartition(os.sep)
    above, sep, last = folder.rpartition(os.sep)
    if last == "subagents":
        return f"{above}{sep}{HOOK_LOG_NAME}"
    if name.endswith(COMPRESSED_SUFFIXES):
        name = name.rpartition(".")[0]
    return f"{folder}{below}{name.removesuffix('.jsonl')}{os.sep}{HOOK_LOG_NAME}"
