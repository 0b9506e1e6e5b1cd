"""MCP servers: what differs between client versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class McpValues:
    """How one client version tells of MCP calls, and how long it waits."""

    error: str = "MCP error {code}: {message}"
    """An error of the protocol."""
    timed_out: str = "MCP error -32001: Request timed out"
    not_connected: str = "Not connected"
    restarts: bool = False
    """A server that crashed is started again by the next call."""
    joins_errors: bool = False
    """All texts of an error result are told, not only the first."""
    saves_binary: bool = False
    """What a conversation cannot hold is saved to a file; before, it was left out."""
    names_images: bool = False
    """Pictures are saved too, and the model is told where."""
    inline_limit: int | None = None
    """Characters of a result that stay in the conversation; None: no limit was seen."""
    meta: frozenset[str] = frozenset()
    """What is recorded beside a result for hosts: `mcpMeta`."""
    marks_writers: bool = False
    """Records tell of tools that do not say that they only read."""
    description_limit: int = 2_048
    connect_timeout: float = 30.0
    call_timeout: float = 600.0
    """Seconds for a call when neither server nor environment say otherwise; clients wait a day."""
    idle_remote: float | None = None
    """Seconds without a word of a server elsewhere, news of progress among them; None: no limit."""
    idle_local: float | None = None
    approval_requires_input: bool = True
    """A permission tool that allows must give the input back."""
    approval_invalid: str | None = None
    """What is said when its answer is none; None: what the validation library says."""
    approval_interrupts: bool = False
    """A refusal that interrupts is told in a person's words, not in its own."""
    approval_timeout: float | None = None
    """Seconds until the question of consent counts as failed; None: as for any call."""
    approval_timed_out: str | None = None
    """What is said then, and when the connection breaks; None: as for any call."""
    approval_unanswered: str | None = None


_V2_0_65 = McpValues()
_V2_1_80 = replace(
    _V2_0_65,
    timed_out='MCP server "{server}" tool "{tool}" timed out after {seconds}s',
    restarts=True,
    saves_binary=True,
    inline_limit=50_000,
    meta=frozenset({"structuredContent"}),
)
_V2_1_197 = replace(_V2_1_80, joins_errors=True, idle_remote=300.0, idle_local=1_800.0, approval_interrupts=True)
_V2_1_325 = replace(
    _V2_1_197,
    error="{message}",
    names_images=True,
    meta=frozenset({"structuredContent", "resourceLinks"}),
    marks_writers=True,
    description_limit=4_096,
    approval_requires_input=False,
    approval_invalid="The permission prompt tool returned an invalid permission result.",
)
_EVALUATE_ERROR = "MCP error -32603: failed to evaluate permission"

MCPS: Mapping[str, McpValues] = {
    "seed": replace(
        _V2_0_65,
        approval_timeout=120.0,
        approval_timed_out=f"{_EVALUATE_ERROR}: request timed out after {{duration}}",
        approval_unanswered=f"{_EVALUATE_ERROR}: no response received",
    ),
    "2.0.65": _V2_0_65,
    "2.1.80": _V2_1_80,
    "2.1.197": _V2_1_197,
    "2.1.325": _V2_1_325,
}
