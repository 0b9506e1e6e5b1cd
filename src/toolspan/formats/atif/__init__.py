"""ATIF trajectories: the interchange format of Harbor, which toolspan also writes. `records.py` reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolspan.errors import SourceError
from toolspan.formats.base import FileName
from toolspan.formats.parsed_format import ParsedFormat
from toolspan.formats.source import source_for_path

if TYPE_CHECKING:
    from toolspan.types.inputs import ToolInput

_NAME = re.compile(r"(?:(?P<stem>.+)\.)?(?:trajectory|atif)\.json")
_VERSION = re.compile(rb'"schema_version"\s*:\s*"ATIF-v')
_HEAD_BYTES = 1 << 12
_SOURCES = frozenset({"system", "user", "agent"})


class AtifFormat(ParsedFormat):
    """Trajectories, one JSON document per session with its subagents. They are in no client's folder."""

    name = "atif"
    title = "ATIF"
    home_variable = ""
    file_globs = ("*trajectory.json", "*.atif.json")
    hint = re.compile(rb'"(?:schema_version|step_id)"\s*:')
    nested_key = "subagent_trajectories"

    def is_record(self, fields: dict[str, object], line: bytes) -> bool:
        """Return whether a decoded line is a trajectory or a step of one."""
        if isinstance(fields.get("step_id"), int):
            return str(fields.get("source")) in _SOURCES and "message" in fields
        return str(fields.get("schema_version")).startswith("ATIF-v") and "steps" in fields

    def is_long_record(self, beginning: bytes) -> bool:
        return self.is_document(beginning)

    def document_key(self, beginning: bytes) -> str | None:
        head = beginning[:_HEAD_BYTES]
        return "steps" if head.lstrip().startswith(b"{") and _VERSION.search(head) else None

    def roots(self) -> list[Path]:
        """Return nothing: trajectories are where other programs write them."""
        return []

    def parse_path(self, folders: Sequence[str], name: str) -> FileName | None:
        """Parse a file name. A bare `trajectory.json` is named after its folder, or the one above `agent`."""
        matched = _NAME.fullmatch(name)
        if matched is None:
            return None
        stem = matched["stem"] or next(
            (folder for folder in reversed(folders) if folder not in ("", "agent")), "session"
        )
        return FileName("session", stem, None, stem, None)

    def has_working_folder(self, path: Path, name: FileName, folder: str) -> bool:
        """Return whether the trajectory records `folder`."""
        from toolspan.formats.json_repair import decode_readable
        from toolspan.formats.jsonl import split_document
        from toolspan.formats.record_parser import text_of

        try:
            with source_for_path(path).open() as stream:
                fields = split_document(stream.read(), "steps", self.nested_key).fields
        except SourceError:
            return False
        return text_of(decode_readable(fields.get("extra", b"")), "toolspan", "cwd") == folder

    def narrow_input(self, tool: str, data: bytes) -> ToolInput:
        """Return an input as the type of the tool with that name in any client, because any may have called it."""
        from toolspan.formats.registry import all_formats
        from toolspan.types.inputs import UnknownInput

        inputs = (other.narrow_input(tool, data) for other in all_formats() if other is not self)
        return next((found for found in inputs if not isinstance(found, UnknownInput)), UnknownInput(data=data))
