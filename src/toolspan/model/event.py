"""What happened around a call while it lived: hooks, progress, permission, notifications."""

from typing import Literal

from msgspec import Struct

from toolspan.model.place import Place

HookOutcome = Literal[
    "started", "success", "error", "blocked", "cancelled", "context", "message", "decision",
    "stopped", "deferred",
]  # fmt: skip


class Hook(Struct, frozen=True, kw_only=True, gc=False, tag="hook"):
    """One hook's part in a call."""

    point: str
    """Where it was called: `PreToolUse`, `PostToolUse`, …"""
    name: str
    outcome: HookOutcome
    command: str | None = None
    exit_code: int | None = None
    duration_ms: float | None = None
    text: str | None = None
    at: str | None = None
    place: Place


class Progress(Struct, frozen=True, kw_only=True, gc=False, tag="progress"):
    """All progress notes of one kind for a call, folded into one."""

    kind: str
    count: int
    first_at: str | None
    last_at: str | None


class Permission(Struct, frozen=True, kw_only=True, gc=False, tag="permission"):
    """What the transcript says about consent for a call."""

    decision: str
    """As the client wrote it: `accept`, `reject`, a denial kind, …"""
    source: str | None = None
    reason: str | None = None
    origin: str | None = None
    """Where the rule that decided comes from."""
    code: str | None = None
    """What it was about, in the client's word: `workingDir`, `mode:plan`, …"""
    scope: str | None = None
    """How far a person's consent goes: `once`, …"""
    place: Place


class Notification(Struct, frozen=True, kw_only=True, gc=False, tag="notification"):
    """News of a background task that a call started."""

    task_id: str | None
    status: str | None
    summary: str | None
    at: str | None
    place: Place


class Note(Struct, frozen=True, kw_only=True, gc=False, tag="note"):
    """Something else the client attached to a call, such as that a file was cut."""

    kind: str
    text: str | None
    at: str | None
    place: Place


Event = Hook | Progress | Permission | Notification | Note
"""What happened around a call, as transcripts tell it."""
