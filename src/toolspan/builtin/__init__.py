"""The built-in tools, one file or folder each.

`coding_tools()` gives those that a client version offers. A tool is a value made for a profile;
none knows another.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from toolspan.builtin.agent import agent_tool
from toolspan.builtin.ask import ask_tool
from toolspan.builtin.bash import bash_tool
from toolspan.builtin.edit import edit_tool
from toolspan.builtin.ls import ls_tool
from toolspan.builtin.multiedit import multiedit_tool
from toolspan.builtin.notebook import notebook_edit_tool
from toolspan.builtin.plan import enter_plan_tool, exit_plan_tool
from toolspan.builtin.read import read_tool
from toolspan.builtin.search import glob_tool, grep_tool
from toolspan.builtin.sendmessage import send_message_tool
from toolspan.builtin.skill import skill_tool
from toolspan.builtin.taskio import kill_shell_tool, task_output_tool, task_stop_tool
from toolspan.builtin.tasklist import (
    task_create_tool,
    task_get_tool,
    task_list_tool,
    task_update_tool,
)
from toolspan.builtin.todo import todo_read_tool, todo_write_tool
from toolspan.builtin.toolsearch import tool_search_tool
from toolspan.builtin.webfetch import webfetch_tool
from toolspan.builtin.websearch import websearch_tool
from toolspan.builtin.write import write_tool
from toolspan.profile import Profile
from toolspan.profile import profile as named
from toolspan.run.tool import Tool

__all__ = [
    "agent_tool",
    "ask_tool",
    "bash_tool",
    "coding_tools",
    "edit_tool",
    "enter_plan_tool",
    "exit_plan_tool",
    "glob_tool",
    "grep_tool",
    "kill_shell_tool",
    "ls_tool",
    "multiedit_tool",
    "notebook_edit_tool",
    "read_tool",
    "send_message_tool",
    "skill_tool",
    "task_create_tool",
    "task_get_tool",
    "task_list_tool",
    "task_output_tool",
    "task_stop_tool",
    "task_update_tool",
    "todo_read_tool",
    "todo_write_tool",
    "tool_search_tool",
    "webfetch_tool",
    "websearch_tool",
    "write_tool",
]

_MAKERS: tuple[Callable[[Profile], Tool], ...] = (
    agent_tool,
    bash_tool,
    glob_tool,
    grep_tool,
    ls_tool,
    exit_plan_tool,
    read_tool,
    edit_tool,
    multiedit_tool,
    write_tool,
    notebook_edit_tool,
    webfetch_tool,
    todo_read_tool,
    todo_write_tool,
    websearch_tool,
    task_create_tool,
    task_get_tool,
    task_update_tool,
    task_list_tool,
    enter_plan_tool,
    ask_tool,
    task_output_tool,
    task_stop_tool,
    kill_shell_tool,
    skill_tool,
    send_message_tool,
    tool_search_tool,
)
"""In the order in which tools are listed."""


def coding_tools(
    profile: Profile | None = None, *, only: Iterable[str] | None = None, person: bool = False
) -> tuple[Tool, ...]:
    """The tools a client version offers; without a profile, those of the newest.

    `only` names tools instead, also such as are not offered by themselves. With `person`, somebody
    is there to be asked: some clients have tools for that only then.
    """
    client = named() if profile is None else profile
    offer = client.offer
    names = offer.tools if only is None else offer.named(only)
    if not person:
        names -= offer.with_person
    elif only is None:
        names |= offer.with_person
    made = (_named(make(client), client) for make in _MAKERS)
    return tuple(tool for tool in made if tool.name in names)


def _named(tool: Tool, client: Profile) -> Tool:
    """The tool with the further names the client has for it."""
    aliases = client.offer.aliases.items()
    return replace(tool, aliases=tuple(alias for alias, name in aliases if name == tool.name))
