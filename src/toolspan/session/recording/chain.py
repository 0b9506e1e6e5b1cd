"""The records in one transcript as a chain, where each record contains its parent's id.

`EntryChain` appends records and returns their ids. A record that could not be written gets no id,
so no other record refers to it. `recorder.py` determines the content of the records.
"""

from __future__ import annotations

import os
import struct
import time
from binascii import hexlify
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import MAXYEAR, UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Literal

from toolspan.formats.claude.records import CALL_BLOCK_TYPES, Entry, MessageBlock, decode_entry
from toolspan.formats.jsonl import encode_json, make_folder, read_lines
from toolspan.formats.source import FileSource
from toolspan.runtime.profiles import Profile, TranscriptShape
from toolspan.session.recording.writer import LockOwner, TranscriptWriter
from toolspan.types.events import WriteFailed
from toolspan.types.ids import SessionId
from toolspan.types.span import parse_timestamp

Fsync = Literal["never", "results", "always"]
"""Which records are synced to disk when they are written."""
OnFailure = Callable[[WriteFailed], None]
"""A callback for records that could not be written. It must not raise."""

_BRANCH_REF_PREFIX = "ref: refs/heads/"
_UUID_PARTS = struct.Struct("8s4sx3sx3s12s")
"""The hex digits of a UUID, without the version and variant digits."""
_LATEST_TIME = datetime(MAXYEAR, 12, 31, tzinfo=UTC)


def new_uuid() -> str:
    """Return a random UUID (version 4)."""
    # perf: every call needs two ids; uuid.uuid4() takes several times as long
    return (b"%b-%b-4%b-a%b-%b" % _UUID_PARTS.unpack(hexlify(os.urandom(16)))).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderConfig:
    """The session to record, and which of its records are synced to disk."""

    profile: Profile
    session_id: SessionId
    cwd: Path
    agent_id: str | None = None
    """The id of the recorded subagent, or None for the main conversation."""
    permission_mode: str = "default"
    entrypoint: str = "sdk-cli"
    fsync: Fsync = "never"
    clock: Callable[[], float] = time.time
    """A function that returns seconds since the epoch."""
    new_id: Callable[[], str] = new_uuid
    """A function that creates ids for records and turns."""


