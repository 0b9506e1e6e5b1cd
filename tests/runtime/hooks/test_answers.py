"""Inputs and responses of handlers, by hook point and client version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec import UNSET

from tests.requirement import requirement
from tests.runtime.hooks.hook_sessions import at, command, decides, hooks, says, tool_event
from toolspan.runtime.hooks import Hooks
from toolspan.runtime.hooks.events import HookEnvironment, HookPoint, NoHooks, ReplacedOutput, SessionHookEvent
from toolspan.runtime.hooks.handlers import PromptHandler
from toolspan.runtime.hooks.load import HookServices
from toolspan.runtime.hooks.merge import CombinedHooks, HandlerRun, combine_hooks, merge_effect_runs
from toolspan.runtime.hooks.protocol import HookInput, HookOutput, HookOutputParser, HookResponse
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.profiles import profile
from toolspan.runtime.settings.load import PromptSpec
from toolspan.types.decision import Allow, Deny

pytestmark = pytest.mark.anyio


async def verdict(
    response: str, point: HookPoint, *, continues: bool = False
) -> tuple[HookOutput, Mapping[str, object]]:
    async def ask(question: str, model: str | None) -> str:
        return response

    handler = PromptHandler(spec=PromptSpec(prompt="May it?", continue_on_block=continues), ask_model=ask)
    supervisor = ProcessSupervisor()  # nothing is started in it
    environment = HookEnvironment(
        project=Path("/"), supervisor=supervisor, session_folder=Path("/"), cwd=Path.cwd, env_vars={}
    )
    output = await handler.run(HookInput(point=point, fields={}, data=b"{}", hook_environment=environment))
    return output, json.loads(output.stdout) if output.stdout else {}


NO = '{"ok": false, "reason": "why not"}'
ENDS = {"continue": False, "stopReason": "why not"}


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        (
            "PreToolUse",
            {
                "hookSpecificOutput": {
                    "hookEventName": "PreToolUse",
                    "permissionDecision": "deny",
                    "permissionDecisionReason": "why not",
                },
                **ENDS,
            },
        ),
        ("PermissionRequest", {}),
        ("Stop", {"decision": "block", "reason": "why not"}),
        ("SubagentStop", {"decision": "block", "reason": "why not"}),
        ("UserPromptSubmit", {"decision": "block", "reason": "why not"}),
        ("PostToolUse", {"decision": "block", "reason": "why not", **ENDS}),
    ],
)
async def test_refusal_of_a_model_has_the_format_of_the_hook_point(
    point: HookPoint, expected: dict[str, object]
) -> None:
    output, response = await verdict(NO, point)

    assert (output.exit_code, response) == (0, expected)
    _, continuing = await verdict(NO, point, continues=True)
    assert "continue" not in continuing


async def test_impossible_condition_does_not_keep_a_turn_running() -> None:
    _, output = await verdict('{"ok": false, "reason": "x", "impossible": true}', "Stop")

    assert output == {}


async def test_verdict_may_be_surrounded_by_text_but_must_exist() -> None:
    output, _ = await verdict('Well, {"ok": true} I think.', "Stop")
    assert (output.status, output.stdout) == ("ended", "")
    _, response = await verdict('{"ok": 0}', "Stop")
    assert response["reason"] == "The model of a hook refused, without a reason"  # only true is a yes
    for text in ("perhaps", "{}", "[1]", '{"ok'):
        output, _ = await verdict(text, "Stop")
        assert (output.status, output.problem) == ("failed", f"the model gave no valid answer: {text!r}")


async def test_placeholders_in_the_input_of_an_mcp_tool_are_filled_at_any_depth(tmp_path: Path) -> None:
    received: list[Mapping[str, object]] = []

    async def call(server: str, tool: str, input: Mapping[str, object]) -> str:
        received.append(input)
        return ""

    handler = {
        "type": "mcp_tool",
        "server": "db",
        "tool": "note",
        "input": {
            "words": "${tool_name}: ${tool_input.command}",
            "list": ["${tool_input.n}", 7],
            "deep": {"gone": "<${tool_input.none.such}>", "all": "${tool_input}"},
        },
    }
    async with hooks(tmp_path, at("PreToolUse", handler), services=HookServices(call_tool=call)) as runner:
        await runner.run_pre_tool_use(tool_event("Bash", tmp_path, command="ls", n=3))

    (filled,) = received
    assert (filled["words"], filled["list"]) == ("Bash: ls", ["3", 7])
    deep = filled["deep"]
    assert isinstance(deep, dict)
    assert deep["gone"] == "<>"
    assert json.loads(deep["all"]) == {"command": "ls", "n": 3}


async def test_handler_at_another_point_is_not_run(tmp_path: Path) -> None:
    block = at("PreToolUse", command("touch asked"))
    async with hooks(tmp_path, block) as runner:
        event = tool_event("Bash", tmp_path)
        answers = [
            await runner.run_post_tool_use(event),
            await runner.run_post_tool_use_failure(event),
            await runner.run_post_tool_batch([]),
            await runner.run_session_event(SessionHookEvent(point="Notification")),
        ]
        request = await runner.run_permission_request(event)

    assert all(output.reports == () and not output.feedback for output in answers)
    assert (request.decision, request.reports) == (None, ())
    assert not (tmp_path / "asked").exists()


async def test_failure_handler_gets_the_error_and_can_add_context(tmp_path: Path) -> None:
    output = {"hookSpecificOutput": {"hookEventName": "PostToolUseFailure", "additionalContext": "try make -k"}}
    block = at("PostToolUseFailure", command(f"cat > input; echo '{json.dumps(output)}'"))
    event = tool_event("Bash", tmp_path, command="make")
    async with hooks(tmp_path, block) as runner:
        after = await runner.run_post_tool_use_failure(event)

    payload = json.loads((tmp_path / "input").read_text(encoding="utf-8"))
    assert (payload["hook_event_name"], payload["error"], payload["is_interrupt"]) == ("PostToolUseFailure", "", False)
    assert after.contexts == ("try make -k",)


@requirement("hooks.input")
async def test_input_of_a_handler_can_contain_any_text(tmp_path: Path) -> None:
    async with hooks(tmp_path, at("PreToolUse", command("cat > input"))) as runner:
        await runner.run_pre_tool_use(tool_event("mcp__db__query", tmp_path, half="\ud83d"))

    payload = json.loads((tmp_path / "input").read_text(encoding="utf-8"))
    assert payload["tool_input"] == {"half": "\ud83d"}
    assert payload["mcp_server"] == {"name": "db", "source": "dynamic"}


@requirement("hooks.versions")
async def test_older_clients_use_the_reason_of_the_last_denial(tmp_path: Path) -> None:
    deny = [decides("deny", permissionDecisionReason=reason) for reason in ("first", "last")]
    payload: dict[str, str | None] = {}
    for version in ("2.0.65", "2.1.327"):
        async with hooks(tmp_path, at("PreToolUse", *deny), version=version) as runner:
            before = await runner.run_pre_tool_use(tool_event("Bash", tmp_path))
        assert isinstance(before.decision, Deny)
        payload[version] = before.decision.reason
    async with hooks(tmp_path, at("PreToolUse", deny[0], says({"continue": True})), version="2.0.65") as runner:
        before = await runner.run_pre_tool_use(tool_event("Bash", tmp_path))

    assert payload == {"2.0.65": "last", "2.1.327": "first"}
    assert before.decision == Deny(None, "hook")  # the last one had nothing to say


@requirement("hooks.responses")
async def test_output_for_another_point_or_version_is_an_error() -> None:
    def parse(output: object, version: str = "2.1.327", code: int = 0) -> HookResponse:
        parser = HookOutputParser("PreToolUse", "cmd", "Bash", profile(version).hooks)
        return parser.parse_hook_output(HookOutput(stdout=json.dumps(output), stderr="no", exit_code=code))

    other = {"hookSpecificOutput": {"hookEventName": "PostToolUse"}}
    assert "expected 'PreToolUse' but got 'PostToolUse'" in (parse(other).error or "")
    assert parse(other, code=2).decision == Deny("[cmd]: no", "hook")  # exit code 2 still denies
    defer = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "defer"}}
    assert parse(defer).defer
    assert "Invalid value 'defer'" in (parse(defer, "2.0.65").error or "")


@requirement("hooks.permission-request")
async def test_output_without_a_decision_leaves_a_permission_request_open() -> None:
    parser = HookOutputParser("PermissionRequest", "cmd", "Bash", profile("2.1.327").hooks)

    response = parser.parse_hook_output(HookOutput(stdout='{"systemMessage": "hm"}', exit_code=0))
    assert (response.decision, response.message, response.is_json) == (None, "hm", True)
    assert parser.blocking_response("it failed").decision == Deny("[cmd]: it failed", "hook")


@requirement("hooks.output")
@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("words", "words"),
        ([{"type": "text", "text": "a"}], [{"type": "text", "text": "a"}]),
        ([1], None),
        ({"rows": 2}, None),
    ],
)
async def test_replaced_mcp_output_becomes_content_if_it_has_that_form(value: object, content: object) -> None:
    run = HandlerRun(
        point="PostToolUse",
        name="PostToolUse:mcp__db__query",
        source="user",
        command="cmd",
        output=HookOutput(exit_code=0),
        response=HookResponse(mcp_output=value),
        duration_ms=1.0,
        timeout_ms=1000.0,
    )

    assert merge_effect_runs([run], profile("2.1.327").hooks).output == ReplacedOutput(
        content,  # type: ignore[arg-type]
        value,
    )
    assert run.response.output is UNSET


async def test_hook_runners_are_combined_only_if_there_are_several() -> None:
    first, other = Hooks(), Hooks()
    first.pre_tool_use()(lambda call: Allow("fine"))
    other.pre_tool_use()(lambda call: Deny("no"))

    assert isinstance(combine_hooks(), NoHooks)
    assert isinstance(combine_hooks(None, NoHooks()), NoHooks)
    assert combine_hooks(None, first) is first
    combined = combine_hooks(first, other)
    assert isinstance(combined, CombinedHooks)
    assert (
        combined.is_empty,
        combined.has_wake_request,
        combined.has_handler("PreToolUse"),
        combined.has_handler("Stop"),
    ) == (
        False,
        False,
        True,
        False,
    )
    before = await combined.run_pre_tool_use(tool_event())
    permission = await combined.run_permission_request(tool_event())
    batch = await combined.run_post_tool_batch([])
    failure = await combined.run_post_tool_use_failure(tool_event())
    assert isinstance(before.decision, Deny)
    assert (permission.decision, batch.feedback, failure.contexts) == (None, (), ())
