"""Run ripgrep and resolve the search path, for Grep and Glob.

Ripgrep runs without a shell. Its output is passed on in chunks, and the process is stopped as soon as the handler has
enough.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sysconfig
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import anyio
from anyio import to_thread

from toolspan.errors import ToolError
from toolspan.runtime.context import ToolContext
from toolspan.runtime.process import ChildProcess, Command, StartError
from toolspan.runtime.sandbox.settings import SandboxUnavailable
from toolspan.runtime.schema.issues import Valid
from toolspan.runtime.tool import Refusal
from toolspan.tools.files.changes import permitted_target, spelled_path, with_stripped_path
from toolspan.tools.files.opening import open_resolved
from toolspan.tools.files.paths import replace_surrogates, resolve_path, wrap_os_error

_ERROR_EXIT_CODE = 2
"""Ripgrep's exit code for rejected arguments and unreadable files."""
_LINE_BREAK_REJECTED = 'the literal "\\n" is not allowed in a regex'
_REJECTED_MESSAGE = "Search failed — ripgrep rejected the pattern, glob, or file type without searching:\n{}"
_MEMORY_LIMIT = 1 << 16
_TIMEOUT = 20.0
_TIMEOUT_MESSAGE = (
    f"Ripgrep search timed out after {_TIMEOUT:.0f} seconds. The search may have matched files but did not complete in"
    " time. Try searching a more specific path or pattern."
)
_IGNORE_FILES = (".gitignore", ".ignore", ".rgignore", ".git/info/exclude")
_COMMON_ARGUMENTS = ("--no-config", "--no-messages", "--color=never", "--hidden", "--null")

OutputHandler = Callable[[bytes], bool]
"""A function that receives a chunk of output in the event loop and returns True when it needs no more."""


async def run_ripgrep(
    ctx: ToolContext, arguments: Sequence[str], root: SearchRoot, handle_output: OutputHandler, cwd: Path
) -> None:
    """Search a folder or file with ripgrep and pass its output to `handle_output`. Patterns are relative to `cwd`.

    Raise ToolError if ripgrep is missing or rejects the arguments. Some clients treat a rejection as an empty result.
    """
    listener = _OutputListener(handle_output)
    environment = ctx.workspace.outside_environment
    command = Command(
        argv=[find_ripgrep(environment.get("PATH")), *_COMMON_ARGUMENTS, *arguments, "--", str(root.path)],
        cwd=cwd,
        env=environment,
        tag=ctx.call.id,
        on_output=listener.receive_output,
        memory_limit=_MEMORY_LIMIT,
        bulk=True,
    )
    try:
        async with (
            _limited_to(root, command, ctx) as limited,
            ctx.workspace.supervisor.running_child(limited, grace=0.0) as child,
        ):
            listener.child = child
            with anyio.move_on_after(_TIMEOUT) as time_limit, anyio.CancelScope() as listener.scope:
                await child.wait()
            if time_limit.cancelled_caught:
                raise ToolError(_TIMEOUT_MESSAGE, kind="command_timeout")
            if listener.error is not None:
                raise listener.error
    except (StartError, SandboxUnavailable) as error:
        reason = error.reason if isinstance(error, StartError) else str(error)
        raise ToolError(f"The search could not be started: {reason}") from error
    is_error = child.exit is not None and child.exit.code == _ERROR_EXIT_CODE and not child.stdout.total
    rejection = child.stderr.text.strip() if is_error else ""
    # Clients find nothing for a pattern over several lines in a search by lines.
    if rejection and ctx.profile.search.reports_errors and _LINE_BREAK_REJECTED not in rejection:
        raise ToolError(_REJECTED_MESSAGE.format(rejection), kind="invalid_input")


