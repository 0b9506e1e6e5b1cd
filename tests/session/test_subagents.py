"""Subagents: work, results, transcripts and endings."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

import toolspan
from tests.requirement import requirement
from tests.runtime.waiting_tools import meeting
from tests.session.role_models import Play, troupe
from toolspan import Deny, Hooks, tool
from toolspan.runtime.background import AgentTask
from toolspan.runtime.hooks.events import HookEffects, PreToolDecision, SessionHookEvent
from toolspan.runtime.permissions import PolicyStack
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.profiles import VERSIONS, profile
from toolspan.session.resume import load_history
from toolspan.session.subagents.definitions import AgentDefinition, SubagentConfig, SubagentLimits
from toolspan.testing import check_history, fail, last_result_texts, say, use
from toolspan.tools import bash_tool, edit_tool, read_tool
from toolspan.types.events import Finished, LiveEvent, Progressed, Relayed
from toolspan.types.ids import CallId
from toolspan.types.span import Call

pytestmark = pytest.mark.anyio

SECOND = {"Main": [], "Left": [[use("echo", text="l")], say("Left is back.")]}


def give(prompt: str, **more: object) -> dict[str, object]:
    return use("Agent", description=prompt, prompt=prompt, run_in_background=False, **more)


def send(prompt: str, **more: object) -> dict[str, object]:
    return use("Agent", description=prompt, prompt=prompt, run_in_background=True, **more)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def agent_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("agent-*.jsonl"))


def said(agent_messages: list[dict[str, object]]) -> str:
    return json.dumps(agent_messages)


@requirement("subagents.parallel")
async def test_two_subagents_run_concurrently_and_both_report(tmp_path: Path) -> None:
    play = Play(
        {
            "Main": [[give("Left"), give("Right")], lambda messages: say(" | ".join(last_result_texts(messages)))],
            "Left": [[use("meet"), use("echo", text="l")], say("Left has met.")],
            "Right": [[use("meet")], say("Right has met.")],
        }
    )
    async with troupe(tmp_path, play, tools=[meeting()]) as agent:
        ended = await agent.prompt("Main")

    assert ended.reason == "completed"
    assert ended.text.index("Left has met.") < ended.text.index("Right has met.")


@requirement("subagents.result")
@pytest.mark.parametrize("version", VERSIONS)
async def test_report_has_the_format_of_the_client(tmp_path: Path, version: str) -> None:
    values = profile(version).agents
    call = use(
        values.name, description="Look", prompt="Left", subagent_type="general-purpose",
        run_in_background=False,
    )  # fmt: skip
    play = Play({"Main": [[call]], "Left": [[use("echo", text="l")], say("One.\nTwo.")]})
    async with troupe(tmp_path, play, version=version) as agent:
        await agent.prompt("Main")
        (span,) = agent.session.spans

    result = span.result
    assert result is not None
    record: Any = json.loads(json.dumps(lines_of(tmp_path / "t.jsonl")[2]["toolUseResult"]))
    assert (record["status"], record["prompt"], record["totalToolUseCount"]) == (
        "completed", "Left", 1,
    )  # fmt: skip
    assert record["totalTokens"] == record["usage"]["input_tokens"] + record["usage"]["output_tokens"]
    texts = [block["text"] for block in result.content]  # type: ignore[attr-defined]
    assert f"agentId: {record['agentId']} (" in texts[-1]
    assert ("<usage>" in texts[-1]) is (values.framed)
    if values.framed:
        assert len(texts) == 1
        assert "\n  One.\n  Two.\nagentId: " in texts[0]
        assert record["content"][-1] == {"type": "text", "text": "One.\nTwo."}
        assert record["toolsUsed"] == ["echo"]
    else:
        assert texts[0] == "One.\nTwo."
        assert record["content"] == [{"type": "text", "text": "One.\nTwo."}]
    assert ("toolStats" in record) is values.framed
    assert span.agent == record["agentId"]
    assert len(record["agentId"]) == profile(version).shape.agent_digits


async def test_subagent_has_a_separate_context_tools_and_prompt(tmp_path: Path) -> None:
    kind = AgentDefinition(
        name="reader", description="Reads.", prompt="You read.", tools=("echo", "Agent"),
        disallowed_tools=("Agent",),
    )  # fmt: skip
    play = Play({"Main": [[give("Left", subagent_type="reader")]]} | {"Left": SECOND["Left"]})
    async with troupe(tmp_path, play, staff=SubagentConfig([kind])) as agent:
        await agent.prompt("Main")

    (first, _second) = play.requests("Left")
    assert [schema["name"] for schema in first["tools"]] == ["echo"]
    assert first["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Left"}]}]
    assert str(first["system"]).startswith("You read.\n\n")
    (above, *_) = play.requests("Main")
    (offered,) = [item for item in above["tools"] if item["name"] == "Agent"]
    assert "- general-purpose: " in offered["description"]
    assert "- reader: Reads. (has echo, Agent)" in offered["description"]


async def test_reads_of_a_subagent_do_not_count_for_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("alpha\n")
    edit = use("Edit", file_path=str(path), old_string="alpha", new_string="beta")
    chosen = profile("2.1.327")
    play = Play({"Main": [[give("Left")], [edit]], "Left": [[use("Read", file_path=str(path))], [edit]]})
    tools = [read_tool(chosen), edit_tool(chosen)]
    async with troupe(tmp_path, play, tools=tools) as agent:
        await agent.prompt("Main")
        states = [(span.tool, span.state) for span in agent.session.spans]

    assert path.read_text() == "beta\n"
    assert states == [("Agent", "succeeded"), ("Edit", "failed")]


@requirement("subagents.depth")
async def test_subagents_start_subagents_down_to_a_depth(tmp_path: Path) -> None:
    play = Play(
        {
            "Main": [[give("One")]],
            "One": [[give("Two")]],
            "Two": [[give("Three")], lambda messages: say(last_result_texts(messages)[0])],
        }
    )
    async with troupe(tmp_path, play, staff=SubagentConfig(limits=SubagentLimits(max_depth=2))) as agent:
        await agent.prompt("Main")

    names = [schema["name"] for schema in play.requests("Two")[0]["tools"]]
    assert not {"Agent", "SendMessage"} & set(names)
    assert "No such tool available: Agent" in said(play.requests("Two")[1]["messages"])
    about = [json.loads(path.read_bytes()) for path in tmp_path.rglob("*.meta.json")]
    assert sorted(item["spawnDepth"] for item in about) == [1, 2]
    (deep,) = [item for item in about if item["spawnDepth"] == 2]
    assert tmp_path.joinpath("t", "subagents", f"agent-{deep['parentAgentId']}.jsonl").is_file()
    assert len(agent_files(tmp_path / "t" / "subagents")) == 2


@requirement("subagents.background")
async def test_background_subagent_is_announced_when_it_ends(tmp_path: Path) -> None:
    go = anyio.Event()

    @tool
    async def wait() -> str:
        """Wait for the one above."""
        await go.wait()
        return "ok"

    def release(_: object) -> dict[str, object]:
        go.set()
        return say("Sent.")

    play = Play({"Main": [[send("Left")], release], "Left": [[use("wait")], say("Left is back.")]})
    async with troupe(tmp_path, play, tools=[wait]) as agent:
        ended = await agent.run_to_completion("Main")
        (task,) = agent.session.runner.runner_context.workspace.tasks

    assert (ended.text, ended.turns) == ("Main is done.", 3)
    assert isinstance(task, AgentTask)
    assert (task.status, task.reported) == ("completed", True)
    lines = lines_of(tmp_path / "t.jsonl")
    launched = next(line["toolUseResult"] for line in lines if "toolUseResult" in line)
    assert launched["status"] == "async_launched"
    assert Path(launched["outputFile"]).resolve() == agent_files(tmp_path)[0]
    (news,) = [line for line in lines if "<task-notification>" in str(line.get("message"))]
    text = news["message"]["content"]
    assert f"<task-id>{task.id}</task-id>" in text
    assert "<result>Left is back.</result>" in text
    assert '<summary>Agent "Left" finished</summary>' in text
    (span,) = [item for item in toolspan.read(tmp_path / "t.jsonl").spans if item.tool == "Agent"]
    assert (span.background, span.agent) == (True, task.id)


@requirement("subagents.background")
async def test_notifications_wait_for_the_next_prompt_and_precede_it(tmp_path: Path) -> None:
    play = Play({"Main": [[send("Left")]], "Left": [say("Left is back.")]})
    async with troupe(tmp_path, play) as agent:
        await agent.prompt("Main")
        (task,) = agent.session.runner.runner_context.workspace.tasks
        await task.wait()
        await agent.prompt("And now?")
        content: Any = agent.session.messages[-2]["content"]
        news, question = content

    assert "Left is back." in str(news)
    assert question == {"type": "text", "text": "And now?"}


async def test_background_subagent_is_inspected_and_stopped_like_any_task(tmp_path: Path) -> None:
    request: list[str] = []

    def look(_: object) -> list[dict[str, object]]:
        (task,) = agent.session.runner.runner_context.workspace.tasks
        request.append(task.id)
        return [use("TaskOutput", task_id=task.id, block=False, timeout=0)]

    def stop(_: object) -> list[dict[str, object]]:
        return [use("TaskStop", task_id=request[0])]

    play = Play({"Main": [[send("Left")], look, stop], "Left": [[use("hang")]]})
    async with troupe(tmp_path, play, version="2.1.327") as agent:
        ended = await agent.run_to_completion("Main")
        displayed, stopped = (str(span.result and span.result.content) for span in agent.session.spans[1:])

    assert ended.reason == "completed"
    assert "<task_type>local_agent</task_type>" in displayed
    assert "<status>running</status>" in displayed
    assert '"task_type":"local_agent"' in stopped
    (below,) = agent_files(tmp_path)
    assert [span.state for span in toolspan.read(below).spans] == ["interrupted"]


async def test_running_subagent_reads_a_message_with_its_next_results(tmp_path: Path) -> None:
    went = anyio.Event()

    @tool(concurrent=True)
    async def wait() -> str:
        """Wait for a message."""
        await went.wait()
        return "ok"

    def tell(_: object) -> list[dict[str, object]]:
        (task,) = agent.session.runner.runner_context.workspace.tasks
        return [use("SendMessage", to=task.id, message="Hurry up.")]

    def release(messages: object) -> dict[str, object]:
        went.set()
        return say(last_result_texts(messages)[0])  # type: ignore[arg-type]

    play = Play({"Main": [[send("Left")], tell, release], "Left": [[use("wait")]]})
    async with troupe(tmp_path, play, tools=[wait]) as agent:
        await agent.run_to_completion("Main")

    assert '"success":true' in said(agent.session.messages).replace("\\", "")
    assert "Hurry up." in said(play.requests("Left")[1]["messages"])


async def test_message_resumes_a_finished_subagent(tmp_path: Path) -> None:
    def tell(_: object) -> list[dict[str, object]]:
        (span,) = agent.session.spans
        return [use("SendMessage", to=str(span.agent), message="One more thing.")]

    play = Play({"Main": [[give("Left")], tell], "Left": [say("First."), say("Second.")]})
    async with troupe(tmp_path, play) as agent:
        await agent.run_to_completion("Main")

    first, second = play.requests("Left")
    assert len(first["messages"]) == 1
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "user"]
    assert "<result>Second.</result>" in said(agent.session.messages)
    (path,) = agent_files(tmp_path)
    parents = [line["parentUuid"] for line in lines_of(path) if "parentUuid" in line]
    assert parents.count(None) == 1


async def test_subagent_of_an_earlier_process_can_be_resumed(tmp_path: Path) -> None:
    call = use("Task", description="L", prompt="Left", subagent_type="general-purpose")
    play = Play({"Main": [[call]], "Left": [say("First.")]})
    async with troupe(tmp_path, play, version="2.0.65") as agent:
        await agent.prompt("Main")
        name = str(agent.session.spans[0].agent)

    again = use("Task", description="L", prompt="More.", subagent_type="general-purpose", resume=name)
    later = Play({"Main": [[again]], "Left": [say("Second.")]})
    async with troupe(tmp_path, later, version="2.0.65") as agent:
        await agent.prompt("Again")

    (request,) = later.requests("Left")
    assert "First." in said(request["messages"])
    assert "Second." in said(agent.session.messages)


async def test_message_to_an_unknown_name_is_refused(tmp_path: Path) -> None:
    play = Play({"Main": [[use("SendMessage", to="a77", message="Hello?")]]})
    async with troupe(tmp_path, play) as agent:
        await agent.prompt("Main")
        (span,) = agent.session.spans

    assert (span.state, span.error_kind) == ("failed", "not_found")


async def test_interrupt_ends_nested_subagents_with_results(tmp_path: Path) -> None:
    events: list[LiveEvent] = []
    play = Play(
        {
            "Main": [[give("One")]],
            "One": [[give("Two"), use("hang")]],
            "Two": [[use("hang"), use("echo", text="done before")]],
        }
    )
    async with troupe(tmp_path, play, events=events, version="2.1.327") as agent, anyio.create_task_group() as group:
        group.start_soon(agent.prompt, "Main")
        while sum(_hangs(event) for event in events) < 2:
            await anyio.lowlevel.checkpoint()
        agent.interrupt()

    (span,) = agent.session.spans
    assert span.state == "interrupted"
    states = [(item.tool, item.state) for path in agent_files(tmp_path) for item in toolspan.read(path).spans]
    assert sorted(states) == [
        ("Agent", "interrupted"), ("echo", "succeeded"), ("hang", "interrupted"),
        ("hang", "interrupted"),
    ]  # fmt: skip


def _hangs(event: LiveEvent) -> bool:
    return isinstance(event, Relayed) and isinstance(event.event, Progressed) and (event.event.kind == "hangs")


async def test_subagent_past_its_timeout_is_ended(tmp_path: Path) -> None:
    play = Play({"Main": [[give("Left")]], "Left": [[use("hang")]]})
    async with troupe(
        tmp_path, play, staff=SubagentConfig(limits=SubagentLimits(timeout=0.05)), version="2.1.327"
    ) as agent:
        await agent.prompt("Main")
        (span,) = agent.session.spans

    assert span.state == "timed_out"
    assert "limit of 0.05 seconds" in (span.message or "")
    (below,) = agent_files(tmp_path)
    assert [item.state for item in toolspan.read(below).spans] == ["interrupted"]


async def test_concurrent_subagents_are_limited(tmp_path: Path) -> None:
    play = Play({"Main": [[give("Left"), give("Right")]], "Left": [[give("Deep")]]})
    async with troupe(tmp_path, play, staff=SubagentConfig(limits=SubagentLimits(max_concurrent=1))) as agent:
        await agent.prompt("Main")
        refused = [span for span in agent.session.spans if span.state == "failed"]

    assert len(refused) == 1
    assert (refused[0].message or "").startswith("Concurrent subagent limit reached.")


async def test_subagent_at_its_turn_limit_reports_its_partial_work(tmp_path: Path) -> None:
    brief = AgentDefinition(name="brief", description="Is brief.", max_turns=1)
    play = Play({"Main": [[give("Left", subagent_type="brief")]], "Left": [[say("So far."), use("echo", text="l")]]})
    async with troupe(tmp_path, play, staff=SubagentConfig([brief])) as agent:
        await agent.prompt("Main")
        (span,) = agent.session.spans

    assert span.state == "succeeded"
    assert "So far.\\n  \\n  [Ended early: " in said(agent.session.messages)


async def test_failure_of_a_subagent_is_reported_and_ends_nothing_else(tmp_path: Path) -> None:
    play = Play({"Main": [[give("Left"), give("Right")]], "Left": [fail(400, message="no")]})
    async with troupe(tmp_path, play) as agent:
        ended = await agent.prompt("Main")
        states = {span.call.arguments["prompt"]: span for span in agent.session.spans}

    assert ended.reason == "completed"
    assert states["Right"].state == "succeeded"
    assert states["Left"].state == "failed"
    assert "The agent failed" in (states["Left"].message or "")


async def test_hooks_run_for_subagents_and_can_block_them(tmp_path: Path) -> None:
    hooks = Hooks()
    received: list[tuple[str, object]] = []

    @hooks.at("SubagentStart")
    def start(occasion: SessionHookEvent) -> HookEffects:
        received.append((occasion.point, occasion.subject))
        return HookEffects(contexts=("Mind the gap.",))

    @hooks.at("SubagentStop")
    def stop(occasion: SessionHookEvent) -> HookEffects:
        received.append((occasion.point, occasion.fields["stop_hook_active"]))
        return HookEffects() if occasion.fields["stop_hook_active"] else HookEffects(feedback=("Not yet.",))

    @hooks.pre_tool_use("echo")
    def never(call: Call) -> PreToolDecision | Deny | None:
        received.append(("echo", call.agent_id))
        return Deny("not below") if call.agent_id else None

    play = Play({"Main": [[give("Left"), use("echo", text="m")]], "Left": [[use("echo", text="l")]]})
    async with troupe(tmp_path, play, hooks=hooks) as agent:
        await agent.prompt("Main")
        name = next(span.agent for span in agent.session.spans if span.agent)

    assert ("SubagentStart", "general-purpose") in received
    assert [entry for entry in received if entry[0] == "SubagentStop"] == [
        ("SubagentStop", False), ("SubagentStop", True),
    ]  # fmt: skip
    assert {entry for entry in received if entry[0] == "echo"} == {("echo", None), ("echo", name)}
    requests = play.requests("Left")
    assert "Mind the gap." in said(requests[0]["messages"])
    assert "not below" in said(requests[1]["messages"])
    assert "Not yet." in said(requests[2]["messages"])


async def test_rules_apply_to_subagents(tmp_path: Path) -> None:
    request: list[str | None] = []

    def never(question: PermissionRequest) -> Deny | None:
        if question.tool != "echo":
            return None
        request.append(question.call.agent_id)
        return Deny("no echo")

    play = Play({"Main": [[give("Left")]], "Left": [[use("echo", text="l")]]})
    async with troupe(tmp_path, play, permissions=PolicyStack((never,)), version="2.1.327") as agent:
        await agent.prompt("Main")
        name = agent.session.spans[0].agent

    assert request == [name]
    (below,) = agent_files(tmp_path)
    assert [span.state for span in toolspan.read(below).spans] == ["denied"]


async def test_events_of_a_subagent_reach_the_sinks_of_the_session(tmp_path: Path) -> None:
    events: list[LiveEvent] = []
    play = Play({"Main": [[give("Left")]], "Left": SECOND["Left"]})
    async with troupe(tmp_path, play, events=events) as agent:
        await agent.prompt("Main")
        (span,) = agent.session.spans

    below = [event for event in events if isinstance(event, Relayed)]
    assert {(item.agent_id, item.agent_type, item.call_id) for item in below} == {
        (span.agent, "general-purpose", span.id)
    }
    (ended,) = [item.event.span for item in below if isinstance(item.event, Finished)]
    assert (ended.tool, ended.call.agent_id, ended.call.parent_call) == ("echo", span.agent, span.id)
    news = [event for event in events if isinstance(event, Progressed)]
    assert (news[0].call_id, news[0].kind, news[0].data["tool"]) == (span.id, "agent", "echo")


async def test_tokens_of_subagents_count_for_the_session(tmp_path: Path) -> None:
    play = Play({"Main": [[give("Left")]], "Left": SECOND["Left"]})
    async with troupe(tmp_path, play) as agent:
        ended = await agent.prompt("Main")

    used = sum(
        line["message"]["usage"]["output_tokens"]
        for path in (tmp_path / "t.jsonl", *agent_files(tmp_path))
        for line in lines_of(path)
        if line.get("type") == "assistant" and line["message"]["stop_reason"]
    )
    assert ended.tokens["output_tokens"] >= used > 0


@requirement("subagents.record")
@pytest.mark.parametrize("version", VERSIONS)
async def test_subagent_transcript_is_where_the_client_writes_it(tmp_path: Path, version: str) -> None:
    chosen = profile(version)
    call = use(
        chosen.agents.name, description="Look", prompt="Left", subagent_type="general-purpose",
        run_in_background=False,
    )  # fmt: skip
    play = Play({"Main": [[call]], "Left": SECOND["Left"]})
    async with troupe(tmp_path, play, version=version) as agent:
        await agent.prompt("Main")
        (span,) = agent.session.spans

    (path,) = agent_files(tmp_path)
    nested = chosen.shape.agents == "nested"
    assert path.parent == (tmp_path / "t" / "subagents" if nested else tmp_path)
    lines = lines_of(path)
    assert {(line["isSidechain"], line["agentId"]) for line in lines} == {(True, span.agent)}
    assert {line["sessionId"] for line in lines} == {agent.session.session_id}
    assert lines[0]["parentUuid"] is None
    assert lines[0]["message"] == {"role": "user", "content": "Left"}
    main = lines_of(tmp_path / "t.jsonl")
    assert lines[0].get("promptId") == main[0].get("promptId")
    (result,) = [line for line in lines if "tool_result" in str(line["message"])]
    assert chosen.shape.companions_aside or "toolUseResult" not in result
    about = path.with_suffix(".meta.json")
    assert about.is_file() is nested
    if chosen.agents.records_request:
        assert json.loads(about.read_bytes())["toolUseId"] == span.id


@pytest.mark.parametrize("version", VERSIONS)
async def test_live_events_of_a_subagent_equal_its_transcript(tmp_path: Path, version: str) -> None:
    chosen = profile(version)

    def start(prompt: str, *, later: bool = False) -> dict[str, object]:
        return use(
            chosen.agents.name, description=prompt, prompt=prompt, run_in_background=later,
            subagent_type="general-purpose",
        )  # fmt: skip

    events: list[LiveEvent] = []
    play = Play(
        {
            "Main": [[start("Left"), start("Right", later=True), use("echo", text="m")]],
            "Left": [[use("echo", text="l"), use("Nothing")], [start("Deep")]],
            "Deep": [[use("echo", txt="d")]],
            "Right": [[use("echo", text="r")]],
        }
    )
    async with troupe(tmp_path, play, version=version, events=events) as agent:
        await agent.run_to_completion("Main")
        await agent.session.runner.runner_context.workspace.tasks.wait_any()

    live = {
        event.span.id: event.span
        for item in events
        for event in [item.event if isinstance(item, Relayed) else item]
        if isinstance(event, Finished)
    }
    read = {span.id: span for span in toolspan.history(tmp_path).spans}
    assert live.keys() == read.keys()
    for name, span in live.items():
        output = read[name]
        assert (span.tool, span.state, span.error_kind, span.agent, span.background) == (
            output.tool, output.state, output.error_kind, output.agent, output.background,
        )  # fmt: skip
        assert span.call.agent_id == output.call.agent_id
        assert span.call.parent_call == output.call.parent_call
        assert span.call.arguments == output.call.arguments
        assert (span.result and span.result.text) == (output.result and output.result.text)


async def test_subagent_leaves_a_valid_history(tmp_path: Path) -> None:
    play = Play({"Main": [[give("Left")]], "Left": [[use("hang"), use("echo", text="l")]]})
    async with troupe(tmp_path, play) as agent, anyio.create_task_group() as group:
        group.start_soon(agent.prompt, "Main")
        while not play.spoken["Left"]:
            await anyio.lowlevel.checkpoint()
        agent.session.runner.cancel(CallId(next(iter(agent.session.runner.in_progress))))

    (path,) = agent_files(tmp_path)
    assert check_history(load_history(path)) == []


def git(folder: Path, *text: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", *text],
        cwd=folder, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / "inner").mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "inner" / "a.txt").write_text("alpha\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    return folder


def alone(prompt: str) -> dict[str, object]:
    return use("Agent", description=prompt, prompt=prompt, run_in_background=False, isolation="worktree")


async def test_worktree_subagent_leaves_the_repository_unchanged_and_keeps_its_changes(repository: Path) -> None:
    folder = repository / "inner"
    play = Play({"Main": [[alone("Left")]], "Left": [[use("Bash", command="echo beta > a.txt; pwd")]]})
    async with troupe(folder, play, tools=[bash_tool(profile("2.1.327"))]) as agent:
        await agent.prompt("Main")
        (span,) = agent.session.spans

    assert (folder / "a.txt").read_text() == "alpha\n"
    result = span.result
    assert result is not None
    copy = repository / ".claude" / "worktrees" / f"agent-{span.agent}"
    assert (copy / "inner" / "a.txt").read_text() == "beta\n"
    assert f"worktreePath: {copy}\nworktreeBranch: worktree-agent-{span.agent}" in result.text
    assert f"worktree-agent-{span.agent}" in git(repository, "branch", "--list")
    (about,) = folder.rglob("*.meta.json")
    assert json.loads(about.read_bytes())["worktreePath"] == str(copy)


async def test_unchanged_worktree_is_removed(repository: Path) -> None:
    play = Play({"Main": [[alone("Left")]], "Left": [[use("Bash", command="cat inner/a.txt")]]})
    async with troupe(repository, play, tools=[bash_tool(profile("2.1.327"))]) as agent:
        await agent.prompt("Main")
        (span,) = agent.session.spans

    assert span.result is not None
    assert "worktreePath" not in span.result.text
    assert git(repository, "worktree", "list").count("\n") == 0
    assert "worktree-agent" not in git(repository, "branch", "--list")


async def test_worktree_outside_a_repository_is_an_error(tmp_path: Path) -> None:
    play = Play({"Main": [[alone("Left")]]})
    async with troupe(tmp_path, play) as agent:
        await agent.prompt("Main")
        (span,) = agent.session.spans

    assert (span.state, span.error_kind) == ("failed", "invalid_input")
    assert "is not in a git repository" in (span.message or "")
    assert play.spoken["Left"] == 0
