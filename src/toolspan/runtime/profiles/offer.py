"""Which tools a client offers, and how it queues their calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Siblings = Literal["independent", "cancel_on_shell_error"]
_INTERACTIVE_TOOLS = frozenset({"AskUserQuestion", "EnterPlanMode", "ExitPlanMode"})
_TASK_LIST_TOOLS = frozenset({"TaskCreate", "TaskGet", "TaskList", "TaskUpdate"})
_RESOURCE_TOOLS = frozenset({"ListMcpResourcesTool", "ReadMcpResourceTool"})
"""There where an MCP server has resources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAvailability:
    """Tool list and queue values of one client version."""

    tools: frozenset[str]
    """What a session has without being asked."""
    optional_tools: frozenset[str] = frozenset()
    """Further tools that exist and can be switched on by name."""
    unavailable: frozenset[str] = frozenset()
    """Those of the known that naming them does not switch on."""
    task_list_tools: frozenset[str] = frozenset()
    """Tools of the task list that only some models have by themselves."""
    models_without_tasks: tuple[str, ...] = ()
    """Models that do not; matched at the beginning of the name. The default model is one."""
    interactive_tools: frozenset[str] = frozenset()
    """Tools a session has only when somebody is there to be asked."""
    deferred: frozenset[str] = frozenset()
    """Tools the model gets to see only when it searches for them; MCP tools, too, where any are."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Further names under which a tool is found."""
    max_concurrent: int | None = 10
    """How many calls may run at once; None: no limit was seen."""
    siblings: Siblings = "independent"
    starts_while_streaming: bool = False
    """A call starts as soon as its block is complete, before the message ends."""
    coerces: bool = False
    """Numbers and booleans may come as strings."""
    validates_paths: bool = True

    def for_model(self, model: str | None) -> ToolAvailability:
        """The same offer as it holds for a model."""
        if model is None or not self.task_list_tools or model.startswith(self.models_without_tasks):
            return self
        return replace(
            self, tools=self.tools | self.task_list_tools, optional_tools=self.optional_tools - self.task_list_tools
        )

    def select_named(self, names: Iterable[str]) -> frozenset[str]:
        """Which tools of these names there are."""
        return (self.tools | self.optional_tools - self.unavailable) & frozenset(names)

    def is_deferred(self, tool: str) -> bool:
        """Whether a tool is shown only to a model that searches for it."""
        return tool in self.deferred or (bool(self.deferred) and tool.startswith("mcp__"))


_V2_0_65 = ToolAvailability(
    tools=frozenset({
        "Bash", "Edit", "EnterPlanMode", "ExitPlanMode", "Glob", "Grep", "KillShell",
        "NotebookEdit", "Read", "Skill", "SlashCommand", "Task", "TaskOutput", "TodoWrite",
        "WebFetch", "WebSearch", "Write",
    }),
)  # fmt: skip
_V2_1_80 = replace(
    _V2_0_65,
    tools=(_V2_0_65.tools - {"KillShell", "SlashCommand", "Task"})
    | {"Agent", "AskUserQuestion", "CronCreate", "CronDelete", "CronList", "EnterWorktree",
       "ExitWorktree", "TaskStop"},
    aliases={"KillShell": "TaskStop", "Task": "Agent"},
    coerces=True,
)  # fmt: skip
_V2_1_197 = replace(
    _V2_1_80,
    tools=(_V2_1_80.tools - {"Glob", "Grep", "TodoWrite"} - _INTERACTIVE_TOOLS)
    | {"ReportFindings", "ScheduleWakeup", "SendMessage", "Workflow"} | _TASK_LIST_TOOLS,
    optional_tools=frozenset({"Glob", "Grep", "TodoWrite"}) | _INTERACTIVE_TOOLS | _RESOURCE_TOOLS,
    unavailable=frozenset({"TodoWrite"}),
    interactive_tools=_INTERACTIVE_TOOLS,
    aliases={"KillShell": "TaskStop", "KillBash": "TaskStop", "BashOutput": "TaskOutput",
             "Task": "Agent"},
    max_concurrent=None,
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
    optional_tools=frozenset({"Glob", "Grep", "TodoWrite"}) | _TASK_LIST_TOOLS | _INTERACTIVE_TOOLS | _RESOURCE_TOOLS,
    task_list_tools=_TASK_LIST_TOOLS,
    models_without_tasks=("claude-opus-5",),
    deferred=frozenset({
        "CronCreate", "CronDelete", "CronList", "EnterWorktree", "ExitWorktree", "Monitor",
        "NotebookEdit", "SendMessage", "TaskStop", "WebFetch", "WebSearch",
    }),
    aliases={"Task": "Agent", "KillShell": "TaskStop", "KillBash": "TaskStop"},
)  # fmt: skip
_SEED = replace(_V2_0_65, tools=_V2_0_65.tools | {"LS", "MultiEdit", "TodoRead"})

TOOL_AVAILABILITY: Mapping[str, ToolAvailability] = {
    "seed": _SEED,
    "2.0.65": _V2_0_65,
    "2.1.80": _V2_1_80,
    "2.1.197": _V2_1_197,
    "2.1.325": _V2_1_325,
}
