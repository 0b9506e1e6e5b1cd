"""Temporary files of killed sessions are removed by the next session in that folder, and no others."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirement import requirement
from toolspan import Permissions, Session
from toolspan.tools import coding_tools

pytestmark = pytest.mark.anyio
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


@requirement("session.leftovers")
@pytest.mark.parametrize("target", ["new.txt", "deep/er/new.txt"])
@pytest.mark.parametrize("name", ["first", "second"])  # resumed, or begun anew
async def test_next_session_removes_temporary_files_of_a_killed_one(name: str, target: str, tmp_path: Path) -> None:
    program = [sys.executable, "-c", KILLED, str(tmp_path), str(tmp_path / target)]
    assert subprocess.run(program, check=False).returncode == -signal.SIGKILL
    assert len(temporaries(tmp_path)) == 1

    async with session_in(tmp_path, name):
        assert temporaries(tmp_path) == []


@requirement("session.leftovers")
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
