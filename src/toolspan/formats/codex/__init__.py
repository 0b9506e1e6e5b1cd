"""Codex transcripts, called rollouts. `reader.py` shows how they are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from toolspan.formats.base import FileName, LiveReader, PluginPlaces, TranscriptFormat
from toolspan.formats.source import HEADER_BYTES, Source, read_first_line

if TYPE_CHECKING:
    from toolspan.formats.base import ReadScope
    from toolspan.formats.codex.reader import RolloutReader
    from toolspan.formats.jsonl import LineChunk
    from toolspan.types.inputs import ToolInput


_SUFFIXES = (".jsonl", ".json")
_ROLLOUT_NAME = re.compile(
    r"rollout-\d{4}-\d\d-\d\d(?:T\d\d-\d\d-\d\d)?-(?P<thread>[0-9a-fA-F-]{36})(?:_[0-9a-fA-F-]{36})?"
)
_RECORD_TYPES = frozenset({
    "session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state",
    "token_usage_record",
})  # fmt: skip
_ITEM_TYPES = frozenset({
    "function_call", "function_call_output", "function_call_result", "reasoning", "message",
    "local_shell_call", "custom_tool_call", "custom_tool_call_output", "web_search_call",
})  # fmt: skip
"""Types of lines without an envelope, found in the oldest files."""
_DOCUMENT_START = re.compile(rb'[\s\xef\xbb\xbf]*\{\s*"(?:session|items)"\s*:\s*[\[{]')
_LONG_LINE_START = re.compile(rb'\{"timestamp":"[^"]*",(?:"ordinal":\d+,)?"type":"[a-z_]+","payload":')
_OUTPUT_HEADER = re.compile(
    r"(?:(?:Chunk ID|Wall time|Exit code|Process exited with code|Process running with session ID|Original token count"
    r"|Total output lines)\b[^\n]*\n)+(?:Output:(?:\n|\Z))?"
)
"""The number of bytes that contain a rollout's ids and folder, which precede long instructions."""
_OWNER_IDS = re.compile(rb'"(session_id|parent_thread_id)":"([^"\\]+)"')


class CodexFormat(TranscriptFormat):
    """Codex rollouts, including the JSON documents written by its first versions."""

    name = "codex"
    input_includes_cache = True
    title = "Codex"
    home_variable = "CODEX_HOME"
    home_name = ".codex"
    is_writable = True
    file_globs = ("rollout-*.jsonl", "rollout-*.json")
    hint = re.compile(
        rb'"(?:payload|record_type|instructions|items)"\s*:|"(?:function|custom_tool|local_shell)_call'
        rb'|^\{"type": ?"(?:message|reasoning)"',
        re.MULTILINE,
    )
    reads_whole_files = True
    compresses_files = True
    patches_are_partial = True

    def hooks_path(self) -> Path:
        """Return `hooks.json` in the folder of Codex."""
        return self.home() / "hooks.json"

    def is_record(self, fields: dict[str, object], line: bytes) -> bool:
        kind = str(fields.get("type"))
        if kind in _RECORD_TYPES or fields.get("record_type") == "state":
            return True
        if kind in _ITEM_TYPES and "message" not in fields and "messageID" not in fields:
            return True
        return "instructions" in fields and "id" in fields and "type" not in fields

    def is_long_record(self, beginning: bytes) -> bool:
        """Return whether a very long line is a Codex record."""
        return _LONG_LINE_START.match(beginning) is not None

    def is_document(self, beginning: bytes) -> bool:
        return _DOCUMENT_START.match(beginning) is not None

    def roots(self) -> list[Path]:
        """Return the folders for current and archived sessions."""
        return [self.home() / "sessions", self.home() / "archived_sessions"]

    def parse_path(self, folders: Sequence[str], name: str) -> FileName | None:
        """Parse the thread id from a rollout's file name; only its first line shows whether a subagent wrote it."""
        if not name.startswith("rollout-") or not name.endswith(_SUFFIXES):
            return None
        stem = name.removesuffix(next(suffix for suffix in _SUFFIXES if name.endswith(suffix)))
        thread = parse_thread_id(stem) or stem
        return FileName("session", thread, None, thread, None)

    def owning_session(self, path: Path, name: FileName) -> str | None:
        """Return the session or parent thread recorded in a rollout's first line."""
        header_ids = dict(_OWNER_IDS.findall(read_first_line(path)))
        owner = header_ids.get(b"session_id") or header_ids.get(b"parent_thread_id")
        return owner.decode("utf-8", "replace") if owner else name.session_id

    def as_agent_of(self, path: Path | str, name: FileName, session: str) -> FileName | None:
        """Return the file name parts of a subagent's rollout if its first line refers to `session`."""
        if name.session_id == session:
            return None
        header = read_first_line(path)
        if not any(f'"{key}":"{session}"'.encode() in header for key in ("parent_thread_id", "session_id")):
            return None
        return name._replace(role="agent", agent_id=name.session_id, session_id=session)

    def plugin_places(self, project: Path | None = None) -> PluginPlaces:
        """Return the configuration and the folder of skills."""
        folder = self.home() if project is None else project / self.home_name
        return PluginPlaces(folder / "config.toml", folder / "skills")

    def agent_paths(self, path: Path, started_agents: Sequence[str]) -> list[Path]:
        """Return the subagents' rollouts that are in the same folder."""
        import glob

        beside = (sorted(path.parent.glob(f"rollout-*-{glob.escape(thread)}.jsonl")) for thread in started_agents)
        return [paths[0] for paths in beside if paths]

    def make_reader(self, source: Source, chunk: LineChunk | None, *, scope: ReadScope = "all") -> RolloutReader:
        """Return a reader for a rollout or an old document."""
        from toolspan.formats.codex.reader import RolloutReader

        document = chunk is not None and self.is_document(bytes(chunk.data[chunk.start : chunk.end][:HEADER_BYTES]))
        return RolloutReader(source, document=document)

    def make_live_reader(self, source: Source) -> LiveReader | None:
        """Return a reader for a rollout that is still growing."""
        from toolspan.formats.codex.reader import LiveRolloutPairing

        reader = self.make_reader(source, None)
        reader.pairing = calls = LiveRolloutPairing(source, reader.thread)
        return LiveReader(reader, calls)

    def narrow_input(self, tool: str, data: bytes) -> ToolInput:
        from toolspan.formats.codex.results import narrow_input

        return narrow_input(tool, data)

    def narrow_result(self, tool: str, data: bytes) -> object:
        """Return an output as its tool's type."""
        from toolspan.formats.codex.results import narrow_result

        return narrow_result(tool, msgspec.Raw(data), None)

    def command_output(self, text: str) -> str:
        """Return a command's output without the lines about its time and exit code."""
        header = _OUTPUT_HEADER.match(text)
        return text[header.end() :] if header else text

    def input_types(self) -> Sequence[type[Struct]]:
        """Return the types of Codex's tool inputs."""
        from toolspan.formats.codex import inputs

        return [kind for kind in vars(inputs).values() if isinstance(kind, type) and issubclass(kind, Struct)]

    def resume_command(self, session: str, path: Path) -> str:
        return f"codex resume {session}"


def parse_thread_id(stem: str) -> str | None:
    """Return the thread id in a rollout's file name without suffixes."""
    matched = _ROLLOUT_NAME.fullmatch(stem)
    return matched["thread"] if matched else None
