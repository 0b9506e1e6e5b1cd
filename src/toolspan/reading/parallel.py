"""Run one job per file on all cores, or read ahead, in forked processes.

Only values are passed between processes, never objects with open files. Start at `parallel_map` or `read_ahead`; all
processes are started by `fork_process`.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import struct
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

import msgspec

from toolspan.errors import ToolspanError
from toolspan.formats.remote import RemotePath
from toolspan.formats.source import stat_file
from toolspan.reading.facts import SCAN_JOB, FileJob, FileSummary, ReadFacts, read_facts

IndexedTask = Callable[[int], object]
"""The work for one index. A result of type bytes is sent unchanged, and any other result is pickled."""

_PROCESSES_PER_CORE = 4
"""Number of processes per core for work that mostly waits."""
_SHARES_PER_WORKER = 64
"""Number of shares per process: many small ones, so that all processes finish at about the same time."""
_INDEX_FORMAT = struct.Struct("<I")
_RESULT_HEADER = struct.Struct("<IBQ")
_BYTES, _OBJECT, _ERROR, _END = range(4)
_KILLED = "a worker process was killed, perhaps because memory ran out"
_READ_LIMIT = 1 << 20
_AHEAD_BYTES = 1 << 20
"""Size of the pipe in `read_ahead`, where the system allows it: enough for the calls redacted while a file is read."""
_BATCH_BYTES = 1 << 16
"""perf: the results of a share are sent together up to this size, because each message wakes the parent process."""
_RESULT_PIPE_BYTES = 4 * _BATCH_BYTES
T = TypeVar("T")


def count_cores() -> int:
    """Return the number of processes that can run at once. A worker of a process pool uses one core."""
    return (os.cpu_count() or 1) if hasattr(os, "fork") and not is_pool_worker() else 1


def is_pool_worker() -> bool:
    """Return whether this process is a worker of a pool. It is a daemon then, and must not start other processes."""
    processes = sys.modules.get("multiprocessing.process")  # perf: nothing else needs to import it
    return processes is not None and bool(processes.current_process().daemon)


def fork_process(run: Callable[[], bool]) -> int:
    """Run a function in a copy of this process, and return its id. It exits with code 0 if the function returns True.

    Raises:
        OSError: the system allows no more processes.
    """
    if pid := os.fork():
        return pid
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process receives the signal too, and ends its copies
        gc.freeze()  # perf: exclude existing objects from collection, which would copy their memory pages
        if run():
            code = 0
    finally:
        os._exit(code)


class Epilogue:
    """Work that each process does after its last result, while the caller continues with the results."""

    def __init__(self, function: Callable[[], bool]) -> None:
        """Create an epilogue that calls `function` in each process."""
        self.function = function
        self.running: list[int] = []
        """The processes that may not have finished."""
        self.has_failed = False

    def run_here(self) -> None:
        """Call the function in this process."""
        self.has_failed |= not self.function()

    def wait(self) -> bool:
        """Wait for all processes. Return whether the function returned True in each of them."""
        while self.running:
            self.has_failed |= os.waitpid(self.running.pop(), 0)[1] != 0
        return not self.has_failed


def fork_map(
    sizes: Sequence[int], work: IndexedTask, *, waits: bool = False, epilogue: Epilogue | None = None
) -> Generator[object, None, None]:
    """Yield the result of `work` for each index of `sizes`, in order. `sizes` are the relative amounts of work.

    Work that `waits` for other machines gets more processes than there are cores. A caller that passes an `epilogue`
    must wait for it after the last result.

    Raises:
        ToolspanError: a process was killed.
        Exception: raised by `work`.
    """
    count = min(count_cores() * (_PROCESSES_PER_CORE if waits else 1), len(sizes))
    workers: list[_ForkedWorker] = []
    try:
        if count > 1:
            _start_workers(workers, count, list(_split_shares(sizes, count * _SHARES_PER_WORKER)), work, epilogue)
        if not workers:
            yield from map(work, range(len(sizes)))
            if epilogue is not None:
                epilogue.run_here()
            return
        early: dict[int, object] = {}
        next_index = 0
        for n, result in _iter_results(workers):
            early[n] = result
            while next_index in early:
                yield early.pop(next_index)
                next_index += 1
        if epilogue is not None:
            for pid, stream in workers:
                stream.close()
                epilogue.running.append(pid)
    finally:
        for pid, stream in workers:
            if not stream.closed:
                stream.close()
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


class _ForkedWorker(NamedTuple):
    """A worker process and the pipe from which its results are read.

    The pipe is closed when the process has ended or runs only its epilogue.
    """

    pid: int
    results: BinaryIO


def _start_workers(
    workers: list[_ForkedWorker], count: int, shares: Sequence[range], work: IndexedTask, epilogue: Epilogue | None
) -> None:
    """Start up to `count` processes, as many as the system allows."""
    read_end, write_end = os.pipe()
    os.write(write_end, b"".join(map(_INDEX_FORMAT.pack, range(len(shares)))))
    os.close(write_end)
    with open(read_end, "rb", buffering=0) as queue, suppress(OSError):  # noqa: PTH123
        for _ in range(count):
            read_end, write_end = _make_pipe(_RESULT_PIPE_BYTES)
            stream = open(read_end, "rb", buffering=0)  # noqa: PTH123, SIM115 - closed by `fork_map`
            inherited = [stream, *(worker.results for worker in workers)]
            try:
                pid = fork_process(partial(_run_worker, inherited, queue, shares, work, write_end, epilogue))
            except OSError:
                stream.close()
                raise
            finally:
                os.close(write_end)
            workers.append(_ForkedWorker(pid, stream))


def _make_pipe(size: int) -> tuple[int, int]:
    """Return the ends of a pipe, with a buffer of `size` bytes where the system allows it."""
    read_end, write_end = os.pipe()
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, size)
    return read_end, write_end


def _run_worker(
    inherited: Sequence[BinaryIO],
    queue: BinaryIO,
    shares: Sequence[range],
    work: IndexedTask,
    write_end: int,
    epilogue: Epilogue | None,
) -> bool:
    """Process shares from the queue until none are left, then run the epilogue. Return whether it succeeded."""
    for stream in inherited:
        stream.close()
    batch = bytearray()
    while number := queue.read(_INDEX_FORMAT.size):
        for n in shares[_INDEX_FORMAT.unpack(number)[0]]:
            kind, data = _run_task(work, n)
            batch += _RESULT_HEADER.pack(n, kind, len(data))
            if len(batch) + len(data) < _BATCH_BYTES:
                batch += data
                continue
            _write_all(write_end, batch)
            batch.clear()
            _write_all(write_end, data)
        _write_all(write_end, batch)
        batch.clear()
    _send(write_end, 0, _END, b"")
    return epilogue is None or epilogue.function()


def _run_task(work: IndexedTask, n: int) -> tuple[int, bytes]:
    """Return the result for an index, or the error, and its kind."""
    try:
        value = work(n)
    except Exception as error:  # noqa: BLE001 - raised again in the parent process
        return _ERROR, _dump_error(error)
    if isinstance(value, bytes):
        return _BYTES, value
    import pickle

    return _OBJECT, pickle.dumps(value)


def _send(write_end: int, n: int, kind: int, data: bytes) -> None:
    _write_all(write_end, _RESULT_HEADER.pack(n, kind, len(data)))
    _write_all(write_end, data)


def _write_all(write_end: int, data: bytes | bytearray) -> None:
    with memoryview(data) as rest:
        written = 0
        while written < len(rest):
            written += os.write(write_end, rest[written:])


def _iter_results(workers: Sequence[_ForkedWorker]) -> Iterator[tuple[int, object]]:
    """Yield the results of all processes until each has sent its last one. A later failure does not raise."""
    buffers = {worker.results.fileno(): bytearray() for worker in workers}
    poll = select.poll()
    for descriptor in buffers:
        poll.register(descriptor, select.POLLIN)
    while buffers:
        for descriptor, _ in poll.poll():
            data = os.read(descriptor, _READ_LIMIT)
            if not data:
                raise ToolspanError(_KILLED)
            buffer = buffers[descriptor]
            buffer += data
            for n, kind, value in _take_results(buffer):
                if kind == _END:
                    poll.unregister(descriptor)
                    del buffers[descriptor]
                elif kind == _BYTES:
                    yield n, value
                else:
                    import pickle

                    result = pickle.loads(value)
                    if kind == _ERROR:
                        raise result
                    yield n, result


def _take_results(buffer: bytearray) -> list[tuple[int, int, bytes]]:
    """Remove the complete results from the buffer. Return the index, kind and data of each."""
    results = []
    at, start = 0, _RESULT_HEADER.size
    with memoryview(buffer) as view:
        while start <= len(view):
            n, kind, length = _RESULT_HEADER.unpack_from(view, at)
            if start + length > len(view):
                break
            results.append((n, kind, bytes(view[start : start + length])))
            at = start + length
            start = at + _RESULT_HEADER.size
    del buffer[:at]
    return results


def _read_exactly(stream: BinaryIO, length: int) -> bytes:
    data = b""
    parts = []
    while length and (data := stream.read(min(length, _READ_LIMIT))):
        parts.append(data)
        length -= len(data)
    if length:
        raise EOFError
    return data if len(parts) == 1 else b"".join(parts)


_NESTED = _END + 1
"""The kind of an item of `read_ahead` that `_load_nested` loads."""


def read_ahead(produce: Callable[[], Iterable[T]]) -> Generator[T, None, None]:
    """Yield the items of `produce`, which runs in another process, ahead of the caller.

    The pipe between the processes limits how far ahead. If there is one core, `produce` runs in this process.

    Raises:
        ToolspanError: the process was killed.
        Exception: raised by `produce`.
    """
    if count_cores() < 2:
        yield from produce()
        return
    import pickle

    read_end, write_end = _make_pipe(_AHEAD_BYTES)
    with open(read_end, "rb") as stream:  # noqa: PTH123
        try:
            pid = fork_process(partial(_run_producer, stream, produce, write_end))
        except OSError:
            os.close(write_end)
            yield from produce()
            return
        os.close(write_end)
        try:
            while True:
                _, kind, length = _RESULT_HEADER.unpack(_read_exactly(stream, _RESULT_HEADER.size))
                if kind == _END:
                    return
                data = _read_exactly(stream, length)
                if kind == _ERROR:
                    raise pickle.loads(data)
                yield cast("T", _load_nested(data)) if kind == _NESTED else pickle.loads(data)
        except EOFError:
            raise ToolspanError(_KILLED) from None
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _run_producer(inherited: BinaryIO, produce: Callable[[], Iterable[object]], write_end: int) -> bool:
    """Send the items of `produce`. If the parent has ended, the next item raises an error."""
    import pickle

    inherited.close()
    try:
        for item in produce():
            try:
                kind, data = _OBJECT, pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
            except RecursionError:
                kind, data = _NESTED, _dump_nested(item)
            _send(write_end, 0, kind, data)
        kind, data = _END, b""
    except Exception as error:  # noqa: BLE001 - raised again in the parent process
        kind, data = _ERROR, _dump_error(error)
    _send(write_end, 0, kind, data)
    return True


def _dump_error(error: Exception) -> bytes:
    """Pickle an exception, or a `ToolspanError` with its message if it cannot be restored."""
    import pickle

    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:  # noqa: BLE001 - the exception's own code may raise anything
        return pickle.dumps(ToolspanError(f"{type(error).__name__}: {error}"))
    return data


def _dump_nested(item: object) -> bytes:
    """Pickle an item that contains lists or dictionaries nested too deeply for pickle. Marshal allows 2,000 levels."""
    import io
    import marshal
    import pickle

    class NestedPickler(pickle.Pickler):
        def persistent_id(self, value: object) -> bytes | None:
            if isinstance(value, list | dict):
                with suppress(ValueError):
                    return marshal.dumps(value)
            return None

    buffer = io.BytesIO()
    NestedPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(item)
    return buffer.getvalue()


def _load_nested(data: bytes) -> object:
    """Return the item that `_dump_nested` pickled."""
    import io
    import marshal
    import pickle

    class NestedUnpickler(pickle.Unpickler):
        def persistent_load(self, value: bytes) -> object:
            return marshal.loads(value)

    return NestedUnpickler(io.BytesIO(data)).load()


def _split_shares(sizes: Sequence[int], count: int) -> Iterator[range]:
    """Split the indexes into contiguous shares with about the same amount of work."""
    share = sum(sizes) / count
    start, held = 0, 0
    for n, size in enumerate(sizes):
        held += size
        if held >= share or n == len(sizes) - 1:
            yield range(start, n + 1)
            start, held = n + 1, 0


_SERIAL_LIMIT_BYTES = 12 << 20
"""perf: for less data than this, a process pool costs more time than it saves."""

SERIAL_OBJECTS = 64
"""perf: more objects than this are requested by several processes, even if they are small. Connecting to a store takes
each process about as long as reading ten small objects.
"""

AdvanceCallback = Callable[[int], None]
FactsCallback = Callable[[int, list[Any], list[bytes | None]], None]


def parallel_map(
    paths: Sequence[Path | str],
    job: FileJob[T],
    *,
    advance: AdvanceCallback = lambda _: None,
    on_facts: FactsCallback | None = None,
    epilogue: Epilogue | None = None,
    read: ReadFacts = read_facts,
) -> Iterator[T]:
    """Yield the job's result for each path, in order. `advance` is called with the number of bytes processed.

    `on_facts` is called in the process that read a file with `read`, with its index, the facts of each kind, and their
    encoded form. The `epilogue` follows the last result of each process, as in `fork_map`.
    """
    sizes: list[int] = []
    remote_count = 0
    for path in paths:
        remote_count += isinstance(path, RemotePath)
        try:
            sizes.append(stat_file(path).st_size)
        except OSError:
            sizes.append(0)
    if (sum(sizes) < _SERIAL_LIMIT_BYTES and remote_count <= SERIAL_OBJECTS) or count_cores() == 1:
        for n, (path, size) in enumerate(zip(paths, sizes, strict=True)):
            facts = read(path, job.kinds)
            if on_facts is not None:
                on_facts(n, facts, [kind.encode(item) for kind, item in zip(job.kinds, facts, strict=True)])
            yield job.join(*facts)
            advance(size)
        if epilogue is not None:
            epilogue.run_here()
        return
    _import_readers(paths, finds_causes=job.finds_causes)

    def run_job(n: int) -> object:
        facts = read(paths[n], job.kinds)
        encoded = [kind.encode(item) for kind, item in zip(job.kinds, facts, strict=True)]
        if on_facts is not None:
            on_facts(n, facts, encoded)
        return facts if None in encoded else msgspec.msgpack.encode(encoded)

    decode = msgspec.msgpack.Decoder(list[bytes]).decode
    results = fork_map(sizes, run_job, waits=remote_count > 0, epilogue=epilogue)
    for result, size in zip(results, sizes, strict=True):
        if isinstance(result, bytes):
            facts = [kind.decode(data) for kind, data in zip(job.kinds, decode(result), strict=True)]
        else:
            facts = cast("list[Any]", result)
        yield job.join(*facts)
        advance(size)


def _import_readers(paths: Iterable[Path | str], *, finds_causes: bool) -> None:
    """Import the modules that read these files before forking, so that not every worker imports them."""
    from toolspan.formats.registry import format_of_path
    from toolspan.formats.source import BytesSource

    if finds_causes:
        import toolspan.reading.causes  # noqa: F401
        from toolspan.shell.exit_status import failing_programs

        failing_programs("$(true)")  # creates the shell parser, which plain commands do not need
    for transcript_format in {format_of_path(path) for path in paths}:
        transcript_format.make_reader(BytesSource(b""), None)


def scan_files(paths: Sequence[Path], *, advance: AdvanceCallback = lambda _: None) -> Iterator[FileSummary]:
    """Yield the summaries of many files, in order. `advance` is called with the number of bytes processed."""
    return parallel_map(paths, SCAN_JOB, advance=advance)
