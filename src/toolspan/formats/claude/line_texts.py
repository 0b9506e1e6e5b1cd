"""The texts in one line of a transcript, for search. Start at `read_line_texts`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import count

from toolspan.formats import json_repair
from toolspan.formats.base import LineText, TextSide
from toolspan.formats.claude import records
from toolspan.formats.claude.messages import parse_entry_messages
from toolspan.formats.decoding import extract_text, iter_strings
from toolspan.formats.source import BytesSource
from toolspan.types.ids import SourceLocation

BodyFilter = Callable[[bytes], bool]


def read_line_texts(line: bytes, offset: int, sides: Collection[TextSide], may_match: BodyFilter) -> Iterator[LineText]:
    """Yield the texts in a line. For a damaged line, these are the texts that can be recovered."""
    try:
        entries = [(records.decode_entry(line).entry, offset, line)]
    except ValueError:
        entries = [
            (records.decode_entry(piece.data).entry, offset + piece.offset, piece.data)
            for piece in json_repair.recover_objects(line).pieces
        ]
    for entry, at, data in entries:
        make_text = partial(
            LineText,
            at=entry.timestamp,
            session=entry.session,
            agent=entry.agent_id,
            cwd=entry.cwd,
            offset=at,
            length=len(data),
        )
        if "message" in sides:
            place = SourceLocation("", 1, 0, len(data))
            for message in parse_entry_messages(entry, place, BytesSource(data)):
                yield make_text("message", message.text, call=None, voice=message.voice)
        if entry.type in ("user", "assistant"):
            for side, text, call in _call_texts(entry, data, at, sides, may_match):
                yield make_text(side, text, call=call, voice=None)


def _call_texts(
    entry: records.Entry, data: bytes, offset: int, sides: Collection[TextSide], may_match: BodyFilter
) -> Iterator[tuple[TextSide, str, str]]:
    """Yield the inputs and results of the calls in a line."""
    content = entry.message.content if entry.message else None
    bodies: records.EntryBodies | None = None
    generated_ids = (f"byte-{offset}.{n}" for n in count())  # the same ids that reading generates
    for n, block in enumerate(content if type(content) is list else ()):
        if block.type in records.CALL_BLOCK_TYPES:
            call = block.id or next(generated_ids)
            bodies = bodies or records.decode_bodies(data)
            call_input = bytes(bodies.blocks[n].input)
            if "input" in sides and may_match(call_input):
                yield from (("input", text, call) for text in iter_strings(call_input))
        elif block.type.endswith("tool_result"):
            call = block.tool_use_id or next(generated_ids)
            if "result" in sides and may_match(bytes(block.content)):
                yield "result", extract_text(block.content), call
            bodies = bodies or (records.decode_bodies(data) if "toolUseResult" in sides else None)
            structured = bodies.structured if bodies and "toolUseResult" in sides else None
            if structured and may_match(bytes(structured)):
                yield from (("toolUseResult", text, call) for text in iter_strings(structured))
