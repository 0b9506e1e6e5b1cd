"""Sequences, known flows, batches and missed batches."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import toolspan
from tests.strategies import Record, odd_entries, to_lines
from toolspan.analysis.flows import FLOWS, FileFlows, Flows, count_tool_sequences, find_batches
from toolspan.analysis.timing import split_transcript
from toolspan.formats.source import BytesSource
from toolspan.reading.facts import FileReading, single_job
from toolspan.testing import TranscriptBuilder, claude_results
from toolspan.testing.claude_results import Body

Step = tuple[str, dict[str, object], Body]


def path(name: str) -> dict[str, object]:
    return {"file_path": f"/w/{name}"}


def read_step(name: str, text: str = "nothing of interest") -> Step:
    return "Read", path(name), claude_results.read(f"/w/{name}", text)


def edit_step(name: str) -> Step:
    text = {**path(name), "old_string": "a", "new_string": "b"}
    return "Edit", text, claude_results.edited(f"/w/{name}", "a", "a", "b")


def make_session(*steps: Step, version: str = "2.1.325") -> TranscriptBuilder:
    """Build one call per message, each 2 s after the previous result and 1 s long."""
    builder = TranscriptBuilder(version=version).prompt("go")
    for tool, text, body in steps:
        builder.result(builder.call(tool, text, after_ms=2_000), body, after_ms=1_000)
    return builder


def session_flows(builder: TranscriptBuilder, tmp_path: Path) -> FileFlows:
    return single_job(FLOWS).run(builder.write(tmp_path / "s.jsonl"))


def test_calls_of_one_message_that_overlap_show_their_concurrency(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    calls = [builder.call("Read", path(name)) for name in "abc"]
    builder.result(calls[0], claude_results.read("/w/a", "a"), after_ms=1_000)
    builder.result(calls[1], claude_results.read("/w/b", "b"), after_ms=1_000)
    builder.result(calls[2], claude_results.read("/w/c", "c"), after_ms=1_000)

    (batch,) = find_batches(toolspan.read(builder.write(tmp_path / "s.jsonl")).spans)

    assert (batch.calls, batch.concurrency, batch.serial) == (tuple(calls), 3, False)
    assert batch.saved_ms == 3_000


def test_calls_of_one_message_that_never_overlap_are_batched_serial(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    for name in "ab":
        call = builder.call("Read", path(name), message="msg_1")
        builder.result(call, claude_results.read(f"/w/{name}", name), after_ms=1_000)

    (batch,) = find_batches(toolspan.read(builder.write(tmp_path / "s.jsonl")).spans)

    assert (batch.concurrency, batch.serial, batch.saved_ms) == (1, True, 0)


def test_sequences_are_counted_per_agent_with_current_tool_names(tmp_path: Path) -> None:
    builder = make_session(read_step("a"), read_step("b"), edit_step("a"))
    call = builder.call("Task", {"description": "look", "prompt": "look"})
    agent = builder.agent(call).prompt("look")
    agent.result(agent.call("Read", path("z")), claude_results.read("/w/z", "z"))
    builder.until(agent).result(call, "seen")
    builder.write(tmp_path / "s.jsonl")
    files = [single_job(FLOWS).run(str(item)) for item in tmp_path.rglob("*.jsonl")]

    assert Flows(files).count_sequences(3) == {("Read", "Edit", "Agent"): 1}
    assert Flows(files).count_sequences(2, runs=False) == {
        ("Read", "Read"): 1,
        ("Read", "Edit"): 1,
        ("Edit", "Agent"): 1,
    }


def test_steps_of_spans_are_the_same_as_of_a_whole_archive(tmp_path: Path) -> None:
    file = make_session(read_step("a"), edit_step("a"), read_step("b")).write(tmp_path / "s.jsonl")

    assert (
        count_tool_sequences(toolspan.read(file).spans) == Flows([single_job(FLOWS).run(str(file))]).count_sequences()
    )


def test_calls_copied_by_a_fork_count_once(tmp_path: Path) -> None:
    builder = make_session(read_step("a"), read_step("b"), edit_step("a"))
    fork = builder.fork("two")
    builder.write(tmp_path / "one.jsonl")
    fork.write(tmp_path / "two.jsonl")

    result = Flows([single_job(FLOWS).run(str(item)) for item in tmp_path.rglob("*.jsonl")])

    assert result.calls == 3
    assert result.count_sequences(2) == {("Read", "Edit"): 1}


def test_failures_of_every_fork_are_counted_and_belong_to_one_chain(tmp_path: Path) -> None:
    builder = make_session(("Bash", {"command": "make a"}, claude_results.exited(1)))
    fork = builder.fork("two")
    for rows, times in ((builder, 1), (fork, 2)):
        for _ in range(times):
            rows.result(rows.call("Bash", {"command": "make a"}), claude_results.exited(1))
    files = [builder.write(tmp_path / "one.jsonl"), fork.write(tmp_path / "two.jsonl")]

    (chain,) = Flows([single_job(FLOWS).run(str(item)) for item in files]).chains

    assert len(chain.links) == 2
    assert len(chain.forks) == 1
    assert len(set(chain.failures)) == 4


def test_a_call_that_succeeded_in_another_copy_did_not_fail(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Bash", {"command": "make"})
    fork = builder.fork("two")
    fork.result(call, claude_results.ran("built"))
    files = [builder.write(tmp_path / "one.jsonl"), fork.write(tmp_path / "two.jsonl")]

    assert Flows([single_job(FLOWS).run(str(item)) for item in files]).chains == []


def glob_step(*names: str) -> Step:
    return "Glob", {"pattern": "**/*.py"}, claude_results.matched_paths(names, took_ms=5)


DONE: Step = ("TodoWrite", {"todos": []}, Body(content="Todos have been modified successfully."))
UNREAD: Step = ("Edit", path("a"), claude_results.refused("File has not been read yet."))
FOUND: Step = ("Grep", {"pattern": "todo"}, claude_results.found_files(["/w/a"]))
SEVERAL: Step = ("MultiEdit", {**path("a"), "edits": []}, Body(content="Applied 2 edits"))


def test_known_flows_have_names(tmp_path: Path) -> None:
    result = {
        name: [flow.name for flow in session_flows(make_session(*steps), tmp_path).flows]
        for name, steps in {
            "modify": [glob_step("/w/a"), read_step("a"), edit_step("a"), DONE],
            "recover": [UNREAD, read_step("a"), edit_step("a"), DONE],
            "search": [FOUND, read_step("a"), SEVERAL],
            "none": [read_step("a"), DONE],
        }.items()
    }

    assert result == {
        "modify": ["file_modification"],
        "recover": ["error_recovery"],
        "search": ["search_and_modify"],
        "none": [],
    }


def test_lookups_in_one_message_are_a_flow_of_their_own(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    read, glob = builder.call("Read", path("a")), builder.call("Glob", {"pattern": "*"})
    builder.result(read, claude_results.read("/w/a", "a"))
    builder.result(glob, claude_results.matched_paths(["a"], took_ms=1))

    (flow,) = session_flows(builder, tmp_path).flows

    assert (flow.name, flow.calls) == ("parallel_lookup", (read, glob))


def test_lookups_that_did_not_need_each_other_could_have_been_one_batch(tmp_path: Path) -> None:
    (missed,) = session_flows(
        make_session(read_step("north.py"), read_step("south.py"), read_step("west.py")), tmp_path
    ).missed

    assert (missed.messages, missed.tools) == (3, ("Read", "Read", "Read"))
    assert (missed.duration_ms, missed.saved_ms) == (7_000, 6_000)


def test_a_lookup_that_an_earlier_result_names_depends_on_it(tmp_path: Path) -> None:
    imports = session_flows(make_session(read_step("north.py", "from south import x"), read_step("south.py")), tmp_path)
    listing = session_flows(make_session(glob_step("/w/north.py"), read_step("north.py")), tmp_path)
    pages = session_flows(make_session(read_step("north.py"), read_step("north.py")), tmp_path)

    assert [imports.missed, listing.missed, pages.missed] == [[], [], []]


def test_a_change_a_failure_or_a_prompt_ends_the_run(tmp_path: Path) -> None:
    failed: Step = ("Read", path("east.py"), claude_results.failed("File does not exist."))
    spoken = make_session(read_step("north.py")).prompt("and the south?")
    call = spoken.call("Read", path("south.py"))
    spoken.result(call, claude_results.read("/w/south.py", "x"), after_ms=10)

    result = [
        session_flows(make_session(read_step("north.py"), edit_step("a"), read_step("south.py")), tmp_path).missed,
        session_flows(make_session(read_step("north.py"), failed, read_step("south.py")), tmp_path).missed,
        session_flows(spoken, tmp_path).missed,
    ]

    assert result == [[], [], []]


def test_turns_are_known_without_recorded_prompt_ids(tmp_path: Path) -> None:
    old = make_session(read_step("north.py"), read_step("south.py"), version="2.0.65")

    assert len(session_flows(old, tmp_path).missed) == 1


def test_an_unreadable_file_is_reported_and_not_raised(tmp_path: Path) -> None:
    result = single_job(FLOWS).run(str(tmp_path / "gone.jsonl"))

    assert result.problem
    assert result.chains == []


def test_files_that_share_a_call_are_copies(tmp_path: Path) -> None:
    shared = '{"type":"assistant","uuid":"%s","sessionId":"%s","message":{"id":"m","content":[%s]}}'
    call = '{"type":"tool_use","id":"t","name":"Read","input":{}}'
    for name in ("one", "two"):
        (tmp_path / f"{name}.jsonl").write_text(shared % (name, name, call), encoding="utf-8")

    result = Flows([single_job(FLOWS).run(str(item)) for item in tmp_path.glob("*.jsonl")])

    assert result.calls == 1


def shell(command: str, output: str = "nothing of interest") -> Step:
    return "Bash", {"command": command}, claude_results.ran(output)


def test_only_read_only_commands_count_as_lookups(tmp_path: Path) -> None:
    missed = session_flows(make_session(shell("cat north.py"), shell("rg -n todo east | head")), tmp_path).missed
    more = session_flows(make_session(shell("cat north.py"), shell("cat east.py && rm east.py")), tmp_path).missed
    same = session_flows(make_session(read_step("north.py"), shell("sed -n 1,9p src/north.py")), tmp_path).missed

    assert [len(missed), len(more), len(same)] == [1, 0, 0]


def test_commands_count_as_the_tools_they_replace(tmp_path: Path) -> None:
    steps = [shell("ls src"), shell("cat src/a.py"), edit_step("a.py")]

    assert [flow.name for flow in session_flows(make_session(*steps), tmp_path).flows] == ["file_modification"]


@given(records=st.lists(odd_entries(), max_size=12))
def test_reports_do_not_raise_for_any_content(records: list[Record]) -> None:
    transcript = toolspan.read(BytesSource(to_lines(records)))

    assert FLOWS.measure(FileReading("", transcript=transcript)).calls == sum(
        s.state != "orphan_result" for s in transcript.spans
    )
    assert split_transcript(transcript).wall_ms >= 0
