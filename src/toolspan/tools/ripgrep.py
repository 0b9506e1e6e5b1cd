"""Run ripgrep: no shell, nothing kept that nobody wants, ended when enough was heard.

In: arguments, a folder to start in, somebody who takes the output in pieces. Knows nothing of what
the arguments mean.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import anyio
from anyio import to_thread

from toolspan.errors import ToolError
from toolspan.files.paths import replace_surrogates, resolve_path
from toolspan.files.safe_read import stat_path
from toolspan.runtime.context import ToolContext
from toolspan.runtime.process import ChildProcess, Command, StartError
from toolspan.runtime.tool import Refusal

_ERROR_EXIT_CODE = 2
"""How ripgrep exits when it refused, or met a file it could not read."""
_REJECTED_MESSAGE = "Search failed — ripgrep rejected the pattern, glob, or file type without searching:\n{}"
_MEMORY_LIMIT = 1 << 16
_COMMON_ARGUMENTS = ("--no-config", "--no-messages", "--color=never", "--hidden", "--null")

OutputHandler = Callable[[bytes], bool]
"""Gets the output in pieces, in the event loop; True: enough was heard."""


async def run_ripgrep(ctx: ToolContext, arguments: Sequence[str], folder: Path, handle_output: OutputHandler) -> None:
    """Search, and hand over what is found.

    Raises:
        ToolError: ripgrep is missing, or does not take these arguments; some clients have found
            nothing then.
    """
    listener = _OutputListener(handle_output)
    command = Command(
        argv=[find_ripgrep(ctx.workspace.environment.get("PATH")), *_COMMON_ARGUMENTS, *arguments],
        cwd=folder,
        env=ctx.workspace.environment,
        tag=ctx.call.id,
        on_output=listener.receive_output,
        memory_limit=_MEMORY_LIMIT,
        bulk=True,
    )
    try:
        async with ctx.workspace.supervisor.running_child(command, grace=0.0) as child:
            listener.child = child
            with anyio.CancelScope() as listener.scope:
                await child.wait()
            if listener.error is not None:
                raise listener.error
    except StartError as error:
        raise ToolError(f"The search could not be started: {error.reason}") from error
    rejection = _rejection_message(child)
    if rejection and ctx.profile.search.reports_rejection:
        raise ToolError(_REJECTED_MESSAGE.format(rejection), kind="invalid_input")


def find_ripgrep(path: str | None) -> str:
    """Where ripgrep is: among the scripts of this Python, or on the path.

    Raises:
        ToolError: there is none.
    """
    packaged = Path(sysconfig.get_path("scripts")) / "rg"
    executable = str(packaged) if packaged.is_file() else shutil.which("rg", path=path)
    if executable is None:
        raise ToolError("ripgrep is needed to search, and there is no `rg` on the PATH")
    return executable


def _rejection_message(child: ChildProcess) -> str | None:
    if child.exit is None or child.exit.code != _ERROR_EXIT_CODE or child.stdout.total:
        return None
    return child.stderr.data.decode(errors="replace").strip() or None


class _OutputListener:
    """Hands on what comes from one of the child's two streams, until it is enough."""

    def __init__(self, handle_output: OutputHandler) -> None:
        self.child: ChildProcess | None = None
        self.scope: anyio.CancelScope | None = None
        self.error: Exception | None = None
        """What went wrong while taking: the loop would only log it, and the rest be missing."""
        self._handle_output = handle_output
        self._seen_bytes = 0

    def receive_output(self, data: bytes) -> None:
        if self.child is None or self.child.stdout.total == self._seen_bytes:
            return  # it was an error message
        self._seen_bytes = self.child.stdout.total
        if self.scope is not None and not self.scope.cancel_called and self._is_enough(data):
            self.scope.cancel()

    def _is_enough(self, data: bytes) -> bool:
        try:
            return self._handle_output(data)
        except Exception as error:  # noqa: BLE001 - raised again where the search was asked for
            self.error = error
            return True


GROUP_SEPARATOR = rb"\x00--"
"""What ripgrep is told to print between groups."""
_BINARY_NOTE = re.compile(
    rb"[^\0]*?: (?:binary file matches|WARNING: stopped searching binary file after match)"
    rb' \(found "\\0" byte around offset \d+\)\n',
    re.DOTALL,
)


