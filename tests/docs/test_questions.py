"""Each question of docs/questions.md is answered by the command beside it, on a recording whose facts are known."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from tests.docs.blocks import ROOT
from toolspan.cli.app import app
from toolspan.testing import TranscriptBuilder, claude_results

ROW = re.compile(r"^\| (.+?) \| `toolspan ?(.*?)` \|", re.MULTILINE)
QUESTIONS: dict[str, str] = dict(ROW.findall((ROOT / "docs/questions.md").read_text(encoding="utf-8")))
NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
ASSERTION = "Exit code 1\nE   AssertionError: the lamp is off\nFAILED tests/test_lamp.py::test_lamp"
FREE = {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}


class Recording(NamedTuple):
    """A user's home, in which two sessions ended and one is in progress."""

    home: Path
    project: Path
    denied: str

    def ask(self, command: str) -> str:
        """Run a command of the page with the names of this recording."""
        names = {"SESSION": "a1fa0001", "OTHER": "be7a0002", "FILE": "lamp.py", "CALL": self.denied, "WORD": "flamingo",
                 "TOPIC": "look around",
                 "MODEL": "sonnet-4-6"}  # fmt: skip
        arguments = [names.get(word, word) for word in shlex.split(command)]
        arguments += ["--yes"] * ("restore" in arguments)  # it asks only at a terminal
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"})
        assert result.exit_code == 0, result.output
        return result.output


def make_call(
    builder: TranscriptBuilder, tool: str, call_input: Mapping[str, object], body: claude_results.Body, ms: int
) -> str:
    call = builder.call(tool, call_input, after_ms=1_000)
    builder.usage(**FREE).result(call, body, after_ms=ms)
    return call


def failing_session(lamp: Path) -> tuple[TranscriptBuilder, str]:
    """Build a session with three failures of one cause, an edit, a build of 95 s, a denial and an MCP error."""
    start = NOON - timedelta(days=3)
    builder = TranscriptBuilder(session_id="a1fa0001-aaaa", version="2.0.65", cwd=str(lamp.parent), start=start)
    builder.prompt("fix the lamp")
    for _ in range(3):
        body = claude_results.Body(content=ASSERTION, is_error=True)
        make_call(builder, "Bash", {"command": "pytest -q"}, body, 2_000)
    edit = {"file_path": str(lamp), "old_string": "off", "new_string": "on"}
    body = claude_results.edited(str(lamp), "state = 'off'\n", "off", "on", version="2.0.65")
    make_call(builder, "Edit", edit, body, 1_000)
    make_call(builder, "Bash", {"command": "npm run build"}, claude_results.ran("built"), 95_000)
    denied = make_call(builder, "Bash", {"command": "git push"}, claude_results.rejected(), 4_000)
    for server, body in (
        ("weather", claude_results.failed("no such station")),
        ("maps", claude_results.mcp_text("ok")),
    ):
        make_call(builder, f"mcp__{server}__get", {"place": "x"}, body, 1_000)
    builder.text("done", after_ms=1_000).usage(**{**FREE, "input_tokens": 100_000, "output_tokens": 10_000})
    return builder, denied


def old_session(cwd: Path) -> TranscriptBuilder:
    """Build a session weeks ago with four failures of another cause."""
    start = NOON - timedelta(days=20)
    builder = TranscriptBuilder(session_id="01d00000-0000", version="2.0.65", cwd=str(cwd), start=start).prompt("build")
    for _ in range(4):
        body = claude_results.Body(content="Exit code 101\nerror[E0382]: use of moved value: `lamp`", is_error=True)
        make_call(builder, "Bash", {"command": "cargo build"}, body, 1_000)
    return builder


def reading_session(cwd: Path) -> TranscriptBuilder:
    """Build a session of yesterday with another model: two parallel searches, one with a word in its result."""
    start = NOON - timedelta(days=1)
    builder = TranscriptBuilder(session_id="be7a0002-bbbb", version="2.1.80", cwd=str(cwd), start=start)
    builder.prompt("look around")
    calls = [builder.call("Grep", {"pattern": pattern}, after_ms=100) for pattern in ("bird", "tree")]
    builder.usage(**FREE).result(calls[0], claude_results.found_files(["a flamingo.txt"]), after_ms=3_000)
    builder.result(calls[1], claude_results.found_files(["oak.txt"]), after_ms=1_000)
    return builder.text("seen", after_ms=1_000).usage(**{**FREE, "input_tokens": 200_000})


@pytest.fixture
def recording(user: Path, monkeypatch: pytest.MonkeyPatch) -> Recording:
    project = user / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    failing, denied = failing_session(project / "lamp.py")
    current = TranscriptBuilder(session_id="c0de0003-cccc", cwd=str(project), start=datetime.now(UTC))
    current.prompt("wait").call("Bash", {"command": "sleep 600"}, after_ms=0)
    for builder in (old_session(project), failing, reading_session(project), current):
        builder.write(user / ".claude" / "projects" / "-project" / f"{builder.session_id}.jsonl")
    entry = {"pid": os.getpid(), "sessionId": current.session_id, "cwd": str(project), "status": "busy"}
    (user / ".claude" / "sessions").mkdir()
    (user / ".claude" / "sessions" / "1.json").write_text(json.dumps(entry), encoding="utf-8")
    return Recording(user, project, denied)


