"""The command line. `app.py` lists the commands. Each command is one module, imported only when it runs."""

from __future__ import annotations

import atexit
import gc
import os
import sys

_EXIT_UNWRITABLE = 3
_EXIT_INTERRUPTED = 130
_GC_THRESHOLD = 1_000_000
"""Garbage collection threshold. Imports and results create many objects and few cycles, so it is higher than the
default. A collection while forked processes run would also copy the memory pages shared with them.
"""


def main() -> None:
    """Run `toolspan` with this process's arguments, and exit."""
    if sys.argv[1:] == ["hook", "record"]:  # perf: a client waits for this command, so nothing else is imported
        from toolspan.integrations.hook_record import record_hook_input

        record_hook_input()
        sys.exit(0)
    if sys.argv[1:] in (["hook", "guard"], ["statusline"]):
        from toolspan.integrations.guard import check_hook_input, print_status_line

        check_hook_input() if sys.argv[1] == "hook" else print_status_line()
        sys.exit(0)
    if sys.argv[1:] == ["hook", "known-errors"]:
        from toolspan.integrations.known_error_hook import print_known_error

        print_known_error()
        sys.exit(0)
    exit_codes: list[int] = []
    atexit.register(_exit_at_once, exit_codes)  # registered first, so it runs last
    gc.set_threshold(_GC_THRESHOLD, *gc.get_threshold()[1:])
    if sys.stdout is None:  # started with standard output closed
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    try:
        code = _run_command()
    except KeyboardInterrupt:  # during an import
        code = _EXIT_INTERRUPTED
    exit_codes.append(code)
    sys.exit(code)


def _exit_at_once(codes: list[int]) -> None:
    """Exit without freeing memory, if the command has ended.

    perf: freeing the records of a large archive takes 2 % of the run time of `usage`.
    """
    if codes and sys.gettrace() is None:
        from contextlib import suppress

        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # already reported, or the stream is closed
                stream.flush()
        os._exit(codes[0])


def _run_command() -> int:
    import click

    from toolspan.cli.app import EXIT_OUTPUT_CLOSED, app

    try:
        try:
            code = app.main(prog_name="toolspan", standalone_mode=False) or 0
        except click.Abort:
            code = _EXIT_INTERRUPTED
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        if code == EXIT_OUTPUT_CLOSED:
            _discard_output()
        sys.stdout.flush()
    except BrokenPipeError:
        code = EXIT_OUTPUT_CLOSED
        _discard_output()
    except OSError as error:
        code = _EXIT_UNWRITABLE
        _discard_output()
        sys.stderr.write(f"toolspan: cannot write to {error.filename or 'standard output'}: {error.strerror}\n")
    return code


def _discard_output() -> None:
    """Redirect standard output to /dev/null, so that the interpreter does not fail when it flushes at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
