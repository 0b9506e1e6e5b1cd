"""The life of a call in documents 000 and 001: run, recorded and read; and subagents."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.runtime.hooks.hook_sessions import at, command, says
from tests.session.role_models import Play, troupe

import toolspan
from lab.seeds.conversation import LATEST, Object, call, play, text
from lab.seeds.test_samples import SAMPLES, assistant_record, result_of, sample, transcript, user_record
from toolspan import Deny, Hooks, Rules, tool
from toolspan.runtime.hooks.events import SessionHookEvent
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.testing import say, use
from toolspan.types.decision import Ask
from toolspan.types.events import Decided, Finished, HookRan, Requested, Started
from toolspan.types.session import Tokens
from toolspan.types.span import Call, Hook, Progress
from toolspan.types.work_results import AgentResult

pytestmark = pytest.mark.anyio


def describe_line(line: Object) -> str:
    if line["type"] == "progress":
        return str(line["data"]["hookEvent"])
    content = line["message"]["content"]
    return str(content[-1]["type"]) if isinstance(content, list) else "prompt"


# The stages


async def test_call_passes_its_stages_in_order(prices: Path, tmp_path: Path) -> None:
    played = await play(
        tmp_path,
        [text("I look."), call("Read", file_path=str(prices))],
        [text("Tea is 3.")],
        hooks={**at("PreToolUse", command("true")), **at("PostToolUse", command("true"))},
    )

    assert [
        event.point if isinstance(event, HookRan) else type(event).__name__
        for event in played.events
        if isinstance(event, Requested | HookRan | Started | Finished)
    ] == ["Requested", "PreToolUse", "Started", "PostToolUse", "Finished"]
    assert [describe_line(line) for line in played.lines] == [
        "prompt",
        "text",
        "tool_use",
        "PreToolUse",
        "tool_result",
        "PostToolUse",
        "text",
    ]
    assert [message["role"] for message in played.session.messages] == ["user", "assistant", "user", "assistant"]


async def test_call_without_hooks_goes_straight_to_the_tool(prices: Path, tmp_path: Path) -> None:
    played = await play(tmp_path, [call("Read", file_path=str(prices))])

    assert [type(event) for event in played.events[:3]] == [Requested, Started, Finished]
    assert played.span().state == "succeeded"


# Requests and results on disk


@pytest.mark.parametrize("version", ["seed", LATEST])
async def test_recorded_call_has_the_fields_of_the_tables(version: str, prices: Path, tmp_path: Path) -> None:
    fields = {"file_path": str(prices), "limit": 1}
    missing = str(tmp_path / "no.csv")
    played = await play(
        tmp_path, [call("Read", "toolu_good", **fields), call("Read", "toolu_bad", file_path=missing)], version=version
    )

    request = [line for line in played.lines if line["type"] == "assistant"]
    assert [line["message"]["content"][-1] for line in request] == [
        {"type": "tool_use", "id": "toolu_good", "name": "Read", "input": fields},
        {"type": "tool_use", "id": "toolu_bad", "name": "Read", "input": {"file_path": missing}},
    ]
    results = {line["message"]["content"][0]["tool_use_id"]: line for line in played.records}
    good, bad = (results[item]["message"]["content"][0] for item in ("toolu_good", "toolu_bad"))
    assert {(line["type"], line["message"]["role"]) for line in results.values()} == {("user", "user")}
    assert (good["type"], type(good["content"]), good.get("is_error")) == ("tool_result", str, None)
    assert (bad["type"], type(bad["content"]), bad["is_error"]) == ("tool_result", str, True)
    assert [(span.id, span.state) for span in played.transcript.spans] == [
        ("toolu_good", "succeeded"),
        ("toolu_bad", "failed"),
    ]


def test_content_may_be_a_text_or_a_list_of_blocks() -> None:
    several = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    first, second = transcript(
        assistant_record(call("Bash", "toolu_1"), call("Bash", "toolu_2")),
        user_record({"type": "tool_result", "tool_use_id": "toolu_1", "content": "one"}),
        user_record({"type": "tool_result", "tool_use_id": "toolu_2", "content": several}),
    ).spans

    assert first.result is not None
    assert second.result is not None
    assert (first.state, first.result.text) == ("succeeded", "one")
    assert (second.state, second.result.text) == ("succeeded", "one\ntwo")


def test_text_and_thinking_beside_a_call_are_messages() -> None:
    recorded = transcript(sample("S0-04.json"), sample("S0-38.json"), sample("S0-48.json"))

    assert [span.tool for span in recorded.spans] == ["Read", "Read"]
    assert [message.voice for message in recorded.messages()] == ["text", "thinking", "text"]
    assert "fetch" not in str(recorded.spans[0].call.arguments)


# The tools of the table


TOOLS: list[tuple[str, Object, str]] = [
    ("Read", {"file_path": "prices.csv", "offset": 2, "limit": 1}, "cake,4"),
    ("Edit", {"file_path": "prices.csv", "old_string": "tea,3", "new_string": "tea,5"}, "tea,5"),
    ("Write", {"file_path": "new.csv", "content": "juice,2\n"}, "new.csv"),
    ("Bash", {"command": "cat prices.csv", "timeout": 5_000}, "soup,6"),
    ("Glob", {"pattern": "*.csv", "path": "."}, "prices.csv"),
    ("Grep", {"pattern": "cake", "path": ".", "type": "csv"}, "prices.csv"),
]


@pytest.mark.parametrize(("name", "tool_input", "answer"), TOOLS)
async def test_tool_takes_the_inputs_of_the_table(
    name: str, tool_input: Object, answer: str, prices: Path, tmp_path: Path
) -> None:
    for key in ("file_path", "path"):
        if key in tool_input:
            tool_input = {**tool_input, key: str(tmp_path / tool_input[key])}
    look = call("Read", "toolu_0", file_path=str(prices))
    played = await play(tmp_path, [look], [call(name, **tool_input)])

    assert played.span().state == "succeeded"
    assert answer in played.results[-1]["content"]
    assert played.read_span().call.arguments.items() >= tool_input.items()


# Hooks


async def test_hook_receives_the_input_of_the_sample(prices: Path, tmp_path: Path) -> None:
    shape = sample("S0-23.json")
    played = await play(
        tmp_path, [call("Read", file_path=str(prices))], hooks=at("PreToolUse", command("cat > told.json"))
    )

    received = json.loads((tmp_path / "told.json").read_bytes())
    assert received.keys() - shape.keys() == {"tool_use_id"}
    assert received == {
        "session_id": played.session.session_id,
        "transcript_path": str(played.session.transcript),
        "cwd": str(tmp_path),
        "permission_mode": "default",
        "hook_event_name": "PreToolUse",
        "tool_name": "Read",
        "tool_input": {"file_path": str(prices)},
        "tool_use_id": "toolu_1",
    }


async def test_hooks_leave_progress_records_that_name_the_call(prices: Path, tmp_path: Path) -> None:
    hooks = {**at("PreToolUse", command("true")), **at("PostToolUse", command("true"))}
    played = await play(tmp_path, [call("Read", file_path=str(prices))], hooks=hooks)

    lines = [line for line in played.lines if line["type"] == "progress"]
    assert [
        (line["data"]["type"], line["data"]["hookEvent"], line["toolUseID"], line["parentToolUseID"]) for line in lines
    ] == [("hook_progress", "PreToolUse", "toolu_1", "toolu_1"), ("hook_progress", "PostToolUse", "toolu_1", "toolu_1")]
    points = [event.point for event in played.read_span().events if isinstance(event, Hook)]
    assert points == ["PreToolUse", "PostToolUse"]


def asks(question: PermissionRequest) -> Ask:
    return Ask("may it?")


async def test_flat_hook_output_lets_the_call_run(prices: Path, tmp_path: Path) -> None:
    answer = sample("S0-33.json")
    hooks = at("PreToolUse", says(answer))
    read = call("Read", file_path=str(prices))
    played = await play(tmp_path, [read], hooks=hooks)

    assert played.span().state == "succeeded"
    assert [(item.allowed, item.source, item.reason) for item in played.events_of(Decided)] == [
        (True, "hook", answer["reason"])
    ]
    assert played.texts == [f"PreToolUse:Read hook additional context: {answer['additionalContext']}"]


async def test_call_is_denied_without_the_approval_of_the_hook(prices: Path, tmp_path: Path) -> None:
    read = call("Read", file_path=str(prices))
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    hooks = at("PreToolUse", says(sample("S0-33.json")))
    denied = await play(tmp_path / "a", [read], fallback=asks)
    allowed = await play(tmp_path / "b", [read], fallback=asks, hooks=hooks)

    assert (denied.span().state, allowed.span().state) == ("denied", "succeeded")


# Several calls in one message


async def test_calls_of_one_message_are_answered_in_one_message(prices: Path, tmp_path: Path) -> None:
    request = [
        call("Grep", "toolu_a", pattern="tea"),
        call("Grep", "toolu_b", pattern="cake"),
        call("Glob", "toolu_c", pattern="*.csv"),
    ]
    played = await play(tmp_path, request)

    (answer,) = (m for m in played.session.messages[1:] if m["role"] == "user")
    content: Any = answer["content"]
    assert [block["tool_use_id"] for block in content] == ["toolu_a", "toolu_b", "toolu_c"]
    assert content[2]["content"].splitlines() == [str(prices)]
    assert [span.state for span in played.transcript.spans] == ["succeeded"] * 3


# Pairing


def by_the_recipe(lines: list[Object]) -> dict[str, Object]:
    calls: dict[str, Object] = {}
    for line in lines:
        if line["type"] not in ("assistant", "user"):
            continue
        content = line["message"]["content"]
        for block in content if isinstance(content, list) else []:
            if block["type"] == "tool_use":
                calls[block["id"]] = {
                    "name": block["name"],
                    "input": block["input"],
                    "timestamp": line.get("timestamp"),
                }
            elif block["type"] == "tool_result" and block["tool_use_id"] in calls:
                calls[block["tool_use_id"]]["result"] = block["content"]
                calls[block["tool_use_id"]]["is_error"] = block.get("is_error", False)
    return calls


STORY: list[Object] = [
    *map(json.loads, (SAMPLES / "session-000.jsonl").read_text(encoding="utf-8").splitlines()),
    {"type": "user", "message": {"role": "user", "content": "A prompt, no result"}},
    {"type": "summary", "summary": "Neither of the two", "leafUuid": "x"},
    {**assistant_record(call("Bash", "toolu_t", command="x")), "timestamp": "2026-01-05T10:00:00.000Z"},
    user_record({"type": "tool_result", "tool_use_id": "toolu_t", "content": "Exit code 1", "is_error": True}),
    user_record({"type": "tool_result", "tool_use_id": "toolu_never_asked", "content": "?"}),
]


def test_pairing_of_the_document_finds_the_same_calls() -> None:
    expected = by_the_recipe(STORY)
    spans = transcript(*STORY).spans
    result = {str(span.id): span for span in spans if span.state != "orphan_result"}

    assert len(expected) == 6
    for id, pair in expected.items():
        span = result.pop(id)
        assert (span.tool, span.call.arguments) == (pair["name"], pair["input"])
        assert span.call.requested_at == pair["timestamp"]
        assert (span.result.text if span.result else None) == pair.get("result")
        assert (span.state == "failed") == pair.get("is_error", False)
    assert result == {}


async def test_running_tools_always_get_a_result(tmp_path: Path) -> None:
    @tool(timeout=0.01)
    async def late() -> str:
        """Too long."""
        await anyio.sleep_forever()
        return ""

    hooks = Hooks()

    @hooks.pre_tool_use("blocked")
    def no(call: Call) -> Deny:
        return Deny("not here")

    @tool
    async def blocked() -> str:
        """Never run."""
        return ""

    @tool
    async def denied() -> str:
        """Never run."""
        return ""

    names = ("late", "blocked", "denied")
    played = await play(
        tmp_path,
        [call(name, f"toolu_{name}") for name in names],
        tools=[late, blocked, denied],
        hooks=hooks,
        policies=[Rules(deny=["denied"])],
        version=LATEST,
    )

    assert [block["is_error"] for block in played.results] == [True, True, True]
    assert [span.state for span in played.transcript.spans] == ["timed_out", "blocked_by_hook", "denied"]


# Statements only in the commit text of 001


def line_of(type: str, **fields: object) -> Object:
    return {"type": type, **fields}


def test_messages_have_model_tokens_and_parents() -> None:
    usage = {"input_tokens": 5, "output_tokens": 7}
    request = assistant_record(call("Bash", "toolu_left", command="x"))
    again = assistant_record(call("Bash", "toolu_kept", command="y"))
    again["message"] |= {"id": "msg_2", "model": "model-1", "usage": usage}
    recorded = transcript(
        {**user_record(), "message": {"content": "Do it"}, "uuid": "u1", "parentUuid": None},
        {**request, "uuid": "a1", "parentUuid": "u1"},
        {**again, "uuid": "a2", "parentUuid": "u1"},
    )

    assert recorded.tokens == Tokens(input_tokens=5, output_tokens=7)
    assert recorded.info.models == ("model-1",)
    assert [(span.id, span.branch) for span in recorded.spans] == [
        ("toolu_left", "abandoned"),
        ("toolu_kept", "active"),
    ]


def test_progress_of_hooks_commands_and_servers_belongs_to_its_call() -> None:
    def progress(id: str, **data: object) -> Object:
        return line_of("progress", data=data, toolUseID=f"p_{id}", parentToolUseID=id)

    shell, server = transcript(
        assistant_record(call("Bash", "toolu_1", command="make"), call("mcp__db__query", "toolu_2")),
        progress("toolu_1", type="hook_progress", hookEvent="PreToolUse", hookName="x"),
        progress("toolu_1", type="bash_progress", output="half", elapsedTimeSeconds=2),
        progress("toolu_2", type="mcp_progress", status="started", serverName="db"),
    ).spans

    assert [type(event) for event in shell.events] == [Hook, Progress]
    assert [event.kind for event in server.events if isinstance(event, Progress)] == ["mcp_progress"]


def test_other_record_types_are_not_calls() -> None:
    recorded = transcript(
        line_of("system", subtype="informational", content="hello"),
        line_of("summary", summary="Prices", leafUuid="x"),
        line_of("file-history-snapshot", messageId="m", snapshot={}),
    )

    assert [entry.is_known for entry, _ in recorded.entries()] == [True] * 3
    assert (recorded.spans, recorded.findings) == ([], [])


def test_invalid_json_and_values_of_other_types_are_tolerated(tmp_path: Path) -> None:
    odd = assistant_record(call("Bash", command="x"))
    odd["message"] |= {"usage": {"input_tokens": True, "output_tokens": 7}, "id": 12}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok", "is_error": 1}
    path = tmp_path / "t.jsonl"
    lines = [json.dumps(odd), "{not json", json.dumps(user_record(result)), "[1]", "true"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    recorded = toolspan.read(path)
    assert [(span.id, span.state) for span in recorded.spans] == [("toolu_1", "succeeded")]
    assert recorded.tokens.input_tokens == 0  # a boolean is not a number, although Python treats it as 1
    assert recorded.counts.malformed == 3


def test_transcript_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    from toolspan.runtime.profiles import profile
    from toolspan.session.recording import Recorder, RecorderConfig
    from toolspan.types.ids import SessionId

    origin = RecorderConfig(profile=profile(), session_id=SessionId("s"), cwd=tmp_path)
    recorder = Recorder(tmp_path / "p" / "s.jsonl", origin, on_failure=print)
    recorder.record_prompt("hello")
    recorder.close()

    assert stat.S_IMODE((tmp_path / "p" / "s.jsonl").stat().st_mode) & 0o077 == 0


@pytest.mark.parametrize(("version", "name"), [("seed", "Task"), ("2.1.327", "Agent")])
async def test_subagent_is_started_by_a_call_and_its_text_is_the_result(
    version: str, name: str, tmp_path: Path
) -> None:
    hooks = Hooks()
    received: list[str] = []

    @hooks.at("SubagentStart")
    def start(_: SessionHookEvent) -> None:
        received.append("start")

    @hooks.at("SubagentStop")
    def stop(_: SessionHookEvent) -> None:
        received.append("stop")

    request = {"description": "Find prices", "prompt": "Look", "subagent_type": "general-purpose"}
    play = Play(
        {
            "Main": [[use(name, **request, run_in_background=False)], say("Thank you.")],
            "Look": [[use("echo", text="tea,3")], say("Tea is 3.")],
        }
    )
    async with troupe(tmp_path, play, version=version, hooks=hooks) as agent:
        await agent.prompt("Main")

    (span,) = toolspan.read(tmp_path / "t.jsonl").spans
    assert (span.tool, span.call.kind, span.state) == (name, "agent", "succeeded")
    assert "Tea is 3." in result_of(span).text
    output = result_of(span).structured
    assert isinstance(output, AgentResult)
    assert (output.status, output.prompt, output.total_tool_use_count) == ("completed", "Look", 1)
    assert output.total_tokens is not None
    assert output.total_duration_ms is not None
    assert output.usage is not None
    (below,) = tmp_path.rglob("agent-*.jsonl")
    assert [(s.tool, s.state) for s in toolspan.read(below).spans] == [("echo", "succeeded")]
    assert span.agent is not None
    assert below.stem == f"agent-{span.agent}"
    assert received == ["start", "stop"]


async def test_background_subagent_is_recorded_as_in_the_sample(tmp_path: Path) -> None:
    request = {"description": "Find prices", "prompt": "Look", "subagent_type": "general-purpose"}
    play = Play({"Main": [[use("Agent", **request, run_in_background=True)], say("Later.")]})
    async with troupe(tmp_path, play, version="2.1.327") as agent:
        await agent.prompt("Main")

    span = toolspan.read(tmp_path / "t.jsonl").spans[0]
    output = result_of(span).structured
    assert isinstance(output, AgentResult)
    assert (output.is_async, output.is_launched, output.prompt) == (True, True, "Look")
    assert output.description == "Find prices"
    assert output.agent_id == span.agent
    assert output.output_file
    assert output.status == sample("S2-35.json")["status"]
