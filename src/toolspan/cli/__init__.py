"""The command line: thin, one file per command. `app.py` holds the table of commands."""

import os
import sys

_UNWRITABLE = 3


def main() -> None:
    """Run `toolspan`."""
    if sys.argv[1:] == ["hook", "record"]:  # a client waits for it: nothing else is loaded
        from toolspan.cli.hook_record import record

        record()
        sys.exit(0)
    if sys.stdout is None:  # started without one
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    from toolspan.cli.app import CLOSED

    try:
        code = _run()
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
    sys.exit(code)


def _run() -> int:
    import click

    from toolspan.cli.app import app

    try:
        return app.main(prog_name="toolspan", standalone_mode=False) or 0
    except click.Abort:
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code


def _drop_output() -> None:
    """Nobody reads on: keep the interpreter from trying to write what is left."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
