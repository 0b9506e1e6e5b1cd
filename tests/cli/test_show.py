"""`toolspan show`: a session as a timeline, a call in full, for people and for programs."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.analysis.recorded_edits import CodexFolder
from tests.cli.command import CWD, home_at, rows, run, saved
from toolspan.diffs.codex_patch import AddFile, PatchChunk, UpdateFile
from toolspan.reading.cache import Cache, cached_map
from toolspan.reading.excerpt import read_excerpt
from toolspan.reading.facts import SCAN_JOB
from toolspan.testing import TranscriptBuilder, claude_results
from toolspan.testing.codex_builder import RolloutBuilder

ESCAPE = "\x1b[2J\x1b]0;owned\x07"


def show(*arguments: str | Path, root: Path | None = None) -> Result:
    return run("show", *arguments, code=None, env=home_at(root))


def show_output(*arguments: str | Path, root: Path | None = None) -> str:
    return run("show", *arguments, env=home_at(root)).stdout


def row(output: str, text: str) -> str:
    """Return the only line that contains a text."""
    (result,) = (line for line in output.splitlines() if text in line)
    return result


def fact(output: str, label: str) -> str:
    """Return the text of a labelled line."""
    (result,) = re.findall(rf"^{label} +(.*)", output, re.MULTILINE)
    return str(result)


def column(output: str, text: str) -> int:
    """Return the column of a text on its line."""
    return row(output, text).index(text)


def parallel() -> TranscriptBuilder:
    builder = TranscriptBuilder().prompt("Look at both files")
    first, second = (builder.call("Read", {"file_path": f"{CWD}/{name}"}) for name in ("a", "b"))
    builder.result(second, claude_results.read(f"{CWD}/b", "b"), after_ms=100)
    builder.result(first, claude_results.read(f"{CWD}/a", "a"), after_ms=100)
    return builder.text("Both are fine")


def test_session_is_shown_with_its_facts_and_parallel_calls_in_lanes(tmp_path: Path) -> None:
    builder = parallel().title("Two files").result("toolu_gone", "late")

    output = show_output(builder.write(tmp_path / "s.jsonl"))

    assert builder.session_id in fact(output, "session")
    assert "Two files" in fact(output, "about")
    assert "2.1.327" in fact(output, "client")
    assert "2026-11-02 09:00:00 – 09:00:00" in fact(output, "when")
    assert fact(output, "calls").startswith("2  ✓ 2 succeeded")
    assert "1 orphan result" in fact(output, "calls")
    assert "┌  ✓ Read  a" in output
    assert "└─ ✓ Read  b" in output
    assert "up to 2 calls at once" in output


def test_calls_of_one_message_that_ran_serially_are_drawn_apart(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    for n in range(2):
        call = builder.call("Bash", {"command": f"echo {n}"}, message="msg_1", after_ms=10)
        builder.result(call, claude_results.ran("x"), after_ms=10)

    output = show_output(builder.write(tmp_path / "s.jsonl"))

    assert "╷ ✓ Bash  echo 0" in output
    assert "╵ ✓ Bash  echo 1" in output


@pytest.mark.parametrize("version", ["1.0.98", "2.0.65", "2.1.327"])
def test_subagent_is_shown_under_its_call(version: str, tmp_path: Path) -> None:
    builder = TranscriptBuilder(version=version).prompt("go")
    call = builder.call("Task", {"description": "Count files", "prompt": "Count them"})
    agent = builder.agent(call).prompt("Count them")
    inner = agent.call("Bash", {"command": "ls | wc -l"})
    agent.result(inner, claude_results.ran("3"), after_ms=10).text("There are three")
    report = claude_results.reported(
        agent.agent_id, "There are three", prompt="Count them", calls=1, took_ms=9, version=version
    )
    builder.until(agent).result(call, report).text("All counted")

    output = show_output(builder.write(tmp_path / f"{builder.session_id}.jsonl"))

    order = ["Count files", "❯ Count them", "ls | wc -l", "There are three", "All counted"]
    assert sorted(order, key=output.index) == order
    assert column(output, "Task ") < column(output, "Bash ") < column(output, "ls | wc -l")


def test_every_turn_shows_its_time_even_within_one_second(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("First").text("Yes").prompt("Second").text("No")

    output = show_output(builder.write(tmp_path / "s.jsonl"))

    first, second = row(output, "❯ First")[:8], row(output, "❯ Second")[:8]
    assert first == second == f"{TranscriptBuilder().now:%H:%M:%S}"
    assert row(output, "Yes").startswith(" ")


def test_messages_are_shown_between_calls_and_can_be_hidden(tmp_path: Path) -> None:
    path = parallel().thinking("Hmm, let me see").write(tmp_path / "s.jsonl")

    everything, calls = show_output(path), show_output(path, "--no-messages")

    assert "❯ Look at both files" in everything
    assert "Both are fine" in everything
    assert "Hmm, let me see" not in everything
    assert "Both are fine" not in calls
    assert "Read  a" in calls
    assert "Hmm, let me see" in show_output(path, "--thinking")


def test_failure_and_events_are_shown_below_their_call(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("test")
    builder.result(builder.call("Bash", {"command": "pytest"}), claude_results.exited(1, "1 failed"))
    call = builder.call("Bash", {"command": "make serve", "run_in_background": True})
    builder.hook(call, "PreToolUse", command="lint.sh", outcome="error", text="no lint here")
    builder.result(call, claude_results.in_background("b1", "/tmp/b1"))
    builder.task_notification(call, "b1", "Server stopped", queued=True)

    output = show_output(builder.write(tmp_path / "s.jsonl"))

    assert "✗ Bash  pytest" in output
    assert "command failed: Exit code 1 1 failed" in output
    assert "hook PreToolUse:Bash · error" in output
    assert "background b1 · completed · Server stopped" in output


def test_interrupts_compactions_pauses_and_rewinds_are_marked(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go").text("working").interrupt()
    builder.prompt("again", after_ms=600_000).compact("All so far.").text("ready")
    before = builder.last
    builder.prompt("wrong way").text("oh no").rewind(before).prompt("right way").text("yes")

    output = show_output(builder.write(tmp_path / "s.jsonl"))

    assert "■ [Request interrupted by user]" in output
    assert "┄ 10m 00s later" in output
    assert "── Conversation compacted (auto" in output
    assert "abandoned by a rewind" in output
    assert "┊ ❯ wrong way" in output
    assert "┊ ❯ right way" not in output


def test_no_line_exceeds_the_width(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("漢字かな " * 60)
    call = builder.call("Bash", {"command": "echo " + "x" * 500})
    builder.result(call, claude_results.exited(2, "y" * 500)).text("z" * 300)

    output = show_output(builder.write(tmp_path / "s.jsonl"), "--width", "80")

    wide = re.compile(r"[\u3000-\u9fff]")
    assert all(len(line) + len(wide.findall(line)) <= 80 for line in output.splitlines())


def hostile() -> TranscriptBuilder:
    builder = TranscriptBuilder().prompt(f"[bold]hi[/bold] {ESCAPE}").title(f"title {ESCAPE}")
    call = builder.call("Bash", {"command": f"echo [red]{ESCAPE}"}, id="toolu_hostile")
    builder.result(call, claude_results.exited(1, f"[link=x]{ESCAPE}\u202e\x9b31m\x00"))
    quiet = builder.call("Bash", {"command": "grep x"}, id=f"toolu_quiet{ESCAPE}\u202e")
    builder.result(quiet, claude_results.ran("", returnCodeInterpretation=f"no matches {ESCAPE}\u202e"))
    edit = builder.call("Edit", {"file_path": "/w/a"}, id=f"toolu_edit{ESCAPE}\u202e")
    builder.result(edit, claude_results.edited("/w/a", "a\n", "a", "b"))
    other = builder.call(f"mcp__{ESCAPE}", {f"key{ESCAPE}": ESCAPE})
    return builder.result(other, claude_results.mcp_text(ESCAPE)).text(f"[/nonsense]{ESCAPE}")


@pytest.mark.parametrize("name", [[], ["toolu_hostile"], ["toolu_quiet"], ["toolu_edit"]])
@pytest.mark.parametrize("form", [[], ["--full"]])
def test_hostile_text_is_printed_without_escape_codes_or_markup(
    name: list[str], form: list[str], tmp_path: Path
) -> None:
    output = show_output(hostile().write(tmp_path / "s.jsonl"), *name, *form)

    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", output)
    assert "[red]" in output or name == ["toolu_edit"]


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["list.txt"], "list.txt: not a transcript"),
        ([""], "a name is empty"),
        (["s.jsonl", "--json", "--html"], "use either --json or --html"),
    ],
)
def test_invalid_source_and_conflicting_formats_are_refused(
    arguments: list[str], output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.txt").write_text("bread\nmilk\n", encoding="utf-8")
    parallel().write(tmp_path / "s.jsonl")

    result = show(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert output in result.stderr


def test_newest_session_is_the_default_and_ids_may_be_shortened(tmp_path: Path) -> None:
    builder = parallel()
    saved(builder, tmp_path)

    for names in ([builder.session_id[:8]], [], ["--last"]):
        assert "Both are fine" in show_output(*names, root=tmp_path)


@pytest.mark.parametrize("name", ["agent-a1b2c3d.jsonl", "0e1b87ff-a597.jsonl"])
def test_name_is_a_session_id_if_no_such_file_exists(name: str, tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="13b6354b-6f8f").prompt("go")
    helper = builder.agent(builder.call("Task", {"prompt": "look"})).prompt("look")
    helper.result(helper.call("Bash", {"command": "ls -la"}), claude_results.ran("a"))
    saved(parallel(), tmp_path)
    copied = helper if name.startswith("agent") else parallel()
    data = copied.data().replace(copied.session_id.encode(), b"13b6354b-6f8f")
    (tmp_path / "projects" / name).write_bytes(data)
    session = "13b6354b"

    assert session in fact(show_output(session, root=tmp_path), "session")
    output = rows(run("calls", session, "--json", env=home_at(tmp_path)))
    assert {row["file"] for row in output} == {str(tmp_path / "projects" / name)}
    for command in ("time", "stats", "sessions", "export"):
        run(command, session, env=home_at(tmp_path))
    run("watch", session, "--idle-exit", "0", env=home_at(tmp_path))
    assert "no session begins with '13b7'" in run("calls", "13b7", code=2, env=home_at(tmp_path)).stderr


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["aaaa"], "2 sessions begin with 'aaaa'"),
        (["projects"], "--last"),
        (["s.jsonl", "toolu_"], "2 calls begin with 'toolu_'"),
        (["nothing"], "nothing"),
        (["no/such.jsonl"], "no/such.jsonl"),
        (["gone.jsonl"], "gone.jsonl"),
    ],
)
def test_unknown_or_ambiguous_name_is_refused(
    names: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parallel().write(tmp_path / "s.jsonl")
    for last in "12":
        saved(TranscriptBuilder(session_id=f"aaaa-{last}").prompt("hi"), tmp_path)

    result = show(*names, root=tmp_path)

    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert message in result.stderr


def edit() -> tuple[TranscriptBuilder, str]:
    builder = TranscriptBuilder().prompt("Rename it")
    builder.result(builder.call("Read", {"file_path": f"{CWD}/a.py"}), "1\told = 1")
    change = {"file_path": f"{CWD}/a.py", "old_string": "old", "new_string": "new"}
    call = builder.call("Edit", change, after_ms=50)
    builder.result(call, claude_results.edited(f"{CWD}/a.py", "old = 1\n", "old", "new"), after_ms=20)
    builder.result(builder.call("Bash", {"command": "pytest"}), claude_results.ran("ok"))
    return builder, call


def test_call_is_shown_with_its_diff_and_neighbours(tmp_path: Path) -> None:
    builder, call = edit()
    path = saved(builder, tmp_path)

    output = show_output(call, root=tmp_path)
    row = loaded(path, call)

    assert "succeeded: ran and reported no error" in fact(output, "state")
    assert "no error flag" in fact(output, "evidence")
    assert "Rename it" in fact(output, "prompt")
    assert re.search(rf"requested +{re.escape(str(path))}:\d+", output)
    assert "-old = 1\n+new = 1\n" in output
    assert "old_string old" in output
    assert "Read  a.py" in fact(output, "before")
    assert "Bash  pytest" in fact(output, "after")
    assert (row["call"]["id"], row["input_type"], row["input"]["old_string"]) == (call, "EditInput", "old")
    assert (row["result"]["structured_type"], row["result"]["summary"]) == ("EditResult", "+1 −1")
    assert "+new = 1" in row["diff"]
    assert row["before"] and row["after"]


def test_failed_call_shows_its_evidence_cause_and_solution(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Bash", {"command": "sleep 999"})
    builder.result(call, claude_results.timed_out("2m 0s"), after_ms=120_000)

    output = show_output(builder.write(tmp_path / "s.jsonl"), call[:20])

    assert "timed_out: ended by a timer" in fact(output, "state")
    assert "timeout text: Command timed out after" in fact(output, "evidence")
    assert "longer than its timeout" in fact(output, "cause")
    assert "background" in fact(output, "solution")
    assert "(2m 00s)" in fact(output, "times")


def test_long_result_is_cut_unless_shown_in_full(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Bash", {"command": "seq 100"})
    builder.result(call, claude_results.ran("\n".join(f"line {n}" for n in range(100))))
    path = builder.write(tmp_path / "s.jsonl")

    cut, full = show_output(path, call), show_output(path, call, "--full")

    assert "line 99" not in cut
    assert "… 60 more lines (--full)" in cut
    assert "line 99" in full


def test_subagent_belongs_to_the_call_that_started_it(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Agent", {"description": "a", "prompt": "Look"})
    agent = builder.agent(call, kind="explorer").prompt("Look")
    inner = agent.call("Read", {"file_path": "/a"})
    agent.result(inner, claude_results.read("/a", "a")).text("seen")
    builder.result(call, "seen")
    path = saved(builder, tmp_path)

    (started,) = loaded(path)["turns"][0]["items"][1]["groups"][0]["calls"][0]["agents"]

    assert call in fact(show_output(inner, root=tmp_path), "started by")
    assert (started["agent"], started["role"]) == (agent.agent_id, "explorer")
    assert [item.get("text") for item in started["turns"][0]["items"]] == ["Look", None, "seen"]


def loaded(*arguments: str | Path, root: Path | None = None) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(show_output(*arguments, "--json", root=root))
    return result


def test_json_of_a_session_has_turns_with_groups_and_lanes(tmp_path: Path) -> None:
    builder = parallel()

    result = loaded(builder.write(tmp_path / "s.jsonl"))

    assert result["session"]["session_id"] == builder.session_id
    assert result["session"]["calls"] == {"succeeded": 2}
    (turn,) = result["turns"]
    text, batch, reply = turn["items"]
    assert (text["type"], text["voice"], text["text"]) == ("message", "prompt", "Look at both files")
    (group,) = batch["groups"]
    assert [call["lane"] for call in group["calls"]] == [0, 1]
    assert [call["tool"] for call in group["calls"]] == ["Read", "Read"]
    assert reply["text"] == "Both are fine"


def test_json_of_hostile_or_broken_text_is_valid(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("half HALF of a pair")
    call = builder.call("Bash", {"command": "echo HALF"})
    builder.result(call, claude_results.ran("HALF")).text("HALF")
    path = tmp_path / "s.jsonl"
    path.write_bytes(builder.data().replace(b"HALF", rb"\ud83d"))

    assert loaded(path)["turns"][0]["prompt"] == "half \ud83d of a pair"
    assert loaded(path, call)["input"] == {"command": "echo \ud83d"}
    assert "half" in show_output(path)
    assert "echo" in show_output(path, call)


def test_repeated_id_selects_the_newest_call_with_a_notice(tmp_path: Path) -> None:
    for day, session in ((2, "bbbb"), (3, "aaaa"), (1, "cccc")):
        start = datetime(2026, 1, day, tzinfo=UTC)
        builder = TranscriptBuilder(session_id=f"{session}-1", start=start).prompt("go")
        builder.result(builder.call("Bash", {"command": f"echo {session}"}, id="t1"), claude_results.ran("x"))
        saved(builder, tmp_path)

    output = show_output("t1", root=tmp_path)
    assert fact(output, "session") == "aaaa-1"
    assert fact(output, "also in").startswith("2 older sessions with this id: bbbb-1, cccc-1")
    assert json.loads(show_output("t1", "--json", root=tmp_path))["others"] == ["bbbb-1", "cccc-1"]
    assert fact(show_output("t1", "--session", "cc", root=tmp_path), "session") == "cccc-1"
    assert "also in" not in show_output("t1", "--session", "cc", root=tmp_path)


def test_messages_and_calls_around_a_call_are_shown_in_order(tmp_path: Path) -> None:
    builder = TranscriptBuilder(cwd=CWD).prompt("Fix it")
    builder.result(builder.call("Read", {"file_path": f"{CWD}/a"}), claude_results.read(f"{CWD}/a", "a"))
    builder.text("Now I run it")
    call = builder.call("Bash", {"command": "make"})
    builder.result(call, claude_results.exited(2, "no rule")).text("That failed").prompt("Try again")
    builder.result(builder.call("Bash", {"command": "make all"}), claude_results.ran("ok"))
    path = builder.write(tmp_path / "s.jsonl")

    around = show_output(path, call).partition("── around")[2].splitlines()[1:-1]
    output = [line[18:].split("  toolu")[0].strip() for line in around]
    assert output == [
        "✓ Read  a",
        "Now I run it",
        "✗ Bash  make  ◂ this",
        "That failed",
        "❯ Try again",
        "✓ Bash  make all",
    ]
    result = json.loads(show_output(path, call, "--json"))["around"]
    assert [item.get("tool") or item["text"] for item in result["before"]] == ["Read", "Now I run it"]
    assert [item.get("text") for item in result["after"]][:2] == ["That failed", "Try again"]


@pytest.mark.parametrize(
    ("offset", "limit", "expected"), [(1, 0, "3 lines"), (3, 0, "1 of 3 lines"), (1, 2, "2 of 4 lines")]
)
def test_number_of_lines_excludes_the_empty_one_after_the_last_line_break(
    offset: int, limit: int, expected: str, tmp_path: Path
) -> None:
    builder = TranscriptBuilder(cwd=CWD).prompt("Read it")
    call = builder.call("Read", {"file_path": f"{CWD}/a"})
    builder.result(call, claude_results.read(f"{CWD}/a", "one\n\nthree\n", offset=offset, limit=limit))
    path = builder.write(tmp_path / "s.jsonl")
    assert json.loads(show_output(path, call, "--json"))["result"]["summary"] == expected


def test_codex_patch_is_shown_with_line_numbers(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    workspace = CodexFolder(tmp_path / "work", events=False)
    workspace.patch(AddFile(path="a.py", lines=tuple(f"line {n}" for n in range(30))))
    chunk = PatchChunk(lines=(" line 19", "-line 20", "+zwanzig"))
    changed = workspace.patch(UpdateFile(path="a.py", chunks=(chunk,)), heredoc=True)
    output = show_output(workspace.transcript().file, changed)
    assert "@@ -18,7 +18,7 @@" in output
    assert "-line 20\n+zwanzig\n" in output


def test_recovery_is_shown_with_the_failed_call(tmp_path: Path) -> None:
    builder = TranscriptBuilder(cwd=CWD).prompt("Fix it")
    change = {"file_path": f"{CWD}/a.py", "old_string": "old", "new_string": "new"}
    failed = builder.call("Edit", change)
    builder.result(failed, claude_results.refused("File has not been read yet. Read it first."))
    look = builder.call("Read", {"file_path": f"{CWD}/a.py"})
    builder.result(look, claude_results.read(f"{CWD}/a.py", "old = 1\n"))
    second = builder.call("Edit", change)
    builder.result(second, claude_results.edited(f"{CWD}/a.py", "old = 1\n", "old", "new"))
    path = builder.write(tmp_path / "s.jsonl")

    for call in (failed, second):
        output = show_output(path, call)
        assert "── recovery · read the file first · recovered ─" in output
        steps = output.partition("── recovery")[2].partition("──")[2].splitlines()[1:4]
        assert [line.split()[2] for line in steps] == ["Edit", "Read", "Edit"]
        assert row(output.partition("── around")[0], "◂ this").endswith(f"{call} ◂ this")
    assert json.loads(show_output(path, failed, "--json"))["recovery"]["outcome"] == "recovered"


@pytest.mark.parametrize("side", ["message", "thinking", "subagent", "rollout"])
def test_address_of_a_search_hit_opens_the_session_at_that_line(side: str, tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="5e550001").prompt("first")
    for number in range(20):
        builder.text(f"step {number} " + "x" * 300, after_ms=1_000)
    needle = "needle " + "y" * 200 + " the end"
    if side == "rollout":
        RolloutBuilder().prompt("first").text(needle).write(tmp_path / ".codex")
    elif side == "subagent":
        call = builder.call("Task", {"prompt": "look"}, id="starter")
        agent = builder.agent(call).prompt("look").text(needle)
        builder.until(agent).result(call, "seen")
    elif side == "thinking":
        builder.thinking(needle)
    else:
        builder.text(needle)
    builder.text("later").write(tmp_path / ".claude" / "projects" / "-p" / "5e550001.jsonl")

    hit = run("search", "needle", tmp_path, "--in", "message", env={"COLUMNS": "100"}).stdout.splitlines()[0]
    output = show_output(hit.split()[-1], tmp_path, "--width", "100")

    (target,) = (line for line in output.splitlines() if "▶" in line)
    assert "needle" in target
    assert "the end" in output  # in full
    assert "step 5" not in output
    assert ("later" in output) == (side in ("message", "thinking"))


@pytest.mark.parametrize(
    ("name", "text"),
    [("5e550001:99", "has 2 lines; there is no line 99"), ("5e550001:0", "no line 0"), ("c1:2", "is a call")],
)
def test_missing_line_is_an_error(name: str, text: str, tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="5e550001").prompt("go")
    builder.call("Bash", {"command": "ls"}, id="c1")
    builder.write(tmp_path / "projects" / "-p" / "5e550001.jsonl")

    result = run("show", name, tmp_path, code=2)

    assert text in result.output


def test_equal_calls_in_sequence_are_folded(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    for _ in range(40):
        call = builder.call("Bash", {"command": "git status"}, after_ms=1_000)
        builder.result(call, claude_results.exited(1, "no"), after_ms=500)
    path = builder.text("done").write(tmp_path / "s.jsonl")

    folded = show_output(path)
    assert folded.count("git status") == 1
    assert "40 × the same, --unfold" in folded
    assert "done" in folded
    assert show_output(path, "--unfold").count("git status") == 40
    (item,) = json.loads(show_output(path, "--json"))["turns"]
    assert sum(entry["type"] == "batch" for entry in item["items"]) == 40


def test_call_of_a_large_session_is_read_from_its_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = TranscriptBuilder(session_id="5a1e0000-0000-4000-8000-000000000001").prompt("first task")
    calls = []
    for number in range(12):  # 12 MB: files from 8 MB on are read in part
        call = builder.call("Bash", {"command": f"make part{number}"}, after_ms=500)
        builder.result(call, claude_results.exited(2, "No rule") if number % 5 == 4 else f"{number:2} " * 350_000)
        calls.append(call)
        if number == 5:
            builder.compact("so far").prompt("second task")
    file = saved(builder, tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TOOLSPAN_NO_CACHE")
    env = home_at(tmp_path)
    outputs = [
        run("show", call, tmp_path, "--json", env={**env, "TOOLSPAN_NO_CACHE": "1"}).stdout for call in calls[::3]
    ]
    later = time.time_ns() + 10**10  # only files that have rested are cached
    list(cached_map([file], SCAN_JOB, Cache(tmp_path / "cache" / "toolspan"), now=lambda: later))
    assert [run("show", call, tmp_path, "--json", env=env).stdout for call in calls[::3]] == outputs
    excerpt = read_excerpt(file, calls[0])
    assert excerpt is not None
    assert 0 < len(excerpt.spans) < len(calls)
    assert json.loads(outputs[0])["call"]["branch"] == "compacted"
    assert json.loads(outputs[-1])["prompt"] == "second task"
