"""What sort of work a tool does, whatever the client calls it."""

from typing import Literal

ToolKind = Literal[
    "shell", "read", "edit", "write", "search", "web", "agent", "mcp", "plan", "question", "other"
]

_KINDS: dict[str, ToolKind] = {
    "Bash": "shell", "bash": "shell", "PowerShell": "shell", "Monitor": "shell",
    "BashOutput": "shell", "KillShell": "shell", "KillBash": "shell", "REPL": "shell",
    "Read": "read", "NotebookRead": "read", "ReadMcpResourceTool": "read", "LSP": "read",
    "Edit": "edit", "MultiEdit": "edit", "NotebookEdit": "edit",
    "Write": "write",
    "Glob": "search", "Grep": "search", "LS": "search", "ToolSearch": "search",
    "WebFetch": "web", "WebSearch": "web",
    "Task": "agent", "Agent": "agent", "AgentOutputTool": "agent", "SendMessage": "agent",
    "Workflow": "agent",
    "TodoWrite": "plan", "TodoRead": "plan", "TaskCreate": "plan", "TaskUpdate": "plan",
    "TaskGet": "plan", "TaskList": "plan", "EnterPlanMode": "plan", "ExitPlanMode": "plan",
    "exit_plan_mode": "plan",
    "AskUserQuestion": "question",
}  # fmt: skip


def tool_kind(tool: str) -> ToolKind:
    """The sort of work behind a tool's name."""
    kind = _KINDS.get(tool)
    if kind is None:
        return "mcp" if tool.startswith("mcp__") else "other"
    return kind


def tools_of(*kinds: ToolKind) -> frozenset[str]:
    """The names of all tools of some kinds; not for mcp and other, whose names nobody knows."""
    return frozenset(tool for tool, kind in _KINDS.items() if kind in kinds)
