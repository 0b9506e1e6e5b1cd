"""Replies of other APIs are refused with a message that names the adapter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.requirement import requirement
from toolspan import Permissions, Session, tool
from toolspan.runtime.runner import Runner

pytestmark = pytest.mark.anyio
CALL = {"id": "call_1", "type": "function", "function": {"name": "echo", "arguments": '{"text": "hi"}'}}
MESSAGE: dict[str, object] = {"role": "assistant", "content": "I echo.", "tool_calls": [CALL]}
CHOICE = {"index": 0, "finish_reason": "tool_calls", "message": MESSAGE}
REPLIES: list[dict[str, object]] = [
    {"id": "chatcmpl-1", "object": "chat.completion", "choices": [CHOICE]},
    MESSAGE,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "assistant", "content": "", "function_call": CALL["function"]},
    {"object": "response", "output": [{"type": "function_call", "call_id": "c", "name": "echo", "arguments": "{}"}]},
]


@tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


class SdkReply:
    """An SDK object, which is a pydantic model."""

    def __init__(self, fields: dict[str, object]) -> None:
        self.fields = fields

    def model_dump(self, *, mode: str, exclude_none: bool) -> dict[str, object]:
        return self.fields


@requirement("session.foreign-reply")
@pytest.mark.parametrize("reply", REPLIES)
async def test_openai_reply_is_refused_and_the_adapter_named(reply: dict[str, object], tmp_path: Path) -> None:
    session = Session(permissions=Permissions.allow_all(), cwd=tmp_path, tools=[echo], transcript=None)
    async with session:
        session.say("Go.")
        for fields in (reply, SdkReply(reply)):
            with pytest.raises(TypeError, match=r"OpenAI.*make_model"):
                await session.run(fields)
        with pytest.raises(TypeError, match=r"OpenAI.*make_model"):
            await Runner([echo]).run(reply)
        assert len(session.messages) == 1
        assert await session.run(  # the session still works
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "echo", "input": {"text": "hi"}}]}
        )
