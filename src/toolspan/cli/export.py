"""`toolspan export`: write sessions as JSON, CSV, Markdown, a page or traces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from toolspan.archive.archive import Archive
from toolspan.archive.engine import scan_with_cache
from toolspan.archive.filters import Filter
from toolspan.archive.selection import CallSelection, read_calls
from toolspan.archive.session import read_session, resolve_names
from toolspan.cli import select
from toolspan.cli.filters import filter_options
from toolspan.cli.output import (
    make_redactor,
    print_json,
    print_redaction,
    redaction_options,
    warn,
    write_output,
    write_page,
)
from toolspan.errors import Ambiguous, NotFound, SourceError
from toolspan.export.json import write_redacted
from toolspan.export.session_export import (
    EXPORT_ALL,
    EXPORT_FORMATS,
    ExportFilter,
    ExportFormat,
    SessionExport,
    load_writer,
)
from toolspan.formats.source import to_path
from toolspan.reading.discovery import TranscriptFile
from toolspan.reading.history import CallTable
from toolspan.redaction.redact import SecretRedactor
from toolspan.redaction.redactor import Redactor

_SERIAL_CALLS = 500
"""perf: for fewer calls than this, a second process costs as much time as it saves."""
_NOTHING = "nothing to export: no session or call matches the filters"


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
    for ui.perfetto.dev. otlp: OTLP/JSON, one request per session and line. Named files are read one by
    one; folders and sessions count each call once.

    --tool, --state, --error and --agent select calls and omit messages; the other filters select
    sessions and times.
    """
    if preview and not redact:
        raise click.UsageError("--preview needs --redact")
    form = "json" if as_json else form
    if open_page and form != "html":
        raise click.UsageError("--open needs --format html")
    redactor = make_redactor(redact=redact, skeleton=skeleton, report=report or preview)
    page_files: list[TranscriptFile] = []
    if form == "html":
        page_files = _find_page_files(names, call_filter, last=last)
        names, last = tuple(str(file.path) for file in page_files), False
    selection = read_calls(Archive(*names, last=last, reporter=select.REPORTER).engine)
    calls = {(row.file, row.id) for row in selection.filter_calls(call_filter)}
    paths = {file for file, _ in calls}
    sessions = [[file.file for file in session.files] for session in selection.call_table.sessions]
    is_filtered = call_filter != Filter()
    if is_filtered:
        sessions = [own for own in sessions if not paths.isdisjoint(own)]
    if not sessions:
        raise NotFound(_NOTHING)
    has_messages = not (call_filter.tool or call_filter.state or call_filter.error or call_filter.agent)
    export_filter = ExportFilter(
        include_call=lambda file, call_id: (file, call_id) in calls,
        include_message=lambda message: has_messages and call_filter.accepts_time(message.at),
    )
    write = load_writer(form)
    if form == "html":
        page_filter = export_filter if is_filtered else EXPORT_ALL
        pieces = write(
            [SessionExport(read_session(page_files, select.REPORTER), redactor=redactor, export_filter=page_filter)]
        )
    elif form == "json" and isinstance(redactor, SecretRedactor) and len(calls) > _SERIAL_CALLS:
        pieces = write_redacted(lambda collector: _session_exports(sessions, collector, export_filter), redactor)
    else:
        pieces = write(_session_exports(sessions, redactor, export_filter))
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


def _find_page_files(names: Sequence[str], call_filter: Filter, *, last: bool) -> list[TranscriptFile]:
    """Return the files of the named session, or of the newest session that has a call which the filter accepts."""
    if call_filter == Filter() or not all(select.is_folder(name) for name in names):
        target = resolve_names(names, last=last, reporter=select.REPORTER)
        if not isinstance(target, list):
            raise click.UsageError("--format html exports a session, not one call; name its session instead")
        return target
    files, _ = select.locate_files(names)
    call_table = CallTable(scan_with_cache([file.path for file in files]))
    rows = CallSelection(call_table, is_joined=True, reporter=select.REPORTER).filter_calls(call_filter)
    accepted = {row.file for row in rows}
    sessions = [session for session in call_table.sessions if any(file.file in accepted for file in session.files)]
    if not sessions:
        raise NotFound(_NOTHING)
    if len(sessions) > 1 and names and not last:
        raise Ambiguous(f"{len(sessions)} sessions match the filters; name one by its id, or add --last")
    newest = max(sessions, key=lambda session: session.ended_at or "")
    members = {file.file for file in newest.files}
    return [file for file in files if str(file.path) in members]


def _session_exports(
    sessions: Sequence[Sequence[str]], redactor: Redactor, export_filter: ExportFilter
) -> Iterator[SessionExport]:
    for paths in sessions:
        transcripts = list(select.read_transcripts(map(to_path, paths)))
        try:
            if transcripts:
                yield SessionExport(transcripts, redactor=redactor, export_filter=export_filter)
        except SourceError as error:
            warn(error)