@asynccontextmanager
async def _limited_to(root: SearchRoot, command: Command, ctx: ToolContext) -> AsyncIterator[Command]:
    """Yield the command that searches the folder or file for which the call was authorized, and nothing else.

    A sandboxed command may replace a folder with a link while ripgrep walks through it. While a sandbox is on, the
    kernel therefore limits ripgrep to the folder that was opened here. Without Landlock, ripgrep runs inside the
    sandbox, where it reads what the command itself can read.
    """
    sandbox = ctx.workspace.sandbox
    with ExitStack() as stack:

        def open_limit(path: Path) -> int:
            descriptor = open_resolved(path, getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK))
            stack.callback(os.close, descriptor)
            return descriptor

        target = permitted_target(root.path, ctx)
        try:
            descriptors = [open_limit(target)]
        except OSError as error:
            raise wrap_os_error(error, "open", root.path) from error
        if sandbox is None or not sandbox.is_on:
            yield command
            return
        from toolspan.runtime.sandbox.read_limit import can_limit_reading, limit_reading  # perf: only with a sandbox

        if not can_limit_reading():
            async with sandbox.wrap(command, (ctx.workspace.project, *ctx.workspace.added_folders)) as sandboxed:
                yield sandboxed.command
        else:
            # They do not apply to a file that is named.
            for path in _ignore_files(target, command.env) if root.is_folder else ():
                with suppress(OSError, ToolError):
                    descriptors.append(open_limit(path))
            try:
                restrict = stack.enter_context(limit_reading(command.argv[0], descriptors))
            except OSError as error:
                raise StartError(
                    Path(command.argv[0]), f"its access limits cannot be set ({error.strerror})"
                ) from error
            yield replace(command, restrict=restrict)


