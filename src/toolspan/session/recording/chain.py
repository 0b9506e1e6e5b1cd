"""Lines that hang on each other: the tree of a transcript, as it grows.

In: what a line tells. Out: the line in the file, and its id, on which the next one hangs. A line
that could not be written has no id: nothing ever hangs on what is not there. Knows nothing of what
lines mean; `recorder.py` does.
"""

from __future__ import annotations

import os
import struct
import time
from binascii import hexlify
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from toolspan.runtime.profiles import Profile, TranscriptShape
from toolspan.session.recording.writer import LockOwner, TranscriptWriter, make_folder
from toolspan.types.events import WriteFailed
from toolspan.types.ids import SessionId

_BRANCH_REF_PREFIX = "ref: refs/heads/"


def find_git_branch(folder: Path) -> str | None:
    """The branch; None outside a repository, and where the head is on no branch."""
    for parent in (folder, *folder.parents):
        try:
            head = _git_folder(parent / ".git") / "HEAD"
            text = head.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        return text.removeprefix(_BRANCH_REF_PREFIX).strip() if text.startswith(_BRANCH_REF_PREFIX) else None
    return None


def _git_folder(git: Path) -> Path:
    """A worktree has a file there, which names the folder."""
    if not git.is_file():
        return git
    target = git.read_text(encoding="utf-8", errors="replace").removeprefix("gitdir:").strip()
    return git.parent / target


Fsync = Literal["never", "results", "always"]
"""After which lines the disk is asked to keep them, come what may."""


_UUID_PARTS = struct.Struct("8s4sx3sx3s12s")
"""The digits of a UUID, without the two that say how the others are meant."""


def new_uuid() -> str:
    """A random UUID (version 4); two are made for every call, so it is made of few steps."""
    return (b"%b-%b-4%b-a%b-%b" % _UUID_PARTS.unpack(hexlify(os.urandom(16)))).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderConfig:
    """The session that is recorded, and how carefully."""

    profile: Profile
    session_id: SessionId
    cwd: Path
    agent_id: str | None = None
    """The subagent whose lines these are; None for the main conversation."""
    permission_mode: str = "default"
    entrypoint: str = "sdk-cli"
    fsync: Fsync = "never"
    clock: Callable[[], float] = time.time
    """Seconds since the epoch."""
    new_id: Callable[[], str] = new_uuid
    """Ids of lines and turns."""


_MAX_DEPTH = 100
"""Where the careful encoder stops: values that hold themselves have no end."""


def _as_json(value: object) -> object:
    """What a value of an unknown type is written as."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return list(value)
    return _text_of_value(value)


_ENCODER = msgspec.json.Encoder(enc_hook=_as_json)


def encode_json(value: object) -> bytes:
    """A value as JSON."""
    try:
        return _ENCODER.encode(value)
    except Exception:  # noqa: BLE001 - values come from anybody's tools, and a line must be written
        return _ENCODER.encode(_encodable_value(value, _MAX_DEPTH))


def _encodable_value(value: object, depth: int) -> object:
    """The nearest value that encodes."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth == 0:
        return None
    try:
        return _encodable_parts(value, depth - 1)
    except Exception:  # noqa: BLE001 - somebody's own container or description may do anything
        return None


def _encodable_parts(value: object, depth: int) -> object:
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        return {_encodable_key(key): _encodable_value(part, depth) for key, part in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray):
        return [_encodable_value(part, depth) for part in value]
    return replace_surrogates(_text_of_value(value))


def _encodable_key(key: object) -> str:
    return replace_surrogates(key if isinstance(key, str) else _text_of_value(key))


