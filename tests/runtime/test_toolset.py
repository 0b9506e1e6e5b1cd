"""Collections of tools."""

from __future__ import annotations

import pytest

from toolspan.errors import BadTool
from toolspan.runtime.tool import Toolset, tool


@tool(aliases=("cat",), read_only=True)
def show(path: str) -> str:
    """Show a file."""
    return path


@tool
def remove(path: str) -> str:
    """Remove a file."""
    return path


def test_tool_is_found_by_name_and_alias() -> None:
    tools = Toolset([show, remove])

    assert tools.find("show") is show
    assert tools.find("cat") is show
    assert tools.find("Show") is None
    assert "cat" in tools
    assert show in tools
    assert "dog" not in tools


def test_name_takes_precedence_over_an_alias() -> None:
    @tool
    def cat(path: str) -> str:
        return path

    assert Toolset([show, cat]).find("cat") is cat
    assert Toolset([cat, show]).find("cat") is cat


def test_same_name_in_other_case_is_the_closest() -> None:
    tools = Toolset([show, remove])

    assert tools.find_other_case("SHOW") == "show"
    assert tools.find_other_case("show") is None
    assert tools.find_other_case("shows") is None


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(BadTool, match="Two tools are called 'show'"):
        Toolset([show]) + Toolset([show])

    @tool(aliases=("cat",))
    def other(path: str) -> str:
        return path

    with pytest.raises(BadTool, match="'show' and 'other' have the same alias 'cat'"):
        Toolset([show, other])


def test_toolsets_are_joined_filtered_and_prefixed_into_new_ones() -> None:
    tools = Toolset([show]) + Toolset([remove])
    readers = tools.filtered(lambda item: item.read_only).prefixed("mcp__disk__")

    assert tools.names == ("show", "remove")
    assert readers.names == ("mcp__disk__show",)
    assert readers.find("mcp__disk__cat") is not None
    assert readers.find("cat") is None
    assert (len(tools), [item.name for item in tools]) == (2, ["show", "remove"])
    assert tools == Toolset([show]).combined([remove])
    assert hash(tools) == hash(Toolset([show, remove]))
    assert tools != readers
    assert repr(tools) == "Toolset(show, remove)"


def test_schemas_fit_a_messages_request() -> None:
    (schema,) = Toolset([show]).schemas()

    assert schema == {
        "name": "show",
        "description": "Show a file.",
        "input_schema": {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "additionalProperties": False,
        },
    }
