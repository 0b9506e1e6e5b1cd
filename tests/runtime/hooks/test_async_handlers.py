"""Asynchronous handlers, exported variables and folder changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.requirement import requirement
from tests.runtime.hooks.hook_sessions import at, command, hooks, tool_event
from toolspan import Permissions
from toolspan.runtime.hooks import Hooks, combine_hooks
from toolspan.runtime.hooks.events import SessionHookEvent
from toolspan.runtime.hooks.load import HookServices, load_hooks
from toolspan.runtime.hooks.merge import HandlerRun
from toolspan.runtime.hooks.protocol import HookOutput, HookOutputParser, HookResponse
from toolspan.runtime.hooks.session_state import AsyncHandlers
from toolspan.runtime.profiles import profile
from toolspan.runtime.settings import SettingsLayer, merge_settings
from toolspan.runtime.settings.load import parse_settings
from toolspan.session import Session
from toolspan.tools import bash_tool
from toolspan.types.decision import Deny

pytestmark = pytest.mark.anyio
PROMPT = SessionHookEvent(point="UserPromptSubmit", fields={"prompt": "x"})


NOTICE = """\
<task-notification>
<summary>Stop hook feedback</summary>
</task-notification>
<system-reminder>
Stop hook blocking error from command "{}": {}
</system-reminder>"""


@requirement("hooks.async-rewake")
async def test_async_handler_that_objects_wakes_the_model_with_its_message(tmp_path: Path) -> None:
    line = "echo words; echo the build broke >&2; exit 2"
    block = at("PostToolUse", command(line, asyncRewake=True))
    async with hooks(tmp_path, block) as runner:
        after = await runner.run_post_tool_use(tool_event(folder=tmp_path))
        requested = await runner.wait_for_wake_request()
        wake = await runner.collect_wake_requests()
        second = await runner.wait_for_wake_request()

    assert (after.feedback, after.contexts) == ((), ())
    assert wake.wake_messages == (NOTICE.format("PostToolUse:Bash", "the build broke\n"),)
    assert [(report.point, report.exit_code) for report in wake.reports] == [("PostToolUse", 2)]
    assert (requested, second) == (True, False)


@requirement("hooks.async-rewake")
async def test_wake_message_is_stdout_if_stderr_is_empty(tmp_path: Path) -> None:
    block = at("PreToolUse", command("echo printed; exit 2", asyncRewake=True))
    async with hooks(tmp_path, block) as runner:
        before = await runner.run_pre_tool_use(tool_event(folder=tmp_path))
        while not runner.has_wake_request:
            await anyio.lowlevel.checkpoint()
        batch = await runner.run_post_tool_batch([])

    assert before.decision is None
    assert batch.wake_messages == (NOTICE.format("PreToolUse:Bash", "printed\n"),)
    assert (batch.contexts, batch.stop) == ((), None)


@requirement("hooks.async-rewake")
async def test_async_handler_with_another_exit_code_does_not_wake_the_model(tmp_path: Path) -> None:
    async_handlers = command("exit 1", asyncRewake=True)
    async with hooks(tmp_path, at("PreToolUse", async_handlers, command("true"))) as runner:
        await runner.run_pre_tool_use(tool_event(folder=tmp_path))
        requested = await runner.wait_for_wake_request()
        batch = await runner.run_post_tool_batch([])

    assert (requested, batch.wake_messages) == (False, ())
    assert [report.outcome for report in batch.reports] == ["error"]


@dataclass
class Endless:
    """A handler that runs on until it is ended."""

    exit_code: int | None = None

    async def wait_for_output(self) -> HookOutput:
        await anyio.sleep_forever()
        return HookOutput()

    async def terminate(self) -> None:
        self.exit_code = 143


@requirement("hooks.async-rewake")
async def test_async_handler_past_its_timeout_is_terminated() -> None:
    now = 0.0
    endless = Endless()
    async_handlers = AsyncHandlers(clock=lambda: now)
    run = HandlerRun(
        point="Stop", name="Stop", command="x", source="user", output=HookOutput(), response=HookResponse(),
        duration_ms=0.0, timeout_ms=5_000.0,
    )  # fmt: skip
    async_handlers.add(run, endless, HookOutputParser("Stop", "x", "", profile().hooks), wakes_model=True)
    before = await async_handlers.collect_finished()
    now = 6.0
    await async_handlers.wait_for_wake_request()
    ended = await async_handlers.collect_finished()

    assert before == []
    assert [report.output.status for report in ended] == ["timed_out"]
    assert endless.exit_code == 143


async def test_context_of_an_async_handler_is_added_later_and_its_decision_ignored(tmp_path: Path) -> None:
    output = {
        "continue": False,
        "decision": "block",
        "systemMessage": "for you",
        "hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "slow facts"},
    }
    (tmp_path / "answer").write_text(json.dumps(output), encoding="utf-8")
    block = {**at("PostToolUse", {**command("cat answer"), "async": True}), **at("UserPromptSubmit", command("true"))}
    async with hooks(tmp_path, block) as runner:
        await runner.run_post_tool_use(tool_event(folder=tmp_path))
        payload = await runner.run_session_event(PROMPT)
        while not payload.contexts:
            payload = await runner.run_session_event(PROMPT)

    assert payload.contexts == ("slow facts",)
    assert (payload.feedback, payload.stop) == ((), None)
    assert [report.text for report in payload.reports if report.outcome == "message"] == ["for you"]


@pytest.mark.parametrize("kind", ["prompt", "agent"])
async def test_prompt_handler_without_a_model_fails_and_blocks_nothing(tmp_path: Path, kind: str) -> None:
    whom = "agent" if kind == "agent" else "model"
    async with hooks(tmp_path, at("PreToolUse", {"type": kind, "prompt": "ok?"})) as runner:
        before = await runner.run_pre_tool_use(tool_event(folder=tmp_path))

    assert before.decision is None
    assert [(report.outcome, report.text) for report in before.reports] == [
        ("error", f"Failed to run: there is no {whom} to ask here")
    ]


async def test_refusal_of_an_agent_hook_is_sent_to_the_model(tmp_path: Path) -> None:
    request: list[str] = []

    async def agent(prompt: str, model: str | None) -> str:
        request.append(f"{model}: {prompt.splitlines()[0]}")
        return 'I looked around. {"ok": false, "reason": "tests are red"}'

    handlers = [
        {"type": "agent", "prompt": "Are the tests green?", "model": "small"},
        {"type": "prompt", "prompt": "Are the tests green?"},
    ]
    services = HookServices(ask_agent=agent)
    async with hooks(tmp_path, at("PreToolUse", *handlers), services=services) as runner:
        before = await runner.run_pre_tool_use(tool_event(folder=tmp_path))

    assert request == ["small: Are the tests green?"]
    assert before.decision == Deny("tests are red", "hook")
    assert before.stop is None
    assert [report.outcome for report in before.reports] == ["blocked", "error"]


def session(folder: Path, block: Mapping[str, object]) -> Session:
    layer = SettingsLayer("user", folder / "s.json", parse_settings({"hooks": block}, "s.json"), {})
    loaded = load_hooks(merge_settings([layer], trusted=True), profile())
    return Session(
        permissions=Permissions.allow_all(),
        cwd=folder,
        tools=[bash_tool(profile())],
        hooks=loaded.hooks,
        transcript=folder / "t.jsonl",
    )


async def output(conversation: Session, line: str) -> object:
    number = len(conversation.spans)
    block = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {"command": line}}
    await conversation.run({"role": "assistant", "content": [block]})
    result = conversation.spans[-1].result
    assert result is not None
    return result.content


async def test_variables_exported_at_session_start_are_set_for_later_commands(tmp_path: Path) -> None:
    lines = 'export A="one two"\nB=$A-three\nexport PATH="$PATH:/extra"\necho noise\n'
    (tmp_path / "lines").write_text(lines, encoding="utf-8")
    block = at(
        "SessionStart",
        command('cat lines >> "$CLAUDE_ENV_FILE"'),
        command('echo "export A=last" >> "$CLAUDE_ENV_FILE"'),
        command('echo "if (" >> "$CLAUDE_ENV_FILE"'),
    )
    async with session(tmp_path, block) as conversation:
        payload = await output(conversation, 'echo "$A/$B/${PATH##*:}/$CLAUDE_ENV_FILE"')

    assert payload == "last/one two-three//extra/"
    assert not list(tmp_path.glob("**/hook-env"))


@requirement("hooks.folder-change")
async def test_leaving_a_folder_fires_hooks_and_restores_its_variables(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a/.env").write_text("export HERE=a ONLY=a\n", encoding="utf-8")
    (tmp_path / "b/.env").write_text("export HERE=b\n", encoding="utf-8")
    root = f"'{tmp_path}'"
    line = f'cat >> {root}/input; cat .env >> "$CLAUDE_ENV_FILE"; echo no >&2; exit 2'
    show = 'echo "$HERE/$ONLY"'
    async with session(tmp_path, at("CwdChanged", command(line))) as conversation:
        first = await output(conversation, f"cd a; {show}")
        payload = [await output(conversation, f"{show}{move}") for move in ("; cd ../b", "")]

    assert [first, *payload] == ["/", "a/a", "b/"]
    rows = (tmp_path / "input").read_text(encoding="utf-8").splitlines()
    assert [(row["old_cwd"], row["new_cwd"]) for row in map(json.loads, rows)] == [
        (str(tmp_path), str(tmp_path / "a")),
        (str(tmp_path / "a"), str(tmp_path / "b")),
    ]
    assert conversation.stopped is None


@requirement("hooks.async-rewake")
async def test_first_wake_request_of_several_runners_wakes_the_model(tmp_path: Path) -> None:
    quick = at("PostToolUse", command("echo now >&2; exit 2", asyncRewake=True))
    never = at("PostToolUse", command("sleep 600", asyncRewake=True))
    async with hooks(tmp_path, never) as report, hooks(tmp_path, quick) as other:
        combined = combine_hooks(Hooks(), report, other)
        await combined.run_post_tool_use(tool_event(folder=tmp_path))
        requested = await combined.wait_for_wake_request()
        wake = await combined.collect_wake_requests()

    assert (requested, combined.has_wake_request) == (True, False)
    assert wake.wake_messages == (NOTICE.format("PostToolUse:Bash", "now\n"),)