def check_worst_failures(output: str, _: Recording) -> None:
    group = output.split("\n\n")[1]
    assert "3× pytest  command failed" in group
    assert "AssertionError: the lamp is off" in group
    assert "rustc" not in output


def check_causes(output: str, _: Recording) -> None:
    groups = output.split("\n\n")[1:]
    assert "4× rustc  command failed" in groups[0]
    assert "error[E0382]: use of moved value" in groups[0]
    assert any("weather" in group and "no such station" in group for group in groups)


def check_cost_per_day(output: str, _: Recording) -> None:
    rows = [line.split() for line in output.splitlines() if line.startswith("20") and "$0.00" not in line]
    days = [f"{NOON - timedelta(days=ago):%Y-%m-%d}" for ago in (3, 1)]
    assert [(row[0], row[2], row[-1]) for row in rows[:2]] == [
        (days[0], "100,000", "$0.45"), (days[1], "200,000", "$0.60"),
    ]  # fmt: skip


def check_cost_per_model(output: str, _: Recording) -> None:
    costs = {line.split()[0]: line.split()[-1] for line in output.splitlines() if line.startswith("claude-sonnet")}
    assert costs == {"claude-sonnet-4-5-20250929": "$0.45", "claude-sonnet-4-6": "$0.60"}


def check_comparison(output: str, _: Recording) -> None:
    rows = {" ".join(line.split()[:-3]): line.split()[-3:] for line in output.splitlines() if line.strip()}
    assert re.search(r"^calls +8 +2 +-6", output, re.MULTILINE), rows
    assert re.search(r"^files changed +1 +0 +-1", output, re.MULTILINE)


def check_longest_command(output: str, _: Recording) -> None:
    first = output.splitlines()[2]
    assert "npm run build" in first
    assert "1m 35s" in first


def check_changed_files(output: str, _: Recording) -> None:
    assert re.search(r"lamp\.py +1 +\+1 −1", output)
    assert "1 file, +1 −1 lines" in output


def check_restored_file(_: str, recording: Recording) -> None:
    assert (recording.project / "lamp.py").read_text(encoding="utf-8") == "state = 'on'\n"


def check_parallel_calls(output: str, _: Recording) -> None:
    assert "1 batch of several calls: 1 ran in parallel (up to 2 at once" in output


def check_time(output: str, _: Recording) -> None:
    assert "most of it went to tools" in output
    slowest = output.partition("slowest")[2].splitlines()
    assert "npm run build" in slowest[2]


def check_servers(output: str, _: Recording) -> None:
    rows = [line.split()[:4] for line in output.splitlines()[2:4]]
    assert rows == [["weather", "1", "1", "100%"], ["maps", "1", "1", rows[1][3]]]


def check_denial(output: str, _: Recording) -> None:
    assert "git push" in output
    assert "user" in output


def check_word(output: str, _: Recording) -> None:
    assert "be7a0002  Grep result" in output
    assert "1 match\n" in output


def check_running(output: str, recording: Recording) -> None:
    assert output.startswith("running")
    assert "c0de0003" in output
    assert "sleep 600" in output
    assert "1 live session" in output
    assert str(recording.project)[-20:] in output


def check_text(output: str, _: Recording) -> None:
    assert output.strip()


SERVERS = ("ui",)
"""Commands that run until they are stopped."""
CHECKS: dict[str, Callable[[str, Recording], None]] = {
    "What were the worst failures this week?": check_worst_failures,
    "Which calls were unsuccessful, and why?": check_causes,
    "What does a day cost?": check_cost_per_day,
    "What does each model cost?": check_cost_per_model,
    "How do two sessions differ?": check_comparison,
    "Which command took longest?": check_longest_command,
    "Which files changed?": check_changed_files,
    "How do I get a file back?": check_restored_file,
    "What ran in parallel?": check_parallel_calls,
    "Where did the time go?": check_time,
    "Which MCP server fails?": check_servers,
    "Why was that denied?": check_denial,
    "Which result contains this word?": check_word,
    "What is running now?": check_running,
}


def test_the_page_has_thirty_questions_and_all_that_are_checked() -> None:
    assert len(QUESTIONS) >= 30
    assert [question for question in CHECKS if question not in QUESTIONS] == []


@pytest.mark.parametrize("question", [question for question in QUESTIONS if QUESTIONS[question] not in SERVERS])
def test_the_command_beside_a_question_answers_it(question: str, recording: Recording) -> None:
    output = recording.ask(QUESTIONS[question])

    CHECKS.get(question, check_text)(output, recording)
