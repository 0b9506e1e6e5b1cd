"""`toolspan export`: sessions as JSON, CSV, Markdown or traces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolspan.cli.output import warn
from toolspan.cli.redaction_options import add_redaction_options, make_redactor, write_output
from toolspan.cli.select import CallFilter, filter_calls, filter_options, make_filter, names_argument, read_selection
from toolspan.errors import NotFound, SourceError
from toolspan.export.writers import EXPORT_FORMATS, ExportFormat, load_writer

if TYPE_CHECKING:
    from toolspan.export.redact import Redactor
    from toolspan.export.session_export import ExportFilter, SessionExport
    from toolspan.types.session import Message


_CALL_FILTERS = ("tool", "state", "error", "agent")


@click.command("export")
@names_argument
@click.option(
    "--format", "form", type=click.Choice(EXPORT_FORMATS), default="json", show_default=True, help="What to write."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--last", is_flag=True, help="The session written to last.")
@add_redaction_options
@filter_options
def command(
    names: tuple[str, ...], *, form: ExportFormat, as_json: bool, last: bool, output: Path | None, **filter_values: Any
) -> None:
    """Write sessions in another form.

    json: one object per call, bodies included. csv: one row per call, for spreadsheets. markdown:
    sessions to read. perfetto: a trace for ui.perfetto.dev. otlp: OTLP/JSON, one request per
    session and line. Files are read alone; folders and sessions count each call once.

    --tool, --state, --error and --agent choose calls, and leave words out; the other filters choose
    sessions and times.
    """
    redactor = make_redactor(redact=filter_values.pop("redact"), skeleton=filter_values.pop("skeleton"))
    call_filter = make_filter(filter_values)
    sessions, choice = _select_sessions(names, call_filter, last=last)
    write = load_writer("json" if as_json else form)
    write_output(write(_session_exports(sessions, redactor, choice)), output)


def _select_sessions(
    names: Sequence[str], call_filter: CallFilter, *, last: bool
) -> tuple[list[list[str]], ExportFilter]:
    """The files of each session that has a wanted call, or any if everything is wanted."""
    from toolspan.export.session_export import ExportFilter

    selection = read_selection(names, last=last)
    calls = {(row.file, row.id) for row in filter_calls(selection, call_filter)}
    files = {file for file, _ in calls}
    sessions = [[file.file for file in session.files] for session in selection.call_table.sessions]
    if call_filter != CallFilter():
        sessions = [paths for paths in sessions if not files.isdisjoint(paths)]
    if not sessions:
        raise NotFound("nothing to export: no session or call is left")
    return sessions, ExportFilter(
        include_call=lambda file, call_id: (file, call_id) in calls,
        include_message=lambda message: _accepts_message(call_filter, message),
    )


def _accepts_message(call_filter: CallFilter, message: Message) -> bool:
    """Whether words are wanted: with filters of calls none are."""
    from toolspan.types.span import parse_timestamp

    if any(getattr(call_filter, name) for name in _CALL_FILTERS):
        return False
    if call_filter.since is None and call_filter.until is None:
        return True
    at = parse_timestamp(message.at)
    return at is not None and (
        (call_filter.since is None or at >= call_filter.since) and (call_filter.until is None or at < call_filter.until)
    )


def _session_exports(
    sessions: Sequence[Sequence[str]], redactor: Redactor, choice: ExportFilter
) -> Iterator[SessionExport]:
    """The sessions, each read when its turn comes; what cannot be read is told and left out."""
    from toolspan.cli.read_selected import read_transcripts
    from toolspan.export.session_export import SessionExport

    for paths in sessions:
        transcripts = list(read_transcripts(map(Path, paths)))
        try:
            if transcripts:
                yield SessionExport(transcripts, redactor=redactor, export_filter=choice)
        except SourceError as error:
            warn(error)
