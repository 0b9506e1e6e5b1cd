"""What every line of a conversation repeats, kept ready as bytes.

In: what one line tells, as pieces of JSON. Out: the whole line, in the shape of a client version.
The folder, the branch and the turn change seldom, so their pieces are made when they change and not
for each line. Knows the order of keys, not what they mean. Read `Envelope.line` first.
"""

import time
from functools import lru_cache
from pathlib import Path

from toolspan.profile import Shape
from toolspan.record.branch import branch_of
from toolspan.record.encode import encode
from toolspan.record.origin import Origin


class Envelope:
    """The frame around the lines of one file."""

    def __init__(self, origin: Origin) -> None:
        self._shape: Shape = origin.profile.shape
        self._origin = origin
        self._agent = b',"agentId":' + encode(origin.agent_id) if origin.agent_id else b""
        self._side = b',"isSidechain":true' if origin.agent_id else b',"isSidechain":false'
        self._prompt = b""
        self._millisecond = -1
        self._stamp = b""
        """What a line of that millisecond says of its time: a busy session has many in one."""
        self.move(origin.cwd)

    def move(self, cwd: Path) -> None:
        """Lines from now on were written in this folder; the branch is looked at anew."""
        self._cwd = cwd
        shape, origin = self._shape, self._origin
        fields: dict[str, object] = {"userType": "external"}
        if shape.entrypoint:
            fields["entrypoint"] = origin.entrypoint
        fields |= {"cwd": str(cwd), "sessionId": origin.session_id, "version": shape.version}
        fields["gitBranch"] = branch_of(cwd) or shape.no_branch
        self._around = b"," + encode(fields)[1:-1]
        self._rebuild()

    def turn(self, prompt_id: str | None) -> None:
        """Lines from now on belong to this turn."""
        named = prompt_id is not None and self._shape.prompt_ids
        self._prompt = b',"promptId":' + encode(prompt_id) if named else b""
        self._rebuild()

    def refresh(self) -> None:
        """Look at the branch again."""
        self.move(self._cwd)

    @property
    def cwd(self) -> Path:
        """Where lines are written."""
        return self._cwd

    def line(
        self, parent: str | None, uuid: str, at: float, told: bytes, more: bytes, *, user: bool
    ) -> bytes:
        """A line: its parent and own id, its time, what it tells, and fields after the time."""
        millisecond = round(at * 1_000)
        if millisecond != self._millisecond:
            self._millisecond = millisecond
            self._stamp = b'","timestamp":"%s"' % _stamp(millisecond)
        return b"".join((
            b'{"parentUuid":"%s"' % parent.encode() if parent else b'{"parentUuid":null',
            self._user if user else self._others,
            told,
            b',"uuid":"',
            uuid.encode(),
            self._stamp,
            more,
            self._end,
        ))  # fmt: skip

    def _rebuild(self) -> None:
        if self._shape.envelope_last:
            self._user = self._side + self._prompt + self._agent
            self._others = self._side + self._agent
            self._end = self._around + b"}\n"
        else:
            self._user = self._others = self._side + self._around + self._agent
            self._end = b"}\n"


def _stamp(millisecond: int) -> bytes:
    """A time as records state it: UTC, to the millisecond."""
    second, thousandth = divmod(millisecond, 1_000)
    return b"%s.%03dZ" % (_date(second), thousandth)


@lru_cache(maxsize=4)
def _date(second: int) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
