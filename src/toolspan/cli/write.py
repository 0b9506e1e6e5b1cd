"""Files that commands write: exports and pages, redacted if the user wants it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolspan.archive.words import format_size, plain_line
from toolspan.cli.output import combine_options
from toolspan.errors import ToolspanError

if TYPE_CHECKING:
    from toolspan.redaction.redactor import Redactor


redaction_options = combine_options(
    click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path),
                 help="Write to this file instead of standard output."),
    click.option("--open", "open_page", is_flag=True, help="Open the HTML page in the browser."),
    click.option("--redact", is_flag=True,
                 help="Replace secrets, addresses and user names, as far as they are recognized."),
    click.option("--report", is_flag=True,
                 help="With --redact: list every replacement with its place."),
    click.option("--skeleton", is_flag=True,
                 help="Keep structure, states, times, sizes and tool names; remove all text."),
)  # fmt: skip


def make_redactor(*, redact: bool, skeleton: bool, report: bool = False) -> Redactor:
    """Return the redactor for these options. `skeleton` implies redaction."""
    if report and (skeleton or not redact):
        raise click.UsageError("--report needs --redact")
    from toolspan.export.export import choose_redactor

    return choose_redactor(redact=redact, skeleton=skeleton, keep_report=report)


def print_redaction(redactor: Redactor, *, report: bool, output: Path | None) -> None:
    """Report the replacements on standard error, or on standard output if that is unused."""
    from toolspan.redaction.redact import SecretRedactor
    from toolspan.redaction.redactor import format_counts

    if not isinstance(redactor, SecretRedactor):
        return
    if report:
        for item in redactor.replacements:
            place = f"{item.session or '-'}:{item.line or '-'}"
            parts = (place, item.call or "-", item.field, item.placeholder, item.rule)
            click.echo(plain_line("  ".join(parts), 1_000), err=output is None)
    click.echo(
        f"toolspan: redacted: {redactor.counts.total():,} values replaced ({format_counts(redactor.counts)}). "
        "Recognition is best effort: read the output through before you share it"
        + ("" if report else "; --report lists every replacement"),
        err=True,
    )


def write_output(pieces: Iterable[bytes], output: Path | None) -> None:
    """Write the pieces one by one to a file, and print its size, or to standard output.

    An existing file is replaced only at the end.
    """
    if output is None:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        return
    target = Path(os.path.realpath(output))
    try:
        if not output.exists() or output.is_file():
            _write_beside(pieces, target)
            size = target.stat().st_size
            click.echo(f"{output}: {format_size(size)}", err=True)
        else:  # a pipe or a device
            with output.open("wb") as stream:
                stream.writelines(pieces)
    except _UnwritableFolderError as error:
        raise ToolspanError(f"{output}: {error}") from error
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(output)) from error


class _UnwritableFolderError(Exception):
    """A file cannot be created in a folder."""


def _write_beside(pieces: Iterable[bytes], target: Path) -> None:
    """Write to a new file, and replace `target` with it only if everything was written."""
    temporary = target.with_name(f".{target.name[:200]}.{os.getpid()}.part")
    try:
        stream = temporary.open("xb")
    except OSError as error:
        if target.exists() and os.access(target, os.W_OK):  # only the file is writable, not its folder
            with target.open("wb") as stream:
                stream.writelines(pieces)
            return
        raise _UnwritableFolderError(error.strerror) from error
    try:
        with stream:
            if target.exists():
                temporary.chmod(target.stat().st_mode & 0o777)
            stream.writelines(pieces)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_page(pieces: Iterable[bytes], output: Path | None, *, open_page: bool) -> None:
    """Write an HTML page, and optionally open it in the browser. Without a file, a temporary one is opened."""
    if output is None and open_page:
        import tempfile

        output = Path(tempfile.mkdtemp(prefix="toolspan-")) / "session.html"
    if output is None and sys.stdout.isatty():
        raise click.UsageError("the page would go to the terminal; add -o FILE or --open")
    write_output(pieces, output)
    if output is not None and open_page:
        import webbrowser

        if not webbrowser.open(output.resolve().as_uri()):
            raise ToolspanError(f"no browser was found; open {output} yourself")
