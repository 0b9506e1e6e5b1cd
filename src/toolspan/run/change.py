"""May a file be changed, and what the conversation knows of it afterwards.

In: a path and what calls have seen so far. Out: a refusal in the client's words, or nothing. For
tools that change parts of files; what they change is not known here.
"""

import stat
from pathlib import Path

from toolspan.disk.load import Loaded, Stamp, fingerprint
from toolspan.disk.place import real
from toolspan.disk.words import clean
from toolspan.run.context import ToolContext
from toolspan.run.files import FileState
from toolspan.run.tool import Refusal

UNREAD = "File has not been read yet. Read it first before writing to it."
STALE = (
    "File has been modified since read, either by the user or by a linter. Read it again before"
    " attempting to write it."
)


def known(path: Path, ctx: ToolContext) -> FileState | None:
    """What the conversation knows of a file, by its own name or that of what a link leads to."""
    return ctx.files.get(real(path)) or ctx.files.get(path)


def unread() -> Refusal:
    """The file has to be read first."""
    return Refusal(UNREAD, "read_required")


def stale(loaded: Loaded, state: FileState | None) -> Refusal | None:
    """The file is not as the conversation has seen it."""
    if state is None or state.digest == loaded.digest:
        return None
    return Refusal(STALE, "stale_file")


def not_a_file(path: Path, mode: int) -> Refusal | None:
    """There is something else than a regular file."""
    if stat.S_ISDIR(mode):
        return Refusal(f"{clean(str(path))} is a directory, not a file.", "is_directory")
    if not stat.S_ISREG(mode):
        return Refusal(f"{clean(str(path))} is not a regular file.", "invalid_input")
    return None


def wrote(path: Path, data: bytes, stamp: Stamp, ctx: ToolContext, *, whole: bool) -> None:
    """A call gave the file this content."""
    state = FileState(
        digest=fingerprint(data),
        mtime_ns=stamp.mtime_ns,
        size=stamp.size,
        whole=whole,
        call_id=ctx.call.id,
    )
    for name in {path, real(path)}:
        ctx.files.saw(name, state)