def _ignore_files(target: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the existing files outside the searched folder that may exclude files in it."""
    config = environment.get("XDG_CONFIG_HOME") or f"{environment.get('HOME', '')}/.config"
    names = [os.path.realpath(f"{config}/git/ignore")]
    names += [f"{folder}/{name}" for folder in target.parents for name in _IGNORE_FILES]
    yield from (Path(name) for name in names if os.path.lexists(name))  # perf: opening all of them takes 0.4 ms


def find_ripgrep(path: str | None) -> str:
    """Return the path of `rg`: the one installed with this Python, or else the first one in `path`.

    Raise ToolError if `rg` is not installed.
    """
    packaged = Path(sysconfig.get_path("scripts")) / "rg"
    executable = str(packaged) if packaged.is_file() else shutil.which("rg", path=path)
    if executable is None:
        raise ToolError("The search was not started, because ripgrep was not found: there is no `rg` on PATH.")
    return executable


class _OutputListener:
    """A listener that passes the child's stdout to the handler until the handler has enough."""

    def __init__(self, handle_output: OutputHandler) -> None:
        self.child: ChildProcess | None = None
        self.scope: anyio.CancelScope | None = None
        self.error: Exception | None = None
        """The exception raised by the handler, stored because the event loop would only log it."""
        self._handle_output = handle_output
        self._seen_bytes = 0

    def receive_output(self, data: bytes) -> None:
        if self.child is None or self.child.stdout.total == self._seen_bytes:
            return  # it was an error message
        self._seen_bytes = self.child.stdout.total
        if self.scope is None or self.scope.cancel_called:
            return
        try:
            is_enough = self._handle_output(data)
        except Exception as error:  # noqa: BLE001 - raised again where the search was asked for
            self.error = error
            is_enough = True
        if is_enough:
            self.scope.cancel()


GROUP_SEPARATOR = rb"\x00--"
_BINARY_NOTE = re.compile(
    rb"[^\0]*?: (?:binary file matches|WARNING: stopped searching binary file after match)"
    rb' \(found "\\0" byte around offset \d+\)\n',
    re.DOTALL,
)


class RipgrepRecord(NamedTuple):
    """One line of ripgrep's output."""

    name: bytes
    """The file name; empty for a separator or a note."""
    line: bytes


class RecordSplitter:
    """A parser that splits ripgrep's output into records."""

    def __init__(self) -> None:
        self._file_name: bytes | None = None
        """The file whose line is still incomplete."""
        self._pending = b""

    def split_output(self, data: bytes) -> list[RipgrepRecord]:
        """Return the records that this chunk completes."""
        first, *others = (self._pending + data).split(b"\0")
        records: list[RipgrepRecord] = []
        self._pending = first
        for piece in others:
            self._complete_records(records)
            self._file_name, self._pending = self._pending, piece
        self._complete_records(records)
        return records

    def _complete_records(self, records: list[RipgrepRecord]) -> None:
        """Append the line at the start of the pending bytes and any notes that follow it."""
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


class SearchRoot(NamedTuple):
    """The folder or file to search."""

    path: Path
    is_folder: bool


def strip_search_path(valid: Valid) -> Valid:
    """Return the input without blanks around its path, so that permission rules see the path that is searched."""
    return with_stripped_path(valid.recorded, "path", strips=True) if valid.recorded.get("path") else valid


async def check_search_root(value: Mapping[str, object], ctx: ToolContext, kind: RootKind) -> Refusal | None:
    """Return a refusal if the path of an input cannot be searched."""
    root = await to_thread.run_sync(_find_search_root, value, ctx, kind, abandon_on_cancel=True)
    return root if isinstance(root, Refusal) else None


def require_search_root(value: Mapping[str, object], ctx: ToolContext, kind: RootKind) -> SearchRoot:
    """Return the folder or file that the path of an input refers to, by default the current folder.

    Raise ToolError if the path cannot be searched.
    """
    root = _find_search_root(value, ctx, kind)
    if isinstance(root, Refusal):
        raise ToolError(root.text, kind=root.kind, wrapped=ctx.profile.search.checks_early)
    if ctx.profile.search.reports_errors:
        try:
            os.close(os.open(root.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, "EUNKNOWN")
            raise ToolError(
                f"Refusing to search {replace_surrogates(str(root.path))}: it could not be opened ({name}) — it is"
                " unreadable, or is being replaced concurrently.",
                kind="permission_os",
            ) from error
    return root


def _find_search_root(value: Mapping[str, object], ctx: ToolContext, kind: RootKind) -> SearchRoot | Refusal:
    home, raw_path = ctx.workspace.environment.get("HOME"), value.get("path")
    path, name = ctx.cwd, replace_surrogates(str(ctx.cwd))
    if isinstance(raw_path, str) and raw_path:
        path, name = resolve_path(raw_path, ctx.cwd, home), spelled_path(value, "path")
    messages = ctx.profile.messages
    looked_up = f"{path}/" if name.strip().startswith(("/", "~/")) and name.strip().endswith("/") else str(path)
    try:
        stat_result = os.stat(looked_up)  # noqa: PTH116 - a Path loses the slash at its end
    except FileNotFoundError:
        stat_result = None
    except OSError as error:
        if ctx.profile.files.reports_path_errors:
            raise wrap_os_error(error, "stat", looked_up) from error
        stat_result = None
    if stat_result is None:
        message = messages.no_folder if kind == "folder" else messages.no_path
        return Refusal(message.format(path=name, cwd=replace_surrogates(str(ctx.cwd))), "not_found")
    if stat.S_ISDIR(stat_result.st_mode):
        return SearchRoot(path, is_folder=True)
    if kind == "folder":
        return Refusal(f"Path is not a directory: {name}", "invalid_input")
    if not stat.S_ISREG(stat_result.st_mode):  # searching a pipe or a device would never end
        return Refusal(f"Path is neither a file nor a directory: {name}", "invalid_input")
    return SearchRoot(path, is_folder=False)


def shorten_name(name: bytes, folder: bytes) -> str:
    """Return a file name relative to `folder` (which ends with a slash) if the file is below it."""
    return decode_name(name.removeprefix(folder))


def decode_name(name: bytes) -> str:
    """Decode a name or a line, replacing bytes that are not UTF-8."""
    return name.decode("utf-8", "replace")
