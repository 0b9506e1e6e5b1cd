"""Transcripts of Cursor CLI: lines without ids, times and mostly without results. `records.py` reads them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from toolspan.formats.base import FileName
from toolspan.formats.parsed_format import ParsedFormat

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FOLDER = "agent-transcripts"


class CursorFormat(ParsedFormat):
    """Cursor CLI, as far as its line files go."""

    name = "cursor"
    title = "Cursor CLI"
    agent_name = "cursor-cli"
    home_variable = "CURSOR_HOME"
    home_name = ".cursor"
    file_globs = ("*.jsonl",)
    hint = re.compile(rb'^\{"role"\s*:\s*"(?:user|assistant)"\s*,\s*"message"\s*:', re.MULTILINE)

    def is_record(self, fields: dict[str, object], line: bytes) -> bool:
        """Return whether a decoded line is a message with a role and content, and nothing else."""
        message = fields.get("message")
        is_message = isinstance(message, dict) and isinstance(message.get("content"), list)
        return is_message and fields.keys() == {"role", "message"}

    def roots(self) -> list[Path]:
        """Return the folder that contains one folder per project."""
        return [self.home() / "projects"]

    def parse_path(self, folders: Sequence[str], name: str) -> FileName | None:
        """Parse the path of a session, or of a subagent in a folder of its session."""
        stem, suffix = os.path.splitext(name)  # noqa: PTH122 - perf: called for every file below a folder
        if suffix != ".jsonl" or _FOLDER not in folders[-3:] or not _ID.fullmatch(stem):
            return None
        if folders[-1] == "subagents" and len(folders) > 1:
            return FileName("agent", stem, stem, folders[-2], _project(folders))
        return FileName("session", stem, None, stem, _project(folders))

    def has_working_folder(self, path: Path, name: FileName, folder: str) -> bool:
        """Return whether the project's folder is named after `folder`."""
        return name.project == re.sub(r"[^A-Za-z0-9]+", "-", folder).strip("-")

    def agents_folder(self, path: Path) -> Path | None:
        return (path.parent if path.parent.name == path.stem else path.with_suffix("")) / "subagents"


def _project(folders: Sequence[str]) -> str | None:
    at = len(folders) - 1 - folders[::-1].index(_FOLDER)
    return folders[at - 1] if at else None
