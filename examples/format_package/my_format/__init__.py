"""The sessions of Notebook Agent, an invented client: one file of JSON lines per session."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from toolspan.formats.base import FileName
from toolspan.formats.parsed_format import ParsedFormat
from toolspan.formats.record_parser import (
    Fields,
    Recorded,
    RecordedCall,
    RecordedMessage,
    RecordedResult,
    RecordedSession,
    RecordParser,
    ToolShape,
    int_of,
    object_of,
    text_of,
)
from toolspan.types.inputs import BashInput, ReadInput

_NAME = re.compile(r"notebook-(?P<id>\w+)\.jsonl")


class NotebookAgentFormat(ParsedFormat):
    """Where the client's sessions are, and how they are recognised."""

    name = "notebook-agent"
    title = "Notebook Agent"
    home_variable = "NOTEBOOK_AGENT_HOME"
    file_globs = ("notebook-*.jsonl",)
    hint = re.compile(rb'"notebook"\s*:')

    def is_record(self, fields: dict[str, object], line: bytes) -> bool:
        return "notebook" in fields and "step" in fields

    def roots(self) -> list[Path]:
        return [Path(os.environ.get("NOTEBOOK_AGENT_HOME") or Path.home() / ".notebook-agent") / "sessions"]

    def parse_path(self, folders: Sequence[str], name: str) -> FileName | None:
        matched = _NAME.fullmatch(name)
        return FileName("session", matched["id"], None, matched["id"], None) if matched else None

    def has_working_folder(self, path: Path, name: FileName, folder: str) -> bool:
        return False  # the client does not record it

    def make_parser(self) -> RecordParser:
        return NotebookAgentParser()

    def tools(self) -> Mapping[str, ToolShape]:
        return {"run": ToolShape(BashInput, {"line": "command"}), "open": ToolShape(ReadInput, {"name": "file_path"})}


class NotebookAgentParser(RecordParser):
    """The content of a record."""

    known_types = frozenset({"ask", "call", "return"})

    def record_type(self, record: Fields) -> str:
        return text_of(record, "step") or ""

    def parse(self, record: Fields) -> Iterator[Recorded]:
        yield RecordedSession(id=text_of(record, "notebook"))
        at, call = text_of(record, "at"), text_of(record, "call")
        match record.get("step"):
            case "ask":
                yield RecordedMessage(voice="prompt", text=text_of(record, "text") or "", at=at)
            case "call" if call:
                yield RecordedCall(
                    id=call, tool=text_of(record, "tool") or "", arguments=object_of(record, "input"), at=at
                )
            case "return" if call:
                code = int_of(record, "exit")
                yield RecordedResult(
                    id=call, content=text_of(record, "text"), at=at, is_error=bool(code), exit_code=code
                )
            case _:
                pass
