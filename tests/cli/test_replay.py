"""`toolspan replay`: what it prints, and its exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from pathlib import Path

import psutil
import pytest

from tests.cli.command import rows
from tests.fork_server import TOOLSPAN, run_toolspan
from toolspan.testing import TranscriptBuilder

pytestmark = pytest.mark.usefixtures("fork_server")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    return folder


def session(project: Path, text: str = "1\tone\n2\t") -> Path:
    """Write a transcript with a read, a command, and a subagent's read."""
    builder = TranscriptBuilder(cwd=str(project), version="2.1.327").prompt("Go on.")
    file = {"file_path": str(project / "a.txt")}
    builder.result(builder.call("Read", file, id="c1"), text)
    builder.result(builder.call("Bash", {"command": "echo \x1b[31mred"}, id="c2"), "red")
    builder.call("Task", {"prompt": "Look."}, id="c3")
    agent = builder.agent("c3").prompt("Look.")
    agent.result(agent.call("Read", file, id="a1"), text)
    for name, data in builder.files().items():
        path = project.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return project.parent / f"{builder.session_id}.jsonl"


def replay(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run replay in a separate process, because it becomes a subreaper."""
    return run_toolspan("replay", *arguments)


def test_identical_replay_exits_with_0(project: Path) -> None:
    result = replay(session(project), "--all")

    assert result.returncode == 0, result.stdout + result.stderr
    assert "shell commands are skipped; --bash runs them" in result.stdout
    assert "4 calls: 2 the same, 0 different, 2 skipped" in result.stdout
    assert "\x1b" not in result.stdout
    assert "client 2.1.327" in result.stdout


def test_differences_exit_with_1_and_are_shown(project: Path) -> None:
    path = session(project, "1\tother \x1b[31mwords")
    completed = replay(path)
    assert completed.returncode == 1
    assert "+1" in completed.stdout
    assert "\x1b" not in completed.stdout

    result = rows(replay(path, "--json"))
    assert [row["verdict"] for row in result if row["type"] == "call"] == [
        "differs", "skipped", "skipped", "differs",
    ]  # fmt: skip
    assert result[-1] == {
        "type": "summary",
        "same": 0,
        "differs": 2,
        "skipped": {"commands are run only with --bash": 1, "it has no result": 1},
        "kept": None,
    }


def test_copy_is_kept_on_request(project: Path) -> None:
    summary = rows(replay(session(project), "--json", "--keep"))[-1]

    copy = Path(summary["kept"])
    try:
        assert (copy / "project" / "a.txt").read_text() == "one\n"
        assert copy.stat().st_mode & 0o077 == 0
    finally:
        from toolspan.replay.scratch import remove_scratch

        remove_scratch(copy)
    assert not copy.exists()


def test_another_folder_can_replace_the_recorded_one(tmp_path: Path, project: Path) -> None:
    path = session(project)
    moved = project.rename(tmp_path / "moved")

    assert rows(replay(path, "--json", "--project", moved))[-1]["same"] == 2
    assert "does not exist" in replay(path).stdout


def test_impossible_replay_is_reported_in_one_line(tmp_path: Path, project: Path) -> None:
    path = session(project)
    (project / "big").write_bytes(b"x" * (2 << 20))
    for arguments, options in [
        ((path, "--most-mb", "1"), "too much to copy"),
        ((path, "--project", "/"), "not a project folder"),
        ((path, "--commit", "nosuch"), "git has no files of nosuch"),
        ((path, "--commit", "--help-me"), "not the name of a commit"),
        ((tmp_path / "nothing.jsonl",), "no such file"),
    ]:
        result = replay(*arguments)
        assert result.returncode == 2, result.stdout + result.stderr
        assert options in result.stderr
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_commands_and_removes_the_copy(tmp_path: Path, project: Path, number: signal.Signals) -> None:
    seconds = f"600.{uuid.uuid4().int}"
    builder = TranscriptBuilder(cwd=str(project)).prompt("Go on.")
    builder.result(builder.call("Bash", {"command": f"sleep {seconds}"}, id="c1"), "")
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"\n".join(builder.lines()) + b"\n")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with subprocess.Popen(
        [*TOOLSPAN, "replay", "--bash", str(path)],
        stdout=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(scratch)},
    ) as process:  # fmt: skip
        while not find_processes("sleep", seconds):
            assert process.poll() is None
        assert list(scratch.iterdir())
        process.send_signal(number)
        assert process.wait(30) == 128 + number
    assert not list(scratch.iterdir())
    assert find_processes("sleep", seconds) == []


def find_processes(*command: str) -> list[int]:
    return [item.pid for item in psutil.process_iter(["cmdline"]) if item.info["cmdline"] == list(command)]
