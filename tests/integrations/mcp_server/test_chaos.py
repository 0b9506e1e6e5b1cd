"""`toolspan mcp` with misbehaving clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fork_server import TOOLSPAN
from tests.integrations.mcp_server.client import ARGUMENTS, HELLO, READY, recorded, request, until
from toolspan import read
from toolspan.integrations.mcp_server.transport import _parse_line
from toolspan.reading.diagnostics import repair

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fork_server")]

FREE = ("--permission-mode", "bypassPermissions")


@contextmanager
def server(folder: Path, *options: str, command: Sequence[str] = TOOLSPAN) -> Iterator[subprocess.Popen[bytes]]:
    transcript = str(folder.parent / f"{folder.name}.jsonl")
    with subprocess.Popen(
        [*command, *ARGUMENTS, *FREE, "--transcript", transcript, *options],
        cwd=folder,
        env={**os.environ, "HOME": str(folder.parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[bytes], *lines: str | bytes) -> None:
    assert process.stdin is not None
    for line in lines:
        process.stdin.write((line.encode() if isinstance(line, str) else line) + b"\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[bytes]) -> dict[str, object]:
    assert process.stdout is not None
    result: dict[str, object] = json.loads(process.stdout.readline())
    return result


def call(number: int, tool: str, **fields: object) -> str:
    return request(number, "tools/call", name=tool, arguments=fields)


def test_invalid_lines_are_answered_and_the_server_continues(folder: Path) -> None:
    with server(folder) as process:
        say(process, HELLO, READY)
        assert hear(process)["id"] == 0
        complaints = []
        for line in (b"{", b"\xff\xfe\x00", b"[]", b'"x"', b'{"a":1}', b"[" * 5_000, b"null"):
            say(process, line)
            complaints.append(hear(process))
        say(process, b"", b"   ", call(1, "Bash", command="echo fine"))
        answer = hear(process)
    codes = {complaint["error"]["code"] for complaint in complaints if isinstance(complaint["error"], dict)}
    assert codes == {-32700, -32600}
    assert {complaint["id"] for complaint in complaints} == {None}
    assert answer["id"] == 1
    assert "fine" in json.dumps(answer["result"])


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_line_can_be_read(line: bytes) -> None:
    _parse_line(line.replace(b"\n", b""))


def test_lone_surrogate_does_not_leave_a_call_unanswered(folder: Path) -> None:
    with server(folder) as process:
        say(process, HELLO, READY)
        hear(process)
        say(process, call(1, "Bash", command="echo cut in \ud83d half"))
        answer = hear(process)
    assert answer["id"] == 1
    assert "cut in \ufffd half" in json.dumps(answer["result"], ensure_ascii=False)


def test_invalid_message_is_answered_under_its_id(folder: Path) -> None:
    strange = [b'{"id":1,"method":7}', b'{"id":"x","jsonrpc":"3"}', b'{"id":1.5,"jsonrpc":"2.0","method":"ping"}']
    with server(folder) as process:
        say(process, HELLO, READY)
        hear(process)
        say(process, *strange)
        answers = [hear(process) for _ in strange]
    assert [answer["id"] for answer in answers] == [1, "x", None]
    assert all("error" in answer for answer in answers)


def test_invalid_requests_get_an_error_each(folder: Path) -> None:
    strange = [
        request(1, "tools/call"),
        request(2, "tools/call", name=7),
        request(3, "tools/call", name="Bash", arguments="x"),
        request(4, "no/such"),
        request(5, "tools/call", name="Bash", arguments={"command": "echo"}, requestState="none"),
        call(6, "Bash", command=["not", "a", "text"]),
        call(7, "../../etc", x=1),
    ]
    with server(folder) as process:
        say(process, HELLO, READY, *strange)
        answers = [hear(process) for _ in range(len(strange) + 1)]
        say(process, request(8, "tools/list"))
        assert hear(process)["id"] == 8
    by_id = {answer["id"]: answer for answer in answers}
    assert set(by_id) == set(range(8))
    assert all("error" in by_id[number] for number in (1, 2, 3, 4, 5))
    for number in (6, 7):
        result = by_id[number]["result"]
        assert isinstance(result, dict)
        assert result["isError"] is True


async def set_to_work(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Ask for a command that does not end by itself, and wait until it runs."""
    say(process, HELLO, READY, call(1, "Bash", command="echo $$ > pid; exec sleep 1000"))
    await until(lambda: (folder / "pid").exists() and (folder / "pid").read_text() != "")


