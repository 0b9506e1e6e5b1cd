"""Gemini CLI chat files. `reader.py` shows how they are read."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.formats.base import FileName, PluginPlaces, TranscriptFormat
from toolspan.formats.source import Source, source_for_path

if TYPE_CHECKING:
    from toolspan.formats.base import ReadScope
    from toolspan.formats.gemini.reader import GeminiReader
    from toolspan.formats.jsonl import LineChunk
    from toolspan.types.inputs import ToolInput


_SUFFIXES = (".json", ".jsonl")
_SESSION_NAME = re.compile(r"session-\d{4}-\d\d-\d\dT\d\d-\d\d(?:-\d\d)?-(?P<id>.+)")
_SESSION_ID = re.compile(r"[0-9a-f]{8}(?:(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})?")
_SHORT_ID_LENGTH = 8
_HEADER_BYTES = 1 << 12
_HEADER = re.compile(rb'[\s\xef\xbb\xbf]*\{(?=[^\[\]]*?"sessionId"\s*:)(?=[^\[\]]*?"projectHash"\s*:)')
"""Matches both keys before any list, in a document or in the first line of a file of lines."""
_PROJECT_HASH = re.compile(rb'"projectHash"\s*:\s*"([0-9a-f]+)"')
_MESSAGE_TYPES = frozenset({"user", "gemini", "info", "error", "warning"})


class GeminiFormat(TranscriptFormat):
    """Gemini CLI chat files: a JSON document that is rewritten, or lines in newer versions."""

    name = "gemini"
    input_includes_cache = True
    title = "Gemini CLI"
    agent_name = "gemini-cli"
    home_variable = "GEMINI_CLI_HOME"
    home_name = ".gemini"
    file_globs = ("session-*.json", "session-*.jsonl", "**/chats/*/*.json", "**/chats/*/*.jsonl")
    hint = re.compile(rb'"projectHash"\s*:|"type"\s*:\s*"gemini"|"\$(?:set|rewindTo)"\s*:')
    reads_whole_files = True

    def is_record(self, fields: dict[str, object], line: bytes) -> bool:
        """Return whether a decoded line is a header, a message or an update."""
        if "$set" in fields or "$rewindTo" in fields or ("sessionId" in fields and "projectHash" in fields):
            return True
        is_message = str(fields.get("type")) in _MESSAGE_TYPES and "id" in fields and "content" in fields
        return is_message and "message" not in fields and "uuid" not in fields

    def is_document(self, beginning: bytes) -> bool:
        if not _HEADER.match(beginning[:_HEADER_BYTES]):
            return False
        first, _, rest = beginning.strip().partition(b"\n")
        return not rest or not first.rstrip().endswith(b"}")

    def home(self, environ: Mapping[str, str] = os.environ) -> Path:
        """Return the folder below the user's home, which the variable replaces."""
        return Path(environ.get(self.home_variable) or Path.home()).expanduser() / self.home_name

    def plugin_places(self, project: Path | None = None) -> PluginPlaces:
        """Return the settings and the folder of skills."""
        folder = self.home() if project is None else project / self.home_name
        return PluginPlaces(folder / "settings.json", folder / "skills")

    def roots(self) -> list[Path]:
        """Return the folder that contains one folder per project."""
        return [self.home() / "tmp"]

    def parse_path(self, folders: Sequence[str], name: str) -> FileName | None:
        """Parse the path of a session, or of a subagent in a folder named after its session."""
        if not name.startswith("session-") and "chats" not in folders[-2:-1]:
            return None  # perf: called for every file below a folder
        stem, suffix = os.path.splitext(name)  # noqa: PTH122 - as above
        if suffix not in _SUFFIXES:
            return None
        if matched := _SESSION_NAME.fullmatch(stem):
            project = folders[-2] if len(folders) > 1 and folders[-1] == "chats" else None
            return FileName("session", matched["id"], None, matched["id"], project)
        parent = parent_session(folders)
        if parent is None:
            return None
        return FileName("agent", stem, stem, parent[:_SHORT_ID_LENGTH], folders[-3] if len(folders) > 2 else None)

    def has_working_folder(self, path: Path, name: FileName, folder: str) -> bool:
        """Return whether a chat records the hash of `folder`."""
        import hashlib  # perf: loads OpenSSL

        folder_hash = hashlib.sha256(folder.encode("utf-8", "surrogateescape")).hexdigest()
        if name.project == folder_hash:
            return True
        try:
            matched = _PROJECT_HASH.search(source_for_path(path).read(0, _HEADER_BYTES))
        except SourceError:
            return False
        return matched is not None and matched[1].decode() == folder_hash

    def make_reader(self, source: Source, chunk: LineChunk | None, *, scope: ReadScope = "all") -> GeminiReader:
        """Return a reader for a document or for lines."""
        from toolspan.formats.gemini.reader import GeminiReader

        if chunk is None:
            document = source.name.endswith(".json")
        else:
            beginning = bytes(chunk.data[chunk.start : chunk.end])
            first = beginning.strip().partition(b"\n")[0].strip()
            is_object = first.startswith(b"{") and first.endswith(b"}")
            document = self.is_document(beginning) or not is_object
        return GeminiReader(source, document=document)

    def narrow_input(self, tool: str, data: bytes) -> ToolInput:
        from toolspan.formats.gemini.tools import narrow_input

        return narrow_input(tool, data)

    def narrow_result(self, tool: str, data: bytes) -> object:
        """Return the displayed result as a type chosen by its shape."""
        from toolspan.formats.gemini.tools import narrow_display

        return narrow_display(data)

    def command_output(self, text: str) -> str:
        from toolspan.formats.labelled_output import parse_labelled_output

        return parse_labelled_output(text)

    def input_types(self) -> Sequence[type[Struct]]:
        """Return the types of Gemini CLI's tool inputs."""
        from toolspan.formats.gemini.tools import INPUT_TYPES

        return list(INPUT_TYPES.values())


def parent_session(folders: Sequence[str]) -> str | None:
    """Return the session after which a subagent's folder is named, or None for other folders."""
    if len(folders) < 2 or folders[-2] != "chats":
        return None
    matched = _SESSION_ID.search(folders[-1])
    return matched[0] if matched else None
