"""Hooks for subagents, background commands and MCP servers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import toolspan
from tests.integrations.mcp_client.connect import config
from tests.requirement import requirement
from tests.runtime.hooks.hook_sessions import at, command, says
from tests.session.role_models import Play, troupe
from toolspan import Permissions, Session
from toolspan.integrations.mcp_client import McpServers
from toolspan.runtime.hooks.events import HookRunner
from toolspan.runtime.hooks.load import load_hooks
from toolspan.runtime.profiles import profile
from toolspan.runtime.settings import SettingsLayer, merge_settings
from toolspan.runtime.settings.load import parse_settings
from toolspan.testing import use
from toolspan.tools import bash_tool

pytestmark = pytest.mark.anyio
VERSION = "2.1.327"


def handlers(block: Mapping[str, object], version: str = VERSION) -> HookRunner:
    layer = SettingsLayer("user", Path("s.json"), parse_settings({"hooks": block}, "s.json"), {})
    return load_hooks(merge_settings([layer], trusted=True), profile(version)).hooks


def read_payloads(folder: Path) -> list[dict[str, object]]:
    text = (folder / "input").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def errand(prompt: str, **more: object) -> dict[str, object]:
    fields = {"description": prompt, "prompt": prompt, "run_in_background": False, **more}
    return use("Agent", **fields)


@requirement("hooks.tree")
@pytest.mark.parametrize("background", [False, True])
async def test_calls_of_subagents_run_the_same_hooks_with_the_agents_name(tmp_path: Path, background: bool) -> None:
    keep = command(f"cat >> '{tmp_path}/input'")
    block = {point: [{"hooks": [keep]}] for point in ("PreToolUse", "PostToolUse")}
    play = Play(
        {
            "Main": [[errand("Left", run_in_background=background)]],
            "Left": [[use("echo", text="a")], [errand("Deep")]],
            "Deep": [[use("echo", text="b")]],
        }
    )
    async with troupe(tmp_path, play, version=VERSION, hooks=handlers(block)) as agent:
        await agent.run_to_completion("Main")
        spans = agent.session.spans

    rows = read_payloads(tmp_path)
    echoes = [row for row in rows if row["tool_name"] == "echo"]
    assert [row["hook_event_name"] for row in echoes] == ["PreToolUse", "PostToolUse"] * 2
    assert {row["agent_type"] for row in echoes} == {"general-purpose"}
    first_id, nested_id = (echoes[0]["agent_id"], echoes[2]["agent_id"])
    assert (first_id, first_id != nested_id) == (spans[0].agent, True)
    assert {row["transcript_path"] for row in rows} == {str(tmp_path / "t.jsonl")}
    assert all("agent_id" not in row for row in rows if row["tool_use_id"] == spans[0].id)


@requirement("hooks.tree")
async def test_hook_can_deny_a_call_of_a_subagent_and_is_recorded(tmp_path: Path) -> None:
    denies = {"hookEventName": "PreToolUse", "permissionDecision": "deny",
              "permissionDecisionReason": "not below"}  # fmt: skip
    block = at("PreToolUse", says({"hookSpecificOutput": denies}), matcher="echo")
    play = Play({"Main": [[errand("Left")]], "Left": [[use("echo", text="a")]]})
    async with troupe(tmp_path, play, version=VERSION, hooks=handlers(block)) as agent:
        await agent.run_to_completion("Main")

    (path,) = tmp_path.rglob("agent-*.jsonl")
    (span,) = toolspan.read(path).spans
    assert (span.state, span.result and span.result.text) == (
        "blocked_by_hook", "PreToolUse:echo hook error: not below",
    )  # fmt: skip


@requirement("hooks.tree")
async def test_background_commands_and_mcp_calls_run_hooks(tmp_path: Path) -> None:
    keep = command("cat >> input")
    block = {point: [{"hooks": [keep]}] for point in ("PreToolUse", "PostToolUse")}
    calls = [
        {**use("Bash", command="true", run_in_background=True), "id": "c1"},
        {**use("mcp__chaos__echo", text="x"), "id": "c2"},
    ]
    async with McpServers(config(tmp_path / "log"), profile=profile(VERSION)) as servers:
        session = Session(
            permissions=Permissions.allow_all(),
            cwd=tmp_path,
            tools=[bash_tool(profile(VERSION)), *servers.tools()],
            hooks=handlers(block),
            profile=VERSION,
            transcript=None,
        )
        async with session:
            await session.run({"role": "assistant", "content": calls})

    names = [(row["hook_event_name"], row["tool_name"]) for row in read_payloads(tmp_path)]
    assert sorted(names) == [
        ("PostToolUse", "Bash"),
        ("PostToolUse", "mcp__chaos__echo"),
        ("PreToolUse", "Bash"),
        ("PreToolUse", "mcp__chaos__echo"),
    ]


@requirement("hooks.worktree")
async def test_hook_can_create_the_worktree_of_a_subagent(tmp_path: Path) -> None:
    line = f"cat >> '{tmp_path}/input'; mkdir '{tmp_path}/copy'; echo noise; echo '{tmp_path}/copy'"
    play = Play({"Main": [[errand("Left", isolation="worktree")]], "Left": [[use("Bash", command="pwd")]]})
    hooks = handlers(at("WorktreeCreate", command(line)))
    tools = [bash_tool(profile(VERSION))]
    async with troupe(tmp_path, play, version=VERSION, hooks=hooks, tools=tools) as agent:
        await agent.prompt("Main")
        (span,) = agent.session.spans

    (row,) = read_payloads(tmp_path)
    assert (row["name"], row["hook_event_name"]) == (f"agent-{span.agent}", "WorktreeCreate")
    assert span.result is not None
    assert f"worktreePath: {tmp_path}/copy" in span.result.text
    assert "worktreeBranch" not in span.result.text
    (path,) = tmp_path.rglob("agent-*.jsonl")
    (inside,) = toolspan.read(path).spans
    assert (inside.result and inside.result.text) == str(tmp_path / "copy")


@requirement("hooks.worktree")
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("echo nope >&2; exit 1", "WorktreeCreate hook failed: echo nope >&2; exit 1: "),
        ("true", "WorktreeCreate hook failed: hook succeeded but returned no worktree path"),
        ("echo /no/such", "WorktreeCreate hook returned a path that is not a directory: /no/such."),
    ],
)
async def test_subagent_is_not_started_without_its_worktree(tmp_path: Path, line: str, text: str) -> None:
    play = Play({"Main": [[errand("Left", isolation="worktree")]]})
    hooks = handlers(at("WorktreeCreate", command(line)))
    async with troupe(tmp_path, play, version=VERSION, hooks=hooks) as agent:
        await agent.prompt("Main")
        (span,) = agent.session.spans

    assert span.state == "failed"
    assert (span.message or "").startswith(text)
    assert play.spoken["Left"] == 0
