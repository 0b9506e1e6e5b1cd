"""Write transcripts as tables. Start at `write_tables`.

1. *Read* each new or changed object into facts (`facts.py`), and keep them in the dataset's state folder.
2. *Link* files that share a key. Only hashes of the keys are compared.
3. *Merge* each group of linked files into rows (`merge.py`). Groups do not influence each other.
4. *Write* each partition that has new rows or loses old ones, sorted by file and position.

`steps.py` contains the steps as functions that both engines run. Rows depend only on the contents of the files, so
the tables are byte-identical for any engine, number of jobs and order of files.
"""

from __future__ import annotations

import fcntl
import gc
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from toolspan.errors import ToolspanError
from toolspan.formats import zstd
from toolspan.formats.source import is_remote, to_path
from toolspan.reading.cache import code_digest, compute_file_stamp, make_file_stamp
from toolspan.reading.discovery import find_transcripts, iter_folder
from toolspan.tables.dataset import (
    MANIFEST,
    STATE_FOLDER,
    Manifest,
    Partition,
    PartitionKey,
    load_manifest,
    partitions_by_key,
    remove_unlisted,
    replace_manifest,
    sorted_partitions,
    sync_files,
    write_file,
)
from toolspan.tables.engines import Engine, EngineName, make_engine
from toolspan.tables.facts import ReadOptions, TextRedactor
from toolspan.tables.merge import decode_blob, encode_blob
from toolspan.tables.schema import import_pyarrow
from toolspan.tables.steps import (
    ListedObject,
    RowSlice,
    SourceObject,
    WriteTask,
    join_keys,
    keys_file,
    link_range,
    merge_batch,
    open_arrow,
    read_batch,
    share_keys,
    write_batch,
    write_off,
)

_READ_BATCH_BYTES = 8 << 20
_FILE_WEIGHT = 1 << 13
"""The cost of a file, in bytes."""
_MERGE_BATCH_BYTES = 1 << 18
"""The size of the compressed facts in one merge task."""
_WRITE_BATCH_BYTES = 2 << 20
"""The size of the rows in one write task, before compression."""
_PARTITION_WEIGHT = 1 << 14
"""The cost of a partition, in bytes."""
_COMPRESSION = 6
"""The approximate compression factor of the rows in a partition."""
_BATCHES_PER_JOB = 4
_MAX_BATCHES = 4_096
"""The maximum number of batches; more would only use memory in the driver."""
_LINK_BATCH_KEYS = 1 << 17
_KEY_SPACE = 1 << 64
_MAX_KEY_FILES = 32
_JOINED_KEYS = f"{STATE_FOLDER}/joined-"
_UNLISTED = "unlisted "
"""The beginning of the stamp of a folder that cannot be listed."""

ProgressFactory = Callable[[int], AbstractContextManager[Callable[[int], None]]]
T = TypeVar("T")
R = TypeVar("R")


class State(Struct, frozen=True, kw_only=True):
    """The source objects of a dataset, and how they were read."""

    options: str
    objects: list[SourceObject]
    key_files: list[str]
    next_number: int


class TablesReport(Struct, frozen=True, kw_only=True):
    """The outcome of a run. `toolspan tables --json` prints it."""

    objects: int
    """Number of source objects in the dataset."""
    read: int
    """Number of objects that were new or changed."""
    removed: int
    """Number of objects that the sources no longer contain."""
    bytes_read: int
    unreadable: int
    """Number of objects that cannot be read; the table `findings` contains the reasons."""
    unlisted: list[str]
    """Folders that cannot be listed, each with the reason. Rows of the objects in them are kept from earlier runs."""
    partitions: int
    partitions_written: int
    rows: dict[str, int]
    """Number of rows by table."""
    table_bytes: int


