"""The timeline: turns, lanes, branches, and subagents under their calls, in every client layout."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolspan
from tests.requirement import requirement
from toolspan.formats.claude.reader import ClaudeReader
from toolspan.formats.source import BytesSource
from toolspan.reading.discovery import find_transcripts
from toolspan.reading.timeline import (
    AgentTimeline,
    OverlapGroup,
    TimelineBatch,
    TimelineMessage,
    build_timeline,
    display_text,
    turn_rows,
)
from toolspan.reading.transcript import read, read_content
from toolspan.testing import TranscriptBuilder, claude_results

DONE = claude_results.ran("done")


def strand_of(builder: TranscriptBuilder) -> AgentTimeline:
    return build_timeline([read_content(read(BytesSource(builder.data())))])


def strand_in(folder: Path) -> AgentTimeline:
    files = sorted(find_transcripts(folder), key=lambda file: file.name.role == "agent")
    return build_timeline([read_content(read(file.path)) for file in files])


def groups(strand: AgentTimeline) -> list[OverlapGroup]:
    return [group for batch in strand.batches for group in batch.groups]


def lanes(group: OverlapGroup) -> list[int]:
    return [placed.lane for placed in group.calls]


def test_overlapping_calls_of_a_message_share_a_group_in_different_lanes() -> None:
    builder = TranscriptBuilder().prompt("go")
    first, second = (builder.call("Bash", {"command": f"sleep {n}"}, after_ms=10) for n in (1, 2))
    builder.result(first, DONE, after_ms=1000).result(second, DONE, after_ms=1000)

    (group,) = groups(strand_of(builder))

    assert [placed.span.id for placed in group.calls] == [first, second]
    assert lanes(group) == [0, 1]
    assert group.concurrency == 2


def test_calls_of_a_message_that_do_not_overlap_are_serial() -> None:
    builder = TranscriptBuilder().prompt("go")
    for n in range(3):
        call = builder.call("Bash", {"command": f"echo {n}"}, message="msg_1", after_ms=10)
        builder.result(call, DONE, after_ms=100)

    (batch,) = strand_of(builder).batches

    assert batch.is_serial
    assert [group.concurrency for group in batch.groups] == [1, 1, 1]


def test_lane_is_reused_after_its_call_ended() -> None:
    builder = TranscriptBuilder().prompt("go")
    long = builder.call("Bash", {"command": "long"}, message="msg_1")
    short = builder.call("Bash", {"command": "short"}, message="msg_1", after_ms=10)
    builder.result(short, DONE, after_ms=10)
    third = builder.call("Bash", {"command": "third"}, message="msg_1", after_ms=10)
    builder.result(third, DONE, after_ms=10).result(long, DONE, after_ms=10)

    (group,) = groups(strand_of(builder))

    assert lanes(group) == [0, 1, 1]
    assert group.concurrency == 2


def test_call_without_result_stays_beside_its_siblings() -> None:
    builder = TranscriptBuilder().prompt("go")
    builder.call("Bash", {"command": "lost"})
    remaining = builder.call("Bash", {"command": "kept"}, after_ms=10)
    builder.result(remaining, DONE, after_ms=100)

    (group,) = groups(strand_of(builder))

    assert lanes(group) == [0, 1]
    assert group.concurrency == 1  # only what a result proves counts


def test_turn_starts_with_a_prompt_and_contains_its_calls() -> None:
    builder = TranscriptBuilder().prompt("one").text("first").prompt("two", after_ms=1000)
    call = builder.call("Bash", {"command": "ls"}, after_ms=100)
    builder.result(call, DONE, after_ms=900)

    first, two = strand_of(builder).turns

    assert (first.prompt and first.prompt.text, len(first.calls)) == ("one", 0)
    assert (two.prompt and two.prompt.text, len(two.calls)) == ("two", 1)
    assert two.start_time and two.end_time
    assert (two.end_time - two.start_time).total_seconds() == 1


@pytest.mark.parametrize("version", ["1.0.98", "2.0.65", "2.1.80", "2.1.325"])
def test_subagent_is_nested_under_the_call_that_started_it(version: str, tmp_path: Path) -> None:
    builder = TranscriptBuilder(version=version).prompt("go")
    given_to = [(builder.call("Task", {"description": name, "prompt": f"Look at {name}"}), name) for name in ("a", "b")]
    for call, name in reversed(given_to):
        agent = builder.agent(call).prompt(f"Look at {name}", after_ms=10)
        inner = agent.call("Read", {"file_path": f"/{name}"}, after_ms=10)
        agent.result(inner, claude_results.read(f"/{name}", name), after_ms=10).text("seen")
        report = claude_results.reported(
            agent.agent_id, "seen", prompt=f"Look at {name}", calls=1, took_ms=30, version=version
        )
        builder.until(agent).result(call, report)
    builder.write(tmp_path / f"{builder.session_id}.jsonl")

    strand = strand_in(tmp_path)

    assert [placed.span.call.target for placed in strand.calls] == ["a", "b"]
    for placed in strand.calls:
        (agent_strand,) = placed.agents
        assert [call.span.call.target for call in agent_strand.calls] == [f"/{placed.span.call.target}"]
    assert len(list(strand.iter_timelines())) == 3


def test_subagent_of_a_stream_is_nested_under_its_call() -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Agent", {"description": "a", "prompt": "Look"})
    agent = builder.agent(call).prompt("Look")
    inner = agent.call("Read", {"file_path": "/a"})
    agent.result(inner, claude_results.read("/a", "a"))
    builder.until(agent).result(call, "seen")
    data = b"".join(line + b"\n" for line in builder.stream_lines())

    strand = build_timeline([read_content(read(BytesSource(data)))])

    (placed,) = strand.calls
    assert [result.span.id for result in placed.agents[0].calls] == [inner]


def test_subagent_without_a_call_is_placed_by_its_time() -> None:
    stray = TranscriptBuilder().prompt("unasked")
    stray.wait(1000)
    builder = TranscriptBuilder().prompt("before").text("late", after_ms=60_000)
    agent = stray.agent("toolu_gone").prompt("who am I?", after_ms=10)

    strand = build_timeline([read_content(read(BytesSource(each.data()))) for each in (builder, agent)])

    kinds = [type(item) for turn in strand.turns for item in turn.items]
    assert kinds == [TimelineMessage, AgentTimeline, TimelineMessage]
    (loose,) = (item for turn in strand.turns for item in turn.items if isinstance(item, AgentTimeline))
    assert not loose.linked


def test_call_that_the_file_of_a_subagent_copies_is_listed_once() -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Bash", {"command": "ls"}, message="msg_1")
    builder.result(call, DONE)
    agent = builder.agent("toolu_gone").prompt("go")
    agent.call("Bash", {"command": "ls"}, id=call, message="msg_1")
    agent.result(call, DONE)
    own = agent.call("Bash", {"command": "pwd"})
    agent.result(own, DONE)

    strand = build_timeline([read_content(read(BytesSource(each.data()))) for each in (builder, agent)])

    assert [[placed.span.id for placed in each.calls] for each in strand.iter_timelines()] == [[call], [own]]


def test_abandoned_calls_are_marked_and_kept() -> None:
    builder = TranscriptBuilder().prompt("start").text("ready")
    there = builder.last
    wrong = builder.prompt("wrong way").call("Bash", {"command": "rm"})
    builder.result(wrong, DONE).text("gone").rewind(there)
    right = builder.prompt("right way").call("Bash", {"command": "ls"})
    builder.result(right, DONE).text("fine")

    items = [item for turn in strand_of(builder).turns for item in turn.items]

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
    builder = TranscriptBuilder().prompt("go")
    first, second = (builder.call("Read", {"file_path": name}) for name in "ab")
    builder.result(second, "b", after_ms=10).result(first, "a", after_ms=10).text("both")

    (batch,) = strand_of(builder).batches

    assert batch.branch == "active"


def test_compacted_calls_are_marked() -> None:
    builder = TranscriptBuilder().prompt("old").text("long ago").compact("Summary.").prompt("new")

    branches = [
        item.branch for turn in strand_of(builder).turns for item in turn.items if isinstance(item, TimelineMessage)
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

    agents = [result.agent_id for result in strand.iter_timelines()]
    assert sorted(filter(None, agents)) == sorted([first.agent_id, second.agent_id])


def test_session_is_nested_rows_with_the_requested_texts(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go").thinking("hmm")
    call = builder.call("Agent", {"description": "a", "prompt": "Look"})
    agent = builder.agent(call).prompt("Look", after_ms=10).text("seen")
    builder.until(agent).result(call, "seen").text("done")
    stray = builder.agent("toolu_gone").prompt("who am I?", after_ms=60_000)
    builder.write(tmp_path / f"{builder.session_id}.jsonl")

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
    builder = TranscriptBuilder().prompt("one").text("first")
    builder.prompt("<command-name>/clear</command-name>")
    builder.prompt("<local-command-stdout>cleared</local-command-stdout>").text("second")

    turns = strand_of(builder).turns

    assert [turn.prompt and turn.prompt.text for turn in turns] == ["one", "<command-name>/clear</command-name>"]


def test_calls_without_times_are_sequential() -> None:
    builder = TranscriptBuilder().prompt("go")
    first, second = (builder.call("Bash", {"command": name}) for name in "ab")
    builder.result(first, DONE).result(second, DONE)
    data = re.sub(rb'"timestamp":"[^"]*"', b'"timestamp":"?"', builder.data())

    strand = build_timeline([read_content(read(BytesSource(data)))])

    (batch,) = strand.batches
    assert [[call.span.id for call in group.calls] for group in batch.groups] == [[first], [second]]
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

    agents = [iter_timeline.agent_id for iter_timeline in strand.iter_timelines()]
    assert len(agents) == len(set(agents)) == 19
    assert made.agent_id in agents
    assert [iter_timeline.linked for iter_timeline in strand.iter_timelines()].count(False) == 1


def test_equal_tasks_are_matched_to_agents_by_start_time() -> None:
    version = "1.0.60"
    builder = TranscriptBuilder(version=version).prompt("go")
    calls = [builder.call("Task", {"description": "x", "prompt": "Look"}) for _ in range(2)]
    agents = [builder.agent(call).prompt("Look", after_ms=10 * (n + 1)) for n, call in enumerate(calls)]
    for n, agent in enumerate(agents):
        agent.text(f"seen {n}")
    for call in calls:
        builder.result(call, "seen", after_ms=100)

    placed = strand_of(builder).calls

    assert [call.span.id for call in placed] == calls
    text = [
        [item.message.text for turn in agent.turns for item in turn.items if isinstance(item, TimelineMessage)]
        for call in placed
        for agent in call.agents
    ]
    assert text == [["Look", "seen 0"], ["Look", "seen 1"]]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=8))
def test_overlapping_calls_never_share_a_lane(times: list[tuple[int, int]]) -> None:
    builder = TranscriptBuilder().prompt("go")
    clock = 0
    events = [(start, 0, n) for n, (start, _) in enumerate(times)]
    events += [(start + took, 1, n) for n, (start, took) in enumerate(times)]
    calls: dict[int, str] = {}
    for at, kind, n in sorted(events):
        builder.wait(at - clock)
        clock = at
        if kind == 0:
            calls[n] = builder.call("Bash", {"command": str(n)}, message="msg_1")
        else:
            builder.result(calls[n], DONE)

    result = groups(strand_of(builder))

    assert sum(len(group.calls) for group in result) == len(times)
    for group in result:
        assert group.concurrency <= group.lane_count
        for n, item in enumerate(group.calls):
            for other in group.calls[n + 1 :]:
                a, b = item.span, other.span
                assert item.start and a.finished and other.start and b.finished
                if item.start < b.finished and other.start < a.finished:
                    assert item.lane != other.lane


def test_calls_that_waited_for_each_other_are_not_parallel() -> None:
    builder = TranscriptBuilder().prompt("go")
    names = ["Read", "Grep", "Edit", "Bash", "Bash", "Read"]
    inputs = [
        {"file_path": "/a"},
        {"pattern": "x"},
        {"file_path": "/a", "old_string": "a", "new_string": "b"},
        {"command": "make"},
        {"command": "rm -r build"},
        {"file_path": "/a"},
    ]
    calls = [builder.call(*pair, message="msg_1") for pair in zip(names, inputs, strict=True)]
    for call in calls:
        builder.wait(1_000)
        builder.result(call, DONE)

    result = groups(strand_of(builder))

    assert [[call.span.tool for call in group.calls] for group in result] == [
        ["Read", "Grep"], ["Edit"], ["Bash"], ["Bash"], ["Read"],
    ]  # fmt: skip
    assert [group.concurrency for group in result] == [2, 1, 1, 1, 1]


def test_calls_that_ended_in_another_order_did_not_wait() -> None:
    builder = TranscriptBuilder().prompt("go")
    first, second = (builder.call("Bash", {"command": f"make {name}"}, message="msg_1") for name in "ab")
    for call in (second, first):
        builder.wait(1_000)
        builder.result(call, DONE)

    (group,) = groups(strand_of(builder))

    assert group.concurrency == 2


def ask(builder: TranscriptBuilder, name: str) -> TranscriptBuilder:
    return builder.result(builder.call("Bash", {"command": "ls"}, id=name), claude_results.ran("x"))


def branches(builder: TranscriptBuilder, tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "s.jsonl"
    path.write_bytes(builder.data())
    return {span.id: span.branch for span in toolspan.read(path).spans}


@pytest.mark.parametrize("version", ["1.0.60", "2.0.65", "2.1.80", "2.1.325"])
def test_linear_conversation_is_active(version: str, tmp_path: Path) -> None:
    builder = TranscriptBuilder(version=version).prompt("go")
    ask(ask(builder, "a").text("and"), "b").text("done").prompt("more").text("yes")

    assert branches(builder, tmp_path) == {"a": "active", "b": "active"}


def test_calls_after_a_rewind_are_abandoned(tmp_path: Path) -> None:
    builder = ask(TranscriptBuilder().prompt("go"), "before").text("ready")
    there = builder.last
    ask(builder.prompt("wrong way"), "wrong").text("oh no")
    ask(builder.rewind(there).prompt("right way"), "right").text("yes")

    result = branches(builder, tmp_path)
    assert result == {"before": "active", "wrong": "abandoned", "right": "active"}


def test_calls_before_a_compaction_are_compacted(tmp_path: Path) -> None:
    builder = ask(TranscriptBuilder().prompt("go"), "first").compact("so far")
    ask(builder, "second").compact("still so far")
    ask(builder, "third").text("done")

    result = branches(builder, tmp_path)
    assert result == {"first": "compacted", "second": "compacted", "third": "active"}


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
    assert len(toolspan.check(path).findings) >= 5  # the calls have no results


def test_calls_of_inline_subagents_are_active(tmp_path: Path) -> None:
    builder = TranscriptBuilder(version="1.0.60").prompt("go")
    starter = builder.call("Task", {"prompt": "p"}, id="starter")
    ask(builder.agent(starter).prompt("p"), "inner").text("seen")
    builder.result(starter, "seen").text("done")

    assert branches(builder, tmp_path) == {"starter": "active", "inner": "active"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("why?", "why?"),
        ("<system-reminder>be kind</system-reminder>", "be kind"),
        ("<command-name>/model</command-name><command-args>opus</command-args>", "/model opus"),
        ("<command-name>/clear</command-name>", "/clear"),
        ("<bash-input>ls -a</bash-input>", "! ls -a"),
        ("<bash-stdout>a.py</bash-stdout>", "a.py"),
        ("<command-name>/x</command-name><local-command-caveat>c</local-command-caveat>", ""),
        (
            "<task-notification><task-id>b1</task-id><status>done</status><summary>Tests</summary></task-notification>",
            "Tests (done)",
        ),
    ],
)
def test_messages_are_shown_without_the_tags_of_the_client(text: str, shown: str) -> None:
    (message,) = read(BytesSource(TranscriptBuilder().prompt(text).data())).messages()

    assert display_text(message) == shown


def test_turn_knows_its_lines_in_each_file(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("first")
    builder.result(builder.call("Bash", {"command": "ls"}), DONE).text("ok").prompt("second")
    builder.result(builder.call("Read", {"file_path": "/a"}, id="open"), DONE)
    path = builder.write(tmp_path / "s.jsonl")
    first, second = build_timeline([read_content(read(path))]).turns

    assert (list(first.lines_in(str(path))), list(second.lines_in(str(path)))) == ([1, 2, 3, 4], [5, 6, 7])
    assert list(first.lines_in("another.jsonl")) == []
