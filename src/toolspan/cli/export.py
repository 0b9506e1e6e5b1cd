"""`toolspan export`: write sessions as JSON, CSV, Markdown, a page or traces."""

from __future__ import annotations

from pathlib import Path

import click

from toolspan.archive.filters import Filter
from toolspan.cli import select
from toolspan.cli.filters import filter_options
from toolspan.cli.output import print_json
from toolspan.cli.write import make_redactor, print_redaction, redaction_options, write_output, write_page
from toolspan.export.export import export_sessions
from toolspan.export.session_export import EXPORT_FORMATS, ExportFormat
from toolspan.redaction.redact import SecretRedactor


@click.command("export")
@select.names_argument
@click.option(
    "--format", "form", type=click.Choice(EXPORT_FORMATS), default="json", show_default=True, help="The output format."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@select.last_option
@redaction_options
@click.option("--preview", is_flag=True, help="With --redact: print every replacement as JSON, and no export.")
@filter_options
def command(
    names: tuple[str, ...], *, form: ExportFormat, as_json: bool, last: bool, output: Path | None, open_page: bool,
    redact: bool, report: bool, skeleton: bool, preview: bool, call_filter: Filter,
) -> None:  # fmt: skip
    """Export sessions in another format.

    json: one object per call, with inputs and results. csv: one row per call, for spreadsheets.
    markdown: sessions to read. html: one session as a page, by default the newest. perfetto: a trace
    for ui.perfetto.dev. otlp: OTLP/JSON, one request per session and line. atif: trajectories for
    evaluation tools, one per session and line. Named files are read one by one; folders and sessions
    count each call once.

    --tool, --state, --error and --agent select calls and omit messages; the other filters select
    sessions and times.
    """
    if preview and not redact:
        raise click.UsageError("--preview needs --redact")
    form = "json" if as_json else form
    if open_page and form != "html":
        raise click.UsageError("--open needs --format html")
    redactor = make_redactor(redact=redact, skeleton=skeleton, report=report or preview)
    pieces = export_sessions(names, call_filter, form=form, last=last, redactor=redactor, reporter=select.REPORTER)
    if preview:
        for _ in pieces:
            pass
        print_json(*(redactor.replacements if isinstance(redactor, SecretRedactor) else ()))
        return
    if form == "html":
        write_page(pieces, output, open_page=open_page)
    else:
        write_output(pieces, output)
    print_redaction(redactor, report=report, output=output)
