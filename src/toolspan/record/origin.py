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


_VARIANTS = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
"""The digit that says how the others are meant: two of its bits are fixed, two are random."""


def new_uuid() -> str:
    """A random UUID (version 4)."""
    text = os.urandom(16).hex()
    variant = _VARIANTS[text[16]]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


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
