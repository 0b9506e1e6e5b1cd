"""ToolSearch and Skill: deferred tools and skills."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.requirement import requirement
from tests.tools.files import record, refusal
from tests.tools.toolbox import Toolbox
from toolspan import Permissions, Rules, Session
from toolspan.runtime.profiles import profile
from toolspan.runtime.tool import tool
from toolspan.tools import bash_tool, coding_tools, skill_tool

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
        f"Base directory for this skill: {tmp_path}/home/.claude/skills/bake\n\n"
        "# Bake\nTake the person's flour.\n\n\nARGUMENTS: bread",
    )


def write_skill(folder: Path, name: str, text: str) -> None:
    path = folder / ".claude" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@requirement("skill-tool.commands")
async def test_a_command_file_is_a_skill(tmp_path: Path) -> None:
    toolbox = Toolbox(tmp_path, [skill_tool(profile())])
    write_skill(toolbox.project, "commands/git/commit.md", "Commit it.")
    write_skill(toolbox.project, "commands/deploy/SKILL.md", "---\nname: ship\n---\nShip it.")
    write_skill(toolbox.project, "commands/deploy/notes.md", "Part of the skill.")
    write_skill(toolbox.project, "commands/hidden.md", "---\ndisable-model-invocation: true\n---\nHidden.")

    async def launch(name: str) -> tuple[object, ...]:
        return (await toolbox.call("Skill", skill=name)).companions

    assert await launch("git:commit") == ("Commit it.",)
    shipped = (f"Base directory for this skill: {toolbox.project}/.claude/commands/deploy\n\nShip it.",)
    assert await launch("deploy") == await launch("ship") == shipped
    for name in ("commit", "git/commit", "deploy:notes", "notes", "hidden"):
        assert (await toolbox.call("Skill", skill=name)).span.state == "failed"


@requirement("skill-tool.arguments")
@pytest.mark.parametrize(
    ("text", "args", "expected"),
    [
        ("All: $ARGUMENTS.", "one two", "All: one two."),
        ("$1 after $0, $ARGUMENTS[1], $2.", "'a b' c", "c after a b, c, $2."),
        ("Costs \\$1 or $5.00.", "x", "Costs $1 or $5.00.\n\nARGUMENTS: x"),
        ("Do it.", "now", "Do it.\n\nARGUMENTS: now"),
        ("All: $ARGUMENTS, $0.", "", "All: , $0."),
    ],
)
async def test_arguments_are_inserted_into_a_skill(tmp_path: Path, text: str, args: str, expected: str) -> None:
    toolbox = Toolbox(tmp_path, [skill_tool(profile())])
    write_skill(toolbox.project, "commands/run.md", text)

    assert (await toolbox.call("Skill", skill="run", args=args)).companions == (expected,)


_TOUCH_ONLY = "---\nallowed-tools: {tools}\n---\nDo it.\n"


@requirement("skill-tool.allowed-tools")
@pytest.mark.parametrize(
    "tools", ["Bash(touch:*), Read", "Read Bash(touch:*)", "\n  - Bash(touch:*)\n  - Read", '["Bash(touch:*)"]']
)
async def test_a_skill_grants_its_tools_until_the_next_prompt(tmp_path: Path, tools: str) -> None:
    write_skill(tmp_path, "skills/work/SKILL.md", _TOUCH_ONLY.format(tools=tools))
    permissions = Permissions(Rules(allow=["Skill"], deny=["Bash(touch secret)"]))
    numbers = count()
    tools_offered = [bash_tool(profile()), skill_tool(profile())]
    async with Session(permissions=permissions, cwd=tmp_path, tools=tools_offered) as session:

        async def run(name: str, **fields: object) -> bool:
            await session.run({"type": "tool_use", "id": f"toolu_{next(numbers)}", "name": name, "input": fields})
            content: Any = session.messages[-1]["content"]
            return not content[0].get("is_error")

        session.say("Go.")
        assert not await run("Bash", command="touch early")
        assert await run("Skill", skill="work")
        assert await run("Bash", command="touch granted")
        assert not await run("Bash", command="touch secret")
        assert not await run("Bash", command="mkdir folder")
        session.say("Go on.")
        assert not await run("Bash", command="touch late")

    assert {path.name for path in tmp_path.iterdir()} == {".claude", "granted"}
