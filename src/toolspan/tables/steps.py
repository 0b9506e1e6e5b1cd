"""The four steps of a run, as functions that worker processes execute: read, link, merge, write.

Each takes picklable values, writes its result to files and returns a description. Running one again writes the same
files.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate, groupby, repeat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec import Struct

from toolspan.formats import zstd
from toolspan.tables.dataset import (
    ROW_GROUP_SIZE,
    STATE_FOLDER,
    Partition,
    PartitionKey,
    write_file,
    write_partition,
)
from toolspan.tables.facts import FileFacts, FileHead, ReadOptions, link_keys, read_facts, unreadable_facts
from toolspan.tables.merge import decode_blob, encode_blob, merge_facts
from toolspan.tables.schema import arrow_schema, make_arrow_table

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T", int, str)
_UPDATE_THREADS = 2
"""Threads that read and write partitions of an existing dataset.

perf: an update handles many small partitions, which Arrow compresses outside of the interpreter lock. A first run
writes large ones, and needs less memory without other threads.
"""
_OPEN_SLICES = 16
"""The number of slices of a large partition that are mapped at once. A mapped table takes 90 KB."""
_NUMBER = "_partition"
"""The column that holds the number of a row's partition while partitions are written."""


class ListedObject(NamedTuple):
    """A source file, as listed."""

    uri: str
    size: int
    stamp: str
    """A value that changes with the file's content."""
    number: int = -1
    """The id of this version of the file in the dataset's state."""
    problem: str = ""
    """The reason why this is not a file but a folder that cannot be listed."""


class SourceObject(Struct, frozen=True, array_like=True, gc=False):
    """A source file in the dataset."""

    uri: str
    size: int
    stamp: str
    number: int
    group: int
    """The smallest number of all files that it is linked with."""
    pack: str
    """The file that contains its facts, at `offset` and `length`."""
    offset: int
    length: int
    is_readable: bool = True
    started: str = ""
    """Time of its first record, as recorded."""
    partition_keys: bytes = b""
    """The partitions with rows of the file. perf: decoded on demand, because most runs need those of few files."""

    @property
    def partitions(self) -> list[PartitionKey]:
        """The partitions with rows of the file."""
        return decode_blob(self.partition_keys, list[PartitionKey]) if self.partition_keys else []


def _return_memory() -> None:
    """Return memory that Arrow has freed to the system.

    perf: Arrow's own allocator keeps it, which takes up to half as much memory again as the rows of a task.
    """
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    pa.default_memory_pool().release_unused()


# Read


def keys_file(pack: str) -> str:
    """Return the name of the file with the link keys of a pack."""
    return pack.replace("pack-", "keys-")


def read_batch(batch: Sequence[ListedObject], *, folder: str, options: ReadOptions) -> list[SourceObject]:
    """Read files into one pack of facts."""
    pairs = (
        (item, unreadable_facts(item.uri, item.problem) if item.problem else read_facts(item.uri, options))
        for item in batch
    )
    return _write_pack(pairs, Path(folder))


def write_off(item: ListedObject, folder: str) -> list[SourceObject]:
    """Write a pack for a file that kills every process that reads it."""
    problem = f"{item.uri}: a process died while reading this file, perhaps because memory ran out"
    return _write_pack([(item, unreadable_facts(item.uri, problem))], Path(folder))


def _write_pack(pairs: Iterable[tuple[ListedObject, FileFacts]], folder: Path) -> list[SourceObject]:
    import pyarrow as pa

    data = bytearray()
    places: list[tuple[ListedObject, int, int, FileHead]] = []
    keys: list[tuple[int, int, bool]] = []
    for item, facts in pairs:
        frame = zstd.compress(encode_blob(facts))
        places.append((item, len(data), len(frame), facts.head))
        data += frame
        keys += ((key.hash, item.number, key.is_agent) for key in link_keys(facts))
    keys.sort()
    # The numbers make the name unique: equal files may be read again under other numbers.
    digest = hashlib.sha256(data + b"".join(b"%d " % item.number for item, *_ in places)).hexdigest()[:24]
    pack = f"{STATE_FOLDER}/pack-{digest}"
    write_file(folder / pack, bytes(data))
    columns = {
        "key": pa.array([key for key, _, _ in keys], pa.uint64()),
        "number": pa.array([number for _, number, _ in keys], pa.int64()),
        "is_agent": pa.array([is_agent for _, _, is_agent in keys], pa.bool_()),
    }
    write_arrow(folder / keys_file(pack), pa.table(columns))
    return [
        SourceObject(*item[:4], item.number, pack, offset, length, head.problem is None, head.info.started_at or "")
        for item, offset, length, head in places
    ]


