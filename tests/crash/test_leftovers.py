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
from tests.requirement import requirement
from toolspan import Permissions, Session, read
from toolspan.analysis.live_sessions import live_sessions, mark_running_calls
from toolspan.formats.processes import process_start
from toolspan.runtime.sandbox.bubblewrap import detect_bubblewrap
from toolspan.runtime.sandbox.settings import Sandbox
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


def recorded_results(folder: Path) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for line in transcript(folder).read_bytes().splitlines():
        content = json.loads(line).get("message", {}).get("content")
        for block in content if isinstance(content, list) else ():
            if block["type"] == "tool_result":
                texts.setdefault(block["tool_use_id"], []).append(block["content"])
    return texts


def doctor(folder: Path) -> dict[str, Any]:
    done = run_toolspan("doctor", "--json", str(transcript(folder)), cwd=folder)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


LONG = "echo started; (setsid sleep 1000 &); sleep 1000"


@requirement("crash.leftovers")
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
    assert "was still running when the session was resumed, and was ended then" in texts["a"][0]
    assert "never started" in texts["c"][0]
    notices = [row["content"] for row in rows if row["type"] == "notice"]
    assert "background command" in json.dumps(notices)
    report = doctor(tmp_path)
    assert report["healthy"], report
    assert "was ended then" in json.dumps(report)


@requirement("crash.leftovers")
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


@requirement("crash.leftovers")
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


@requirement("crash.leftovers")
@pytest.mark.parametrize("is_same", [False, True])
def test_only_the_start_time_identifies_a_process_without_a_tag(is_same: bool, tmp_path: Path) -> None:
    kill_exec(tmp_path, ("a", {"command": LONG}))
    with stranger(tmp_path) as process:
        started = process_start(process.pid) if is_same else "1"
        with intent_path(transcript(tmp_path)).open("a", encoding="utf-8") as log:
            log.write(json.dumps({"process": "a", "pid": process.pid, "started": started}) + "\n")

        resume_exec(tmp_path)

        assert (process.poll() is None) is not is_same


@requirement("crash.answers")
@pytest.mark.anyio
@pytest.mark.parametrize("way", ["nothing", "prompt", "run", "exec"])
async def test_interrupted_calls_get_one_recorded_result_whatever_comes_next(way: str, tmp_path: Path) -> None:
    kill_exec(tmp_path, ("a", {"command": LONG}), ("c", {"command": "true"}))

    if way == "exec":
        resume_exec(tmp_path, stdin=lines(("n", {"command": "echo next"})))
    else:
        async with Session(
            cwd=tmp_path, permissions=Permissions.allow_all(), transcript=transcript(tmp_path)
        ) as session:
            if way == "prompt":
                session.say("Where were we?")
            elif way == "run":
                await session.run(message(("n", {"command": "echo next"})))
    resume_exec(tmp_path)  # writes nothing twice

    texts = recorded_results(tmp_path)
    assert {call: len(found) for call, found in texts.items() if call != "n"} == {"a": 1, "c": 1}
    assert ("n" in texts) is (way in ("run", "exec"))
    assert check_history(load_history(transcript(tmp_path))) == []
    assert doctor(tmp_path)["healthy"]


@requirement("live.killed")
def test_killed_session_is_dead_and_its_calls_do_not_run(tmp_path: Path) -> None:
    kill_exec(tmp_path, ("a", {"command": LONG}))

    [session] = live_sessions([tmp_path])
    recorded = read(transcript(tmp_path))
    mark_running_calls([recorded])

    assert (session.status, session.pid) == ("dead", None)
    assert session.evidence == ("calls have no result, and the process that recorded them has ended",)
    assert [span.state for span in recorded.spans] == ["never_answered"]
    resume_exec(tmp_path)
