"""Immutable values shared by running and reading: calls, results, spans, states, decisions.

They do no I/O. Start at `span.py`, then `state.py` and `error_kinds.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolspan.lazy import lazy_exports

if TYPE_CHECKING:
    from toolspan.types.decision import Allow, Ask, Decision, Deny
    from toolspan.types.error_kinds import ADVICE, ERROR_KINDS, ErrorKind
    from toolspan.types.events import (
        BatchFinished,
        Decided,
        Duplicate,
        Faulted,
        Finished,
        HookContext,
        HookRan,
        HookReport,
        LimitReached,
        LiveEvent,
        ModelReplied,
        PermissionRequested,
        Progressed,
        RecoveryApplied,
        Relayed,
        Requested,
        RunnerEvent,
        SandboxDenied,
        SandboxViolation,
        Slow,
        Started,
        WriteFailed,
    )
    from toolspan.types.hunk import Hunk
    from toolspan.types.ids import CallId, SessionId, SourceLocation
    from toolspan.types.session import Finding, Message, SessionInfo, Tokens
    from toolspan.types.span import Call, Event, Evidence, Hook, Note, Notification, Permission, Progress, Result, Span
    from toolspan.types.state import OPEN_STATES, STATE_MEANINGS, STATES, State


__all__ = [
    "ADVICE", "ERROR_KINDS", "OPEN_STATES", "STATES", "STATE_MEANINGS", "Allow", "Ask", "BatchFinished", "Call",
    "CallId", "Decided", "Decision", "Deny", "Duplicate", "ErrorKind", "Event", "Evidence", "Faulted",
    "Finding", "Finished", "Hook", "HookContext", "HookRan", "HookReport", "Hunk", "LimitReached", "LiveEvent",
    "Message", "ModelReplied", "Note",
    "Notification", "Permission", "PermissionRequested", "Progress", "Progressed", "RecoveryApplied",
    "Relayed", "Requested", "Result", "RunnerEvent", "SandboxDenied", "SandboxViolation", "SessionId",
    "SessionInfo", "Slow", "SourceLocation", "Span", "Started", "State", "Tokens", "WriteFailed",
]  # fmt: skip

__getattr__ = lazy_exports(__name__, {
    "ADVICE": "error_kinds", "ERROR_KINDS": "error_kinds", "OPEN_STATES": "state", "STATES": "state",
    "STATE_MEANINGS": "state", "Allow": "decision", "Ask": "decision", "BatchFinished": "events",
    "Call": "span", "CallId": "ids", "Decided": "events", "Decision": "decision", "Deny": "decision",
    "Duplicate": "events", "ErrorKind": "error_kinds", "Event": "span", "Evidence": "span", "Faulted": "events",
    "Finding": "session", "Finished": "events", "Hook": "span", "HookContext": "events", "HookRan": "events",
    "HookReport": "events", "Hunk": "hunk", "LimitReached": "events", "LiveEvent": "events", "Message": "session",
    "ModelReplied": "events", "Note": "span",
    "Notification": "span", "Permission": "span", "PermissionRequested": "events", "Progress": "span",
    "Progressed": "events", "RecoveryApplied": "events", "Relayed": "events", "Requested": "events",
    "Result": "span", "RunnerEvent": "events", "SandboxDenied": "events", "SandboxViolation": "events",
    "SessionId": "ids", "SessionInfo": "session", "Slow": "events",
    "SourceLocation": "ids", "Span": "span", "Started": "events", "State": "state", "Tokens": "session",
    "WriteFailed": "events",
})  # fmt: skip
