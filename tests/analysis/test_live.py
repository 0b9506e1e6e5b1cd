"""Live sessions, from the list of the client and from running processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.requirement import requirement
from toolspan.analysis.live_sessions import LiveSession, live_sessions, mark_running_calls
from toolspan.reading.transcript import read
from toolspan.testing import TranscriptBuilder, claude_results

WAITS = "import sys; sys.stdin.read()"
HOLDS = "import sys; held = open(sys.argv[1], 'ab'); print('open', flush=True); sys.stdin.read()"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE) as result:
        yield result
        result.kill()


def start_of(pid: int) -> str:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return stat[stat.rindex(")") + 2 :].split()[19]


class Home:
    """A client's folder with one session."""

    def __init__(self, home: Path, builder: TranscriptBuilder) -> None:
        self.config = home / ".claude"
        self.session = builder.session_id
        self.now = builder.now.timestamp() + 60
        self.file = builder.write(self.config / "projects" / "-work" / f"{self.session}.jsonl")

    def register(self, pid: int, **message: object) -> None:
        folder = self.config / "sessions"
        folder.mkdir(exist_ok=True)
        entry = {"pid": pid, "sessionId": self.session, "cwd": "/work", "version": "2.1.325"}
        (folder / f"{pid}.json").write_text(json.dumps({**entry, **message}), encoding="utf-8")

    def find_live(self) -> list[LiveSession]:
        roots = [self.config / "projects"]
        return live_sessions(roots, config=self.config, now=self.now)


def session_with_open_call() -> TranscriptBuilder:
    builder = TranscriptBuilder().prompt("go")
    builder.call("Bash", {"command": "make"})
    return builder


def answered_session() -> TranscriptBuilder:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Bash", {"command": "make"})
    return builder.result(call, claude_results.ran("ok"))


@requirement("live.registry")
@pytest.mark.parametrize(("message", "status"), [("busy", "running"), ("waiting", "waiting"), ("idle", "idle")])
def test_the_status_reported_by_the_client_is_used(
    tmp_path: Path, process: subprocess.Popen[bytes], message: str, status: str
) -> None:
    home = Home(tmp_path, session_with_open_call())
    home.register(process.pid, status=message, statusUpdatedAt=1_794_755_038_725)

    (result,) = home.find_live()

    assert (result.status, result.pid, result.id) == (status, process.pid, home.session)
    assert result.since is not None
    assert datetime.fromisoformat(result.since).year == 2026
    assert message in result.evidence[0]
    assert [(call.tool, call.target) for call in result.calls] == [("Bash", "make")]


def test_a_session_has_the_calls_that_ended_last(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    builder = answered_session()
    for name in ("a", "b", "c"):
        call = builder.call("Read", {"file_path": f"/{name}"})
        builder.result(call, claude_results.failed("boom") if name == "b" else claude_results.read(f"/{name}", name))
    builder.call("Bash", {"command": "make test"})
    home = Home(tmp_path, builder)
    home.register(process.pid)

    (result,) = home.find_live()

    assert [(call.target, call.state) for call in result.recent] == [
        ("/c", "succeeded"), ("/b", "failed"), ("/a", "succeeded"),
    ]  # fmt: skip
    assert [call.target for call in result.calls] == ["make test"]


@requirement("live.registry")
def test_the_status_is_inferred_from_the_transcript_if_the_client_reports_none(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    for number, (builder, status) in enumerate(
        [
            (session_with_open_call(), "running"),
            (answered_session(), "running"),
            (answered_session().text("done"), "idle"),
        ]
    ):
        home = Home(tmp_path / str(number), builder)
        home.register(process.pid)
        assert [item.status for item in home.find_live()] == [status]


def test_a_client_whose_process_is_gone_is_dead(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    home = Home(tmp_path, session_with_open_call())
    home.register(process.pid, status="busy")
    process.kill()
    process.wait()

    (result,) = home.find_live()

    assert result.status == "dead"
    assert "ended without notice" in result.evidence[0]
    transcript = read(home.file)
    mark_running_calls([transcript], config=home.config, now=home.now)
    assert [span.state for span in transcript.spans] == ["never_answered"]

    home.register(os.getpid(), status="busy")  # another process resumed the session
    assert [item.status for item in home.find_live()] == ["running"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs the process start time of Linux")
def test_a_reused_process_id_is_not_the_client(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    home = Home(tmp_path, session_with_open_call())
    home.register(process.pid, status="busy", procStart=start_of(process.pid))
    assert [item.status for item in home.find_live()] == ["running"]

    home.register(process.pid, status="busy", procStart="12")
    assert [item.status for item in home.find_live()] == ["dead"]


def test_a_session_is_alive_while_a_process_has_its_file_open(tmp_path: Path) -> None:
    home = Home(tmp_path, session_with_open_call())
    assert [item.status for item in home.find_live()] == ["running"]  # by its last record, as for its call
    home.now += 600
    assert [item.status for item in home.find_live()] == ["dead"]

    arguments = [sys.executable, "-c", HOLDS, str(home.file)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        (result,) = home.find_live()
        holder.kill()

    assert (result.status, result.pid) == ("running", holder.pid)


def test_sessions_that_ended_well_or_long_ago_are_not_listed(tmp_path: Path) -> None:
    assert Home(tmp_path / "well", answered_session().text("done")).find_live() == []
    old = Home(tmp_path / "old", session_with_open_call())
    old.now += 3 * 86_400
    assert old.find_live() == []


@requirement("live.registry")
def test_unreadable_process_lists_are_skipped(tmp_path: Path) -> None:
    home = Home(tmp_path, answered_session().text("done"))
    folder = home.config / "sessions"
    folder.mkdir()
    (folder / "1.json").write_text("{", encoding="utf-8")
    (folder / "2.json").write_text('{"pid":"x"}', encoding="utf-8")
    (folder / "3.json").mkdir()
    (folder / "4.json").symlink_to("/dev/zero")
    assert home.find_live() == []
