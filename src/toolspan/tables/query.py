"""Load the rows of a dataset as the values that file jobs return, so that commands can use tables.

`toolspan errors --tables OUT` and other commands use this instead of reading transcripts. Every copy of a
call or request is assigned to its original file, and the same functions then merge and count them. DuckDB selects
the rows. Start at `load_results`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import pairwise, starmap
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from toolspan.analysis.errors import ENDINGS, FileEndings
from toolspan.analysis.file_history.archive import CHANGES, FileChanges, RecordedChange, merge_changes
from toolspan.analysis.file_history.changes import ChangeKind
from toolspan.analysis.file_time import TIMES, WAITS, AgentSlices, CallPlace, FileTimes, FileWaits
from toolspan.analysis.recovery import ChainEnding
from toolspan.analysis.usage import USAGE, FileUsage
from toolspan.errors import ToolspanError
from toolspan.extras import missing_extra
from toolspan.formats.registry import foreign_file_problem
from toolspan.reading.facts import CALLS, FAILURES, FactKind, FileJob, FileSummary, leave_out_successes
from toolspan.reading.rows import CallRow, HookRow
from toolspan.tables.dataset import Dataset
from toolspan.tables.facts import STORED_KINDS, FileHead, make_summary, make_usage
from toolspan.tables.merge import CallCopy, RequestCopy, decode_blob
from toolspan.types.session import RequestUsage, Tokens

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_BATCH_ROWS = 1 << 15


def load_results(dataset: Dataset, job: FileJob[T]) -> list[T]:
    """Return the result of a job for each transcript of a dataset, as if the job had read the transcripts.

    Raises:
        ToolspanError: DuckDB is not installed, or the tables lack data that the job needs.
    """
    tables = _Tables(dataset)
    return [job.join(*facts) for facts in zip(*(_LOADERS[kind.name](tables) for kind in job.kinds), strict=True)]


def count_foreign_files(dataset: Dataset) -> int:
    """Return the number of source files that are not transcripts."""
    return sum(table.num_rows for table in _Tables(dataset).select("findings", ("file",), "code = 'no_transcript'"))


class _Tables:
    """The rows of a dataset by file."""

    def __init__(self, dataset: Dataset) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise missing_extra(error, "reading tables") or error from error
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

    @cached_property
    def calls(self) -> dict[str, list[CallCopy]]:
        """The calls of each file in order."""
        copies: dict[str, list[CallCopy]] = {}
        for table in self.select("calls", _CALL_COLUMNS):
            for copy in _restore_calls(table):
                copies.setdefault(copy.row.file, []).append(copy)
        for own in copies.values():
            own.sort(key=lambda copy: copy.position)
        return copies

    def requests(self) -> dict[str, dict[str, RequestUsage]]:
        """Return the requests of each file in order."""
        by_file: dict[str, list[tuple[int, str, RequestUsage]]] = {}
        for table in self.select("requests", _REQUEST_COLUMNS):
            for name, copy in _restore_requests(table):
                by_file.setdefault(copy.file, []).append((copy.position, name, copy.usage))
        for own in by_file.values():
            own.sort(key=lambda item: item[0])
        return {file: {name: usage for _, name, usage in own} for file, own in by_file.items()}


_CALL_COLUMNS = (*CallRow.__struct_fields__, "requested_text", "finished_text", "position", "_place", "_copies")
_REQUEST_COLUMNS = (
    "file", "position", "id", "at", "at_text", "recorded_model", "recorded_input_tokens", "output_tokens",
    "cache_creation_input_tokens", "cache_read_input_tokens", "cache_write_1h", "sidechain", "fast", "_copies",
)  # fmt: skip


def _values(table: pa.Table, name: str) -> list[Any]:
    """Return the values of a column as they were before they were stored. Structs are tuples."""
    import pyarrow as pa

    column = table[name].combine_chunks()
    if pa.types.is_timestamp(column.type):
        return _recorded_times(column, table[f"{name}_text"])
    if pa.types.is_string(column.type):  # share equal strings, because most columns repeat a few
        encoded = column.dictionary_encode()
        texts = [*encoded.dictionary.to_pylist(), None]
        return [texts[index] for index in encoded.indices.fill_null(len(texts) - 1).to_pylist()]
    if pa.types.is_list(column.type):
        items, ends = _struct_values(column.values), column.offsets.to_pylist()
        return [tuple(items[start:end]) for start, end in pairwise(ends)]
    values: list[Any] = _struct_values(column) if pa.types.is_struct(column.type) else column.to_pylist()
    return values


def _struct_values(structs: pa.StructArray) -> list[tuple[Any, ...] | None]:
    """perf: this takes a third of the time of `to_pylist`, which makes a dict of each struct."""
    rows = zip(*(field.to_pylist() for field in structs.flatten()), strict=True)
    return [row if is_valid else None for row, is_valid in zip(rows, structs.is_valid().to_pylist(), strict=True)]


def _recorded_times(times: pa.Array, unusual: pa.ChunkedArray) -> list[str | None]:
    """Return times as the client wrote them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # In milliseconds, %S includes the fraction.
    usual = pc.strftime(times.cast(pa.timestamp("ms")), format="%Y-%m-%dT%H:%M:%SZ")
    texts: list[str | None] = pc.coalesce(unusual, usual).to_pylist()
    return texts


