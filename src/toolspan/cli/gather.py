"""One job per file that was named: locate, read on all cores, tell what cannot be read.

What a job gave for a file that has not changed since is taken from this user's cache; a job may
therefore depend on its file alone.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from toolspan.cli.output import complain, progress
from toolspan.cli.select import Filter, cache_for, locate
from toolspan.errors import NotFound, ToolspanError

if TYPE_CHECKING:
    from toolspan.model.session import SessionInfo
    from toolspan.read.spread import Job


class Read(Protocol):
    """What a job gives for one file."""

    @property
    def problem(self) -> str | None:
        """Why it could not be read."""
        ...


class OfSession(Read, Protocol):
    """The same, with the session that the file tells of."""

    @property
    def file(self) -> str:
        """Its path."""
        ...

    @property
    def info(self) -> "SessionInfo":
        """What is known of the session."""
        ...


T = TypeVar("T", bound=Read)
S = TypeVar("S", bound=OfSession)
Advance = Callable[[int], None]


def gather(names: Sequence[str], job: "Job[T]", *, last: bool = False) -> tuple[list[T], bool]:
    """What the job gives for each file that the words name, and whether they are one set.

    Raises:
        ToolspanError: something does not exist, could be several things, or cannot be read.
    """
    files, joined = locate(names, last=last)
    with progress(sum(file.size for file in files), "reading") as advance:
        found = list(done([file.path for file in files], job, advance))
    for one in found:
        if one.problem and len(found) == 1:
            raise ToolspanError(one.problem)
        if one.problem:
            complain(one.problem)
    return found, joined


def gather_meant(
    names: Sequence[str],
    job: "Job[S]",
    keep: Filter,
    *,
    last: bool,
    also: Callable[[S], bool] = lambda _: True,
) -> list[S]:
    """What the job gives for the files of the client, project and session that a filter names.

    Raises:
        ToolspanError: as `gather`; or there is no such session.
    """
    found, _ = gather(names, job, last=last)
    kept = [file for file in found if keep.takes_file(file.file, file.info) and also(file)]
    if keep.session is not None and not kept:
        raise NotFound(f"no session begins with {keep.session!r}")
    return kept


def done(paths: Sequence[Path], job: "Job[T]", advance: Advance) -> Iterator[T]:
    """What the job gives for each file, in the order of the paths."""
    cache = cache_for(paths)
    if cache is None:
        from toolspan.read.spread import spread

        return spread(paths, job, advance=advance)
    from toolspan.index.survey import recall

    return recall(paths, job, cache, advance=advance)