class RipgrepRecord(NamedTuple):
    """One printed line."""

    name: bytes
    """The file; empty for a separator or a note."""
    line: bytes
    """What is printed behind the name."""


class RecordSplitter:
    """Cuts output into records."""

    def __init__(self) -> None:
        self._file_name: bytes | None = None
        """The file whose line is not complete yet."""
        self._pending = b""

    def split_output(self, data: bytes) -> list[RipgrepRecord]:
        """The records that are complete with this piece."""
        first, *others = (self._pending + data).split(b"\0")
        records: list[RipgrepRecord] = []
        self._pending = first
        for piece in others:
            self._complete_records(records)
            self._file_name, self._pending = self._pending, piece
        self._complete_records(records)
        return records

    def _complete_records(self, records: list[RipgrepRecord]) -> None:
        """Give out the line at the beginning of the rest, and the notes behind it."""
        if self._file_name is not None:
            line, end, remainder = self._pending.partition(b"\n")
            if not end:
                return
            records.append(RipgrepRecord(self._file_name, line))
            self._file_name, self._pending = None, remainder
        while note := _BINARY_NOTE.match(self._pending):
            records.append(RipgrepRecord(b"", note[0][:-1]))
            self._pending = self._pending[note.end() :]


RootKind = Literal["folder", "any"]


@dataclass(frozen=True, slots=True)
class SearchRoot:
    """What is to be searched."""

    path: Path
    is_folder: bool


def find_search_root(raw_path: object, ctx: ToolContext, kind: RootKind) -> SearchRoot | Refusal:
    """The folder or file that a path leads to; no path is the current folder.

    Raises:
        ToolError: no file can have this name, or the way there is closed.
    """
    path = resolve_search_path(raw_path, ctx)
    values = ctx.profile.search
    stat_result = stat_path(path)
    if stat_result is None:
        text = values.no_folder if kind == "folder" else values.no_path
        return Refusal(
            text.format(path=replace_surrogates(str(path)), cwd=replace_surrogates(str(ctx.cwd))), "not_found"
        )
    if stat.S_ISDIR(stat_result.st_mode):
        return SearchRoot(path, is_folder=True)
    if kind == "folder":
        return Refusal(f"Path is not a directory: {replace_surrogates(str(path))}", "invalid_input")
    if not stat.S_ISREG(stat_result.st_mode):  # searching a pipe or a device would never end
        text = f"Path is neither a file nor a directory: {replace_surrogates(str(path))}"
        return Refusal(text, "invalid_input")
    return SearchRoot(path, is_folder=False)


def resolve_search_path(raw_path: object, ctx: ToolContext) -> Path:
    """The absolute path of what the model wrote.

    Raises:
        ToolError: no file can have this name.
    """
    home = ctx.workspace.environment.get("HOME")
    return resolve_path(raw_path, ctx.cwd, home) if isinstance(raw_path, str) and raw_path else ctx.cwd


async def check_search_root(raw_path: object, ctx: ToolContext, kind: RootKind) -> Refusal | None:
    """Why it cannot be searched there; None when it can."""
    resolve_root = partial(find_search_root, raw_path, ctx, kind)
    root = await to_thread.run_sync(resolve_root, abandon_on_cancel=True)
    return root if isinstance(root, Refusal) else None


def require_search_root(raw_path: object, ctx: ToolContext, kind: RootKind) -> SearchRoot:
    """The same for a search that is about to run.

    Raises:
        ToolError: it cannot be searched.
    """
    root = find_search_root(raw_path, ctx, kind)
    if isinstance(root, Refusal):
        early = ctx.profile.search.checks_early
        raise ToolError(root.text, kind=root.kind, wrapped=early)
    if ctx.profile.search.reports_unreadable:
        _check_readable(root.path)
    return root


def _check_readable(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "EUNKNOWN")
        raise ToolError(
            f"Refusing to search {replace_surrogates(str(path))}: it could not be opened ({name}) — it is"
            " unreadable, or is being replaced concurrently.",
            kind="permission_os",
        ) from error


class RelativeNames:
    """Files as they are named: from the current folder when they are below it."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.fsencode(folder).rstrip(b"/") + b"/"

    def shorten(self, name: bytes) -> str:
        """The name from the current folder, or the whole one."""
        return decode_name(name.removeprefix(self._folder))


def decode_name(name: bytes) -> str:
    """A name, or a line, that can be printed and recorded."""
    return name.decode("utf-8", "replace")
