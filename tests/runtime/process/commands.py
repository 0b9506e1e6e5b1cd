"""Commands for these tests, and a way to wait until they run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

import anyio
import anyio.lowlevel
import psutil

from toolspan.runtime.process import Command, find_survivors


def sh(script: str, **more: object) -> Command:
    return command(["/bin/sh", "-c", script], **more)


def python(script: str, **more: object) -> Command:
    return command([sys.executable, "-c", script], **more)


def command(argv: list[str], **more: object) -> Command:
    plain = Command(argv=argv, cwd=Path("/"), env=dict(os.environ), tag=f"test-{uuid4().hex}", merge_streams=True)
    return replace(plain, **more)  # type: ignore[arg-type]


@dataclass
class UpCounter:
    """Count how often a command prints `up`; pass it as `on_output`."""

    times: int = 1
    output: bytearray = field(default_factory=bytearray)
    event: anyio.Event = field(default_factory=anyio.Event)

    def __call__(self, data: bytes) -> None:
        self.output += data
        if self.output.count(b"up\n") >= self.times:
            self.event.set()

    async def wait(self) -> None:
        await self.event.wait()


async def eventually(condition: Callable[[], bool]) -> None:
    while not condition():
        await anyio.lowlevel.checkpoint()


def zombies() -> list[int]:
    pids = []
    for child in psutil.Process().children(recursive=False):
        try:
            if child.status() == psutil.STATUS_ZOMBIE:
                pids.append(child.pid)
        except psutil.NoSuchProcess:
            continue
    return pids


def find_survivors_in(folder: Path, tag: str) -> list[int]:
    """Return the running processes with this tag that started in a folder; other tests use the same tags."""
    pids = []
    for pid in find_survivors(tag):
        with suppress(OSError):  # the process has ended
            if Path(f"/proc/{pid}/cwd").readlink() == folder:
                pids.append(pid)
    return pids
