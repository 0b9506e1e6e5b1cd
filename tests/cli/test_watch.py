"""`toolspan watch`: the real command with growing files."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.command import rows
from tests.limits import PATIENCE
from toolspan.cli.app import app
from toolspan.testing import TranscriptBuilder
from toolspan.testing.codex_builder import RolloutBuilder

LONG_AGO = datetime(2026, 11, 2, 9, tzinfo=UTC)
NOW = datetime.now(UTC)
START = "from toolspan.cli import main; main()"


class Watcher:
    """A running `toolspan watch` and the lines that it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def line(self) -> str:
        return self._lines.get(timeout=PATIENCE)

    def call(self) -> tuple[Any, ...]:
        """Return type, id and states of the next JSON line."""
        row = json.loads(self.line())
        return (row["type"], row["id"], row["was"], row["state"])


@contextmanager
def start_watch(*arguments: str | Path, cwd: Path | None = None) -> Iterator[Watcher]:
    command = [sys.executable, "-c", START, "watch", *map(str, arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, encoding="utf-8", cwd=cwd,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    ) as process:  # fmt: skip
        try:
            yield Watcher(process)
        finally:
            process.kill()


@pytest.fixture
def projects(user: Path) -> Path:
    """An empty folder for transcripts."""
    folder = user / ".claude" / "projects"
    folder.mkdir(parents=True)
    return folder


def watch(*arguments: str | Path) -> Result:
    """Return the output for files that do not change."""
    result = CliRunner().invoke(app, ["watch", "--idle-exit", "0", *map(str, arguments)])
    if result.exit_code == 0:
        assert result.exception is None
    return result


def changes(result: Result) -> list[tuple[str, str]]:
    return [(row["id"], row["state"]) for row in rows(result)]


def append(path: Path, *lines: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as stream:
        stream.write(b"".join(line + b"\n" for line in lines))


def two_calls(session_id: str = "5e550001", start: datetime = LONG_AGO) -> list[bytes]:
    """A prompt, `c1` that succeeds, `c2` that fails: five lines."""
    session = TranscriptBuilder(session_id=session_id, start=start).prompt("Go on.")
    session.call("Read", {"file_path": "/w/a.py"}, id="c1")
    session.result("c1", "text", after_ms=1500)
    session.call("Bash", {"command": "make all"}, id="c2")
    session.result("c2", "Exit code 2\nno rule", is_error=True, after_ms=250)
    return session.lines()


def test_each_change_is_one_json_line_until_ctrl_c(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    lines = two_calls()
    append(path, *lines[:2])

    with start_watch(path, "--json") as watcher:
        assert watcher.call() == ("call", "c1", None, "requested")
        append(path, lines[2])
        assert watcher.call() == ("call", "c1", "requested", "succeeded")
        append(path, *lines[3:])
        assert watcher.call() == ("call", "c2", None, "failed")
        watcher.process.send_signal(signal.SIGINT)
        assert watcher.process.wait() == 130
        assert watcher.process.stderr is not None
        assert watcher.process.stderr.read() == ""


def test_text_output_has_one_line_per_change(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    lines = two_calls()
    append(path, *lines[:3])

    with start_watch(path) as watcher:
        append(path, lines[3])
        assert watcher.line().startswith("09:00:01  5e550001    … Bash        make all")
        append(path, lines[4])
        assert watcher.line() == (
            "09:00:01  5e550001    ✗ Bash        make all  250 ms  failed · command_failed: Exit code 2"
        )


def test_session_that_starts_later_is_watched_with_its_subagents(tmp_path: Path) -> None:
    session = TranscriptBuilder().prompt("Go on.")
    session.call("Task", {"prompt": "Look."}, id="c1")
    session.agent("c1").prompt("Look.").call("Grep", {"pattern": "x"}, id="a1")
    files = session.files()
    path = tmp_path / f"{session.session_id}.jsonl"

    with start_watch(path, "--json") as watcher:
        append(path, files.pop(path.name).rstrip(b"\n"))
        assert watcher.call() == ("call", "c1", None, "requested")
        for name, data in sorted(files.items(), reverse=True):  # the side file comes first
            append(tmp_path / name, data.rstrip(b"\n"))
        later = {watcher.call(), watcher.call()}
        assert later == {("call", "c1", "requested", "running"), ("call", "a1", None, "requested")}


def test_every_session_below_a_folder_is_watched(tmp_path: Path) -> None:
    lines = two_calls()
    append(tmp_path / "p" / "one.jsonl", *lines[:2])  # a new file with old records
    append(tmp_path / "q" / "now.jsonl", *two_calls("now", NOW)[:2])

    with start_watch(tmp_path, "--json") as watcher:
        row = json.loads(watcher.line())
        assert (Path(row["file"]).name, row["was"], row["state"]) == ("now.jsonl", None, "requested")
        append(tmp_path / "q" / "two.jsonl", *lines[:2])
        row = json.loads(watcher.line())
        assert (Path(row["file"]).name, row["was"], row["state"]) == ("two.jsonl", None, "requested")
        append(tmp_path / "p" / "one.jsonl", lines[2])
        row = json.loads(watcher.line())
        assert (Path(row["file"]).name, row["was"]) == ("one.jsonl", "requested")


def test_rewritten_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    lines = two_calls()
    append(path, *lines[:4])

    with start_watch(path, "--json") as watcher:
        assert watcher.call() == ("call", "c2", None, "requested")
        (tmp_path / "new").write_bytes(b"\n".join(lines[:4]) + b"\n")
        (tmp_path / "new").rename(path)
        reset = {"type": "reset", "file": str(path), "reason": "replaced"}
        assert json.loads(watcher.line()) == reset
        assert watcher.call() == ("call", "c2", None, "requested")  # c1 has not changed


def test_watch_starts_with_open_calls_or_with_everything(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    append(path, *two_calls()[:4])

    assert changes(watch(path, "--json")) == [("c2", "requested")]
    assert changes(watch(path, "--json", "--since-start")) == [("c1", "succeeded"), ("c2", "requested")]
    assert changes(watch(tmp_path, "--json", "--since-start"))[0] == ("c1", "succeeded")


def test_rows_have_the_fields_of_calls(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    append(path, *two_calls())

    (row, _) = rows(watch(path, "--json", "--since-start"))
    listed = CliRunner().invoke(app, ["calls", "--json", str(path)])

    call = json.loads(listed.stdout.splitlines()[0])
    waits = ("wait_ms", "wait_certainty")  # known only when the whole session is read
    assert {name: row[name] for name in row if name not in ("type", "was", "notice")} == {
        name: call[name] for name in call if name not in waits
    }


def test_background_notifications_are_shown(tmp_path: Path) -> None:
    session = TranscriptBuilder().prompt("Go on.")
    session.call("Bash", {"command": "serve", "run_in_background": True}, id="c1")
    session.result("c1", "Command running in background with ID: b1", structured={"backgroundTaskId": "b1"})
    session.task_notification("c1", "b1", "Background command completed", status="completed")
    *lines, news = session.lines()
    path = tmp_path / "s.jsonl"
    append(path, *lines)

    with start_watch(path, "--since-start") as watcher:
        assert watcher.line().endswith("serve  0 ms  ⟳ continues in the background")
        append(path, news)
        assert watcher.line().endswith("◆ Bash        serve  task completed: Background command completed")


def test_all_sessions_of_both_clients_are_watched_by_default(projects: Path, user: Path) -> None:
    (user / ".codex" / "sessions").mkdir(parents=True)
    lines = two_calls()
    append(projects / "p" / "old.jsonl", *lines[:2])
    append(projects / "p" / "new.jsonl", *two_calls("new", NOW)[:2])
    rollout = RolloutBuilder().prompt("Go on.")
    rollout.call("shell", {"command": ["ls"]}, id="r1")

    with start_watch("--json") as watcher:
        assert watcher.call() == ("call", "c1", None, "requested")
        rollout.write(user / ".codex")  # in folders that are made with it
        assert watcher.call() == ("call", "r1", None, "requested")
        append(projects / "p" / "old.jsonl", lines[2])
        assert watcher.call() == ("call", "c1", "requested", "succeeded")
        append(projects / "q" / "later.jsonl", *two_calls("later")[:2])
        assert json.loads(watcher.line())["session"] == "later"
        agent = projects / "q" / "later" / "subagents" / "agent-a1.jsonl"
        below = TranscriptBuilder().prompt("Look.")
        below.call("Grep", {"pattern": "x"}, id="a1")
        append(agent, *below.lines())
        assert watcher.call() == ("call", "a1", None, "requested")


def test_last_selects_the_newest_session(projects: Path) -> None:
    for n, name in enumerate(("old", "new")):
        append(projects / "p" / f"{name}.jsonl", *two_calls(name)[:2])
        os.utime(projects / "p" / f"{name}.jsonl", (1_000 + n, 1_000 + n))
    assert [row["session"] for row in rows(watch("--json", "--last"))] == ["new"]
    assert rows(watch("--json")) == []  # waits for the next write


def test_common_filters_apply(projects: Path) -> None:
    append(projects / "p" / "one.jsonl", *two_calls("one"))
    append(projects / "q" / "two.jsonl", *two_calls("two"))

    def names(*arguments: str) -> list[tuple[str, str]]:
        result = rows(watch("--json", "--since-start", *arguments))
        return [(row["session"], row["id"]) for row in result]

    assert names("--state", "failed") == [("one", "c2"), ("two", "c2")]
    assert names("--tool", "read", "--session", "two") == [("two", "c1")]
    assert names("--project", "/q/", "--error", "command_failed") == [("two", "c2")]
    assert names("--client", "codex") == []
    *lines, zone = watch("--since-start", "--tool", "Read").stdout.splitlines()
    assert (len(lines), zone) == (2, "Times in UTC.")


def bytes_read(process: subprocess.Popen[str]) -> int:
    """Return the number of bytes that a process has read."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{process.pid}/io").read_text().split("\n") if line)
    return int(fields["rchar"])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs /proc")
def test_only_new_bytes_are_read(projects: Path) -> None:
    for n in range(300):
        append(projects / f"p{n % 20}" / f"s{n}.jsonl", *two_calls(f"s{n}"))
    big = projects / "p0" / "big.jsonl"
    lines = two_calls("big", NOW)
    append(big, *lines[:1], b'{"type":"user","pad":"' + b"x" * 3_000_000 + b'"}', lines[1])

    with start_watch("--json") as watcher:
        assert watcher.call() == ("call", "c1", None, "requested")
        append(projects / "p0" / "mark.jsonl", *two_calls("mark")[:2])
        assert json.loads(watcher.line())["session"] == "mark"  # everything before was read
        # Two waits, each ended by an update: only the new bytes are read in between.
        costs = []
        for n in (2, 3):
            before = bytes_read(watcher.process)
            append(projects / "p0" / "mark.jsonl", two_calls("mark")[n])
            assert json.loads(watcher.line())["session"] == "mark"
            costs.append(bytes_read(watcher.process) - before)
        assert max(costs) < 20_000, costs
        before = bytes_read(watcher.process)
        append(big, lines[2])
        assert watcher.call() == ("call", "c1", "requested", "succeeded")
        assert bytes_read(watcher.process) - before < 20_000


def test_missing_file_watches_fall_back_to_polling_with_a_notice(projects: Path) -> None:
    limit = "echo 2 > /proc/sys/user/max_inotify_watches"
    if subprocess.run(["unshare", "-Ur", "sh", "-c", limit], capture_output=True, check=False).returncode:
        pytest.skip("the limit cannot be set here")
    lines = two_calls("s1")
    for n in range(5):
        append(projects / f"p{n}" / f"s{n}.jsonl", *two_calls(f"s{n}")[:1])
    command = f'{limit}; exec "$0" -c "$1" watch --json'
    pipe = subprocess.PIPE
    with subprocess.Popen(
        ["unshare", "-Ur", "sh", "-c", command, sys.executable, START],
        stdout=pipe, stderr=pipe, encoding="utf-8",
    ) as process:  # fmt: skip
        try:
            watcher = Watcher(process)
            complaints: queue.Queue[str] = queue.Queue()
            stderr = process.stderr
            assert stderr is not None
            threading.Thread(target=lambda: complaints.put(stderr.readline()), daemon=True).start()
            assert "the system has no watches left" in complaints.get(timeout=PATIENCE)
            append(projects / "p1" / "s1.jsonl", lines[1])
            assert watcher.call() == ("call", "c1", None, "requested")
            append(projects / "later" / "new.jsonl", *two_calls("new")[:2])
            assert json.loads(watcher.line())["session"] == "new"
        finally:
            process.kill()


def test_session_is_selected_by_an_id_prefix(projects: Path) -> None:
    append(projects / "p" / "5e550001.jsonl", *two_calls()[:2])
    append(projects / "p" / "77770001.jsonl", *two_calls("77770001")[:2])

    assert [row["session"] for row in rows(watch("777", "--json"))] == ["77770001"]
    assert [row["session"] for row in rows(watch(projects, "--last", "--json"))] == ["77770001"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.jsonl.zst", "s.jsonl.zst: a compressed transcript does not grow"),
        ("nowhere/s.jsonl", "nowhere/s.jsonl: no such file or folder"),
        ("123", "no session begins with '123'"),
    ],
)
def test_unwatchable_source_exits_with_2_and_prints_one_line(projects: Path, name: str, text: str) -> None:
    result = watch(name)

    assert result.exit_code == 2
    assert result.stderr.startswith("toolspan: ")
    assert text in result.stderr


def write_program(path: Path, code: str) -> None:
    """Write a program that runs Python code. The path of this Python may have blanks, so it is not the first line."""
    path.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{code}' \"$@\"\n")
    path.chmod(0o755)


def test_a_command_is_run_when_a_session_waits_and_when_it_has_finished(projects: Path, tmp_path: Path) -> None:
    title = "Go on. <b>now</b> $(touch x)"
    session = TranscriptBuilder(session_id="5e550001", start=NOW, cwd="/home/dev/lamp").prompt(title)
    session.call("Bash", {"command": "make"}, id="c1")
    session.write(projects / "-home-dev-lamp" / "5e550001.jsonl")
    program = tmp_path / "tell"
    write_program(program, 'import sys; open(sys.argv[1], "a").write(f"{sys.argv[2:]}\\n")')
    told = tmp_path / "told"
    os.mkfifo(told)

    def report(status: str) -> None:
        entry = {"pid": os.getpid(), "sessionId": "5e550001", "cwd": "/home/dev/lamp", "status": status}
        registry = projects.parent / "sessions"
        registry.mkdir(exist_ok=True)
        (registry / "new").write_text(json.dumps(entry), encoding="utf-8")
        (registry / "new").replace(registry / f"{os.getpid()}.json")

    report("busy")
    with start_watch("--notify-command", f"{program} {told}") as watcher:
        assert "make" in watcher.line()
        for status, event in (("waiting", "Waiting for you"), ("idle", "Finished")):
            report(status)
            assert told.read_text(encoding="utf-8") == f"{[f'{event}: lamp', title]}\n"


@pytest.mark.parametrize("command", ["", "no-such-program-of-ours x", "tell 'me"])
def test_a_command_that_cannot_run_is_refused(projects: Path, command: str) -> None:
    result = watch(str(projects), "--notify-command", command)
    assert result.exit_code == 2
    assert "--notify-command" in result.output


def test_without_a_program_for_notifications_one_must_be_named(
    projects: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = watch(str(projects), "--notify")
    assert result.exit_code == 2
    assert "--notify-command" in result.output


def test_the_desktop_shows_the_text_and_not_its_markup(
    projects: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = TranscriptBuilder(session_id="5e550001", start=NOW, cwd="/home/dev/lamp").prompt("<b>go</b>")
    session.write(projects / "-home-dev-lamp" / "5e550001.jsonl")
    registry = projects.parent / "sessions"
    registry.mkdir()
    entry = {"pid": os.getpid(), "sessionId": "5e550001", "cwd": "/home/dev/lamp", "status": "waiting"}
    (registry / f"{os.getpid()}.json").write_text(json.dumps(entry), encoding="utf-8")
    told = tmp_path / "told"
    os.mkfifo(told)
    program = tmp_path / "bin" / "notify-send"
    program.parent.mkdir()
    write_program(program, f'import sys; open("{told}", "a").write(f"{{sys.argv[1:]}}")')
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)

    with start_watch("--notify"):
        texts = ["--app-name=toolspan", "--", "Waiting for you: lamp", "&lt;b&gt;go&lt;/b&gt;"]
        assert told.read_text(encoding="utf-8") == str(texts)
