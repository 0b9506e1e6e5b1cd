"""A diagnosed problem of a transcript: code, place, explanation, what the client makes of it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from toolspan.types.ids import SourceLocation

Severity = Literal["error", "warning", "info"]
Acceptance = Literal["accepts", "skips", "loses", "refuses", "unknown"]


class Finding(Struct, frozen=True, kw_only=True, gc=False):
    """One problem, where it is, and whether the client that wrote the file would still take it."""

    code: str
    """One of the codes that `toolspan doctor` reports."""
    severity: Severity
    place: SourceLocation | None
    """Where it is first seen; None for the file as a whole."""
    explanation: str
    """What it means, in a sentence."""
    client: Acceptance
    """What the writing client does on resume: accepts it, skips the line, loses a call, refuses."""
    count: int = 1
    """How often; only the first place is kept."""
