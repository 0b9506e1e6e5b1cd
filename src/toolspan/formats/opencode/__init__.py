"""OpenCode sessions: rows of a SQLite database. `records.py` shows how they are read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolspan.formats.base import FileName, PluginPlaces
from toolspan.formats.parsed_format import ParsedFormat
from toolspan.formats.source import Source

if TYPE_CHECKING:
    from toolspan.formats.container import Member

_DATABASE_NAME = re.compile(r"opencode(?:-[\w.-]+)?\.db")
_SESSION_ID = re.compile(r"ses_\w+")
_METADATA = re.compile(r"\n*<shell_metadata>.*</shell_metadata>\s*\Z", re.DOTALL)
_EXPORT_START = re.compile(rb'\s*\{\s*"info"\s*:\s*\{\s*"id"\s*:\s*"ses_')


class OpenCodeFormat(ParsedFormat):
    """OpenCode: one database for all sessions. Sessions that `opencode export` has written are read too."""

    name = "opencode"
    title = "OpenCode"
    home_variable = "XDG_DATA_HOME"
    home_name = "opencode"
    file_globs = ("ses_*.json",)
    container_names = ("opencode.db", "opencode-*.db")
    hint = re.compile(rb'"(?:sessionID|info)"\s*:')

    def is_record(self, fields: dict[str, object], line: bytes) -> bool:
        """Return whether a decoded line is a session, a message or a part of one."""
        if str(fields.get("id")).startswith("ses_"):
            return "directory" in fields
        return "sessionID" in fields and ("role" in fields or "messageID" in fields)

    def document_key(self, beginning: bytes) -> str | None:
        return "messages" if _EXPORT_START.match(beginning[:1_024]) else None

    def home(self, environ: Mapping[str, str] = os.environ) -> Path:
        """Return the folder of the user's data; settings are in another one."""
        base = environ.get(self.home_variable)
        return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "share") / self.home_name

    def plugin_places(self, project: Path | None = None) -> PluginPlaces:
        """Return the settings and the folder of skills."""
        folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "opencode"
        servers = (folder if project is None else project) / "opencode.json"
        return PluginPlaces(servers, (folder if project is None else project / ".opencode") / "skills", key="mcp")

    def server_settings(self, command: Sequence[str]) -> dict[str, object]:
        return {"type": "local", "command": list(command), "enabled": True}

    def roots(self) -> list[Path]:
        """Return the databases, which `OPENCODE_DB` may name."""
        folder = self.home()
        named = os.environ.get("OPENCODE_DB")
        if named:
            return [folder / named]
        try:
            found = sorted(path for path in folder.glob("opencode*.db") if _DATABASE_NAME.fullmatch(path.name))
        except OSError:
            found = []
        return found or [folder / "opencode.db"]

    def parse_path(self, folders: Sequence[str], name: str) -> FileName | None:
        """Parse the path of a session in a database, below the session that started it for a subagent."""
        if not _SESSION_ID.fullmatch(name):
            stem, _, suffix = name.partition(".json")
            is_export = name.endswith(".json") and not suffix and _SESSION_ID.fullmatch(stem)
            return FileName("session", stem, None, stem, None) if is_export else None
        if folders and _DATABASE_NAME.fullmatch(folders[-1]):
            return FileName("session", name, None, name, None)
        if len(folders) > 1 and _DATABASE_NAME.fullmatch(folders[-2]) and _SESSION_ID.fullmatch(folders[-1]):
            return FileName("agent", name, name, folders[-1], None)
        return None

    def has_working_folder(self, path: Path, name: FileName, folder: str) -> bool:
        """Return whether a session records `folder`."""
        from toolspan.formats.opencode.rows import session_folder

        return session_folder(path) == folder

    def members(self, container: Path) -> Iterator[Member]:
        from toolspan.formats.opencode.rows import list_sessions

        return list_sessions(container)

    def member(self, container: Path, names: Sequence[str]) -> Member | None:
        from toolspan.formats.opencode.rows import list_sessions

        return next(list_sessions(container, names[-1]), None)

    def make_member_source(self, path: Path) -> Source:
        from toolspan.formats.opencode.rows import SessionRows

        return SessionRows(path)

    def agent_places(self, path: Path) -> list[Path]:
        """Return the paths of the subagents that the database lists below a session."""
        from toolspan.formats.container import split_member
        from toolspan.formats.opencode.rows import list_sessions

        member = split_member(path)
        if member is None:
            return []
        container = Path(member.container)
        names = [found.names for found in list_sessions(container)]
        return [container.joinpath(*found) for found in names if len(found) > 1 and found[0] == member.names[0]]

    def agent_paths(self, path: Path, started_agents: Sequence[str]) -> list[Path]:
        """Return the paths of subagents, which are below the path of their session."""
        return [path / agent for agent in started_agents]

    def command_output(self, text: str) -> str:
        output = _METADATA.sub("", text)
        return "" if output.strip() == "(no output)" else output