def _restore_calls(table: pa.Table) -> Iterable[CallCopy]:
    import pyarrow.compute as pc

    for data in table["_copies"].drop_null().to_pylist():
        yield from decode_blob(data, list[CallCopy])
    table = table.filter(pc.is_null(table["_copies"]))
    columns = {name: _values(table, name) for name in CallRow.__struct_fields__}
    columns["hooks"] = [tuple(starmap(_restore_hook, hooks)) for hooks in columns["hooks"]]
    rows = map(CallRow, *columns.values())
    for row, position, place in zip(rows, table["position"].to_pylist(), table["_place"].to_pylist(), strict=True):
        yield CallCopy(row, position, place and decode_blob(place, CallPlace))


def _restore_hook(*fields: Any) -> HookRow:
    hook = HookRow(*fields)
    duration = hook.duration_ms  # a float in the table; clients write whole numbers without a fraction
    if duration is None or not float(duration).is_integer():
        return hook
    return replace(hook, duration_ms=int(duration))


def _restore_requests(table: pa.Table) -> Iterable[tuple[str, RequestCopy]]:
    columns = [_values(table, name) for name in _REQUEST_COLUMNS]
    for file, position, name, at, _, model, given, written, created, cached, hour, side, fast, copies in zip(
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
        yield name, RequestCopy(file, position, usage)


def _load_summaries(tables: _Tables) -> list[FileSummary]:
    requests = tables.requests()
    return [
        make_summary(head, [copy.row for copy in tables.calls.get(head.file, ())], requests.get(head.file, {}))
        for head, _ in tables.heads()
    ]


def _load_usages(tables: _Tables) -> list[FileUsage]:
    requests = tables.requests()
    return [make_usage(head, requests.get(head.file, {})) for head, _ in tables.heads()]


def _load_times(tables: _Tables) -> list[FileTimes]:
    times = []
    for head, extra in tables.heads("_time"):
        data = extra["_time"]
        agents = decode_blob(data, list[AgentSlices]) if data else []
        places = {copy.row.id: copy.place for copy in tables.calls.get(head.file, ()) if copy.place is not None}
        times.append(FileTimes(agents=agents, places=places, problem=head.problem))
    return times


def _load_endings(tables: _Tables) -> list[FileEndings]:
    return [
        FileEndings(endings=decode_blob(extra["_endings"], list[ChainEnding]) if extra["_endings"] else [])
        for _, extra in tables.heads("_endings")
    ]


def _load_stored(kind: FactKind[T], tables: _Tables) -> list[T]:
    """Return facts that the tables contain as they were read."""
    column = f"_{kind.name}"
    facts = []
    for _, extra in tables.heads(column):
        data = extra[column]
        if data is None:
            raise ToolspanError("this question needs the transcripts, or tables written with --content")
        facts.append(decode_blob(data, kind.facts_type))
    return facts


def _load_changes(tables: _Tables) -> list[FileChanges]:
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for table in tables.select("file_changes", _CHANGE_COLUMNS):
        for file, *values in zip(*(table[name].to_pylist() for name in _CHANGE_COLUMNS), strict=True):
            rows.setdefault(file, []).append(tuple(values))
    changes = []
    for head, _ in tables.heads():
        calls = {copy.row.id: copy.row for copy in tables.calls.get(head.file, ())}
        own = (_restore_change(calls[values[3]], *values[1:]) for values in sorted(rows.get(head.file, ())))
        changes.append(FileChanges(merge_changes(own), head.problem))
    return changes


_CHANGE_COLUMNS = ("file", "position", "path", "kind", "call", "agent", "added", "removed", "state", "error_kind")


def _restore_change(
    row: CallRow, path: str, kind: ChangeKind | None, call: str, agent: str | None,
    added: int | None, removed: int | None, state: str, error_kind: str | None,
) -> RecordedChange:  # fmt: skip
    return RecordedChange(
        path=path,
        call=call,
        tool=row.tool or "",
        at=row.finished or row.requested,
        requested=row.requested,
        session=row.session,
        agent=agent,
        kind=kind,
        added=added,
        removed=removed,
        state=state,
        error_kind=error_kind,
    )


_LOADERS: Mapping[str, Callable[[_Tables], list[Any]]] = {
    CALLS.name: _load_summaries,
    FAILURES.name: lambda tables: list(map(leave_out_successes, _load_summaries(tables))),
    USAGE.name: _load_usages,
    TIMES.name: _load_times,
    WAITS.name: lambda tables: list(map(FileWaits.from_times, _load_times(tables))),
    ENDINGS.name: _load_endings,
    CHANGES.name: _load_changes,
    **{name: partial(_load_stored, kind) for name, kind in STORED_KINDS.items()},
}
