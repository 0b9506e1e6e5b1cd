"""`toolspan guard`: limits that the hooks check, and the status line."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import one_row, run, saved
from tests.fork_server import run_toolspan
from toolspan import Archive
from toolspan.integrations.guard import update_state
from toolspan.testing import RolloutBuilder, TranscriptBuilder, claude_results, codex_builder

pytestmark = pytest.mark.usefixtures("fork_server")

SESSION = "5e551011-0000-4000-8000-000000000001"
INPUT = {"command": "make test"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def session(failures: int = 0, name: str = SESSION) -> TranscriptBuilder:
    builder = TranscriptBuilder(session_id=name).prompt("make it pass")
    call = builder.call("Bash", {"command": "ls"}, id="toolu_0", after_ms=60_000)
    builder.usage(input_tokens=100_000, output_tokens=10_000)
    builder.result(call, claude_results.ran("a"))
    for number in range(failures):
        call = builder.call("Bash", INPUT, id=f"toolu_f{number}", after_ms=60_000)
        builder.usage(input_tokens=100_000, output_tokens=10_000)
        builder.result(call, claude_results.exited(2, "broken"))
    return builder


def check(home: Path, transcript: Path, tool_input: Mapping[str, object] = INPUT) -> dict[str, Any]:
    """Run the hook as the client does; return what it decides."""
    hook_input = {"session_id": transcript.stem, "transcript_path": str(transcript), "cwd": "/home/dev/project",
                  "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": tool_input}  # fmt: skip
    done = run_toolspan("hook", "guard", cwd=home, env={**os.environ}, stdin=json.dumps(hook_input))
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout) if done.stdout else {}


def test_a_session_stops_at_its_cost_until_it_is_lifted(home: Path) -> None:
    transcript = saved(session(), home / ".claude")
    cost = sum(row.cost_usd or 0 for row in Archive(transcript).usage())
    assert cost > 0.01
    run("guard", "set", "session.cost=1000")
    assert check(home, transcript) == {}

    run("guard", "set", f"session.cost={cost:.4f}"[:-1])
    output = check(home, transcript)
    assert output["continue"] is False
    assert f"${cost:.2f}" in output["stopReason"]
    assert output["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "toolspan guard lift 5e551011" in output["stopReason"]

    run("guard", "lift", "5e551011")
    assert check(home, transcript) == {}
    other = saved(session(name=SESSION.replace("5e55", "6e66")), home / ".claude")
    assert check(home, other)["continue"] is False


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("session.tokens=100000", "tokens"),
        ("session.calls=4", "4 calls"),
        ("session.minutes=3", "minutes"),
        ("session.same_failure=3", "failed 3 times in a row"),
        ("session.context=0.5", "full"),
    ],
)
def test_each_limit_of_a_session_is_checked(home: Path, limit: str, reason: str) -> None:
    transcript = saved(session(failures=3), home / ".claude")
    run("guard", "set", limit)

    assert reason in check(home, transcript)["stopReason"]


@pytest.mark.parametrize(("limit", "where"), [("day.calls=8", "today"), ("project.tokens=500000", "this project")])
def test_the_sessions_of_a_day_and_a_project_count_together(
    home: Path, monkeypatch: pytest.MonkeyPatch, limit: str, where: str
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    today = datetime.now(UTC).date().isoformat().encode()
    names = [SESSION, SESSION.replace("5e55", "6e66")]
    transcripts = [saved(session(failures=3, name=name), home / ".claude") for name in names]
    run("guard", "set", limit)
    for transcript in transcripts:
        transcript.write_bytes(re.sub(rb'("timestamp":")[0-9-]{10}', rb"\g<1>" + today, transcript.read_bytes()))

    assert check(home, transcripts[0]) == {}
    assert where in check(home, transcripts[1])["stopReason"]


def test_another_call_is_not_the_same_failure(home: Path) -> None:
    transcript = saved(session(failures=3), home / ".claude")
    run("guard", "set", "session.same_failure=3")

    assert check(home, transcript, {"command": "make fix"}) == {}


def test_the_totals_agree_with_usage_while_the_session_grows(home: Path) -> None:
    builder = session(failures=2)
    transcript = saved(builder, home / ".claude")
    data = transcript.read_bytes()
    for end in range(0, len(data), 700):
        transcript.write_bytes(data[:end])
        update_state(SESSION, str(transcript))
    transcript.write_bytes(data)
    state = update_state(SESSION, str(transcript))

    rows = Archive(transcript).usage()
    assert state["cost"] == pytest.approx(sum(row.cost_usd or 0 for row in rows))
    assert state["tokens"] == sum(
        row.input_tokens + row.output_tokens + row.cache_creation_input_tokens + row.cache_read_input_tokens
        for row in rows
    )
    assert (state["calls"], state["failed"]) == (3, 2)


def test_it_asks_instead_of_stopping(home: Path) -> None:
    transcript = saved(session(), home / ".claude")
    run("guard", "set", "session.calls=1", "action=ask")

    output = check(home, transcript)
    assert output["hookSpecificOutput"]["permissionDecision"] == "ask"
    assert "continue" not in output


@pytest.mark.parametrize(
    "text", ["session.cost=-1", "session.cost=much", "week.cost=5", "session.colour=5", "cost=5", "action=explode"]
)
def test_a_wrong_limit_is_refused_and_nothing_changes(home: Path, text: str) -> None:
    run("guard", "set", "session.cost=5")
    run("guard", "set", text, code=2)

    assert one_row(run("guard", "status", "--json"))["limits"] == {"session": {"cost": 5}}


def test_a_fault_lets_the_call_run(home: Path) -> None:
    path = home / ".config/toolspan/limits.toml"
    path.parent.mkdir(parents=True)
    path.write_text("[session]\ncost = 'much'\n", encoding="utf-8")

    for stdin in ("{}", "nonsense", json.dumps({"session_id": "x", "transcript_path": "/nowhere"})):
        done = run_toolspan("hook", "guard", cwd=home, env={**os.environ}, stdin=stdin)
        assert (done.returncode, done.stdout) == (0, "")
        assert "toolspan hook guard:" in done.stderr


def test_the_status_line_is_one_line(home: Path) -> None:
    transcript = saved(session(failures=1), home / ".claude")
    run("guard", "set", "session.cost=5")
    status = {"session_id": SESSION, "transcript_path": str(transcript), "model": {"display_name": "Opus"},
              "cost": {"total_cost_usd": 1.25}, "workspace": {"current_dir": "/home/dev/project"}}  # fmt: skip

    done = run_toolspan("statusline", cwd=home, env={**os.environ}, stdin=json.dumps(status))
    assert done.stdout.startswith("Opus · context 60% · $1.25 of $5.00 · today $0.00 · 1 of 2 calls failed")
    assert done.stdout.count("\n") == 1
    assert run_toolspan("statusline", cwd=home, env={**os.environ}, stdin="").stdout.startswith("toolspan: ")


def test_hooks_are_added_on_request_and_removed_exactly(home: Path) -> None:
    file = home / ".claude/settings.json"
    file.parent.mkdir()
    file.write_bytes(b'{ "cleanupPeriodDays":30 }')

    run("hook", "install", "--guard", "--keep", "--yes", "--client", "2.1.327")
    hooks = json.loads(file.read_bytes())["hooks"]
    commands = [handler["command"] for handler in hooks["PreToolUse"][0]["hooks"]]
    assert [" hook guard" in command for command in commands] == [False, True]
    (keep,) = [handler["command"] for handler in hooks["SessionEnd"][0]["hooks"]]
    assert "keep --quiet" in keep

    run("hook", "install", "--yes", "--client", "2.1.327")
    assert "guard" not in file.read_text(encoding="utf-8")
    run("hook", "uninstall", "--yes")
    assert file.read_bytes() == b'{ "cleanupPeriodDays":30 }'


def test_limits_that_no_hook_checks_are_pointed_out(home: Path) -> None:
    (home / ".claude").mkdir()
    assert "toolspan hook install --guard" in run("guard", "set", "session.cost=5").stderr
    run("hook", "install", "--guard", "--yes")
    assert run("guard", "status").stderr == ""


def test_a_changed_file_with_limits_counts_at_once(home: Path) -> None:
    transcript = saved(session(), home / ".claude")
    path = home / ".config/toolspan/limits.toml"
    path.parent.mkdir(parents=True)
    for calls, stops in ((1, True), (9, False), (1, True)):
        path.write_text(f"[session]\ncalls = {calls}\n", encoding="utf-8")
        assert bool(check(home, transcript)) is stops


# Codex


def rollout(home: Path, failures: int = 0) -> Path:
    builder = RolloutBuilder(cwd="/home/dev/project").prompt("make it pass")
    for number in range(failures + 1):
        call = builder.call("exec_command", {"cmd": "make test"}, after_ms=60_000)
        builder.output(call, codex_builder.command_output("broken", code=2 if number else 0))
        builder.tokens(100_000, 10_000, cached=50_000)
    path = home / ".codex/sessions/2026/01/02" / f"rollout-2026-01-02T03-04-05-{builder.thread_id}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(builder.data().replace(b"example-model", b"gpt-5"))
    return path


@pytest.mark.parametrize(
    ("limit", "reason"),
    [("session.tokens=400000", "440,000 tokens"), ("session.calls=4", "4 calls"), ("session.minutes=3", "minutes"),
     ("session.same_failure=3", "failed 3 times in a row"), ("day.calls=9", None), ("session.cost=0.01", "has cost")],
)  # fmt: skip
def test_a_call_of_codex_is_denied_at_a_limit(home: Path, limit: str, reason: str | None) -> None:
    transcript = rollout(home, failures=3)
    run("guard", "set", limit, "action=ask")

    output = check(home, transcript)
    if reason is None:
        assert output == {}
        return
    decision = output.pop("hookSpecificOutput")
    assert decision["permissionDecision"] == "deny"
    assert reason in decision["permissionDecisionReason"]
    assert output == {}  # Codex ignores an answer with fields that it does not support


def test_usage_of_codex_counts_as_in_other_answers(home: Path) -> None:
    transcript = rollout(home, failures=2)
    state = update_state("x", str(transcript))

    (usage,) = Archive(transcript).usage()
    assert state["cost"] == pytest.approx(usage.cost_usd)
    assert (state["calls"], state["failed"], state["tokens"]) == (3, 2, 330_000)


def test_the_hook_of_codex_is_installed_and_removed_byte_for_byte(home: Path) -> None:
    path = home / ".codex/hooks.json"
    path.parent.mkdir()
    before = '{ "hooks": {"Stop": [ ]}}'
    path.write_text(before)
    run("guard", "set", "session.calls=3")

    assert "no effect yet" in run("guard", "status").output
    run("hook", "install", "--client", "codex", "--guard", "--yes")
    hooks = json.loads(path.read_text())["hooks"]
    assert [name for name in hooks if hooks[name]] == ["PreToolUse"]
    assert "hook guard" in hooks["PreToolUse"][0]["hooks"][0]["command"]
    assert "no effect yet" not in run("guard", "status").output
    assert "--guard" in run("hook", "install", "--client", "codex", "--keep", code=2).output
    run("hook", "uninstall", "--client", "codex", "--yes")
    assert path.read_text() == before
