"""Handlers that run on, handlers that leave variables, and the folder a session goes to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.requirement import requirement
from tests.runtime.hooks.stage import at, command, hooks, moment
from toolspan import Permissions
from toolspan.runtime.hooks import Hooks, combine_hooks
from toolspan.runtime.hooks.configured import AsyncHandlers
from toolspan.runtime.hooks.events import SessionHookEvent
from toolspan.runtime.hooks.handlers import HookOutput
from toolspan.runtime.hooks.load import HookServices, load_hooks
from toolspan.runtime.hooks.merge import HandlerRun
from toolspan.runtime.hooks.response import HookOutputParser, HookResponse
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


@requirement("hooks.rewake")
async def test_a_handler_that_objects_late_wakes_the_model_with_what_it_said(tmp_path: Path) -> None:
    line = "echo words; echo the build broke >&2; exit 2"
    block = at("PostToolUse", command(line, asyncRewake=True))
    with anyio.fail_after(20):
        async with hooks(tmp_path, block) as fired:
            after = await fired.run_post_tool_use(moment(folder=tmp_path))
            called = await fired.wait_for_wake_request()
            woken = await fired.collect_wake_requests()
            again = await fired.wait_for_wake_request()

    assert (after.feedback, after.contexts) == ((), ())
    assert woken.wake_messages == (NOTICE.format("PostToolUse:Bash", "the build broke\n"),)
    assert [(one.point, one.exit_code) for one in woken.reports] == [("PostToolUse", 2)]
    assert (called, again) == (True, False)


@requirement("hooks.rewake")
async def test_without_words_on_its_error_output_what_it_printed_is_told(tmp_path: Path) -> None:
    block = at("PreToolUse", command("echo printed; exit 2", asyncRewake=True))
    with anyio.fail_after(20):
        async with hooks(tmp_path, block) as fired:
            before = await fired.run_pre_tool_use(moment(folder=tmp_path))
            while not fired.has_wake_request:
                await anyio.lowlevel.checkpoint()
            batch = await fired.run_post_tool_batch([])

    assert before.decision is None
    assert batch.wake_messages == (NOTICE.format("PreToolUse:Bash", "printed\n"),)
    assert (batch.contexts, batch.stop) == ((), None)


@requirement("hooks.rewake")
async def test_a_handler_that_ends_otherwise_wakes_nobody(tmp_path: Path) -> None:
    late = command("exit 1", asyncRewake=True)
    with anyio.fail_after(20):
        async with hooks(tmp_path, at("PreToolUse", late, command("true"))) as fired:
            await fired.run_pre_tool_use(moment(folder=tmp_path))
            called = await fired.wait_for_wake_request()
            batch = await fired.run_post_tool_batch([])

    assert (called, batch.wake_messages) == (False, ())
    assert [one.outcome for one in batch.reports] == ["error"]


@dataclass
class Endless:
    """A handler that runs on until it is ended."""

    exit_code: int | None = None

    async def wait_for_output(self) -> HookOutput:
        await anyio.sleep_forever()
        return HookOutput()

    async def terminate(self) -> None:
        self.exit_code = 143


@requirement("hooks.rewake")
async def test_a_handler_whose_time_is_over_is_not_waited_for_and_ended() -> None:
    now = 0.0
    endless = Endless()
    late = AsyncHandlers(clock=lambda: now)
    ran = HandlerRun(
        point="Stop", name="Stop", command="x", source="user", output=HookOutput(), response=HookResponse(),
        duration_ms=0.0, timeout_ms=5_000.0,
    )  # fmt: skip
    late.add(ran, endless, HookOutputParser("Stop", "x", "", profile().hooks), wakes_model=True)
    before = await late.collect_finished()
    now = 6.0
    with anyio.fail_after(5):
        await late.wait_for_wake_request()
        ended = await late.collect_finished()

    assert before == []
    assert [one.output.status for one in ended] == ["timed_out"]
    assert endless.exit_code == 143


@requirement("hooks.async")
async def test_what_an_async_handler_adds_is_told_at_the_next_chance_and_decides_nothing(tmp_path: Path) -> None:
    answer = {
        "continue": False,
        "decision": "block",
        "systemMessage": "for you",
        "hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "slow facts"},
    }
    (tmp_path / "answer").write_text(json.dumps(answer), encoding="utf-8")
    block = {**at("PostToolUse", {**command("cat answer"), "async": True}), **at("UserPromptSubmit", command("true"))}
    with anyio.fail_after(20):
        async with hooks(tmp_path, block) as fired:
            await fired.run_post_tool_use(moment(folder=tmp_path))
            told = await fired.run_session_event(PROMPT)
            while not told.contexts:
                told = await fired.run_session_event(PROMPT)

    assert told.contexts == ("slow facts",)
    assert (told.feedback, told.stop) == ((), None)
    assert [one.text for one in told.reports if one.outcome == "message"] == ["for you"]


@requirement("hooks.agent")
@pytest.mark.parametrize("kind", ["prompt", "agent"])
async def test_a_handler_without_anybody_to_ask_fails_and_stops_nothing(tmp_path: Path, kind: str) -> None:
    whom = "agent" if kind == "agent" else "model"
    with anyio.fail_after(20):
        async with hooks(tmp_path, at("PreToolUse", {"type": kind, "prompt": "ok?"})) as fired:
            before = await fired.run_pre_tool_use(moment(folder=tmp_path))

    assert before.decision is None
    assert [(one.outcome, one.text) for one in before.reports] == [
        ("error", f"Failed to run: there is no {whom} here that could be asked")
    ]


@requirement("hooks.agent")
async def test_an_agent_is_asked_like_a_model_and_its_no_goes_to_the_model(tmp_path: Path) -> None:
    asked: list[str] = []

    async def agent(prompt: str, model: str | None) -> str:
        asked.append(f"{model}: {prompt.splitlines()[0]}")
        return 'I looked around. {"ok": false, "reason": "tests are red"}'

    handlers = [
        {"type": "agent", "prompt": "Are the tests green?", "model": "small"},
        {"type": "prompt", "prompt": "Are the tests green?"},
    ]
    with anyio.fail_after(20):
        means = HookServices(ask_agent=agent)
        async with hooks(tmp_path, at("PreToolUse", *handlers), means=means) as fired:
            before = await fired.run_pre_tool_use(moment(folder=tmp_path))

    assert asked == ["small: Are the tests green?"]
    assert before.decision == Deny("tests are red", "hook")
    assert before.stop is None
    assert [one.outcome for one in before.reports] == ["blocked", "error"]


def session(folder: Path, block: Mapping[str, object]) -> Session:
    layer = SettingsLayer("user", folder / "s.json", parse_settings({"hooks": block}, "s.json"), {})
    made = load_hooks(merge_settings([layer], trusted=True), profile())
    return Session(
        permissions=Permissions.allow_all(),
        cwd=folder,
        tools=[bash_tool(profile())],
        hooks=made.hooks,
        transcript=folder / "t.jsonl",
    )


async def output(conversation: Session, line: str) -> object:
    number = len(conversation.spans)
    block = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {"command": line}}
    await conversation.run({"role": "assistant", "content": [block]})
    result = conversation.spans[-1].result
    assert result is not None
    return result.content


@requirement("hooks.variables")
async def test_what_a_handler_exports_at_the_start_later_commands_find(tmp_path: Path) -> None:
    lines = 'export A="one two"\nB=$A-three\nexport PATH="$PATH:/extra"\necho noise\n'
    (tmp_path / "lines").write_text(lines, encoding="utf-8")
    block = at(
        "SessionStart",
        command('cat lines >> "$CLAUDE_ENV_FILE"'),
        command('echo "export A=last" >> "$CLAUDE_ENV_FILE"'),
        command('echo "if (" >> "$CLAUDE_ENV_FILE"'),
    )
    with anyio.fail_after(30):
        async with session(tmp_path, block) as conversation:
            told = await output(conversation, 'echo "$A/$B/${PATH##*:}/$CLAUDE_ENV_FILE"')

    assert told == "last/one two-three//extra/"
    assert not list(tmp_path.glob("**/hook-env"))


@requirement("hooks.moved")
async def test_going_to_another_folder_is_told_and_its_variables_are_left_behind_with_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a/.env").write_text("export HERE=a ONLY=a\n", encoding="utf-8")
    (tmp_path / "b/.env").write_text("export HERE=b\n", encoding="utf-8")
    root = f"'{tmp_path}'"
    line = f'cat >> {root}/told; cat .env >> "$CLAUDE_ENV_FILE"; echo no >&2; exit 2'
    show = 'echo "$HERE/$ONLY"'
    with anyio.fail_after(30):
        async with session(tmp_path, at("CwdChanged", command(line))) as conversation:
            first = await output(conversation, f"cd a; {show}")
            told = [await output(conversation, f"{show}{move}") for move in ("; cd ../b", "")]

    assert [first, *told] == ["/", "a/a", "b/"]
    rows = (tmp_path / "told").read_text(encoding="utf-8").splitlines()
    assert [(row["old_cwd"], row["new_cwd"]) for row in map(json.loads, rows)] == [
        (str(tmp_path), str(tmp_path / "a")),
        (str(tmp_path / "a"), str(tmp_path / "b")),
    ]
    assert conversation.stopped is None


@requirement("hooks.rewake")
async def test_the_first_of_several_sources_that_wants_to_be_heard_wakes_the_model(tmp_path: Path) -> None:
    quick = at("PostToolUse", command("echo now >&2; exit 2", asyncRewake=True))
    never = at("PostToolUse", command("sleep 600", asyncRewake=True))
    with anyio.fail_after(20):
        async with hooks(tmp_path, never) as one, hooks(tmp_path, quick) as other:
            both = combine_hooks(Hooks(), one, other)
            await both.run_post_tool_use(moment(folder=tmp_path))
            called = await both.wait_for_wake_request()
            woken = await both.collect_wake_requests()

    assert (called, both.has_wake_request) == (True, False)
    assert woken.wake_messages == (NOTICE.format("PostToolUse:Bash", "now\n"),)
