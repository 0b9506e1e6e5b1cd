"""What Codex's outputs say, in all their forms."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.requirement import requirement
from toolspan.formats.codex.calls import CommandOutput, parse_output
from toolspan.testing import codex_builder


def told(output: object) -> CommandOutput:
    return parse_output(Raw(json.dumps(output).encode()))


@requirement("codex.outputs")
@pytest.mark.parametrize("form", [codex_builder.command_output, codex_builder.headed_output, codex_builder.json_output])
@pytest.mark.parametrize("code", [0, 1, 137, -1])
def test_every_header_gives_exit_code_and_duration(form: object, code: int) -> None:
    assert callable(form)
    found = told(form("some words\n", code=code, seconds=1.5))
    assert (found.exit_code, found.wall_ms, found.has_header) == (code, 1500.0, True)
    assert found.running is None
    assert code == 0 or found.text == "some words\n"


@requirement("codex.outputs")
@given(st.text())
def test_words_under_a_header_are_the_tools_own(words: str) -> None:
    for form in (codex_builder.command_output, codex_builder.headed_output, codex_builder.json_output):
        found = told(form(words, code=3))
        assert (found.exit_code, found.text) == (3, words)


def test_a_process_that_goes_on_is_named() -> None:
    assert told(codex_builder.running_output(17, "so far")).running == "17"
    words = "Script running with cell ID 4\nWall time 0.5 seconds\nOutput:\n"
    assert told([{"type": "input_text", "text": words}]).running == "4"


def test_an_array_is_read_as_its_texts() -> None:
    found = told(codex_builder.mcp_output("one", "two"))
    assert found.text == "one\ntwo"
    assert found.has_header
    assert told([{"type": "input_image", "image_url": "data:,"}]).text == "[input_image]"


def test_an_object_may_carry_a_flag() -> None:
    found = told({"content": "no", "success": False})
    assert (found.text, found.flag) == ("no", False)


def test_a_patch_inside_a_command_has_a_header_inside_the_header() -> None:
    inner = codex_builder.headed_output("Success. Updated the following files:\nA x\n", code=0)
    found = told(f"Wall time: 0.1000 seconds\nOutput:\n{inner}")
    assert found.exit_code == 0
    assert found.text.startswith("Success.")


@pytest.mark.parametrize(
    "words",
    [
        "Warning: truncated output (original token count: 27224)\nTotal output lines: 20000\n\nx",
        "head\n[... omitted 20 of 90 lines ...]\ntail",
        "head…1234 tokens truncated…tail",
        "head\n\n[Output truncated after 256 lines: too many lines or bytes.]",
    ],
)
@requirement("codex.outputs")
def test_marks_of_cut_output_are_seen(words: str) -> None:
    for form in (codex_builder.command_output, codex_builder.json_output):
        assert told(form(words)).truncated
    assert not told(codex_builder.command_output("all of it")).truncated
    quoted = "[Output truncated after 256 lines: too many lines or bytes.] is how it ends"
    assert not told(codex_builder.json_output(quoted)).truncated


def test_what_is_no_header_stays_as_it_is() -> None:
    for words in ("Plan updated", "Exit codes: many", '{"output": 7}', '{"results": []}', ""):
        found = told(words)
        assert (found.text, found.exit_code, found.has_header) == (words, None, False)
