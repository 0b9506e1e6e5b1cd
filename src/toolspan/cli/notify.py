"""Notifications of `toolspan watch`: a session waits for you, or a run has ended.

`analysis/live_sessions.py` finds the status of sessions. This module compares two answers and runs a command for each
difference that concerns a person.
"""

from __future__ import annotations

import html
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from time import monotonic

from toolspan.analysis.live_sessions import LiveSession
from toolspan.archive.archive import Archive
from toolspan.archive.filters import Filter
from toolspan.archive.words import plain_line
from toolspan.cli.output import warn
from toolspan.errors import InvalidFilter, NotFound, SourceError

_INTERVAL_SECONDS = 2.0
_TEXT_CHARS = 200
_APPLE_SCRIPT = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)


class Notifier:
    """Check the sessions of an archive every two seconds, and run a command when one waits or has ended."""

    def __init__(self, names: Sequence[str], call_filter: Filter, command: str | None = None) -> None:
        """Name the files and folders, by default those of all clients, and the command, by default of the desktop.

        Raises:
            InvalidFilter: the command is not valid, or its program is not installed.
        """
        self._command = _find_desktop_command() if command is None else _parse_command(command)
        self._escapes = command is None and self._command[0].endswith("notify-send")  # its text is markup
        self._names = names
        self._filter = Filter(project=call_filter.project, client=call_filter.client)
        self._before: Mapping[str, LiveSession] = {}
        self._checked: float | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._has_failed = False

    def check(self) -> None:
        """Notify of what has changed since the last check, at most every two seconds."""
        if self._checked is not None and monotonic() - self._checked < _INTERVAL_SECONDS:
            return
        self._checked = monotonic()
        try:
            sessions = {session.id: session for session in Archive(*self._names).live(self._filter)}
        except (NotFound, SourceError):  # nothing has been recorded yet
            sessions = {}
        for event, session in find_notices(self._before, sessions):
            self._notify(event, session)
        self._before = sessions
        self._reap()

    def _notify(self, event: str, session: LiveSession) -> None:
        place = PurePath(session.cwd).name if session.cwd else session.id[:8]
        texts = [f"{event}: {plain_line(place, 60)}", plain_line(session.title or f"session {session.id}", _TEXT_CHARS)]
        if self._escapes:
            texts = [html.escape(text, quote=False) for text in texts]
        try:
            process = subprocess.Popen(
                [*self._command, *texts],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            self._warn_once(error.strerror or str(error))
        else:
            self._processes.append(process)

    def _reap(self) -> None:
        for process in self._processes:
            if process.poll():
                self._warn_once(f"exit code {process.returncode}")
        self._processes = [process for process in self._processes if process.returncode is None]

    def _warn_once(self, problem: str) -> None:
        if not self._has_failed:
            warn(f"a notification failed: {shlex.join(self._command)}: {problem}")
        self._has_failed = True


def find_notices(
    before: Mapping[str, LiveSession], sessions: Mapping[str, LiveSession]
) -> Iterator[tuple[str, LiveSession]]:
    """Yield the sessions, by id before and now, that began to wait for a person or ended, and what happened."""
    for session in sessions.values():
        earlier = before.get(session.id)
        status = earlier.status if earlier else None
        if session.status == "waiting" and status != "waiting":
            yield "Waiting for you", session
        elif session.status == "idle" and status in ("running", "waiting"):
            yield "Finished", session
        elif session.status == "dead" and status not in ("dead", None):
            yield "Died", session
    for session in before.values():
        if session.id not in sessions and session.status in ("running", "waiting"):
            yield "Finished", session


def _find_desktop_command() -> list[str]:
    if program := shutil.which("notify-send"):
        return [program, "--app-name=toolspan", "--"]
    if program := shutil.which("osascript"):
        return [program, *(part for line in _APPLE_SCRIPT for part in ("-e", line))]
    raise InvalidFilter("--notify needs notify-send or osascript; name another program with --notify-command")


def _parse_command(command: str) -> list[str]:
    try:
        parts = shlex.split(command)
    except ValueError as error:
        raise InvalidFilter(f"--notify-command: {error}") from error
    if not parts or shutil.which(parts[0]) is None:
        raise InvalidFilter(f"--notify-command: {command!r}: no such program")
    return parts
