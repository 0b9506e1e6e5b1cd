"""Load the rows of a dataset as the values that file jobs return, so that commands can use tables.

`toolspan errors|stats|usage|time|sessions --tables OUT` use this instead of reading transcripts. Every copy of a
call or request is assigned to its original file, and the same functions then merge and count them. DuckDB selects
the rows. Start at `load_results`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from toolspan.analysis.errors import FileRecovery, file_recovery, file_recovery_all
from toolspan.analysis.recovery import ChainEnding
from toolspan.analysis.timing import FileTime, file_time
from toolspan.analysis.usage import FileUsage, file_usage
from toolspan.errors import ToolspanError
from toolspan.formats.registry import foreign_file_problem
from toolspan.reading.parallel import FileJob, FileSummary, scan_file
from toolspan.reading.rows import CallRow, HookRow
from toolspan.tables.dataset import Dataset
from toolspan.tables.facts import (
    AgentSlices,
    CallPlace,
    FileHead,
    make_recovery,
    make_summary,
    make_time,
    make_usage,
)
from toolspan.tables.merge import CallCopy, RequestCopy, decode_blob
from toolspan.tables.schema import TABLES
from toolspan.types.session import RequestUsage, Tokens

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_BATCH_ROWS = 1 << 15
_IS_FAILURE = "(state <> 'succeeded' OR error_group IS NOT NULL OR _copies IS NOT NULL)"
_Copies = dict[str, list[CallCopy]]


def load_results(dataset: Dataset, job: FileJob[T]) -> list[T]:
    """Return the result of a job for each transcript of a dataset, as if the job had read the transcripts.

    Raises:
        ToolspanError: DuckDB is not installed, or the tables lack data that the job needs.
    """
    load = _LOADERS.get(job.function)
    if load is None:
        raise ToolspanError("this command needs the transcripts; name them instead of --tables")
    return cast("list[T]", load(_Tables(dataset)))


def count_foreign_files(dataset: Dataset) -> int:
    """Return the number of source files that are not transcripts."""
    return sum(table.num_rows for table in _Tables(dataset).select("findings", ("uri",), "code = 'no_transcript'"))


class _Tables:
    """The rows of a dataset by file."""

    def __init__(self, dataset: Dataset) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise ToolspanError("--tables needs DuckDB: run pip install 'toolspan[tables]'") from error
        self._dataset = dataset
        self._connection = duckdb.connect(config={"preserve_insertion_order": False})

    def select(self, table: str, columns: Iterable[str], where: str = "true") -> Iterator[pa.Table]:
        """Yield the columns of the rows that match a condition, in chunks."""
        import pyarrow as pa

        files = self._dataset.files(table)
        if not files:
            return
        names = ", ".join(f'"{column}"' for column in columns)
        query = f"SELECT {names} FROM read_parquet($files, hive_partitioning = true) WHERE {where}"
        for batch in self._connection.sql(query, params={"files": files}).to_arrow_reader(_BATCH_ROWS):
            yield pa.Table.from_batches([batch])

    def heads(self, *extra: str) -> list[tuple[FileHead, dict[str, bytes | None]]]:
        """Return the facts about every transcript and the columns in `extra`, sorted by file name."""
        tables = self.select("files", ("_head", *extra))
        heads = [(decode_blob(row.pop("_head"), FileHead), row) for table in tables for row in table.to_pylist()]
        own = [pair for pair in heads if pair[0].problem != foreign_file_problem(pair[0].file)]
        return sorted(own, key=lambda pair: pair[0].file)

    def calls(self, where: str = "true", *, places: bool = False) -> _Copies:
        """Return the calls of each file in order. `places` adds their times."""
        columns = [column.name for column in TABLES["calls"] if column.name not in _NOT_LOADED]
        copies: _Copies = {}
        for table in self.select("calls", [*columns, "dialect", *(("_place",) if places else ())], where):
            for copy in _restore_calls(table, places=places):
                copies.setdefault(copy.row.file, []).append(copy)
        for own in copies.values():
            own.sort(key=lambda copy: copy.position)
        return copies

    def requests(self) -> dict[str, dict[str, RequestUsage]]:
        """Return the requests of each file in order."""
        by_file: dict[str, list[tuple[int, str, RequestUsage]]] = {}
        for table in self.select("requests", _REQUEST_COLUMNS):
            for name, copy in _restore_requests(table):
                by_file.setdefault(copy.uri, []).append((copy.position, name, copy.usage))
        for own in by_file.values():
            own.sort(key=lambda item: item[0])
        return {uri: {name: usage for _, name, usage in own} for uri, own in by_file.items()}


_NOT_LOADED = frozenset(
    {"mcp_server", "recovered", "recovered_by", "project", "other_files", "input", "result", "_place"}
)
_TIME_COLUMNS = ("took_ms", "wait_ms", "wait_certainty", "hooks_ms", "run_ms")
_REQUEST_COLUMNS = (
    "uri", "position", "id", "at", "at_text", "recorded_model", "recorded_input_tokens", "output_tokens",
    "cache_creation_input_tokens", "cache_read_input_tokens", "cache_write_1h", "sidechain", "fast", "_copies",
)  # fmt: skip


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column, sharing equal strings, because most columns repeat a few."""
    import pyarrow as pa

    if not pa.types.is_string(column.type):
        values: list[Any] = column.to_pylist()
        return values
    encoded = column.combine_chunks().dictionary_encode()
    texts = [*encoded.dictionary.to_pylist(), None]
    return [texts[index] for index in encoded.indices.fill_null(len(texts) - 1).to_pylist()]


