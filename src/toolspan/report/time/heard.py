"""What hooks of ours have noted of a session: when each call was asked about, and when it ran.

In: the lines of `<session>/toolspan-hooks.jsonl`, written while the client ran (`toolspan hook`).
Out: a `Heard` for each call. A question of consent has no call's id: it belongs to the open call
of the same tool and input, else to the latest open one of that tool. Lines that say nothing are
passed over; nothing here raises for what a file contains. Read `heard_of` first.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from toolspan.wire.paths import hooks_path

_LIMIT = 64 << 20
_ENDS = ("PostToolUse", "PostToolUseFailure")


class Heard(Struct, frozen=True, kw_only=True):
    """What a client told of a call while it lived; times are milliseconds since the epoch."""

    announced: int
    """When the call was about to be decided on."""
    asked: int | None = None
    """When a person was asked; None when nobody was, as far as it is known."""
    ended: int | None = None
    """When the tool had ended; None when it did not, or was never run."""
    ran_ms: int | None = None
    """How long the tool itself ran, without hooks and questions."""

    @property
    def began(self) -> int | None:
        """When the tool itself began."""
        return None if self.ended is None or self.ran_ms is None else self.ended - self.ran_ms


class _Note(Struct, frozen=True, kw_only=True):
    """A line."""

    at: float
    event: str
    call: str | None = None
    tool: str | None = None
    input: str | None = None
    duration_ms: float | None = None


_DECODER = msgspec.json.Decoder(_Note)


def read_heard(transcript: Path) -> Mapping[str, Heard]:
    """What was noted of a transcript's calls; nothing when nothing was."""
    try:
        with hooks_path(transcript).open("rb") as file:
            return heard_of(file.read(_LIMIT).splitlines())
    except (OSError, ValueError):
        return {}


def read_all_heard(transcripts: Iterable[Path]) -> Mapping[str, Heard]:
    """What was noted of a session's files; its agents share the notes of their session."""
    heard: dict[str, Heard] = {}
    for transcript in {hooks_path(one): one for one in transcripts}.values():
        heard |= read_heard(transcript)
    return heard


def heard_of(lines: Iterable[bytes]) -> Mapping[str, Heard]:
    """What was noted, by call."""
    desk = _Desk()
    for line in lines:
        try:
            desk.take(_DECODER.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError):
            continue
    return desk.found


class _Desk:
    """Puts notes to their calls."""

    def __init__(self) -> None:
        self.found: dict[str, Heard] = {}
        self._open: dict[str, _Note] = {}
        """Calls that were announced and have not ended."""

    def take(self, note: _Note) -> None:
        """One note, in the order they were made."""
        at = round(note.at * 1000)
        if note.event == "PreToolUse" and note.call is not None:
            self._open[note.call] = note
            self.found[note.call] = Heard(announced=at)
        elif note.event == "PermissionRequest":
            self._ask(note, at)
        elif note.event in _ENDS and note.call in self.found:
            self._open.pop(note.call, None)
            known = self.found[note.call]
            ran = None if note.duration_ms is None else round(note.duration_ms)
            self.found[note.call] = msgspec.structs.replace(known, ended=at, ran_ms=ran)

    def _ask(self, note: _Note, at: int) -> None:
        call = note.call if note.call in self.found else self._meant(note)
        if call is not None:
            self.found[call] = msgspec.structs.replace(self.found[call], asked=at)

    def _meant(self, note: _Note) -> str | None:
        """The open call that a question is about; a hook may have changed its input."""
        waiting = [
            (call, one)
            for call, one in reversed(self._open.items())
            if one.tool == note.tool and self.found[call].asked is None
        ]
        same = (call for call, one in waiting if one.input == note.input)
        return next(same, waiting[0][0] if waiting else None)
