"""A worker process: it answers questions one after another, and keeps the files that grow in memory.

`pool.py` starts the workers and sends them requests. Modules that questions need are imported here, because workers are
forked from a process that has imported this module. Start at `run_worker`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence, Set
from importlib import import_module
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from toolspan.archive.engine import FileMapper, FileResult, list_fact_kinds
from toolspan.archive.reporter import Reporter
from toolspan.formats.registry import all_formats
from toolspan.formats.source import stat_file
from toolspan.reading.cache import Cache, StampedFiles, cached_map, find_current, is_stable
from toolspan.reading.facts import FactKind, FileJob, FileReading, measure_facts, read_facts
from toolspan.reading.growing import GrowingFile, KeptFiles
from toolspan.reading.parallel import parallel_map
from toolspan.reading.transcript import Transcript
from toolspan.web.questions import Answer, Question, WorkerRequest, answer_question, collect_answer
from toolspan.web.timeline import SessionTimeline

for _name in ("sessions", "calls", "errors", "stats", "usage", "time", "search", "files", "session", "overview", "why",
              "compare", "doctor", "flows", "context"):  # fmt: skip
    import_module(f"toolspan.archive.{_name}")  # perf: otherwise, opening a session takes twice as long
for _name in ("web.call_records", "analysis.search.find"):
    import_module(f"toolspan.{_name}")
for _format in all_formats():
    _format.narrow_input("", b"{}")  # perf: imports the types of inputs

T = TypeVar("T", bound=FileResult)
_GC_THRESHOLD = 100_000
"""perf: answers create many objects and few cycles."""
_OWN_ZONE = os.environ.get("TZ")
_UNREAD_BYTES = 16 << 20
_UNREAD_FILES = 400
"""perf: fewer files are read by one worker, because sharing them among all takes longer."""
_STORED_FILES = 100
"""The number of files after which their facts are stored."""
_MAX_PEAK_BYTES = 96 << 20
_IDLE_SECONDS = 60.0
"""The time without a question after which growing files are no longer kept in memory."""
_MAX_TIMELINES = 8
_MAX_TIMELINE_BYTES = 12 << 20
"""The limit for the largest answers of all timelines together, a measure of their memory (about 45,000 calls)."""
_TIMELINE_SECONDS = 600.0


def run_worker(connection: Connection) -> None:
    """Answer requests until the server closes the connection. This is the main function of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when to stop
    threading.Thread(target=_exit_with_server, daemon=True).start()
    gc.set_threshold(_GC_THRESHOLD, *gc.get_threshold()[1:])
    gc.freeze()
    worker = _Worker()
    with connection, contextlib.suppress(EOFError, OSError):
        while True:
            while not connection.poll(worker.seconds_to_idle):
                worker.forget_idle()
                if worker.is_used_up:
                    return
            request, started = connection.recv(), time.process_time()
            answer = worker.answer(request).compress()
            connection.send_bytes(answer.body)  # not in a pickle, which would copy it
            answer = replace(answer, body=b"", cpu_seconds=time.process_time() - started)
            connection.send((answer, worker.is_used_up))
            del answer
            _return_memory()


def _exit_with_server() -> None:
    server = parent_process()
    if server is not None:
        server.join()
        os._exit(1)  # also while a question is being answered


def _limit_cpu_time(seconds: float) -> None:
    """Let the system end this process when it has used so much CPU time, even in a regular expression; 0 for no limit.

    A busy machine is no reason to end a question, so the time of other processes does not count.
    """
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _peak_memory() -> int:
    """Return the most memory in bytes that this process has used so far; 0 if the system does not count it."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _return_memory() -> None:
    """Return free memory to the system, if the C library supports it (glibc)."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class _Worker:
    """The files and timelines that a worker keeps between questions."""

    def __init__(self) -> None:
        self._files = KeptFiles()
        self._timelines = _Timelines()
        self._is_idle = True
        self._is_background = False

    @property
    def seconds_to_idle(self) -> float | None:
        """The time after which `forget_idle` is called, if no request arrives; None for never."""
        return None if self._is_idle else _IDLE_SECONDS

    @property
    def is_used_up(self) -> bool:
        """True if only the end of the process returns the memory that it needed, or its priority.

        A process that keeps files or timelines continues.
        """
        if self._is_background:
            return True
        return not self._files and not self._timelines and _peak_memory() > _MAX_PEAK_BYTES

    def forget_idle(self) -> None:
        """Forget the files, and the timelines that no page has requested for a while."""
        self._files.clear()
        self._timelines.drop_old()
        self._is_idle = not self._timelines
        gc.collect()
        _return_memory()

    def answer(self, request: WorkerRequest) -> Answer:
        """Return the answer to a request. A fault becomes an error with status 500."""
        self._is_idle = False
        try:
            version = request.version
            if version is not None:
                return collect_answer(
                    request.question, lambda reporter: self._timelines.read_changes(request.question, version, reporter)
                )
            self._set_zone(request.question.zone)
            _limit_cpu_time(request.seconds or 0)
            self._files.keep(request.growing)
            if request.adds_facts:
                self._is_background = True
                with contextlib.suppress(OSError, AttributeError):
                    os.nice(19)
            return answer_question(request.question, _WorkerMapper(self._read_growing, request))
        except _UnreadFilesError:
            return Answer(is_unread=True)
        except Exception as error:  # noqa: BLE001 - a fault must reach the page
            import traceback

            traceback.print_exc(file=sys.stderr)
            return Answer(error=f"{type(error).__name__}: {error}", status=500)
        finally:
            _limit_cpu_time(0)

    def _set_zone(self, zone: str | None) -> None:
        """Compute days in a time zone, or in that of the server."""
        zone = zone or _OWN_ZONE
        if zone == os.environ.get("TZ") or not hasattr(time, "tzset"):
            return
        if zone is None:
            os.environ.pop("TZ", None)
        else:
            os.environ["TZ"] = zone
        time.tzset()

    def _read_growing(self, path: Path | str) -> Transcript | None:
        """Return the transcript of a file that this worker keeps, or None if it must be read from the start."""
        file = self._timelines.find_file(path)
        return self._files.read(path) if file is None else file.read_transcript()


