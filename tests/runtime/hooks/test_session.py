"""Hooks in a session: prompts, turns, start and end, and the transcript."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.runtime.hooks.hook_sessions import at, command, decides, says
from toolspan import Permissions, tool
from toolspan.errors import ToolspanError
from toolspan.runtime.hooks import Hooks, combine_hooks
from toolspan.runtime.hooks.events import HookEffects, PreToolDecision, SessionHookEvent
from toolspan.runtime.hooks.load import load_hooks
from toolspan.runtime.permissions import PolicyStack
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.profiles import profile
from toolspan.runtime.settings import SettingsLayer, merge_settings
from toolspan.runtime.settings.load import parse_settings
from toolspan.runtime.tool import Tool
from toolspan.session import Session
from toolspan.types.decision import Allow, Ask, Deny
from toolspan.types.span import Call

pytestmark = pytest.mark.anyio


@tool()
def echo(word: str) -> str:
    """Return the word."""
    return word


ASK_ALWAYS = PolicyStack(fallback=lambda _request: Ask())


def make_session(tmp_path: Path, block: Mapping[str, object], **more: object) -> Session:
    version = str(more.pop("version", "2.1.327"))
    layer = SettingsLayer("user", tmp_path / "s.json", parse_settings({"hooks": block}, "s.json"), {})
    loaded = load_hooks(merge_settings([layer], trusted=True), profile(version))
    tools: list[Tool] = [echo]
    return Session(
        cwd=tmp_path,
        tools=tools,
        profile=version,
        hooks=loaded.hooks,
        **{"transcript": tmp_path / "t.jsonl", "permissions": Permissions.allow_all(), **more},  # type: ignore[arg-type]
    )


def reply(*text: str) -> dict[str, object]:
    calls = [
        {"type": "tool_use", "id": f"c{number}", "name": "echo", "input": {"word": word}}
        for number, word in enumerate(text)
    ]
    content = calls or [{"type": "text", "text": "done"}]
    return {"role": "assistant", "content": content, "stop_reason": "end_turn"}


def lines(tmp_path: Path) -> list[dict[str, object]]:
    text = (tmp_path / "t.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def hook_attachments(tmp_path: Path) -> list[dict[str, object]]:
    items = []
    for line in lines(tmp_path):
        attachment = line.get("attachment")
        if isinstance(attachment, dict):
            items.append({k: v for k, v in attachment.items() if k not in ("durationMs", "command")})
    return items


def texts(session: Session) -> list[str]:
    return [
        str(block["text"])
        for message in session.messages
        for block in message["content"]  # type: ignore[attr-defined]
        if block["type"] == "text"
    ]


def deferred_call_id(session: Session) -> str | None:
    return session.deferred_call.id if session.deferred_call else None


@requirement("hooks.prompt-submit")
async def test_context_of_a_prompt_hook_is_added_to_the_prompt(tmp_path: Path) -> None:
    payload = {"hookEventName": "UserPromptSubmit", "additionalContext": "json words"}
    block = at("UserPromptSubmit", command("echo plain words"), says({"hookSpecificOutput": payload}))

    async with make_session(tmp_path, block) as session:
        assert await session.submit("Go")

    assert texts(session) == [
        "Go",
        "UserPromptSubmit hook additional context: plain words",
        "UserPromptSubmit hook additional context: json words",
    ]
    assert [(item["type"], item["content"]) for item in hook_attachments(tmp_path)] == [
        ("hook_success", "plain words"),
        ("hook_additional_context", ["json words"]),
    ]


@requirement("hooks.prompt-submit")
async def test_prompt_that_a_hook_blocks_is_not_sent(tmp_path: Path) -> None:
    block = at("UserPromptSubmit", says({"decision": "block", "reason": "not now"}))

    async with make_session(tmp_path, block) as session:
        assert not await session.submit("Go")

    assert session.messages == []
    assert session.stopped == "not now"
    [line] = [line for line in lines(tmp_path) if line["type"] == "system"]
    assert (line["subtype"], line["content"]) == (
        "informational",
        "UserPromptSubmit operation blocked by hook:\nnot now\n\nOriginal prompt: Go",
    )


@requirement("hooks.prompt-submit")
async def test_prompt_cannot_bypass_its_hooks(tmp_path: Path) -> None:
    async with make_session(tmp_path, at("UserPromptSubmit", command("exit 2"))) as session:
        with pytest.raises(ToolspanError, match="submit"):
            session.say("Go")

    assert session.messages == []


@requirement("hooks.stop")
async def test_turn_continues_if_a_hook_blocks_its_end(tmp_path: Path) -> None:
    once = "[ -e once ] || { touch once; echo go on >&2; exit 2; }; cat > input.json"

    async with make_session(tmp_path, at("Stop", command(once))) as session:
        session.say("Go")
        assert await session.run(reply())
        assert not await session.run(reply())

    assert texts(session)[2] == f"Stop hook feedback:\n[{once}]: go on\n"
    payload = json.loads((tmp_path / "input.json").read_bytes())
    assert (payload["stop_hook_active"], payload["last_assistant_message"]) == (True, "done")
    summaries = [line for line in lines(tmp_path) if line.get("subtype") == "stop_hook_summary"]
    assert [line["hookErrors"] for line in summaries] == [[f"[{once}]: go on\n"], []]


@requirement("hooks.stop")
async def test_end_of_a_turn_cannot_be_blocked_forever(tmp_path: Path) -> None:
    refused = 0

    async with make_session(tmp_path, at("Stop", command("exit 2"))) as session:
        session.say("Go")
        while await session.run(reply()):
            refused += 1

    assert refused == 8


@requirement("hooks.stop")
async def test_hook_can_stop_the_turn(tmp_path: Path) -> None:
    block = at("Stop", says({"continue": False, "stopReason": "enough"}))

    async with make_session(tmp_path, block) as session:
        session.say("Go")
        assert not await session.run(reply())

    assert session.stopped == "enough"
    assert [item["type"] for item in hook_attachments(tmp_path)] == ["hook_stopped_continuation", "hook_success"]


@requirement("hooks.session")
async def test_hooks_run_when_a_session_begins_and_ends(tmp_path: Path) -> None:
    block = {
        **at("SessionStart", command("cat > start.json; echo welcome"), matcher="startup"),
        **at("SessionEnd", command("cat > end.json")),
    }

    async with make_session(tmp_path, block) as session:
        assert not (tmp_path / "t.jsonl").exists()
        session.say("Go")
    assert json.loads((tmp_path / "start.json").read_bytes())["source"] == "startup"
    assert json.loads((tmp_path / "end.json").read_bytes())["reason"] == "other"

    assert texts(session) == ["SessionStart hook additional context: welcome", "Go"]
    assert [line["type"] for line in lines(tmp_path)][:2] == ["attachment", "user"]


@requirement("hooks.defer")
async def test_deferred_call_ends_the_turn_and_can_be_run_later(tmp_path: Path) -> None:
    wait = '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"defer"}}'
    block = at("PreToolUse", command(f"[ -e ready ] || printf '%s' '{wait}'"))

    async with make_session(tmp_path, block) as session:
        session.say("Go")
        assert not await session.run(reply("later"))
        assert session.stopped == "tool_deferred"
        assert deferred_call_id(session) == "c0"
        assert session.messages[-1]["role"] == "assistant"
        assert [line["type"] for line in lines(tmp_path)].count("user") == 1
        with pytest.raises(ToolspanError, match="run_deferred"):
            session.say("and now?")

        (tmp_path / "ready").touch()
        assert await session.run_deferred()

    assert deferred_call_id(session) is None
    assert session.messages[-1]["content"] == [{"type": "tool_result", "tool_use_id": "c0", "content": "later"}]
    assert [item["type"] for item in hook_attachments(tmp_path)] == ["hook_success", "hook_deferred_tool"]


@requirement("hooks.defer")
async def test_one_of_several_calls_cannot_be_deferred(tmp_path: Path) -> None:
    async with make_session(tmp_path, at("PreToolUse", decides("defer"))) as session:
        session.say("Go")
        assert await session.run(reply("one", "two"))

    assert session.deferred_call is None


@requirement("hooks.permission-request")
async def test_permission_request_hook_answers_instead_of_the_user(tmp_path: Path) -> None:
    def permit(**decision: object) -> dict[str, object]:
        fields = {"hookEventName": "PermissionRequest", "decision": decision}
        return says({"hookSpecificOutput": fields})

    yes = at("PermissionRequest", permit(behavior="allow", updatedInput={"word": "other"}))
    no = at("PermissionRequest", permit(behavior="deny", message="not this"))

    async with make_session(tmp_path, yes, permissions=ASK_ALWAYS) as session:
        await session.run(reply("word"))
    assert [span.result.text for span in session.spans if span.result] == ["other"]
    assert [item["decision"] for item in hook_attachments(tmp_path)] == ["allow"]

    async with make_session(tmp_path, no, permissions=ASK_ALWAYS, transcript=None) as session:
        await session.run(reply("word"))
    assert [span.result.text for span in session.spans if span.result] == ["not this"]


@requirement("hooks.permission-request")
async def test_new_input_of_a_hook_is_checked_against_deny_rules(tmp_path: Path) -> None:
    decision = {"behavior": "allow", "updatedInput": {"word": "secret"}}
    fields = {"hookEventName": "PermissionRequest", "decision": decision}
    block = at("PermissionRequest", says({"hookSpecificOutput": fields}))

    def no_secrets(question: PermissionRequest) -> Deny | None:
        return Deny("not that word") if question.input["word"] == "secret" else None

    async with make_session(tmp_path, block, permissions=PolicyStack((no_secrets,), lambda _request: Ask())) as session:
        await session.run(reply("word"))

    assert [span.state for span in session.spans] == ["denied"]


@requirement("hooks.permission-request")
async def test_approval_can_change_the_rules_of_the_session(tmp_path: Path) -> None:
    rule = {"type": "addRules", "behavior": "allow", "rules": [{"toolName": "echo"}]}
    decision = {"behavior": "allow", "updatedPermissions": [{**rule, "destination": "session"}]}
    fields = {"hookEventName": "PermissionRequest", "decision": decision}
    block = at("PermissionRequest", command("echo asked >> asked"), says({"hookSpecificOutput": fields}))

    async with make_session(tmp_path, block, permissions=ASK_ALWAYS) as session:
        await session.run(reply("one"))
        await session.run({**reply("two"), "content": [{**reply("two")["content"][0], "id": "d"}]})  # type: ignore[index]

    assert [span.state for span in session.spans] == ["succeeded", "succeeded"]
    assert (tmp_path / "asked").read_text(encoding="utf-8") == "asked\n"


@requirement("hooks.batch")
async def test_batch_hooks_can_add_context_or_end_the_turn(tmp_path: Path) -> None:
    speak = {"hookSpecificOutput": {"hookEventName": "PostToolBatch", "additionalContext": "well"}}
    end = {"decision": "block", "reason": "enough"}

    async with make_session(tmp_path, at("PostToolBatch", says(speak))) as session:
        assert await session.run(reply("one"))
    assert texts(session) == ["PostToolBatch hook additional context: well"]

    async with make_session(tmp_path, at("PostToolBatch", says(end)), transcript=None) as session:
        assert not await session.run(reply("one"))
    assert session.stopped == "enough"


@requirement("hooks.recorded")
async def test_objection_after_a_call_is_recorded_with_its_handler(tmp_path: Path) -> None:
    block = at("PostToolUse", says({"decision": "block", "reason": "look again"}))

    async with make_session(tmp_path, block) as session:
        await session.run(reply("one"))

    [error] = hook_attachments(tmp_path)
    assert error["type"] == "hook_blocking_error"
    [text] = texts(session)
    assert text.startswith('PostToolUse:echo hook blocking error from command: "printf')
    assert text.endswith(": look again")


@requirement("hooks.recorded")
async def test_timed_out_handler_is_recorded_with_its_timeout(tmp_path: Path) -> None:
    async with make_session(tmp_path, at("PreToolUse", command("sleep 1000", timeout=0.2))) as session:
        await session.run(reply("one"))

    assert hook_attachments(tmp_path) == [
        {
            "type": "hook_cancelled",
            "hookName": "PreToolUse:echo",
            "toolUseID": "c0",
            "hookEvent": "PreToolUse",
            "timedOut": True,
            "timeoutMs": 200,
        }
    ]


@requirement("hooks.recorded")
async def test_replaced_output_of_the_wrong_shape_is_ignored_and_recorded(tmp_path: Path) -> None:
    @tool()
    def facts() -> dict[str, int]:
        """Give some."""
        return {"a": 1}

    def replaced(value: object) -> Mapping[str, object]:
        fields = {"hookEventName": "PostToolUse", "updatedToolOutput": value}
        return at("PostToolUse", says({"hookSpecificOutput": fields}))

    displayed = []
    for number, value in enumerate(("a text", {"a": 2})):
        call = {"type": "tool_use", "id": f"f{number}", "name": "facts", "input": {}}
        session = make_session(tmp_path, replaced(value))
        session.runner.set_tools(session.runner.runner_context.tools.combined([facts]))
        async with session:
            await session.run({"role": "assistant", "content": [call]})
        displayed.append(session.messages[-1]["content"][0]["content"])  # type: ignore[index]

    assert displayed == ['{"a":1}', '{"a":2}']
    kinds = [item["type"] for item in hook_attachments(tmp_path)]
    assert kinds == ["hook_success", "hook_error_during_execution", "hook_success"]


async def test_functions_and_settings_hooks_are_combined(tmp_path: Path) -> None:
    functions = Hooks()
    functions.pre_tool_use()(lambda call: Allow())
    functions.at("Stop")(lambda event: "once more")
    layer = SettingsLayer(
        "user", tmp_path / "s.json", parse_settings({"hooks": at("PreToolUse", decides("deny"))}, "s.json"), {}
    )
    made_of = load_hooks(merge_settings([layer], trusted=True), profile())

    async with Session(
        permissions=Permissions.allow_all(),
        cwd=tmp_path,
        tools=[echo],
        hooks=combine_hooks(functions, made_of.hooks),
        transcript=None,
    ) as session:
        await session.run(reply("one"))
        assert await session.run(reply())

    assert [span.state for span in session.spans] == ["blocked_by_hook"]


@requirement("hooks.defer")
async def test_function_can_defer_a_call(tmp_path: Path) -> None:
    functions, ready = Hooks(), list[str]()
    functions.pre_tool_use()(lambda call: PreToolDecision(defer=not ready))

    async with Session(
        permissions=Permissions.allow_all(),
        cwd=tmp_path,
        tools=[echo],
        hooks=functions,
        transcript=tmp_path / "t.jsonl",
    ) as session:
        assert not await session.run(reply("later"))
        assert deferred_call_id(session) == "c0"
        ready.append("now")
        assert await session.run_deferred()

    assert [item["type"] for item in hook_attachments(tmp_path)] == ["hook_deferred_tool"]


@requirement("hooks.permission-request")
async def test_approval_of_a_function_can_set_the_input_and_change_the_rules(tmp_path: Path) -> None:
    functions, request = Hooks(), list[str]()
    rule = {"type": "addRules", "behavior": "allow", "rules": [{"toolName": "echo"}]}

    @functions.permission_request("echo")
    def consent(call: Call) -> PreToolDecision:
        request.append(call.id)
        allow = Allow(input={"word": "another"})
        return PreToolDecision(decision=allow, permission_updates=({**rule, "destination": "session"},))

    async with Session(cwd=tmp_path, tools=[echo], hooks=functions, transcript=None, permissions=ASK_ALWAYS) as session:
        await session.run(reply("one"))
        first = session.messages[-1]["content"]
        await session.run({**reply("two"), "content": [{**reply("two")["content"][0], "id": "d"}]})  # type: ignore[index]

    assert first == [{"type": "tool_result", "tool_use_id": "c0", "content": "another"}]
    assert request == ["c0"]


async def test_host_can_fire_hook_points(tmp_path: Path) -> None:
    block = at("Notification", command("cat > input.json"), matcher="idle_prompt")
    fields = {"message": "waiting", "notification_type": "idle_prompt"}

    async with make_session(tmp_path, block) as session:
        await session.fire_hook_event(SessionHookEvent(point="Notification", subject="idle_prompt", fields=fields))
        await session.fire_hook_event(SessionHookEvent(point="Notification", subject="other", fields=fields))

    payload = json.loads((tmp_path / "input.json").read_bytes())
    assert payload["message"] == "waiting"
    assert payload["hook_event_name"] == "Notification"


async def test_function_at_a_point_without_a_call_can_object() -> None:
    functions = Hooks()
    functions.at("UserPromptSubmit")(lambda event: Deny("no prompts today"))
    functions.at("PreCompact", "manual")(lambda event: HookEffects(contexts=("keep it",)))
    with pytest.raises(ToolspanError, match="concerns calls"):
        functions.at("PreToolUse")

    refused = await functions.run_session_event(SessionHookEvent(point="UserPromptSubmit"))
    remaining = await functions.run_session_event(SessionHookEvent(point="PreCompact", subject="manual"))

    assert (refused.feedback, remaining.contexts) == (("no prompts today",), ("keep it",))
