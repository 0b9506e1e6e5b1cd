"""Claude Code transcripts. `reader.py` shows how they are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolspan.formats.base import (
    AgentOrigin,
    FileBackup,
    FileName,
    LineText,
    LiveReader,
    PluginPlaces,
    RepairResult,
    RunningProcess,
    TextSide,
    TranscriptFormat,
)
from toolspan.formats.claude import paths
from toolspan.formats.side_files import session_folder

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
    agent_name = "claude-code"
    home_variable = "CLAUDE_CONFIG_DIR"
    home_name = ".claude"
    runs_changes_alone = True
    has_local_bodies = True
    is_writable = True
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

    side_folders = ("file-history", "todos")

    def roots(self) -> list[Path]:
        """Return the folder that contains one folder per project."""
        return [self.home() / "projects"]

    def parse_path(self, folders: Sequence[str], name: str) -> FileName | None:
        """Parse a path in the layout of any version."""
        return paths.parse_claude_path(folders, name)

    def project_folder(self, cwd: str) -> str:
        """Return the folder's path with hyphens."""
        return paths.project_name(cwd)

    def has_working_folder(self, path: Path, name: FileName, folder: str) -> bool:
        """Return whether a session is in the project folder for `folder`."""
        return paths.is_project_folder(name.project or "", folder)

    def agent_places(self, path: Path) -> list[Path]:
        """Return the session's folder and, for older versions, the subagents' files beside the session."""
        folder = session_folder(path)
        return [*([folder] if folder.is_dir() else []), *sorted(path.parent.glob("agent-*.jsonl*"))]

    def agents_folder(self, path: Path) -> Path | None:
        return session_folder(path) / "subagents"

    def side_paths(self, path: Path) -> list[Path]:
        """Return the session's folder, its copies of edited files and its todo lists; of a subagent, its metadata."""
        return [side for side in paths.side_paths(path) if side.exists()]

    def orphaned_side_paths(self, root: Path) -> list[Path]:
        """Return copies of edited files and todo lists of sessions that the client has deleted."""
        return paths.orphaned_side_paths(root)

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

    def narrow_text_result(self, tool: str, text: str) -> object:
        from toolspan.formats.claude.narrow import narrow_text_result

        return narrow_text_result(tool, text)

    def line_texts(
        self, line: bytes, offset: int, sides: Collection[TextSide], may_match: Callable[[bytes], bool]
    ) -> Iterator[LineText]:
        """Yield the messages, inputs and results in a line."""
        from toolspan.formats.claude.line_texts import read_line_texts

        return read_line_texts(line, offset, sides, may_match)

    def backups(self, source: Source, session: str | None) -> Iterator[FileBackup]:
        """Yield the copies in the folder `file-history`."""
        from toolspan.formats.claude.reader import find_backups

        return find_backups(source, session)

    def plugin_places(self, project: Path | None = None) -> PluginPlaces:
        """Return the files of all projects, or those to commit to one."""
        if project is not None:
            return PluginPlaces(project / ".mcp.json", project / ".claude" / "skills")
        folder = self.home()
        own = self.home_variable in os.environ
        return PluginPlaces((folder if own else Path.home()) / ".claude.json", folder / "skills")

    @property
    def resume_behavior(self) -> Mapping[str, ResumeBehavior]:
        from toolspan.formats.claude.reader import RESUME_BEHAVIOR

        return RESUME_BEHAVIOR

    def process_folder(self) -> Path:
        """Return the folder of Claude Code's status files."""
        return self.home() / "sessions"

    def running_processes(self, home: Path | None = None) -> list[RunningProcess]:
        """Return the processes that Claude Code lists in its folder."""
        from toolspan.formats.claude.live import list_running_processes

        return list_running_processes((home or self.home()) / "sessions")

    def ended_writer(self, path: Path, calls: Collection[str]) -> int | None:
        """Return the id of the toolspan process that recorded these calls, if it has ended."""
        from toolspan.formats.evidence import read_processes
        from toolspan.formats.processes import is_running

        recorded = read_processes(path)
        if recorded.session is None or recorded.calls.isdisjoint(calls) or is_running(*recorded.session):
            return None
        return recorded.session.pid

    def resume_command(self, session: str, path: Path) -> str:
        return f"claude --resume {session}"

    def repair(self, path: Path, *, write: bool = True) -> RepairResult:
        from toolspan.formats.claude.repair import repair_session

        return repair_session(path, write=write)
