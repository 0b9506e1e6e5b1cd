"""Hook points fired by tasks, folder changes, denials and failures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import pytest

from tests.requirement import requirement
from tests.runtime.hooks.hook_sessions import at, command, says
from toolspan.runtime.hooks import Hooks
from toolspan.runtime.hooks.events import HookRunner, SessionHookEvent
from toolspan.runtime.hooks.load import load_hooks
from toolspan.runtime.permissions import PolicyStack
from toolspan.runtime.permissions.decide import Policy
from toolspan.runtime.permissions.modes import mode_policy
from toolspan.runtime.profiles import profile
from toolspan.runtime.settings import SettingsLayer, merge_settings
from toolspan.runtime.settings.load import parse_settings
from toolspan.runtime.tool import Tool, tool
from toolspan.session import Agent, Session
from toolspan.testing import ScriptedModel, fail, say
from toolspan.tools import coding_tools
from toolspan.types.events import HookRan, LiveEvent
from toolspan.types.work_results import TaskUpdateResult

pytestmark = pytest.mark.anyio
VERSION = "2.1.327"
"""The newest profile that offers the task list to every model."""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)


def handlers(block: Mapping[str, object], version: str = VERSION) -> HookRunner:
    layer = SettingsLayer("user", Path("s.json"), parse_settings({"hooks": block}, "s.json"), {})
    return load_hooks(merge_settings([layer], trusted=True), profile(version)).hooks


class ToolCaller:
    """A session that runs single calls."""

    def __init__(
        self,
        folder: Path,
        hooks: HookRunner,
        tools: Sequence[Tool] = (),
        version: str = VERSION,
        fallback: Policy | None = None,
    ) -> None:
        self.events: list[LiveEvent] = []
        self.session = Session(
            cwd=folder,
            tools=tools or coding_tools(profile(version, model="claude-sonnet-4-5")),
            profile=version,
            hooks=hooks,
            permissions=PolicyStack(fallback=fallback),
            transcript=folder / "t.jsonl",
            sinks=[self.events.append],
        )
        self._number = 0

    async def calls(self, *blocks: tuple[str, Mapping[str, object]]) -> list[tuple[object, bool]]:
        content = []
        for name, arguments in blocks:
            self._number += 1
            call_id = f"c{self._number}"
            content.append({"type": "tool_use", "id": call_id, "name": name, "input": arguments})
        await self.session.run({"role": "assistant", "content": content})
        results = [span.result for span in self.session.spans[-len(blocks) :]]
        return [(event.content, event.is_error is True) for event in results if event is not None]

    async def call(self, name: str, **arguments: object) -> tuple[object, bool]:
        (result,) = await self.calls((name, arguments))
        return result


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@requirement("hooks.task-created")
async def test_task_that_a_hook_blocks_is_removed_from_the_list(tmp_path: Path) -> None:
    line = "cat >> input; echo too vague >&2; exit 2"
    caller = ToolCaller(tmp_path, handlers(at("TaskCreated", command(line), matcher="ignored")))
    async with caller.session:
        refused = await caller.call("TaskCreate", subject="s", description="d")
        listed = await caller.call("TaskList")
        repeated = await caller.call("TaskCreate", subject="s2", description="d2")

    assert refused == (f"TaskCreated hook feedback:\n[{line}]: too vague", True)
    assert listed == ("No tasks found", False)
    assert repeated[1] is True
    first, second = rows(tmp_path / "input")
    assert {key: first[key] for key in list(first)[3:]} == {
        "hook_event_name": "TaskCreated",
        "task_id": "1",
        "task_subject": "s",
        "task_description": "d",
    }
    assert "permission_mode" not in first
    assert second["task_id"] == "2"
    ran = [event for event in caller.events if isinstance(event, HookRan)]
    assert [(event.call_id, event.point, event.outcome) for event in ran] == [
        ("c1", "TaskCreated", "blocked"),
        ("c3", "TaskCreated", "blocked"),
    ]


@requirement("hooks.task-completed")
async def test_task_whose_completion_a_hook_blocks_stays_unchanged(tmp_path: Path) -> None:
    block = at("TaskCompleted", says({"decision": "block", "reason": "tests are red"}))
    caller = ToolCaller(tmp_path, handlers(block))
    async with caller.session:
        await caller.call("TaskCreate", subject="s", description="d")
        moved = await caller.call("TaskUpdate", taskId="1", status="in_progress")
        refused = await caller.call("TaskUpdate", taskId="1", status="completed", subject="new")
        structured = caller.session.spans[-1].result
        displayed = await caller.call("TaskGet", taskId="1")
        unknown = await caller.call("TaskUpdate", taskId="9", status="completed")

    text = "TaskCompleted hook feedback:\ntests are red"
    assert moved == ("Updated task #1 status", False)
    assert refused == (text, False)
    assert structured is not None
    assert structured.structured == TaskUpdateResult(success=False, task_id="1", updated_fields=(), error=text)
    assert displayed == ("Task #1: s\nStatus: in_progress\nDescription: d", False)
    assert unknown == ("Task not found", False)


@requirement("hooks.task-completed")
async def test_task_hooks_run_once_per_task_and_functions_run_too(tmp_path: Path) -> None:
    events: list[tuple[str, object]] = []
    hooks = Hooks()
    for point in ("TaskCreated", "TaskCompleted"):

        @hooks.at(point)
        def note(event: SessionHookEvent) -> None:
            events.append((event.point, event.fields["task_subject"]))

    caller = ToolCaller(tmp_path, hooks)
    async with caller.session:
        await caller.call("TaskCreate", subject="s", description="d")
        result = await caller.call("TaskUpdate", taskId="1", status="completed")
        await caller.call("TaskUpdate", taskId="1", status="completed")

    assert result == ("Updated task #1 status", False)
    assert events == [("TaskCreated", "s"), ("TaskCompleted", "s")]


@requirement("hooks.folder-change")
async def test_folder_change_fires_hooks_while_later_calls_run(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    moved = anyio.Event()
    hooks = Hooks()

    @hooks.at("CwdChanged")
    def note(event: SessionHookEvent) -> None:
        payloads.append(dict(event.fields))
        moved.set()

    @tool()
    async def meet() -> str:
        """Wait until the hook ran for the folder."""
        await moved.wait()
        return "met"

    payloads: list[dict[str, object]] = []
    tools = [*coding_tools(profile()), meet]
    caller = ToolCaller(tmp_path, hooks, tools, "2.1.327")
    async with caller.session:
        results = await caller.calls(("Bash", {"command": "cd sub"}), ("meet", {}))

    assert [text for text, _ in results][1:] == ["met"]
    assert payloads == [{"old_cwd": str(tmp_path), "new_cwd": str(tmp_path / "sub")}]


@requirement("hooks.permission-denied")
async def test_hook_may_allow_the_model_to_retry_a_denied_call(tmp_path: Path) -> None:
    output = {"hookSpecificOutput": {"hookEventName": "PermissionDenied", "retry": True}}
    (tmp_path / "answer").write_text(json.dumps(output), encoding="utf-8")
    payloads = command("cat >> input; cat answer", **{"if": "Bash(touch *)"})
    hooks = handlers(at("PermissionDenied", payloads, matcher="Bash"), "2.1.327")
    mode = mode_policy("plan", refusals=profile("2.1.327").refusals)
    caller = ToolCaller(tmp_path, hooks, version="2.1.327", fallback=mode)
    async with caller.session:
        refused = await caller.calls(("Bash", {"command": "touch y"}), ("Bash", {"command": "mkdir z"}))

    assert [is_error for _, is_error in refused] == [True, True]
    (row,) = rows(tmp_path / "input")
    assert (row["tool_name"], row["tool_use_id"]) == ("Bash", "c1")
    assert row["reason"] == "Classifier unavailable"
    assert "The PermissionDenied hook indicated you may retry this tool call." in json.dumps(caller.session.messages)
    assert json.dumps(caller.session.messages).count("indicated you may retry") == 1


@requirement("hooks.stop-failure")
async def test_hooks_run_when_the_model_fails_but_cannot_change_the_outcome(tmp_path: Path) -> None:
    block = {
        **at("StopFailure", command("cat >> input; exit 2"), matcher="rate_limit"),
        **at("Stop", command("touch stopped")),
    }
    caller = ToolCaller(tmp_path, handlers(block))
    async with caller.session:
        agent = Agent(caller.session, ScriptedModel([fail(429), fail(400), say("Well.")]))
        first = await agent.prompt("Go.")
        second = await agent.prompt("Go.")
        assert not (tmp_path / "stopped").exists()
        third = await agent.prompt("Go.")

    assert [event.reason for event in (first, second, third)] == [
        "model_error", "model_error", "completed",
    ]  # fmt: skip
    (row,) = rows(tmp_path / "input")
    assert (row["error"], row["hook_event_name"]) == ("rate_limit", "StopFailure")
    assert row["last_assistant_message"] == first.error


@requirement("hooks.permission-request")
async def test_permission_request_contains_suggested_rules(tmp_path: Path) -> None:
    hooks = handlers(at("PermissionRequest", command("cat >> input")), "2.1.327")
    mode = mode_policy("default", refusals=profile("2.1.327").refusals)
    outside = str(tmp_path.parent / "other" / "x")
    caller = ToolCaller(tmp_path, hooks, version="2.1.327", fallback=mode)
    async with caller.session:
        await caller.call("Write", file_path="n.txt", content="x")
        await caller.call("Write", file_path=outside, content="x")

    accept = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    first, second = (row["permission_suggestions"] for row in rows(tmp_path / "input"))
    assert first == [accept]
    assert isinstance(second, list)
    assert {"type": "addDirectories", "directories": [str(tmp_path.parent / "other")],
            "destination": "session"} in second  # fmt: skip


@requirement("hooks.files")
async def test_changed_file_fires_hooks_before_the_next_call_and_may_set_variables(tmp_path: Path) -> None:
    watch = {"hookEventName": "SessionStart", "watchPaths": [str(tmp_path / "far" / "b.txt")]}
    env = 'cat >> input; cat .envrc >> "$CLAUDE_ENV_FILE"'
    block = {
        **at("SessionStart", says({"hookSpecificOutput": watch})),
        "FileChanged": [
            {"matcher": "nothing.txt|.envrc", "hooks": [command(env)]},
            {"hooks": [command("cat >> all; exit 2")]},
        ],
    }
    (tmp_path / "far").mkdir()
    caller = ToolCaller(tmp_path, handlers(block))
    async with caller.session:
        await caller.call("Bash", command="echo export HERE=one > .envrc; echo > other")
        first = await caller.call("Bash", command="echo $HERE")
        (tmp_path / "far" / "b.txt").touch()
        (tmp_path / ".envrc").write_text("export HERE=two\n", encoding="utf-8")
        second = await caller.call("Bash", command="echo $HERE")
        await caller.call("Bash", command="rm .envrc")

    assert (first, second) == (("one", False), ("two", False))
    payloads = [(str(row["file_path"]), row["event"]) for row in rows(tmp_path / "input")]
    envrc = str(tmp_path / ".envrc")
    assert payloads == [(envrc, "add"), (envrc, "change"), (envrc, "unlink")]
    assert [(str(row["file_path"]), row["event"]) for row in rows(tmp_path / "all")] == [
        (envrc, "add"), (envrc, "change"), (str(tmp_path / "far" / "b.txt"), "add"), (envrc, "unlink"),
    ]  # fmt: skip
    assert caller.session.stopped is None
