"""Which tools a client offers, and how it queues their calls."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Siblings = Literal["independent", "cancel_on_shell_error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Tool list and queue values of one client version."""

    tools: frozenset[str]
    """What a session has without being asked."""
    known: frozenset[str] = frozenset()
    """Further tools that exist and can be switched on by name."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    cap: int | None = 10
    """How many calls may run at once; None: no limit was seen."""
    siblings: Siblings = "independent"
    starts_while_streaming: bool = False
    """A call starts as soon as its block is complete, before the message ends."""
    coerces: bool = False
    """Numbers and booleans may come as strings."""
    validates_paths: bool = True


_V2_0_65 = Offer(
    tools=frozenset({
        "Bash", "Edit", "EnterPlanMode", "ExitPlanMode", "Glob", "Grep", "KillShell",
        "NotebookEdit", "Read", "Skill", "SlashCommand", "Task", "TaskOutput", "TodoWrite",
        "WebFetch", "WebSearch", "Write",
    }),
)  # fmt: skip
_V2_1_80 = replace(
    _V2_0_65,
    tools=(_V2_0_65.tools - {"KillShell", "SlashCommand"})
    | {"AskUserQuestion", "CronCreate", "CronDelete", "CronList", "EnterWorktree", "ExitWorktree",
       "TaskStop"},
    aliases={"KillShell": "TaskStop", "Agent": "Task"},
    coerces=True,
)  # fmt: skip
_V2_1_197 = replace(
    _V2_1_80,
    tools=(_V2_1_80.tools - {"Glob", "Grep", "TodoWrite"})
    | {"ReportFindings", "ScheduleWakeup", "SendMessage", "TaskCreate", "TaskGet", "TaskList",
       "TaskUpdate", "Workflow"},
    known=frozenset({"Glob", "Grep", "TodoWrite"}),
    aliases={"KillShell": "TaskStop", "KillBash": "TaskStop", "BashOutput": "TaskOutput",
             "Agent": "Task"},
    cap=None,
    starts_while_streaming=True,
)  # fmt: skip
_V2_1_325 = replace(
    _V2_1_197,
    tools=frozenset({
        "Agent", "Bash", "CronCreate", "CronDelete", "CronList", "Edit", "EnterWorktree",
        "ExitWorktree", "ListAgents", "Monitor", "NotebookEdit", "Read", "ReportFindings",
        "ScheduleWakeup", "SendMessage", "Skill", "TaskStop", "ToolSearch", "WebFetch",
        "WebSearch", "Workflow", "Write",
    }),
    known=frozenset({
        "Glob", "Grep", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "TodoWrite",
    }),
    aliases={"Task": "Agent", "KillShell": "TaskStop", "KillBash": "TaskStop"},
)  # fmt: skip
_SEED = replace(
    _V2_0_65,
    tools=_V2_0_65.tools | {"LS", "MultiEdit", "TodoRead"},
)

OFFERS: Mapping[str, Offer] = {
    "seed": _SEED,
    "2.0.65": _V2_0_65,
    "2.1.80": _V2_1_80,
    "2.1.197": _V2_1_197,
    "2.1.325": _V2_1_325,
}