def write_arrow(path: Path, table: pa.Table) -> None:
    """Write a table as an Arrow file of one batch, which readers can map into memory."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks(), max(1, table.num_rows))
    write_file(path, sink.getvalue())


def open_arrow(path: Path | str) -> pa.Table:
    """Map an Arrow file into memory."""
    import pyarrow as pa

    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def load_facts(objects: Iterable[SourceObject], folder: Path) -> list[FileFacts]:
    """Return the facts of objects."""
    facts: list[FileFacts] = []
    for pack, own in groupby(sorted(objects, key=lambda item: (item.pack, item.offset)), lambda item: item.pack):
        with (folder / pack).open("rb") as stream:
            for item in own:
                stream.seek(item.offset)
                facts.append(decode_blob(zstd.decompress(stream.read(item.length)), FileFacts))
    return facts


# Link


def link_range(
    bounds: tuple[int, int | None], *, paths: Sequence[str], numbers: frozenset[int] | None
) -> list[tuple[int, int]]:
    """Return the pairs of files that share a key in a range; with `numbers`, only pairs of these files."""
    import pyarrow as pa
    import pyarrow.compute as pc

    _return_memory()
    parts = [_rows_between(open_arrow(path), "key", *bounds) for path in paths]
    table = pa.concat_tables(parts)
    if numbers is not None:
        table = table.filter(pc.is_in(table["number"], value_set=pa.array(sorted(numbers), pa.int64())))
    table = _repeated_keys(table)
    table = table.filter(share_keys(table, table))
    if table.num_rows < 2:
        return []
    key, number = table["key"].chunk(0), table["number"].chunk(0)
    last = table.num_rows - 1
    is_shared = pc.equal(key.slice(1), key.slice(0, last))
    first, second = number.slice(0, last).filter(is_shared), number.slice(1).filter(is_shared)
    return sorted(set(zip(first.to_pylist(), second.to_pylist(), strict=True)))


def _repeated_keys(table: pa.Table) -> pa.Table:
    """Return the rows whose key occurs more than once, sorted, in one chunk.

    perf: few rows remain. Sorting needs a third of the memory of a set of all keys, which `share_keys` would make.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    table = table.sort_by([("key", "ascending"), ("number", "ascending")]).combine_chunks()
    if table.num_rows < 2:
        return table.slice(0, 0)
    key, end = table["key"].chunk(0), pa.array([False])
    is_equal = pc.equal(key.slice(1), key.slice(0, table.num_rows - 1))
    return table.filter(pc.or_(pa.concat_arrays([is_equal, end]), pa.concat_arrays([end, is_equal]))).combine_chunks()


def share_keys(table: pa.Table, other: pa.Table) -> pa.ChunkedArray:
    """Return, for each key in a table, whether it links to a key in another table (see `LinkKey`)."""
    import pyarrow.compute as pc

    named = other.filter(pc.invert(other["is_agent"]))["key"].combine_chunks()
    is_named = pc.is_in(table["key"], value_set=named)
    is_known = pc.is_in(table["key"], value_set=other["key"].combine_chunks())
    return pc.if_else(table["is_agent"], is_named, is_known)


def _rows_between(table: pa.Table, column: str, low: T, end: T | None) -> pa.Table:
    """Return the rows with `low <= value < end` of a table sorted by this column; None means no limit."""
    values = table[column]
    start, stop = (
        len(values) if bound is None else bisect_left(range(len(values)), bound, key=lambda n: values[n].as_py())
        for bound in (low, end)
    )
    return table.slice(start, stop - start)


# Merge


class RowSlice(NamedTuple):
    """A slice of an Arrow file that holds the rows of one partition."""

    key: PartitionKey
    path: str
    start: int
    rows: int
    bytes: int
    """The approximate size of the rows."""