class _UnreadFilesError(Exception):
    """Many files must be read before a question can be answered, or this worker has read its share of them."""


class _WorkerMapper(FileMapper):
    """Run jobs in this process alone, and take growing files from memory."""

    def __init__(self, read_growing: Callable[[Path | str], Transcript | None], request: WorkerRequest) -> None:
        self._read_growing = read_growing
        self._share = request.share
        self._adds_facts = request.adds_facts

    def map_cached(
        self, files: Sequence[Path | str] | StampedFiles, job: FileJob[T], cache: Cache, advance: Callable[[int], None]
    ) -> Iterator[T]:
        """Yield the result for each file.

        Raises:
            _UnreadFilesError: many files are not cached. Those of this worker's share are now.
        """
        stamped = files if isinstance(files, StampedFiles) else StampedFiles(files)
        if self._adds_facts:
            whole_job = job.with_kinds(list_fact_kinds())
            unread = _unread_files(stamped, find_current(stamped, whole_job, cache))
            self._read_share(stamped, list(unread), whole_job, cache)
            raise _UnreadFilesError
        current = find_current(stamped, job, cache)
        if self._share is None or self._share.count > 1:
            unread = _unread_files(stamped, current)
            if sum(unread.values()) > _UNREAD_BYTES or len(unread) > _UNREAD_FILES:
                if self._share is not None:
                    numbers = sorted(unread, key=lambda n: unread[n], reverse=True)  # so that the shares are similar
                    self._read_share(stamped, numbers[self._share.number :: self._share.count], job, cache)
                raise _UnreadFilesError
        return cached_map(files, job, cache, advance=advance, current=current, read=self._read_facts)

    def _read_share(self, files: StampedFiles, numbers: Sequence[int], job: FileJob[T], cache: Cache) -> None:
        for start in range(0, len(numbers), _STORED_FILES):
            some = numbers[start : start + _STORED_FILES]
            share = StampedFiles([files.paths[n] for n in some], [files.stamps[n] for n in some])
            for _ in cached_map(share, job, cache, current=set(), read=self._read_facts):
                pass

    def map_uncached(self, paths: Sequence[Path | str], job: FileJob[T], advance: Callable[[int], None]) -> Iterator[T]:
        """Yield the result for each file, reading all of them."""
        return parallel_map(paths, job, advance=advance, read=self._read_facts)

    def _read_facts(self, path: Path | str, kinds: Sequence[FactKind[Any]]) -> list[Any]:
        transcript = self._read_growing(path)
        return (
            read_facts(path, kinds)
            if transcript is None
            else measure_facts(FileReading(path, transcript=transcript), kinds)
        )


def _unread_files(files: StampedFiles, current: Set[int]) -> dict[int, int]:
    """Return the sizes of the files that are not cached but can be, because they have not just been changed."""
    sizes, now = {}, time.time_ns()
    for n, (path, stamp) in enumerate(zip(files.paths, files.stamps, strict=True)):
        if n not in current and stamp is not None and is_stable(stamp, now):
            with contextlib.suppress(OSError):
                sizes[n] = stat_file(path).st_size
    return sizes


class _Timelines:
    """The timelines of sessions whose pages are open.

    There are limits for their number and size. A timeline that was requested in the last minute, whose page is open, is
    not dropped in favour of another. Instead, the newest one is, so that open pages do not drop each other's timelines.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[Question, _KeptTimeline] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def read_changes(self, question: Question, version: str, reporter: Reporter) -> Sequence[bytes]:
        """Return the changes of a timeline since a version.

        Raises:
            ToolspanError: the session does not exist, or cannot be read.
        """
        entry = self._entries.pop(question, None)
        if entry is None:
            entry = _KeptTimeline(SessionTimeline(question.names, question.get("session")))
        entry.timeline.reporter = reporter
        data = entry.timeline.encode_changes(version)
        entry.size = max(entry.size, len(data))
        entry.requested_at = time.monotonic()
        self._entries[question] = entry  # the newest last; without it if there was an error
        for name in [name for name, entry in self._entries.items() if entry.age > _IDLE_SECONDS]:
            if not self._are_few():
                del self._entries[name]
        if len(self._entries) > 1 and not self._are_few():
            del self._entries[question]
        return [data]

    def _are_few(self) -> bool:
        size = sum(entry.size for entry in self._entries.values())
        return len(self._entries) <= _MAX_TIMELINES and size <= _MAX_TIMELINE_BYTES

    def drop_old(self) -> None:
        """Drop the timelines that have not been requested for ten minutes."""
        for name in [name for name, entry in self._entries.items() if entry.age > _TIMELINE_SECONDS]:
            del self._entries[name]

    def find_file(self, path: Path | str) -> GrowingFile | None:
        """Return a growing file that a timeline has read, if there is one."""
        for entry in self._entries.values():
            if (file := entry.timeline.growing_file(Path(path))) is not None:
                return file
        return None


class _KeptTimeline:
    """A timeline, the size of its largest answer, and the time of its last request."""

    def __init__(self, timeline: SessionTimeline) -> None:
        self.timeline = timeline
        self.size = 0
        self.requested_at = 0.0

    @property
    def age(self) -> float:
        """The seconds since the last request."""
        return time.monotonic() - self.requested_at
