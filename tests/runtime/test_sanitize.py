"""Tool output is sanitized before it is sent to the model."""

from __future__ import annotations

import enum
import json
import math
from collections import UserDict
from dataclasses import replace

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.requirement import requirement
from tests.runtime.calls import call
from toolspan.runtime.output_limits import UnfitOutputError, sanitize_content, sanitize_json, sanitize_text
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import Output, tool
from toolspan.testing import check_history

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


@requirement("outbound.json")
@given(ANY_JSON)
def test_every_return_value_can_be_recorded(value: object) -> None:
    fitted = sanitize_json(value)

    written = json.dumps(fitted, allow_nan=False).encode()
    assert msgspec.json.decode(msgspec.json.encode(fitted)) == json.loads(written) == fitted


@requirement("outbound.halves")
@pytest.mark.anyio
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

    with anyio.fail_after(5):
        (result,) = await Runner([cut]).run([call("a", "cut")])

    assert result.text == read


@requirement("outbound.json")
def test_values_of_custom_classes_become_plain() -> None:
    given_value = {Odd("k"): [Odd("v"), Number(1.5), Colour.RED, (1, 2), UserDict({"a": 1})]}

    fitted = sanitize_json(given_value)

    assert fitted == {"k": ["v", 1.5, 1, [1, 2], {"a": 1}]}
    assert msgspec.json.encode(fitted) == b'{"k":["v",1.5,1,[1,2],{"a":1}]}'
    assert sanitize_json([math.nan, math.inf]) == [None, None]


@requirement("outbound.json")
@pytest.mark.parametrize("value", [b"x", bytearray(b"x"), memoryview(b"x"), {1, 2}, object(), int])
def test_value_without_json_form_is_refused(value: object) -> None:
    with pytest.raises(UnfitOutputError):
        sanitize_json({"inside": [value]})


@requirement("outbound.text")
@given(ANY_TEXT)
def test_text_is_sanitized_and_otherwise_unchanged(text: str) -> None:
    cleaned = sanitize_text(text)

    cleaned.encode()
    assert cleaned == text or any("\ud800" <= letter <= "\udfff" for letter in text)


@requirement("outbound.blocks")
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


@requirement("outbound.blocks")
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


@requirement("outbound.empty")
@pytest.mark.parametrize("content", ["", " \n", [], [{"type": "text", "text": " "}]])
def test_blank_content_is_empty(content: object) -> None:
    assert not sanitize_content(content)


@pytest.mark.anyio
@requirement("outbound.empty")
async def test_tool_without_output_is_reported_as_completed() -> None:
    @tool
    async def quiet() -> None:
        return None

    with anyio.fail_after(5):
        (result,) = await Runner([quiet]).run([call("a", "quiet")])

    assert result.text == "(quiet completed with no output)"


@pytest.mark.anyio
@requirement("outbound.blocks")
async def test_output_that_cannot_be_sent_is_an_error_for_the_model() -> None:
    @tool
    async def odd() -> None:
        return None

    async def run(value: object, ctx: object) -> Output:
        return Output([{"type": "audio", "data": ""}])

    with anyio.fail_after(5):
        (finished,) = await Runner([replace(odd, run=run)]).finish([call("a", "odd")])

    assert finished.span.state == "failed"
    assert "a block of type 'audio'" in str(finished.content)
