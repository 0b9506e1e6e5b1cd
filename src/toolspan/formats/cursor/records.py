"""The messages in a Cursor CLI transcript. Start at `Parser.parse`.

The client records neither times nor tokens, and mostly no results, so the outcome of most calls is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolspan.formats.pairing import StateInference
from toolspan.formats.record_parser import (
    Fields,
    Recorded,
    RecordedCall,
    RecordedMessage,
    RecordedResult,
    RecordedStop,
    RecordParser,
    ToolShape,
    objects_of,
    text_of,
    value_of,
)
from toolspan.types import inputs
from toolspan.types.span import Evidence

_FILE = {"path": "file_path"}
TOOLS = {
    "Shell": ToolShape(inputs.BashInput),
    "Read": ToolShape(inputs.ReadInput, _FILE),
    "Write": ToolShape(inputs.WriteInput, _FILE | {"contents": "content"}),
    "StrReplace": ToolShape(inputs.EditInput, _FILE),
    "Grep": ToolShape(inputs.GrepInput),
    "Glob": ToolShape(inputs.GlobInput, {"glob_pattern": "pattern", "target_directory": "path"}),
    "LS": ToolShape(inputs.LsInput, {"target_directory": "path"}),
    "Task": ToolShape(inputs.AgentInput),
    "WebSearch": ToolShape(inputs.WebSearchInput, {"search_term": "query"}),
    "WebFetch": ToolShape(inputs.WebFetchInput),
    "TodoWrite": ToolShape(inputs.TodoWriteInput),
}
_QUERY = re.compile(r"<user_query>\s*(.*?)\s*</user_query>", re.DOTALL)
_NOT_RECORDED = StateInference(
    state="succeeded", ambiguous=True, evidence=(Evidence("the client records no result; the session continued"),)
)


class Parser(RecordParser):
    """Parser for the messages of one transcript."""

    known_types = frozenset({"user", "assistant"})

    def __init__(self) -> None:
        self._open: list[str] = []

    def record_type(self, record: Fields) -> str:
        return text_of(record, "role") or ""

    def parse(self, record: Fields) -> Iterator[Recorded]:
        """Yield the content of a message."""
        role = text_of(record, "role")
        blocks = objects_of(record, "message", "content")
        results = [block for block in blocks if block.get("type") == "tool_result"]
        if self._open and not results:
            yield RecordedStop(calls=tuple(self._open), outcome=_NOT_RECORDED)
            self._open.clear()
        for n, block in enumerate(blocks):
            kind, text = block.get("type"), text_of(block, "text") or ""
            if kind == "tool_use":
                name = text_of(block, "id") or f"byte-{self.offset}.{n}"
                self._open.append(name)
                yield RecordedCall(
                    id=name,
                    tool=text_of(block, "name") or "",
                    arguments=block.get("input"),
                    batch=f"byte-{self.offset}",
                )
            elif kind == "tool_result":
                name = self._take_open(text_of(block, "tool_use_id")) or f"byte-{self.offset}.{n}"
                is_error = value_of(block, "is_error")
                yield RecordedResult(
                    id=name, content=block.get("content"), is_error=is_error if isinstance(is_error, bool) else None
                )
            elif kind == "thinking":
                yield RecordedMessage(voice="thinking", text=text_of(block, "thinking") or text)
            elif kind == "text" and role == "user":
                query = _QUERY.search(text)
                yield RecordedMessage(voice="prompt" if query else "injected", text=query[1] if query else text)
            elif kind == "text":
                yield RecordedMessage(voice="text", text=text)

    def _take_open(self, asked: str | None) -> str | None:
        """Return the call that a result is for: the one it names, or else the first without a result."""
        name = asked if asked in self._open else self._open[0] if self._open else asked
        if name in self._open:
            self._open.remove(name)
        return name
