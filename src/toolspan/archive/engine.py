"""Run a job on every file of an archive: on transcripts with a process pool and a cache, or on a Parquet dataset.

Questions ask an `Engine` for the result of a job per file, and do not know where it comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from toolspan.archive.reporter import Reporter
from toolspan.archive.sources import locate_files
from toolspan.errors import ToolspanError
from toolspan.formats.registry import foreign_file_problem, format_titles
from toolspan.formats.source import is_remote

if TYPE_CHECKING:
    from toolspan.reading.cache import StampedFiles
    from toolspan.reading.discovery import TranscriptFile
    from toolspan.reading.parallel import FileJob, FileSummary
    from toolspan.tables import Dataset

MIN_CACHED_BYTES = 4 << 20
"""The number of bytes below which reading is faster than opening the cache."""


class FileResult(Protocol):
    """The result of a job for one file."""

    @property
    def problem(self) -> str | None:
        """The reason why the file could not be read."""


T = TypeVar("T", bound=FileResult)


class Engine(Protocol):
    """A set of files on which jobs run."""

    names: tuple[str, ...]
    """The files, folders and sessions that the user named, for commands that repeat a question."""
    reporter: Reporter

    def read(self, job: FileJob[T]) -> tuple[list[T], bool]:
        """Return the job's result for each transcript, and whether the files are joined into sessions."""
        ...

    def without_warnings(self) -> Engine:
        """Return an engine for the same files that does not repeat warnings, for a second job of one question."""
        ...


class FileEngine:
    """An engine that reads transcripts."""

    def __init__(self, names: Sequence[str], *, last: bool, reporter: Reporter) -> None:
        self.names = tuple(names)
        self.last = last
        self.reporter = reporter

    def locate(self) -> tuple[list[TranscriptFile], bool]:
        """Return the transcripts and whether they are joined into sessions."""
        return locate_files(self.names, last=self.last, reporter=self.reporter)

    def read(self, job: FileJob[T]) -> tuple[list[T], bool]:
        """Return the job's result for each transcript, and whether the files are joined into sessions."""
        files, joined = self.locate()
        return read_files(files, job, self.reporter), joined

    def without_warnings(self) -> FileEngine:
        """Return an engine for the same files that does not repeat warnings."""
        return FileEngine(self.names, last=self.last, reporter=Reporter(progress=self.reporter.progress))


class TableEngine:
    """An engine that reads a Parquet dataset."""

    def __init__(self, dataset: Dataset, reporter: Reporter) -> None:
        self.dataset = dataset
        self.names = tuple(dataset.manifest.sources)
        self.reporter = reporter

    def read(self, job: FileJob[T]) -> tuple[list[T], bool]:
        """Return the job's result for each transcript in the tables."""
        from toolspan.tables.query import count_foreign_files, load_results

        results = _warn_about_problems(load_results(self.dataset, job), self.reporter)
        warn_about_skipped(count_foreign_files(self.dataset), self.reporter)
        return results, True

    def without_warnings(self) -> TableEngine:
        """Return an engine for the same tables that does not repeat warnings."""
        return TableEngine(self.dataset, Reporter(progress=self.reporter.progress))


def read_files(
    files: Sequence[TranscriptFile],
    job: FileJob[T],
    reporter: Reporter,
    stamped: StampedFiles | None = None,
    process: Callable[[T], None] = lambda _: None,
) -> list[T]:
    """Run a job on each file, warning about files that cannot be read.

    `stamped` are the same files for the cache. `process` is called with each result while the next files are read.

    Raises:
        ToolspanError: the only file cannot be read.
    """
    results = []
    size = sum(file.size for file in files)
    own = None
    if stamped is None and size >= MIN_CACHED_BYTES:
        from toolspan.reading.cache import StampedFiles

        # perf: the listing has the status of each file, which is not asked for again
        stamped = own = StampedFiles.from_listing(files)
    with reporter.progress(size, "reading") as advance:
        for result in map_files([file.path for file in files], job, advance, stamped):
            process(result)
            results.append(result)
    if own is not None and own.storing is not None:
        own.storing.wait()
    if len(results) == 1 and results[0].problem:
        raise ToolspanError(results[0].problem)
    unread = [file for file, result in zip(files, results, strict=True) if result.problem]
    foreign = {foreign_file_problem(str(file.path)) for file in unread}
    transcripts = _warn_about_problems([result for result in results if result.problem not in foreign], reporter)
    warn_about_skipped(len(results) - len(transcripts), reporter)
    return transcripts


def _warn_about_problems(results: list[T], reporter: Reporter) -> list[T]:
    for problem in filter(None, (result.problem for result in results)):
        reporter.warn(problem)
    return results


def warn_about_skipped(count: int, reporter: Reporter) -> None:
    """Warn that files from other programs were skipped."""
    if count:
        subject = (
            "1 file skipped: it is not a transcript"
            if count == 1
            else f"{count:,} files skipped: they are not transcripts"
        )
        reporter.warn(f"{subject} of {format_titles()}")


def map_files(
    paths: Sequence[Path],
    job: FileJob[T],
    advance: Callable[[int], None] = lambda _: None,
    stamped: StampedFiles | None = None,
) -> Iterator[T]:
    """Yield the job's result for each file, in order. Results for unchanged files come from the cache."""
    from toolspan.reading.parallel import parallel_map

    size = 0
    for path in paths:
        if is_remote(path):
            size = MIN_CACHED_BYTES  # requests take longer than opening the cache
        else:
            with suppress(OSError):
                size += path.stat().st_size
        if size >= MIN_CACHED_BYTES:
            from toolspan.reading.cache import Cache, cached_map, default_folder

            if (folder := default_folder()) is not None:
                return cached_map(stamped or paths, job, Cache(folder), advance=advance)
            break
    return parallel_map(paths, job, advance=advance)


def scan_with_cache(paths: Sequence[Path]) -> Iterator[FileSummary]:
    """Yield the summary of each file, from the cache where possible."""
    from toolspan.reading.parallel import SCAN_JOB

    return map_files(paths, SCAN_JOB)
