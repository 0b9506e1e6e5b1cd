"""`toolspan watch`: follow sessions as they grow.

`archive/watch.py` selects the files and waits for changes. This module prints the updates.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import PurePath

import click
import msgspec
from rich.text import Text

from toolspan.archive.filters import Filter
from toolspan.archive.watch import find_follower, watch_updates
from toolspan.archive.words import format_duration, plain_line, shorten_line
from toolspan.cli import select
from toolspan.cli.filters import filter_options
from toolspan.cli.output import STATE_STYLES, format_time, make_console, print_json
from toolspan.reading.follow import CallAppeared, CallChanged, FileReset, FolderFollower, FollowUpdate
from toolspan.reading.rows import make_call_row
from toolspan.types.span import Notification, Span, parse_timestamp
from toolspan.types.state import OPEN_STATES, STATE_SYMBOLS


@click.command("watch")
@click.argument("name", required=False, shell_complete=select.complete_session, metavar="[FILE|FOLDER|SESSION]")
@select.last_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per update.")
@click.option("--since-start", is_flag=True, help="Begin with all calls that are already recorded.")
@click.option(
    "--idle-exit", type=click.FloatRange(min=0), metavar="SECONDS",
    help="Exit after this time without updates.",
)  # fmt: skip
@click.option("--notify", is_flag=True, help="Show a desktop notification when a session waits for you or a run ends.")
@click.option("--notify-command", metavar="COMMAND",
              help="Run this command instead, with a title and a text as its last arguments.")  # fmt: skip
@filter_options
def command(
    name: str | None, *, last: bool, as_json: bool, since_start: bool, idle_exit: float | None, notify: bool,
    notify_command: str | None, call_filter: Filter,
) -> None:  # fmt: skip
    """Follow sessions as they grow: one line for each change of a call.

    Without a name, all of your sessions are followed, including new ones and subagents. A file or
    session is followed with its subagents, a folder with all sessions in it. Open calls are printed
    first. If a file does not exist yet, watch waits for it. Press Ctrl-C to stop.
    """
    try:
        follower = find_follower(name, last=last, since_start=since_start, reporter=select.REPORTER)
        if not as_json:
            verb = "watching" if follower.path.exists() else "waiting for"
            paths = follower.watched_folders() if isinstance(follower, FolderFollower) else [follower.path]
            click.echo(f"{verb} {', '.join(map(str, paths))}", err=True)
        print_update = partial(_print_row, call_filter) if as_json else _LinePrinter(call_filter).print_update
        notifier = None
        if notify or notify_command is not None:
            from toolspan.cli.notify import Notifier

            names = () if name is None and not last else (str(follower.path),)
            notifier = Notifier(names, call_filter, notify_command)
        for updates in watch_updates(follower, since_start=since_start, idle_exit=idle_exit, reporter=select.REPORTER):
            for update in updates:
                print_update(update)
            sys.stdout.flush()
            if notifier is not None:
                notifier.check()
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None


def _print_row(call_filter: Filter, update: FollowUpdate) -> None:
    if isinstance(update, FileReset):
        print_json({"type": "reset", "file": update.file, "reason": update.reason})
        return
    row = _call_row(update.span, update.file)
    before = update.before if isinstance(update, CallChanged) else None
    is_change = before is None or row != _call_row(before, update.file)
    if is_change and call_filter.accepts_call(make_call_row(update.span, update.file)):
        print_json({"type": "call", "was": before.state if before else None, **row})


def _call_row(span: Span, file: str) -> dict[str, object]:
    notification = _last_notification(span)
    notice = {"status": notification.status, "summary": notification.summary} if notification else None
    return {**msgspec.structs.asdict(make_call_row(span, file)), "notice": notice}


def _last_notification(span: Span) -> Notification | None:
    notifications = [event for event in span.events if isinstance(event, Notification)]
    return notifications[-1] if notifications else None


class _LinePrinter:
    def __init__(self, call_filter: Filter) -> None:
        self._filter = call_filter
        self._out = make_console()

    def print_update(self, update: FollowUpdate) -> None:
        match update:
            case FileReset(file=file, reason=reason):
                self._print_parts([(f"── {shorten_line(file, 200)} was {reason}; reading it again", "yellow")])
            case _ if self._filter != Filter() and not self._filter.accepts_call(
                make_call_row(update.span, update.file)
            ):
                pass
            case CallAppeared(span=span, file=file):
                self._print_parts(_call_parts(span, file))
            case CallChanged(span=span, before=before, file=file):
                notice = _last_notification(span)
                if span.state != before.state:
                    self._print_parts(_call_parts(span, file))
                elif notice is not None and notice != _last_notification(before):
                    text = plain_line(f"task {notice.status or 'update'}: {notice.summary or ''}", 120)
                    prefix = _prefix_parts(span, file, "◆", "cyan", parse_timestamp(notice.at))
                    self._print_parts([*prefix, (f"  {text}", "cyan")])

    def _print_parts(self, parts: list[tuple[str, str]]) -> None:
        line = Text.assemble(*parts)
        if self._out.is_terminal:
            self._out.print(line, no_wrap=True, overflow="ellipsis")
        else:
            self._out.print(line, soft_wrap=True)


def _call_parts(span: Span, file: str) -> list[tuple[str, str]]:
    style = STATE_STYLES[span.state]
    parts = _prefix_parts(span, file, STATE_SYMBOLS[span.state], style, span.finished or span.requested)
    if span.duration is not None:
        parts.append((f"  {format_duration(span.duration.total_seconds() * 1000)}", "dim"))
    elif span.state in OPEN_STATES and span.requested is not None:
        seconds = (datetime.now(UTC) - span.requested).total_seconds()
        if seconds >= 1:
            parts.append((f"  {format_duration(seconds * 1000)} so far", "dim"))
    if span.background:
        parts.append(("  ⟳ continues in the background", "cyan"))
    if span.state not in OPEN_STATES and span.state != "succeeded":
        kind = f" · {span.error_kind}" if span.error_kind else ""
        parts.append((f"  {span.state}{kind}", style))
        message = plain_line((span.message or "").lstrip().partition("\n")[0], 100)
        parts.append((f": {message}" if message else "", ""))
    return parts


def _prefix_parts(span: Span, file: str, glyph: str, style: str, at: datetime | None) -> list[tuple[str, str]]:
    session = plain_line((span.call.session_id or PurePath(file).stem)[:8], 8)
    session += " ↳" if span.call.agent_id else ""
    return [
        (f"{format_time(at, date=False):8}  {session:10}  ", "dim"),
        (f"{glyph} ", style),
        (f"{plain_line(span.tool or '?', 30):10}", "bold"),
        (f"  {plain_line(span.call.target, 70)}", ""),
    ]
