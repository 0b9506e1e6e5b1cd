"""Run a job on every file of an archive: on transcripts with a process pool and a cache, or on a Parquet dataset.

Questions ask an `Engine` for the result of a job per file, and do not know where it comes from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from toolspan.archive.reporter import Reporter
from toolspan.archive.sources import locate_files
from toolspan.errors import ToolspanError
from toolspan.formats.registry import foreign_file_problem, format_titles
from toolspan.formats.source import is_remote

if TYPE_CHECKING:
    from toolspan.reading.cache import Cache, StampedFiles
    from toolspan.reading.discovery import TranscriptFile
    from toolspan.reading.facts import FactKind, FileJob, FileSummary
    from toolspan.tables import Dataset

MIN_CACHED_BYTES = 4 << 20
"""The number of bytes below which reading is faster than opening the cache."""
PART_FILES = 10_000
"""The number of small files whose results are kept in memory, if a question can be answered part by part."""
_SMALL_FILE = 1 << 17
"""The size of a file whose results take about as much memory as what is known of every file."""


def list_fact_kinds() -> Sequence[FactKind[Any]]:
    """Return all kinds of facts that questions need."""
    from toolspan.analysis.agents import AGENTS
    from toolspan.analysis.context_size import CONTEXT  # perf: needed only if files have been read
    from toolspan.analysis.errors import ENDINGS
    from toolspan.analysis.file_history.archive import CHANGES
    from toolspan.analysis.file_time import TIMES, WAITS
    from toolspan.analysis.flows import FLOWS
    from toolspan.analysis.hooks import HOOKS
    from toolspan.analysis.prompts import PROMPTS
    from toolspan.analysis.risks import RISKS
    from toolspan.analysis.usage import USAGE
    from toolspan.reading.facts import CALLS, FAILURES

    return (CALLS, FAILURES, USAGE, ENDINGS, TIMES, WAITS, FLOWS, CONTEXT, CHANGES, PROMPTS, HOOKS, AGENTS, RISKS)


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


class FileMapper:
    """A way to run jobs on files: facts of unchanged files come from the cache, and several processes read the others.

    A server extends it for its worker processes.
    """

    def map(
        self,
        paths: Sequence[Path | str],
        job: FileJob[T],
        advance: Callable[[int], None] = lambda _: None,
        stamped: StampedFiles | None = None,
    ) -> Iterator[T]:
        """Yield the job's result for each file, in order. `stamped` are the same files for the cache."""
        size = 0 if stamped is None else MIN_CACHED_BYTES
        for path in paths:
            if is_remote(path):
                size = MIN_CACHED_BYTES  # requests take longer than opening the cache
            else:
                with suppress(OSError):
                    size += os.stat(path).st_size  # noqa: PTH116 - perf: without a `Path`
            if size >= MIN_CACHED_BYTES:
                from toolspan.reading.cache import Cache, default_folder

                if (folder := default_folder()) is not None:
                    return self.map_cached(stamped or paths, job, Cache(folder), advance)
                break
        return self.map_uncached(paths, job, advance)

    def map_cached(
        self, files: Sequence[Path | str] | StampedFiles, job: FileJob[T], cache: Cache, advance: Callable[[int], None]
    ) -> Iterator[T]:
        """Yield the result for each file, from the cache where possible."""
        from toolspan.reading.cache import cached_map

        return cached_map(files, job, cache, advance=advance, further_kinds=list_fact_kinds)

    def map_uncached(self, paths: Sequence[Path | str], job: FileJob[T], advance: Callable[[int], None]) -> Iterator[T]:
        """Yield the result for each file, reading all of them."""
        from toolspan.reading.parallel import parallel_map

        return parallel_map(paths, job, advance=advance)


