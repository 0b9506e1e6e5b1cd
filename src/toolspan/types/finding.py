"""Problems found in transcripts."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from toolspan.types.ids import SourceLocation

Severity = Literal["error", "warning", "info"]
Acceptance = Literal["accepts", "skips", "loses", "refuses", "unknown"]


class Finding(Struct, frozen=True, kw_only=True, gc=False):
    """One problem, its location, and how the client that wrote the file reacts to it."""

    code: str
    """One of the codes that `toolspan doctor` reports."""
    severity: Severity
    place: SourceLocation | None
    """The first occurrence; None for the file as a whole."""
    explanation: str
    client: Acceptance
    """The client's reaction on resume: it accepts the file, skips the line, loses a call or refuses the file."""
    count: int = 1
