"""Page long output of the reading commands, as git does."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import click

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
    """Connect standard output to a pager while a command runs, if it is a terminal.

    The pager is `$TOOLSPAN_PAGER`, `$PAGER` or `less`; `cat` or an empty value disables paging.
    """
    is_watched = ctx.meta.get(_PAGED_KEY) and sys.stdout.isatty() and sys.stdin.isatty()
    command = _pager_command() if is_watched else None
    if command is None:
        yield
        return
    import subprocess  # perf: most output is not paged

    ctx.meta[_WIDTH_KEY] = os.get_terminal_size(sys.stdout.fileno()).columns
    ctx.color = True
    environment = {"LESS": "FRX", "LV": "-c"} | os.environ
    pager = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env=environment)
    assert pager.stdin is not None
    terminal = os.dup(sys.stdout.fileno())
    os.dup2(pager.stdin.fileno(), sys.stdout.fileno())
    pager.stdin.close()
    try:
        yield
    finally:
        with suppress(BrokenPipeError):
            sys.stdout.flush()
        os.dup2(terminal, sys.stdout.fileno())
        os.close(terminal)
        while pager.poll() is None:
            with suppress(KeyboardInterrupt):  # the pager handles it
                pager.wait()


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
