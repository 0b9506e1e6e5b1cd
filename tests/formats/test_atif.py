"""Trajectories of other programs, read."""

from __future__ import annotations

import json
from pathlib import Path

import toolspan
from tests.formats import atif_trajectories as made
from toolspan.formats.jsonl import split_document
from toolspan.formats.registry import format_of_path, parse_file_name
from toolspan.formats.source import BytesSource
from toolspan.reading.timeline import build_timeline
from toolspan.reading.transcript import Transcript, read, read_content


def read_bytes(data: bytes) -> Transcript:
    return read(BytesSource(data, "trial.trajectory.json"))


def test_calls_are_paired_in_their_step_and_times_are_those_of_the_step() -> None:
    transcript = read_bytes(made.document())
    spans = {str(span.id): span for span in transcript.spans}

    assert {name: span.state for name, span in spans.items()} == {
        "c1": "succeeded", "c2": "failed", "c3": "succeeded", "c4": "never_answered", "c5": "succeeded",
    }  # fmt: skip
    assert spans["c2"].error_kind == "not_found"
    assert spans["c1"].call.requested_at == "2026-11-18T12:00:02Z"
    assert spans["c1"].call.message_id == spans["c2"].call.message_id != spans["c3"].call.message_id
    assert (transcript.info.versions, transcript.info.models) == (("1.0",), ("m1",))


def test_subagent_is_below_the_call_that_refers_to_it() -> None:
    timeline = build_timeline([read_content(read_bytes(made.document()))])
    agents = {str(call.span.id): call.agents for call in timeline.calls}

    assert [call.span.id for call in timeline.calls] == ["c1", "c2", "c3", "c4"]
    (agent,) = agents["c3"]
    assert [call.span.id for call in agent.calls] == ["c5"]
    assert agent.turns[0].prompt is not None


def test_tokens_are_those_of_the_metrics_without_cached_input() -> None:
    transcript = read_bytes(made.document())

    assert transcript.tokens.input_tokens == 60
    assert transcript.tokens.cache_read_input_tokens == 40
    assert transcript.tokens.output_tokens == 9
    assert [usage.cost_usd for usage in transcript.requests.values()] == [0.25, None]


def test_result_without_content_is_ambiguous_if_no_state_is_recorded() -> None:
    step = made.reply(made.call("c1", "bash", command="true"), results=[made.result("c1", "")])
    (span,) = read_bytes(json.dumps(made.trajectory(step)).encode()).spans

    assert (span.state, span.ambiguous) == ("succeeded", True)


def test_steps_of_subagents_are_lines_after_their_trajectory_wherever_it_is() -> None:
    whole = json.loads(made.document())
    moved = {"subagent_trajectories": whole.pop("subagent_trajectories"), **whole}
    data = json.dumps(moved).encode()
    lines = split_document(data, "steps", "subagent_trajectories").lines

    assert [line.number for line in lines] == [1, 2, 3, 4, 5, 6, 7]
    assert all(data[line.offset : line.offset + line.length] == line.data for line in lines)
    assert json.loads(lines[4].data)["trajectory_id"] == "run-1/sub"


def test_recorded_cost_is_used_instead_of_list_prices(tmp_path: Path) -> None:
    path = tmp_path / "trial.trajectory.json"
    path.write_bytes(made.document())

    rows = toolspan.Archive(str(path)).usage()

    assert rows.sum.cost_usd == 0.25


def test_trajectory_is_found_by_the_folder_in_which_its_session_worked(tmp_path: Path) -> None:
    path = tmp_path / "session.atif.json"
    path.write_text(json.dumps(made.trajectory({"source": "user"}, extra={"toolspan": {"cwd": "/work"}})))
    name = parse_file_name(path)

    assert format_of_path(path).has_working_folder(path, name, "/work")
    assert not format_of_path(path).has_working_folder(path, name, "/other")
