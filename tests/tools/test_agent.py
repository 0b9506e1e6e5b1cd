"""Agent (called Task in older clients) and SendMessage: their inputs, and their errors without a model.

`tests/session/test_subagents.py` tests agents with a model.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.tools.toolbox import Toolbox, open_toolbox
from toolspan.runtime.profiles import VERSIONS, profile
from toolspan.tools import agent_tool, coding_tools, send_message_tool

pytestmark = pytest.mark.anyio

NAMES = {"seed": "Task", "2.0.65": "Task", "2.1.327": "Agent"}


def make_toolbox(folder: Path, version: str) -> Toolbox:
    return Toolbox(folder, coding_tools(profile(version)), version=version)


@requirement("subagents.tool")
@pytest.mark.parametrize("version", VERSIONS)
async def test_every_client_has_the_tool_under_its_name(tmp_path: Path, version: str) -> None:
    (offered,) = [tool for tool in coding_tools(profile(version)) if tool.name == NAMES[version]]
    async with open_toolbox(make_toolbox(tmp_path, version)) as tools:
        empty = await tools.call("Task")

    assert offered.aliases == (() if offered.name == "Task" else ("Task",))
    assert offered.may_overlap({})
    assert str(empty.content).startswith("<tool_use_error>InputValidationError: ")
    assert "description" in str(empty.content)


@requirement("subagents.tool")
@pytest.mark.parametrize(("version", "keys"), [("2.0.65", {"resume"}), ("2.1.327", {"isolation", "effort"})])
def test_the_inputs_are_those_of_the_client(version: str, keys: set[str]) -> None:
    always = {"description", "prompt", "subagent_type", "model", "run_in_background"}
    schema = agent_tool(profile(version)).input_schema
    properties = schema["properties"]
    assert isinstance(properties, dict)

    assert properties.keys() == always | keys
    needed = ["description", "prompt", *(["subagent_type"] if version == "2.0.65" else [])]
    assert schema["required"] == needed


@pytest.mark.parametrize("version", ["2.0.65", "2.1.327"])
async def test_without_a_model_a_call_fails(tmp_path: Path, version: str) -> None:
    async with open_toolbox(make_toolbox(tmp_path, version)) as tools:
        output = await tools.call("Task", description="d", prompt="p", subagent_type="general-purpose")

    assert (output.span.state, output.span.error_kind) == ("failed", "internal")
    assert "this session has no model" in str(output.content)


async def test_without_a_model_no_message_can_be_sent(tmp_path: Path) -> None:
    toolbox = Toolbox(tmp_path, [send_message_tool(profile())])
    async with open_toolbox(toolbox) as tools:
        empty = await tools.call("SendMessage", to="a1", message="  ")
        output = await tools.call("SendMessage", to="a1", message="Hello?")

    assert empty.span.error_kind == "invalid_input"
    assert "this session has no model" in str(output.content)


@requirement("subagents.tool")
async def test_an_agent_without_a_prompt_is_not_started(tmp_path: Path) -> None:
    async with open_toolbox(make_toolbox(tmp_path, "2.1.327")) as tools:
        output = await tools.call("Agent", description="d", prompt=" \n")

    assert (output.span.state, output.span.error_kind) == ("failed", "invalid_input")
