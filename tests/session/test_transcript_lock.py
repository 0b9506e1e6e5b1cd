"""A transcript has one writer, and a torn last line is repaired before more is written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.checks import flat
from tests.requirement import requirement
from toolspan import Permissions, Session, read, tool
from toolspan.errors import InUse
from toolspan.testing import check_history

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


@requirement("session.one-writer")
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


@requirement("session.one-writer")
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


@requirement("session.one-writer")
async def test_session_can_be_entered_again_after_a_failed_start_or_close(tmp_path: Path) -> None:
    session = session_at(tmp_path / "t.jsonl")
    for _ in range(2):
        async with session:
            session.say("Go.")
            await session.run(TEXT)

    assert check_history(session.messages) == []
    assert len(session_at(tmp_path / "t.jsonl").messages) == 4


@requirement("session.one-writer")
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


@requirement("record.torn-line-removed")
@pytest.mark.parametrize("kept", [1, 40, 200, -2])
async def test_resume_removes_a_torn_last_line(kept: int, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    await record(path)
    prompt, call, result, *_ = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(prompt + call + result[:kept])

    async with session_at(path) as session:
        assert path.read_bytes() == prompt + call + result[:kept]  # opening changes nothing
        session.say("Where were we?")
        await session.run(TEXT)

    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert path.read_bytes().startswith(prompt + call)
    assert len(lines) >= 5
    assert not read(path).findings
    assert flat(session_at(path).messages) == flat(session.messages)


@requirement("record.torn-line-removed")
async def test_complete_record_without_newline_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    await record(path)
    prompt, call, result, *_ = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(prompt + call + result.rstrip(b"\n"))

    async with session_at(path) as session:
        session.say("Where were we?")

    assert path.read_bytes().startswith(prompt + call + result)
    assert [span.state for span in read(path).spans] == ["succeeded"]
