"""The tool context: paths, files, rules and bodies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from tests.runtime.calls import EventLog, call
from toolspan.errors import BadTool
from toolspan.runtime.authorization import apply_permission_updates
from toolspan.runtime.context import ToolContext
from toolspan.runtime.permissions.rules import Rules
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import Output, ToolOptions, Toolset, tool
from toolspan.tools import coding_tools
from toolspan.types.events import Duplicate, Progressed
from toolspan.types.ids import CallId
from toolspan.types.inputs import BashInput
from toolspan.types.results import BashResult

pytestmark = pytest.mark.anyio


@tool
async def halve(n: int) -> str:
    """Half of it."""
    return str(n / 2)


async def test_approval_can_change_only_rules_and_mode_of_the_session() -> None:
    runner = Runner([halve])
    allow = {"type": "addRules", "behavior": "allow", "rules": [{"toolName": "Read"}, "odd"]}
    deny = {
        "type": "addRules",
        "behavior": "deny",
        "rules": [{"toolName": "Bash", "ruleContent": "rm *"}],
        "destination": "session",
    }

    output = apply_permission_updates([allow, deny, {"type": "setMode", "mode": "plan"}], runner.runner_context)

    assert output == []
    first, second = runner.runner_context.policies
    assert isinstance(first, Rules)
    assert isinstance(second, Rules)
    assert [rule.text for rule in first.allow] == ["Read"]
    assert [rule.text for rule in second.deny] == ["Bash(rm *)"]
    assert runner.context.values["permission_mode"] == "plan"


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (
            {"type": "addRules", "behavior": "allow", "destination": "userSettings"},
            "addRules: only the session is changed, not userSettings",
        ),
        ({"type": "setMode", "mode": "bypassPermissions"}, "setMode: not supported"),
        ({"type": "addRules", "behavior": "perhaps"}, "addRules: not supported"),
        ({"type": "addDirectories"}, "addDirectories: not supported"),
        ({}, "None: not supported"),
    ],
)
async def test_refused_permission_update_is_reported(update: Mapping[str, object], text: str) -> None:
    runner = Runner([halve])

    assert apply_permission_updates([update], runner.runner_context) == [text]
    assert (runner.runner_context.policies, dict(runner.context.values)) == ((), {})


async def test_invalid_rule_is_reported_and_not_added() -> None:
    runner = Runner([halve])
    odd = {"type": "addRules", "behavior": "allow", "rules": [{"toolName": "Bash("}]}

    (output,) = apply_permission_updates([odd], runner.runner_context)

    assert output.startswith("addRules: ")
    assert runner.runner_context.policies == ()


async def test_tool_resolves_paths(tmp_path: Path) -> None:
    actual: list[Path] = []

    @tool
    async def look(ctx: ToolContext) -> str:
        actual.extend(ctx.resolve(name) for name in ("a/../b.txt", "/x/y", "~/z", "~"))
        return f"{ctx.session_id} {ctx.agent_id} {ctx.tracking.chain_id}"

    runner = Runner([look], cwd=tmp_path)
    home = runner.runner_context.workspace.environment.get("HOME", "~")
    (result,) = await runner.run([call("a", "look")])

    assert actual == [tmp_path / "b.txt", Path("/x/y"), Path(home) / "z", Path(home)]
    assert result.text == "None None main"


async def test_live_span_has_input_and_result_like_a_read_one() -> None:
    @tool(name="Bash")
    async def structured(command: str) -> Output:
        return Output([{"type": "text", "text": "a\nb"}], structured={"stdout": "a\nb"})

    @tool(name="mcp__x__plain")
    async def plain(command: str) -> str:
        return "words"

    first, two = await Runner([structured, plain]).finish(
        [call("a", "Bash", command="ls"), call("b", "mcp__x__plain", command="ls")]
    )

    assert first.span.input == BashInput(command="ls")
    assert first.span.call.raw_input == b'{"command":"ls"}'
    assert first.span.call.arguments == {"command": "ls"}
    with pytest.raises(TypeError):
        first.span.call.arguments["command"] = "rm"  # type: ignore[index]  # others go by it too
    assert first.span.result is not None
    assert first.span.result.text == "a\nb"
    assert first.span.result.content == [{"type": "text", "text": "a\nb"}]
    assert first.span.result.structured == BashResult(stdout="a\nb")
    assert two.span.result is not None
    assert (two.span.result.text, two.span.result.content) == ("words", "words")


async def test_tool_in_a_thread_can_query_and_report() -> None:
    observed: list[object] = []
    log = EventLog()

    @tool
    def sync(ctx: ToolContext) -> str:
        ctx.progress("half", done=1)
        observed.extend([ctx.cancelled, ctx.in_progress, [item.name for item in ctx.services.tools]])
        observed.append(dict(ctx.decisions))
        return "done"

    await Runner([sync, halve], direct=[log]).run([call("a", "sync")])

    assert observed == [False, frozenset({"a"}), ["sync", "halve"], {}]
    assert [(item.kind, item.data) for item in log.of(Progressed)] == [("half", {"done": 1})]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"colour": "red"}, "has no option 'colour'"),
        ({"grace": -1}, "must not be negative"),
        ({"grace": float("nan")}, "must not be negative"),
        ({"interrupt": "maybe"}, "`cancel` or `block`"),
    ],
)
async def test_invalid_option_is_refused_at_once(options: ToolOptions, text: str) -> None:
    async def look() -> str:
        """Look."""
        return ""

    with pytest.raises(BadTool, match=text):
        tool(**options)(look)


async def test_toolset_accepts_only_tools() -> None:
    def look() -> str:
        return ""

    with pytest.raises(BadTool, match="is not a tool; put @tool on a function"):
        Toolset([look])  # type: ignore[list-item]


async def test_method_that_needs_an_open_runner_is_refused_outside() -> None:
    runner = Runner([halve])

    with pytest.raises(RuntimeError, match="the runner is not entered"):
        runner.start_soon(anyio.sleep_forever)
    await runner.__aexit__(None, None, None)  # not entered: nothing to leave
    async with runner:
        completed = anyio.Event()

        async def work() -> None:
            completed.set()

        runner.start_soon(work)
        await completed.wait()


async def test_repeated_call_is_not_run_unless_forgotten() -> None:
    output, call_id = EventLog(), CallId("a")
    runner = Runner([halve], direct=[output])
    runner.mark_seen(call_id)
    async with runner:
        assert await runner.run([call("a", "halve", n=4)]) == []
        runner.forget_call(call_id)
        (result,) = await runner.run([call("a", "halve", n=4)])

    assert result.text == "2.0"
    assert [item.call_id for item in output.of(Duplicate)] == [call_id]


async def test_deferred_tools_are_marked_only_if_they_can_be_found() -> None:
    tools = coding_tools()
    with_search = Runner(tools).schemas(defer=True)
    marked = [item["name"] for item in with_search if item.get("defer_loading")]
    without = Runner([item for item in tools if item.name != "ToolSearch"]).schemas(defer=True)

    assert marked
    assert "Bash" not in marked
    assert not any("defer_loading" in item for item in without)
    assert not any("defer_loading" in item for item in Runner(tools).schemas())
