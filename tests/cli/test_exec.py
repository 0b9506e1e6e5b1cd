"""`toolspan exec`: a runner over a pipe, driven as a program would drive it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

import toolspan
from tests.cli.terminal import message
from tests.fork_server import TOOLSPAN, run_toolspan

pytestmark = pytest.mark.usefixtures("fork_server")

COMMAND = [
    *("exec", "--permission-mode", "bypassPermissions"),
    *("--setting-sources", ""),  # ignore the developer's settings
]


def run(
    folder: Path, *lines: str, options: tuple[str, ...] = ("--transcript", "none")
) -> tuple[list[dict[str, object]], subprocess.CompletedProcess[str]]:
    result = run_toolspan(*COMMAND, *options, cwd=folder, stdin="".join(line + "\n" for line in lines))
    return [json.loads(line) for line in result.stdout.splitlines()], result


def test_every_call_gets_one_line_and_end_of_input_ends_the_command(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n", encoding="utf-8")
    rows, result = run(
        tmp_path,
        message(("r", "Read", {"file_path": "a.txt"}), ("x", "Nothing", {})),
        message(("b", "Bash", {"command": "echo hi"})),
    )

    assert result.returncode == 0
    assert sorted(str(row["tool_use_id"]) for row in rows) == ["b", "r", "x"]
    by_id = {row["tool_use_id"]: row for row in rows}
    assert by_id["r"]["content"] == "1\thello\n2\t"
    assert "is_error" not in by_id["r"]
    assert (by_id["b"]["is_error"], by_id["b"]["state"]) == (False, "succeeded")
    assert (by_id["x"]["is_error"], by_id["x"]["error_kind"]) == (True, "unknown_tool")


def test_invalid_line_gets_an_error_line_and_the_next_call_runs(tmp_path: Path) -> None:
    rows, result = run(
        tmp_path,
        "{broken",
        "[]",
        '{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash"}]}}',
        '{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"Bash","arguments":"{}"}}]}',
        "",
        message(("b", "Bash", {"command": "echo hi"})),
    )

    assert result.returncode == 0
    assert [(row["type"], row.get("line")) for row in rows] == [
        ("error", 1),
        ("error", 2),
        ("error", 3),
        ("error", 4),
        ("result", None),
    ]


def test_a_call_needs_no_message_around_it(tmp_path: Path) -> None:
    rows, _ = run(
        tmp_path,
        '{"type":"tool_use","id":"b","name":"Bash","input":{"command":"echo hi"}}',
        '{"role":"assistant"}',
    )

    assert [(row["type"], row.get("content")) for row in rows[:1]] == [("result", "hi")]
    assert '"content": [...]' in str(rows[1]["message"])


def test_lone_surrogates_and_huge_numbers_do_not_lose_an_answer(tmp_path: Path) -> None:
    hello = {"command": "echo hi"}
    rows, result = run(
        tmp_path,
        message(("a", "Bash", {"command": "echo x\ud800y"}), ("b", "Bash", hello)),
        message(("c", "Bash", {**hello, "timeout": 5000})).replace("5000", "1e400"),
    )

    assert result.returncode == 0
    output = {row.get("tool_use_id"): row.get("content") for row in rows if row["type"] == "result"}
    assert output == {"a": "x\ufffdy", "b": "hi", "c": "hi"}


def test_calls_are_recorded_in_the_requested_transcript(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "t.jsonl"
    run(tmp_path, message(("b", "Bash", {"command": "exit 3"})), options=("--transcript", str(path)))

    spans = toolspan.read(path).spans
    assert [(s.id, s.state, s.error_kind) for s in spans] == [("b", "failed", "command_failed")]


def test_events_of_a_call_are_printed_in_order(tmp_path: Path) -> None:
    rows, _ = run(tmp_path, message(("b", "Bash", {"command": "true"})), options=("--transcript", "none", "--events"))

    tools = rows[0]["tools"]
    assert rows[0]["subtype"] == "init"
    assert isinstance(tools, list)
    assert {"Bash", "Read", "Edit", "Write"} <= set(tools)
    kinds = [row["type"] for row in rows]
    expected = [
        "call.requested", "permission.decided", "call.started", "call.finished", "result",
        "batch.finished",
    ]  # fmt: skip
    assert [kind for kind in kinds if kind in expected] == expected


def test_rules_of_a_settings_file_apply(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    rules = {"permissions": {"allow": ["Read"], "deny": ["Bash(true)"]}}
    settings.write_text(json.dumps(rules), encoding="utf-8")
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")
    rows, _ = run(
        tmp_path,
        message(
            ("r", "Read", {"file_path": "a.txt"}),
            ("b", "Bash", {"command": "true"}),
            ("w", "Write", {"file_path": "n.txt", "content": "x"}),
        ),
        options=(
            "--transcript", "none", "--permission-mode", "default", "--settings", str(settings),
        ),
    )  # fmt: skip

    assert {str(row["tool_use_id"]): row["state"] for row in rows} == {"r": "succeeded", "b": "denied", "w": "denied"}
    assert not (tmp_path / "n.txt").exists()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{broken", "settings.json"),
        ('{"permissions": {"allow": 7}}', "permissions.allow"),
        ('{"permissions": {"allow": ["(("]}}', "permission rule"),
        ('{"hooks": {"PreToolUse": [3]}}', "hooks"),
    ],
)
def test_unsupported_settings_are_refused_by_name(tmp_path: Path, text: str, word: str) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(text, encoding="utf-8")
    _, result = run(tmp_path, options=("--transcript", "none", "--settings", str(settings)))

    assert result.returncode == 2
    assert word in result.stderr


@contextmanager
def running(tmp_path: Path, line: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start `exec` with events and send it a message."""
    with subprocess.Popen(
        [*TOOLSPAN, *COMMAND, "--transcript", "none", "--events", *options],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        assert child.stdin is not None
        child.stdin.write(line.encode() + b"\n")
        child.stdin.flush()
        try:
            yield child
        finally:
            child.kill()


def test_interrupt_ends_the_running_call_with_a_result_and_leaves_no_process(tmp_path: Path) -> None:
    command = "echo $$ > pid; echo out; sleep 1000"
    line = message(("b", "Bash", {"command": command}), ("c", "Bash", {"command": "touch never"}))
    with running(tmp_path, line) as child:
        assert child.stdout is not None
        rows = list(_until_progress(child.stdout))
        child.send_signal(signal.SIGINT)
        rows += [json.loads(line) for line in child.stdout]
        assert child.wait(30) == 130

    results = {row["tool_use_id"]: row["state"] for row in rows if row["type"] == "result"}
    assert results == {"b": "interrupted", "c": "cancelled"}
    assert not (tmp_path / "never").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text(encoding="utf-8")), 0)


