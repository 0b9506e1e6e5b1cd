"""ToolSearch and Skill: deferred tools and skills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.tools.files import record, refusal
from tests.tools.toolbox import Toolbox
from toolspan.runtime.profiles import profile
from toolspan.runtime.tool import tool
from toolspan.tools import coding_tools, skill_tool

pytestmark = pytest.mark.anyio


@tool(name="mcp__shop__list_orders")
def orders() -> str:
    """List what was bought."""
    return ""


@tool(name="mcp__shop__cancel_order")
def cancel() -> str:
    """Cancel an order."""
    return ""


@requirement("toolsearch-tool.finds")
@pytest.mark.parametrize(
    ("query", "result"),
    [
        ("select:webfetch,mcp__shop__list_orders,nothing", ["WebFetch", "mcp__shop__list_orders"]),
        ("order", ["mcp__shop__cancel_order", "mcp__shop__list_orders"]),
        ("+bought", ["mcp__shop__list_orders"]),
        ("web search", ["WebSearch", "WebFetch"]),
        ("select:Bash", []),
        ("zzzqqq", []),
        ("", []),
    ],
)
async def test_deferred_tools_are_found_by_name_and_words(tmp_path: Path, query: str, result: list[str]) -> None:
    toolbox = Toolbox(tmp_path, [*coding_tools(), orders, cancel])

    finished = await toolbox.call("ToolSearch", query=query)

    references = [{"type": "tool_reference", "tool_name": name} for name in result]
    assert finished.content == (references or "No matching deferred tools found")
    assert record(finished) == {"matches": result, "query": query, "total_deferred_tools": 13}


@requirement("toolsearch-tool.finds")
async def test_no_more_results_are_returned_than_requested(tmp_path: Path) -> None:
    toolbox = Toolbox(tmp_path, [*coding_tools(), orders, cancel])

    result = await toolbox.call("ToolSearch", query="order", max_results=1)

    assert record(result)["matches"] == ["mcp__shop__cancel_order"]


@requirement("toolsearch-tool.finds")
async def test_a_deferred_tool_can_be_called_without_a_search(tmp_path: Path) -> None:
    toolbox = Toolbox(tmp_path, [*coding_tools(), orders])

    assert (await toolbox.call("mcp__shop__list_orders")).span.state == "succeeded"


@requirement("skill-tool.finds")
@pytest.mark.parametrize("name", ["nosuch", "../skills/x", "/etc", ".", "a/b"])
async def test_an_unknown_skill_is_refused(tmp_path: Path, name: str) -> None:
    toolbox = Toolbox(tmp_path, [skill_tool(profile())])

    result = await toolbox.call("Skill", skill=name)

    assert result.content == refusal(f"Unknown skill: {name.removeprefix('/')}")


@requirement("skill-tool.finds")
async def test_a_skill_that_is_hidden_from_models_is_not_started(tmp_path: Path) -> None:
    skill = tmp_path / "project/.claude/skills/secret/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: secret\ndisable-model-invocation: true\n---\nSteps.\n", encoding="utf-8")

    result = await Toolbox(tmp_path, [skill_tool(profile())]).call("Skill", skill="secret")

    assert result.content == refusal("Skill secret cannot be used with Skill tool due to disable-model-invocation")


@requirement("skill-tool.finds")
async def test_the_text_of_a_skill_is_sent_beside_the_result(tmp_path: Path) -> None:
    toolbox = Toolbox(tmp_path, [skill_tool(profile())])
    for folder, text in ((toolbox.project, "the project's"), (tmp_path / "home", "the person's")):
        skill = folder / ".claude/skills/bake"
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text(f"---\nname: bake\n---\n# Bake\nTake {text} flour.\n", encoding="utf-8")

    result = await toolbox.call("Skill", skill="bake", args="bread")

    assert result.content == "Launching skill: bake"
    assert record(result) == {"success": True, "commandName": "bake"}
    assert result.companions == (
        f"Base directory for this skill: {toolbox.project}/.claude/skills/bake\n\n"
        "# Bake\nTake the project's flour.\n\nARGUMENTS: bread",
    )
