"""Codex's folders and file names. Pure functions on paths."""

from __future__ import annotations

import os
import re
from pathlib import Path

_ROLLOUT_NAME = re.compile(
    r"rollout-\d{4}-\d\d-\d\d(?:T\d\d-\d\d-\d\d)?-(?P<thread>[0-9a-fA-F-]{36})(?:_[0-9a-fA-F-]{36})?"
)
ROLLOUT_SUFFIXES = (".jsonl.zst", ".jsonl", ".json")


def codex_home(environ: dict[str, str] | os._Environ[str] = os.environ) -> Path:
    """Return Codex's folder for this user."""
    named = environ.get("CODEX_HOME")
    return Path(named).expanduser() if named else Path.home() / ".codex"


def is_rollout(name: str) -> bool:
    """Return whether Codex gives such names to transcripts."""
    return name.startswith("rollout-") and name.endswith(ROLLOUT_SUFFIXES)


def parse_thread_id(stem: str) -> str | None:
    """Return the thread in a rollout's name without endings."""
    matched = _ROLLOUT_NAME.fullmatch(stem)
    return matched["thread"] if matched else None
