"""`toolspan export`: write sessions as JSON, CSV, Markdown or traces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolspan.cli.output import make_redactor, redaction_options, warn, write_output
from toolspan.cli.select import (
    CallFilter,
    filter_calls,
    filter_options,
    last_option,
    names_argument,
    read_selection,
    read_transcripts,
)
from toolspan.errors import NotFound, SourceError
from toolspan.export.session_export import EXPORT_FORMATS, ExportFormat, load_writer

if TYPE_CHECKING:
    from toolspan.export.redact import Redactor
    from toolspan.export.session_export import ExportFilter, SessionExport
    from toolspan.types.session import Message


_CALL_FILTERS = ("tool", "state", "error", "agent")


@click.command("export")
@names_argument
@click.option(
    "--format", "form", type=click.Choice(EXPORT_FORMATS), default="json", show_default=True, help="The output format."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@last_option
@redaction_options
@filter_options
def command(
    names: tuple[str, ...], *, form: ExportFormat, as_json: bool, last: bool, output: Path | None, **filter_values: Any
) -> None:
    """Export sessions in another format.

    json: one object per call, with inputs and results. csv: one row per call, for spreadsheets.
    markdown: sessions to read. perfetto: a trace for ui.perfetto.dev. otlp: OTLP/JSON, one request
    per session and line. Named files are read one by one; folders and sessions count each call once.

    --tool, --state, --error and --agent select calls and leave out messages; the other filters
    select sessions and times.
    """
    redactor = make_redactor(redact=filter_values.pop("redact"), skeleton=filter_values.pop("skeleton"))
    call_filter = CallFilter.from_options(filter_values)
    sessions, export_filter = _select_sessions(names, call_filter, last=last)
    write = load_writer("json" if as_json else form)
    write_output(write(_session_exports(sessions, redactor, export_filter)), output)


def _select_sessions(
    names: Sequence[str], call_filter: CallFilter, *, last: bool
) -> tuple[list[list[str]], ExportFilter]:
    """Return the files of each selected session, and the filter for calls and messages."""
    from toolspan.export.session_export import ExportFilter

    selection = read_selection(names, last=last)
    calls = {(row.file, row.id) for row in filter_calls(selection, call_filter)}
    files = {file for file, _ in calls}
    sessions = [[file.file for file in session.files] for session in selection.call_table.sessions]
    if call_filter != CallFilter():
        sessions = [paths for paths in sessions if not files.isdisjoint(paths)]
    if not sessions:
        raise NotFound("nothing to export: no session or call matches the filters")
    return sessions, ExportFilter(
        include_call=lambda file, call_id: (file, call_id) in calls,
        include_message=lambda message: _accepts_message(call_filter, message),
    )


def _accepts_message(call_filter: CallFilter, message: Message) -> bool:
    if any(getattr(call_filter, name) for name in _CALL_FILTERS):
        return False
    return call_filter.accepts_time(message.at)


def _session_exports(
    sessions: Sequence[Sequence[str]], redactor: Redactor, export_filter: ExportFilter
) -> Iterator[SessionExport]:
    """Read the sessions one by one, warning about those that cannot be read."""
    from toolspan.export.session_export import SessionExport

    for paths in sessions:
        transcripts = list(read_transcripts(map(Path, paths)))
        try:
            if transcripts:
                yield SessionExport(transcripts, redactor=redactor, export_filter=export_filter)
        except SourceError as error:
            warn(error)
