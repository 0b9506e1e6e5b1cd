"""Evidence about calls without a result, from the intent log that a recorded session leaves.

The log is a file beside the transcript (`session/recording/intent_log.py` writes it). Start at
`collect_evidence`.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from toolspan.errors import SourceError
from toolspan.formats.claude.paths import session_folder
from toolspan.formats.jsonl import read_lines
from toolspan.formats.source import FileSource

INTENT_LOG_NAME = "toolspan-intent.log"
UNANSWERED_MESSAGE = (
    "[Tool call interrupted: the session ended before this call's result was recorded, so its"
    " outcome is unknown. Check whether it took effect before relying on it or running it again.]"
)
LOST_BEGINNING_MESSAGE = "[The beginning of this conversation was lost.]"
"""Placeholder prompt before a reply whose prompt is missing: a conversation must begin with the user."""

EvidenceOutcome = Literal["never_started", "happened", "did_not_happen", "unknown"]

_BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")
_MAX_FILE_BYTES = 1 << 30
_DIGEST_BYTES = 16


class CallEvidence(msgspec.Struct, frozen=True):
    """What is known about a call whose result was not recorded."""

    outcome: EvidenceOutcome
    explanation: str = ""
    """The reason for the outcome; empty when there is no evidence."""


def intent_path(transcript: Path) -> Path:
    """Return the path of the intent log that belongs to a transcript."""
    folder = session_folder(transcript)
    if folder == transcript:
        return transcript.with_name(f"{folder.name}.{INTENT_LOG_NAME}")
    return folder / INTENT_LOG_NAME


def read_boot_id() -> str:
    """Return an id that changes when the machine restarts, or "" on systems without one."""
    try:
        return _BOOT_ID_PATH.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def format_unanswered(evidence: CallEvidence) -> str:
    """Return the text that replaces a missing result: the client's message, then the evidence."""
    return f"{UNANSWERED_MESSAGE}\n[On record: {evidence.explanation}.]" if evidence.explanation else UNANSWERED_MESSAGE


def collect_evidence(transcript: Path, calls: Iterable[str], *, boot: str | None = None) -> dict[str, CallEvidence]:
    """Return the evidence for each of these calls. `boot` replaces the boot id of this machine."""
    call_ids = list(calls)
    if not call_ids:
        return {}
    intents = _read_intents(intent_path(transcript), read_boot_id() if boot is None else boot)
    return {call: _judge_call(intents.calls.get(call)) for call in call_ids}


class _IntentLine(msgspec.Struct):
    """Any line of the log; `IntentLog` describes them."""

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
class _CallIntents:
    """The lines of one call."""

    is_reliable: bool
    """Whether a missing `begin` line proves that the call did not start."""
    begin: _IntentLine | None = None
    settled: _IntentLine | None = None


@dataclass(slots=True)
class _IntentFile:
    """The parsed log."""

    boot: str
    calls: dict[str, _CallIntents] = field(default_factory=dict)
    is_reliable: bool = False

    def add_line(self, line: _IntentLine) -> None:
        if line.open is not None:
            self.is_reliable = line.fsync != "never" or (bool(line.boot) and line.boot == self.boot)
        for call in line.asked or ():
            self.calls[call] = _CallIntents(self.is_reliable)
        if line.begin is not None:
            self._call_intents(line.begin).begin = line
        if line.settled is not None:
            self._call_intents(line.settled).settled = line

    def _call_intents(self, call: str) -> _CallIntents:
        return self.calls.setdefault(call, _CallIntents(is_reliable=False))


def _read_intents(path: Path, boot: str) -> _IntentFile:
    intents = _IntentFile(boot)
    if not path.is_file():
        return intents
    try:
        for line in read_lines(FileSource(path)):
            try:
                intents.add_line(msgspec.json.decode(line.data, type=_IntentLine))
            except (msgspec.MsgspecError, UnicodeError):
                continue  # a line that the crash cut off
    except SourceError:
        return _IntentFile(boot)
    return intents


def _judge_call(intents: _CallIntents | None) -> CallEvidence:
    if intents is None:
        return CallEvidence("unknown")
    begin, settled = intents.begin, intents.settled
    if begin is not None and begin.path is not None and begin.after is not None:
        return _judge_by_content(begin, settled)
    if settled is not None:
        return CallEvidence("happened", f"it ran to its end ({settled.state}), only its output was not recorded")
    if begin is not None:
        return CallEvidence("unknown", "it was started, and nothing tells how far it got")
    if intents.is_reliable:
        return CallEvidence("never_started", "it was never started")
    return CallEvidence("unknown", "the machine went down since, and what was not on the disk is lost")


def _judge_by_content(begin: _IntentLine, settled: _IntentLine | None) -> CallEvidence:
    """Compare the file that the call was to replace with the digests in the log."""
    path = begin.path or ""
    digest = _file_digest(Path(path))
    if digest == begin.after:
        return CallEvidence("happened", f"{path} has exactly the content that it was to give it")
    if digest == (begin.before or ""):
        difference = "still has the content of before" if begin.before else "still does not exist"
        return CallEvidence("did_not_happen", f"{path} {difference}")
    if settled is not None and settled.state == "succeeded":
        return CallEvidence("happened", f"it wrote {path}, which was changed again since")
    if digest is None:
        return CallEvidence("unknown", f"it was about to write {path}, which cannot be read now")
    difference = "which now has neither the content of before nor the one it was to get"
    return CallEvidence("unknown", f"it was about to write {path}, {difference}")


def _file_digest(path: Path) -> str | None:
    """Return the digest of a file's content, "" if it does not exist, None if it cannot be read."""
    try:
        file_stat = path.stat()
        if not stat.S_ISREG(file_stat.st_mode) or file_stat.st_size > _MAX_FILE_BYTES:
            return None
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=_DIGEST_BYTES)).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError):
        return None