class MergedRows(NamedTuple):
    """The rows of a batch of linked files."""

    slices: list[RowSlice]
    partitions: dict[int, set[PartitionKey]]
    """The partitions of each file, by its number."""


def merge_batch(objects: Sequence[SourceObject], *, folder: str, scratch: str) -> MergedRows:
    """Merge files into rows. The batch contains whole groups of linked files."""
    _return_memory()
    numbers = {item.uri: item.number for item in objects}
    name = min(numbers.values())
    slices: list[RowSlice] = []
    partitions: dict[int, set[PartitionKey]] = {}
    for table, columns in merge_facts(load_facts(objects, Path(folder))).items():
        if not columns["file"]:
            continue
        path = Path(scratch) / f"{name}-{table}.arrow"
        arrow = make_arrow_table(table, columns)
        write_arrow(path, arrow)
        start, row_bytes = 0, arrow.nbytes // arrow.num_rows
        pairs = zip(arrow["client"].to_pylist(), arrow["day"].to_pylist(), strict=True)
        for (client, day), own in groupby(pairs):
            count = len(list(own))
            key = PartitionKey(table, client, day)
            slices.append(RowSlice(key, str(path), start, count, count * row_bytes))
            start += count
        for uri, client, day in set(zip(columns["file"], columns["client"], columns["day"], strict=True)):
            partitions.setdefault(numbers[uri], set()).add(PartitionKey(table, client, day))
    return MergedRows(slices, partitions)


# Write


class WriteTask(NamedTuple):
    """A partition to write: new rows, and the old file whose other rows are kept."""

    key: PartitionKey
    slices: tuple[RowSlice, ...]
    old: str | None
    drops_rows: bool
    """True if the old file may contain rows to remove."""


def write_batch(tasks: Sequence[WriteTask], *, folder: str, dropped: str) -> list[Partition]:
    """Write partitions, removing old rows from the files in `dropped`. Empty partitions are omitted.

    perf: the rows of all partitions of a table are cast and sorted together, because each operation on a table has a
    fixed cost per column.
    """
    import pyarrow as pa

    _return_memory()
    uris = pa.array(decode_blob(Path(dropped).read_bytes(), list[str]), pa.string())
    groups = (list(group) for _, group in groupby(tasks, lambda task: task.key.table))
    return [partition for group in groups for partition in _write_partitions(group, folder, uris)]


def _write_partitions(tasks: Sequence[WriteTask], folder: str, dropped: pa.Array) -> list[Partition]:
    """Write partitions of one table."""
    schema = arrow_schema(tasks[0].key.table)
    write = partial(write_partition, Path(folder))
    small: list[WriteTask] = []
    written: list[Partition] = []
    for task in tasks:
        if task.old is None and sum(part.rows for part in task.slices) > ROW_GROUP_SIZE:
            written.append(write(task.key, schema, _sort_row_groups(task.slices, schema)))
        else:
            small.append(task)
    if not small:
        return written
    rows = _sort_rows(small, folder, dropped)
    counts = rows[_NUMBER].value_counts()
    keys = [small[number].key for number in counts.field("values").to_pylist()]
    lengths = counts.field("counts").to_pylist()
    slices = map(rows.drop_columns(_NUMBER).slice, accumulate(lengths, initial=0), lengths)
    if all(task.old is None for task in small):
        return [*written, *map(write, keys, repeat(schema), map(_divide_rows, slices))]
    with ThreadPoolExecutor(_UPDATE_THREADS) as pool:
        return [*written, *pool.map(write, keys, repeat(schema), map(_divide_rows, slices))]


def _divide_rows(rows: pa.Table) -> list[pa.Table]:
    """Divide the sorted rows of a partition into row groups."""
    if rows.num_rows <= ROW_GROUP_SIZE:
        return [rows]
    lengths = list(_split_row_groups([rows["file"]]).values())
    return list(map(rows.slice, accumulate(lengths, initial=0), lengths))


def _split_row_groups(files: Iterable[pa.ChunkedArray]) -> dict[str, int]:
    """Return the number of rows in each row group of a partition, keyed by the URI of its first file.

    All rows of a file are in the same group. `files` contains the URI of each row, in any order.
    """
    counts: Counter[str] = Counter()
    for names in files:
        own = names.value_counts()
        counts.update(dict(zip(own.field("values").to_pylist(), own.field("counts").to_pylist(), strict=True)))
    groups: dict[str, int] = {}
    first = ""
    for uri, rows in sorted(counts.items()):
        if not groups or groups[first] + rows > ROW_GROUP_SIZE:
            first = uri
        groups[first] = groups.get(first, 0) + rows
    return groups


