"""Images of user tools: an unsupported image becomes a sentence for the model."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from tests.requirement import requirement
from toolspan import Output, Permissions, Session, ToolContext, tool
from toolspan.testing import check_history

pytestmark = pytest.mark.anyio
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SVG = base64.b64encode(b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>').decode()


def image(**source: object) -> dict[str, object]:
    return {"type": "image", "source": source}


async def shown(block: dict[str, object], folder: Path) -> list[dict[str, object]]:
    """Return the blocks that the model gets from a tool that returns this block after some text."""

    @tool
    async def draw(ctx: ToolContext) -> Output:
        """Draw."""
        return Output([{"type": "text", "text": "Here:"}, block])

    async with Session(permissions=Permissions.allow_all(), cwd=folder, tools=[draw], transcript=None) as session:
        session.say("Draw.")
        await session.run(
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "draw", "input": {}}]}
        )
        assert check_history(session.messages) == []
        content: Any = session.messages[-1]["content"]
        (result,) = content
        assert not result.get("is_error")
        text, *rest = result["content"]
        assert text == {"type": "text", "text": "Here:"}
        return list(rest)


@requirement("run.images")
@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (image(type="base64", media_type="image/svg+xml", data=SVG), "image/svg+xml is not a type that models accept"),
        (image(type="base64", media_type="image/png", data=SVG), "an SVG drawing, not image/png"),
        (image(type="base64", media_type="image/png", data="not base64!"), "not valid base64"),
        (image(type="base64", media_type="image/png", data=PIXEL[:-3]), "not valid base64"),
        (image(type="base64", media_type="image/png", data=""), "its data is empty"),
        (
            image(type="base64", media_type="image/png", data=f"data:image/png;base64,{PIXEL}"),
            "without the data: prefix",
        ),
        (image(type="base64", media_type="image/png", data="AAAA" * (2 << 20)), "models accept 5MB"),
        (image(type="base64", data=PIXEL), "None is not a type"),
        (image(type="url", url="file:///home/me/secret.png"), "must begin with https://"),
        (image(type="url"), "must begin with https://"),
        (image(type="path", path="a.png"), "base64, url or file, not 'path'"),
        (image(type="file"), "needs a file_id"),
        ({"type": "image", "source": "a.png"}, "its source must be an object"),
        (
            {"type": "document", "source": {"type": "base64", "media_type": "text/html", "data": "aGk="}},
            "text/html is not a type that models accept",
        ),
    ],
)
async def test_unsupported_image_is_replaced_with_the_reason(
    block: dict[str, object], reason: str, tmp_path: Path
) -> None:
    (left_out,) = await shown(block, tmp_path)
    assert left_out["type"] == "text"
    assert str(left_out["text"]).startswith(f"[{block['type']} left out: ")
    assert reason in str(left_out["text"])


@requirement("run.images")
@pytest.mark.parametrize(
    "block",
    [
        image(type="base64", media_type="image/png", data=PIXEL),
        image(type="url", url="https://example.com/a.png"),
        image(type="file", file_id="file_1"),
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}},
    ],
)
async def test_supported_image_is_sent_unchanged(block: dict[str, object], tmp_path: Path) -> None:
    assert await shown(block, tmp_path) == [block]
