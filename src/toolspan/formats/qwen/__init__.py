"""Qwen Code chats: lines that form a tree, and one file per subagent. `records.py` shows how they are read."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from toolspan.errors import SourceError
from toolspan.formats.base import AgentOrigin, FileName
from toolspan.formats.parsed_format import ParsedFormat
from toolspan.formats.source import read_small_json

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MAX_META_BYTES = 1 << 16


class QwenFormat(ParsedFormat):
    """Qwen Code."""

    name = "qwen"
    title = "Qwen Code"
    agent_name = "qwen-coder"
    home_variable = "QWEN_HOME"
    home_name = ".qwen"
    file_globs = ("*.jsonl",)
    hint = re.compile(rb'"message"\s*:\s*\{"role":"(?:user|model)","parts"|"provenance"\s*:')

    def is_record(self, fields: dict[str, object], line: bytes) -> bool:
        """Return whether a decoded line is a record."""
        if "uuid" not in fields or "parentUuid" not in fields:
            return False
        message = fields.get("message")
        return (isinstance(message, dict) and "parts" in message) or "provenance" in fields

    def roots(self) -> list[Path]:
        """Return the folder that contains one folder per project."""
        named = os.environ.get("QWEN_RUNTIME_DIR")
        return [(Path(named).expanduser() if named else self.home()) / "projects"]

    def parse_path(self, folders: Sequence[str], name: str) -> FileName | None:
        """Parse the path of a chat, or of a subagent in a folder named after its session."""
        if not name.endswith(".jsonl") or not folders:
            return None
        stem = name.removesuffix(".jsonl")
        if folders[-1] == "chats" and _ID.fullmatch(stem):
            return FileName("session", stem, None, stem, folders[-2] if len(folders) > 1 else None)
        if folders[-2:-1] == ["subagents"] and stem.startswith("agent-") and _ID.fullmatch(folders[-1]):
            agent = stem.removeprefix("agent-")
            return FileName("agent", stem, agent, folders[-1], folders[-3] if len(folders) > 2 else None)
        return None

    def agent_origin(self, path: Path) -> AgentOrigin:
        """Return the call and the type in the metadata file beside a subagent's file."""
        meta = read_small_json(path.with_suffix(".meta.json"), dict[str, object], _MAX_META_BYTES) or {}
        call, role = meta.get("toolUseId"), meta.get("agentType")
        return AgentOrigin(call if isinstance(call, str) else None, role if isinstance(role, str) else None)

    def agents_folder(self, path: Path) -> Path | None:
        return path.parent.parent / "subagents" / path.stem

    def agent_paths(self, path: Path, started_agents: Sequence[str]) -> list[Path]:
        """Return the files in the session's folder for subagents."""
        folder = path.parent.parent / "subagents" / path.stem
        try:
            return sorted(folder.glob("agent-*.jsonl"))
        except OSError as error:
            raise SourceError(f"{folder}: {error.strerror}") from error

    def command_output(self, text: str) -> str:
        from toolspan.formats.labelled_output import parse_labelled_output

        return parse_labelled_output(text)
