"""What is asked about files, and what is read for it."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

from toolspan.cli.output import complain, progress
from toolspan.cli.select import Filter, current_folder
from toolspan.model.span import moment
from toolspan.read.discover import FoundFile
from toolspan.report.files.archive import FileArchive
from toolspan.report.files.change import FileChange
from toolspan.report.files.gather import archive_about, archives
from toolspan.report.files.place import ends_with
from toolspan.report.files.walk import Attempt


class Wish(NamedTuple):
    """What is asked for."""

    path: str | None
    keep: Filter
    limit: int
    as_json: bool
    diff: bool


def takes(keep: Filter, one: FileChange | Attempt) -> bool:
    """Whether a change is wanted; files were chosen by client and project before."""
    if isinstance(one, Attempt):
        state, error = one.state, one.error_kind or ""
    else:
        state, error = "succeeded", ""
    at = moment(one.at)
    return (
        (not keep.tool or one.tool.casefold() in keep.tool)
        and (not keep.state or state in keep.state)
        and (not keep.error or error in keep.error)
        and (keep.session is None or (one.session or "").startswith(keep.session))
        and (keep.agent is None or (one.agent or "").startswith(keep.agent))
        and (keep.since is None or (at is not None and at >= keep.since))
        and (keep.until is None or (at is not None and at < keep.until))
    )


def read_all(files: Sequence[FoundFile]) -> Iterator[FileArchive]:
    """What is known of the files of each session; a transcript that cannot be read is told of."""
    with progress(sum(file.size for file in files), "reading") as advance:
        yield from archives(files, advance, _complain)


def about(files: Sequence[FoundFile], word: str) -> tuple[FileArchive, str]:
    """All that is known of the file a word means.

    Raises:
        NotFound: no call changed it, or several such files were changed.
    """
    name = PurePath(word.replace("\\", "/")).name
    with progress(sum(file.size for file in files), "reading") as advance:
        found = archive_about(files, name, lambda path: ends_with(path, name), advance, _complain)
    return found, found.find(word, str(current_folder()))


def _complain(words: str) -> None:
    """Tell of a transcript that could not be read."""
    complain(words)
