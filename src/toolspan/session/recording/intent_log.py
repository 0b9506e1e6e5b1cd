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
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from toolspan.session.recording.chain import encode_json
from toolspan.session.recording.writer import TranscriptWriter
from toolspan.tools.files.safe_read import digest_bytes


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
