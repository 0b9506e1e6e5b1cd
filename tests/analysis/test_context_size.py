"""`toolspan usage --context`: the results that fill the context."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.command import rows, run
from toolspan.analysis import context_by_tool, file_context, join_context
from toolspan.testing import TranscriptBuilder, claude_results


def context_rows(*words: str | Path) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    found = rows(run("usage", "--context", *words, "--json"))
    return {row["tool"]: row for row in found if row["row"] == "tool"}, [row for row in found if row["row"] == "call"]


def run_command(story: TranscriptBuilder, output: str) -> str:
    call = story.call("Bash", {"command": "x"})
    story.result(call, claude_results.ran(output), after_ms=10)
    return call


def answer(story: TranscriptBuilder, replies: int) -> TranscriptBuilder:
    for n in range(replies):
        story.wait(10).text(f"reply {n}", message=f"msg_reply_{story.session_id}_{n}").prompt("more", after_ms=10)
    return story


def test_a_result_stays_until_the_session_ends(tmp_path: Path) -> None:
    story = TranscriptBuilder(session_id="s").prompt("go")
    call = run_command(story, "x" * 400)
    answer(story, 3)

    tools, calls = context_rows(story.write(tmp_path / "s.jsonl"))

    assert [(row["call"], row["bytes"], row["estimated_tokens"], row["requests"]) for row in calls] == [
        (call, 400, 100, 3)
    ]
    assert tools["Bash"]["resent_tokens"] == 300


def test_a_result_stays_until_the_next_compaction(tmp_path: Path) -> None:
    story = TranscriptBuilder(session_id="s").prompt("go")
    first = run_command(story, "x" * 40)
    second = run_command(story.wait(10), "y" * 80)
    story.wait(10).compact("summary of it").wait(10)
    third = run_command(story.wait(10), "z" * 120)
    answer(story, 2)

    _, calls = context_rows(story.write(tmp_path / "s.jsonl"))

    assert {row["call"]: row["requests"] for row in calls} == {first: 1, second: 0, third: 2}


def test_a_fork_adds_its_own_requests_and_counts_copied_ones_once(tmp_path: Path) -> None:
    story = TranscriptBuilder(session_id="one").prompt("go")
    call = run_command(story, "x" * 40)
    answer(story, 2)
    fork = answer(story.fork("two"), 3)
    paths = [each.write(tmp_path / f"{each.session_id}.jsonl") for each in (story, fork)]

    (joined,) = join_context([file_context(str(path)) for path in paths])

    assert (joined.call, joined.requests) == (call, 5)


def test_a_picture_counts_as_tokens_of_a_picture(tmp_path: Path) -> None:
    story = TranscriptBuilder(session_id="s").prompt("go")
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 40_000}
    story.result(story.call("Read", {"file_path": "/a.png"}), claude_results.read("/a.png", ""))
    record = json.loads(story.lines()[-1])
    record["message"]["content"][0]["content"] = [{"type": "image", "source": source}]
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"\n".join([*story.lines()[:-1], json.dumps(record).encode()]) + b"\n")

    (tool,) = context_by_tool(join_context([file_context(str(path))]))

    assert (tool.bytes, tool.estimated_tokens) == (40_000, 1_500)


def test_the_screen_says_that_tokens_are_an_estimate(tmp_path: Path) -> None:
    story = TranscriptBuilder(session_id="s").prompt("go")
    run_command(story, "x" * 400)
    printed = run("usage", "--context", answer(story, 1).write(tmp_path / "s.jsonl")).stdout

    assert "≈ tokens" in printed
    assert "estimate" in printed
