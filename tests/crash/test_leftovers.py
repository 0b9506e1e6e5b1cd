"""A killed session leaves commands running; resuming it ends them, and every interrupted call gets its result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from tests.fork_server import run_toolspan
from toolspan import Permissions, Session, read
from toolspan.analysis.live_sessions import live_sessions, mark_running_calls
from toolspan.formats.processes import process_start
from toolspan.runtime.sandbox.bubblewrap import detect_bubblewrap
from toolspan.runtime.sandbox.settings import Sandbox
from toolspan.session.models.scripted import use
from toolspan.session.recording import intent_path
from toolspan.session.resume import load_history
from toolspan.testing import check_history

pytestmark = [
    pytest.mark.usefixtures("fork_server"),
    pytest.mark.skipif(sys.platform != "linux", reason="needs tags in the environment of processes"),
]

EXEC = ["exec", "--permission-mode", "bypassPermissions", "--setting-sources", ""]
NAME = "5e551011-0000-4000-8000-000000000001"


def message(*calls: tuple[str, dict[str, object]]) -> dict[str, Any]:
    blocks = [{"type": "tool_use", "id": name, "name": "Bash", "input": fields} for name, fields in calls]
    return {"role": "assistant", "content": blocks}


def lines(*calls: tuple[str, dict[str, object]]) -> str:
    return json.dumps({"type": "assistant", "message": message(*calls)}) + "\n"


def transcript(folder: Path) -> Path:
    return folder / f"{NAME}.jsonl"


def kill_exec(folder: Path, *calls: tuple[str, dict[str, object]], options: Sequence[str] = ()) -> None:
    """Kill a process that runs these calls as soon as one of them has printed something."""
    program = [sys.executable, "-m", "toolspan", *EXEC, "--transcript", str(transcript(folder)), "--events", *options]
    with subprocess.Popen(
        program, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(lines(*calls))
        child.stdin.flush()
        next(line for line in child.stdout if '"call.progress"' in line)
        child.kill()


def resume_exec(folder: Path, *options: str, stdin: str = "") -> list[dict[str, Any]]:
    done = run_toolspan(*EXEC, "--transcript", str(transcript(folder)), *options, cwd=folder, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def processes_in(folder: Path) -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(folder)]


def recorded_results(folder: Path, path: Path | None = None) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for line in (path or transcript(folder)).read_bytes().splitlines():
        content = json.loads(line).get("message", {}).get("content")
        for block in content if isinstance(content, list) else ():
            if block["type"] == "tool_result":
                texts.setdefault(block["tool_use_id"], []).append(block["content"])
    return texts


def doctor(folder: Path, path: Path | None = None) -> dict[str, Any]:
    done = run_toolspan("doctor", "--json", str(path or transcript(folder)), cwd=folder)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


LONG = "echo started; (setsid sleep 1000 &); sleep 1000"


def test_resume_ends_the_commands_of_a_killed_session_and_says_so(tmp_path: Path) -> None:
    kill_exec(
        tmp_path,
        ("b", {"command": "sleep 1000", "run_in_background": True}),
        ("a", {"command": LONG}),
        ("c", {"command": "true"}),
    )
    assert len(processes_in(tmp_path)) >= 3
    assert "is still running" in json.dumps(doctor(tmp_path))

    rows = resume_exec(tmp_path, stdin=lines(("n", {"command": "echo next"})))

    assert processes_in(tmp_path) == []
    assert [row["tool_use_id"] for row in rows if row["type"] == "result"] == ["a", "c", "n"]
    texts = recorded_results(tmp_path)
    assert {call: len(found) for call, found in texts.items()} == {"b": 1, "a": 1, "c": 1, "n": 1}
    assert "was still running when the session was resumed, and was stopped then" in texts["a"][0]
    assert "never started" in texts["c"][0]
    notices = [row["content"] for row in rows if row["type"] == "notice"]
    assert "background command" in json.dumps(notices)
    report = doctor(tmp_path)
    assert report["healthy"], report
    assert "was stopped then" in json.dumps(report)


def test_resume_leaves_no_process_of_a_sandboxed_command(tmp_path: Path) -> None:
    found = detect_bubblewrap(Sandbox())
    if found.backend is None:
        pytest.skip(str(found.problem))
    kill_exec(tmp_path, ("a", {"command": LONG}), options=["--sandbox=open"])
    assert processes_in(tmp_path)

    resume_exec(tmp_path)

    assert processes_in(tmp_path) == []
    assert len(recorded_results(tmp_path)["a"]) == 1
    assert doctor(tmp_path)["healthy"]


@pytest.mark.anyio
async def test_resume_can_wait_for_the_command_of_an_interrupted_call(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    kill_exec(tmp_path, ("a", {"command": "echo started; read line < gate; touch made"}))
    session = Session(cwd=tmp_path, transcript=transcript(tmp_path), leftovers="wait")

    async with anyio.create_task_group() as group:
        group.start_soon(session.open)
        await anyio.wait_all_tasks_blocked()
        assert not (tmp_path / "made").exists()
        (tmp_path / "gate").write_text("go\n", encoding="ascii")
    await session.close()

    assert (tmp_path / "made").exists()
    assert "its exit status and output are lost" in recorded_results(tmp_path)["a"][0]
    assert processes_in(tmp_path) == []
    assert resume_exec(tmp_path, "--leftover", "wait") == []


@contextmanager
def stranger(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "1000"], cwd=folder, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("is_same", [False, True])
def test_only_the_start_time_identifies_a_process_without_a_tag(is_same: bool, tmp_path: Path) -> None:
    kill_exec(tmp_path, ("a", {"command": LONG}))
    with stranger(tmp_path) as process:
        started = process_start(process.pid) if is_same else "1"
        with intent_path(transcript(tmp_path)).open("a", encoding="utf-8") as log:
            log.write(json.dumps({"process": "a", "pid": process.pid, "started": started}) + "\n")

        resume_exec(tmp_path)

        assert (process.poll() is None) is not is_same


async def resume_session(folder: Path, way: str) -> None:
    if way == "exec":
        resume_exec(folder, stdin=lines(("n", {"command": "echo next"})))
        return
    async with Session(cwd=folder, permissions=Permissions.allow_all(), transcript=transcript(folder)) as session:
        if way == "prompt":
            session.say("Where were we?")
        elif way == "run":
            await session.run(message(("n", {"command": "echo next"})))


@pytest.mark.anyio
@pytest.mark.parametrize("way", ["nothing", "prompt", "run", "exec"])
async def test_interrupted_calls_get_one_recorded_result_whatever_comes_next(way: str, tmp_path: Path) -> None:
    kill_exec(tmp_path, ("a", {"command": LONG}), ("c", {"command": "true"}))

    await resume_session(tmp_path, way)
    resume_exec(tmp_path)  # writes nothing twice

    texts = recorded_results(tmp_path)
    assert {call: len(found) for call, found in texts.items() if call != "n"} == {"a": 1, "c": 1}
    assert ("n" in texts) is (way in ("run", "exec"))
    assert check_history(load_history(transcript(tmp_path))) == []
    assert doctor(tmp_path)["healthy"]


def test_killed_session_is_dead_and_its_calls_do_not_run(tmp_path: Path) -> None:
    kill_exec(tmp_path, ("a", {"command": LONG}))

    [session] = live_sessions([tmp_path])
    recorded = read(transcript(tmp_path))
    mark_running_calls([recorded])

    assert (session.status, session.pid) == ("dead", None)
    assert session.evidence == ("calls have no result, and the process that recorded them has ended",)
    assert [span.state for span in recorded.spans] == ["never_answered"]
    resume_exec(tmp_path)


# Subagents


def kill_run(folder: Path, command: str = "echo started > ready; (setsid sleep 1000 &); sleep 1000") -> Path:
    """Kill a process whose subagent runs this command once `ready` has been written; return its transcript."""
    os.mkfifo(folder / "ready")
    agent = {"description": "Work", "prompt": "Work.", "run_in_background": False}
    calls = [use("Bash", command=command), use("Bash", command="true")]
    (folder / "script.json").write_text(json.dumps([[use("Agent", **agent)], calls]), encoding="utf-8")
    program = [sys.executable, "-m", "toolspan", "run", *EXEC[1:], "--no-sandbox", "-p", "Go."]
    options = ["--model", f"scripted:{folder / 'script.json'}", "--transcript", str(transcript(folder))]
    with subprocess.Popen([*program, *options], cwd=folder, stdin=subprocess.DEVNULL) as child:
        assert (folder / "ready").read_text(encoding="ascii") == "started\n"
        child.kill()
    [path] = (folder / NAME / "subagents").glob("agent-*.jsonl")
    return path


@pytest.mark.anyio
@pytest.mark.parametrize("way", ["nothing", "prompt", "run", "exec"])
async def test_interrupted_calls_of_a_subagent_get_one_recorded_result_in_its_transcript(
    way: str, tmp_path: Path
) -> None:
    path = kill_run(tmp_path)
    before = path.read_bytes()
    assert not doctor(tmp_path, path)["healthy"]

    await resume_session(tmp_path, way)
    after = path.read_bytes()
    resume_exec(tmp_path)

    assert path.read_bytes() == after  # nothing is written twice
    assert after.startswith(before)
    assert processes_in(tmp_path) == []
    [agent_call] = [span for span in read(transcript(tmp_path)).spans if span.tool == "Agent"]
    assert "it was started" in recorded_results(tmp_path)[agent_call.id][0]
    assert len(recorded_results(tmp_path)[agent_call.id]) == 1
    [long, never_started] = read(path).spans
    texts = recorded_results(tmp_path, path)
    assert {call: len(found) for call, found in texts.items()} == {long.id: 1, never_started.id: 1}
    assert "was still running when the session was resumed, and was stopped then" in texts[long.id][0]
    assert "never started" in texts[never_started.id][0]
    records = [json.loads(line) for line in after.splitlines()]
    shared = ("isSidechain", "agentId", "sessionId", "cwd", "promptId", "version")
    assert len({tuple(record.get(key) for key in shared) for record in records if record["type"] == "user"}) == 1
    assert {record["parentUuid"] for record in records} <= {None, *(record["uuid"] for record in records)}
    assert check_history(load_history(path)) == []
    assert doctor(tmp_path)["healthy"]
    assert doctor(tmp_path, path)["healthy"]


def test_transcript_of_a_subagent_that_another_process_writes_is_left_alone(tmp_path: Path) -> None:
    path = kill_run(tmp_path)
    before = path.read_bytes()
    lock = "import fcntl, sys; fcntl.flock(file := open(sys.argv[1]), fcntl.LOCK_EX); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", lock, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        resume_exec(tmp_path)
        assert path.read_bytes() == before
        owner.communicate(b"\n")

    resume_exec(tmp_path)

    assert sorted(map(len, recorded_results(tmp_path, path).values())) == [1, 1]


@pytest.mark.anyio
async def test_resume_can_wait_for_the_command_of_a_subagent(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    path = kill_run(tmp_path, "echo started > ready; read line < gate; touch made")
    session = Session(cwd=tmp_path, transcript=transcript(tmp_path), leftovers="wait")

    async with anyio.create_task_group() as group:
        group.start_soon(session.open)
        await anyio.wait_all_tasks_blocked()
        (tmp_path / "gate").write_text("go\n", encoding="ascii")
    await session.close()

    assert (tmp_path / "made").exists()
    assert "its exit status and output are lost" in json.dumps(recorded_results(tmp_path, path))


def test_killed_session_is_dead_and_nothing_runs_if_its_only_open_call_is_a_subagent(tmp_path: Path) -> None:
    path = kill_run(tmp_path)

    [session] = live_sessions([tmp_path])
    recorded = [read(transcript(tmp_path)), read(path)]
    mark_running_calls(recorded)

    assert [call.tool for call in session.calls] == ["Agent"]
    assert session.status == "dead"
    assert {span.state for file in recorded for span in file.spans} == {"never_answered"}
    resume_exec(tmp_path)
