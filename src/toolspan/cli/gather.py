"""One job per file that was named: locate, read on all cores, tell what cannot be read."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import click

from toolspan.cli.output import progress
from toolspan.cli.select import locate
from toolspan.errors import ToolspanError
from toolspan.report.spread import Job, spread


class Read(Protocol):
    """What a job gives for one file."""

    @property
    def problem(self) -> str | None:
        """Why it could not be read."""
        ...


T = TypeVar("T", bound=Read)


def gather(names: Sequence[str], job: Job[T], *, last: bool = False) -> tuple[list[T], bool]:
    """What the job gives for each file that the words name, and whether they are one set.

    Raises:
        ToolspanError: something does not exist, could be several things, or cannot be read.
    """
    files, joined = locate(names, last=last)
    with progress(sum(file.size for file in files), "reading") as advance:
        found = list(spread([file.path for file in files], job, advance=advance))
    for one in found:
        if one.problem and len(found) == 1:
            raise ToolspanError(one.problem)
        if one.problem:
            click.echo(f"toolspan: {one.problem}", err=True)
    return found, joined