def _text_of_value(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    return str(value)


def replace_surrogates(text: str) -> str:
    """A text without halves of surrogate pairs; two halves that belong together are joined."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class EntryTemplate:
    """The frame around the lines of one file."""

    def __init__(self, config: RecorderConfig) -> None:
        self._shape: TranscriptShape = config.profile.shape
        self._config = config
        self._agent_field = b',"agentId":' + encode_json(config.agent_id) if config.agent_id else b""
        self._sidechain_field = b',"isSidechain":true' if config.agent_id else b',"isSidechain":false'
        self._prompt_field = b""
        self._millisecond = -1
        self._timestamp = b""
        """What a line of that millisecond says of its time: a busy session has many in one."""
        self.set_cwd(config.cwd)

    def set_cwd(self, cwd: Path) -> None:
        """Lines from now on were written in this folder; the branch is looked at anew."""
        self._cwd = cwd
        shape, config = self._shape, self._config
        fields: dict[str, object] = {"userType": "external"}
        if shape.entrypoint:
            fields["entrypoint"] = config.entrypoint
        fields |= {"cwd": str(cwd), "sessionId": config.session_id, "version": shape.version}
        fields["gitBranch"] = find_git_branch(cwd) or shape.no_branch
        self._session_fields = b"," + encode_json(fields)[1:-1]
        self._rebuild()

    def set_prompt_id(self, prompt_id: str | None) -> None:
        """Lines from now on belong to this turn."""
        has_prompt_id = prompt_id is not None and self._shape.prompt_ids
        self._prompt_field = b',"promptId":' + encode_json(prompt_id) if has_prompt_id else b""
        self._rebuild()

    def refresh_branch(self) -> None:
        """Look at the branch again."""
        self.set_cwd(self._cwd)

    @property
    def cwd(self) -> Path:
        """Where lines are written."""
        return self._cwd

    def build_line(self, parent: str | None, uuid: str, at: float, body: bytes, extra: bytes, *, user: bool) -> bytes:
        """A line: its parent and own id, its time, what it tells, and fields after the time."""
        millisecond = round(at * 1_000)
        if millisecond != self._millisecond:
            self._millisecond = millisecond
            self._timestamp = b'","timestamp":"%s"' % _format_timestamp(millisecond)
        return b"".join((
            b'{"parentUuid":"%s"' % parent.encode() if parent else b'{"parentUuid":null',
            self._user_prefix if user else self._model_prefix,
            body,
            b',"uuid":"',
            uuid.encode(),
            self._timestamp,
            extra,
            self._suffix,
        ))  # fmt: skip

    def _rebuild(self) -> None:
        if self._shape.envelope_last:
            self._user_prefix = self._sidechain_field + self._prompt_field + self._agent_field
            self._model_prefix = self._sidechain_field + self._agent_field
            self._suffix = self._session_fields + b"}\n"
        else:
            self._user_prefix = self._model_prefix = self._sidechain_field + self._session_fields + self._agent_field
            self._suffix = b"}\n"


def _format_timestamp(millisecond: int) -> bytes:
    """A time as records state it: UTC, to the millisecond."""
    second, thousandth = divmod(millisecond, 1_000)
    return b"%s.%03dZ" % (_format_second(second), thousandth)


@lru_cache(maxsize=4)
def _format_second(second: int) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()


OnFailure = Callable[[WriteFailed], None]
"""Is told when a line could not be kept. Must not raise."""


class EntryChain:
    """The lines of one file."""

    def __init__(self, path: Path, config: RecorderConfig, on_failure: OnFailure) -> None:
        self.template = EntryTemplate(config)
        self.last_uuid: str | None = None
        """The line written last."""
        self.latest_time = 0.0
        """No line tells an earlier time: that of the last one where a session is gone on with, for
        clients take the latest line for the end. Where they go by every line's time, it rises."""
        self._times_rise = config.profile.shape.times_rise
        self._clock = config.clock
        self._new_id = config.new_id
        self._on_failure = on_failure
        self._writer = TranscriptWriter(path, self.report_failure)
        self._sync_all = config.fsync == "always"
        self._sync_results = config.fsync != "never"

    def append_entry(
        self,
        body: bytes,
        extra: bytes = b"",
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
        parent_uuid = None if root else parent or self.last_uuid
        line = self.template.build_line(parent_uuid, uuid, self._entry_time(at), body, extra, user=user)
        sync = self._sync_results if user else self._sync_all
        if not self._writer.write_lines((line,), sync=sync):
            return None
        self.last_uuid = uuid
        return uuid

    def append_entries(self, bodies: Sequence[bytes], extra: bytes = b"", *, at: float | None = None) -> list[str]:
        """Lines of the model's side, written at once, each hanging on the one before.

        Gives the ids of those in the file; when the disk took only some, these are the first ones.
        """
        lines: list[bytes] = []
        uuids: list[str] = []
        parent = self.last_uuid
        for body in bodies:
            uuid = self._new_id()
            line = self.template.build_line(parent, uuid, self._entry_time(at), body, extra, user=False)
            lines.append(line)
            uuids.append(uuid)
            parent = uuid
        written = self._writer.write_lines(lines, sync=self._sync_all)
        if written:
            self.last_uuid = uuids[written - 1]
        return uuids if written == len(uuids) else uuids[:written]

    def append_state(self, fields: dict[str, object]) -> None:
        """A line about the session, outside the tree."""
        self.ensure_open()
        self._writer.write_lines((encode_json(fields) + b"\n",), sync=self._sync_all)

    def ensure_open(self) -> bool:
        """Make sure of the file; False when it was taken away, and what was in it with it."""
        if self._writer.ensure_open():
            return True
        self.last_uuid = None
        return False

    @property
    def owner(self) -> LockOwner | None:
        """Who else writes to the file; known once something was begun."""
        return self._writer.owner

    def write_side_file(self, path: Path, data: bytes) -> None:
        """A small file beside the lines."""
        try:
            make_folder(path.parent)
            path.write_bytes(data)
            path.chmod(0o600)
        except OSError as error:
            self.report_failure(error.strerror or str(error), path)

    def report_failure(self, reason: str, path: Path | None = None) -> None:
        """Tell that something could not be kept."""
        failed_path = str(path or self._writer.path)
        self._on_failure(WriteFailed(path=failed_path, reason=reason, at=self._clock()))

    def close(self) -> None:
        """Let the file go."""
        self._writer.close()

    def _entry_time(self, at: float | None) -> float:
        """When a line was written; where clients go by it, later than every line before."""
        now = self._clock() if at is None else at
        if self._times_rise:
            now = self.latest_time = max(now, self.latest_time + 0.001)
        return now if now > self.latest_time else self.latest_time
