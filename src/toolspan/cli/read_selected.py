"""One job per file that was named: locate, read on all cores, tell what cannot be read.

What a job gave for a file that has not changed since is taken from this user's cache; a job may
therefore depend on its file alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from toolspan.analysis.file_history.archive import file_mentions
from toolspan.cli.output import progress_bar, warn
from toolspan.cli.select import CallFilter, cache_for, locate_files
from toolspan.errors import NotFound, SourceError, ToolspanError
from toolspan.reading.discovery import TranscriptFile
from toolspan.reading.transcript import Transcript, read

if TYPE_CHECKING:
    from toolspan.reading.parallel import FileJob
    from toolspan.types.session import SessionInfo


class FileResult(Protocol):
    """What a job gives for one file."""

    @property
    def problem(self) -> str | None:
        """Why it could not be read."""
        ...


class SessionFileResult(FileResult, Protocol):
    """The same, with the session that the file tells of."""

    @property
    def file(self) -> str:
        """Its path."""
        ...

    @property
    def info(self) -> SessionInfo:
        """What is known of the session."""
        ...


T = TypeVar("T", bound=FileResult)
S = TypeVar("S", bound=SessionFileResult)
ProgressCallback = Callable[[int], None]


def read_selected_files(names: Sequence[str], job: FileJob[T], *, last: bool = False) -> tuple[list[T], bool]:
    """What the job gives for each file that the words name, and whether they are one set.

    Raises:
        ToolspanError: something does not exist, could be several things, or cannot be read.
    """
    files, joined = locate_files(names, last=last)
    with progress_bar(sum(file.size for file in files), "reading") as advance:
        results = list(map_files([file.path for file in files], job, advance))
    for result in results:
        if result.problem and len(results) == 1:
            raise ToolspanError(result.problem)
        if result.problem:
            warn(result.problem)
    return results, joined


def read_filtered_files(
    names: Sequence[str],
    job: FileJob[S],
    call_filter: CallFilter,
    *,
    last: bool,
    predicate: Callable[[S], bool] = lambda _: True,
) -> list[S]:
    """What the job gives for the files of the client, project and session that a filter names.

    Raises:
        ToolspanError: as `gather`; or there is no such session.
    """
    results, _ = read_selected_files(names, job, last=last)
    matching = [file for file in results if call_filter.accepts_file(file.file, file.info) and predicate(file)]
    if call_filter.session is not None and not matching:
        raise NotFound(f"no session begins with {call_filter.session!r}")
    return matching


def map_files(paths: Sequence[Path], job: FileJob[T], advance: ProgressCallback) -> Iterator[T]:
    """What the job gives for each file, in the order of the paths."""
    cache = cache_for(paths)
    if cache is None:
        from toolspan.reading.parallel import parallel_map

        return parallel_map(paths, job, advance=advance)
    from toolspan.reading.cache import cached_map

    return cached_map(paths, job, cache, advance=advance)


def read_transcripts(paths: Iterable[Path]) -> Iterator[Transcript]:
    """What can be read, read when its turn comes; what cannot be is told of and left out."""
    for path in paths:
        try:
            yield read(path)
        except SourceError as error:
            warn(error)


def transcripts_containing(text: str, files: Sequence[TranscriptFile]) -> Iterator[Transcript]:
    """The transcripts that have a word in them anywhere; one file that is alone is read anyway.

    Raises:
        SourceError: the only file cannot be read.
    """
    if len(files) == 1:
        yield read(files[0].path)
        return
    needle = text.encode("utf-8", "replace")
    with progress_bar(sum(file.size for file in files), "searching") as advance:
        for file in files:
            if file_mentions(file, needle):
                yield from read_transcripts([file.path])
            advance(file.size)
