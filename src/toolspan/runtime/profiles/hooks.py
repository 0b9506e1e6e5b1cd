"""Hooks: what differs between client versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

_NARROW_NAMES = r"[A-Za-z0-9_|]*"
_WIDE_NAMES = r"[A-Za-z0-9_\-, |]*"

_POINTS_2_0_65 = frozenset({
    "PreToolUse", "PostToolUse", "PostToolUseFailure", "PermissionRequest", "Notification",
    "UserPromptSubmit", "SessionStart", "SessionEnd", "Stop", "SubagentStart", "SubagentStop",
    "PreCompact",
})  # fmt: skip
_POINTS_2_1_80 = _POINTS_2_0_65 | {
    "Setup", "TeammateIdle", "TaskCompleted", "ConfigChange", "WorktreeCreate", "WorktreeRemove",
    "InstructionsLoaded", "PostCompact", "Elicitation", "ElicitationResult", "StopFailure",
}  # fmt: skip
_POINTS_2_1_197 = _POINTS_2_1_80 | {
    "CwdChanged", "FileChanged", "TaskCreated", "PermissionDenied", "UserPromptExpansion",
    "PostToolBatch", "MessageDisplay",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class HookValues:
    """How one client version finds, tells, runs and hears hooks."""

    points: frozenset[str] = _POINTS_2_1_197 | {"DirectoryAdded"}
    """The names it knows."""
    unknown_drops_all: bool = False
    """A name it does not know makes it ignore every hook of the file."""
    exact_matcher: str = _WIDE_NAMES
    """A matcher of these characters is a list of names; any other one is a pattern, looked for
    anywhere in the name."""
    separators: str = "|,"
    """What stands between the names of a list."""
    timeout: float = 600.0
    """Seconds for a handler that names none."""
    omitted_fields: frozenset[str] = frozenset()
    """Fields that handlers are not told yet."""
    effort: str | None = "medium"
    """How hard the model is told to think, when nobody says otherwise."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What commands find in their environment, beside the project's folder."""
    exports_session_id: bool = True
    """They find the session's id and the effort there, too."""
    asks_permission_headless: bool = True
    """PermissionRequest is fired where nobody is there to be asked."""
    flat_decision: bool = False
    """`{"decision": "allow", "additionalContext": ...}` without a block of its own counts."""
    exit_2_wins: bool = True
    """Exit code 2 blocks whatever the JSON beside it allows."""
    input_needs_decision: bool = False
    """A new input counts only beside a decision."""
    updates_output: bool = True
    """The output of every tool can be replaced; else only that of MCP tools."""
    honours_ask: bool = True
    """Asking makes somebody be asked; else it is no opinion."""
    honours_defer: bool = True
    allow_is_final: bool = False
    """A hook's consent wins over rules that deny."""
    uses_last_reason: bool = False
    """Why a call is refused is told in the words of the last handler, or not at all."""
    blocked_text: str = "[{command}]: {words}"
    """Exit code 2 before a call, as `Refusals.hook_denied` takes it."""
    max_stop_blocks: int | None = 8
    """So many times in a row the end of a turn can be refused."""
    summarizes_stop: bool = True
    """The transcript has a line on every end of a turn."""
    records_prompt_outcome: bool = True
    """A refused prompt is told of with how it ended."""


_V2_0_65 = HookValues(
    points=_POINTS_2_0_65,
    unknown_drops_all=True,
    exact_matcher=_NARROW_NAMES,
    separators="|",
    timeout=60.0,
    omitted_fields=frozenset(
        {
            "prompt_id",
            "effort",
            "duration_ms",
            "mcp_server",
            "background_tasks",
            "session_crons",
            "last_assistant_message",
            "agent_type",
        }
    ),
    effort=None,
    environment={"CLAUDE_CODE_ENTRYPOINT": "sdk-cli"},
    exports_session_id=False,
    asks_permission_headless=False,
    exit_2_wins=False,
    input_needs_decision=True,
    updates_output=False,
    honours_ask=False,
    honours_defer=False,
    allow_is_final=True,
    uses_last_reason=True,
    blocked_text="PreToolUse:{tool} hook error: [{command}]: {words}",
    max_stop_blocks=None,
    summarizes_stop=False,
    records_prompt_outcome=False,
)
_V2_1_80 = replace(
    _V2_0_65,
    points=_POINTS_2_1_80,
    timeout=600.0,
    omitted_fields=_V2_0_65.omitted_fields - {"last_assistant_message", "agent_type"},
    input_needs_decision=False,
    allow_is_final=False,
)
_V2_1_197 = replace(
    _V2_1_80,
    points=_POINTS_2_1_197,
    unknown_drops_all=False,
    exact_matcher=_WIDE_NAMES,
    separators="|,",
    omitted_fields=frozenset({"mcp_server"}),
    effort="high",
    environment={"CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "sdk-cli", "CLAUDE_CODE_CHILD_SESSION": "1"},
    exports_session_id=True,
    exit_2_wins=True,
    updates_output=True,
    honours_ask=True,
    honours_defer=True,
    uses_last_reason=False,
    max_stop_blocks=8,
)
_V2_1_325 = replace(
    _V2_1_197,
    points=_POINTS_2_1_197 | {"DirectoryAdded"},
    omitted_fields=frozenset(),
    effort="medium",
    asks_permission_headless=True,
    blocked_text="[{command}]: {words}",
    summarizes_stop=True,
    records_prompt_outcome=True,
)

HOOKS: Mapping[str, HookValues] = {
    "seed": replace(_V2_0_65, flat_decision=True, unknown_drops_all=False),
    "2.0.65": _V2_0_65,
    "2.1.80": _V2_1_80,
    "2.1.197": _V2_1_197,
    "2.1.325": _V2_1_325,
}
