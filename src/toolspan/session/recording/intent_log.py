"""What is about to be done, written down before: a side file beside the transcript.

In: which calls were asked for, that one begins, how it ended. Out: lines of
`<session>/toolspan-intent.log`, one `write()` each. The transcript stays the client's own; this
file is ours, clients pass over it, and by its name nobody takes it for a transcript. Calls that
only read are not told of here. `evidence.py` reads it after a crash. May be called from several
threads. Read `Journal.begin` first.

A line is one of

    {"open":PID,"boot":ID,"fsync":"never"}             somebody records from here on
    {"asked":["toolu_1","toolu_2"]}                    these calls are written to the transcript now
    {"begin":"toolu_1","tool":"Bash","input":DIGEST}   it starts now
    {"begin":…,"path":…,"before":DIGEST,"after":…}     and replaces this file
    {"settled":"toolu_1","state":"succeeded"}          it has ended; its result is written next
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from toolspan.errors import SourceError, ToolError
from toolspan.formats.claude.paths import session_folder
from toolspan.formats.jsonl import read_lines
from toolspan.formats.source import FileSource
from toolspan.session.recording.chain import encode_json
from toolspan.session.recording.writer import TranscriptWriter
from toolspan.tools.files.safe_read import digest_bytes, read_file, stat_path

INTENT_LOG_NAME = "toolspan-intent.log"
_BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")


def intent_path(transcript: Path) -> Path:
    """Where the intents of a session stand."""
    folder = session_folder(transcript)
    return (
        folder / INTENT_LOG_NAME if folder != transcript else transcript.with_name(f"{folder.name}.{INTENT_LOG_NAME}")
    )


def read_boot_id() -> str:
    """What tells one start of the machine from the next; empty where nothing does."""
    try:
        return _BOOT_ID_PATH.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


class IntentLog:
    """Writes the intents of one session, its subagents' among them."""

    def __init__(self, path: Path, on_failure: Callable[[str, Path], None], *, fsync: str, boot: str) -> None:
        self.path = path
        self._writer = TranscriptWriter(path, lambda reason: on_failure(reason, path))
        self._sync_starts = fsync != "never"
        self._open_record = {"open": os.getpid(), "boot": boot, "fsync": fsync}
        self._lock = threading.Lock()
        self.started_calls: set[str] = set()
        """Calls that have begun and not ended."""
        self._is_open_recorded = False

    def record_requested(self, calls: Sequence[str]) -> None:
        """Calls that may do something are about to stand in the transcript."""
        self._write_record({"asked": calls})

    def begin(self, call_id: str, tool: str, input: object, **change: str | None) -> None:
        """A call starts; when this returns, that is written down, and kept by the disk if so asked.

        The other lines need not be: one that is lost makes a verdict unknown, and never wrong.

        `change`: the `path` of a file that is replaced, the digest it has `before` (None: there is
        no such file) and the one it will have `after`.
        """
        self.started_calls.add(call_id)
        record = {"begin": call_id, "tool": tool, "input": digest_bytes(encode_json(input))}
        self._write_record({**record, **change}, sync=self._sync_starts)

    def record_finished(self, call_id: str, state: str) -> None:
        """A call has ended; nothing is written for one that did not begin."""
        if call_id in self.started_calls:
            self.started_calls.discard(call_id)
            self._write_record({"settled": call_id, "state": state})

    def close(self) -> None:
        """Let the file go."""
        with self._lock:
            self._writer.close()

    def _write_record(self, record: dict[str, object], *, sync: bool = False) -> None:
        with self._lock:
            self._writer.ensure_open()
            lines = [encode_json(record) + b"\n"]
            if not self._is_open_recorded:
                lines.insert(0, encode_json(self._open_record) + b"\n")
            self._is_open_recorded = bool(self._writer.write_lines(lines, sync=sync)) or self._is_open_recorded


EvidenceOutcome = Literal["never_started", "happened", "did_not_happen", "unknown"]


class CallEvidence(msgspec.Struct, frozen=True):
    """What became of a call."""

    outcome: EvidenceOutcome
    explanation: str = ""
    """The evidence; empty when there is none."""


NO_EVIDENCE = CallEvidence("unknown")
UNANSWERED_MESSAGE = (
    "[Tool call interrupted: the session ended before this call's result was recorded, so its"
    " outcome is unknown. Check whether it took effect before relying on it or running it again.]"
)
LOST_BEGINNING_MESSAGE = "[The beginning of this conversation was lost.]"
"""Stands before a reply that nobody knows the prompt of: a conversation begins with the user."""


def format_unanswered(evidence: CallEvidence) -> str:
    """What stands in place of a result: the client's words, and the evidence beside them."""
    return f"{UNANSWERED_MESSAGE}\n[On record: {evidence.explanation}.]" if evidence.explanation else UNANSWERED_MESSAGE


class _IntentLine(msgspec.Struct):
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
class _CallIntents:
    """What the side file says of a call."""

    is_reliable: bool
    """That it did not begin would be written there."""
    begin: _IntentLine | None = None
    settled: _IntentLine | None = None


@dataclass(slots=True)
class _IntentFile:
    """The side file, read."""

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


def collect_evidence(transcript: Path, calls: Iterable[str], *, boot: str | None = None) -> dict[str, CallEvidence]:
    """What became of these calls; `boot` names the machine's present start, if not its own."""
    call_ids = list(calls)
    if not call_ids:
        return {}
    intents = _read_intents(intent_path(transcript), read_boot_id() if boot is None else boot)
    return {call: _judge_call(intents.calls.get(call)) for call in call_ids}


def _read_intents(path: Path, boot: str) -> _IntentFile:
    intents = _IntentFile(boot)
    if not path.is_file():
        return intents
    try:
        for line in read_lines(FileSource(path)):
            try:
                intents.add_line(msgspec.json.decode(line.data, type=_IntentLine))
            except (msgspec.MsgspecError, UnicodeError):
                continue  # torn by the same crash
    except SourceError:
        return _IntentFile(boot)
    return intents


def _judge_call(intents: _CallIntents | None) -> CallEvidence:
    if intents is None:
        return NO_EVIDENCE
    begin, settled = intents.begin, intents.settled
    if begin is not None and begin.path is not None and begin.after is not None:
        return _judge_by_content(begin, settled)
    if settled is not None:
        explanation = f"it ran to its end ({settled.state}), only its output was not recorded"
        return CallEvidence("happened", explanation)
    if begin is not None:
        return CallEvidence("unknown", "it was started, and nothing tells how far it got")
    if intents.is_reliable:
        return CallEvidence("never_started", "it was never started")
    return CallEvidence("unknown", "the machine went down since, and what was not on the disk is lost")


def _judge_by_content(begin: _IntentLine, settled: _IntentLine | None) -> CallEvidence:
    """A file tells by what it has now."""
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
    """The digest of a file's content; empty when there is none, None when nobody can tell."""
    try:
        file_stat = stat_path(path)
        if file_stat is None:
            return ""
        return read_file(path).digest if stat.S_ISREG(file_stat.st_mode) else None
    except (ToolError, OSError, ValueError):
        return None
