"""Who writes, and how: what a recorder is told once."""

import os
import struct
import time
from binascii import hexlify
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolspan.ids import SessionId
from toolspan.profile import Profile

Fsync = Literal["never", "results", "always"]
"""After which lines the disk is asked to keep them, come what may."""


_PARTS = struct.Struct("8s4sx3sx3s12s")
"""The digits of a UUID, without the two that say how the others are meant."""


def new_uuid() -> str:
    """A random UUID (version 4); two are made for every call, so it is made of few steps."""
    return (b"%b-%b-4%b-a%b-%b" % _PARTS.unpack(hexlify(os.urandom(16)))).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
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
