"""How a server does: calls, errors by kind, times, restarts. Live numbers, kept for each server."""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Literal

from toolspan.mcp.fault import FaultKind

ServerState = Literal["new", "connected", "lost", "failed", "closed"]
_REMEMBERED = 1_000
_TOLD = 4_000


@dataclass(slots=True)
class Health:
    """The record of one server."""

    state: ServerState = "new"
    reason: str | None = None
    """Why it is not connected."""
    protocol: str | None = None
    """The revision of the protocol that was agreed on."""
    calls: int = 0
    errors: Counter[FaultKind] = field(default_factory=Counter)
    """Calls that failed, by kind; `tool` are those the tool itself reported."""
    restarts: int = 0
    garbage: int = 0
    """Lines that were no messages."""
    left_out: list[str] = field(default_factory=list)
    """Tools that are not offered, with the reason."""
    times: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """Seconds of the latest calls that were answered."""
    last_words: str = ""
    """The end of what the process printed as errors."""

    @property
    def timeouts(self) -> int:
        """Calls that were not answered in time."""
        return self.errors["timeout"]

    @property
    def p95(self) -> float | None:
        """Seconds within which 95 of 100 answers came; None before the first."""
        ordered = sorted(self.times)
        if not ordered:
            return None
        return ordered[min(len(ordered) - 1, -(-len(ordered) * 95 // 100) - 1)]

    def keep_words(self, text: str) -> None:
        """Remember what the process said last."""
        self.last_words = text[-_TOLD:]
