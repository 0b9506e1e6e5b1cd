"""A host that runs calls with counted side effects in sessions of a store, until it is killed.

The number of a call comes from the conversation, so that two hosts that run one session would run a call twice. A host
appends to files of its folder: `effects` has the number of each call, `appends` what each commit appended with which
fence, and `faults` each failure that is not expected. SIGUSR1 sets its clock to another hour.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import json
import os
import random
import signal
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import anyio

from toolspan import Permissions, Session, open_store, tool
from toolspan.errors import InUse, NotFound
from toolspan.stores import Lease, LeasedStore, StoreUnavailable
from toolspan.stores.base import Append

LEASE_SECONDS = 1.0
CALLS_PER_REPLY = 4
DISK_BYTES = 4 << 20
_CLONE_NEWNS, _MS_PRIVATE_RECURSIVE = 0x20000, 0x44000
signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until a host that is forked from this process handles it


class Host(NamedTuple):
    """The arguments of a host."""

    url: str
    folder: Path
    name: str
    sessions: int
    has_own_disk: bool
    """True if its local files are on a small disk that is lost with it. This needs root."""
    s3_address: str = ""
    """The address of the server, if it is one for S3, whose URLs do not contain it."""

    @property
    def state(self) -> Path:
        return self.folder / self.name / "state"


class Clock:
    """A clock that is set to another hour."""

    def __init__(self) -> None:
        self._skews = itertools.cycle([3600.0, -3600.0, 0.0])
        self._skew = 0.0

    def read(self) -> float:
        return time.time() + self._skew

    def shift(self, *_: object) -> None:
        self._skew = next(self._skews)


def append_line(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, text.encode() + b"\n")
    os.close(descriptor)


def session_name(number: int) -> str:
    return f"5e551011-0000-4000-8000-{number:012d}"


def run_host(host: Host) -> None:
    """Run sessions until this process is killed. It is forked, so that it takes a moment to start."""
    clock = Clock()
    signal.signal(signal.SIGUSR1, clock.shift)
    log = os.open(host.folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 2)
    host.state.mkdir(parents=True, exist_ok=True)
    if host.has_own_disk:
        mount_disk(host.state)
    os.environ |= {
        "TOOLSPAN_HOST": host.name,
        "XDG_STATE_HOME": str(host.state),
        "CLAUDE_CONFIG_DIR": str(host.folder / host.name / "config"),
        "AWS_ENDPOINT_URL_S3": host.s3_address,
    }
    anyio.run(run_sessions, host, clock)


def mount_disk(folder: Path) -> None:
    """Mount an empty disk that only this process sees."""
    libc = ctypes.CDLL(None, use_errno=True)
    steps = (
        libc.unshare(_CLONE_NEWNS),
        libc.mount(b"none", b"/", None, _MS_PRIVATE_RECURSIVE, None),
        libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"size=%d" % DISK_BYTES),
    )
    if any(steps):
        raise OSError(ctypes.get_errno(), "cannot mount a disk")


async def run_sessions(host: Host, clock: Clock) -> None:
    choice = random.Random(host.name + str(os.getpid()))

    @tool(concurrent=True)
    async def effect(number: str) -> str:
        """Append a line to a file."""
        await anyio.sleep(choice.random() / 50)
        append_line(host.folder / "effects", number)
        return f"did {number}"

    store = open_store(host.url)
    log_appends(store, host.folder / "appends")
    options: dict[str, Any] = {
        "tools": [effect],
        "permissions": Permissions.allow_all(),
        "lease_seconds": LEASE_SECONDS,
        "clock": clock.read,
    }
    while True:
        session_id = session_name(choice.randrange(host.sessions))
        try:
            await run_session(store, host.folder / "project", session_id, choice, options)
        except (InUse, StoreUnavailable):
            await anyio.sleep(0.05)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                append_line(host.folder / "faults", traceback.format_exc())
            await anyio.sleep(0.05)
        except Exception:  # noqa: BLE001 - the checker reports it
            append_line(host.folder / "faults", traceback.format_exc())


def log_appends(store: LeasedStore, path: Path) -> None:
    """Log the positions and the fence of each commit that the store has accepted."""
    commit = store.commit

    def commit_and_log(appends: Sequence[Append], lease: Lease | None = None) -> None:
        commit(appends, lease)
        assert lease is not None
        rows = [[*append.key[1:], append.start, len(append.lines), lease.fence] for append in appends]
        append_line(path, json.dumps(rows))

    store.commit = commit_and_log  # type: ignore[method-assign]


async def run_session(
    store: LeasedStore, project: Path, session_id: str, choice: random.Random, options: dict[str, Any]
) -> None:
    try:
        opened = Session.resume(project, session=session_id, store=store, **options)
    except NotFound:
        opened = Session(cwd=project, store=store, session_id=session_id, **options)
    async with opened as session:
        session.say("Go.")
        for _ in range(choice.randrange(1, 6)):
            ids = [str(block["id"]) for block in iter_blocks(session.messages) if block.get("type") == "tool_use"]
            start = max((int(call_id.rpartition("_")[2]) for call_id in ids), default=-1) + 1
            calls = [
                {"type": "tool_use", "id": f"toolu_{session_id[-4:]}_{n}", "name": "effect",
                 "input": {"number": f"{session_id[-4:]}_{n}"}}
                for n in range(start, start + CALLS_PER_REPLY)
            ]  # fmt: skip
            await session.run({"role": "assistant", "content": calls})


def iter_blocks(messages: Any) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message["content"], list):
            blocks += cast("list[dict[str, Any]]", message["content"])
    return blocks


def count_results(lines: list[bytes]) -> dict[str, list[int]]:
    """Return how often each call and each result is in a transcript."""
    counts: dict[str, list[int]] = {}
    for line in lines:
        message = json.loads(line).get("message") or {}
        for block in message["content"] if isinstance(message.get("content"), list) else ():
            if block["type"] == "tool_use":
                counts.setdefault(block["id"], [0, 0])[0] += 1
            elif block["type"] == "tool_result":
                counts.setdefault(block["tool_use_id"], [0, 0])[1] += 1
    return counts


def count_old_appends(log: str) -> int:
    """Return how many entries were appended with an older fence than an entry before them."""
    fences: dict[tuple[str, str], dict[int, int]] = {}
    for line in log.splitlines():
        for session, subpath, start, count, fence in json.loads(line):
            known = fences.setdefault((session, subpath), {})
            for position in range(start, start + count):
                known[position] = min(fence, known.get(position, fence))
    count = 0
    for known in fences.values():
        highest = 0
        for _, fence in sorted(known.items()):
            count += fence < highest
            highest = max(highest, fence)
    return count
