"""What became of calls that have no result: what the side file and the disk can prove.

In: a transcript's path and the calls in question. Out: a verdict for each, with its evidence in
words. Nothing is run and nothing is written. What cannot be proved is unknown: a call that another
program ran is, and so is one of before the machine went down, unless every line was forced to the
disk. Read `judged` first; `intent.py` says what the lines mean.
"""

import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from toolspan.disk.load import load, look
from toolspan.errors import SourceError, ToolError
from toolspan.record.intent import boot_id, intent_path
from toolspan.wire.jsonl import read_lines
from toolspan.wire.source import FileSource

Outcome = Literal["never_started", "happened", "did_not_happen", "unknown"]


class Verdict(msgspec.Struct, frozen=True):
    """What became of a call."""

    outcome: Outcome
    words: str = ""
    """The evidence; empty when there is none."""


NOTHING_KNOWN = Verdict("unknown")
UNANSWERED = (
    "[Tool call interrupted: the session ended before this call's result was recorded, so its"
    " outcome is unknown. Check whether it took effect before relying on it or running it again.]"
)
LOST_BEGINNING = "[The beginning of this conversation was lost.]"
"""Stands before a reply that nobody knows the prompt of: a conversation begins with the user."""


def unanswered_words(verdict: Verdict) -> str:
    """What stands in place of a result: the client's words, and the evidence beside them."""
    return f"{UNANSWERED}\n[On record: {verdict.words}.]" if verdict.words else UNANSWERED


class _Line(msgspec.Struct):
    """Any line of the side file."""

    open: int | None = None
    boot: str = ""
    fsync: str = "never"
    asked: list[str] | None = None
    begin: str | None = None
    path: str | None = None
    before: str | None = None
    after: str | None = None
    settled: str | None = None
    state: str = ""


@dataclass(slots=True)
class _Fate:
    """What the side file says of a call."""

    sure: bool
    """That it did not begin would be written there."""
    begin: _Line | None = None
    settled: _Line | None = None


@dataclass(slots=True)
class _Intents:
    """The side file, read."""

    boot: str
    fates: dict[str, _Fate] = field(default_factory=dict)
    sure: bool = False

    def add(self, line: _Line) -> None:
        if line.open is not None:
            self.sure = line.fsync != "never" or (bool(line.boot) and line.boot == self.boot)
        for call in line.asked or ():
            self.fates[call] = _Fate(self.sure)
        if line.begin is not None:
            self._fate(line.begin).begin = line
        if line.settled is not None:
            self._fate(line.settled).settled = line

    def _fate(self, call: str) -> _Fate:
        return self.fates.setdefault(call, _Fate(sure=False))


def judged(
    transcript: Path, calls: Iterable[str], *, boot: str | None = None
) -> dict[str, Verdict]:
    """What became of these calls; `boot` names the machine's present start, if not its own."""
    wanted = list(calls)
    if not wanted:
        return {}
    intents = _read(intent_path(transcript), boot_id() if boot is None else boot)
    return {call: _verdict(intents.fates.get(call)) for call in wanted}


def _read(path: Path, boot: str) -> _Intents:
    intents = _Intents(boot)
    if not path.is_file():
        return intents
    try:
        for line in read_lines(FileSource(path)):
            try:
                intents.add(msgspec.json.decode(line.data, type=_Line))
            except (msgspec.MsgspecError, UnicodeError):
                continue  # torn by the same crash
    except SourceError:
        return _Intents(boot)
    return intents


def _verdict(fate: _Fate | None) -> Verdict:
    if fate is None:
        return NOTHING_KNOWN
    begin, settled = fate.begin, fate.settled
    if begin is not None and begin.path is not None and begin.after is not None:
        return _by_content(begin, settled)
    if settled is not None:
        told = f"it ran to its end ({settled.state}), only its output was not recorded"
        return Verdict("happened", told)
    if begin is not None:
        return Verdict("unknown", "it was started, and nothing tells how far it got")
    if fate.sure:
        return Verdict("never_started", "it was never started")
    return Verdict("unknown", "the machine went down since, and what was not on the disk is lost")


def _by_content(begin: _Line, settled: _Line | None) -> Verdict:
    """A file tells by what it has now."""
    path = begin.path or ""
    there = _digest(Path(path))
    if there == begin.after:
        return Verdict("happened", f"{path} has exactly the content that it was to give it")
    if there == (begin.before or ""):
        told = "still has the content of before" if begin.before else "still does not exist"
        return Verdict("did_not_happen", f"{path} {told}")
    if settled is not None and settled.state == "succeeded":
        return Verdict("happened", f"it wrote {path}, which was changed again since")
    if there is None:
        return Verdict("unknown", f"it was about to write {path}, which cannot be read now")
    told = "which now has neither the content of before nor the one it was to get"
    return Verdict("unknown", f"it was about to write {path}, {told}")


def _digest(path: Path) -> str | None:
    """The digest of a file's content; empty when there is none, None when nobody can tell."""
    try:
        found = look(path)
        if found is None:
            return ""
        return load(path).digest if stat.S_ISREG(found.st_mode) else None
    except (ToolError, OSError, ValueError):
        return None
