"""Claude Code transcripts. `reader.py` shows how they are read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolspan.formats.base import AgentOrigin, FileName, LiveReader, RepairResult, RunningProcess, TranscriptFormat
from toolspan.formats.claude import paths

if TYPE_CHECKING:
    from toolspan.formats.base import ReadScope
    from toolspan.formats.checks import ResumeBehavior
    from toolspan.formats.claude.reader import ClaudeReader
    from toolspan.formats.jsonl import LineChunk
    from toolspan.formats.source import Source
    from toolspan.types.inputs import ToolInput


_FOREIGN_FIELDS = frozenset({"id", "parentId"})
"""Fields that link the records of other programs, whose messages look alike."""


class ClaudeFormat(TranscriptFormat):
    """Transcripts written by Claude Code, and by toolspan's own sessions in the same format."""

    name = "claude"
    title = "Claude Code"
    home_variable = "CLAUDE_CONFIG_DIR"
    file_globs = ("*.jsonl",)
    prefixes = tuple(
        b'{"%s' % key
        for key in (
            b'parentUuid":', b'type":"user",', b'type":"assistant",', b'type":"summary",',
            b'type":"file-history-snapshot",', b'type":"queue-operation",', b'type":"last-prompt",',
            b'type":"mode",', b'type":"permission-mode",', b'type":"progress",',
        )
    )  # fmt: skip
    states_are_local = True
    records_error_flag = True
    shell_keeps_folder = False
    inlines_agents = True
    agents_inherit_calls = False
    is_repairable = True
    has_runtime_profiles = True

    def is_record(self, fields: dict[str, object], line: bytes) -> bool:
        """Return whether a decoded line is a Claude Code record."""
        from toolspan.formats.claude.records import decode_entry

        entry = decode_entry(line).entry
        # Other programs write messages too, but link them by other fields.
        return entry.is_known or (entry.message is not None and not _FOREIGN_FIELDS & fields.keys())

    def is_long_record(self, beginning: bytes) -> bool:
        """Return whether a very long line is a Claude Code record."""
        return b'"sessionId"' in beginning or b'"session_id"' in beginning

    def roots(self) -> list[Path]:
        """Return the folder that contains one folder per project."""
        return [paths.config_dir() / "projects"]

    def parse_path(self, folders: Sequence[str], name: str) -> FileName | None:
        """Parse a path in the layout of any version."""
        return paths.parse_claude_path(folders, name)

    def has_working_folder(self, path: Path, name: FileName, folder: str) -> bool:
        """Return whether a session is in the project folder for `folder`."""
        return paths.is_project_folder(name.project or "", folder)

    def agents_folder(self, path: Path) -> Path | None:
        return paths.session_folder(path) / "subagents"

    def agent_paths(self, path: Path, started_agents: Sequence[str]) -> list[Path]:
        """Return subagent files from the session's folder and, for older versions, from beside the session."""
        from toolspan.formats.claude.reader import find_agent_paths

        return find_agent_paths(path)

    def agent_origin(self, path: Path) -> AgentOrigin:
        """Return the contents of a subagent's metadata file."""
        from toolspan.formats.claude.reader import read_agent_origin

        return read_agent_origin(path)

    def make_reader(self, source: Source, chunk: LineChunk | None, *, scope: ReadScope = "all") -> ClaudeReader:
        """Return a reader for a transcript."""
        from toolspan.formats.claude.reader import ClaudeReader

        return ClaudeReader(source, scope=scope)

    def make_live_reader(self, source: Source) -> LiveReader | None:
        """Return a reader for a transcript that is still growing."""
        from toolspan.formats.claude.live import LivePairing
        from toolspan.formats.claude.reader import ClaudeContent

        reader = self.make_reader(source, None)
        reader.pairing = calls = LivePairing(source)
        return LiveReader(reader, calls, ClaudeContent(source, reader.session_info))

    def narrow_input(self, tool: str, data: bytes) -> ToolInput:
        from toolspan.formats.claude.narrow import narrow_input

        return narrow_input(tool, data)

    def narrow_result(self, tool: str, data: bytes) -> object:
        """Return a structured result as its tool's type, or `UnknownResult`."""
        from toolspan.formats.claude.narrow import narrow_result

        return narrow_result(tool, data)

    @property
    def resume_behavior(self) -> Mapping[str, ResumeBehavior]:
        from toolspan.formats.claude.reader import RESUME_BEHAVIOR

        return RESUME_BEHAVIOR

    def running_processes(self, home: Path | None = None) -> list[RunningProcess]:
        """Return the processes that Claude Code lists in its folder."""
        from toolspan.formats.claude.live import list_running_processes

        return list_running_processes(home or paths.config_dir())

    def ended_writer(self, path: Path, calls: Collection[str]) -> int | None:
        """Return the id of the toolspan process that recorded these calls, if it has ended."""
        from toolspan.formats.claude.evidence import read_processes
        from toolspan.formats.processes import is_running

        recorded = read_processes(path)
        if recorded.session is None or recorded.calls.isdisjoint(calls) or is_running(*recorded.session):
            return None
        return recorded.session.pid

    def repair(self, path: Path, *, write: bool = True) -> RepairResult:
        from toolspan.formats.claude.repair import repair_session

        return repair_session(path, write=write)
