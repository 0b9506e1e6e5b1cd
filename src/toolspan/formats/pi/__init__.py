"""Pi sessions: lines that form a tree. `records.py` shows how they are read."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolspan.formats.base import FileName, WrittenSession
from toolspan.formats.parsed_format import ParsedFormat

if TYPE_CHECKING:
    from toolspan.formats.conversation import Conversation

_SESSION_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z_(?P<id>[\w-]+)\.jsonl")
_ENTRY_TYPES = frozenset({
    "message", "model_change", "thinking_level_change", "compaction", "branch_summary", "context_edit", "usage",
    "label", "session_info", "custom", "custom_message",
})  # fmt: skip
_EXIT_LINE = re.compile(r"(?:\A|\n+)Command exited with code -?\d+\s*\Z")


class PiFormat(ParsedFormat):
    """Pi, and the agents that write the same files."""

    name = "pi"
    title = "Pi"
    home_variable = "PI_CODING_AGENT_DIR"
    home_name = ".pi/agent"
    is_writable = True
    file_globs = ("*.jsonl",)
    prefixes = (b'{"type":"session",',)
    hint = re.compile(rb'\{"type":"session","(?:version|id)"')

    def is_record(self, fields: dict[str, object], line: bytes) -> bool:
        """Return whether a decoded line is a header or an entry."""
        kind = fields.get("type")
        if kind == "session":
            return "cwd" in fields and "sessionId" not in fields
        message = fields.get("message")
        if kind == "message":
            return isinstance(message, dict) and "role" in message and "uuid" not in fields
        return str(kind) in _ENTRY_TYPES and "parentId" in fields and "id" in fields and "data" not in fields

    def roots(self) -> list[Path]:
        """Return the folder that contains one folder per project."""
        named = os.environ.get("PI_CODING_AGENT_SESSION_DIR")
        if named:
            return [Path(named).expanduser()]
        return [self.home() / "sessions"]

    def parse_path(self, folders: Sequence[str], name: str) -> FileName | None:
        """Parse the path of a session, whose name is a time and an id."""
        matched = _SESSION_NAME.fullmatch(name)
        if matched is None:
            return None
        project = folders[-1] if folders and folders[-1].startswith("--") else None
        return FileName("session", matched["id"], None, matched["id"], project)

    def command_output(self, text: str) -> str:
        return _EXIT_LINE.sub("", text)

    def resume_command(self, session: str, path: Path) -> str:
        return f"pi --session {path}"

    def write_session(self, conversation: Conversation, home: Path | None = None) -> WrittenSession:
        from toolspan.formats.pi.new_session import write_session

        return write_session(conversation, self.roots()[0] if home is None else home / "sessions")