def test_more_signals_do_not_end_the_process_before_the_session_is_closed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "closing")
    os.mkfifo(tmp_path / "release")
    hook = {"hooks": [{"type": "command", "command": "echo > closing; read line < release"}]}
    settings = tmp_path / "s.json"
    settings.write_text(json.dumps({"hooks": {"SessionEnd": [hook]}}), encoding="utf-8")
    line = message(("b", "Bash", {"command": "echo out; sleep 1000"}))
    with running(tmp_path, line, "--settings", "s.json") as child:
        assert child.stdout is not None
        rows = list(_until_progress(child.stdout))
        child.send_signal(signal.SIGTERM)
        (tmp_path / "closing").read_text(encoding="utf-8")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            child.send_signal(number)
        (tmp_path / "release").write_text("go\n", encoding="ascii")
        rows += [json.loads(line) for line in child.stdout]
        assert child.wait(30) == 128 + signal.SIGTERM

    assert [row["state"] for row in rows if row["type"] == "result"] == ["interrupted"]


def test_call_is_interrupted_when_the_reader_of_the_output_is_gone(tmp_path: Path) -> None:
    with running(tmp_path, message(("b", "Bash", {"command": "echo out; exec sleep 1000"}))) as child:
        assert child.stdout is not None
        list(_until_progress(child.stdout))
        child.stdout.close()
        assert child.wait(30) == 141


