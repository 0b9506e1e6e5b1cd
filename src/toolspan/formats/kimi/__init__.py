"""Kimi sessions: a folder with a journal per agent. `records.py` shows how they are read."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from toolspan.errors import SourceError
from toolspan.formats.base import FileName
from toolspan.formats.parsed_format import ParsedFormat
from toolspan.formats.source import read_small_json

_MAIN = "main"
_EXIT_LINE = re.compile(r"(?:\A|\n)Command failed with exit code: -?\d+\.\s*\Z")
_MAX_STATE_BYTES = 1 << 16
_OLDER_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class KimiFormat(ParsedFormat):
    """Kimi Code, and the journals of its predecessor."""

    name = "kimi"
    title = "Kimi"
    agent_name = "kimi-code"
    home_variable = "KIMI_CODE_HOME"
    home_name = ".kimi-code"
    file_globs = ("wire.jsonl",)
    hint = re.compile(rb'\{"type"\s*:\s*"metadata"\s*,\s*"protocol_version"|"timestamp"\s*:\s*[\d.]+\s*,\s*"message"')

    def is_record(self, fields: dict[str, object], line: bytes) -> bool:
        """Return whether a decoded line is the header or an event."""
        if fields.get("type") == "metadata" and "protocol_version" in fields:
            return True
        message = fields.get("message")
        if isinstance(message, dict) and "payload" in message:
            return "timestamp" in fields and not isinstance(fields["timestamp"], str)
        return isinstance(fields.get("time"), int) and "." in str(fields.get("type"))

    def roots(self) -> list[Path]:
        """Return the folders of sessions, of this client and of its predecessor."""
        older = os.environ.get("KIMI_SHARE_DIR")
        return [
            self.home() / "sessions",
            (Path(older).expanduser() if older else Path.home() / ".kimi") / "sessions",
        ]

    def parse_path(self, folders: Sequence[str], name: str) -> FileName | None:
        """Parse the path of a journal, which contains the session and the agent."""
        if name != "wire.jsonl" or not folders:
            return None
        if folders[-2:-1] == ["agents"] and len(folders) > 2:
            session, agent = folders[-3], folders[-1]
            if agent == _MAIN:
                return FileName("session", session, None, session, None)
            return FileName("agent", agent, agent, session, None)
        if folders[-2:-1] == ["subagents"] and len(folders) > 2:
            return FileName("agent", folders[-1], folders[-1], folders[-3], None)
        return FileName("session", folders[-1], None, folders[-1], None) if _OLDER_ID.fullmatch(folders[-1]) else None

    def has_working_folder(self, path: Path, name: FileName, folder: str) -> bool:
        """Return whether the state of the session has `folder`."""
        state = read_small_json(self._session_folder(path) / "state.json", dict[str, object], _MAX_STATE_BYTES)
        return (state or {}).get("cwd") == folder

    def agents_folder(self, path: Path) -> Path | None:
        folder = self._session_folder(path)
        return folder / ("agents" if path.parent.parent.name == "agents" else "subagents")

    def agent_paths(self, path: Path, started_agents: Sequence[str]) -> list[Path]:
        """Return the journals of the session's other agents."""
        folder = self.agents_folder(path)
        try:
            paths = sorted(folder.glob("*/wire.jsonl")) if folder is not None else []
        except OSError as error:
            raise SourceError(f"{folder}: {error.strerror}") from error
        return [other for other in paths if other.parent.name != _MAIN]

    def _session_folder(self, path: Path) -> Path:
        return path.parents[2] if path.parent.parent.name in ("agents", "subagents") else path.parent

    def command_output(self, text: str) -> str:
        return _EXIT_LINE.sub("", text)
