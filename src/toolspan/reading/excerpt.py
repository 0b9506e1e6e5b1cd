"""Read the part of a large transcript around one call, so that the time does not depend on the size of the file.

An excerpt has every line that contains the call's id, the lines around its request and its result, and the prompt of
its turn. The branch of the call depends on the whole file and comes from the cache. Start at `read_excerpt`.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from toolspan.formats.jsonl import JsonLine
from toolspan.formats.lines import TranscriptReader
from toolspan.formats.registry import choose_format, is_foreign
from toolspan.formats.source import is_remote, source_for_path
from toolspan.reading.cache import Cache, CacheKey, compute_file_stamp, default_folder
from toolspan.reading.facts import CALLS
from toolspan.reading.rows import CallRow
from toolspan.reading.timeline import starts_turn
from toolspan.reading.transcript import Transcript
from toolspan.types.span import Span

MIN_BYTES = 8 << 20
"""Smaller files are read whole."""
_MARGIN_BYTES, _MARGIN_LINES = 4 << 20, 1_000
"""The amount that is read before and after the request and the result: bytes or lines, whichever is less."""
_COUNTED_BYTES = 1 << 20
_HEAD_BYTES = 1 << 16
_PROMPT_MARK, _RESULT_MARK = b'"role":"user"', b'"tool_use_id"'


def read_excerpt(path: Path, prefix: str) -> Transcript | None:
    """Return the part of a file around the only call whose id begins with `prefix`.

    Return None if the file must be read whole: it is small or compressed, another client wrote it, or it is not cached.
    """
    name = str(path)
    if is_remote(path):
        return None
    try:
        if path.suffix != ".jsonl" or path.stat().st_size < MIN_BYTES:
            return None
        calls = {call.id: call for call in _load_calls(path)}
        ids = [call_id for call_id in calls if call_id.startswith(prefix)]
        if len(ids) != 1:
            return None
        source = source_for_path(path)
        head = source.read(0, _HEAD_BYTES)
        transcript_format = choose_format(name, head, 0, len(head))
        if is_foreign(name, head, 0, len(head)) or not transcript_format.has_local_bodies:
            return None
        call = calls[ids[0]]
        places = [place[0] for place in (call.request_bytes, call.result_bytes) if place]
        reader = transcript_format.make_reader(source, None)
        lines = list(_excerpt_lines(path, reader, call.id, places))
    except (OSError, ValueError):  # the file has been removed, or emptied
        return None
    reader.excerpt = lines
    for line in lines:
        reader.add_line(line)
    reader.finish()
    transcript = Transcript(reader, transcript_format)
    transcript.spans = [_restore_links(span, calls.get(span.id)) for span in transcript.spans]
    return transcript


def _restore_links(span: Span, cached: CallRow | None) -> Span:
    """Return a span with the branch and the parent call from the cache, which depend on the whole file."""
    if cached is None or (cached.branch, cached.parent_call) == (span.branch, span.call.parent_call):
        return span
    return replace(span, branch=cached.branch, call=replace(span.call, parent_call=cached.parent_call))


def keep_excerpt(transcript: Transcript, span: Span) -> list[Span]:
    """Make a transcript of a large file reread only the part around a call, and return the calls in that part.

    Of other files, return all calls.
    """
    path, reader = Path(transcript.file), transcript.reader
    if reader.excerpt is None:
        try:
            if path.suffix != ".jsonl" or not transcript.format.has_local_bodies or path.stat().st_size < MIN_BYTES:
                return transcript.spans
            places = [place.offset for place in (span.call.place, span.result and span.result.place) if place]
            reader.excerpt = list(_excerpt_lines(path, reader, span.id, places))
        except (OSError, ValueError):
            return transcript.spans
    numbers = {line.number for line in reader.excerpt}
    return [
        span
        for span in transcript.spans
        if (place := span.call.place or (span.result.place if span.result else None)) and place.line in numbers
    ]


def _load_calls(path: Path) -> list[CallRow]:
    """Return the calls of a file from the cache; empty if the file has changed or is not cached."""
    folder, stamp = default_folder(), compute_file_stamp(path)
    if folder is None or stamp is None:
        return []
    key = CacheKey(os.path.abspath(path), str(path), CALLS.name)  # noqa: PTH100
    for value in Cache(folder).load([(key, stamp)]).values():
        try:
            rows: list[CallRow] = CALLS.decode(value).calls
            return rows
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return []
    return []


def _excerpt_lines(
    path: Path, reader: TranscriptReader[Any], call_id: str, places: Sequence[int]
) -> Iterator[JsonLine]:
    """Yield the lines around a call, whose request and result are at `places`, with their numbers in the file."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        number, counted = 1, 0
        for start, end in _ranges(data, call_id.encode(), places, reader):
            number += _count_newlines(data, counted, start)
            counted, at = start, start
            while at < end:
                stop = data.find(b"\n", at, end)
                has_newline = stop >= 0
                stop = stop if has_newline else end
                yield JsonLine(number, at, stop - at, data[at:stop], has_newline=has_newline)
                number, at = number + 1, stop + 1
            counted = min(at, len(data))


def _count_newlines(data: mmap.mmap, start: int, end: int) -> int:
    return sum(data[at : min(at + _COUNTED_BYTES, end)].count(b"\n") for at in range(start, end, _COUNTED_BYTES))


def _ranges(
    data: mmap.mmap, needle: bytes, places: Sequence[int], reader: TranscriptReader[Any]
) -> list[tuple[int, int]]:
    """Return the byte ranges of whole lines that belong to the excerpt, in order."""
    ranges = [_line_at(data, 0)]
    for place in places:
        start, end = place, place
        for _ in range(_MARGIN_LINES):
            start = data.rfind(b"\n", 0, max(0, start - 1)) + 1 if start > place - _MARGIN_BYTES else start
            end = _line_at(data, end)[1] if end < place + _MARGIN_BYTES else end
        ranges.append((start, end))
    ranges += _find_prompt(data, min((start for start, _ in ranges[1:]), default=0), reader)
    at = data.find(needle)
    while at >= 0:
        ranges.append(_line_at(data, at))
        at = data.find(needle, ranges[-1][1])
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _line_at(data: mmap.mmap, at: int) -> tuple[int, int]:
    end = data.find(b"\n", at)
    return data.rfind(b"\n", 0, at) + 1, len(data) if end < 0 else end + 1


def _find_prompt(data: mmap.mmap, before: int, reader: TranscriptReader[Any]) -> list[tuple[int, int]]:
    """Return the range of the last line before an offset that begins a turn; empty if there is none."""
    while (at := data.rfind(_PROMPT_MARK, 0, before)) >= 0:
        before, end = _line_at(data, at)
        line = data[before:end]
        if _RESULT_MARK not in line:
            with suppress(ValueError):  # a damaged line
                if any(map(starts_turn, reader.messages_in([(before, line)]))):
                    return [(before, end)]
    return []