class FileEngine:
    """An engine that reads transcripts."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        last: bool = False,
        reporter: Reporter,
        mapper: FileMapper | None = None,
        part_files: int = PART_FILES,
    ) -> None:
        """Create an engine for files, folders and sessions. `mapper` runs the jobs, by default in processes."""
        self.names = tuple(names)
        self.last = last
        self.reporter = reporter
        self.mapper = mapper or FileMapper()
        self.part_files = part_files

    def count_part(self, files: Sequence[TranscriptFile]) -> int:
        """Return the number of files in a part: fewer than `part_files` if the files are large."""
        return max(1, round(self.part_files / (1 + total_size(files) / max(1, len(files)) / _SMALL_FILE)))

    def locate(self) -> tuple[Sequence[TranscriptFile], bool]:
        """Return the transcripts and whether they are joined into sessions."""
        return locate_files(self.names, last=self.last, reporter=self.reporter)

    def read(self, job: FileJob[T]) -> tuple[list[T], bool]:
        """Return the job's result for each transcript, and whether the files are joined into sessions."""
        files, joined = self.locate()
        return read_files(self, files, job), joined

    def scan(self, paths: Sequence[Path]) -> Iterator[FileSummary]:
        """Yield the summary of each of these files."""
        from toolspan.reading.facts import SCAN_JOB

        return self.mapper.map(paths, SCAN_JOB)


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


def without_warnings(engine: Engine) -> Engine:
    """Return a copy of the engine that prints no warnings, for a first read whose warnings the next one repeats."""
    reporter = Reporter(progress=engine.reporter.progress)
    if isinstance(engine, FileEngine):
        return FileEngine(
            engine.names, last=engine.last, reporter=reporter, mapper=engine.mapper, part_files=engine.part_files
        )
    return TableEngine(engine.dataset, reporter) if isinstance(engine, TableEngine) else engine


def read_files(
    engine: FileEngine,
    files: Sequence[TranscriptFile],
    job: FileJob[T],
    stamped: StampedFiles | None = None,
    process: Callable[[T], None] = lambda _: None,
) -> list[T]:
    """Run a job on each file, warning about files that cannot be read.

    `stamped` are the same files for the cache. `process` is called with each result while the next files are read.

    Raises:
        ToolspanError: the only file cannot be read.
    """
    with engine.reporter.progress(total_size(files), "reading") as advance:
        results = read_all(engine.mapper, files, job, advance, stamped, process)
    if len(results) == 1 and results[0].problem:
        raise ToolspanError(results[0].problem)
    known = [result for file, result in zip(files, results, strict=True) if not is_foreign(file, result)]
    _warn_about_problems(known, engine.reporter)
    warn_about_skipped(len(results) - len(known), engine.reporter)
    return known


def read_all(
    mapper: FileMapper,
    files: Sequence[TranscriptFile],
    job: FileJob[T],
    advance: Callable[[int], None] = lambda _: None,
    stamped: StampedFiles | None = None,
    process: Callable[[T], None] = lambda _: None,
) -> list[T]:
    """Return the job's result for each file, without warnings."""
    results = []
    own = None
    if stamped is None and total_size(files) >= MIN_CACHED_BYTES:
        from toolspan.reading.cache import StampedFiles

        # perf: the listing has the status of each file, which is not asked for again
        stamped = own = StampedFiles.from_listing(files)
    for result in mapper.map([file.location for file in files], job, advance, stamped):
        process(result)
        results.append(result)
    if own is not None and own.storing is not None:
        own.storing.wait()
        own.storing = None  # perf: breaks a cycle, so that the names of the files are released
    return results


def total_size(files: Sequence[TranscriptFile]) -> int:
    """Return the number of bytes in all files."""
    from toolspan.reading.discovery import Listing

    return files.size if isinstance(files, Listing) else sum(file.size for file in files)


def is_foreign(file: TranscriptFile, result: FileResult) -> bool:
    """Return whether another program wrote the file."""
    return result.problem is not None and result.problem == foreign_file_problem(str(file.location))


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


def scan_with_cache(paths: Sequence[Path]) -> Iterator[FileSummary]:
    """Yield the summary of each file, from the cache where possible."""
    from toolspan.reading.facts import SCAN_JOB

    return FileMapper().map(paths, SCAN_JOB)
