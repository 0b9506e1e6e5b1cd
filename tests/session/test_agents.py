"""Agents defined in files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from toolspan import tool
from toolspan.session.subagents.definitions import (
    AgentDefinition,
    SubagentConfig,
    load_agent_definitions,
    read_agent_definition,
    subagent_mode,
)
from toolspan.testing import ScriptedModel


def write(folder: Path, name: str, front: str, text: str = "You help.") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.md"
    path.write_text(f"---\n{front}\n---\n{text}\n")
    return path


def test_file_defines_an_agent(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "a",
        "name: reviewer\n"
        "description: >\n  Looks at changes\n  before they go out.\n"
        "tools: Read, Grep, Bash(git diff:*)\n"
        "disallowedTools:\n  - Write\n  - 'Edit'\n"
        'model: "inherit"\n'
        "permissionMode: plan   # never writes\n"
        "maxTurns: 7\nbackground: true\nisolation: worktree\ncolor: red",
        "Look closely.\n\nThen say.",
    )

    kind, notes = read_agent_definition(path)

    assert kind == AgentDefinition(
        name="reviewer",
        description="Looks at changes before they go out.",
        prompt="Look closely.\n\nThen say.",
        tools=("Read", "Grep", "Bash"),
        disallowed_tools=("Write", "Edit"),
        permission_mode="plan",
        max_turns=7,
        in_background=True,
        is_isolated=True,
        path=path,
    )
    assert notes == []


@pytest.mark.parametrize(
    ("front", "problem"),
    [
        ("description: d", "name is missing"),
        ("name: a", "description is missing"),
        ("name: '../x'\ndescription: d", "is not a valid name"),
        ("name: a\ndescription: d\nmaxTurns: many", "maxTurns is 'many'"),
        ("name: a\ndescription: d\npermissionMode: bypassPermissions", "permissionMode is"),
        ("name: a\n?!", "line 3 cannot be parsed"),
    ],
)
def test_invalid_agent_file_is_reported_and_the_others_are_used(tmp_path: Path, front: str, problem: str) -> None:
    write(tmp_path, "broken", front)
    (tmp_path / "none.md").write_text("just words")
    write(tmp_path, "good", "name: good\ndescription: [is, good]\nsomething: else")

    result = load_agent_definitions([tmp_path, tmp_path / "nowhere"])

    assert [(kind.name, kind.description) for kind in result.definitions] == [("good", "is, good")]
    broken, good, none = sorted(result.problems)
    assert problem in broken
    assert good.endswith("ignoring unknown field something")
    assert "no frontmatter" in none


def test_later_folder_overrides_an_agent_of_the_same_name(tmp_path: Path) -> None:
    write(tmp_path / "user", "one", "name: same\ndescription: mine")
    write(tmp_path / "project" / "deeper", "two", "name: same\ndescription: ours")

    result = load_agent_definitions([tmp_path / "user", tmp_path / "project"])

    assert [kind.description for kind in result.definitions] == ["ours"]
    assert result.problems == ()


def test_agent_has_the_tools_it_names_and_asks_nothing(tmp_path: Path) -> None:
    @tool
    async def look() -> str:
        """Look."""
        return ""

    @tool
    async def ask() -> str:
        """Ask."""
        return ""

    def kept(**more: tuple[str, ...]) -> list[str]:
        kind = AgentDefinition(name="k", description="d", **more)  # type: ignore[arg-type]
        return [item.name for item in (look, replace(ask, needs_user=True)) if kind.allows_tool(item)]

    assert kept() == ["look"]
    assert kept(tools=("*",)) == ["look"]
    assert kept(tools=("Read",)) == []
    assert kept(disallowed_tools=("look",)) == []


def test_agent_mode_is_never_less_strict_than_the_session_mode() -> None:
    def mode(wanted: str | None, above: str) -> str:
        return subagent_mode(AgentDefinition(name="k", description="d", permission_mode=wanted), above)

    assert mode(None, "acceptEdits") == "acceptEdits"
    assert mode("acceptEdits", "default") == "acceptEdits"
    assert mode("acceptEdits", "plan") == "plan"
    assert mode("default", "dontAsk") == "dontAsk"
    assert mode("plan", "bypassPermissions") == "plan"


def test_agent_may_have_another_model() -> None:
    above, other = ScriptedModel([]), ScriptedModel([], seed="other")
    request: list[str] = []

    def find(name: str) -> ScriptedModel | None:
        request.append(name)
        return other if name == "other" else None

    staff = SubagentConfig(find_model=find)

    assert staff.resolve_model(None, above) is above
    assert staff.resolve_model("inherit", above) is above
    assert staff.resolve_model("sonnet", above) is above
    assert staff.resolve_model("other", above) is other
    assert staff.resolve_model("other", above) is other
    assert request == ["sonnet", "other"]