def _sort_row_groups(slices: Sequence[RowSlice], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of a large partition in order, one row group at a time."""
    starts = list(_split_row_groups(_open_rows(part, ["file"], {})["file"] for part in slices))
    for first, end in zip(starts, (*starts[1:], None), strict=True):
        yield _load_row_group(slices, schema, first, end)


def _load_row_group(slices: Sequence[RowSlice], schema: pa.Schema, first: str, end: str | None) -> pa.Table:
    """Return the rows of the files from `first` up to but excluding `end`, sorted."""
    import pyarrow as pa

    copies = []
    for n in range(0, len(slices), _OPEN_SLICES):
        opened = [_open_rows(part, schema.names, {}) for part in slices[n : n + _OPEN_SLICES]]
        own = [_rows_between(rows, "file", first, end) for rows in opened]
        copies.append(pa.concat_tables(own).combine_chunks())
    rows = pa.concat_tables(copies).cast(schema)
    del opened, own, copies  # each copy below needs as much memory again
    return rows.combine_chunks().sort_by([("file", "ascending"), ("position", "ascending")])


def _sort_rows(tasks: Sequence[WriteTask], folder: str, dropped: pa.Array) -> pa.Table:
    """Return the rows of partitions with the number of their partition, in the order in which they are written."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    schema = arrow_schema(tasks[0].key.table)
    opened: dict[str, pa.Table] = {}
    new = [(n, _open_rows(part, schema.names, opened)) for n, task in enumerate(tasks) for part in task.slices]
    numbers = [n for n, task in enumerate(tasks) if task.old is not None]

    def read_old(number: int) -> pa.Table:
        return pq.ParquetFile(pa.OSFile(f"{folder}/{tasks[number].old}"), pre_buffer=False).read(use_threads=False)

    with ThreadPoolExecutor(_UPDATE_THREADS) as pool:  # starts no thread without tasks
        old = list(zip(numbers, pool.map(read_old, numbers), strict=True))
    parts = [_join_rows(rows, schema) for rows in (new, old) if rows]
    if old and any(task.drops_rows for task in tasks):
        parts[-1] = parts[-1].filter(pc.invert(pc.is_in(parts[-1]["file"], value_set=dropped)))
    rows = pa.concat_tables(parts)
    del opened, new, old, parts  # each copy below needs as much memory again
    rows = rows.combine_chunks()  # perf: `take` copies one chunk in a third of the time
    return rows.take(pc.sort_indices(rows, [(name, "ascending") for name in (_NUMBER, "file", "position")]))


def _join_rows(parts: Sequence[tuple[int, pa.Table]], schema: pa.Schema) -> pa.Table:
    """Join the rows of several partitions, adding the partition's number to each."""
    import pyarrow as pa

    numbers = [pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows) for number, rows in parts]
    rows = pa.concat_tables([rows for _, rows in parts]).cast(schema)
    return rows.append_column(_NUMBER, pa.concat_arrays(numbers))


def _open_rows(part: RowSlice, columns: list[str], opened: dict[str, pa.Table]) -> pa.Table:
    if part.path not in opened:
        opened[part.path] = open_arrow(part.path).select(columns)
    return opened[part.path].slice(part.start, part.rows)


def join_keys(
    out: Path, paths: Sequence[Path], numbers: Iterable[int], ranges: Iterable[tuple[int, int | None]]
) -> None:
    """Merge several key files into one, range by range, keeping only the keys of some file numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    tables = [open_arrow(path) for path in paths]
    listed = pa.array(sorted(numbers), pa.int64())
    temporary = out.with_name(f".{out.name}.new")
    with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, tables[0].schema) as writer:
        for bounds in ranges:
            table = pa.concat_tables([_rows_between(table, "key", *bounds) for table in tables])
            table = table.filter(pc.is_in(table["number"], value_set=listed))
            writer.write_table(table.sort_by([("key", "ascending"), ("number", "ascending")]))
    temporary.replace(out)
