"""The command line: thin, a file or a folder per command. `app.py` holds the table of commands."""

from __future__ import annotations

import gc
import os
import sys

_EXIT_UNWRITABLE = 3
_EXIT_INTERRUPTED = 130
_GC_THRESHOLD = 50_000
"""So many new objects before the collector looks for cycles: importing makes many, and none."""


def main() -> None:
    """Run `toolspan`."""
    if sys.argv[1:] == ["hook", "record"]:  # a client waits for it: nothing else is loaded
        from toolspan.cli.hook_record import record_hook_input

        record_hook_input()
        sys.exit(0)
    gc.set_threshold(_GC_THRESHOLD, *gc.get_threshold()[1:])
    if sys.stdout is None:  # started without one
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    try:
        code = _run_command()
    except KeyboardInterrupt:  # while something was loaded
        code = _EXIT_INTERRUPTED
    gc.freeze()  # what is left is not looked through once more before the end
    sys.exit(code)


def _run_command() -> int:
    """Run the command and send what it printed; the exit code."""
    try:
        from toolspan.cli.app import EXIT_OUTPUT_CLOSED

        code = _invoke_app()
        if code == EXIT_OUTPUT_CLOSED:
            _drop_output()
        sys.stdout.flush()
    except BrokenPipeError:
        code = EXIT_OUTPUT_CLOSED
        _drop_output()
    except OSError as error:
        code = _EXIT_UNWRITABLE
        _drop_output()
        sys.stderr.write(f"toolspan: cannot write: {error.strerror}\n")
    return code


def _invoke_app() -> int:
    import click

    from toolspan.cli.app import app

    try:
        return app.main(prog_name="toolspan", standalone_mode=False) or 0
    except click.Abort:
        return _EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code


def _drop_output() -> None:
    """Nobody reads on: keep the interpreter from trying to write what is left."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
