"""Page long output of the reading commands, as git does."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import subprocess

    from typing_extensions import Buffer

_PAGED_COMMANDS = frozenset({
    "sessions", "show", "calls", "errors", "stats", "usage", "time", "flows", "files", "compare", "search", "why",
    "doctor", "tools",
})  # fmt: skip
_NO_PAGER = "--no-pager"
_UNPAGED_OPTIONS = frozenset({_NO_PAGER, "--json", "--html", "--help", "-h", "--live"})
_PAGED_KEY = "toolspan.paged"
_WIDTH_KEY = "toolspan.pager_width"


def note_arguments(ctx: click.Context, args: Sequence[str]) -> list[str]:
    """Decide whether to page, and return the arguments without `--no-pager`, which is accepted anywhere."""
    end = args.index("--") if "--" in args else len(args)
    options, rest = args[:end], args[end:]
    name = next((arg for arg in options if not arg.startswith("-")), None)
    ctx.meta[_PAGED_KEY] = name in _PAGED_COMMANDS and not _UNPAGED_OPTIONS.intersection(options)
    return [*(arg for arg in options if arg != _NO_PAGER), *rest]


@contextmanager
def page_output(ctx: click.Context) -> Iterator[None]:
    """Send the output of a command to a pager if standard output is a terminal.

    The pager is `$TOOLSPAN_PAGER`, `$PAGER` or `less`; `cat` or an empty value disables paging.
    """
    is_watched = ctx.meta.get(_PAGED_KEY) and sys.stdout.isatty() and sys.stdin.isatty()
    command = _pager_command() if is_watched else None
    if command is None:
        yield
        return
    ctx.meta[_WIDTH_KEY] = os.get_terminal_size(sys.stdout.fileno()).columns
    ctx.color = True
    terminal, pipe = sys.stdout, _PagerPipe(command)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(pipe), encoding=terminal.encoding, errors=terminal.errors, line_buffering=True
    )
    try:
        yield
    finally:
        with suppress(BrokenPipeError):
            sys.stdout.flush()
        sys.stdout = terminal
        pipe.finish()


class _PagerPipe(io.RawIOBase):
    """The input of a pager that starts with the first output, so that an interrupted command leaves no empty one."""

    def __init__(self, command: str) -> None:
        super().__init__()
        self._command = command
        self._pager: subprocess.Popen[bytes] | None = None
        self._is_finished = False

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        if self._is_finished:  # what is left after the pager was closed
            return memoryview(data).nbytes
        if self._pager is None:
            import subprocess  # perf: most output is not paged

            environment = {"LESS": "FRX", "LV": "-c"} | os.environ
            self._pager = subprocess.Popen(self._command, shell=True, stdin=subprocess.PIPE, env=environment)
        assert self._pager.stdin is not None
        return os.write(self._pager.stdin.fileno(), data)

    def finish(self) -> None:
        """Wait until the user has closed the pager."""
        self._is_finished = True
        if self._pager is None:
            return
        assert self._pager.stdin is not None
        self._pager.stdin.close()
        while self._pager.poll() is None:
            with suppress(KeyboardInterrupt):  # the pager handles it
                self._pager.wait()


def pager_width() -> int | None:
    """Return the width of the terminal behind the pager, or None without a pager."""
    ctx = click.get_current_context(silent=True)
    return ctx.meta.get(_WIDTH_KEY) if ctx else None


def _pager_command() -> str | None:
    for variable in ("TOOLSPAN_PAGER", "PAGER"):
        if variable in os.environ:
            command = os.environ[variable].strip()
            return command if command not in ("", "cat") else None
    from shutil import which

    return "less" if which("less") else None
