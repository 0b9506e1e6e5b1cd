"""A transcript has one writer; remains of killed sessions are repaired or removed."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.checks import flat
from tests.fork_server import run_python
from toolspan import Permissions, Session, read, tool
from toolspan.errors import InUse
from toolspan.testing import check_history
from toolspan.tools import coding_tools

pytestmark = pytest.mark.anyio
TEXT: dict[str, object] = {"role": "assistant", "content": [{"type": "text", "text": "Hi."}]}
RECORD = "import sys; from toolspan import Session; s = Session(transcript=sys.argv[1], tools=[]); s.say('Hello.'); "
WAIT = "print('ready', flush=True); sys.stdin.read()"


@tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


def session_at(path: Path) -> Session:
    return Session(permissions=Permissions.allow_all(), cwd=path.parent, tools=[echo], transcript=path)


async def record(path: Path) -> None:
    async with session_at(path) as session:
        session.say("Go.")
        call = {"type": "tool_use", "id": "a", "name": "echo", "input": {"text": "hello"}}
        await session.run({"role": "assistant", "content": [call]})


@pytest.mark.parametrize("is_new", [True, False])
async def test_second_session_on_an_open_transcript_is_refused(is_new: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    if not is_new:
        await record(path)

    async with session_at(path) as first:
        (tmp_path / "link.jsonl").symlink_to(path)
        for name in ("t.jsonl", "link.jsonl"):
            with pytest.raises(InUse, match="another session of this process"):
                async with session_at(tmp_path / name):
                    pass
        first.say("Still here.")
        await first.run(TEXT)

    async with session_at(path) as after:
        assert flat(after.messages) == flat(first.messages)


@pytest.mark.parametrize("is_new", [True, False])
async def test_session_created_before_another_one_wrote_is_refused_on_entry(is_new: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    if not is_new:
        await record(path)
    early = session_at(path)
    async with session_at(path) as session:
        session.say("More.")
        await session.run(TEXT)

    with pytest.raises(InUse, match="changed after this session was created"):
        async with early:
            pass

    async with session_at(path) as again:  # the refused session holds nothing
        assert flat(again.messages) == flat(session.messages)


async def test_session_can_be_entered_again_after_a_failed_start_or_close(tmp_path: Path) -> None:
    session = session_at(tmp_path / "t.jsonl")
    for _ in range(2):
        async with session:
            session.say("Go.")
            await session.run(TEXT)

    assert check_history(session.messages) == []
    assert len(session_at(tmp_path / "t.jsonl").messages) == 4


async def test_transcript_begun_by_another_process_takes_no_prompt(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    async with session_at(path) as session:
        program = [sys.executable, "-c", RECORD + WAIT, str(path)]
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"ready\n"
            with pytest.raises(InUse, match=f"process {other.pid}"):
                session.say("Mine.")
            other.communicate()

    assert [message["content"] for message in session_at(path).messages] == [[{"type": "text", "text": "Hello."}]]


@pytest.mark.parametrize("kept", [1, 40, 200, -2])
async def test_resume_removes_a_torn_last_line(kept: int, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    await record(path)
    prompt, call, result, *_ = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(prompt + call + result[:kept])

    async with session_at(path) as session:
        session.say("Where were we?")
        await session.run(TEXT)

    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert path.read_bytes().startswith(prompt + call)
    assert len(lines) >= 5
    assert not read(path).findings
    assert flat(session_at(path).messages) == flat(session.messages)


async def test_complete_record_without_newline_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    await record(path)
    prompt, call, result, *_ = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(prompt + call + result.rstrip(b"\n"))

    async with session_at(path) as session:
        session.say("Where were we?")

    assert path.read_bytes().startswith(prompt + call + result)
    assert [span.state for span in read(path).spans] == ["succeeded"]


KILLED = """
import os, signal, sys
import anyio
from toolspan import Permissions, Session
from toolspan.tools import coding_tools

async def main(folder, target):
    async with Session(cwd=folder, transcript=f"{folder}/home/first.jsonl", tools=coding_tools(only=["Write"]),
                       permissions=Permissions.allow_all()) as session:
        session.say("Write.")
        fsync = os.fsync
        os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
        call = {"type": "tool_use", "id": "a", "name": "Write", "input": {"file_path": target, "content": "x"}}
        await session.run({"role": "assistant", "content": [call]})

anyio.run(main, *sys.argv[1:])
"""


def temporaries(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".toolspan-*")]


def session_in(folder: Path, name: str) -> Session:
    tools = coding_tools(only=["Read"])
    transcript = folder / "home" / f"{name}.jsonl"
    return Session(permissions=Permissions.allow_all(), cwd=folder, tools=tools, transcript=transcript)


@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize("target", ["new.txt", "deep/er/new.txt"])
@pytest.mark.parametrize("name", ["first", "second"])  # resumed, or begun anew
async def test_next_session_removes_temporary_files_of_a_killed_one(name: str, target: str, tmp_path: Path) -> None:
    assert run_python("-c", KILLED, tmp_path, tmp_path / target).returncode == -signal.SIGKILL
    assert len(temporaries(tmp_path)) == 1

    async with session_in(tmp_path, name):
        assert temporaries(tmp_path) == []


async def test_files_in_use_and_foreign_files_are_kept(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    locked = tmp_path / f".toolspan-{gone.pid}-0123456789abcdef"
    mine = tmp_path / f".toolspan-{os.getpid()}-0123456789abcdef"
    others = [tmp_path / name for name in (".toolspan-notes", f".toolspan-{gone.pid}-x", ".toolspan.toml")]
    (tmp_path / f".toolspan-{gone.pid}-fedcba9876543210").mkdir()
    stale = tmp_path / f".toolspan-{gone.pid}-00000000deadbeef"
    for path in (locked, mine, stale, *others):
        path.touch()

    with locked.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        async with session_in(tmp_path, "first"):
            pass

    assert all(path.exists() for path in (locked, mine, *others))
    assert not stale.exists()
