"""Lines that hang on each other: the tree of a transcript, as it grows.

In: what a line tells. Out: the line in the file, and its id, on which the next one hangs. A line
that could not be written has no id: nothing ever hangs on what is not there. Knows nothing of what
lines mean; `recorder.py` does.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from toolspan.model.live import WriteFailed
from toolspan.record.claim import Owner
from toolspan.record.encode import encode
from toolspan.record.envelope import Envelope
from toolspan.record.origin import Origin
from toolspan.record.tape import Tape, make_folder

OnFailure = Callable[[WriteFailed], None]
"""Is told when a line could not be kept. Must not raise."""


class Chain:
    """The lines of one file."""

    def __init__(self, path: Path, origin: Origin, on_failure: OnFailure) -> None:
        self.envelope = Envelope(origin)
        self.last: str | None = None
        """The line written last."""
        self.latest = 0.0
        """No line tells an earlier time: that of the last one where a session is gone on with, for
        clients take the latest line for the end. Where they go by every line's time, it rises."""
        self._rising = origin.profile.shape.times_rise
        self._clock = origin.clock
        self._new_id = origin.new_id
        self._report = on_failure
        self._tape = Tape(path, self.fail)
        self._sync_all = origin.fsync == "always"
        self._sync_results = origin.fsync != "never"

    def put(
        self,
        told: bytes,
        more: bytes = b"",
        *,
        parent: str | None = None,
        at: float | None = None,
        user: bool = False,
        root: bool = False,
    ) -> str | None:
        """A line; it hangs on the last one unless told.

        `user`: it is of the user's side; results count as such. `root`: it hangs on none. Gives
        its id; None when it is not in the file. Call `begin` before.
        """
        uuid = self._new_id()
        above = None if root else parent or self.last
        line = self.envelope.line(above, uuid, self._time(at), told, more, user=user)
        sync = self._sync_results if user else self._sync_all
        if not self._tape.write((line,), sync=sync):
            return None
        self.last = uuid
        return uuid

    def put_all(
        self, told: Sequence[bytes], more: bytes = b"", *, at: float | None = None
    ) -> list[str]:
        """Lines of the model's side, written at once, each hanging on the one before.

        Gives the ids of those in the file; when the disk took only some, these are the first ones.
        """
        lines: list[bytes] = []
        uuids: list[str] = []
        parent = self.last
        for one in told:
            uuid = self._new_id()
            line = self.envelope.line(parent, uuid, self._time(at), one, more, user=False)
            lines.append(line)
            uuids.append(uuid)
            parent = uuid
        kept = self._tape.write(lines, sync=self._sync_all)
        if kept:
            self.last = uuids[kept - 1]
        return uuids if kept == len(uuids) else uuids[:kept]

    def state(self, fields: dict[str, object]) -> None:
        """A line about the session, outside the tree."""
        self.begin()
        self._tape.write((encode(fields) + b"\n",), sync=self._sync_all)

    def begin(self) -> bool:
        """Make sure of the file; False when it was taken away, and what was in it with it."""
        if self._tape.ready():
            return True
        self.last = None
        return False

    @property
    def owner(self) -> Owner | None:
        """Who else writes to the file; known once something was begun."""
        return self._tape.owner

    def write_beside(self, path: Path, data: bytes) -> None:
        """A small file beside the lines."""
        try:
            make_folder(path.parent)
            path.write_bytes(data)
            path.chmod(0o600)
        except OSError as error:
            self.fail(error.strerror or str(error), path)

    def fail(self, reason: str, path: Path | None = None) -> None:
        """Tell that something could not be kept."""
        where = str(path or self._tape.path)
        self._report(WriteFailed(path=where, reason=reason, at=self._clock()))

    def close(self) -> None:
        """Let the file go."""
        self._tape.close()

    def _time(self, at: float | None) -> float:
        """When a line was written; where clients go by it, later than every line before."""
        now = self._clock() if at is None else at
        if self._rising:
            now = self.latest = max(now, self.latest + 0.001)
        return now if now > self.latest else self.latest
