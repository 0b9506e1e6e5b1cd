"""The built-in tools, one file per tool or family.

`coding_tools()` returns the tools that a client version offers. A tool is an immutable value created for a profile,
and its file declares everything about it. To add a tool, write its file and list its factory in `TOOL_FACTORIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache

from toolspan.runtime.profiles import DEFAULT, VERSIONS, Profile
from toolspan.runtime.profiles import profile as find_profile
from toolspan.runtime.tool import Tool
from toolspan.tools.agent import agent_tool, send_message_tool
from toolspan.tools.background_tasks import kill_shell_tool, task_output_tool, task_stop_tool
from toolspan.tools.bash import bash_tool
from toolspan.tools.edit import edit_tool, multiedit_tool
from toolspan.tools.glob import glob_tool
from toolspan.tools.grep import grep_tool
from toolspan.tools.ls import ls_tool
from toolspan.tools.notebook_edit import notebook_edit_tool
from toolspan.tools.plan import ask_tool, enter_plan_tool, exit_plan_tool
from toolspan.tools.read import read_tool
from toolspan.tools.recovery import Degrade, ReadAndRetry, ReadFirst, Retry
from toolspan.tools.request_preview import RequestPreview, preview_request
from toolspan.tools.skill import skill_tool
from toolspan.tools.task_list import (
    task_create_tool,
    task_get_tool,
    task_list_tool,
    task_update_tool,
    todo_read_tool,
    todo_write_tool,
)
from toolspan.tools.tool_search import tool_search_tool
from toolspan.tools.web import webfetch_tool, websearch_tool
from toolspan.tools.write import write_tool

__all__ = [
    "Degrade",
    "ReadAndRetry",
    "ReadFirst",
    "RequestPreview",
    "Retry",
    "agent_tool",
    "ask_tool",
    "bash_tool",
    "client_tools",
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
    "preview_request",
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

TOOL_FACTORIES: tuple[Callable[[Profile], Tool], ...] = (
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
"""The tool factories, in the order in which the model sees the tools."""
_CLIENT_TOOLS = frozenset(
    name
    for version in VERSIONS
    for availability in [find_profile(version).availability]
    for name in availability.tools | availability.optional_tools
)


def coding_tools(
    profile: Profile | None = None, *, only: Iterable[str] | None = None, person: bool = False
) -> tuple[Tool, ...]:
    """Return the tools that a client version offers, by default the newest.

    `only` selects tools by name, including optional ones. Set `person` if a user can answer questions; some clients
    offer certain tools only in that case. Tools that no client version has are always offered.
    """
    client = find_profile() if profile is None else profile
    offer = client.availability
    names = offer.tools if only is None else offer.select_named(only)
    if not person:
        names -= offer.interactive_tools
    elif only is None:
        names |= offer.interactive_tools
    tools = [factory(client) for factory in TOOL_FACTORIES]
    own_tools = {tool.name for tool in tools} - _CLIENT_TOOLS
    names |= own_tools if only is None else own_tools.intersection(only)
    return tuple(
        replace(tool, aliases=tuple(alias for alias, name in offer.aliases.items() if name == tool.name))
        for tool in tools
        if tool.name in names
    )


@cache
def client_tools(version: str = DEFAULT) -> Mapping[str, Tool]:
    """Return the tools of all client versions by name and alias, preferably as in `version`."""
    tools: dict[str, Tool] = {}
    for client in map(find_profile, (*(name for name in VERSIONS if name != version), version)):
        names = client.availability.tools | client.availability.optional_tools
        for tool in coding_tools(client, only=names, person=True):
            tools |= dict.fromkeys((*tool.aliases, tool.name), tool)
    return tools
