"""Who writes, and how: what a recorder is told once."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolspan.ids import SessionId
from toolspan.profile import Profile

Fsync = Literal["never", "results", "always"]
"""After which lines the disk is asked to keep them, come what may."""


def new_uuid() -> str:
    """A random UUID (version 4)."""
    digits = bytearray(os.urandom(16))
    digits[6] = digits[6] & 0x0F | 0x40
    digits[8] = digits[8] & 0x3F | 0x80
    text = digits.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


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
