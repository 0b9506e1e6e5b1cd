"""`toolspan show`: a session as a timeline, a call in full, for people and for programs."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.analysis.file_acts import Rollout
from tests.cli.command import CWD, home_at, rows, run, saved
from tests.requirement import requirement
from toolspan.diffs.codex_patch import AddFile, PatchChunk, UpdateFile
from toolspan.testing import TranscriptBuilder, claude_results

ESCAPE = "\x1b[2J\x1b]0;owned\x07"


def show(*words: str | Path, root: Path | None = None) -> Result:
    return run("show", *words, code=None, env=home_at(root))


def shown(*words: str | Path, root: Path | None = None) -> str:
    return run("show", *words, env=home_at(root)).stdout


def row(output: str, words: str) -> str:
    """The one line that has these words in it."""
    (found,) = (line for line in output.splitlines() if words in line)
    return found


def fact(output: str, label: str) -> str:
    """What a labelled line says."""
    (found,) = re.findall(rf"^{label} +(.*)", output, re.MULTILINE)
    return str(found)


def column(output: str, words: str) -> int:
    """Where on its line something stands."""
    return row(output, words).index(words)


def parallel() -> TranscriptBuilder:
    story = TranscriptBuilder().prompt("Look at both files")
    first, second = (story.call("Read", {"file_path": f"{CWD}/{name}"}) for name in ("a", "b"))
    story.result(second, claude_results.read(f"{CWD}/b", "b"), after_ms=100)
    story.result(first, claude_results.read(f"{CWD}/a", "a"), after_ms=100)
    return story.text("Both are fine")


def test_the_header_tells_what_the_session_is(tmp_path: Path) -> None:
    story = parallel().title("Two files")

    output = shown(story.write(tmp_path / "s.jsonl"))

    assert story.session_id in fact(output, "session")
    assert "Two files" in fact(output, "about")
    assert "2.1.325" in fact(output, "client")
    assert "✓ 2 succeeded" in fact(output, "calls")
    assert "2026-11-02 09:00:00 – 09:00:00" in fact(output, "when")


def test_parallel_calls_are_drawn_in_different_lanes(tmp_path: Path) -> None:
    output = shown(parallel().write(tmp_path / "s.jsonl"))

    assert "┌  ✓ Read  a" in output
    assert "└─ ✓ Read  b" in output
    assert "up to 2 calls at once" in output


def test_calls_asked_for_together_that_ran_one_after_another_are_drawn_apart(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("go")
    for n in range(2):
        call = story.call("Bash", {"command": f"echo {n}"}, message="msg_1", after_ms=10)
        story.result(call, claude_results.ran("x"), after_ms=10)

    output = shown(story.write(tmp_path / "s.jsonl"))

    assert "╷ ✓ Bash  echo 0" in output
    assert "╵ ✓ Bash  echo 1" in output


@pytest.mark.parametrize("version", ["1.0.98", "2.0.65", "2.1.325"])
def test_a_subagent_is_told_under_its_call(version: str, tmp_path: Path) -> None:
    story = TranscriptBuilder(version=version).prompt("go")
    call = story.call("Task", {"description": "Count files", "prompt": "Count them"})
    agent = story.agent(call).prompt("Count them")
    inner = agent.call("Bash", {"command": "ls | wc -l"})
    agent.result(inner, claude_results.ran("3"), after_ms=10).text("There are three")
    report = claude_results.reported(
        agent.agent_id, "There are three", prompt="Count them", calls=1, took_ms=9, version=version
    )
    story.until(agent).result(call, report).text("All counted")

    output = shown(story.write(tmp_path / f"{story.session_id}.jsonl"))

    order = ["Count files", "❯ Count them", "ls | wc -l", "There are three", "All counted"]
    assert sorted(order, key=output.index) == order
    assert column(output, "Task ") < column(output, "Bash ") < column(output, "ls | wc -l")


def test_every_turn_tells_its_time_even_within_one_second(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("First").text("Yes").prompt("Second").text("No")

    output = shown(story.write(tmp_path / "s.jsonl"))

    first, second = row(output, "❯ First")[:8], row(output, "❯ Second")[:8]
    assert first == second == f"{TranscriptBuilder().now:%H:%M:%S}"
    assert row(output, "Yes").startswith(" ")


def test_words_stand_between_the_calls_and_can_be_left_out(tmp_path: Path) -> None:
    path = parallel().thinking("Hmm, let me see").write(tmp_path / "s.jsonl")

    everything, calls = shown(path), shown(path, "--no-messages")

    assert "❯ Look at both files" in everything
    assert "Both are fine" in everything
    assert "Hmm, let me see" not in everything
    assert "Both are fine" not in calls
    assert "Read  a" in calls
    assert "Hmm, let me see" in shown(path, "--thinking")


def test_a_failure_tells_its_kind_its_first_words_and_what_helps(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("test")
    call = story.call("Bash", {"command": "pytest"})
    story.result(call, claude_results.exited(1, "1 failed"))

    output = shown(story.write(tmp_path / "s.jsonl"))

    assert "✗ Bash  pytest" in output
    assert "command_failed: Exit code 1 1 failed" in output
    assert "→ Read its output" in output


def test_hooks_and_background_news_stand_under_their_call(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("serve")
    call = story.call("Bash", {"command": "make serve", "run_in_background": True})
    story.hook(call, "PreToolUse", command="lint.sh", outcome="error", text="no lint here")
    story.result(call, claude_results.in_background("b1", "/tmp/b1"))
    story.task_notification(call, "b1", "Server stopped", queued=True)

    output = shown(story.write(tmp_path / "s.jsonl"))

    assert "hook PreToolUse:Bash · error" in output
    assert "background b1 · completed · Server stopped" in output


def test_an_interrupt_a_compaction_and_a_long_pause_are_marked(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("go").text("working").interrupt()
    story.prompt("again", after_ms=600_000).compact("All so far.").text("going on")

    output = shown(story.write(tmp_path / "s.jsonl"))

    assert "■ [Request interrupted by user]" in output
    assert "┄ 10m 00s later" in output
    assert "── Conversation compacted (auto" in output


def test_what_a_rewind_left_behind_is_marked(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("start").text("ready")
    there = story.last
    story.prompt("wrong way").text("oh no").rewind(there).prompt("right way").text("yes")

    output = shown(story.write(tmp_path / "s.jsonl"))

    assert "left behind by a rewind" in output
    assert "┊ ❯ wrong way" in output
    assert "┊ ❯ right way" not in output


def test_no_line_is_wider_than_asked(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("漢字かな " * 60)
    call = story.call("Bash", {"command": "echo " + "x" * 500})
    story.result(call, claude_results.exited(2, "y" * 500)).text("z" * 300)

    output = shown(story.write(tmp_path / "s.jsonl"), "--width", "80")

    wide = re.compile(r"[\u3000-\u9fff]")
    assert all(len(line) + len(wide.findall(line)) <= 80 for line in output.splitlines())


def hostile() -> TranscriptBuilder:
    story = TranscriptBuilder().prompt(f"[bold]hi[/bold] {ESCAPE}").title(f"title {ESCAPE}")
    call = story.call("Bash", {"command": f"echo [red]{ESCAPE}"}, id="toolu_hostile")
    story.result(call, claude_results.exited(1, f"[link=x]{ESCAPE}\u202e\x9b31m\x00"))
    quiet = story.call("Bash", {"command": "grep x"}, id=f"toolu_quiet{ESCAPE}\u202e")
    story.result(quiet, claude_results.ran("", returnCodeInterpretation=f"no matches {ESCAPE}\u202e"))
    edit = story.call("Edit", {"file_path": "/w/a"}, id=f"toolu_edit{ESCAPE}\u202e")
    story.result(edit, claude_results.edited("/w/a", "a\n", "a", "b"))
    other = story.call(f"mcp__{ESCAPE}", {f"key{ESCAPE}": ESCAPE})
    return story.result(other, claude_results.mcp_text(ESCAPE)).text(f"[/nonsense]{ESCAPE}")


@requirement("show.hostile")
@pytest.mark.parametrize("name", [[], ["toolu_hostile"], ["toolu_quiet"], ["toolu_edit"]])
@pytest.mark.parametrize("form", [[], ["--full"]])
def test_hostile_text_prints_no_escape_codes_and_is_no_markup(name: list[str], form: list[str], tmp_path: Path) -> None:
    output = shown(hostile().write(tmp_path / "s.jsonl"), *name, *form)

    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", output)
    assert "[red]" in output or name == ["toolu_edit"]


@requirement("show.refuses")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["list.txt"], "list.txt: not a transcript"),
        ([""], "a name is empty"),
        (["s.jsonl", "--json", "--html"], "use either --json or --html"),
    ],
)
def test_what_is_no_session_or_has_two_forms_is_refused(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.txt").write_text("bread\nmilk\n", encoding="utf-8")
    parallel().write(tmp_path / "s.jsonl")

    done = show(*words)

    assert (done.exit_code, done.stdout) == (2, "")
    assert told in done.stderr


@requirement("show.orphans")
def test_a_result_without_a_call_is_no_call(tmp_path: Path) -> None:
    story = parallel().result("toolu_gone", "late")

    told = shown(story.write(tmp_path / "s.jsonl"))

    assert fact(told, "calls").startswith("2  ")
    assert "1 orphan_result" in fact(told, "calls")


def test_a_session_is_named_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    story = parallel()
    saved(story, tmp_path)

    assert "Both are fine" in shown(story.session_id[:8], root=tmp_path)


@requirement("names.inside")
@pytest.mark.parametrize("name", ["agent-a1b2c3d.jsonl", "0e1b87ff-a597.jsonl"])
def test_a_session_is_named_by_its_id_where_no_file_is_called_so(name: str, tmp_path: Path) -> None:
    story = TranscriptBuilder(session_id="13b6354b-6f8f").prompt("go")
    helper = story.agent(story.call("Task", {"prompt": "look"})).prompt("look")
    helper.result(helper.call("Bash", {"command": "ls -la"}), claude_results.ran("a"))
    saved(parallel(), tmp_path)
    left = helper if name.startswith("agent") else parallel()
    data = left.data().replace(left.session_id.encode(), b"13b6354b-6f8f")
    (tmp_path / "projects" / name).write_bytes(data)
    session = "13b6354b"

    assert session in fact(shown(session, root=tmp_path), "session")
    told = rows(run("calls", session, "--json", env=home_at(tmp_path)))
    assert {one["file"] for one in told} == {str(tmp_path / "projects" / name)}
    for command in ("time", "stats", "sessions", "export"):
        run(command, session, env=home_at(tmp_path))
    run("watch", session, "--idle-exit", "0", env=home_at(tmp_path))
    assert "no session begins with '13b7'" in run("calls", "13b7", code=2, env=home_at(tmp_path)).stderr


def test_without_a_name_the_session_written_to_last_is_told(tmp_path: Path) -> None:
    saved(parallel(), tmp_path)

    assert "Both are fine" in shown(root=tmp_path)
    assert "Both are fine" in shown("--last", root=tmp_path)


def test_a_prefix_that_fits_several_sessions_is_refused(tmp_path: Path) -> None:
    for last in "12":
        saved(TranscriptBuilder(session_id=f"aaaa-{last}").prompt("hi"), tmp_path)

    done = show("aaaa", root=tmp_path)

    assert done.exit_code == 2
    assert "2 sessions begin with 'aaaa'" in done.stderr


def test_a_prefix_that_fits_several_calls_is_refused(tmp_path: Path) -> None:
    path = parallel().write(tmp_path / "s.jsonl")

    done = show(path, "toolu_")

    assert done.exit_code == 2
    assert "2 calls begin with 'toolu_'" in done.stderr


@pytest.mark.parametrize("word", ["nothing", "no/such.jsonl", "gone.jsonl"])
def test_a_name_that_fits_nothing_is_one_clear_line(word: str, tmp_path: Path) -> None:
    saved(parallel(), tmp_path)

    done = show(word, root=tmp_path)

    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert word in done.stderr


def test_a_folder_with_several_sessions_asks_for_one(tmp_path: Path) -> None:
    for last in "12":
        saved(TranscriptBuilder(session_id=f"aaaa-{last}").prompt("hi"), tmp_path)

    done = show(tmp_path / "projects")

    assert done.exit_code == 2
    assert "--last" in done.stderr


def edit() -> tuple[TranscriptBuilder, str]:
    story = TranscriptBuilder().prompt("Rename it")
    story.result(story.call("Read", {"file_path": f"{CWD}/a.py"}), "1\told = 1")
    change = {"file_path": f"{CWD}/a.py", "old_string": "old", "new_string": "new"}
    call = story.call("Edit", change, after_ms=50)
    story.result(call, claude_results.edited(f"{CWD}/a.py", "old = 1\n", "old", "new"), after_ms=20)
    story.result(story.call("Bash", {"command": "pytest"}), claude_results.ran("ok"))
    return story, call


def test_a_call_is_told_with_its_diff_and_what_stands_around_it(tmp_path: Path) -> None:
    story, call = edit()
    path = saved(story, tmp_path)

    output = shown(call, root=tmp_path)

    assert "succeeded: ran and reported no error" in fact(output, "state")
    assert "no error flag" in fact(output, "evidence")
    assert "Rename it" in fact(output, "prompt")
    assert re.search(rf"requested +{re.escape(str(path))}:\d+", output)
    assert "-old = 1\n+new = 1\n" in output
    assert "old_string old" in output
    assert "Read  a.py" in fact(output, "before")
    assert "Bash  pytest" in fact(output, "after")


def test_a_failed_call_tells_its_evidence_cause_and_solution(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("go")
    call = story.call("Bash", {"command": "sleep 999"})
    story.result(call, claude_results.timed_out("2m 0s"), after_ms=120_000)

    output = shown(story.write(tmp_path / "s.jsonl"), call[:20])

    assert "timed_out: ended by a timer" in fact(output, "state")
    assert "timeout text: Command timed out after" in fact(output, "evidence")
    assert "ran past its timeout" in fact(output, "cause")
    assert "background" in fact(output, "solution")
    assert "(2m 00s)" in fact(output, "times")


def test_a_long_result_is_cut_unless_all_of_it_is_wanted(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("go")
    call = story.call("Bash", {"command": "seq 100"})
    story.result(call, claude_results.ran("\n".join(f"line {n}" for n in range(100))))
    path = story.write(tmp_path / "s.jsonl")

    cut, full = shown(path, call), shown(path, call, "--full")

    assert "line 99" not in cut
    assert "… 60 more lines (--full)" in cut
    assert "line 99" in full


def test_a_subagents_call_names_the_call_that_started_it(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("go")
    call = story.call("Agent", {"description": "a", "prompt": "Look"})
    agent = story.agent(call).prompt("Look")
    inner = agent.call("Read", {"file_path": "/a"})
    agent.result(inner, claude_results.read("/a", "a"))
    saved(story, tmp_path)

    assert call in fact(shown(inner, root=tmp_path), "started by")


def loaded(*words: str | Path, root: Path | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shown(*words, "--json", root=root))
    return found


def test_a_session_as_json_has_turns_with_groups_and_lanes(tmp_path: Path) -> None:
    story = parallel()

    found = loaded(story.write(tmp_path / "s.jsonl"))

    assert found["session"]["session_id"] == story.session_id
    assert found["session"]["calls"] == {"succeeded": 2}
    (turn,) = found["turns"]
    said, batch, answer = turn["items"]
    assert (said["type"], said["voice"], said["text"]) == ("message", "prompt", "Look at both files")
    (group,) = batch["groups"]
    assert [call["lane"] for call in group["calls"]] == [0, 1]
    assert [call["tool"] for call in group["calls"]] == ["Read", "Read"]
    assert answer["text"] == "Both are fine"


def test_a_subagent_in_json_hangs_on_its_call(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("go")
    call = story.call("Agent", {"description": "a", "prompt": "Look"})
    agent = story.agent(call, kind="explorer").prompt("Look").text("seen")
    story.result(call, "seen")

    found = loaded(story.write(tmp_path / f"{story.session_id}.jsonl"))

    (started,) = found["turns"][0]["items"][1]["groups"][0]["calls"][0]["agents"]
    assert (started["agent"], started["role"]) == (agent.agent_id, "explorer")
    assert [item["text"] for item in started["turns"][0]["items"]] == ["Look", "seen"]


def test_a_call_as_json_has_input_result_and_diff(tmp_path: Path) -> None:
    story, call = edit()

    found = loaded(story.write(tmp_path / "s.jsonl"), call)

    assert found["call"]["id"] == call
    assert found["input_type"] == "EditInput"
    assert found["input"]["old_string"] == "old"
    assert found["result"]["structured_type"] == "EditResult"
    assert found["result"]["summary"] == "+1 −1"
    assert "+new = 1" in found["diff"]
    assert found["before"] and found["after"]


def test_json_of_hostile_and_broken_text_parses(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("half HALF of a pair")
    call = story.call("Bash", {"command": "echo HALF"})
    story.result(call, claude_results.ran("HALF")).text("HALF")
    path = tmp_path / "s.jsonl"
    path.write_bytes(story.data().replace(b"HALF", rb"\ud83d"))

    assert loaded(path)["turns"][0]["prompt"] == "half \ud83d of a pair"
    assert loaded(path, call)["input"] == {"command": "echo \ud83d"}
    assert "half" in shown(path)
    assert "echo" in shown(path, call)


@requirement("show.newest")
def test_of_equal_ids_the_newest_call_is_told_and_that_there_are_others(tmp_path: Path) -> None:
    for day, session in ((2, "bbbb"), (3, "aaaa"), (1, "cccc")):
        start = datetime(2026, 1, day, tzinfo=UTC)
        story = TranscriptBuilder(session_id=f"{session}-1", start=start).prompt("go")
        story.result(story.call("Bash", {"command": f"echo {session}"}, id="t1"), claude_results.ran("x"))
        saved(story, tmp_path)

    output = shown("t1", root=tmp_path)
    assert fact(output, "session") == "aaaa-1"
    assert fact(output, "also in").startswith("2 older sessions with this id: bbbb-1, cccc-1")
    assert json.loads(shown("t1", "--json", root=tmp_path))["others"] == ["bbbb-1", "cccc-1"]
    assert fact(shown("t1", "--session", "cc", root=tmp_path), "session") == "cccc-1"
    assert "also in" not in shown("t1", "--session", "cc", root=tmp_path)


@requirement("show.call-around")
def test_what_was_said_and_done_around_a_call_is_told_in_order(tmp_path: Path) -> None:
    story = TranscriptBuilder(cwd=CWD).prompt("Fix it")
    story.result(story.call("Read", {"file_path": f"{CWD}/a"}), claude_results.read(f"{CWD}/a", "a"))
    story.text("Now I run it")
    call = story.call("Bash", {"command": "make"})
    story.result(call, claude_results.exited(2, "no rule")).text("That failed").prompt("Try again")
    story.result(story.call("Bash", {"command": "make all"}), claude_results.ran("ok"))
    path = story.write(tmp_path / "s.jsonl")

    around = shown(path, call).partition("── around")[2].splitlines()[1:]
    told = [line[18:].split("  toolu")[0].strip() for line in around]
    assert told == [
        "✓ Read  a",
        "Now I run it",
        "✗ Bash  make  ◂ this",
        "That failed",
        "❯ Try again",
        "✓ Bash  make all",
    ]
    found = json.loads(shown(path, call, "--json"))["around"]
    assert [one.get("tool") or one["text"] for one in found["before"]] == ["Read", "Now I run it"]
    assert [one.get("text") for one in found["after"]][:2] == ["That failed", "Try again"]


@requirement("show.call-around")
def test_what_a_codex_patch_changed_is_told_with_line_numbers(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    desk = Rollout(tmp_path / "work", events=False)
    desk.patch(AddFile(path="a.py", lines=tuple(f"line {n}" for n in range(30))))
    chunk = PatchChunk(lines=(" line 19", "-line 20", "+zwanzig"))
    changed = desk.patch(UpdateFile(path="a.py", chunks=(chunk,)), heredoc=True)
    output = shown(desk.transcript().file, changed)
    assert "@@ -18,7 +18,7 @@" in output
    assert "-line 20\n+zwanzig\n" in output


@requirement("show.recovery")
def test_what_was_done_about_a_failure_is_told_with_the_call(tmp_path: Path) -> None:
    story = TranscriptBuilder(cwd=CWD).prompt("Fix it")
    change = {"file_path": f"{CWD}/a.py", "old_string": "old", "new_string": "new"}
    failed = story.call("Edit", change)
    story.result(failed, claude_results.refused("File has not been read yet. Read it first."))
    look = story.call("Read", {"file_path": f"{CWD}/a.py"})
    story.result(look, claude_results.read(f"{CWD}/a.py", "old = 1\n"))
    again = story.call("Edit", change)
    story.result(again, claude_results.edited(f"{CWD}/a.py", "old = 1\n", "old", "new"))
    path = story.write(tmp_path / "s.jsonl")

    for call in (failed, again):
        output = shown(path, call)
        assert "── recovery · read before write · recovered ─" in output
        told = output.partition("── recovery")[2].partition("──")[2].splitlines()[1:4]
        assert [line.split()[2] for line in told] == ["Edit", "Read", "Edit"]
        assert row(output.partition("── around")[0], "◂ this").endswith(f"{call} ◂ this")
    assert json.loads(shown(path, failed, "--json"))["recovery"]["outcome"] == "recovered"
