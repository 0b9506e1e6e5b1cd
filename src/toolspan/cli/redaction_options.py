"""What `show --html` and `export` have in common: the veils, and where the output goes."""

from __future__ import annotations

import contextlib
import getpass
import platform
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolspan.cli.output import combine_options
from toolspan.errors import ToolspanError

if TYPE_CHECKING:
    from toolspan.export.redact import Redactor


add_redaction_options = combine_options(
    click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path),
                 help="Write there, not to standard output."),
    click.option("--redact", is_flag=True,
                 help="Without secrets, addresses, names of users, as far as they are known."),
    click.option("--skeleton", is_flag=True,
                 help="Structure, states, times, sizes, tool names; no text at all."),
)  # fmt: skip
"""Adds `-o`, `--redact` and `--skeleton` to a command."""


def make_redactor(*, redact: bool, skeleton: bool) -> Redactor:
    """The veil that the options ask for; a skeleton needs no redaction."""
    if skeleton:
        from toolspan.export.anonymize import Anonymizer

        return Anonymizer()
    if redact:
        from toolspan.export.redact import SecretRedactor

        return SecretRedactor(_user_names())
    from toolspan.export.redact import NoRedaction

    return NoRedaction()


def _user_names() -> list[str]:
    """Names of this user and this machine."""
    names = [platform.node().partition(".")[0]]
    with contextlib.suppress(OSError, KeyError, RuntimeError):
        names += [getpass.getuser(), Path.home().name]
    return [name for name in names if name]


def write_output(pieces: Iterable[bytes], output: Path | None) -> None:
    """Write the pieces as they come.

    Raises:
        ToolspanError: the file cannot be written.
    """
    if output is None:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        return
    try:
        stream = output.open("wb")
    except OSError as error:
        raise ToolspanError(f"{output}: {error.strerror}") from error
    with stream:
        for piece in pieces:
            stream.write(piece)
