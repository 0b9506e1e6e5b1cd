"""Tool output: sanitized, limited in size, and with supported images only."""

from __future__ import annotations

import base64
import enum
import json
import math
import re
from collections import UserDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.requirement import requirement
from tests.runtime.calls import call
from toolspan import Permissions, Session, ToolContext
from toolspan.errors import ToolError
from toolspan.runtime.context import Workspace
from toolspan.runtime.output_limits import (
    ERROR_LIMIT,
    PREVIEW_CHARS,
    UnfitOutputError,
    format_size,
    sanitize_content,
    sanitize_json,
    sanitize_text,
    spill_text,
    text_preview,
    truncate_middle,
    utf16_length,
)
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import Output, tool
from toolspan.testing import check_history
from toolspan.types.ids import CallId

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("size", "spilled"), [(100, False), (101, True)])
async def test_output_over_the_limit_is_saved_to_a_file(size: int, spilled: bool, tmp_path: Path) -> None:
    @tool(output_limit=100)
    async def talk() -> str:
        return "ä" * size

    workspace = Workspace(project=tmp_path, supervisor=ProcessSupervisor(), folder=tmp_path / "own")
    (result,) = await Runner([talk], workspace=workspace).run([call("toolu_1", "talk")])

    path = tmp_path / "own" / "tool-results" / "toolu_1.txt"
    assert path.exists() is spilled
    if spilled:
        assert path.read_text(encoding="utf-8") == "ä" * size
        assert str(path) in result.text
        assert result.persisted_path == str(path)
        assert f"Preview (first 100 characters):\n{'ä' * 100}\n" in result.text
        assert "ä" * 101 not in result.text  # no more than it may give inline
    else:
        assert result.text == "ä" * size


async def test_image_is_kept_if_the_text_beside_it_is_saved_to_a_file(tmp_path: Path) -> None:
    picture: dict[str, object] = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
    }

    @tool(output_limit=10)
    async def draw() -> Output:
        return Output(content=[{"type": "text", "text": "x" * 11}, picture])

    workspace = Workspace(project=tmp_path, supervisor=ProcessSupervisor(), folder=tmp_path / "own")
    (result,) = await Runner([draw], workspace=workspace).run([call("toolu_1", "draw")])

    content = result.content
    assert isinstance(content, list)
    assert [block["type"] for block in content] == ["text", "image"]
    assert str(tmp_path / "own" / "tool-results" / "toolu_1.txt") in content[0]["text"]