def write_tables(
    sources: Sequence[str | Path],
    out: str | Path,
    *,
    engine: EngineName = "local",
    jobs: int | None = None,
    address: str | None = None,
    content: bool = False,
    redactor: Callable[[], TextRedactor] | None = None,
    progress: ProgressFactory = lambda _: nullcontext(lambda _: None),
) -> TablesReport:
    """Write the transcripts of files and folders to a dataset, or bring an existing dataset up to date.

    Only new and changed objects are read, and only affected partitions are written. A killed run leaves the dataset
    unchanged. If a folder in a source cannot be listed, the rows of its objects are kept, and `findings` has a row with
    the reason.

    Args:
        sources: files and folders. The dataset then contains their transcripts and no others.
        out: the folder of the dataset. With Ray, all nodes must see it under this path.
        engine: `local` for processes of this machine, `ray` for a cluster.
        jobs: how many tasks run at once; by default one per core.
        address: the Ray cluster; by default a new one on this machine.
        content: add the inputs and results of calls.
        redactor: makes a redactor for each file, such as `toolspan.export.SecretRedactor`.
        progress: is called with the number of bytes to read, and returns a context whose value is called with the
            number of bytes of each part that was read.

    Raises:
        SourceError: a source does not exist or cannot be listed, or `out` contains tables of another version.
        ToolspanError: an extra is missing, the cluster cannot be reached, or another run is writing to `out`.
    """
    import_pyarrow()
    if is_remote(out):
        raise ToolspanError(f"{out}: tables are written to a folder; copy it to a store afterwards")
    folder = Path(out)
    names = [str(source) for source in sources]
    listed = list_objects(names)
    options = ReadOptions(content=content, redactor=redactor)
    with _lock(folder):
        run = _Run(folder, options, [item for item in listed if item.problem])
        gc.freeze()  # perf: collecting the list of objects takes 10 % of a run that adds 1 %
        try:
            run.update(names, listed, lambda: make_engine(engine, jobs=jobs, address=address), progress)
        finally:
            gc.unfreeze()
        return run.report()


