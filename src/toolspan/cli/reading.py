"""Transcripts that a command reads whole: those that can be, the others told of.

In: files. Out: `Transcript`s, one after another.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from toolspan.cli.output import complain, progress
from toolspan.errors import SourceError
from toolspan.read.discover import FoundFile
from toolspan.read.transcript import Transcript, read
from toolspan.report.files.gather import mentions


def readable(paths: Iterable[Path]) -> Iterator[Transcript]:
    """What can be read, read when its turn comes; what cannot be is told of and left out."""
    for path in paths:
        try:
            yield read(path)
        except SourceError as error:
            complain(error)


def mentioning(word: str, files: Sequence[FoundFile]) -> Iterator[Transcript]:
    """The transcripts that have a word in them anywhere; one file that is alone is read anyway.

    Raises:
        SourceError: the only file cannot be read.
    """
    if len(files) == 1:
        yield read(files[0].path)
        return
    needle = word.encode("utf-8", "replace")
    with progress(sum(file.size for file in files), "searching") as advance:
        for file in files:
            if mentions(file, needle):
                yield from readable([file.path])
            advance(file.size)
