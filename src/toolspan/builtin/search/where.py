"""Where a search starts, what keeps it from starting there, and how files are named.

In: a path as the model wrote it. Out: a `Place`, or a refusal in the client's words.
"""

import errno
import os
import stat
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from anyio import to_thread

from toolspan.disk.load import look
from toolspan.disk.place import placed
from toolspan.disk.words import clean
from toolspan.errors import ToolError
from toolspan.run.context import ToolContext
from toolspan.run.tool import Refusal

Wanted = Literal["folder", "any"]


@dataclass(frozen=True, slots=True)
class Place:
    """What is to be searched."""

    path: Path
    is_folder: bool


def place(given: object, ctx: ToolContext, wanted: Wanted) -> Place | Refusal:
    """The folder or file that a path leads to; no path is the current folder.

    Raises:
        ToolError: no file can have this name, or the way there is closed.
    """
    path = where(given, ctx)
    values = ctx.profile.search
    found = look(path)
    if found is None:
        text = values.no_folder if wanted == "folder" else values.no_path
        return Refusal(text.format(path=clean(str(path)), cwd=clean(str(ctx.cwd))), "not_found")
    if stat.S_ISDIR(found.st_mode):
        return Place(path, is_folder=True)
    if wanted == "folder":
        return Refusal(f"Path is not a directory: {clean(str(path))}", "invalid_input")
    if not stat.S_ISREG(found.st_mode):  # searching a pipe or a device would never end
        text = f"Path is neither a file nor a directory: {clean(str(path))}"
        return Refusal(text, "invalid_input")
    return Place(path, is_folder=False)


def where(given: object, ctx: ToolContext) -> Path:
    """The absolute path of what the model wrote.

    Raises:
        ToolError: no file can have this name.
    """
    home = ctx.workspace.environment.get("HOME")
    return placed(given, ctx.cwd, home) if isinstance(given, str) and given else ctx.cwd


async def refused_place(given: object, ctx: ToolContext, wanted: Wanted) -> Refusal | None:
    """Why it cannot be searched there; None when it can."""
    look = partial(place, given, ctx, wanted)
    found = await to_thread.run_sync(look, abandon_on_cancel=True)
    return found if isinstance(found, Refusal) else None


def checked(given: object, ctx: ToolContext, wanted: Wanted) -> Place:
    """The same for a search that is about to run.

    Raises:
        ToolError: it cannot be searched.
    """
    found = place(given, ctx, wanted)
    if isinstance(found, Refusal):
        early = ctx.profile.search.checks_early
        raise ToolError(found.text, kind=found.kind, wrapped=early)
    if ctx.profile.search.tells_unreadable:
        _open(found.path)
    return found


def _open(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "EUNKNOWN")
        raise ToolError(
            f"Refusing to search {clean(str(path))}: it could not be opened ({name}) — it is"
            " unreadable, or is being replaced concurrently.",
            kind="permission_os",
        ) from error


class Names:
    """Files as they are named: from the current folder when they are below it."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.fsencode(folder).rstrip(b"/") + b"/"

    def short(self, name: bytes) -> str:
        """The name from the current folder, or the whole one."""
        return text(name.removeprefix(self._folder))


def text(name: bytes) -> str:
    """A name, or a line, that can be printed and recorded."""
    return name.decode("utf-8", "replace")
