"""The records of a transcript as plain values, to be changed.

In: a source of any quality. Out: every record that is there, those saved from damaged lines among
them, and what the damage was. Read `gather` first.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import Struct

from toolspan.wire import document
from toolspan.wire.jsonl import Line, read_lines
from toolspan.wire.source import Source

Fields = dict[str, object]

_NAMELESS = "a subagent"
"""Old clients wrote subagents into the session's own file, without a name."""


class Change(Struct, frozen=True):
    """Something that is not as it was."""

    code: str
    """As `toolspan doctor` calls it."""
    line: int
    """In the original; 0 when it is about no line."""
    words: str
    count: int = 1


@dataclass(slots=True, eq=False)
class Record:
    """One record."""

    fields: Fields
    line: int

    @property
    def uuid(self) -> str | None:
        """Its own name; None for records outside the conversation."""
        found = self.fields.get("uuid")
        return found if isinstance(found, str) else None

    @property
    def parent(self) -> str | None:
        """The record it hangs on."""
        found = self.fields.get("parentUuid")
        return found if isinstance(found, str) else None

    @property
    def type(self) -> object:
        """What it is."""
        return self.fields.get("type")

    @property
    def speaks(self) -> bool:
        """Whether it is a part of the conversation's words."""
        return self.type in ("user", "assistant")

    @property
    def side(self) -> str | None:
        """Whose conversation it is of: a subagent's, or None for the main one."""
        found = self.fields.get("agentId")
        if isinstance(found, str) and found:
            return found
        return _NAMELESS if self.fields.get("isSidechain") else None

    @property
    def message(self) -> Fields:
        """The message in it."""
        found = self.fields.get("message")
        return found if isinstance(found, dict) else {}

    @property
    def message_id(self) -> str | None:
        """The name of the model's message that it is a part of; None for what users said."""
        found = self.message.get("id") if self.type == "assistant" else None
        return found if isinstance(found, str) else None

    @property
    def blocks(self) -> list[Fields]:
        """What its message holds."""
        content = self.message.get("content")
        found = content if isinstance(content, list) else []
        return [block for block in found if isinstance(block, dict)]

    @property
    def calls(self) -> list[str]:
        """The calls that it asks for."""
        if self.type != "assistant":
            return []
        return [str(one["id"]) for one in self.blocks if _is(one, "tool_use") and one.get("id")]

    @property
    def answers(self) -> list[str]:
        """The calls that it has results of."""
        if self.type != "user":
            return []
        return [str(one.get("tool_use_id")) for one in self.blocks if _is(one, "tool_result")]

    def keep(self, blocks: list[Fields]) -> None:
        """Leave only these blocks."""
        self.fields = {**self.fields, "message": {**self.message, "content": blocks}}


def _is(block: Fields, kind: str) -> bool:
    return block.get("type") == kind


def gather(source: Source) -> tuple[list[Record], list[Change]]:
    """Every record of a transcript, and what was wrong with its lines.

    Raises:
        SourceError: it cannot be read.
    """
    records: list[Record] = []
    changes: list[Change] = []
    for line in read_lines(source):
        found, code = _documents(line)
        records += [Record(fields, line.number) for fields in found]
        if code is not None:
            saved = f"{len(found)} of its records saved" if found else "nothing in it can be saved"
            changes.append(Change(code, line.number, saved))
    return records, changes


def _documents(line: Line) -> tuple[list[Fields], str | None]:
    """What a line holds, and the name of what is wrong with it."""
    if line.oversized:
        return [], "line_too_long"
    if not line.data.strip():
        return [], None
    try:
        whole = document.decode(line.data)
    except ValueError:
        saved = document.recover(line.data)
        code = saved.reason if line.ended or saved.pieces else "torn_last_line"
        return list(_objects(piece.data for piece in saved.pieces)), code
    if isinstance(whole, dict):
        return [whole], None
    return [], "not_an_object"


def _objects(pieces: Iterator[bytes]) -> Iterator[Fields]:
    for data in pieces:
        found = document.decode(data)
        if isinstance(found, dict):
            yield found
