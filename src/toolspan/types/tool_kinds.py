"""Tool kinds by tool name, for all clients.

No two clients use the same name for different kinds.
"""

from __future__ import annotations

from typing import Literal

ToolKind = Literal["shell", "read", "edit", "write", "search", "web", "agent", "mcp", "plan", "question", "other"]

_TOOL_KINDS: dict[str, ToolKind] = {
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
    "shell": "shell", "container.exec": "shell", "shell_command": "shell", "local_shell": "shell",
    "exec_command": "shell", "write_stdin": "shell", "unified_exec": "shell", "exec": "shell",
    "js_repl": "shell",
    "view_image": "read", "read_file": "read", "read_mcp_resource": "read",
    "apply_patch": "edit",
    "tool_search": "search", "list_dir": "search", "grep_files": "search",
    "web_search": "web",
    "spawn_agent": "agent", "send_input": "agent", "wait": "agent", "wait_agent": "agent",
    "close_agent": "agent", "resume_agent": "agent", "send_message": "agent",
    "followup_task": "agent", "interrupt_agent": "agent", "list_agents": "agent",
    "update_plan": "plan", "create_goal": "plan", "update_goal": "plan", "get_goal": "plan",
    "request_user_input": "question", "request_permissions": "question",
    "run_shell_command": "shell",
    "read_many_files": "read",
    "replace": "edit",
    "write_file": "write",
    "glob": "search", "grep_search": "search", "search_file_content": "search", "list_directory": "search",
    "google_web_search": "web", "web_fetch": "web",
    "codebase_investigator": "agent",
    "update_topic": "plan", "write_todos": "plan", "enter_plan_mode": "plan",
    "ask_user": "question",
    "read": "read", "view": "read", "ReadFile": "read", "ReadMediaFile": "read",
    "edit": "edit", "multiedit": "edit", "StrReplaceFile": "edit", "StrReplace": "edit", "str_replace": "edit",
    "write": "write", "create": "write", "WriteFile": "write",
    "grep": "search", "find": "search", "ls": "search", "list": "search", "codesearch": "search",
    "webfetch": "web", "websearch": "web", "SearchWeb": "web", "FetchURL": "web",
    "task": "agent", "agent": "agent", "AgentSwarm": "agent",
    "todowrite": "plan", "todoread": "plan", "todo_write": "plan", "TodoList": "plan", "SetTodoList": "plan",
    "report_intent": "plan",
    "Shell": "shell", "read_bash": "shell", "write_bash": "shell", "stop_bash": "shell",
    "question": "question",
}  # fmt: skip


def tool_kind(tool: str) -> ToolKind:
    """Return the kind of a tool by its name."""
    kind = _TOOL_KINDS.get(tool)
    if kind is None:  # tools of MCP servers, with or without the mcp prefix
        return "mcp" if "__" in tool[1:-1] else "other"
    return kind


def tools_of_kinds(*kinds: ToolKind) -> frozenset[str]:
    """Return the names of all known tools of these kinds, except `mcp` and `other`."""
    return frozenset(tool for tool, kind in _TOOL_KINDS.items() if kind in kinds)


def sanitize_name(name: str) -> str:
    """Replace characters that are not allowed in the name of a tool or MCP server with `_`."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)
