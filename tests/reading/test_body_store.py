"""Inputs and results read from the file on demand, also after it changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import toolspan
from toolspan.errors import SourceError
from toolspan.formats.source import BytesSource
from toolspan.testing import TranscriptBuilder, claude_results, codex_builder
from toolspan.testing.codex_builder import RolloutBuilder
from toolspan.types.inputs import BashInput, UnknownInput
from toolspan.types.span import Span


def line(kind: str, *blocks: object, **fields: object) -> bytes:
    message = {"role": kind, "content": list(blocks)}
    return json.dumps({"type": kind, "message": message, **fields}).encode() + b"\n"


def spans_of(data: bytes, name: str = "s.jsonl") -> list[Span]:
    return toolspan.read(BytesSource(data, name)).spans


def rewritten(path: Path, *changes: tuple[bytes, bytes]) -> None:
    data = path.read_bytes()
    for old, new in changes:
        assert old in data
        assert len(old) == len(new)
        data = data.replace(old, new)
    path.write_bytes(data)


@pytest.fixture
def claude(tmp_path: Path) -> Path:
    builder = TranscriptBuilder().prompt("go")
    builder.result(builder.call("Bash", {"command": "ls"}, id="toolu_1"), claude_results.ran("a.txt"))
    return builder.write(tmp_path / "s.jsonl")


@pytest.fixture
def codex(tmp_path: Path) -> Path:
    rollout = RolloutBuilder()
    rollout.output(rollout.call("exec_command", {"cmd": "ls"}, id="call_1"), codex_builder.command_output("a.txt"))
    return rollout.write(tmp_path)


@pytest.mark.parametrize(("client", "own"), [("claude", b"toolu_1"), ("codex", b"call_1")])
def test_location_of_another_call_is_an_error_with_its_name(
    client: str, own: bytes, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(client)
    (span,) = toolspan.read(path).spans
    assert span.result is not None
    rewritten(path, (own, own[:-1] + b"9"))

    with pytest.raises(SourceError, match=f"{own.decode()} is no longer there"):
        _ = span.input
    with pytest.raises(SourceError, match=f"{own.decode()} is no longer there"):
        _ = span.result.text


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_location_without_a_record_is_an_error(client: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(client)
    (span,) = toolspan.read(path).spans
    path.write_bytes(b"x" * path.stat().st_size)

    with pytest.raises(SourceError, match="has changed since it was read"):
        _ = span.input


def test_blocks_without_an_id_are_found_by_index() -> None:
    request = [{"type": "tool_use", "name": "Bash", "input": {"command": name}} for name in "ab"]
    output = [{"type": "tool_result", "content": name} for name in "xy"]
    spans = spans_of(line("assistant", *request) + line("user", *output))

    calls = [span for span in spans if span.tool]
    assert [span.input for span in calls] == [BashInput(command="a"), BashInput(command="b")]
    results = [span.result.text for span in spans if span.result]
    assert results == ["x", "y"]


def test_orphan_result_has_an_empty_input() -> None:
    (claude,) = spans_of(TranscriptBuilder().prompt("go").result("toolu_gone", "late").data())
    (codex,) = spans_of(RolloutBuilder().output("call_gone", "late").data(), "rollout-x.jsonl")

    for orphan in (claude, codex):
        assert (orphan.state, orphan.call.arguments) == ("orphan_result", {})
        assert orphan.result is not None
        assert orphan.result.text == "late"


def test_input_that_is_not_an_object_has_no_arguments() -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": [1]}
    (span,) = spans_of(line("assistant", block))

    assert span.call.arguments == {}
    assert span.input == UnknownInput(data=b"[1]")


def test_body_of_a_damaged_line_is_read_as_far_as_possible() -> None:
    builder = TranscriptBuilder().prompt("go")
    builder.result(builder.call("Bash", {"command": "XX"}), claude_results.ran("YY"))
    (span,) = spans_of(builder.data().replace(b"XX", b"l\xff").replace(b"YY", b"a\xff"))

    assert span.call.arguments == {"command": "l\ufffd"}
    assert span.result is not None
    assert span.result.text == "a\ufffd"


def test_bodies_of_a_damaged_rollout_line_are_read() -> None:
    rollout = RolloutBuilder()
    rollout.output(rollout.call("exec_command", {"cmd": "XX"}), codex_builder.command_output("YY"))
    data = rollout.data().replace(b"XX", b"l\xff").replace(b"YY", b"a\xff")
    (span,) = spans_of(data, "rollout-x.jsonl")

    assert span.call.arguments == {"cmd": "l\ufffd"}
    assert span.result is not None
    assert span.result.text.endswith("a\ufffd")


def test_item_with_its_own_outcome_is_its_result() -> None:
    rollout = RolloutBuilder()
    search = {"type": "web_search_call", "status": "failed", "action": {"query": "milk"}}
    rollout.item({**search, "id": "ws_1"})
    rollout.item({"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "x"})
    failed, drawn = spans_of(rollout.data(), "rollout-x.jsonl")

    assert (failed.tool, failed.state, failed.error_kind) == ("web_search", "failed", "unknown")
    assert failed.call.arguments == {"query": "milk"}
    assert failed.result is not None
    assert failed.result.content == {"query": "milk"}  # nothing else was written of it
    assert (drawn.tool, drawn.state, drawn.call.arguments) == ("image_generation", "succeeded", {})
    assert drawn.result is not None
    assert drawn.result.content == "x"


def test_output_without_content_is_empty() -> None:
    rollout = RolloutBuilder()
    call = rollout.call("exec_command", {"cmd": "true"})
    rollout.item({"type": "function_call_output", "call_id": call})
    (span,) = spans_of(rollout.data(), "rollout-x.jsonl")

    assert span.result is not None
    assert (span.result.content, span.result.text) == ("", "")


def test_lone_surrogate_in_an_input_is_kept() -> None:
    builder = TranscriptBuilder().prompt("go")
    builder.call("Bash", {"command": "XX", "share": 1.5})
    (span,) = spans_of(builder.data().replace(b"XX", b"\\ud83d"))

    assert span.call.arguments == {"command": "\ud83d", "share": 1.5}


def test_numbers_in_arguments_are_plain_numbers_in_both_formats() -> None:
    builder = TranscriptBuilder().prompt("go")
    builder.call("Bash", {"share": 1.5})
    rollout = RolloutBuilder()
    rollout.call("exec_command", {"share": 1.5})

    (claude,), (codex,) = spans_of(builder.data()), spans_of(rollout.data(), "rollout-x.jsonl")

    for span in (claude, codex):
        assert span.call.arguments == {"share": 1.5}
        assert type(span.call.arguments["share"]) is float
