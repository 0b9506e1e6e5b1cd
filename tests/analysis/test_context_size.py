"""`toolspan usage --context`: the results that fill the context."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.command import rows, run
from toolspan.analysis import context_by_tool, join_context
from toolspan.analysis.context_size import CONTEXT
from toolspan.reading.facts import single_job
from toolspan.testing import TranscriptBuilder, claude_results


def context_rows(*arguments: str | Path) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    result = rows(run("usage", "--context", *arguments, "--json"))
    return {row["tool"]: row for row in result if row["row"] == "tool"}, [row for row in result if row["row"] == "call"]


def run_command(builder: TranscriptBuilder, output: str) -> str:
    call = builder.call("Bash", {"command": "x"})
    builder.result(call, claude_results.ran(output), after_ms=10)
    return call


def answer(builder: TranscriptBuilder, replies: int) -> TranscriptBuilder:
    for n in range(replies):
        builder.wait(10).text(f"reply {n}", message=f"msg_reply_{builder.session_id}_{n}").prompt("more", after_ms=10)
    return builder


def test_a_result_stays_until_the_session_ends(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    call = run_command(builder, "x" * 400)
    answer(builder, 3)

    tools, calls = context_rows(builder.write(tmp_path / "s.jsonl"))

    assert [(row["call"], row["bytes"], row["estimated_tokens"], row["requests"]) for row in calls] == [
        (call, 400, 100, 3)
    ]
    assert tools["Bash"]["resent_tokens"] == 300


def test_a_result_stays_until_the_next_compaction(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    first = run_command(builder, "x" * 40)
    second = run_command(builder.wait(10), "y" * 80)
    builder.wait(10).compact("summary of it").wait(10)
    third = run_command(builder.wait(10), "z" * 120)
    answer(builder, 2)

    _, calls = context_rows(builder.write(tmp_path / "s.jsonl"))

    assert {row["call"]: row["requests"] for row in calls} == {first: 1, second: 0, third: 2}


def test_a_fork_adds_its_own_requests_and_counts_copied_ones_once(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="one").prompt("go")
    call = run_command(builder, "x" * 40)
    answer(builder, 2)
    fork = answer(builder.fork("two"), 3)
    paths = [each.write(tmp_path / f"{each.session_id}.jsonl") for each in (builder, fork)]

    (joined,) = join_context([single_job(CONTEXT).run(str(path)) for path in paths])

    assert (joined.call, joined.requests) == (call, 5)


def test_a_picture_counts_as_tokens_of_a_picture(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 40_000}
    builder.result(builder.call("Read", {"file_path": "/a.png"}), claude_results.read("/a.png", ""))
    record = json.loads(builder.lines()[-1])
    record["message"]["content"][0]["content"] = [{"type": "image", "source": source}]
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"\n".join([*builder.lines()[:-1], json.dumps(record).encode()]) + b"\n")

    (tool,) = context_by_tool(join_context([single_job(CONTEXT).run(str(path))]))

    assert (tool.bytes, tool.estimated_tokens) == (40_000, 1_500)


def test_the_screen_says_that_tokens_are_an_estimate(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    run_command(builder, "x" * 400)
    printed = run("usage", "--context", answer(builder, 1).write(tmp_path / "s.jsonl")).stdout

    assert "≈ tokens" in printed
    assert "estimate" in printed
