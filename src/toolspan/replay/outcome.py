"""What became of a call that was run again; values only."""

from typing import Literal

from msgspec import Struct

Verdict = Literal["same", "differs", "skipped"]
Aspect = Literal["state", "error flag", "content", "file"]


class Difference(Struct, frozen=True, kw_only=True):
    """One thing that is not as it was."""

    what: Aspect
    path: str | None = None
    """Of a file: as it was recorded."""
    recorded: str = ""
    now: str = ""
    """Both in short; of texts and files the diff says more."""
    diff: tuple[str, ...] = ()


class Outcome(Struct, frozen=True, kw_only=True):
    """One recorded call, and what came of it this time."""

    call: str
    tool: str
    target: str | None
    agent: str | None
    verdict: Verdict
    reason: str | None = None
    """Why it was skipped."""
    recorded_state: str
    state: str | None = None
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    """What was done to files so that it could be run as it was then."""
