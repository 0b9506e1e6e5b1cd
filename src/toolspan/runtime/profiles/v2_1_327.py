"""Claude Code 2.1.327, the newest version and the default: the defaults, and what has no default."""

from __future__ import annotations

from toolspan.runtime.profiles.base import (
    HookValues,
    Profile,
    Refusals,
    ShellValues,
    ToolAvailability,
    TranscriptShape,
)

_INTERACTIVE_TOOLS = frozenset({"AskUserQuestion", "EnterPlanMode", "ExitPlanMode"})
_TASK_LIST_TOOLS = frozenset({"TaskCreate", "TaskGet", "TaskList", "TaskUpdate"})
_OPTIONAL_TOOLS = frozenset({"Glob", "Grep", "ListMcpResourcesTool", "ReadMcpResourceTool", "TodoWrite"})
_ENVIRONMENT = {"CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "sdk-cli", "CLAUDE_CODE_CHILD_SESSION": "1"}

V2_1_327 = Profile(
    name="2.1.327",
    availability=ToolAvailability(
        tools=frozenset({
            "Agent", "Bash", "CronCreate", "CronDelete", "CronList", "Edit", "EnterWorktree", "ExitWorktree",
            "ListAgents", "Monitor", "NotebookEdit", "Read", "ReportFindings", "ScheduleWakeup", "SendMessage", "Skill",
            "TaskStop", "ToolSearch", "WebFetch", "WebSearch", "Workflow", "Write",
        }),
        optional_tools=_OPTIONAL_TOOLS | _INTERACTIVE_TOOLS | _TASK_LIST_TOOLS,
        task_list_tools=_TASK_LIST_TOOLS,
        models_without_tasks=("claude-opus-5",),
        interactive_tools=_INTERACTIVE_TOOLS,
        deferred=frozenset({
            "CronCreate", "CronDelete", "CronList", "EnterWorktree", "ExitWorktree", "Monitor", "NotebookEdit",
            "SendMessage", "TaskStop", "WebFetch", "WebSearch",
        }),
        aliases={"Task": "Agent", "KillShell": "TaskStop", "KillBash": "TaskStop"},
    ),
    refusals=Refusals(
        link_write=(
            "Refusing to write {path}: it is a symbolic link. Write to the link's target path instead: {target}."
        ),
        plan_shell="Auto mode is unavailable",
        plan_reads=True,
    ),
    shell=ShellValues(environment={**_ENVIRONMENT, "GIT_EDITOR": "true", "AI_AGENT": "claude-code_2-1-327_agent"}),
    hooks=HookValues(environment=_ENVIRONMENT),
    shape=TranscriptShape(version="2.1.327"),
)  # fmt: skip
