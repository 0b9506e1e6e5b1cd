"""Asynchronous handlers that wake the model within a turn, at its end and between turns."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.requirement import requirement
from tests.runtime.hooks.hook_sessions import at, command
from toolspan import Permissions, Session, tool
from toolspan.runtime.hooks.load import load_hooks
from toolspan.runtime.profiles import profile
from toolspan.runtime.settings import SettingsLayer, merge_settings
from toolspan.runtime.settings.load import parse_settings
from toolspan.runtime.tool import Tool
from toolspan.session import Agent
from toolspan.testing import ScriptedModel, check_history, say, use

pytestmark = pytest.mark.anyio
WAKE_TEXT = 'Stop hook blocking error from command "PostToolUse:echo": the build broke\n'


@tool()
async def echo(text: str) -> str:
    """Give the text back."""
    return text


def wake_hook(folder: Path) -> dict[str, object]:
    line = f"until [ -e '{folder}/go' ]; do sleep 0.02; done; echo the build broke >&2; exit 2"
    return at("PostToolUse", command(line, asyncRewake=True), matcher="echo")


def finish_and_wake(folder: Path) -> Callable[[object], object]:
    def last(_messages: object) -> object:
        (folder / "go").touch()
        return say("Done.")

    return last


@asynccontextmanager
async def open_agent(
    folder: Path, script: ScriptedModel, block: dict[str, object], *tools: Tool
) -> AsyncIterator[Agent]:
    layer = SettingsLayer("user", folder / "s.json", parse_settings({"hooks": block}, "s.json"), {})
    loaded = load_hooks(merge_settings([layer], trusted=True), profile())
    session = Session(
        cwd=folder,
        tools=[echo, *tools],
        hooks=loaded.hooks,
        permissions=Permissions.allow_all(),
        transcript=folder / "t.jsonl",
    )
    async with session:
        yield Agent(session, script)
    assert check_history(session.messages) == []


def wake_texts(session: Session) -> list[str]:
    texts = []
    for message in session.messages[1:]:
        content = message["content"]
        for block in content if isinstance(content, list) and message["role"] == "user" else ():
            texts += [str(block["text"])] if block["type"] == "text" else []
    return texts


def lines(folder: Path) -> list[dict[str, object]]:
    text = (folder / "t.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@requirement("hooks.async-rewake")
async def test_wake_request_after_the_last_turn_starts_a_new_one(tmp_path: Path) -> None:
    script = ScriptedModel([[use("echo", text="a")], finish_and_wake(tmp_path), say("I mend it.")])  # type: ignore[list-item]
    async with open_agent(tmp_path, script, wake_hook(tmp_path)) as agent:
        ended = await agent.run_to_completion("Go.")

    assert (ended.reason, ended.text, ended.turns) == ("completed", "I mend it.", 3)
    (text,) = wake_texts(agent.session)
    assert WAKE_TEXT in text
    prompts = [row for row in lines(tmp_path) if row.get("promptId") and "origin" in row]
    assert [row["origin"] for row in prompts] == [{"kind": "task-notification"}]


@requirement("hooks.async-rewake")
async def test_wake_message_within_a_turn_is_added_to_the_results(tmp_path: Path) -> None:
    @tool()
    async def until_woken() -> str:
        """Return once the handler has ended."""
        (tmp_path / "go").touch()
        while not agent.session.runner.runner_context.hooks.has_wake_request:
            await anyio.lowlevel.checkpoint()
        return "now"

    script = ScriptedModel([[use("echo", text="a")], [use("until_woken")], say("I mend it.")])
    async with open_agent(tmp_path, script, wake_hook(tmp_path), until_woken) as agent:
        ended = await agent.run_to_completion("Go.")

    assert (ended.text, ended.turns) == ("I mend it.", 3)
    (text,) = wake_texts(agent.session)
    assert WAKE_TEXT in text
    queued = [row for row in lines(tmp_path) if "queued_command" in json.dumps(row)]
    assert len(queued) == 1


@requirement("hooks.async-rewake")
async def test_session_with_its_own_loop_continues_after_a_wake_request(tmp_path: Path) -> None:
    script = ScriptedModel([])
    reply = {"role": "assistant", "content": [{**use("echo", text="a"), "id": "c1"}]}
    final_reply = {"role": "assistant", "content": [say("Done.")]}
    async with open_agent(tmp_path, script, wake_hook(tmp_path)) as agent:
        session = agent.session
        session.say("Go.")
        await session.run(reply)
        (tmp_path / "go").touch()
        while not session.runner.runner_context.hooks.has_wake_request:
            await anyio.lowlevel.checkpoint()
        continues = await session.run(final_reply)
        ended_again = not await session.run(final_reply)
        woken_again = await session.wait_for_wake()

    assert (continues, ended_again, woken_again) == (True, True, False)
    assert [WAKE_TEXT in text for text in wake_texts(session)] == [True]


@requirement("hooks.async-rewake")
async def test_repeated_wake_requests_are_limited(tmp_path: Path) -> None:
    block = at("Stop", command("echo >> stops; echo again >&2; exit 2", asyncRewake=True))
    script = ScriptedModel([], then=lambda _messages: say("Done."))
    async with open_agent(tmp_path, script, block) as agent:
        ended = await agent.run_to_completion("Go.")

    assert ended.turns == 9
    stops = (tmp_path / "stops").read_text(encoding="utf-8").count("\n")
    assert stops in (8, 9)  # the last one is not awaited
