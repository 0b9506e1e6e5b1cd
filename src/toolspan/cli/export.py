"""`toolspan export`: sessions as JSON, CSV, Markdown or traces."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolspan.cli.output import complain
from toolspan.cli.select import Filter, filters, named, narrow, select, wanted_filter
from toolspan.cli.veiled import deliver, veil, veils
from toolspan.errors import NotFound, SourceError
from toolspan.export.formats import FORMATS, Format, writer

if TYPE_CHECKING:
    from toolspan.export.story import Choice, Story
    from toolspan.export.veil import Veil
    from toolspan.model.message import Message

_OF_CALLS = ("tool", "state", "error", "agent")


@click.command("export")
@named
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="json",
    show_default=True,
    help="What to write.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--last", is_flag=True, help="The session written to last.")
@veils
@filters
def command(
    names: tuple[str, ...],
    *,
    form: Format,
    as_json: bool,
    last: bool,
    output: Path | None,
    **wanted: Any,
) -> None:
    """Write sessions in another form.

    json: one object per call, bodies included. csv: one row per call, for spreadsheets. markdown:
    sessions to read. perfetto: a trace for ui.perfetto.dev. otlp: OTLP/JSON, one request per
    session and line. Files are read alone; folders and sessions count each call once.

    --tool, --state, --error and --agent choose calls, and leave words out; the other filters choose
    sessions and times.
    """
    over = veil(redact=wanted.pop("redact"), skeleton=wanted.pop("skeleton"))
    keep = wanted_filter(wanted)
    sessions, choice = _chosen(names, keep, last=last)
    write = writer("json" if as_json else form)
    deliver(write(_stories(sessions, over, choice)), output)


def _chosen(names: Sequence[str], keep: Filter, *, last: bool) -> tuple[list[list[str]], "Choice"]:
    """The files of each session that has a wanted call, or any if everything is wanted."""
    from toolspan.export.story import Choice

    found = select(names, last=last)
    calls = {(row.file, row.id) for row in narrow(found, keep)}
    files = {file for file, _ in calls}
    sessions = [[file.file for file in session.files] for session in found.ledger.sessions]
    if keep != Filter():
        sessions = [paths for paths in sessions if not files.isdisjoint(paths)]
    if not sessions:
        raise NotFound("nothing to export: no session or call is left")
    return sessions, Choice(
        call=lambda file, call_id: (file, call_id) in calls,
        message=lambda message: _takes(keep, message),
    )


def _takes(keep: Filter, message: "Message") -> bool:
    """Whether words are wanted: with filters of calls none are."""
    from toolspan.model.span import moment

    if any(getattr(keep, name) for name in _OF_CALLS):
        return False
    if keep.since is None and keep.until is None:
        return True
    at = moment(message.at)
    return at is not None and (
        (keep.since is None or at >= keep.since) and (keep.until is None or at < keep.until)
    )


def _stories(
    sessions: Sequence[Sequence[str]], over: "Veil", choice: "Choice"
) -> Iterator["Story"]:
    """The sessions, each read when its turn comes; what cannot be read is told and left out."""
    from toolspan.cli.reading import readable
    from toolspan.export.story import Story

    for paths in sessions:
        transcripts = list(readable(map(Path, paths)))
        try:
            if transcripts:
                yield Story(transcripts, veil=over, choice=choice)
        except SourceError as error:
            complain(error)
