"""Sessions of GitHub Copilot CLI: one file of events per session. `records.py` shows how they are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from toolspan.formats.base import FileName
from toolspan.formats.parsed_format import ParsedFormat

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LAST_LINE = re.compile(r"(?:\A|\n)<shellId: \S+ (?:completed|exited)[^>\n]*>\s*\Z")


class CopilotFormat(ParsedFormat):
    """GitHub Copilot CLI."""

    name = "copilot"
    title = "Copilot CLI"
    agent_name = "copilot-cli"
    home_variable = "COPILOT_HOME"
    home_name = ".copilot"
    file_globs = ("*.jsonl",)
    inlines_agents = True
    hint = re.compile(rb'"type"\s*:\s*"session\.start"|"producer"\s*:\s*"copilot-agent"')

    def is_record(self, fields: dict[str, object], line: bytes) -> bool:
        """Return whether a decoded line is an event."""
        return isinstance(fields.get("data"), dict) and "parentId" in fields and "timestamp" in fields and (
            "id" in fields and isinstance(fields.get("type"), str)
        )  # fmt: skip

    def roots(self) -> list[Path]:
        """Return the folder that contains one folder per session."""
        return [self.home() / "session-state"]

    def parse_path(self, folders: Sequence[str], name: str) -> FileName | None:
        """Parse the path of a session: a folder, or in older versions a file, named after its id."""
        if name == "events.jsonl" and folders and _ID.fullmatch(folders[-1]):
            return FileName("session", folders[-1], None, folders[-1], None)
        stem = name.removesuffix(".jsonl")
        if folders[-1:] == ["session-state"] and name.endswith(".jsonl") and _ID.fullmatch(stem):
            return FileName("session", stem, None, stem, None)
        return None

    def command_output(self, text: str) -> str:
        return _LAST_LINE.sub("", text)