async def test_end_of_input_ends_running_calls_and_the_server(folder: Path) -> None:
    with server(folder) as process:
        await set_to_work(process, folder)
        assert process.stdin is not None
        process.stdin.close()
        code = process.wait()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert code == 0
    assert not Path(f"/proc/{(folder / 'pid').read_text().strip()}").exists()
    assert [span.state for span in recorded(folder).spans] == ["interrupted"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_signal_ends_running_calls_and_the_server(folder: Path, number: int) -> None:
    with server(folder) as process:
        await set_to_work(process, folder)
        process.send_signal(number)
        code = process.wait()
    assert code == 128 + number
    assert [span.state for span in recorded(folder).spans] == ["interrupted"]


async def test_client_that_stops_reading_cannot_block_the_server(folder: Path) -> None:
    (folder / "big").write_text("x" * 79 + "\n", encoding="utf-8")
    with server(folder) as process:
        say(process, HELLO, READY)
        for number in range(1, 60):
            say(process, call(number, "Bash", command="head -c 20000 /dev/zero | tr '\\0' x"))
        assert process.stdin is not None
        await until((folder.parent / f"{folder.name}.jsonl").exists)
        await until(lambda: len(recorded(folder).spans) > 8)
        process.stdin.close()  # and its output was never read
        assert process.wait() == 0


async def test_calls_of_a_dead_client_are_ended(folder: Path) -> None:
    with server(folder) as process:
        await set_to_work(process, folder)
        assert process.stdout is not None
        process.stdout.close()  # its input stays open: only a write shows that it is gone
        say(process, request(2, "tools/list"))
        assert process.wait() == 0
    assert [span.state for span in recorded(folder).spans] == ["interrupted"]


def test_only_protocol_messages_are_printed(folder: Path) -> None:
    settings_file = folder / "settings.json"
    hook = {"type": "command", "command": "echo noise; echo more >&2"}
    settings_file.write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": [hook]}]}}), encoding="utf-8")
    with server(folder, "--settings", str(settings_file)) as process:
        say(process, HELLO, READY, call(1, "Bash", command="echo hi; echo err >&2"))
        answers = [hear(process), hear(process)]
        out, err = process.communicate()
    assert [answer["id"] for answer in answers] == [0, 1]
    assert (out, err) == (b"", b"")


def test_invalid_option_is_reported_before_serving(folder: Path) -> None:
    with server(folder, "--settings", "nowhere.json") as process:
        out, err = process.communicate(HELLO.encode() + b"\n")
    assert (process.returncode, out) == (2, b"")
    assert err.startswith(b"toolspan: ")


async def test_concurrent_calls_get_one_answer_each(folder: Path) -> None:
    (folder / "a").write_text("a\n", encoding="utf-8")
    calls = [call(n, *(("Read",) if n % 2 else ("Nothing",)), file_path=str(folder / "a")) for n in range(1, 101)]
    with server(folder) as process:
        say(process, HELLO, READY)
        hear(process)
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, say, process, *calls)
            answers = [await anyio.to_thread.run_sync(hear, process) for _ in calls]
    assert {answer["id"] for answer in answers} == set(range(1, 101))


async def test_transcript_of_a_killed_server_can_be_read_and_repaired(folder: Path) -> None:
    with server(folder, command=[sys.executable, "-m", "toolspan"]) as process:
        say(process, HELLO, READY, call(1, "Bash", command="echo one"))
        say(process, call(2, "Bash", command="echo $$ > pid; exec sleep 1000"))
        await until(lambda: (folder / "pid").exists() and (folder / "pid").read_text() != "")
        process.kill()
        process.wait()
    pid = int((folder / "pid").read_text(encoding="utf-8"))
    try:
        assert [span.state for span in recorded(folder).spans] == ["succeeded", "never_answered"]
        done = repair(folder.parent / f"{folder.name}.jsonl")
        assert done.path is not None
        assert all(span.result is not None for span in read(done.path).spans)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_two_servers_in_one_folder_record_separate_sessions(folder: Path) -> None:
    command = [*TOOLSPAN, *ARGUMENTS, *FREE]
    home = {**os.environ, "HOME": str(folder.parent)}
    home.pop("CLAUDE_CONFIG_DIR", None)
    servers = [
        subprocess.Popen(command, cwd=folder, env=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)
    ]
    for number, item in enumerate(servers):
        gate = f"touch {number}; until [ -e {1 - number} ]; do :; done; echo {number}"
        say(item, HELLO, READY, call(1, "Bash", command=gate))
    answers = [[hear(item), hear(item)][1] for item in servers]
    for item in servers:
        item.communicate()
    assert [item.returncode for item in servers] == [0, 0]
    assert [answer["result"]["content"][0]["text"] for answer in answers] == ["0", "1"]  # type: ignore[index]
    sessions = list((folder.parent / ".claude/projects").glob("*/*.jsonl"))
    result = sorted(span.state for path in sessions for span in read(path).spans)
    assert (len(sessions), result) == (2, ["succeeded", "succeeded"])
