r"""The intent log, which records calls with side effects before they run.

The log is a file beside the transcript, `<session>/toolspan-intent.log`; clients ignore it. After a
crash, `formats/claude/evidence.py` infers from it how calls without a result ended. Each line is one of

    {"open":PID,"boot":ID,"fsync":"never"}             a process records from here on
    {"asked":["toolu_1","toolu_2"]}                    these calls are about to be recorded
    {"begin":"toolu_1","tool":"Bash","input":DIGEST}   the call starts
    {"begin":…,"path":…,"before":DIGEST,"after":…}     and replaces this file
    {"settled":"toolu_1","state":"succeeded"}          it has ended; its result is recorded next
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from toolspan.formats.claude.evidence import read_boot_id
from toolspan.formats.writing import encode_json
from toolspan.session.recording.writer import TranscriptWriter
from toolspan.tools.files.safe_read import digest_bytes


class IntentLog:
    """A writer for the intents of one session and its subagents. Thread-safe."""

    def __init__(
        self, path: Path, on_failure: Callable[[str, Path], None], *, fsync: str, boot: str | None = None
    ) -> None:
        self.path = path
        self.started_calls: set[str] = set()
        """Calls that have started and not yet finished."""
        self._writer = TranscriptWriter(path, lambda reason: on_failure(reason, path))
        self._sync_starts = fsync != "never"
        self._open_record = {"open": os.getpid(), "boot": read_boot_id() if boot is None else boot, "fsync": fsync}
        self._is_open_recorded = False
        self._lock = threading.Lock()

    def record_requested(self, calls: Sequence[str]) -> None:
        """Record that these calls are about to be written to the transcript."""
        self._write_record({"asked": calls})

    def begin(self, call_id: str, tool: str, input: object, **change: str | None) -> None:
        """Record that a call starts, synced to disk unless `fsync` is "never".

        Only this line is synced: losing any other line makes the evidence unknown, never wrong.

        `change` describes a file that the call replaces: its `path`, the digest `before` (None if the file does not
        exist) and the digest `after`.
        """
        self.started_calls.add(call_id)
        record = {"begin": call_id, "tool": tool, "input": digest_bytes(encode_json(input))}
        self._write_record({**record, **change}, sync=self._sync_starts)

    def record_finished(self, call_id: str, state: str) -> None:
        """Record that a call finished, if its start was recorded."""
        if call_id in self.started_calls:
            self.started_calls.discard(call_id)
            self._write_record({"settled": call_id, "state": state})

    def close(self) -> None:
        """Close the file. The next record opens it again."""
        with self._lock:
            self._writer.close()

    def _write_record(self, record: dict[str, object], *, sync: bool = False) -> None:
        with self._lock:
            self._writer.ensure_open()
            lines = [encode_json(record) + b"\n"]
            if not self._is_open_recorded:
                lines.insert(0, encode_json(self._open_record) + b"\n")
            self._is_open_recorded = bool(self._writer.write_lines(lines, sync=sync)) or self._is_open_recorded