def _until_progress(out: IO[bytes]) -> Iterator[dict[str, object]]:
    """Return the rows up to the first progress of the command."""
    for line in out:
        row = json.loads(line)
        yield row
        if row["type"] == "call.progress":
            return


def test_unwritable_transcript_is_reported_and_the_calls_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    lines = [message((f"c{n}", "Bash", {"command": "true"})) for n in range(5)]

    rows, result = run(tmp_path, *lines, options=("--transcript", "file/t.jsonl"))

    assert [row["state"] for row in rows] == ["succeeded"] * 5
    assert result.returncode == 0
    about = f"toolspan exec: not recorded: {tmp_path}/file/t.jsonl: "
    lost = [line.removeprefix(about) for line in result.stderr.splitlines() if about in line]
    assert lost[0] == "Not a directory"
    assert len(lost) == len(set(lost)) == 4  # three reasons and the summary
    assert lost[-1].endswith(" times in total")


def test_unwritable_output_ends_the_command(tmp_path: Path) -> None:
    lines = (message(("a", "Bash", {"command": "true"})), message(("b", "Bash", {"command": "touch later"})))
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [*TOOLSPAN, *COMMAND, "--transcript", "none"],
            cwd=tmp_path,
            input="\n".join(lines).encode(),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )

    assert result.returncode == 3
    assert result.stderr.count(b"cannot write to standard output") == 1
    assert not (tmp_path / "later").exists()


@pytest.mark.parametrize("rule", ["Bash(echo", "(("])
def test_invalid_rule_on_the_command_line_is_refused(tmp_path: Path, rule: str) -> None:
    line = message(("a", "Bash", {"command": "touch ran"}))
    options = ("--transcript", "none", "--disallowed-tools", rule)
    _, result = run(tmp_path, line, options=options)

    assert result.returncode == 2
    assert not (tmp_path / "ran").exists()


def test_closed_standard_input_runs_nothing(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-m", "toolspan", "exec", "--transcript", "none"]) + " <&-"
    result = subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, check=False)

    assert result.returncode == 0


def test_hook_context_follows_all_results_of_a_message(tmp_path: Path) -> None:
    text = {"hookSpecificOutput": {"hookEventName": "PostToolBatch", "additionalContext": "well"}}
    handler = {"type": "command", "command": f"echo {shlex.quote(json.dumps(text))}"}
    settings = {"hooks": {"PostToolBatch": [{"matcher": "", "hooks": [handler]}]}}
    (tmp_path / "s.json").write_text(json.dumps(settings), encoding="utf-8")
    rows, _ = run(
        tmp_path,
        message(("a", "Bash", {"command": "echo hi"})),
        options=("--transcript", "none", "--settings", "s.json"),
    )

    assert [row["type"] for row in rows] == ["result", "notice"]
    assert rows[1]["content"] == ["PostToolBatch hook additional context: well"]


def test_unknown_newer_profile_takes_the_nearest_one_and_says_so(tmp_path: Path) -> None:
    todos = [{"content": "a", "status": "pending", "activeForm": "A"}]
    options = ("--transcript", "none", "--profile", "2.9.1", "--tools", "TodoWrite")
    rows, result = run(tmp_path, message(("t", "TodoWrite", {"todos": todos})), options=options)

    assert "there is no profile 2.9.1; using the nearest one, 2.1.327" in result.stderr
    assert [(row["tool_use_id"], row["state"]) for row in rows] == [("t", "succeeded")]
    assert run(tmp_path, options=("--profile", "newest"))[1].returncode == 2
