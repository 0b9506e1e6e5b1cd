"""`toolspan hook known-errors`: context after a call that fails like earlier ones."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import run, saved
from tests.fork_server import run_toolspan
from tests.runtime.process.commands import eventually
from toolspan import Archive
from toolspan.integrations import describe_known_error
from toolspan.testing import TranscriptBuilder, claude_results

pytestmark = pytest.mark.usefixtures("fork_server")

TRACEBACK = 'Traceback (most recent call last):\n  File "/home/dev/project/lamp.py", line {}, in light\n{}'
OIL = "AttributeError: 'Lamp' object has no attribute 'oil'"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user whose test failed for the want of oil, and passed after an edit; and failed for another reason."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME",
                 "XDG_CACHE_HOME", "TOOLSPAN_NO_CACHE"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    builder = TranscriptBuilder(session_id="5e551011-0000-4000-8000-000000000001").prompt("light the lamp")
    call = builder.call("Bash", {"command": "python lamp.py"}, id="toolu_fail")
    builder.result(call, claude_results.exited(1, TRACEBACK.format(3, OIL)))
    call = builder.call("Write", {"file_path": "/home/dev/project/lamp.py", "content": "x\n"}, id="toolu_edit")
    builder.result(call, claude_results.written("/home/dev/project/lamp.py", "x\n"))
    call = builder.call("Bash", {"command": "python lamp.py"}, id="toolu_pass")
    builder.result(call, claude_results.ran("light"))
    call = builder.call("Bash", {"command": "python wick.py"}, id="toolu_other")
    builder.result(call, claude_results.exited(1, TRACEBACK.format(4, "ValueError: the wick is too short")))
    saved(builder, tmp_path / ".claude")
    return tmp_path


def failure(output: str, command: str = "python lamp.py", **more: object) -> dict[str, Any]:
    return {"hook_event_name": "PostToolUseFailure", "tool_name": "Bash", "tool_input": {"command": command},
            "session_id": "1", "error": f"Exit code 1\n{output}", **more}  # fmt: skip


def print_context(home: Path, stdin: str) -> str:
    """Run the hook as the client does, when it has read the sessions; return the context that it adds."""
    assert run_toolspan("hook", "known-errors", "--update", cwd=home, env={**os.environ}).returncode == 0
    done = run_toolspan("hook", "known-errors", cwd=home, env={**os.environ}, stdin=stdin)
    assert done.returncode == 0
    return str(json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]) if done.stdout else ""


def test_a_failure_with_the_same_cause_gets_one_line(home: Path) -> None:
    context = print_context(home, json.dumps(failure(TRACEBACK.format(70, OIL))))
    assert "\n" not in context
    assert "seen 1 time in 1 session before, and recovered 1 time, last 20" in context
    assert "in session 5e551011: repaired files and ran it again: Write " in context
    assert 'lamp.py", Bash "python lamp.py". Quoted' in context


@pytest.mark.parametrize(
    "hook_input",
    [
        failure(TRACEBACK.format(4, "ValueError: the wick is too short")),  # seen, but never recovered
        failure(TRACEBACK.format(3, "KeyError: 'oil'")),  # not seen
        failure(""),  # no message
        failure(TRACEBACK.format(3, OIL), is_interrupt=True),
        failure(TRACEBACK.format(3, OIL), command="ruby lamp.rb"),
        {**failure(TRACEBACK.format(3, OIL)), "hook_event_name": "PostToolUse"},
        {"hook_event_name": "PostToolUseFailure"},
        [],
    ],
)
def test_it_says_nothing_when_it_is_not_sure(home: Path, hook_input: object) -> None:
    assert print_context(home, json.dumps(hook_input)) == ""


def test_it_answers_from_what_it_read_before(home: Path) -> None:
    stdin = json.dumps(failure(TRACEBACK.format(70, OIL)))
    before = print_context(home, stdin)
    (home / ".claude").rename(home / "elsewhere")
    done = run_toolspan("hook", "known-errors", cwd=home, env={**os.environ}, stdin=stdin)
    assert json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"] == before


@pytest.mark.anyio
@pytest.mark.parametrize("damage", ["[]", '{"format": 1', '{"format": 0, "entries": {}}'])
async def test_it_reads_the_sessions_if_the_file_is_missing_or_damaged(home: Path, damage: str) -> None:
    file = home / ".cache/toolspan/known-errors.json"
    file.parent.mkdir(parents=True)
    file.write_text(damage)
    stdin = json.dumps(failure(TRACEBACK.format(70, OIL)))
    run_toolspan("hook", "known-errors", cwd=home, env={**os.environ}, stdin=stdin)
    await eventually(lambda: "lamp.py" in file.read_text())


@pytest.mark.anyio
async def test_it_reads_what_other_sessions_in_the_folder_recorded_since(home: Path) -> None:
    own = home / ".claude/projects/-home-dev-project/own.jsonl"
    other = {**failure(TRACEBACK.format(1, "RuntimeError: no such lighthouse")), "transcript_path": str(own)}
    assert print_context(home, json.dumps(other)) == ""
    file = home / ".cache/toolspan/known-errors.json"
    os.utime(file, (time.time() - 60, time.time() - 60))
    builder = TranscriptBuilder(session_id="5e551013-0000-4000-8000-000000000001").prompt("sail")
    for number, body in enumerate(
        (claude_results.exited(1, other["error"].partition("\n")[2]), claude_results.ran("lit"))
    ):
        builder.result(builder.call("Bash", {"command": "python lamp.py"}, id=f"toolu_n{number}"), body)
    saved(builder, home / ".claude")
    own.parent.mkdir(exist_ok=True)
    builder.write(own.with_name("other.jsonl"))

    run_toolspan("hook", "known-errors", cwd=home, env={**os.environ}, stdin=json.dumps(other))
    await eventually(lambda: "retried unchanged" in file.read_text())


def test_it_ignores_a_file_that_others_can_write(home: Path) -> None:
    stdin = json.dumps(failure(TRACEBACK.format(70, OIL)))
    assert print_context(home, stdin)
    file = home / ".cache/toolspan/known-errors.json"
    file.write_text(file.read_text().replace("repaired files", "run rm -rf"))
    file.chmod(0o666)
    done = run_toolspan("hook", "known-errors", cwd=home, env={**os.environ}, stdin=stdin)
    assert "rm -rf" not in done.stdout


def test_it_quotes_one_line_without_secrets(home: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    builder = TranscriptBuilder(session_id="5e551012-0000-4000-8000-000000000001").prompt("push")
    for number in range(2):
        call = builder.call("Bash", {"command": f"python push.py {secret}\n# obey"}, id=f"toolu_s{number}")
        output = TRACEBACK.format(1, "RuntimeError: no such lighthouse")
        builder.result(call, claude_results.ran("lit") if number else claude_results.exited(1, output))
    saved(builder, home / ".claude")

    hook_input = failure(TRACEBACK.format(9, "RuntimeError: no such lighthouse"), command="python push.py x")
    context = describe_known_error(Archive(), hook_input)
    assert context is not None
    assert "retried unchanged: Bash" in context
    assert secret not in context
    assert "\n" not in context


def test_it_is_installed_on_request_where_the_client_supports_it(home: Path) -> None:
    file = home / ".claude/settings.json"

    def commands() -> list[tuple[str, str]]:
        hooks = json.loads(file.read_bytes())["hooks"]
        return [(event, handler["command"]) for event, groups in hooks.items()
                for group in groups for handler in group["hooks"] if "known-errors" in handler["command"]]  # fmt: skip

    refused = run("hook", "install", "--known-errors", "--yes", "--client", "2.0.65", code=2)
    assert "2.1.80" in refused.output
    assert not file.exists()
    run("hook", "install", "--known-errors", "--yes", "--client", "2.1.327")
    assert [event for event, _ in commands()] == ["PostToolUseFailure"]
    run("hook", "install", "--yes", "--client", "2.1.327")
    assert commands() == []
    run("hook", "install", "--known-errors", "--yes", "--client", "2.1.327")
    run("hook", "uninstall", "--yes")
    assert not file.exists()
