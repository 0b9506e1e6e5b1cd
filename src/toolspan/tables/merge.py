"""Merge the facts of files into the rows of the tables.

The files of one call to `merge_facts` must include every file that shares a key with any of them (see
`facts.link_keys`). It calls the same functions as `toolspan stats`, `usage` and `time`, so the rules are the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import PurePath
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from toolspan.analysis.errors import recovery_by_call
from toolspan.analysis.file_time import CallPlace, FileTimes, join_time
from toolspan.analysis.stats import mcp_server_name
from toolspan.analysis.timesheet import Timesheet
from toolspan.analysis.timing import TimeSplit
from toolspan.analysis.usage import join_requests
from toolspan.formats.registry import foreign_file_problem, format_of_path, parse_file_name
from toolspan.prices import load_prices
from toolspan.reading.history import CallTable
from toolspan.reading.rows import CallRow
from toolspan.tables.facts import STORED_KINDS, FileFacts, make_summary, make_usage
from toolspan.tables.schema import TABLES
from toolspan.types.session import Finding, RequestUsage
from toolspan.types.span import parse_timestamp

Columns = dict[str, Sequence[Any]]
"""perf: the values of each column. A dict per row would take twice the time."""
UNKNOWN_DAY = "unknown"
_TIME_COLUMNS = ("wait_ms", "wait_certainty", "run_ms", "hooks_ms")
_USUAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT(?!24)\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
T = TypeVar("T")


class CallCopy(Struct, frozen=True, array_like=True):
    """A call, as recorded in one file."""

    row: CallRow
    position: int
    place: CallPlace | None


class RequestCopy(Struct, frozen=True, array_like=True):
    """A request, as recorded in one file."""

    file: str
    position: int
    usage: RequestUsage


def encode_blob(value: object) -> bytes:
    """Encode any value as MessagePack, or as JSON if it holds lone surrogates or huge numbers."""
    try:
        return msgspec.msgpack.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return b"j" + json.dumps(msgspec.to_builtins(value)).encode("ascii")


def decode_blob(data: bytes, kind: type[T]) -> T:
    """Decode a value encoded by `encode_blob`."""
    if data[:1] == b"j":  # in MessagePack this would be a number, which is never encoded as a blob
        return msgspec.convert(json.loads(data[1:]), kind)
    return msgspec.msgpack.decode(data, type=kind)


def merge_facts(files: Sequence[FileFacts]) -> dict[str, Columns]:
    """Return the columns of each table, with the partition columns. Columns that are missing are empty."""
    files = sorted(files, key=lambda file: file.head.file)
    transcripts = [file for file in files if file.head.problem != foreign_file_problem(file.head.file)]
    call_table = CallTable([make_summary(file.head, file.summary.calls, file.requests) for file in transcripts])
    columns = {
        "calls": _call_columns(transcripts, call_table),
        "sessions": _session_columns(transcripts, call_table),
        "requests": _request_columns(transcripts),
        "file_changes": _change_columns(transcripts, call_table),
        "findings": _finding_columns(files),
        "files": _file_columns(files),
    }
    assert columns.keys() == TABLES.keys()
    for table, own in columns.items():
        for column in TABLES[table]:
            if column.type == "timestamp[ms]":
                own[column.name], own[f"{column.name}_text"] = _parse_times(own[column.name])
    return columns


def _fields(table: str, items: Sequence[Struct]) -> Columns:
    """Return the columns of a table that are fields of structs."""
    names = [column.name for column in TABLES[table]]
    return {name: _values(items, name) for name in names if not items or name in items[0].__struct_fields__}


def _values(items: Iterable[object], name: str) -> list[Any]:
    return list(map(attrgetter(name), items))


def _days(times: Iterable[str | None]) -> list[str]:
    return [_day(text) for text in times]


def _day(text: str | None) -> str:
    time = parse_timestamp(text)
    if text is None or time is None:
        return UNKNOWN_DAY
    return text[:10] if _USUAL_TIME.fullmatch(text) else f"{time.astimezone(UTC):%Y-%m-%d}"


def _parse_times(texts: Sequence[str | None]) -> tuple[Sequence[datetime | None], Sequence[str | None]]:
    """Return times in UTC, and the recorded texts that cannot be reconstructed from them."""
    times: list[datetime | None] = []
    unusual: list[str | None] = []
    for text in texts:
        time = parse_timestamp(text)
        times.append(time and time.astimezone(UTC).replace(tzinfo=None))
        unusual.append(None if text is None or (time and _USUAL_TIME.fullmatch(text)) else text)
    return times, unusual


def _call_columns(files: Sequence[FileFacts], call_table: CallTable) -> Columns:
    rows, group_of = call_table.calls, call_table.lineages.group_of
    by_file = {file.head.file: file for file in files}
    groups = {file.head.file: group_of(file.head.file) for file in files}
    copies: dict[tuple[str, Hashable], list[CallCopy]] = {}
    for file in files:
        group = groups[file.head.file]
        for position, row in enumerate(file.summary.calls):
            copies.setdefault((row.id, group), []).append(CallCopy(row, position, file.places.get(row.id)))
    all_copies = [copies[row.id, groups[row.file]] for row in rows]
    chosen = [
        next(copy for copy in own if copy.row.file == row.file) for row, own in zip(rows, all_copies, strict=True)
    ]
    places = [copy.place for copy in chosen]
    by_call = recovery_by_call([ending for file in files for ending in file.endings])
    endings = [by_call.get((row.id, row.batch)) if row.error_group else None for row in rows]
    contents = [by_file[row.file].contents.get(row.id, (None, None)) for row in rows]
    is_storable = _is_storable(rows)
    return {
        **_fields("calls", rows),
        "client": _values(rows, "client"),
        "day": _days(row.requested or row.finished for row in rows),
        "position": _values(chosen, "position"),
        "mcp_server": list(map(mcp_server_name, rows)),
        "project": [by_file[row.file].head.info.cwd for row in rows],
        "recovered": [
            ending.recovered if ending else False if row.error_group else None
            for row, ending in zip(rows, endings, strict=True)
        ],
        "recovered_by": [ending and ending.by for ending in endings],
        "hooks": [tuple(map(astuple, row.hooks)) for row in rows],
        "other_files": [len({copy.row.file for copy in own}) - 1 if len(own) > 1 else 0 for own in all_copies],
        "input": [given for given, _ in contents],
        "result": [text for _, text in contents],
        **{name: [place and getattr(place, name) for place in places] for name in _TIME_COLUMNS},
        "_place": [place and msgspec.msgpack.encode(place) for place in places],
        "_copies": [
            encode_blob(own) if len(own) > 1 or copy.row != row or not (is_storable or _is_storable(row)) else None
            for row, copy, own in zip(rows, chosen, all_copies, strict=True)
        ],
    }


def _is_storable(value: object) -> bool:
    try:
        msgspec.msgpack.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return False
    return True


def _session_columns(files: Sequence[FileFacts], call_table: CallTable) -> Columns:
    times = [join_time(file.summary, FileTimes(agents=file.agents, places=file.places)) for file in files]
    sheets = {sheet.id: sheet.main.split for sheet in Timesheet.from_files(times).sessions}
    sessions = call_table.sessions
    infos = [session.file.info for session in sessions]
    calls = [call_table.calls_by_session[session.id] for session in sessions]
    splits = [sheets.get(session.id) for session in sessions]
    return {
        **_fields("sessions", infos),
        **_fields("sessions", [call_table.tokens_by_session[session.id] for session in sessions]),
        **{name: [split and getattr(split, name) for split in splits] for name in TimeSplit.__struct_fields__},
        "started": _values(sessions, "started_at"),
        "ended": _values(sessions, "ended_at"),
        "client": _values(infos, "client"),
        "day": _days(_values(sessions, "started_at")),
        "file": [session.file.file for session in sessions],
        "position": [0] * len(sessions),
        "id": _values(sessions, "id"),
        "project": [session.cwd or parse_file_name(PurePath(session.file.file)).project for session in sessions],
        "calls": [sum(row.state != "orphan_result" for row in rows) for rows in calls],
        "unsuccessful": [sum(row.is_unsuccessful for row in rows) for rows in calls],
        "agents": [len(session.agents) for session in sessions],
        "malformed": [sum(file.counts.malformed for file in session.files) for session in sessions],
        "files": [[file.file for file in session.files] for session in sessions],
    }


def _request_columns(files: Sequence[FileFacts]) -> Columns:
    usages = [make_usage(file.head, file.requests) for file in files]
    recorded = {(request.file, request.id): request.tokens for request in join_requests(usages, as_recorded=True)}
    copies: dict[tuple[str, str], list[RequestCopy]] = {}
    for file in files:
        for position, (name, usage) in enumerate(file.requests.items()):
            key = (file.head.file if name.startswith("#") else "", name)
            copies.setdefault(key, []).append(RequestCopy(file.head.file, position, usage))
    cost = load_prices().cost
    requests = list(join_requests(usages))
    all_copies = [copies[request.file if request.id.startswith("#") else "", request.id] for request in requests]
    chosen = [
        next(copy for copy in own if copy.file == request.file)
        for request, own in zip(requests, all_copies, strict=True)
    ]
    at = [copy.usage.at for copy in chosen]
    is_storable = _is_storable([copy.usage for copy in chosen])
    return {
        **_fields("requests", requests),
        **_fields("requests", _values(requests, "tokens")),
        "at": at,
        "client": _values(requests, "client"),
        "day": _days(at),
        "position": _values(chosen, "position"),
        "recorded_input_tokens": [recorded[request.file, request.id].input_tokens for request in requests],
        "cost_usd": [
            cost(request.model, request.at, request.tokens, cache_write_1h=request.cache_write_1h, fast=request.fast)
            if request.cost_usd is None
            else request.cost_usd
            for request in requests
        ],
        "sidechain": [copy.usage.sidechain for copy in chosen],
        "recorded_model": [copy.usage.model for copy in chosen],
        "_copies": [
            encode_blob(own)
            if len(own) > 1 or copy.usage.cost_usd is not None or not (is_storable or _is_storable(copy.usage))
            else None
            for copy, own in zip(chosen, all_copies, strict=True)
        ],
    }


def _change_columns(files: Sequence[FileFacts], call_table: CallTable) -> Columns:
    counted = {(row.file, row.id): row for row in call_table.calls}
    items = [
        (file, position, change, row)
        for file in files
        for position, change in enumerate(file.changes)
        if (row := counted.get((file.head.file, change.call))) is not None
    ]
    at = [change.at for _, _, change, _ in items]
    return {
        **_fields("file_changes", [change for _, _, change, _ in items]),
        "client": [row.client for _, _, _, row in items],
        "day": _days(at),
        "file": [file.head.file for file, _, _, _ in items],
        "position": [position for _, position, _, _ in items],
        "session": [row.session for _, _, _, row in items],
        "project": [file.head.info.cwd for file, _, _, _ in items],
    }


def _finding_columns(files: Sequence[FileFacts]) -> Columns:
    items = [
        (file, position, finding)
        for file in files
        for position, finding in (*_problem_of(file), *enumerate(file.summary.findings))
    ]
    findings = [finding for _, _, finding in items]
    places = [finding.place for finding in findings]
    return {
        **_fields("findings", findings),
        "client": [_client_of(file) for file, _, _ in items],
        "day": _days(file.head.info.started_at for file, _, _ in items),
        "file": [file.head.file for file, _, _ in items],
        "position": [position for _, position, _ in items],
        "line": [place and place.line for place in places],
        "offset": [place and place.offset for place in places],
        "length": [place and place.length for place in places],
    }


def _problem_of(file: FileFacts) -> Iterable[tuple[int, Finding]]:
    problem = file.head.problem
    if problem is not None:
        is_foreign = problem == foreign_file_problem(file.head.file)
        code = "no_transcript" if is_foreign else "unreadable"
        yield 0, Finding(code=code, severity="error", explanation=problem, acceptance="unknown", count=1, place=None)


def _client_of(file: FileFacts) -> str:
    return file.head.info.client if file.head.problem is None else format_of_path(file.head.file).name


def _file_columns(files: Sequence[FileFacts]) -> Columns:
    heads = [file.head for file in files]
    infos = _values(heads, "info")
    return {
        "started": _values(infos, "started_at"),
        "ended": _values(infos, "ended_at"),
        "client": list(map(_client_of, files)),
        "day": _days(_values(infos, "started_at")),
        "file": _values(heads, "file"),
        "position": [0] * len(files),
        "session": _values(infos, "session_id"),
        "agent_id": _values(infos, "agent_id"),
        "project": _values(infos, "cwd"),
        "lines": [head.counts.lines for head in heads],
        "malformed": [head.counts.malformed for head in heads],
        "calls": [len(file.summary.calls) for file in files],
        "requests": [len(file.requests) for file in files],
        "problem": _values(heads, "problem"),
        "_head": list(map(encode_blob, heads)),
        "_time": [encode_blob(file.agents) if file.agents else None for file in files],
        "_endings": [encode_blob(file.endings) if file.endings else None for file in files],
        **{f"_{name}": [_encode_stored(file, name) for file in files] for name in STORED_KINDS},
    }


def _encode_stored(file: FileFacts, name: str) -> bytes | None:
    facts = getattr(file.stored, name)
    return None if facts is None else encode_blob(facts)
