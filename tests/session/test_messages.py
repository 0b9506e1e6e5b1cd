"""The message history of a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.requirement import requirement
from toolspan import Permissions, Session, tool

pytestmark = pytest.mark.anyio


@tool
def peek() -> list[dict[str, object]]:
    """Look."""
    return [{"type": "text", "text": "a flower"}]


def blocks_of(session: Session) -> list[list[Any]]:
    return [content for message in session.messages if isinstance(content := message["content"], list)]


@requirement("session.copy")
async def test_changing_messages_does_not_change_the_history(tmp_path: Path) -> None:
    text: list[dict[str, object]] = [{"type": "text", "text": "go"}]
    block = {"type": "tool_use", "id": "a", "name": "peek", "input": {}}
    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, tools=[peek], transcript=None) as session:
        session.say(text)
        await session.run({"role": "assistant", "content": [block]})
        before = session.messages
        for blocks in blocks_of(session):
            blocks[-1]["cache_control"] = {"type": "ephemeral"}
            blocks.append({"type": "text", "text": "more"})
        blocks_of(session)[-1][0]["content"][0]["text"] = "a weed"
        text[0]["text"] = "stop"

        assert session.messages == before
        assert before[0]["content"] == [{"type": "text", "text": "go"}]


@requirement("session.copy")
async def test_history_passed_by_the_caller_is_not_modified(tmp_path: Path) -> None:
    block: dict[str, object] = {"type": "text", "text": "before"}
    history = [{"role": "user", "content": [block]}, {"role": "assistant", "content": [block]}]
    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, history=history, transcript=None) as session:
        block["text"] = "after"

        assert [item[0]["text"] for item in blocks_of(session)] == ["before", "before"]


@requirement("session.prompt")
@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("  ", "must not be empty"),
        ([], "must not be empty"),
        (None, "must not be empty"),
        (5, "not int"),
        ({"type": "text", "text": "a"}, "not dict"),
        (["a"], "each with its type"),
        ([{"type": "text", "text": 5}], "must be a string"),
        ([{"type": "text", "text": ""}], "empty"),
        ([{"type": "tool_result", "tool_use_id": "a"}], "must not contain a tool_result"),
    ],
)
async def test_invalid_prompt_is_refused(tmp_path: Path, content: Any, why: str) -> None:
    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, transcript=None) as session:
        with pytest.raises(ValueError, match=why):
            session.say(content)
        with pytest.raises(ValueError, match=why):
            await session.submit(content)

        assert session.messages == []
