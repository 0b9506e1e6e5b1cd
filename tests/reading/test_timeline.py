"""The timeline: turns, lanes, and subagents under their calls, in every client layout."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.requirement import requirement
from toolspan.formats.source import BytesSource
from toolspan.reading.discovery import find_transcripts
from toolspan.reading.timeline import (
    AgentTimeline,
    OverlapGroup,
    TimelineBatch,
    TimelineMessage,
    build_timeline,
    turn_rows,
)
from toolspan.reading.transcript import read, read_content
from toolspan.testing import TranscriptBuilder, claude_results

DONE = claude_results.ran("done")


def strand_of(story: TranscriptBuilder) -> AgentTimeline:
    return build_timeline([read_content(read(BytesSource(story.data())))])


def strand_in(folder: Path) -> AgentTimeline:
    files = sorted(find_transcripts(folder), key=lambda file: file.name.role == "agent")
    return build_timeline([read_content(read(file.path)) for file in files])


def groups(strand: AgentTimeline) -> list[OverlapGroup]:
    return [group for batch in strand.batches for group in batch.groups]


def lanes(group: OverlapGroup) -> list[int]:
    return [placed.lane for placed in group.calls]


def test_overlapping_calls_of_a_message_share_a_group_in_different_lanes() -> None:
    story = TranscriptBuilder().prompt("go")
    first, second = (story.call("Bash", {"command": f"sleep {n}"}, after_ms=10) for n in (1, 2))
    story.result(first, DONE, after_ms=1000).result(second, DONE, after_ms=1000)

    (group,) = groups(strand_of(story))

    assert [placed.span.id for placed in group.calls] == [first, second]
    assert lanes(group) == [0, 1]
    assert group.concurrency == 2


def test_calls_of_a_message_that_do_not_overlap_are_serial() -> None:
    story = TranscriptBuilder().prompt("go")
    for n in range(3):
        call = story.call("Bash", {"command": f"echo {n}"}, message="msg_1", after_ms=10)
        story.result(call, DONE, after_ms=100)

    (batch,) = strand_of(story).batches

    assert batch.is_serial
    assert [group.concurrency for group in batch.groups] == [1, 1, 1]


def test_lane_is_reused_after_its_call_ended() -> None:
    story = TranscriptBuilder().prompt("go")
    long = story.call("Bash", {"command": "long"}, message="msg_1")
    short = story.call("Bash", {"command": "short"}, message="msg_1", after_ms=10)
    story.result(short, DONE, after_ms=10)
    third = story.call("Bash", {"command": "third"}, message="msg_1", after_ms=10)
    story.result(third, DONE, after_ms=10).result(long, DONE, after_ms=10)

    (group,) = groups(strand_of(story))

    assert lanes(group) == [0, 1, 1]
    assert group.concurrency == 2


def test_call_without_result_stays_beside_its_siblings() -> None:
    story = TranscriptBuilder().prompt("go")
    story.call("Bash", {"command": "lost"})
    kept = story.call("Bash", {"command": "kept"}, after_ms=10)
    story.result(kept, DONE, after_ms=100)

    (group,) = groups(strand_of(story))

    assert lanes(group) == [0, 1]
    assert group.concurrency == 1  # only what a result proves counts


def test_turn_starts_with_a_prompt_and_contains_its_calls() -> None:
    story = TranscriptBuilder().prompt("one").text("first").prompt("two", after_ms=1000)
    call = story.call("Bash", {"command": "ls"}, after_ms=100)
    story.result(call, DONE, after_ms=900)

    one, two = strand_of(story).turns

    assert (one.prompt and one.prompt.text, len(one.calls)) == ("one", 0)
    assert (two.prompt and two.prompt.text, len(two.calls)) == ("two", 1)
    assert two.start_time and two.end_time
    assert (two.end_time - two.start_time).total_seconds() == 1


@pytest.mark.parametrize("version", ["1.0.98", "2.0.65", "2.1.80", "2.1.325"])
def test_subagent_is_nested_under_the_call_that_started_it(version: str, tmp_path: Path) -> None:
    story = TranscriptBuilder(version=version).prompt("go")
    given_to = [(story.call("Task", {"description": name, "prompt": f"Look at {name}"}), name) for name in ("a", "b")]
    for call, name in reversed(given_to):
        agent = story.agent(call).prompt(f"Look at {name}", after_ms=10)
        inner = agent.call("Read", {"file_path": f"/{name}"}, after_ms=10)
        agent.result(inner, claude_results.read(f"/{name}", name), after_ms=10).text("seen")
        report = claude_results.reported(
            agent.agent_id, "seen", prompt=f"Look at {name}", calls=1, took_ms=30, version=version
        )
        story.until(agent).result(call, report)
    story.write(tmp_path / f"{story.session_id}.jsonl")

    strand = strand_in(tmp_path)

    assert [placed.span.call.target for placed in strand.calls] == ["a", "b"]
    for placed in strand.calls:
        (agent_strand,) = placed.agents
        assert [call.span.call.target for call in agent_strand.calls] == [f"/{placed.span.call.target}"]
    assert len(list(strand.iter_timelines())) == 3


def test_subagent_of_a_stream_is_nested_under_its_call() -> None:
    story = TranscriptBuilder().prompt("go")
    call = story.call("Agent", {"description": "a", "prompt": "Look"})
    agent = story.agent(call).prompt("Look")
    inner = agent.call("Read", {"file_path": "/a"})
    agent.result(inner, claude_results.read("/a", "a"))
    story.until(agent).result(call, "seen")
    data = b"".join(line + b"\n" for line in story.stream_lines())

    strand = build_timeline([read_content(read(BytesSource(data)))])

    (placed,) = strand.calls
    assert [found.span.id for found in placed.agents[0].calls] == [inner]


def test_subagent_without_a_call_is_placed_by_its_time() -> None:
    stray = TranscriptBuilder().prompt("unasked")
    stray.wait(1000)
    story = TranscriptBuilder().prompt("before").text("late", after_ms=60_000)
    agent = stray.agent("toolu_gone").prompt("who am I?", after_ms=10)

    strand = build_timeline([read_content(read(BytesSource(each.data()))) for each in (story, agent)])

    kinds = [type(item) for turn in strand.turns for item in turn.items]
    assert kinds == [TimelineMessage, AgentTimeline, TimelineMessage]
    (loose,) = (item for turn in strand.turns for item in turn.items if isinstance(item, AgentTimeline))
    assert not loose.linked


def test_abandoned_calls_are_marked_and_kept() -> None:
    story = TranscriptBuilder().prompt("start").text("ready")
    there = story.last
    wrong = story.prompt("wrong way").call("Bash", {"command": "rm"})
    story.result(wrong, DONE).text("gone").rewind(there)
    right = story.prompt("right way").call("Bash", {"command": "ls"})
    story.result(right, DONE).text("fine")

    items = [item for turn in strand_of(story).turns for item in turn.items]

    marked = {
        item.message.text if isinstance(item, TimelineMessage) else item.calls[0].span.call.target: item.branch
        for item in items
        if isinstance(item, TimelineMessage | TimelineBatch)
    }
    assert marked == {
        "start": "active",
        "ready": "active",
        "wrong way": "abandoned",
        "rm": "abandoned",
        "gone": "abandoned",
        "right way": "active",
        "ls": "active",
        "fine": "active",
    }


def test_message_with_parallel_calls_is_on_one_branch() -> None:
    story = TranscriptBuilder().prompt("go")
    first, second = (story.call("Read", {"file_path": name}) for name in "ab")
    story.result(second, "b", after_ms=10).result(first, "a", after_ms=10).text("both")

    (batch,) = strand_of(story).batches

    assert batch.branch == "active"


def test_compacted_calls_are_marked() -> None:
    story = TranscriptBuilder().prompt("old").text("long ago").compact("Summary.").prompt("new")

    branches = [
        item.branch for turn in strand_of(story).turns for item in turn.items if isinstance(item, TimelineMessage)
    ]

    assert branches[:2] == ["compacted", "compacted"]
    assert branches[-1] == "active"


def test_agents_that_started_each_other_are_listed_once(tmp_path: Path) -> None:
    main = TranscriptBuilder().prompt("go")
    first = main.agent("toolu_b").prompt("one")
    first.call("Agent", {"prompt": "two"}, id="toolu_a")
    second = main.agent("toolu_a").prompt("two")
    second.call("Agent", {"prompt": "one"}, id="toolu_b")
    main.write(tmp_path / f"{main.session_id}.jsonl")

    strand = strand_in(tmp_path)

    agents = [found.agent_id for found in strand.iter_timelines()]
    assert sorted(filter(None, agents)) == sorted([first.agent_id, second.agent_id])


def test_session_is_nested_rows_with_the_requested_texts(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("go").thinking("hmm")
    call = story.call("Agent", {"description": "a", "prompt": "Look"})
    agent = story.agent(call).prompt("Look", after_ms=10).text("seen")
    story.until(agent).result(call, "seen").text("done")
    stray = story.agent("toolu_gone").prompt("who am I?", after_ms=60_000)
    story.write(tmp_path / f"{story.session_id}.jsonl")

    (turn,) = turn_rows(strand_in(tmp_path), lambda message: message.voice != "thinking")

    assert turn["prompt"] == "go"
    items = turn["items"]
    assert isinstance(items, list)
    assert [item["type"] for item in items] == ["message", "batch", "message", "agent"]
    assert [item.get("text") for item in items] == ["go", None, "done", None]
    (group,) = items[1]["groups"]
    (row,) = group["calls"]
    assert (row["id"], row["tool"], row["lane"], row["state"]) == (call, "Agent", 0, "succeeded")
    (below,) = row["agents"]
    assert (below["agent"], below["linked"]) == (agent.agent_id, True)
    assert [item["text"] for item in below["turns"][0]["items"]] == ["Look", "seen"]
    assert (items[3]["agent"], items[3]["linked"]) == (stray.agent_id, False)


def test_command_starts_a_turn_and_its_output_does_not() -> None:
    story = TranscriptBuilder().prompt("one").text("first")
    story.prompt("<command-name>/clear</command-name>")
    story.prompt("<local-command-stdout>cleared</local-command-stdout>").text("second")

    turns = strand_of(story).turns

    assert [turn.prompt and turn.prompt.text for turn in turns] == ["one", "<command-name>/clear</command-name>"]


def test_calls_without_times_are_sequential() -> None:
    story = TranscriptBuilder().prompt("go")
    first, second = (story.call("Bash", {"command": name}) for name in "ab")
    story.result(first, DONE).result(second, DONE)
    data = re.sub(rb'"timestamp":"[^"]*"', b'"timestamp":"?"', story.data())

    strand = build_timeline([read_content(read(BytesSource(data)))])

    (batch,) = strand.batches
    assert [[one.span.id for one in group.calls] for group in batch.groups] == [[first], [second]]
    assert (strand.start_time, strand.end_time, batch.start_time, batch.end_time) == (None, None, None, None)


def test_too_deeply_nested_subagents_are_listed_beside_the_conversation(tmp_path: Path) -> None:
    main = TranscriptBuilder().prompt("go")
    made, call = main, main.call("Agent", {"prompt": "0"})
    for depth in range(18):
        agent = main.agent(call).prompt(f"{depth}")
        call = agent.call("Agent", {"prompt": f"{depth + 1}"})
        made = agent
    main.write(tmp_path / f"{main.session_id}.jsonl")

    strand = strand_in(tmp_path)

    agents = [one.agent_id for one in strand.iter_timelines()]
    assert len(agents) == len(set(agents)) == 19
    assert made.agent_id in agents
    assert [one.linked for one in strand.iter_timelines()].count(False) == 1


def test_equal_tasks_are_matched_to_agents_by_start_time() -> None:
    version = "1.0.60"
    story = TranscriptBuilder(version=version).prompt("go")
    calls = [story.call("Task", {"description": "x", "prompt": "Look"}) for _ in range(2)]
    agents = [story.agent(call).prompt("Look", after_ms=10 * (n + 1)) for n, call in enumerate(calls)]
    for n, agent in enumerate(agents):
        agent.text(f"seen {n}")
    for call in calls:
        story.result(call, "seen", after_ms=100)

    placed = strand_of(story).calls

    assert [call.span.id for call in placed] == calls
    words = [
        [item.message.text for turn in agent.turns for item in turn.items if isinstance(item, TimelineMessage)]
        for call in placed
        for agent in call.agents
    ]
    assert words == [["Look", "seen 0"], ["Look", "seen 1"]]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=8))
def test_overlapping_calls_never_share_a_lane(times: list[tuple[int, int]]) -> None:
    story = TranscriptBuilder().prompt("go")
    clock = 0
    events = [(start, 0, n) for n, (start, _) in enumerate(times)]
    events += [(start + took, 1, n) for n, (start, took) in enumerate(times)]
    calls: dict[int, str] = {}
    for at, kind, n in sorted(events):
        story.wait(at - clock)
        clock = at
        if kind == 0:
            calls[n] = story.call("Bash", {"command": str(n)}, message="msg_1")
        else:
            story.result(calls[n], DONE)

    found = groups(strand_of(story))

    assert sum(len(group.calls) for group in found) == len(times)
    for group in found:
        assert group.concurrency <= group.lane_count
        for n, one in enumerate(group.calls):
            for other in group.calls[n + 1 :]:
                a, b = one.span, other.span
                assert one.start and a.finished and other.start and b.finished
                if one.start < b.finished and other.start < a.finished:
                    assert one.lane != other.lane


@requirement("show.queued")
def test_calls_that_waited_for_each_other_are_not_parallel() -> None:
    story = TranscriptBuilder().prompt("go")
    names = ["Read", "Grep", "Edit", "Bash", "Bash", "Read"]
    inputs = [
        {"file_path": "/a"},
        {"pattern": "x"},
        {"file_path": "/a", "old_string": "a", "new_string": "b"},
        {"command": "make"},
        {"command": "rm -r build"},
        {"file_path": "/a"},
    ]
    calls = [story.call(*pair, message="msg_1") for pair in zip(names, inputs, strict=True)]
    for call in calls:
        story.wait(1_000)
        story.result(call, DONE)

    found = groups(strand_of(story))

    assert [[call.span.tool for call in group.calls] for group in found] == [
        ["Read", "Grep"], ["Edit"], ["Bash"], ["Bash"], ["Read"],
    ]  # fmt: skip
    assert [group.concurrency for group in found] == [2, 1, 1, 1, 1]


@requirement("show.queued")
def test_calls_that_ended_in_another_order_did_not_wait() -> None:
    story = TranscriptBuilder().prompt("go")
    first, second = (story.call("Bash", {"command": f"make {name}"}, message="msg_1") for name in "ab")
    for call in (second, first):
        story.wait(1_000)
        story.result(call, DONE)

    (group,) = groups(strand_of(story))

    assert group.concurrency == 2
