"""The command line: thin, a file or a folder per command. `app.py` holds the table of commands."""

import gc
import os
import sys

TYPE_CHECKING = False  # typing's own constant would cost more to import than all the rest

if TYPE_CHECKING:
    from toolspan.report.search.ripgrep import Ripgrep

_UNWRITABLE = 3
_STOPPED = 130
_GARBAGE = 50_000
"""So many new objects before the collector looks for cycles: importing makes many, and none."""


def main() -> None:
    """Run `toolspan`."""
    if sys.argv[1:] == ["hook", "record"]:  # a client waits for it: nothing else is loaded
        from toolspan.cli.hook_record import record

        record()
        sys.exit(0)
    gc.set_threshold(_GARBAGE, *gc.get_threshold()[1:])
    if sys.stdout is None:  # started without one
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    try:
        code = _answer()
    except KeyboardInterrupt:  # while something was loaded
        code = _STOPPED
    gc.freeze()  # what is left is not looked through once more before the end
    sys.exit(code)


def _answer() -> int:
    """Run the command and send what it printed; the exit code."""
    ahead = _begin(sys.argv[1:])
    try:
        from toolspan.cli.app import CLOSED

        code = _run(ahead)
        if code == CLOSED:
            _drop_output()
        sys.stdout.flush()
    except BrokenPipeError:
        code = CLOSED
        _drop_output()
    except OSError as error:
        code = _UNWRITABLE
        _drop_output()
        sys.stderr.write(f"toolspan: cannot write: {error.strerror}\n")
    finally:
        if ahead is not None:
            ahead.close()
    return code


def _begin(arguments: list[str]) -> "Ripgrep | None":
    """What is started before anything else is loaded."""
    if arguments[:1] != ["search"]:
        return None
    from toolspan.cli.ahead import begin

    return begin(arguments[1:])


def _run(ahead: "Ripgrep | None") -> int:
    import click

    from toolspan.cli.app import app

    try:
        return app.main(prog_name="toolspan", standalone_mode=False, obj=ahead) or 0
    except click.Abort:
        return _STOPPED
    except click.ClickException as error:
        error.show()
        return error.exit_code


def _drop_output() -> None:
    """Nobody reads on: keep the interpreter from trying to write what is left."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
