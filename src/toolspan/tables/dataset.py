"""The files of a dataset, and the manifest that lists them.

A run writes new files beside the old ones and then replaces `manifest.json`. Readers open only files listed in the
manifest, so a killed run leaves the previous dataset intact. The next run removes files that are not listed.

    OUT/manifest.json
    OUT/calls/client=claude/day=2026-11-02/part-0123456789abcdef.parquet
    OUT/_state/…    facts and links of the source files, for the next run
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct

from toolspan.errors import SourceError, ToolspanError
from toolspan.tables.schema import SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    import pyarrow as pa

MANIFEST = "manifest.json"
STATE_FOLDER = "_state"
ROW_GROUP_SIZE = 1 << 12
"""The maximum number of rows in a row group, unless a single file has more.

A worker holds one row group of a large partition at a time.
"""
_SYNC_THREADS = 16
_REPEATED_COLUMNS = frozenset({
    "acceptance", "agent", "batch", "branch", "code", "error_group", "error_kind", "error_program", "file", "kind",
    "mcp_server", "model", "parent_call", "path", "permission", "project", "prompt", "recorded_model", "recovered_by",
    "retry", "session", "severity", "state", "tool", "wait_certainty",
})  # fmt: skip
_FILTERED_COLUMNS = frozenset({"at", "file", "id", "requested", "session", "started", "state", "tool"})
"""Columns with dictionaries and statistics. perf: for all columns, small partitions would take twice the space and
time.
"""


class Partition(Struct, frozen=True, kw_only=True, order=True):
    """One Parquet file: the rows of a table for one client and day."""

    table: str
    client: str
    day: str
    path: str
    """The path relative to the dataset's folder."""
    rows: int
    bytes: int

    @property
    def key(self) -> PartitionKey:
        """The partition without its content."""
        return PartitionKey(self.table, self.client, self.day)


class PartitionKey(NamedTuple):
    """A partition of a table."""

    table: str
    client: str
    day: str

    @property
    def folder(self) -> str:
        """The folder relative to the dataset's folder."""
        return f"{self.table}/client={self.client}/day={self.day}"


class Manifest(Struct, frozen=True, kw_only=True):
    """The content of `manifest.json`."""

    schema_version: int = SCHEMA_VERSION
    sources: list[str]
    """The sources passed to the last run."""
    content: bool = False
    redacted: bool = False
    partitions: list[Partition]
    state: str
    """The file that lists the source objects, relative to the dataset's folder."""
    state_files: list[str]
    """Further files in the state folder that the next run needs."""

    def count_rows(self) -> dict[str, int]:
        """Return the number of rows of each table."""
        counts = dict.fromkeys(TABLES, 0)
        for partition in self.partitions:
            counts[partition.table] += partition.rows
        return counts


class Dataset:
    """A folder with tables.

    Raises:
        SourceError: the folder does not contain a dataset, or its version differs.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        manifest = load_manifest(self.folder)
        if manifest is None:
            raise SourceError(f"{folder}: no tables there; `toolspan tables SOURCE -o {folder}` writes them")
        self.manifest = manifest

    def files(self, table: str) -> list[str]:
        """Return the paths of a table's Parquet files."""
        if table not in TABLES:
            raise ToolspanError(f"no table {table!r}; the tables are {', '.join(TABLES)}")
        own = (partition for partition in self.manifest.partitions if partition.table == table)
        return [str(self.folder / partition.path) for partition in own]


def load_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder, or None if there is none.

    Raises:
        SourceError: it cannot be read or has another version.
    """
    path = folder / MANIFEST
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: not a manifest of tables ({error})") from error
    if manifest.schema_version != SCHEMA_VERSION:
        raise SourceError(
            f"{folder}: tables of schema version {manifest.schema_version}; this toolspan uses {SCHEMA_VERSION}: "
            "write them to another folder"
        )
    return manifest


def write_partition(folder: Path, key: PartitionKey, schema: pa.Schema, row_groups: Iterable[pa.Table]) -> Partition:
    """Write the sorted rows of a partition. Identical row groups produce an identical file with the same name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [column.name for column in TABLES[key.table]]
    rows = 0
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=3,
        version="2.6",
        data_page_version="1.0",
        use_dictionary=[name for name in names if name in _REPEATED_COLUMNS],
        write_statistics=[name for name in names if name in _FILTERED_COLUMNS],
        store_schema=False,  # perf: a copy of the schema would be a third of a small file
    ) as writer:
        for group in row_groups:
            writer.write_table(group, group.num_rows)
            rows += group.num_rows
            del group  # perf: free it before the next one is loaded
        writer.add_key_value_metadata(schema.metadata)
    data = sink.getvalue()
    digest = hashlib.sha256(memoryview(data)).hexdigest()[:16]
    path = f"{key.folder}/part-{digest}.parquet"
    write_file(folder / path, data)
    return Partition(table=key.table, client=key.client, day=key.day, path=path, rows=rows, bytes=data.size)


def write_file(path: Path, data: bytes | pa.Buffer) -> None:
    """Write a file whose name is derived from its content. An interrupted write leaves no file with that name."""
    temporary = path.parent / f".{path.name}.{os.getpid()}.new"
    try:
        stream = temporary.open("wb")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = temporary.open("wb")
    with stream:
        stream.write(memoryview(data))
    temporary.replace(path)


def sync_files(paths: Iterable[Path]) -> None:
    """Flush files and their folders to disk, concurrently, because the disk combines the writes."""

    def sync(names: Sequence[Path]) -> None:
        for name in names:
            descriptor = os.open(name, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    files = list(paths)
    names = [*files, *{folder for path in files for folder in (path.parent, path.parent.parent)}]
    with ThreadPoolExecutor(_SYNC_THREADS) as pool:
        list(pool.map(sync, [names[n::_SYNC_THREADS] for n in range(_SYNC_THREADS)]))


def replace_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the dataset's manifest. All files that it lists must already be on disk."""
    temporary = folder / f".{MANIFEST}.new"
    with temporary.open("wb") as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(folder / MANIFEST)
    sync_files([folder / MANIFEST])


def remove_unlisted(folder: Path, manifest: Manifest | None, old: Manifest | None = None) -> None:
    """Remove files that the manifest does not list: those of the previous dataset and of killed runs.

    With `old`, only files listed in that manifest are considered, which is faster.
    """
    listed = {partition.path for partition in manifest.partitions} if manifest else set()
    listed |= {manifest.state, *manifest.state_files} if manifest else set()
    if old is not None:
        paths = [*(partition.path for partition in old.partitions), old.state, *old.state_files]
        candidates = [folder / path for path in paths if path not in listed]
    else:
        roots = [folder / name for name in (*TABLES, STATE_FOLDER)]
        files = (path for root in roots if root.is_dir() for path in root.rglob("*") if path.is_file())
        candidates = [path for path in files if path.relative_to(folder).as_posix() not in listed]
    for path in candidates:
        path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            path.parent.rmdir()


def partitions_by_key(manifest: Manifest | None) -> dict[PartitionKey, Partition]:
    """Return the partitions of a manifest by their keys."""
    return {partition.key: partition for partition in manifest.partitions} if manifest else {}


def sorted_partitions(partitions: Iterable[Partition]) -> Sequence[Partition]:
    """Return partitions in the order of the manifest."""
    order = list(TABLES)
    return sorted(partitions, key=lambda item: (order.index(item.table), item.client, item.day))
