"""`toolspan watch`: calls as they happen.

`read/follow.py` finds out what changed and waits; here is which files that is about, and how
updates are told: a line for people, a JSON object for programs.
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePath
from time import monotonic, time
from typing import Any

import click
import msgspec

from toolspan.cli.output import STATE_STYLE, clock, complain, console, duration, print_json, short
from toolspan.cli.select import (
    Filter,
    complete_session,
    exists,
    filters,
    newest_session,
    session_files,
    wanted_filter,
)
from toolspan.errors import NotFound, SourceError
from toolspan.model.event import Notification
from toolspan.model.span import Span
from toolspan.model.state import OPEN_STATES
from toolspan.read.discover import FoundFile, default_roots
from toolspan.read.facts import facts_of
from toolspan.read.follow import (
    Appeared,
    Changed,
    FolderFollower,
    Reset,
    SessionFollower,
    Update,
    changes,
)

_RECENTLY = 3600.0
"""Of a folder's files, those not written to for so many seconds are read only when they change."""


@click.command("watch")
@click.argument(
    "name", required=False, shell_complete=complete_session, metavar="[FILE|FOLDER|SESSION]"
)
@click.option("--last", is_flag=True, help="The session written to last.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option("--since-start", is_flag=True, help="Begin with all that is there already.")
@click.option(
    "--idle-exit", type=click.FloatRange(min=0), metavar="SECONDS",
    help="End after so long without news.",
)  # fmt: skip
@filters
def command(
    name: str | None,
    *,
    last: bool,
    as_json: bool,
    since_start: bool,
    idle_exit: float | None,
    **wanted: Any,
) -> None:
    """Follow sessions as they grow: one line for each change of a call.

    Without a name: all sessions of this user's clients, those that begin later and subagents
    included. A file or session is followed with its subagents, a folder with all sessions below it.
    Begins with the calls that are open. Nothing is read while nothing is written. A file that is
    not there yet is waited for. Ctrl-C ends it.
    """
    keep = wanted_filter(wanted)
    try:
        follower = _follower(name, last=last, since_start=since_start)
        if not as_json:
            verb = "watching" if follower.path.exists() else "waiting for"
            click.echo(f"{verb} {', '.join(map(str, _meant(follower)))}", err=True)
        show = _Rows(keep).show if as_json else _Lines(keep).show
        _watch(follower, show, since_start=since_start, idle_exit=idle_exit)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None


def _follower(
    name: str | None, *, last: bool, since_start: bool
) -> SessionFollower | FolderFollower:
    """What follows the thing named."""
    asleep = 0.0 if since_start else time() - _RECENTLY
    if name is None:
        if last:
            return SessionFollower(_main(newest_session()))
        return FolderFollower(*default_roots(), asleep_before=asleep)
    path = Path(name)
    there = exists(path)
    if there and path.is_dir():
        if last:
            return SessionFollower(_main(newest_session([name])))
        return FolderFollower(path, asleep_before=asleep)
    if there or len(path.parts) > 1 or path.suffix in (".jsonl", ".zst"):
        if not exists(path.parent):
            raise NotFound(f"{path}: no such file or folder")
        if not os.access(path.parent, os.R_OK | os.X_OK):
            raise SourceError(f"{path.parent}: may not be looked at")
        return SessionFollower(path)
    return SessionFollower(_main(session_files(name)))


def _meant(follower: SessionFollower | FolderFollower) -> list[Path]:
    return follower.folders() if isinstance(follower, FolderFollower) else [follower.path]


def _main(files: Iterable[FoundFile]) -> Path:
    """The session's own file among its files, if it is left; of several the one written to last."""
    found = list(files)
    mains = [file for file in found if file.name.role == "session"]
    return max(mains or found, key=lambda file: file.modified).path


def _watch(
    follower: SessionFollower | FolderFollower,
    show: Callable[[Update], None],
    *,
    since_start: bool,
    idle_exit: float | None,
) -> None:
    told = monotonic()
    complaints: set[str] = set()
    updates = follower.poll() if since_start else follower.catch_up()
    news = changes(follower)
    while idle_exit is None or updates or monotonic() - told < idle_exit:
        if updates:
            told = monotonic()
        for update in updates if since_start else _without_repeats(updates):
            show(update)
        sys.stdout.flush()
        for problem in set(follower.problems.values()) - complaints:
            complaints.add(problem)
            complain(problem)
        changed = next(news)
        updates = follower.poll(changed) if changed is None or changed else []


def _without_repeats(updates: Sequence[Update]) -> list[Update]:
    """Without calls that had ended long before their file was read anew."""
    anew = {update.file for update in updates if isinstance(update, Reset)}
    return [
        update
        for update in updates
        if not isinstance(update, Appeared)
        or update.file not in anew
        or update.span.state in OPEN_STATES
    ]


class _Rows:
    """Tells updates to programs."""

    def __init__(self, keep: Filter) -> None:
        self._keep = keep

    def show(self, update: Update) -> None:
        """One JSON object: the fields of `calls --json`, and what the state was before."""
        if isinstance(update, Reset):
            print_json({"type": "reset", "file": update.file, "reason": update.reason})
            return
        row = _row(update.span, update.file)
        before = update.before if isinstance(update, Changed) else None
        if not self._keep.takes(facts_of(update.span, update.file)):
            return
        if before is None or row != _row(before, update.file):
            was = before.state if before else None
            print_json({"type": "call", "was": was, **row})


def _row(span: Span, file: str) -> dict[str, object]:
    notice = _notice(span)
    said = {"status": notice.status, "summary": notice.summary} if notice else None
    return {**msgspec.structs.asdict(facts_of(span, file)), "notice": said}


def _notice(span: Span) -> Notification | None:
    """The last news of a background task that the call started."""
    found = [event for event in span.events if isinstance(event, Notification)]
    return found[-1] if found else None


class _Lines:
    """Tells updates to people."""

    def __init__(self, keep: Filter) -> None:
        self._keep = keep
        self._out = console()

    def show(self, update: Update) -> None:
        """One line, unless nothing changed that people would want to know."""
        if not isinstance(update, Reset) and not self._wants(update):
            return
        match update:
            case Reset(file=file, reason=reason):
                self._print([(f"── {short(file, 200)} was {reason}, it is read anew", "yellow")])
            case Appeared(span=span, file=file):
                self._print(_ended(span, file))
            case Changed(span=span, before=before, file=file):
                notice = _notice(span)
                if span.state != before.state:
                    self._print(_ended(span, file))
                elif notice is not None and notice != _notice(before):
                    self._print(_notified(span, file, notice))

    def _wants(self, update: Appeared | Changed) -> bool:
        keep = self._keep
        return keep == Filter() or keep.takes(facts_of(update.span, update.file))

    def _print(self, parts: list[tuple[str, str]]) -> None:
        from rich.text import Text

        line = Text.assemble(*parts)
        if self._out.is_terminal:
            self._out.print(line, no_wrap=True, overflow="ellipsis")
        else:
            self._out.print(line, soft_wrap=True)


def _ended(span: Span, file: str) -> list[tuple[str, str]]:
    """A call and how far it got."""
    from toolspan.cli.draw import plain_line
    from toolspan.model.state import SIGNS

    style = STATE_STYLE[span.state]
    parts = _about(span, file, SIGNS[span.state], style, span.finished or span.requested)
    if took := _took(span):
        parts.append((f"  {took}", "dim"))
    if span.background:
        parts.append(("  ⟳ goes on in the background", "cyan"))
    if span.state not in OPEN_STATES and span.state != "succeeded":
        kind = f" · {span.error_kind}" if span.error_kind else ""
        parts.append((f"  {span.state}{kind}", style))
        words = plain_line((span.message or "").lstrip().partition("\n")[0], 100)
        parts.append((f": {words}" if words else "", ""))
    return parts


def _notified(span: Span, file: str, notice: Notification) -> list[tuple[str, str]]:
    """News of what a call left running."""
    from toolspan.cli.draw import plain_line
    from toolspan.model.span import moment

    parts = _about(span, file, "◆", "cyan", moment(notice.at))
    told = plain_line(f"task {notice.status or 'news'}: {notice.summary or ''}", 120)
    return [*parts, (f"  {told}", "cyan")]


def _about(
    span: Span, file: str, glyph: str, style: str, at: datetime | None
) -> list[tuple[str, str]]:
    from toolspan.cli.draw import plain_line

    session = plain_line((span.call.session_id or PurePath(file).stem)[:8], 8)
    session += " ↳" if span.call.agent_id else ""
    return [
        (f"{clock(at, date=False):8}  {session:10}  ", "dim"),
        (f"{glyph} ", style),
        (f"{plain_line(span.tool or '?', 30):10}", "bold"),
        (f"  {plain_line(span.call.target, 70)}", ""),
    ]


def _took(span: Span) -> str:
    """How long it took, or takes so far."""
    if span.duration is not None:
        return duration(span.duration.total_seconds() * 1000)
    if span.state in OPEN_STATES and span.requested is not None:
        since = (datetime.now(UTC) - span.requested).total_seconds()
        return f"{duration(since * 1000)} so far" if since >= 1 else ""
    return ""
