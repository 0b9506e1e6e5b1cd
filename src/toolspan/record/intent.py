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

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from toolspan.disk.load import fingerprint
from toolspan.record.encode import encode
from toolspan.record.tape import Tape
from toolspan.wire.paths import session_folder

NAME = "toolspan-intent.log"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def intent_path(transcript: Path) -> Path:
    """Where the intents of a session stand."""
    folder = session_folder(transcript)
    return folder / NAME if folder != transcript else transcript.with_name(f"{folder.name}.{NAME}")


def boot_id() -> str:
    """What tells one start of the machine from the next; empty where nothing does."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


class Journal:
    """Writes the intents of one session, its subagents' among them."""

    def __init__(
        self, path: Path, on_failure: Callable[[str, Path], None], *, fsync: str, boot: str
    ) -> None:
        self.path = path
        self._tape = Tape(path, lambda reason: on_failure(reason, path))
        self._sync = fsync != "never"
        self._first = {"open": os.getpid(), "boot": boot, "fsync": fsync}
        self._lock = threading.Lock()
        self.begun: set[str] = set()
        """Calls that have begun and not ended."""
        self._opened = False

    def asked(self, calls: Sequence[str]) -> None:
        """Calls that may do something are about to stand in the transcript."""
        self._put({"asked": calls})

    def begin(self, call_id: str, tool: str, input: object, **change: str | None) -> None:
        """A call starts; when this returns, that is written down, and kept by the disk if so asked.

        The other lines need not be: one that is lost makes a verdict unknown, and never wrong.

        `change`: the `path` of a file that is replaced, the digest it has `before` (None: there is
        no such file) and the one it will have `after`.
        """
        self.begun.add(call_id)
        told = {"begin": call_id, "tool": tool, "input": fingerprint(encode(input))}
        self._put({**told, **change}, sync=self._sync)

    def settled(self, call_id: str, state: str) -> None:
        """A call has ended; nothing is written for one that did not begin."""
        if call_id in self.begun:
            self.begun.discard(call_id)
            self._put({"settled": call_id, "state": state})

    def close(self) -> None:
        """Let the file go."""
        with self._lock:
            self._tape.close()

    def _put(self, told: dict[str, object], *, sync: bool = False) -> None:
        with self._lock:
            self._tape.ready()
            lines = [encode(told) + b"\n"]
            if not self._opened:
                lines.insert(0, encode(self._first) + b"\n")
            self._opened = bool(self._tape.write(lines, sync=sync)) or self._opened