def list_objects(sources: Iterable[str]) -> list[ListedObject]:
    """Return the transcripts in the sources and the folders that cannot be listed, sorted, without duplicates.

    Raises:
        SourceError: a source does not exist or cannot be listed, or a store does not list some of its objects.
    """
    objects: dict[str, ListedObject] = {}

    def add_unlisted(path: str, error: OSError) -> None:
        problem = f"{path}: {error.strerror}; changes there are not in the tables"
        objects[path] = ListedObject(path, 0, f"{_UNLISTED}{error.errno}", problem=problem)

    for source in sources:
        path = to_path(source)
        if not is_remote(path) and os.path.isdir(path):  # noqa: PTH112 - does not raise
            for entry in iter_folder(path, add_unlisted):
                stamp = make_file_stamp(entry.path, entry.status, may_have_hook_log=entry.may_have_hook_log)
                objects[entry.path] = ListedObject(entry.path, entry.status.st_size, stamp or "")
        else:
            for file in find_transcripts(path):
                objects[str(file.path)] = ListedObject(str(file.path), file.size, compute_file_stamp(file.path) or "")
    return [objects[uri] for uri in sorted(objects)]


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Lock the folder against other runs."""
    if folder.is_dir() and not (folder / MANIFEST).exists():
        foreign = [item.name for item in folder.iterdir() if item.name not in (STATE_FOLDER, ".manifest.json.new")]
        if foreign and not (folder / STATE_FOLDER).is_dir():
            raise ToolspanError(f"{folder}: is not empty and contains no tables; name a new folder")
    state = folder / STATE_FOLDER
    state.mkdir(parents=True, exist_ok=True)
    with (state / "lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ToolspanError(f"{folder}: another run is writing there") from error
        yield


class _Run:
    """One run of `write_tables`."""

    def __init__(self, folder: Path, options: ReadOptions, unlisted: Sequence[ListedObject]) -> None:
        self._folder = folder
        self._options = options
        self._unlisted = unlisted
        self._old = load_manifest(folder)
        self._manifest = self._old
        self._scratch = folder / STATE_FOLDER / "run"
        if self._scratch.exists():  # a run was killed
            shutil.rmtree(self._scratch)
            remove_unlisted(folder, self._old)
        options_key = f"{code_digest()} {options.key}"
        state = _load_state(folder, self._old)
        self._partitions = partitions_by_key(self._old)
        if state is None or state.options != options_key:  # read everything again
            if self._old is not None and unlisted and (state is None or self._find_hidden(state.objects)):
                raise ToolspanError(
                    f"{unlisted[0].uri}: cannot be listed, and its rows cannot be kept because all files have to be "
                    "read again; make the folder readable, or write to a new folder"
                )
            self._partitions = {}
            state = State(options=options_key, objects=[], key_files=[], next_number=state.next_number if state else 0)
        self._state = state
        self._read_objects: list[ListedObject] = []
        self._removed = self._written = 0

    def update(
        self,
        names: list[str],
        listed: Sequence[ListedObject],
        make: Callable[[], Engine],
        progress: ProgressFactory,
    ) -> None:
        """Update the dataset."""
        stamps = {item.uri: item.stamp for item in self._state.objects}
        is_known = {item.uri for item in listed if item.stamp and stamps.get(item.uri) == item.stamp}
        is_known |= self._find_hidden(self._state.objects) - {item.uri for item in listed}
        first = self._state.next_number
        changed = [item for item in listed if item.uri not in is_known]
        changed = [item._replace(number=first + n) for n, item in enumerate(changed)]
        gone = [item for item in self._state.objects if item.uri not in is_known]
        self._read_objects = changed
        self._removed = _count_files(gone) - sum(item.uri in stamps for item in changed if not item.problem)
        if not (changed or gone) and self._old is not None and self._old.sources == names:
            return
        self._scratch.mkdir()
        engine = make()
        try:
            with progress(sum(item.size for item in changed)) as advance:
                fresh = self._read(changed, engine, advance)
            kept = [item for item in self._state.objects if item.uri in is_known]
            linked = self._find_linked(kept, gone, fresh)
            grouped = self._link([*linked, *fresh], engine, is_first=not self._state.objects)
            merged, slices = self._merge(grouped, engine)
            partitions = self._write(slices, [*linked, *gone], engine)
        finally:
            engine.close()
        numbers = {item.number for item in linked}
        self._commit(names, [*(item for item in kept if item.number not in numbers), *merged], partitions)
        shutil.rmtree(self._scratch)

    def _find_hidden(self, objects: Iterable[SourceObject]) -> set[str]:
        """Return the names of objects in folders that cannot be listed."""
        folders = tuple(f"{item.uri.rstrip(os.sep)}{os.sep}" for item in self._unlisted)
        hides_relative = "./" in folders
        return {
            item.uri
            for item in objects
            if item.uri.startswith(folders)
            or (hides_relative and not item.uri.startswith("/") and "://" not in item.uri)
        }

    def _read(
        self, changed: Sequence[ListedObject], engine: Engine, advance: Callable[[int], None]
    ) -> list[SourceObject]:
        """Read objects into packs of facts."""
        job = partial(read_batch, folder=str(self._folder), options=self._options)
        fresh: list[SourceObject] = []
        alone: list[tuple[ListedObject, ...]] = []
        tasks = _split(changed, lambda item: item.size + _FILE_WEIGHT, _READ_BATCH_BYTES, engine.jobs)
        for batch, objects in _run_tasks(engine, job, tasks):
            if objects is None:
                alone += [(item,) for item in batch]
                continue
            fresh += objects
            advance(sum(item.size for item in batch))
        for (item,), objects in engine.map(job, alone):
            fresh += objects or write_off(item, str(self._folder))
            advance(item.size)
        key_files = dict.fromkeys((*self._state.key_files, *(keys_file(item.pack) for item in fresh)))
        next_number = self._state.next_number + len(changed)
        self._state = replace(self._state, key_files=[*key_files], next_number=next_number)
        return sorted(fresh, key=lambda item: item.number)

    def _find_linked(
        self, kept: Sequence[SourceObject], gone: Sequence[SourceObject], fresh: Sequence[SourceObject]
    ) -> list[SourceObject]:
        """Return the unchanged objects that share, or used to share, a key with changed ones."""
        if not kept:
            return []
        import pyarrow as pa

        fresh_files = {keys_file(item.pack) for item in fresh}
        groups = {item.group for item in gone}
        numbers: set[int] = set()
        if fresh_files:
            new = pa.concat_tables([open_arrow(self._folder / name) for name in sorted(fresh_files)])
            for name in self._state.key_files:
                if name not in fresh_files:
                    table = open_arrow(self._folder / name)
                    numbers.update(table["number"].filter(share_keys(table, new)).to_pylist())
        groups |= {item.group for item in kept if item.number in numbers}
        return [item for item in kept if item.group in groups]

    def _link(self, objects: Sequence[SourceObject], engine: Engine, *, is_first: bool) -> list[SourceObject]:
        """Return the objects with their new groups. In a first run, all keys belong to `objects`."""
        paths = [str(self._folder / name) for name in self._state.key_files]
        numbers = None if is_first else frozenset(item.number for item in objects)
        job = partial(link_range, paths=paths, numbers=numbers)
        parents = {item.number: item.number for item in objects}

        def find_root(number: int) -> int:
            while parents[number] != number:
                parents[number] = number = parents[parents[number]]
            return number

        for item, pairs in _run_tasks(engine, job, _split_keys(paths)) if paths else ():
            for a, b in job(item) if pairs is None else pairs:
                first, second = sorted((find_root(a), find_root(b)))
                parents[second] = first
        return [replace(item, group=find_root(item.number)) for item in objects]

    def _merge(
        self, objects: Sequence[SourceObject], engine: Engine
    ) -> tuple[list[SourceObject], dict[PartitionKey, list[RowSlice]]]:
        """Merge groups of objects into rows. Return the objects with their partitions, and the rows by partition."""
        groups: dict[int, list[SourceObject]] = {}
        for item in objects:
            groups.setdefault(item.group, []).append(item)
        # Sorted by time, so that a task has rows for few days and a partition gets rows from few tasks.
        ordered = sorted(groups.values(), key=lambda group: min(item.started for item in group))
        batches = _split(ordered, lambda group: sum(item.length for item in group), _MERGE_BATCH_BYTES, engine.jobs)
        job = partial(merge_batch, folder=str(self._folder), scratch=str(self._scratch))
        tasks = [tuple(chain.from_iterable(batch)) for batch in batches]
        merged: list[SourceObject] = []
        slices: dict[PartitionKey, list[RowSlice]] = {}
        for batch, rows in _run_tasks(engine, job, tasks):
            result = job(batch) if rows is None else rows
            for part in result.slices:
                slices.setdefault(part.key, []).append(part)
            for item in batch:
                keys = encode_blob(sorted(result.partitions.get(item.number, ())))
                merged.append(replace(item, partition_keys=keys))
        return merged, slices

    def _write(
        self, new: Mapping[PartitionKey, Sequence[RowSlice]], dropped: Sequence[SourceObject], engine: Engine
    ) -> dict[PartitionKey, Partition]:
        """Write the partitions that change, and return all partitions."""
        old = self._partitions
        smaller = {key for item in dropped for key in item.partitions if key in old}
        keys = {*new, *smaller}
        tasks = [
            WriteTask(key, tuple(new.get(key, ())), old[key].path if key in old else None, key in smaller)
            for key in sorted(keys)
        ]
        path = self._scratch / "dropped"
        path.write_bytes(encode_blob(sorted(item.uri for item in dropped)))
        job = partial(write_batch, folder=str(self._folder), dropped=str(path))

        def weigh(task: WriteTask) -> int:
            size = sum(part.bytes for part in task.slices) + (old[task.key].bytes * _COMPRESSION if task.old else 0)
            return _PARTITION_WEIGHT + size

        partitions = {key: partition for key, partition in old.items() if key not in keys}
        for batch, written in _run_tasks(engine, job, _split(tasks, weigh, _WRITE_BATCH_BYTES, engine.jobs)):
            partitions |= {partition.key: partition for partition in (job(batch) if written is None else written)}
        self._written = sum(old.get(key) != partition for key, partition in partitions.items())
        return partitions

    def _commit(self, names: list[str], objects: list[SourceObject], partitions: dict[PartitionKey, Partition]) -> None:
        """Replace the manifest, and remove unused files."""
        objects.sort(key=lambda item: item.uri)
        used = {keys_file(item.pack) for item in objects}
        key_files = [name for name in self._state.key_files if name in used or name.startswith(_JOINED_KEYS)]
        if len(key_files) > _MAX_KEY_FILES:
            paths = [self._folder / name for name in key_files]
            key_files = [f"{_JOINED_KEYS}{self._state.next_number}"]
            join_keys(self._folder / key_files[0], paths, [item.number for item in objects], _split_keys(paths))
        data = zstd.compress(encode_blob(replace(self._state, objects=objects, key_files=key_files)))
        state = f"{STATE_FOLDER}/objects-{hashlib.sha256(data).hexdigest()[:24]}"
        write_file(self._folder / state, data)
        manifest = Manifest(
            sources=names,
            content=self._options.content,
            redacted=self._options.redactor is not None,
            partitions=[*sorted_partitions(partitions.values())],
            state=state,
            state_files=sorted({*(item.pack for item in objects), *key_files}),
        )
        before = {*(item.path for item in self._old.partitions), *self._old.state_files} if self._old else set()
        written = (*(item.path for item in manifest.partitions), *manifest.state_files, state)
        sync_files(self._folder / name for name in written if name not in before)
        replace_manifest(self._folder, manifest)
        self._manifest = manifest
        if self._old is not None:
            remove_unlisted(self._folder, manifest, self._old)
        self._state = replace(self._state, objects=objects)

    def report(self) -> TablesReport:
        """Return the outcome."""
        assert self._manifest is not None  # the first run always commits
        partitions = self._manifest.partitions
        return TablesReport(
            objects=_count_files(self._state.objects),
            read=sum(not item.problem for item in self._read_objects),
            removed=self._removed,
            bytes_read=sum(item.size for item in self._read_objects),
            unreadable=_count_files(item for item in self._state.objects if not item.is_readable),
            unlisted=[item.problem for item in self._unlisted],
            partitions=len(partitions),
            partitions_written=self._written,
            rows=self._manifest.count_rows(),
            table_bytes=sum(partition.bytes for partition in partitions),
        )


def _count_files(objects: Iterable[SourceObject]) -> int:
    return sum(not item.stamp.startswith(_UNLISTED) for item in objects)


def _load_state(folder: Path, manifest: Manifest | None) -> State | None:
    if manifest is None:
        return None
    try:
        data = zstd.decompress((folder / manifest.state).read_bytes())
        return decode_blob(data, State)
    except (OSError, ValueError, zstd.ZstdError):
        return None  # damaged: read everything again


def _split_keys(paths: Sequence[Path | str]) -> list[tuple[int, int | None]]:
    """Return key ranges that each fit into the memory of one task."""
    count = max(1, -(-sum(open_arrow(path).num_rows for path in paths) // _LINK_BATCH_KEYS))
    starts = [_KEY_SPACE * n // count for n in range(count)]
    return list(zip(starts, (*starts[1:], None), strict=True))


def _split(items: Sequence[T], weigh: Callable[[T], int], limit: int, jobs: int) -> list[tuple[T, ...]]:
    """Split items into batches of about `limit` weight, with several batches per job and at most `_MAX_BATCHES`."""
    weights = [weigh(item) for item in items]
    limit = max(sum(weights) // _MAX_BATCHES, min(limit, sum(weights) // (jobs * _BATCHES_PER_JOB) + 1))
    batches: list[tuple[T, ...]] = []
    batch: list[T] = []
    total = 0
    for item, weight in zip(items, weights, strict=True):
        batch.append(item)
        total += weight
        if total >= limit:
            batches.append(tuple(batch))
            batch, total = [], 0
    return [*batches, tuple(batch)] if batch else batches


def _run_tasks(engine: Engine, job: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[T, R | None]]:
    """Run tasks on the engine, or a single one here. A result is None if the processes that ran the task died."""
    if len(tasks) == 1:
        yield tasks[0], job(tasks[0])
    else:
        yield from engine.map(job, tasks)