class EntryChain:
    """A chain that appends records to one transcript file."""

    def __init__(self, path: Path, config: RecorderConfig, on_failure: OnFailure) -> None:
        self.template = EntryTemplate(config)
        self.last_uuid: str | None = None
        """The id of the last record."""
        self.latest_time = 0.0
        """The lower bound for timestamps. Clients treat the latest record as the end of a session, so
        timestamps in a resumed session never decrease. For some profiles, they strictly increase.
        """
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
        """Append a record. Its parent is the previous record unless `parent` or `root` is set.

        `user` marks records on the user's side, which include results. Return the record's id, or
        None if it could not be written. Call `ensure_open` first.
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
        """Append records on the model's side in one write, each a child of the previous one.

        Return the ids of the records that were written, which are the first ones after a partial write.
        """
        lines: list[bytes] = []
        uuids: list[str] = []
        parent = self.last_uuid
        for body in bodies:
            uuid = self._new_id()
            lines.append(self.template.build_line(parent, uuid, self._entry_time(at), body, extra, user=False))
            uuids.append(uuid)
            parent = uuid
        written = self._writer.write_lines(lines, sync=self._sync_all)
        if written:
            self.last_uuid = uuids[written - 1]
        return uuids if written == len(uuids) else uuids[:written]

    def append_state(self, fields: dict[str, object]) -> None:
        """Append a record about the session, outside the chain."""
        self.ensure_open()
        self._writer.write_lines((encode_json(fields) + b"\n",), sync=self._sync_all)

    def ensure_open(self) -> bool:
        """Open the file if needed. Return False if it was removed along with earlier records."""
        if self._writer.ensure_open():
            return True
        self.last_uuid = None
        return False

    @property
    def owner(self) -> LockOwner | None:
        """The other process that writes to the file, which is known once the file is open."""
        return self._writer.owner

    def write_side_file(self, path: Path, data: bytes) -> None:
        """Write a small file next to the transcript."""
        try:
            make_folder(path.parent)
            path.write_bytes(data)
            path.chmod(0o600)
        except OSError as error:
            self.report_failure(error.strerror or str(error), path)

    def report_failure(self, reason: str, path: Path | None = None) -> None:
        """Report that data could not be written."""
        failed_path = str(path or self._writer.path)
        self._on_failure(WriteFailed(path=failed_path, reason=reason, at=self._clock()))

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def _entry_time(self, at: float | None) -> float:
        now = self._clock() if at is None else at
        if self._times_rise:
            now = self.latest_time = max(now, self.latest_time + 0.001)
        return now if now > self.latest_time else self.latest_time


class EntryTemplate:
    """The fields shared by all records in a file, encoded once.

    Depending on the client version, they precede or follow the fields of a record itself.
    """

    def __init__(self, config: RecorderConfig) -> None:
        self._shape: TranscriptShape = config.profile.shape
        self._config = config
        self._agent_field = b',"agentId":' + encode_json(config.agent_id) if config.agent_id else b""
        self._sidechain_field = b',"isSidechain":true' if config.agent_id else b',"isSidechain":false'
        self._prompt_field = b""
        self._millisecond = -1
        self._timestamp = b""
        """The encoded timestamp of the last millisecond, cached because records in a busy session often share it."""
        self.set_cwd(config.cwd)

    def set_cwd(self, cwd: Path) -> None:
        """Set the folder for later records, and look up its git branch."""
        self.cwd = cwd
        shape, config = self._shape, self._config
        fields: dict[str, object] = {"userType": "external"}
        if shape.entrypoint:
            fields["entrypoint"] = config.entrypoint
        fields |= {"cwd": str(cwd), "sessionId": config.session_id, "version": shape.version}
        fields["gitBranch"] = _find_git_branch(cwd) or shape.no_branch
        self._session_fields = b"," + encode_json(fields)[1:-1]
        self._rebuild()

    def set_prompt_id(self, prompt_id: str | None) -> None:
        """Set the prompt id for later records."""
        has_prompt_id = prompt_id is not None and self._shape.prompt_ids
        self._prompt_field = b',"promptId":' + encode_json(prompt_id) if has_prompt_id else b""
        self._rebuild()

    def refresh_branch(self) -> None:
        """Look up the git branch again."""
        self.set_cwd(self.cwd)

    def build_line(self, parent: str | None, uuid: str, at: float, body: bytes, extra: bytes, *, user: bool) -> bytes:
        """Build a line in which `body` precedes the id and time, and `extra` follows them."""
        millisecond = round(at * 1_000)
        if millisecond != self._millisecond:
            self._millisecond = millisecond
            second, thousandth = divmod(millisecond, 1_000)
            self._timestamp = b'","timestamp":"%s.%03dZ"' % (_format_second(second), thousandth)
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


@lru_cache(maxsize=4)
def _format_second(second: int) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()


def _find_git_branch(folder: Path) -> str | None:
    """Return the current branch, or None outside a repository or with a detached HEAD."""
    for parent in (folder, *folder.parents):
        git = parent / ".git"
        try:
            if git.is_file():  # in a worktree, the file contains the path of the git folder
                git = parent / git.read_text(encoding="utf-8", errors="replace").removeprefix("gitdir:").strip()
            head = (git / "HEAD").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        return head.removeprefix(_BRANCH_REF_PREFIX).strip() if head.startswith(_BRANCH_REF_PREFIX) else None
    return None


@dataclass(slots=True)
class TranscriptEnd:
    """The end of an existing transcript, after which a recorder continues."""

    last_uuid: str | None = None
    latest_time: float = 0.0
    prompt_id: str | None = None
    turns: int = 0
    open_calls: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Calls without a result, each with the id of its record and its tool."""
    ends_with_calls: bool = False
    """True if the last record is a call or a result."""

    def add_entry(self, entry: Entry) -> None:
        """Update the state with the next record."""
        if entry.uuid is None:
            return
        self.last_uuid = entry.uuid
        self.ends_with_calls = False
        timestamp = parse_timestamp(entry.timestamp)
        if timestamp is not None and timestamp < _LATEST_TIME:  # a later record could not be written after it
            self.latest_time = max(self.latest_time, timestamp.timestamp())
        if entry.type == "user":
            self.prompt_id = entry.prompt_id or self.prompt_id
        content = entry.message.content if entry.message else None
        if isinstance(content, list):
            for block in content:
                self._add_block(block, entry.uuid)
        elif entry.type == "user" and not entry.is_meta:
            self.turns += 1

    def _add_block(self, block: MessageBlock, uuid: str) -> None:
        self.ends_with_calls = bool(block.id or block.tool_use_id)
        if block.type in CALL_BLOCK_TYPES and block.id:
            self.open_calls[block.id] = (uuid, block.name or "")
        elif block.tool_use_id:
            self.open_calls.pop(block.tool_use_id, None)


def read_transcript_end(path: Path) -> TranscriptEnd:
    """Read the end of a transcript. Damaged lines are skipped, as they are by the client.

    Raises:
        SourceError: the file cannot be read.
    """
    end = TranscriptEnd()
    if not path.exists():
        return end
    for line in read_lines(FileSource(path)):
        try:
            end.add_entry(decode_entry(line.data).entry)
        except ValueError:
            continue
    return end
