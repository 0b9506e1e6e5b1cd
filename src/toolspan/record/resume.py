"""Where a transcript left off: what the next line must know.

In: a file. Out: its last line, the calls without a result, the number of turns. Reads every line
once; damaged lines are passed over, as the client itself does.
"""

from dataclasses import dataclass, field
from datetime import MAXYEAR, UTC, datetime
from pathlib import Path

from toolspan.model.span import moment
from toolspan.wire.claude import CALL_BLOCKS, Block, Entry, decode
from toolspan.wire.jsonl import read_lines
from toolspan.wire.source import FileSource

_LAST = datetime(MAXYEAR, 12, 31, tzinfo=UTC)
"""The last day there is: no line could be written after it."""


@dataclass(slots=True)
class Left:
    """The end of a transcript."""

    last: str | None = None
    latest: float = 0.0
    """The latest time a line tells."""
    prompt_id: str | None = None
    turns: int = 0
    open: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Calls without a result: the line that asked, and the tool."""
    within: bool = False
    """The last line is a call or a result: whoever comes next speaks after them."""


def left_by(path: Path) -> Left:
    """The end of this file; an empty one when the file is not there yet.

    Raises:
        SourceError: the file cannot be read.
    """
    left = Left()
    if not path.exists():
        return left
    for line in read_lines(FileSource(path)):
        try:
            _add(left, decode(line.data).entry)
        except ValueError:
            continue
    return left


def _add(left: Left, entry: Entry) -> None:
    if entry.uuid is None:
        return
    left.last = entry.uuid
    left.within = False
    time = moment(entry.timestamp)
    if time is not None and time < _LAST:
        left.latest = max(left.latest, time.timestamp())
    if entry.type == "user":
        left.prompt_id = entry.prompt_id or left.prompt_id
    content = entry.message.content if entry.message else None
    if isinstance(content, list):
        for block in content:
            _add_block(left, block, entry.uuid)
    elif entry.type == "user" and not entry.is_meta:
        left.turns += 1


def _add_block(left: Left, block: Block, uuid: str) -> None:
    left.within = bool(block.id or block.tool_use_id)
    if block.type in CALL_BLOCKS and block.id:
        left.open[block.id] = (uuid, block.name or "")
    elif block.tool_use_id:
        left.open.pop(block.tool_use_id, None)
