"""Merge the facts of files into the rows of the tables.

The files of one call to `merge_facts` must include every file that shares a key with any of them (see
`facts.link_keys`). The rules are those of `toolspan stats`, `usage` and `time`, because their functions are used.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from toolspan.analysis.errors import is_unsuccessful, recovery_by_call
from toolspan.analysis.prices import load_prices
from toolspan.analysis.timesheet import Timesheet
from toolspan.analysis.usage import join_requests
from toolspan.formats.registry import foreign_file_problem, format_of_path, parse_file_name
from toolspan.reading.history import CallTable
from toolspan.reading.rows import CallRow
from toolspan.tables.facts import CallPlace, FileFacts, make_summary, make_time, make_usage
from toolspan.tables.schema import TABLES
from toolspan.types.session import RequestUsage
from toolspan.types.span import parse_timestamp

Row = dict[str, Any]
UNKNOWN_DAY = "unknown"
T = TypeVar("T")


class CallCopy(Struct, frozen=True, array_like=True):
    """A call as one file contains it."""

    row: CallRow
    position: int
    place: CallPlace | None


class RequestCopy(Struct, frozen=True, array_like=True):
    """A request as one file contains it."""

    uri: str
    position: int
    usage: RequestUsage


def encode_blob(value: object) -> bytes:
    """Encode any value as MessagePack, or as JSON if it holds lone surrogates or huge numbers."""
    try:
        return msgspec.msgpack.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return b"j" + json.dumps(msgspec.to_builtins(value)).encode("ascii")


def decode_blob(data: bytes, kind: type[T]) -> T:
    """Decode what `encode_blob` returned."""
    if data[:1] == b"j":  # as MessagePack, a number, which no blob is
        return msgspec.convert(json.loads(data[1:]), kind)
    return msgspec.msgpack.decode(data, type=kind)


def merge_facts(files: Sequence[FileFacts]) -> dict[str, list[Row]]:
    """Return the rows of each table, with the partition columns."""
    files = sorted(files, key=lambda file: file.head.file)
    transcripts = [file for file in files if file.head.problem != foreign_file_problem(file.head.file)]
    call_table = CallTable([make_summary(file.head, file.summary.calls, file.requests) for file in transcripts])
    rows = {
        "calls": list(_call_rows(transcripts, call_table)),
        "sessions": list(_session_rows(transcripts, call_table)),
        "requests": list(_request_rows(transcripts)),
        "file_changes": list(_change_rows(transcripts, call_table)),
        "findings": [row for file in files for row in _finding_rows(file)],
        "files": [_file_row(file) for file in files],
    }
    assert rows.keys() == TABLES.keys()
    return rows


def _partition(dialect: str, *times: str | None) -> Row:
    time = next((time for at in times if at and (time := parse_timestamp(at))), None)
    return {"dialect": dialect, "day": UNKNOWN_DAY if time is None else f"{time.astimezone(UTC):%Y-%m-%d}"}


def _time_columns(name: str, text: str | None) -> Row:
    """Return a time in UTC, and the recorded text if it cannot be made from it."""
    time = parse_timestamp(text)
    if text is None or time is None:
        return {name: None, f"{name}_text": text}
    utc = time.astimezone(UTC).replace(tzinfo=None)
    return {name: utc, f"{name}_text": None if text == format_timestamp(utc) else text}


def format_timestamp(time: datetime) -> str:
    """Return a time in UTC as most clients write it."""
    return time.isoformat(timespec="milliseconds") + "Z"


def _call_rows(files: Sequence[FileFacts], call_table: CallTable) -> Iterator[Row]:
    by_file = {file.head.file: file for file in files}
    copies: dict[tuple[str, Hashable], list[CallCopy]] = {}
    for file in files:
        group = call_table.lineages.group_of(file.head.file)
        for position, row in enumerate(file.summary.calls):
            copies.setdefault((row.id, group), []).append(CallCopy(row, position, file.places.get(row.id)))
    endings = recovery_by_call([ending for file in files for ending in file.endings])
    for row in call_table.calls:
        file = by_file[row.file]
        own = copies[row.id, call_table.lineages.group_of(row.file)]
        copy = next(copy for copy in own if copy.row.file == row.file)
        yield _call_row(row, copy, own, file, endings.get((row.id, row.batch)) if row.error_group else None)


def _call_row(row: CallRow, copy: CallCopy, copies: Sequence[CallCopy], file: FileFacts, ending: Any) -> Row:
    place, (request, result) = copy.place, (row.request_bytes, row.result_bytes)
    own = request or result or (None, None)
    given, text = file.contents.get(row.id, (None, None))
    values = {
        **asdict(row),
        **_partition(row.dialect, row.requested or row.finished),
        **_time_columns("requested", row.requested),
        **_time_columns("finished", row.finished),
        "uri": row.file,
        "position": copy.position,
        "offset": own[0],
        "length": own[1],
        "result_offset": result[0] if result else None,
        "result_length": result[1] if result else None,
        "mcp_server": _mcp_server(row.tool),
        "project": file.head.info.cwd,
        "recovered": ending.recovered if ending else False if row.error_group else None,
        "recovered_by": ending.by if ending else None,
        "hooks": [asdict(hook) for hook in row.hooks],
        "evidence": [{"rule": rule, "text": text} for rule, text in row.evidence],
        "other_files": len({copy.row.file for copy in copies}) - 1,
        "input": given,
        "result": text,
    }
    if place is not None:
        values |= {
            "wait_ms": place.wait_ms,
            "wait_certainty": place.certainty,
            "run_ms": place.run_ms,
            "hooks_ms": place.hooks_ms,
            "took_ms": place.took_ms,
            "_place": msgspec.msgpack.encode((place.agent, place.position, place.pauses)),
        }
    if len(copies) > 1 or copy.row != row or not _is_storable(row):
        values["_copies"] = encode_blob(copies)
    return values


def _is_storable(row: Struct) -> bool:
    try:
        msgspec.msgpack.encode(row)
    except (UnicodeEncodeError, OverflowError):
        return False
    return True


def _mcp_server(tool: str | None) -> str | None:
    prefix, _, rest = (tool or "").partition("__")
    server, separator, _ = rest.partition("__")
    return server if prefix == "mcp" and separator else None


def _session_rows(files: Sequence[FileFacts], call_table: CallTable) -> Iterator[Row]:
    times = [make_time(file.head, file.agents, file.summary.calls, file.places) for file in files]
    sheets = {sheet.id: sheet for sheet in Timesheet.from_files(times).sessions}
    for session in call_table.sessions:
        info, calls = session.file.info, call_table.calls_by_session[session.id]
        split = asdict(sheets[session.id].main.split) if session.id in sheets else {}
        yield {
            **asdict(info),
            **_partition(info.dialect, session.started_at),
            **_time_columns("started", session.started_at),
            **_time_columns("ended", session.ended_at),
            **asdict(call_table.tokens_by_session[session.id]),
            **split,
            "uri": session.file.file,
            "position": 0,
            "id": session.id,
            "project": session.cwd or parse_file_name(PurePath(session.file.file)).project,
            "calls": sum(row.state != "orphan_result" for row in calls),
            "failed": sum(map(is_unsuccessful, calls)),
            "agents": len(session.agents),
            "malformed": sum(file.counts.malformed for file in session.files),
            "files": [file.file for file in session.files],
        }


def _request_rows(files: Sequence[FileFacts]) -> Iterator[Row]:
    usages = [make_usage(file.head, file.requests) for file in files]
    recorded = {(request.file, request.id): request.tokens for request in join_requests(usages, as_recorded=True)}
    copies: dict[tuple[str, str], list[RequestCopy]] = {}
    for file in files:
        for position, (name, usage) in enumerate(file.requests.items()):
            key = (file.head.file if name.startswith("#") else "", name)
            copies.setdefault(key, []).append(RequestCopy(file.head.file, position, usage))
    cost = load_prices().cost
    for request in join_requests(usages):
        own = copies[request.file if request.id.startswith("#") else "", request.id]
        copy = next(copy for copy in own if copy.uri == request.file)
        tokens = recorded[request.file, request.id]
        yield {
            **{name: getattr(request, name) for name in _REQUEST_FIELDS},
            **_partition(request.dialect, copy.usage.at),
            **_time_columns("at", copy.usage.at),
            **asdict(request.tokens),
            "uri": request.file,
            "position": copy.position,
            "recorded_input_tokens": tokens.input_tokens,
            "cost_usd": cost(
                request.model, request.at, request.tokens, cache_write_1h=request.cache_write_1h, fast=request.fast
            ),
            "sidechain": copy.usage.sidechain,
            "recorded_model": copy.usage.model,
            "_copies": encode_blob(own) if len(own) > 1 or not _is_storable(copy.usage) else None,
        }


_REQUEST_FIELDS = ("id", "model", "cache_write_1h", "fast", "session", "project", "agent", "agent_id")


def _change_rows(files: Sequence[FileFacts], call_table: CallTable) -> Iterator[Row]:
    counted = {(row.file, row.id): row for row in call_table.calls}
    for file in files:
        for position, change in enumerate(file.changes):
            row = counted.get((file.head.file, change.call))
            if row is not None:
                yield {
                    **asdict(change),
                    **_partition(row.dialect, change.at),
                    **_time_columns("at", change.at),
                    "uri": file.head.file,
                    "position": position,
                    "session": row.session,
                    "project": file.head.info.cwd,
                }


def _finding_rows(file: FileFacts) -> Iterator[Row]:
    head = file.head
    shared = {**_partition(_dialect_of(file), head.info.started_at), "uri": head.file}
    if head.problem is not None:
        is_foreign = head.problem == foreign_file_problem(head.file)
        yield {
            **shared,
            "position": 0,
            "code": "no_transcript" if is_foreign else "unreadable",
            "severity": "error",
            "explanation": head.problem,
            "client": "unknown",
            "count": 1,
        }
    for position, finding in enumerate(file.summary.findings):
        place = finding.place
        yield {
            **shared,
            **asdict(finding),
            "position": position,
            "line": place.line if place else None,
            "offset": place.offset if place else None,
            "length": place.length if place else None,
        }


def _dialect_of(file: FileFacts) -> str:
    return file.head.info.dialect if file.head.problem is None else format_of_path(file.head.file).name


def _file_row(file: FileFacts) -> Row:
    head, info = file.head, file.head.info
    return {
        **_partition(_dialect_of(file), info.started_at),
        **_time_columns("started", info.started_at),
        **_time_columns("ended", info.ended_at),
        "uri": head.file,
        "position": 0,
        "session": info.session_id,
        "agent_id": info.agent_id,
        "project": info.cwd,
        "lines": head.counts.lines,
        "malformed": head.counts.malformed,
        "calls": len(file.summary.calls),
        "requests": len(file.requests),
        "problem": head.problem,
        "_head": encode_blob(head),
        "_time": encode_blob(file.agents) if file.agents else None,
        "_endings": encode_blob(file.endings) if file.endings else None,
    }