def _recorded_times(table: pa.Table, name: str) -> list[str | None]:
    """Return times as the client wrote them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # In milliseconds, %S includes the fraction.
    made = pc.strftime(table[name].cast(pa.timestamp("ms")), format="%Y-%m-%dT%H:%M:%SZ")
    times: list[str | None] = pc.coalesce(table[f"{name}_text"], made).to_pylist()
    return times


def _restore_calls(table: pa.Table, *, places: bool) -> Iterable[CallCopy]:
    import pyarrow.compute as pc

    merged = table.filter(pc.is_valid(table["_copies"]))
    for data in merged["_copies"].to_pylist():
        yield from decode_blob(data, list[CallCopy])
    table = table.filter(pc.is_null(table["_copies"]))
    columns = {name: _values(table[name]) for name in table.column_names if name not in ("requested", "finished")}
    columns |= {name: _recorded_times(table, name) for name in ("requested", "finished")}
    row_fields = [name for name in CallRow.__struct_fields__ if name in columns and name not in ("hooks", "evidence")]
    blobs = columns.get("_place") or [None] * table.num_rows
    for n, values in enumerate(zip(*(columns[name] for name in row_fields), strict=True)):
        fields = dict(zip(row_fields, values, strict=True))
        place = (columns["offset"][n], columns["length"][n])
        result = (columns["result_offset"][n], columns["result_length"][n])
        row = CallRow(
            **fields,
            file=columns["uri"][n],
            request_bytes=place if fields["request_line"] is not None else None,
            result_bytes=result if result[0] is not None else None,
            hooks=tuple(_restore_hook(hook) for hook in columns["hooks"][n]),
            evidence=tuple((item["rule"], item["text"]) for item in columns["evidence"][n]),
        )
        own = None
        if places and blobs[n] is not None:
            agent, position, pauses = msgspec.msgpack.decode(
                blobs[n], type=tuple[int, int, tuple[tuple[int, int], ...]]
            )
            took, wait, certainty, hooks, run = (columns[name][n] for name in _TIME_COLUMNS)
            own = CallPlace(agent, position, took, wait, certainty, hooks, run, pauses)
        yield CallCopy(row, columns["position"][n], own)


def _restore_hook(fields: dict[str, Any]) -> HookRow:
    duration = fields["duration_ms"]  # a float in the table; clients write whole numbers without a fraction
    whole = duration is not None and duration.is_integer()
    return HookRow(**{**fields, "duration_ms": int(duration) if whole else duration})


def _restore_requests(table: pa.Table) -> Iterable[tuple[str, RequestCopy]]:
    columns = [_values(table[name]) if name != "at" else _recorded_times(table, name) for name in _REQUEST_COLUMNS]
    for uri, position, name, at, _, model, given, written, created, cached, hour, side, fast, copies in zip(
        *columns, strict=True
    ):
        if copies is not None:
            yield from ((name, copy) for copy in decode_blob(copies, list[RequestCopy]))
            continue
        tokens = Tokens(
            input_tokens=given,
            output_tokens=written,
            cache_creation_input_tokens=created,
            cache_read_input_tokens=cached,
        )
        usage = RequestUsage(at=at, model=model, tokens=tokens, cache_write_1h=hour, sidechain=side, fast=fast)
        yield name, RequestCopy(uri, position, usage)


def _rows(copies: _Copies, file: str) -> list[CallRow]:
    return [copy.row for copy in copies.get(file, ())]


def _load_summaries(tables: _Tables) -> list[FileSummary]:
    calls, requests = tables.calls(), tables.requests()
    return [make_summary(head, _rows(calls, head.file), requests.get(head.file, {})) for head, _ in tables.heads()]


def _load_usages(tables: _Tables) -> list[FileUsage]:
    requests = tables.requests()
    return [make_usage(head, requests.get(head.file, {})) for head, _ in tables.heads()]


def _load_times(tables: _Tables) -> list[FileTime]:
    copies = tables.calls(places=True)
    times = []
    for head, extra in tables.heads("_time"):
        data = extra["_time"]
        agents = decode_blob(data, list[AgentSlices]) if data else []
        places = {copy.row.id: copy.place for copy in copies.get(head.file, ()) if copy.place is not None}
        times.append(make_time(head, agents, _rows(copies, head.file), places))
    return times


def _load_recoveries(tables: _Tables, *, all_calls: bool = True) -> list[FileRecovery]:
    copies = tables.calls("true" if all_calls else _IS_FAILURE)
    succeeded: dict[str, list[str]] = {}
    if not all_calls:  # perf: successful calls need no rows
        for table in tables.select("calls", ("uri", "id", "batch"), f"NOT {_IS_FAILURE}"):
            for row in table.to_pylist():
                succeeded.setdefault(row["uri"], []).append(f"{row['id']} {row['batch']}")
    results = []
    for head, extra in tables.heads("_endings"):
        data = extra["_endings"]
        endings = decode_blob(data, list[ChainEnding]) if data else []
        result = make_recovery(head, _rows(copies, head.file), endings, all_calls=all_calls)
        result.facts.successes.extend(succeeded.get(head.file, ()))
        results.append(result)
    return results


_LOADERS: Mapping[Callable[[str], Any], Callable[[_Tables], list[Any]]] = {
    scan_file: _load_summaries,
    file_usage: _load_usages,
    file_time: _load_times,
    file_recovery: lambda tables: _load_recoveries(tables, all_calls=False),
    file_recovery_all: _load_recoveries,
}
