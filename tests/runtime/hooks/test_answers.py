"""What handlers are asked and what their answers come to, point by point and version by version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from msgspec import UNSET

from tests.requirement import requirement
from tests.runtime.hooks.stage import at, command, decides, hooks, moment, says
from toolspan.runtime.hooks import Hooks
from toolspan.runtime.hooks.events import HookEnvironment, HookPoint, NoHooks, ReplacedOutput, SessionHookEvent
from toolspan.runtime.hooks.handlers import PromptHandler
from toolspan.runtime.hooks.load import HookServices
from toolspan.runtime.hooks.merge import CombinedHooks, HandlerRun, combine_hooks, merge_effect_runs
from toolspan.runtime.hooks.protocol import HookInput, HookOutput, HookOutputParser, HookResponse
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.profiles import profile
from toolspan.types.decision import Allow, Deny

pytestmark = pytest.mark.anyio


async def verdict(answer: str, point: HookPoint, *, continues: bool = False) -> tuple[HookOutput, Mapping[str, object]]:
    """What a model's answer comes to as a handler's, and the JSON in it."""

    async def ask(question: str, model: str | None) -> str:
        return answer

    handler = PromptHandler(prompt="May it?", continue_on_block=continues, ask_model=ask)
    custody = ProcessSupervisor()  # nothing is started in it
    scene = HookEnvironment(project=Path("/"), supervisor=custody, session_folder=Path("/"), cwd=Path.cwd, env_vars={})
    heard = await handler.run(HookInput(point=point, fields={}, data=b"{}", hook_environment=scene))
    return heard, json.loads(heard.stdout) if heard.stdout else {}


NO = '{"ok": false, "reason": "why not"}'
ENDS = {"continue": False, "stopReason": "why not"}


@requirement("hooks.prompt")
@pytest.mark.parametrize(
    ("point", "wanted"),
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
async def test_a_models_no_is_said_in_the_words_of_the_point(point: HookPoint, wanted: dict[str, object]) -> None:
    heard, answer = await verdict(NO, point)

    assert (heard.exit_code, answer) == (0, wanted)
    _, going_on = await verdict(NO, point, continues=True)
    assert "continue" not in going_on


@requirement("hooks.prompt")
async def test_what_can_never_be_done_does_not_keep_a_turn_going() -> None:
    _, answer = await verdict('{"ok": false, "reason": "x", "impossible": true}', "Stop")

    assert answer == {}


@requirement("hooks.prompt")
async def test_a_model_may_speak_around_its_verdict_but_must_give_one() -> None:
    heard, _ = await verdict('Well, {"ok": true} I think.', "Stop")
    assert (heard.status, heard.stdout) == ("ended", "")
    _, answer = await verdict('{"ok": 0}', "Stop")
    assert answer["reason"] == "A hook's model said no"  # only true is a yes
    for words in ("perhaps", "{}", "[1]", '{"ok'):
        heard, _ = await verdict(words, "Stop")
        assert (heard.status, heard.problem) == ("failed", f"the model gave no verdict: {words!r}")


@requirement("hooks.mcp")
async def test_the_input_of_an_mcp_tool_is_filled_in_however_deep_it_is(tmp_path: Path) -> None:
    given: list[Mapping[str, object]] = []

    async def call(server: str, tool: str, input: Mapping[str, object]) -> str:
        given.append(input)
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
    async with hooks(tmp_path, at("PreToolUse", handler), means=HookServices(call_tool=call)) as fired:
        with anyio.fail_after(20):
            await fired.run_pre_tool_use(moment("Bash", tmp_path, command="ls", n=3))

    (filled,) = given
    assert (filled["words"], filled["list"]) == ("Bash: ls", ["3", 7])
    deep = filled["deep"]
    assert isinstance(deep, dict)
    assert deep["gone"] == "<>"
    assert json.loads(deep["all"]) == {"command": "ls", "n": 3}


@requirement("hooks.after")
async def test_a_handler_at_another_point_is_not_asked(tmp_path: Path) -> None:
    block = at("PreToolUse", command("touch asked"))
    async with hooks(tmp_path, block) as given:
        with anyio.fail_after(20):
            about = moment("Bash", tmp_path)
            answers = [
                await given.run_post_tool_use(about),
                await given.run_post_tool_use_failure(about),
                await given.run_post_tool_batch([]),
                await given.run_session_event(SessionHookEvent(point="Notification")),
            ]
            asked = await given.run_permission_request(about)

    assert all(one.reports == () and not one.feedback for one in answers)
    assert (asked.decision, asked.reports) == (None, ())
    assert not (tmp_path / "asked").exists()


@requirement("hooks.after")
async def test_after_a_failure_handlers_are_told_of_it_and_can_speak(tmp_path: Path) -> None:
    answer = {"hookSpecificOutput": {"hookEventName": "PostToolUseFailure", "additionalContext": "try make -k"}}
    block = at("PostToolUseFailure", command(f"cat > told; echo '{json.dumps(answer)}'"))
    about = moment("Bash", tmp_path, command="make")
    async with hooks(tmp_path, block) as given:
        with anyio.fail_after(20):
            after = await given.run_post_tool_use_failure(about)

    told = json.loads((tmp_path / "told").read_text(encoding="utf-8"))
    assert (told["hook_event_name"], told["error"], told["is_interrupt"]) == ("PostToolUseFailure", "", False)
    assert after.contexts == ("try make -k",)


@requirement("hooks.told")
async def test_what_a_handler_is_told_can_be_anything(tmp_path: Path) -> None:
    async with hooks(tmp_path, at("PreToolUse", command("cat > told"))) as given:
        with anyio.fail_after(20):
            await given.run_pre_tool_use(moment("mcp__db__query", tmp_path, half="\ud83d"))

    told = json.loads((tmp_path / "told").read_text(encoding="utf-8"))
    assert told["tool_input"] == {"half": "\ud83d"}
    assert told["mcp_server"] == {"name": "db", "source": "dynamic"}


@requirement("hooks.versions")
async def test_of_several_refusals_older_clients_tell_the_last_handlers_reason(tmp_path: Path) -> None:
    deny = [decides("deny", permissionDecisionReason=reason) for reason in ("first", "last")]
    told: dict[str, str | None] = {}
    for version in ("2.0.65", "2.1.325"):
        async with hooks(tmp_path, at("PreToolUse", *deny), version=version) as given:
            with anyio.fail_after(20):
                before = await given.run_pre_tool_use(moment("Bash", tmp_path))
        assert isinstance(before.decision, Deny)
        told[version] = before.decision.reason
    async with hooks(tmp_path, at("PreToolUse", deny[0], says({"continue": True})), version="2.0.65") as given:
        with anyio.fail_after(20):
            before = await given.run_pre_tool_use(moment("Bash", tmp_path))

    assert told == {"2.0.65": "last", "2.1.325": "first"}
    assert before.decision == Deny(None, "hook")  # the last one had nothing to say


@requirement("hooks.answers")
async def test_an_answer_for_another_point_or_version_is_an_error() -> None:
    def understood(answer: object, version: str = "2.1.325", code: int = 0) -> HookResponse:
        ear = HookOutputParser("PreToolUse", "cmd", "Bash", profile(version).hooks)
        return ear.parse_hook_output(HookOutput(stdout=json.dumps(answer), stderr="no", exit_code=code))

    other = {"hookSpecificOutput": {"hookEventName": "PostToolUse"}}
    assert "expected 'PreToolUse' but got 'PostToolUse'" in (understood(other).error or "")
    assert understood(other, code=2).decision == Deny("[cmd]: no", "hook")  # exit code 2 stands
    defer = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "defer"}}
    assert understood(defer).defer
    assert "Invalid value 'defer'" in (understood(defer, "2.0.65").error or "")


@requirement("hooks.permission-request")
async def test_a_question_that_is_not_answered_stays_open() -> None:
    ear = HookOutputParser("PermissionRequest", "cmd", "Bash", profile("2.1.325").hooks)

    said = ear.parse_hook_output(HookOutput(stdout='{"systemMessage": "hm"}', exit_code=0))
    assert (said.decision, said.message, said.is_json) == (None, "hm", True)
    assert ear.blocking_response("it failed").decision == Deny("[cmd]: it failed", "hook")


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
async def test_another_output_for_an_mcp_tool_is_content_where_it_can_be(value: object, content: object) -> None:
    ran = HandlerRun(
        point="PostToolUse",
        name="PostToolUse:mcp__db__query",
        source="user",
        command="cmd",
        output=HookOutput(exit_code=0),
        response=HookResponse(mcp_output=value),
        duration_ms=1.0,
        timeout_ms=1000.0,
    )

    assert merge_effect_runs([ran], profile("2.1.325").hooks).output == ReplacedOutput(
        content,  # type: ignore[arg-type]
        value,
    )
    assert ran.response.output is UNSET


@requirement("hooks.joined")
async def test_sources_are_joined_only_where_there_are_several() -> None:
    one, other = Hooks(), Hooks()
    one.pre_tool_use()(lambda call: Allow("fine"))
    other.pre_tool_use()(lambda call: Deny("no"))

    assert isinstance(combine_hooks(), NoHooks)
    assert isinstance(combine_hooks(None, NoHooks()), NoHooks)
    assert combine_hooks(None, one) is one
    both = combine_hooks(one, other)
    assert isinstance(both, CombinedHooks)
    assert (both.is_empty, both.has_wake_request, both.has_handler("PreToolUse"), both.has_handler("Stop")) == (
        False,
        False,
        True,
        False,
    )
    with anyio.fail_after(10):
        before = await both.run_pre_tool_use(moment())
        permission = await both.run_permission_request(moment())
        batch = await both.run_post_tool_batch([])
        failure = await both.run_post_tool_use_failure(moment())
    assert isinstance(before.decision, Deny)
    assert (permission.decision, batch.feedback, failure.contexts) == (None, (), ())
