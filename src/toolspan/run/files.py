"""What the conversation knows of files: which were seen, whole or in part, and as what.

A `FileState` is made when a call reads or writes a file. Edit and Write compare it with the disk:
a file counts as changed when its digest differs, whatever its time says.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from toolspan.ids import CallId


@dataclass(frozen=True, slots=True)
class FileState:
    """One file as a call last saw it."""

    digest: str
    mtime_ns: int
    size: int
    whole: bool
    """False when only some lines were read."""
    call_id: CallId | None = None
    """The call that saw it."""
    range: tuple[int, int | None] | None = None
    """Offset and limit of a partial read."""


class FileStates:
    """The files a conversation has seen."""

    def __init__(self) -> None:
        self._states: dict[Path, FileState] = {}

    def get(self, path: Path) -> FileState | None:
        """What is known of a file; None when no call has seen it."""
        return self._states.get(path)

    def saw(self, path: Path, state: FileState) -> None:
        """A call read or wrote the file."""
        self._states[path] = state

    def forget(self, path: Path) -> None:
        """The file is to be read anew."""
        self._states.pop(path, None)

    def __iter__(self) -> Iterator[Path]:
        return iter(self._states)
