"""Trajectories: valid by the rules of the format, and read again without loss."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given

from tests.export.made import BOTH, claude, exported
from tests.export.test_formats import ANYTHING, FEW
from toolspan.formats.source import BytesSource
from toolspan.reading.transcript import Transcript, read
from toolspan.types.span import Span

_AGENT_ONLY = {"model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"}
_KEYS = {
    "trajectory": {
        "schema_version", "session_id", "trajectory_id", "agent", "steps", "notes", "final_metrics",
        "continued_trajectory_ref", "subagent_trajectories", "extra",
    },
    "agent": {"name", "version", "model_name", "tool_definitions", "extra"},
    "step": {
        "step_id", "source", "message", "timestamp", "observation", "is_copied_context", "llm_call_count", "extra",
        *_AGENT_ONLY,
    },
    "call": {"tool_call_id", "function_name", "arguments", "extra"},
    "result": {"source_call_id", "content", "subagent_trajectory_ref", "extra"},
    "metrics": {"prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd", "extra"},
    "totals": {
        "total_prompt_tokens", "total_completion_tokens", "total_cached_tokens", "total_cost_usd", "total_steps",
    },
}  # fmt: skip


def check_trajectory(trajectory: dict[str, Any]) -> None:
    """Check the rules of ATIF 1.8, which refuses unknown keys."""
    assert trajectory["schema_version"] == "ATIF-v1.8"
    assert set(trajectory) <= _KEYS["trajectory"]
    assert {"name", "version"} <= set(trajectory["agent"]) <= _KEYS["agent"]
    assert set(trajectory["final_metrics"]) <= _KEYS["totals"]
    assert [step["step_id"] for step in trajectory["steps"]] == list(range(1, len(trajectory["steps"]) + 1))
    assert trajectory["steps"]
    for step in trajectory["steps"]:
        check_step(step)
    names = [below["trajectory_id"] for below in trajectory.get("subagent_trajectories", ())]
    assert len(set(names)) == len(names)
    for below in trajectory.get("subagent_trajectories", ()):
        check_trajectory(below)


def check_step(step: dict[str, Any]) -> None:
    assert set(step) <= _KEYS["step"]
    assert isinstance(step["message"], str)
    assert step["source"] == "agent" or not _AGENT_ONLY & set(step)
    if "timestamp" in step:
        datetime.fromisoformat(step["timestamp"])
    calls = step.get("tool_calls", [])
    for call in calls:
        assert {"tool_call_id", "function_name", "arguments"} <= set(call) <= _KEYS["call"]
        assert isinstance(call["arguments"], dict)
    assert set(step.get("metrics", {})) <= _KEYS["metrics"]
    for result in step.get("observation", {}).get("results", ()):
        assert set(result) <= _KEYS["result"]
        assert result["source_call_id"] in {None, *(call["tool_call_id"] for call in calls)}
        assert isinstance(result["content"], str | None)


def read_again(text: str) -> Transcript:
    return read(BytesSource(text.encode(), "session.atif.json"))


def facts(span: Span) -> dict[str, object]:
    result = span.result
    return {
        "id": span.id, "tool": span.tool, "state": span.state, "kind": span.error_kind, "evidence": span.evidence,
        "arguments": span.call.arguments, "requested": span.call.requested_at, "agent": span.call.agent_id,
        "started": span.agent, "ambiguous": span.ambiguous, "synthetic": span.synthetic, "duration": span.duration_ms,
        "result": result and (result.text, result.finished_at, result.is_error, result.exit_code, result.truncated),
    }  # fmt: skip


@FEW
@given(ANYTHING)
def test_every_session_is_a_valid_trajectory(text: str) -> None:
    for make in BOTH:
        check_trajectory(json.loads(exported(make(text))["atif"]))


@FEW
@given(ANYTHING)
def test_calls_are_the_same_when_a_trajectory_is_read_again(text: str) -> None:
    for make in BOTH:
        transcripts = make(text)
        again = read_again(exported(transcripts)["atif"])
        spans = [span for transcript in transcripts for span in transcript.spans]

        assert sorted(map(str, map(facts, again.spans))) == sorted(map(str, map(facts, spans)))
        assert again.tokens == sum((transcript.tokens for transcript in transcripts[1:]), transcripts[0].tokens)


def test_harbor_accepts_the_trajectories() -> None:
    trajectories = pytest.importorskip("harbor.models.trajectories", exc_type=ImportError)

    for make in BOTH:
        document = json.loads(exported(make("some words"))["atif"])
        assert trajectories.Trajectory.model_validate(document).session_id == document["session_id"]


def test_a_reply_is_one_step_with_its_calls_results_and_tokens() -> None:
    document = json.loads(exported(claude("some words"))["atif"])
    (step,) = [step for step in document["steps"] if step.get("reasoning_content")]
    (below,) = document["subagent_trajectories"]
    task = next(
        result
        for step in document["steps"]
        for result in step.get("observation", {}).get("results", ())
        if "subagent_trajectory_ref" in result
    )

    assert (step["source"], step["message"], step["llm_call_count"]) == ("agent", "some words", 1)
    assert [call["function_name"] for call in step["tool_calls"]] == ["Bash"]
    assert step["observation"]["results"][0]["extra"]["toolspan"]["state"] == "succeeded"
    assert step["metrics"]["prompt_tokens"] > 0
    assert task["subagent_trajectory_ref"][0]["trajectory_id"] == below["trajectory_id"]
    assert document["agent"]["name"] == "claude-code"
    assert not [
        call for step in document["steps"] for call in step.get("tool_calls", ()) if call["function_name"] == "Grep"
    ]