def test_unwritable_file_loses_the_middle_but_not_the_result(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    text, path = spill_text("x" * 30_000, tmp_path / "file" / "in it", CallId("a"))

    assert path is None
    assert len(text) < ERROR_LIMIT + 300
    assert "characters truncated" in text
    assert "The full output could not be saved" in text


def test_id_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    _, path = spill_text("x", tmp_path, CallId("../../" + "a" * 300))

    assert path is not None
    assert path.parent == tmp_path


async def test_long_error_is_cut_in_its_middle() -> None:
    @tool
    async def fails() -> str:
        raise ToolError("a" * 20_000 + "b" * 20_000)

    (result,) = await Runner([fails]).run([call("a", "fails")])

    assert (result.text[0], result.text[-1]) == ("a", "b")
    assert len(result.text) < ERROR_LIMIT + 100


@requirement("output.lengths-in-utf16")
@given(st.text(st.sampled_from("ab\u00e9\U0001f600"), max_size=60), st.integers(0, 40))
def test_short_text_is_not_cut_and_long_text_keeps_both_ends(text: str, limit: int) -> None:
    cut = truncate_middle(text, limit)

    if utf16_length(text) <= limit:
        assert cut == text
    else:
        head, tail = re.split(r"\n\n\.\.\. \[\d+ characters truncated\] \.\.\.\n\n", cut)
        assert text.startswith(head)
        assert text.endswith(tail)
        assert {limit // 2 - utf16_length(head), limit // 2 - utf16_length(tail)} <= {0, 1}
        assert f"[{utf16_length(text) - utf16_length(head + tail)} characters truncated]" in cut


@requirement("output.lengths-in-utf16")
async def test_output_is_as_long_as_the_client_counts(tmp_path: Path) -> None:
    @tool(output_limit=2_000)
    async def fits() -> str:
        return "\U0001f600" * 1_000

    @tool(output_limit=2_000)
    async def spills() -> str:
        return "a" + "\U0001f600" * 1_000

    short, long = await Runner([fits, spills], cwd=tmp_path).run([call("a", "fits"), call("b", "spills")])

    assert short.text == "\U0001f600" * 1_000
    assert long.text.startswith("<persisted-output>\nOutput too large (2KB).")
    assert "\na" + "\U0001f600" * 999 + "\n" in long.text


@given(st.text(st.sampled_from("x\n"), max_size=3 * PREVIEW_CHARS))
def test_preview_is_the_beginning(text: str) -> None:
    displayed = text_preview(text)

    assert text.startswith(displayed)
    assert len(displayed) <= PREVIEW_CHARS


@pytest.mark.parametrize(("size", "text"), [(1024, "1KB"), (108_851, "106.3KB"), (3 * 1024 * 1024, "3MB")])
def test_sizes_are_formatted(size: int, text: str) -> None:
    assert format_size(size) == text


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SVG = base64.b64encode(b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>').decode()


def image(**source: object) -> dict[str, object]:
    return {"type": "image", "source": source}


async def shown_blocks(block: dict[str, object], folder: Path) -> list[dict[str, object]]:
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
    (left_out,) = await shown_blocks(block, tmp_path)
    assert left_out["type"] == "text"
    assert str(left_out["text"]).startswith(f"[{block['type']} omitted: ")
    assert reason in str(left_out["text"])


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
    assert await shown_blocks(block, tmp_path) == [block]


ANY_TEXT = st.text(st.characters(codec=None), max_size=20)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)


class Odd(str):
    __slots__ = ()


class Number(float):
    pass


class Colour(enum.IntEnum):
    RED = 1


@given(ANY_JSON)
def test_every_return_value_can_be_recorded(value: object) -> None:
    fitted = sanitize_json(value)

    written = json.dumps(fitted, allow_nan=False).encode()
    assert msgspec.json.decode(msgspec.json.encode(fitted)) == json.loads(written) == fitted


@pytest.mark.parametrize(
    ("given_text", "read"),
    [
        ("cut \ud83d here", "cut \ufffd here"),
        ("cut \ude00", "cut \ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
    ],
)
async def test_lone_surrogate_is_replaced_and_a_pair_is_joined(given_text: str, read: str) -> None:
    @tool
    def cut() -> str:
        """Give what is cut."""
        return given_text

    (result,) = await Runner([cut]).run([call("a", "cut")])

    assert result.text == read


def test_values_of_custom_classes_become_plain() -> None:
    given_value = {Odd("k"): [Odd("v"), Number(1.5), Colour.RED, (1, 2), UserDict({"a": 1})]}

    fitted = sanitize_json(given_value)

    assert fitted == {"k": ["v", 1.5, 1, [1, 2], {"a": 1}]}
    assert msgspec.json.encode(fitted) == b'{"k":["v",1.5,1,[1,2],{"a":1}]}'
    assert sanitize_json([math.nan, math.inf]) == [None, None]


@pytest.mark.parametrize("value", [b"x", bytearray(b"x"), memoryview(b"x"), {1, 2}, object(), int])
def test_value_without_json_form_is_refused(value: object) -> None:
    with pytest.raises(UnfitOutputError):
        sanitize_json({"inside": [value]})


@given(ANY_TEXT)
def test_text_is_sanitized_and_otherwise_unchanged(text: str) -> None:
    cleaned = sanitize_text(text)

    cleaned.encode()
    assert cleaned == text or any("\ud800" <= letter <= "\udfff" for letter in text)


@given(st.lists(ANY_TEXT.map(lambda text: {"type": "text", "text": text}), max_size=4))
def test_blocks_without_text_are_left_out(blocks: list[dict[str, object]]) -> None:
    content = sanitize_content(blocks) or "nothing"

    result = {"type": "tool_result", "tool_use_id": "a", "content": content}
    use = {"type": "tool_use", "id": "a", "name": "t", "input": {}}
    history = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    assert check_history(history) == []


@pytest.mark.parametrize(
    "content",
    [
        7,
        None,
        b"x",
        {"type": "text", "text": "x"},
        ["x"],
        [{"type": "audio", "data": ""}],
        [{"type": "text"}],
        [{"type": "text", "text": 7}],
        [{"type": "image"}],
        [{"text": "x"}],
        [{"type": ["text"]}],
    ],
)
def test_invalid_content_is_refused(content: object) -> None:
    with pytest.raises(UnfitOutputError):
        sanitize_content(content)


@requirement("result.empty")
@pytest.mark.parametrize("content", ["", " \n", [], [{"type": "text", "text": " "}]])
def test_blank_content_is_empty(content: object) -> None:
    assert not sanitize_content(content)


@requirement("result.empty")
async def test_tool_without_output_is_reported_as_completed() -> None:
    @tool
    async def quiet() -> None:
        return None

    (result,) = await Runner([quiet]).run([call("a", "quiet")])

    assert result.text == "(quiet completed with no output)"


async def test_output_that_cannot_be_sent_is_an_error_for_the_model() -> None:
    @tool
    async def odd() -> None:
        return None

    async def run(value: object, ctx: object) -> Output:
        return Output([{"type": "audio", "data": ""}])

    (finished,) = await Runner([replace(odd, run=run)]).finish([call("a", "odd")])

    assert finished.span.state == "failed"
    assert "a block of type 'audio'" in str(finished.content)
