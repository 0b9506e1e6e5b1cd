"""Active, compacted and abandoned branches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolspan
from tests.requirement import requirement
from toolspan.formats.claude.reader import ClaudeReader
from toolspan.testing import TranscriptBuilder, claude_results


def ask(story: TranscriptBuilder, name: str) -> TranscriptBuilder:
    return story.result(story.call("Bash", {"command": "ls"}, id=name), claude_results.ran("x"))


def branches(story: TranscriptBuilder, tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "s.jsonl"
    path.write_bytes(story.data())
    return {span.id: span.branch for span in toolspan.read(path).spans}


@requirement("tree.one-chain-is-active")
@pytest.mark.parametrize("version", ["1.0.60", "2.0.65", "2.1.80", "2.1.325"])
def test_linear_conversation_is_active(version: str, tmp_path: Path) -> None:
    builder = TranscriptBuilder(version=version).prompt("go")
    ask(ask(builder, "a").text("and"), "b").text("done").prompt("more").text("yes")

    assert branches(builder, tmp_path) == {"a": "active", "b": "active"}


@requirement("tree.rewind-abandons")
def test_calls_after_a_rewind_are_abandoned(tmp_path: Path) -> None:
    builder = ask(TranscriptBuilder().prompt("go"), "before").text("ready")
    there = builder.last
    ask(builder.prompt("wrong way"), "wrong").text("oh no")
    ask(builder.rewind(there).prompt("right way"), "right").text("yes")

    result = branches(builder, tmp_path)
    assert result == {"before": "active", "wrong": "abandoned", "right": "active"}


@requirement("tree.compaction-parts")
def test_calls_before_a_compaction_are_compacted(tmp_path: Path) -> None:
    builder = ask(TranscriptBuilder().prompt("go"), "first").compact("so far")
    ask(builder, "second").compact("still so far")
    ask(builder, "third").text("done")

    result = branches(builder, tmp_path)
    assert result == {"first": "compacted", "second": "compacted", "third": "active"}


@requirement("tree.compaction-parts")
def test_rewind_before_a_compaction_stays_abandoned(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go").text("ready")
    there = builder.last
    ask(builder.prompt("wrong"), "wrong").text("oh")
    ask(builder.rewind(there).prompt("right"), "right").compact("so far")
    ask(builder, "after").text("done")

    result = branches(builder, tmp_path)
    assert result == {"wrong": "abandoned", "right": "compacted", "after": "active"}


@requirement("tree.parallel-siblings-stay-active")
@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_parallel_calls_stay_active_whichever_ended_last(order: str, tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    for name in "abc":
        builder.call("Bash", {"command": name}, id=name)
    for name in order:
        builder.result(name, claude_results.ran("x"), after_ms=10)
    builder.text("all done")

    assert branches(builder, tmp_path) == {"a": "active", "b": "active", "c": "active"}


@requirement("tree.broken-links-are-survived")
def test_record_with_a_missing_parent_follows_the_previous_record(tmp_path: Path) -> None:
    builder = ask(TranscriptBuilder().prompt("go"), "a").rewind("gone")
    ask(builder.prompt("more"), "b").text("done")

    assert branches(builder, tmp_path) == {"a": "active", "b": "active"}


def looped(links: dict[int, int | None]) -> Iterator[bytes]:
    builder = TranscriptBuilder(version="2.0.65").prompt("go")
    for name in "abcde":
        builder.call("Bash", {"command": name}, id=name)
    lines = [json.loads(line) for line in builder.lines()]
    for line, parent in links.items():
        lines[line]["parentUuid"] = None if parent is None else lines[parent]["uuid"]
    return (json.dumps(line).encode() for line in lines)


@requirement("tree.broken-links-are-survived")
@pytest.mark.parametrize(
    ("links", "circles"),
    [({}, 0), ({0: 0}, 1), ({5: 5}, 1), ({0: 5}, 1), ({1: 3}, 1), ({2: 2, 4: 4}, 2), ({0: 2, 3: 5}, 2)],
)
def test_parent_cycles_neither_hang_nor_lose_calls(links: dict[int, int | None], circles: int, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in looped(links)))

    transcript = toolspan.read(path)

    assert [span.id for span in transcript.spans] == list("abcde")
    assert isinstance(transcript.reader, ClaudeReader)
    assert len(transcript.reader.tree.cycle_lines()) == circles
    assert len(toolspan.check(path).findings) >= 5  # nobody answered the calls


def test_calls_of_inline_subagents_are_active(tmp_path: Path) -> None:
    builder = TranscriptBuilder(version="1.0.60").prompt("go")
    starter = builder.call("Task", {"prompt": "p"}, id="starter")
    ask(builder.agent(starter).prompt("p"), "inner").text("seen")
    builder.result(starter, "seen").text("done")

    assert branches(builder, tmp_path) == {"starter": "active", "inner": "active"}
