"""The folders the clients write to, and what each file name means.

Pure functions on paths; `read/discover.py` walks the folders. Readers accept every layout there
has been: subagents inline, beside the session, or in the session's own folder. What is special to
Codex is in `codex_paths.py`.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Literal, NamedTuple

from toolspan.formats.codex.paths import ROLLOUT_SUFFIXES, is_rollout, parse_thread_id

FileRole = Literal["session", "agent", "other"]

MAX_PROJECT_NAME_LENGTH = 200
_AGENT_NAME = re.compile(r"(?:agent-|acompact-)(.+)")
_TRANSCRIPT_SUFFIXES = (".jsonl", ".jsonl.zst")
HOOK_LOG_NAME = "toolspan-hooks.jsonl"
"""What hooks of ours have noted of a session, in its folder."""
_NOT_TRANSCRIPTS = frozenset({"history.jsonl", "journal.jsonl", "session_index.jsonl", HOOK_LOG_NAME})


def config_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Where Claude Code keeps its files for this user."""
    named = environ.get("CLAUDE_CONFIG_DIR")
    if named:
        return Path(named).expanduser()
    return Path(environ.get("HOME") or Path.home()) / ".claude"


def project_name(cwd: str) -> str:
    """The project folder's name for a working folder, without the hash of very long ones."""
    name = re.sub(r"[^A-Za-z0-9]", "-", unicodedata.normalize("NFC", cwd))
    return name[:MAX_PROJECT_NAME_LENGTH]


def relative_to_folder(path: str, folder: str | None) -> str:
    """A path without the folder before it; any other text as it is."""
    above = (folder or "").rstrip("/\\")
    below = bool(above) and path.startswith((above + "/", above + "\\"))
    return path[len(above) + 1 :] if below else path


class FileName(NamedTuple):
    """What a transcript's path says about it."""

    role: FileRole
    stem: str
    """The name without its endings, of a rollout only the thread in it: a session's id."""
    agent_id: str | None
    session_id: str | None
    """The session a subagent's file belongs to, when the path tells."""
    project: str | None


def parse_file_name(path: PurePath | str) -> FileName:
    """What a path says; role `other` for files that are no transcripts."""
    return _parse_path(str(path))


@lru_cache(maxsize=4_096)
def _parse_path(path: str) -> FileName:
    *folders, name = path.split(os.sep)  # noqa: PTH206 - quicker, and asked of every file
    if is_rollout(name):
        return _parse_rollout_name(name)
    suffix = next((s for s in _TRANSCRIPT_SUFFIXES if name.endswith(s)), None)
    stem = name.removesuffix(suffix or "")
    if suffix is None or name in _NOT_TRANSCRIPTS or _is_side_folder(folders):
        return FileName("other", stem, None, None, None)
    agent = _AGENT_NAME.fullmatch(stem)
    if agent is None:
        return FileName("session", stem, None, stem, _last_folder(folders))
    if "subagents" not in folders:  # beside its session
        return FileName("agent", stem, agent[1], None, _last_folder(folders))
    above = folders[: -1 - folders[::-1].index("subagents")]
    return FileName("agent", stem, agent[1], _last_folder(above) or "", _last_folder(above[:-1]))


def _parse_rollout_name(name: str) -> FileName:
    """Of a rollout the name tells the thread; only its first line whether it is a subagent's."""
    stem = name.removesuffix(next(s for s in ROLLOUT_SUFFIXES if name.endswith(s)))
    thread = parse_thread_id(stem) or stem
    return FileName("session", thread, None, thread, None)


def _last_folder(folders: Sequence[str]) -> str | None:
    return (folders[-1] or None) if folders else None


def _is_side_folder(folders: Sequence[str]) -> bool:
    """Spilled outputs and notes lie in folders of their own."""
    last = _last_folder(folders)
    return last == "tool-results" or (last == "memory" and folders[-3:-2] == ["projects"])


def meta_path(path: Path) -> Path:
    """The side file that tells which call started a subagent."""
    return path.with_name(parse_file_name(path).stem + ".meta.json")


def session_folder(path: Path) -> Path:
    """The folder of a session's own side files: subagents, spilled results."""
    return path.with_name(parse_file_name(path).stem)


def hook_log_path(path: Path) -> Path:
    """Where hooks of ours note what a client tells them of a session and its subagents."""
    return Path(hook_log_path_str(str(path)))


def hook_log_path_str(path: str) -> str:
    """The same as text, for those who ask about very many files."""
    folder, below, _ = path.rpartition(os.sep)
    above, sep, last = folder.rpartition(os.sep)
    if last == "subagents":
        return f"{above}{sep}{HOOK_LOG_NAME}"
    return f"{folder}{below}{parse_file_name(path).stem}{os.sep}{HOOK_LOG_NAME}"


def is_inside_folder(path: Path, folder: Path) -> bool:
    """Whether a path, links resolved, lies in a folder."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):
        return False
