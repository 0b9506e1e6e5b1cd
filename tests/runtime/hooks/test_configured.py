"""Hooks of settings files: which ones run, with which input, and how their responses are merged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.runtime.hooks.hook_sessions import at, command, decides, hooks, says, tool_event
from toolspan.runtime.hooks.configured import ConfiguredHooks
from toolspan.runtime.hooks.events import ReplacedOutput, SessionHookEvent
from toolspan.types.decision import Allow, Ask, Deny

pytestmark = pytest.mark.anyio


async def ran(tmp_path: Path, runner: ConfiguredHooks, tool: str = "Bash") -> list[str]:
    before = await runner.run_pre_tool_use(tool_event(tool, tmp_path))
    return [str(report.command) for report in before.reports]


MATCHING = {
    "Bash": ["Bash", "^Ba", "sh$", ""],
    "Write": ["Edit|Write", "Edit, Write"],
    "mcp__memory__add": ["mcp__memory__.*"],
    "NotebookEdit": ["Edit.*"],
}
OTHERS = {"Bash": ["bash", "Bas", "Bas|Foo"], "mcp__memory__add": ["mcp__memory"]}


@requirement("hooks.settings-matcher")
@pytest.mark.parametrize(
    ("matcher", "tool", "matches"),
    [
        (matcher, tool, matches is MATCHING)
        for matches in (MATCHING, OTHERS)
        for tool, matchers in matches.items()
        for matcher in matchers
    ],
)
async def test_matcher_is_a_list_of_names_or_a_pattern_searched_anywhere(
    tmp_path: Path, matcher: str, tool: str, matches: bool
) -> None:
    async with hooks(tmp_path, at("PreToolUse", command("true"), matcher=matcher)) as runner:
        assert (await ran(tmp_path, runner, tool) != []) is matches


@requirement("hooks.settings-matcher")
async def test_commas_do_not_separate_names_in_older_clients(tmp_path: Path) -> None:
    block = at("PreToolUse", command("true"), matcher="Bash,Read")

    async with hooks(tmp_path, block, version="2.0.65") as runner:
        assert await ran(tmp_path, runner) == []


@requirement("hooks.settings-once")
async def test_equal_handlers_are_run_once(tmp_path: Path) -> None:
    block = {
        "PreToolUse": [
            {"matcher": "Bash", "hooks": [command("true"), command("true")]},
            {"matcher": "*", "hooks": [command("true", timeout=7), command("exit 0")]},
        ]
    }

    async with hooks(tmp_path, block) as runner:
        assert await ran(tmp_path, runner) == ["true", "exit 0"]


@requirement("hooks.settings-parallel")
async def test_handlers_of_one_point_run_concurrently(tmp_path: Path) -> None:
    # Each opens a pipe that only the other one opens at its other end.
    parts = ("mkfifo p 2>/dev/null; mkfifo q 2>/dev/null; ", "; echo met")
    first = command(parts[0] + "echo 1 > p; read x < q" + parts[1])
    other = command(parts[0] + "read x < p; echo 1 > q" + parts[1])

    async with hooks(tmp_path, at("PreToolUse", first, other)) as runner:
        before = await runner.run_pre_tool_use(tool_event("Bash", tmp_path))

    assert [report.text for report in before.reports] == ["met", "met"]


@requirement("hooks.settings-precedence")
@pytest.mark.parametrize(
    ("decisions", "winner"),
    [
        (("allow", "deny", "ask"), Deny("2", "hook")),
        (("allow", "ask"), Ask("2", "hook")),
        (("allow",), Allow("1", "hook")),
        ((), None),
    ],
)
async def test_deny_takes_precedence_over_ask_and_ask_over_allow(
    tmp_path: Path, decisions: tuple[str, ...], winner: object
) -> None:
    handlers = [decides(word, permissionDecisionReason=str(number)) for number, word in enumerate(decisions, 1)]

    async with hooks(tmp_path, at("PreToolUse", command("true"), *handlers)) as runner:
        before = await runner.run_pre_tool_use(tool_event("Bash", tmp_path))

    assert before.decision == winner


@requirement("hooks.settings-precedence")
@pytest.mark.parametrize("version", ["2.0.65", "2.1.327"])
@pytest.mark.parametrize("order", [("allow", "ask"), ("ask", "allow")])
async def test_ask_of_one_handler_is_not_lost_beside_allow_of_another(
    tmp_path: Path, version: str, order: tuple[str, str]
) -> None:
    block = at("PreToolUse", *(decides(word, permissionDecisionReason=word) for word in order))

    async with hooks(tmp_path, block, version=version) as runner:
        before = await runner.run_pre_tool_use(tool_event("Bash", tmp_path))

    assert before.decision == Ask("ask", "hook")


@requirement("hooks.settings-precedence")
@pytest.mark.parametrize(("version", "decision"), [("2.0.65", None), ("2.1.327", Ask(None, "hook"))])
async def test_rules_decide_after_ask_alone_in_old_clients(tmp_path: Path, version: str, decision: object) -> None:
    async with hooks(tmp_path, at("PreToolUse", decides("ask")), version=version) as runner:
        before = await runner.run_pre_tool_use(tool_event("Bash", tmp_path))

    assert before.decision == decision


@requirement("hooks.settings-precedence")
async def test_defer_takes_precedence_over_ask_and_deny_over_defer(tmp_path: Path) -> None:
    off, ask, no = decides("defer"), decides("ask"), decides("deny")

    async with hooks(tmp_path, at("PreToolUse", off, ask)) as runner:
        put_off = await runner.run_pre_tool_use(tool_event("Bash", tmp_path))
    async with hooks(tmp_path, at("PreToolUse", off, no)) as runner:
        refused = await runner.run_pre_tool_use(tool_event("Bash", tmp_path))

    assert put_off.defer
    assert not refused.defer


@requirement("hooks.settings-input")
async def test_last_new_input_that_supports_the_decision_is_used(tmp_path: Path) -> None:
    block = at(
        "PreToolUse",
        decides("allow", updatedInput={"command": "one"}),
        decides("allow", updatedInput={"command": "two"}),
        command("true"),
    )

    async with hooks(tmp_path, block) as runner:
        before = await runner.run_pre_tool_use(tool_event("Bash", tmp_path, command="zero"))

    assert before.input == {"command": "two"}


async def test_each_handler_of_a_chain_sees_earlier_changes(tmp_path: Path) -> None:
    grow = (
        'python3 -c \'import json,sys; given = json.load(sys.stdin)["tool_input"]["command"];'
        ' print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse",'
        ' "permissionDecision": "allow", "updatedInput": {"command": given + sys.argv[1]}}}))\' '
    )
    block = at("PreToolUse", command(grow + "b"), command(grow + "c"), command(grow + "d"))

    async with hooks(tmp_path, block, compose="chain") as runner:
        before = await runner.run_pre_tool_use(tool_event("Bash", tmp_path, command="a"))

    assert before.input == {"command": "abcd"}


async def test_denial_ends_a_chain(tmp_path: Path) -> None:
    block = at("PreToolUse", decides("deny"), command("touch ran"))

    async with hooks(tmp_path, block, compose="chain") as runner:
        before = await runner.run_pre_tool_use(tool_event("Bash", tmp_path))

    assert isinstance(before.decision, Deny)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("line", "runs"), [("git push", True), ("echo hi", False), ("ls && git push", True)])
async def test_handler_with_a_rule_runs_only_for_matching_calls(tmp_path: Path, line: str, runs: bool) -> None:
    block = at("PreToolUse", command("true", **{"if": "Bash(git *)"}))

    async with hooks(tmp_path, block) as runner:
        before = await runner.run_pre_tool_use(tool_event("Bash", tmp_path, command=line))

    assert bool(before.reports) is runs


@pytest.mark.parametrize(
    ("rule", "tool", "path", "runs"),
    [
        ("Edit(*.txt)", "Edit", "a.txt", True),
        ("Edit(*.txt)", "Edit", "deep/a.txt", True),
        ("Edit(*.txt)", "Write", "a.txt", False),
        ("Write(*.txt)", "Write", "a.txt", True),
        ("Edit(src/**)", "Edit", "src/a.txt", True),
        ("Edit(src/**)", "Edit", "deep/src/a.txt", False),
        ("Edit(src/**)", "Edit", "src/link", True),
        ("Edit(src/**)", "Edit", "inward", True),
        ("Read(*.env)", "Edit", "s.env", False),
        ("Read", "Read", "s.env", True),
    ],
)
async def test_handler_with_a_file_rule_runs_only_for_the_tool_it_names(
    tmp_path: Path, rule: str, tool: str, path: str, runs: bool
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "link").symlink_to("/elsewhere")
    (tmp_path / "inward").symlink_to(tmp_path / "src" / "a.txt")
    block = at("PreToolUse", command("true", **{"if": rule}))

    async with hooks(tmp_path, block) as runner:
        before = await runner.run_pre_tool_use(tool_event(tool, tmp_path, file_path=str(tmp_path / path)))

    assert bool(before.reports) is runs


async def test_handler_with_a_rule_never_runs_without_a_call(tmp_path: Path) -> None:
    block = at("UserPromptSubmit", command("true", **{"if": "Bash"}))

    async with hooks(tmp_path, block) as runner:
        after = await runner.run_session_event(SessionHookEvent(point="UserPromptSubmit", fields={"prompt": "x"}))

    assert after.reports == ()


@requirement("hooks.input")
async def test_command_gets_the_call_and_the_session_as_json(tmp_path: Path) -> None:
    keep = command("cat > input.json; env > env; pwd > where")

    async with hooks(tmp_path, at("PreToolUse", keep)) as runner:
        await runner.run_pre_tool_use(tool_event("Bash", tmp_path, command="echo hi"))

    assert json.loads((tmp_path / "input.json").read_bytes()) == {
        "session_id": "the-session",
        "transcript_path": str(tmp_path / "t.jsonl"),
        "cwd": str(tmp_path),
        "prompt_id": "the-prompt",
        "permission_mode": "default",
        "effort": {"level": "medium"},
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "echo hi"},
        "tool_use_id": "a",
    }
    environment = (tmp_path / "env").read_text(encoding="utf-8").splitlines()
    assert f"CLAUDE_PROJECT_DIR={tmp_path}" in environment
    assert (tmp_path / "where").read_text(encoding="utf-8").strip() == str(tmp_path)


@requirement("hooks.input")
async def test_older_clients_send_fewer_fields(tmp_path: Path) -> None:
    keep = command("cat > input.json")

    async with hooks(tmp_path, at("PreToolUse", keep), version="2.0.65") as runner:
        await runner.run_pre_tool_use(tool_event("Bash", tmp_path))

    payload = json.loads((tmp_path / "input.json").read_bytes())
    assert "prompt_id" not in payload
    assert "effort" not in payload


@requirement("hooks.output")
async def test_handler_can_replace_the_output_of_an_mcp_tool(tmp_path: Path) -> None:
    given_output = {"hookEventName": "PostToolUse", "updatedMCPToolOutput": "other words"}
    block = at("PostToolUse", says({"hookSpecificOutput": given_output}))

    async with hooks(tmp_path, block) as runner:
        of_server = await runner.run_post_tool_use(tool_event("mcp__db__query", tmp_path))
        built_in = await runner.run_post_tool_use(tool_event("Bash", tmp_path))

    assert of_server.output == ReplacedOutput("other words", "other words")
    assert built_in.output is None


async def test_long_context_is_saved_to_a_file(tmp_path: Path) -> None:
    block = at("UserPromptSubmit", command("head -c 20000 /dev/zero | tr '\\0' x"))

    async with hooks(tmp_path, block) as runner:
        after = await runner.run_session_event(SessionHookEvent(point="UserPromptSubmit", fields={"prompt": "hi"}))

    [remaining] = (tmp_path / "session" / "hook-results").iterdir()
    assert len(after.contexts[0]) < 10_000
    assert str(remaining) in after.contexts[0]
    assert remaining.read_text(encoding="utf-8") == "x" * 20_000


async def test_long_message_is_saved_to_a_file(tmp_path: Path) -> None:
    block = at("PostToolUse", says({"systemMessage": "y" * 20_000}))
    async with hooks(tmp_path, block) as runner:
        after = await runner.run_post_tool_use(tool_event("Bash", tmp_path))

    (payload,) = (report.text for report in after.reports if report.outcome == "message")
    assert payload is not None
    assert len(payload) < 10_000
    assert [len(path.read_bytes()) for path in tmp_path.rglob("hook-results/*")] == [20_000]


@requirement("hooks.unknown-events")
async def test_unknown_hook_point_disables_all_hooks_of_the_file_in_older_clients(tmp_path: Path) -> None:
    block = {**at("PreToolUse", command("true")), **at("NoSuchPoint", command("true"))}

    async with hooks(tmp_path, block, version="2.0.65") as old:
        assert old.is_empty
    async with hooks(tmp_path, block) as new:
        assert await ran(tmp_path, new) == ["true"]
