"""The facts that built-in tools declare about themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from toolspan.runtime.profiles import VERSIONS, profile
from toolspan.runtime.tool import Tool
from toolspan.tools import coding_tools
from toolspan.types.tool_kinds import tool_kind


def built_in_tools() -> dict[str, Tool]:
    """Every built-in tool by name, of the newest client version that has it."""
    tools: dict[str, Tool] = {}
    for version in VERSIONS:
        client = profile(version)
        names = client.availability.tools | client.availability.optional_tools
        tools |= {tool.name: tool for tool in coding_tools(client, only=names, person=True)}
    return tools


@pytest.mark.parametrize("tool", built_in_tools().values(), ids=lambda tool: tool.name)
def test_a_tool_declares_the_kind_that_transcripts_show_for_its_name(tool: Tool) -> None:
    assert tool.kind == tool_kind(tool.name)


@pytest.mark.parametrize("tool", built_in_tools().values(), ids=lambda tool: tool.name)
def test_the_texts_that_describe_a_tool_are_sentences(tool: Tool) -> None:
    texts = [tool.description, *descriptions_in(tool.input_schema)]

    assert [text for text in texts if not re.fullmatch(r"[A-Z`].*[\w`)]\.", text, re.DOTALL)] == []


def descriptions_in(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the descriptions of all parameters in a schema, also of those in lists; an empty one if it is missing."""
    for parameter in schema.get("properties", {}).values():
        yield parameter.get("description", "")
        yield from descriptions_in(parameter)
    yield from descriptions_in(schema["items"]) if "items" in schema else ()


@pytest.mark.parametrize("tool", built_in_tools().values(), ids=lambda tool: tool.name)
def test_the_subject_of_a_tool_is_one_of_its_inputs(tool: Tool) -> None:
    properties = tool.input_schema["properties"]
    assert isinstance(properties, dict)
    assert tool.subject is None or tool.subject.field in properties


def test_only_tools_without_network_model_or_person_are_replayable() -> None:
    replayable = {tool.name for tool in built_in_tools().values() if tool.replayable}

    assert replayable == {
        "Bash", "Edit", "Glob", "Grep", "LS", "MultiEdit", "NotebookEdit", "Read", "TodoRead", "TodoWrite", "Write",
    }  # fmt: skip


def test_tools_that_are_usually_fast_are_reported_as_slow_early() -> None:
    slow_after = {tool.name: tool.slow_after for tool in built_in_tools().values() if tool.slow_after}

    assert slow_after == {
        **dict.fromkeys(("LS", "Read", "TodoRead", "TodoWrite"), 2.0),
        **dict.fromkeys(("Edit", "Glob", "Grep", "MultiEdit", "NotebookEdit", "Write"), 5.0),
        **dict.fromkeys(("WebFetch", "WebSearch"), 30.0),
    }
