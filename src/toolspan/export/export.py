"""Export the sessions of an archive: `toolspan export`, `toolspan show --html` and the page of a session.

Start at `export_sessions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from toolspan.archive.archive import Archive
from toolspan.archive.engine import scan_with_cache
from toolspan.archive.filters import Filter
from toolspan.archive.reporter import SILENT, Reporter
from toolspan.archive.selection import CallSelection, read_calls
from toolspan.archive.session import read_session, resolve_names
from toolspan.archive.sources import is_folder, locate_files, read_transcripts
from toolspan.archive.topics import resolve_filter
from toolspan.errors import Ambiguous, InvalidFilter, NotFound, SourceError
from toolspan.export.json import write_redacted
from toolspan.export.session_export import EXPORT_ALL, ExportFilter, ExportFormat, SessionExport, load_writer
from toolspan.formats.source import to_path
from toolspan.reading.discovery import TranscriptFile
from toolspan.reading.history import CallTable
from toolspan.redaction.redact import SecretRedactor
from toolspan.redaction.redactor import NoRedaction, Redactor

_SERIAL_CALLS = 500
"""perf: for fewer calls than this, a second process costs as much time as it saves."""
_NOTHING = "nothing to export: no session or call matches the filters"


def export_sessions(
    names: Sequence[str],
    call_filter: Filter | None = None,
    *,
    form: ExportFormat = "json",
    last: bool = False,
    redactor: Redactor | None = None,
    reporter: Reporter = SILENT,
) -> Iterator[bytes]:
    """Yield the pieces of an export. Filters on calls omit messages; `html` exports one session, by default the newest.

    Raises:
        NotFound: no session or call matches.
    """
    redactor = redactor or NoRedaction()
    call_filter = call_filter or Filter()
    if call_filter.program or call_filter.about is not None:
        call_filter = resolve_filter(Archive(*names, last=last, reporter=reporter).engine, call_filter)
    page_files: list[TranscriptFile] = []
    if form == "html":
        page_files = _find_page_files(names, call_filter, last=last, reporter=reporter)
        names, last = tuple(str(file.path) for file in page_files), False
    selection = read_calls(Archive(*names, last=last, reporter=reporter).engine)
    calls = {(row.file, row.id) for row in selection.filter_calls(call_filter)}
    paths = {file for file, _ in calls}
    sessions = [[file.file for file in session.files] for session in selection.call_table.sessions]
    is_filtered = call_filter != Filter()
    if is_filtered:
        sessions = [own for own in sessions if not paths.isdisjoint(own)]
    if not sessions:
        raise NotFound(_NOTHING)
    selects_calls = call_filter.replace(since=None, until=None).selects_calls
    export_filter = ExportFilter(
        include_call=lambda file, call_id: (file, call_id) in calls,
        include_message=lambda message: not selects_calls and call_filter.accepts_time(message.at),
    )
    if form == "html":
        page_filter = export_filter if is_filtered else EXPORT_ALL
        return export_page(page_files, redactor=redactor, reporter=reporter, export_filter=page_filter)
    if form == "json" and isinstance(redactor, SecretRedactor) and len(calls) > _SERIAL_CALLS:
        return write_redacted(
            lambda collector: _session_exports(sessions, collector, export_filter, reporter), redactor
        )
    return iter(load_writer(form)(_session_exports(sessions, redactor, export_filter, reporter)))


def export_page(
    files: Sequence[TranscriptFile],
    *,
    redactor: Redactor | None = None,
    reporter: Reporter = SILENT,
    export_filter: ExportFilter = EXPORT_ALL,
) -> Iterator[bytes]:
    """Yield the pieces of an HTML page of one session that works offline."""
    session = SessionExport(read_session(files, reporter), redactor=redactor, export_filter=export_filter)
    pieces: Iterable[bytes] = load_writer("html")([session])
    return iter(pieces)


def _find_page_files(
    names: Sequence[str], call_filter: Filter, *, last: bool, reporter: Reporter
) -> list[TranscriptFile]:
    """Return the files of the named session, or of the newest session that has a call which the filter accepts."""
    if call_filter == Filter() or not all(is_folder(name) for name in names):
        target = resolve_names(names, last=last, reporter=reporter)
        if not isinstance(target, list):
            raise InvalidFilter("an HTML page shows a session, not one call; name its session instead")
        return target
    files, _ = locate_files(names, reporter=reporter)
    call_table = CallTable(scan_with_cache([file.path for file in files]))
    rows = CallSelection(call_table, is_joined=True, reporter=reporter).filter_calls(call_filter)
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
    sessions: Sequence[Sequence[str]], redactor: Redactor, export_filter: ExportFilter, reporter: Reporter
) -> Iterator[SessionExport]:
    for paths in sessions:
        transcripts = list(read_transcripts(map(to_path, paths), reporter))
        try:
            if transcripts:
                yield SessionExport(transcripts, redactor=redactor, export_filter=export_filter)
        except SourceError as error:
            reporter.warn(error)


def choose_redactor(*, redact: bool, skeleton: bool, keep_report: bool = False) -> Redactor:
    """Return a redactor: for secrets and the names of this user and machine, for all text, or for nothing."""
    if skeleton:
        from toolspan.export.anonymize import Anonymizer

        return Anonymizer()
    if not redact:
        return NoRedaction()
    import getpass
    import platform

    names = [platform.node().partition(".")[0]]
    with suppress(OSError, KeyError, RuntimeError):
        names += [getpass.getuser(), Path.home().name]
    return SecretRedactor(filter(None, names), keep_report=keep_report)
