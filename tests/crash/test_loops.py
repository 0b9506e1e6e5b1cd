"""Kills, signals, faulty hooks and faulty servers, in loops: `make soak` runs all of them, `make test` a sample.

Every loop goes through `toolspan exec`. Whatever happens, a call runs at most once, every call of a process that
lives to its end has one result, and no process or temporary file is left.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from tests.fork_server import TOOLSPAN, run_toolspan
from tests.limits import PATIENCE
from toolspan import Permissions, Session, read
from toolspan.reading.diagnostics import check
from toolspan.session.resume import load_history
from toolspan.testing import check_history

pytestmark = pytest.mark.usefixtures("fork_server")

EXEC = ["exec", "--permission-mode", "bypassPermissions"]
CHAOS = Path(__file__).parents[1] / "integrations" / "mcp_client" / "chaos_server.py"


def sampled(whole: int, sample: int) -> list[Any]:
    """Return the seeds of a loop; those beyond the sample are slow."""
    return [pytest.param(seed, marks=[] if seed < sample else pytest.mark.slow) for seed in range(whole)]


def message(*calls: tuple[str, str, object]) -> bytes:
    blocks = [{"type": "tool_use", "id": name, "name": tool, "input": fields} for name, tool, fields in calls]
    return json.dumps({"type": "assistant", "message": {"role": "assistant", "content": blocks}}).encode() + b"\n"


def appending(name: str) -> tuple[str, str, dict[str, object]]:
    return name, "Bash", {"command": f"echo {name} >> log"}


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "CLAUDE_CONFIG_DIR": str(folder / "config"),
        "MCP_TIMEOUT": "2000",
        "MCP_TOOL_TIMEOUT": "1000",
    }


def run(folder: Path, lines: bytes, *options: str) -> list[dict[str, Any]]:
    """Run a process to its end and return what it printed."""
    done = run_toolspan(*EXEC, *options, cwd=folder, env=environment(folder), stdin=lines.decode())
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def results(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(row["tool_use_id"] for row in rows if row["type"] == "result")


def log(folder: Path) -> Counter[str]:
    path = folder / "log"
    return Counter(path.read_text(encoding="ascii").split() if path.exists() else [])


def check_nothing_left(folder: Path) -> None:
    assert [path for path in folder.rglob(".toolspan-*") if path.is_file()] == []
    running = [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(folder)]
    assert running == []


def kill_exec(folder: Path, lines: bytes, path: Path, events: int) -> None:
    """Kill a process that runs these lines after it has printed this many events."""
    program = [sys.executable, "-m", "toolspan", *EXEC, "--transcript", str(path), "--events"]
    with subprocess.Popen(
        program, cwd=folder, env=environment(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(lines)
        child.stdin.flush()
        for _, _row in zip(range(events), child.stdout, strict=False):
            pass
        child.kill()
        child.stdin.close()
        child.wait()


async def continue_session(folder: Path, path: Path, lines: bytes, *, has_prompt: bool) -> None:
    async with Session(cwd=folder, permissions=Permissions.allow_all(), transcript=path) as session:
        if has_prompt:
            session.say("Where were we?")
        for line in lines.splitlines():
            await session.run(json.loads(line))


def recorded_results(path: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line in path.read_bytes().splitlines():
        content = json.loads(line).get("message", {}).get("content")
        blocks = content if isinstance(content, list) else []
        counts.update(block["tool_use_id"] for block in blocks if block["type"] == "tool_result")
    return counts


@pytest.mark.parametrize("seed", sampled(420, 3))
def test_killed_exec_is_resumed_and_every_call_has_one_result(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    path = tmp_path / "home" / "t.jsonl"
    long = f"echo l >> log; echo started; (setsid sleep 1000 &); sleep {rng.choice([0, 0, 1000])}"
    batches = [
        [
            appending("a"),
            ("s", "Bash", {"command": "echo s >> log; sleep 1000", "run_in_background": True}),
            appending("b"),
            ("w", "Write", {"file_path": str(tmp_path / "w.txt"), "content": "x" * 9_000}),
        ],
        [
            appending("c"),
            ("r", "Read", {"file_path": str(tmp_path / "w.txt")}),
            ("l", "Bash", {"command": long, "timeout": 1_000}),
            appending("d"),
        ],
    ]
    lines = b"".join(message(*calls) for calls in batches)
    kill_exec(tmp_path, lines, path, rng.randrange(2, 34))

    following = message(appending("e"))
    way = ("prompt", "run", "exec")[seed % 3]
    if way == "exec":
        run(tmp_path, lines + following, "--transcript", str(path))  # the same ids again
    else:
        anyio.run(partial(continue_session, has_prompt=way == "prompt"), tmp_path, path, lines + following)

    assert all(json.loads(line) for line in path.read_bytes().splitlines())
    assert check_history(load_history(path)) == []
    assert Counter(str(span.id) for span in read(path).spans) == Counter("asbwcrlde")
    assert recorded_results(path) == Counter("asbwcrlde")
    assert max(log(tmp_path).values()) == 1
    assert check(path).is_healthy
    check_nothing_left(tmp_path)


@pytest.mark.parametrize("seed", sampled(40, 2))
def test_signal_ends_exec_with_a_result_for_every_call(seed: int, tmp_path: Path) -> None:
    number = (signal.SIGINT, signal.SIGTERM)[seed % 2]
    commands = ["sleep 1000", "trap '' TERM INT; while :; do sleep 1; done", "(setsid sleep 1000 &) ; sleep 1000"]
    command = f"echo started; {commands[seed % 3]}"
    calls = [appending("a"), ("b", "Bash", {"command": command}), appending("c")]
    program = [*TOOLSPAN, *EXEC, "--transcript", "none", "--events"]
    with subprocess.Popen(
        program, cwd=tmp_path, env=environment(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(message(*calls))
        child.stdin.flush()
        rows: list[dict[str, Any]] = []
        for line in child.stdout:
            rows.append(json.loads(line))
            if rows[-1]["type"] == "call.progress":
                break
        child.send_signal(number)
        rows += [json.loads(line) for line in child.stdout]
        child.stdin.close()
        assert child.wait(PATIENCE) == 128 + number

    assert results(rows) == Counter("abc")
    assert log(tmp_path) == Counter("a")
    check_nothing_left(tmp_path)


HOOKS = [
    "exit 1",
    "exit 3",
    "kill -9 $$",
    "kill -TERM $$",
    "echo '{not json'; exit 0",
    "printf '\\377\\376\\000'; exit 0",
    "head -c 3000000 /dev/zero | tr '\\0' x",
    "exec sleep 1000",
    "trap '' TERM; while :; do sleep 1; done",
    "(setsid sleep 1000 >/dev/null 2>&1 &); exit 0",
    "/nonexistent/program",
    "exec <&-; cat",
    "echo '{\"hookSpecificOutput\": 7}'",
    "echo '[]'",
    "yes >&2 | head -c 100000 >&2; exit 1",
]


@pytest.mark.parametrize("seed", sampled(30, 2))
def test_faulty_hook_costs_no_call_its_result(seed: int, tmp_path: Path) -> None:
    point = ("PreToolUse", "PostToolUse")[seed // len(HOOKS)]
    handler = {"type": "command", "command": HOOKS[seed % len(HOOKS)], "timeout": 1}
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"hooks": {point: [{"matcher": "*", "hooks": [handler]}]}}), encoding="utf-8")

    rows = run(tmp_path, message(appending("a"), appending("b")), "--transcript", "none", "--settings", str(settings))

    assert results(rows) == Counter("ab")
    assert log(tmp_path) == Counter("ab")
    check_nothing_left(tmp_path)


FAULTS = [
    "die", "hang", "half", "wrong_id", "twice", "close_stdout", "garbage", "fork", "refuse", "fail", "misfit",
    "null_result", "number_result", "null_error", "neither", "no_version", "endless", "surrogate", "huge", "flood",
]  # fmt: skip
HABITS = ["mute", "dead", "noisy", "chatty", "stubborn"]


@pytest.mark.parametrize("seed", sampled(25, 1))
def test_faulty_server_costs_no_call_its_result(seed: int, tmp_path: Path) -> None:
    tool, habits = (FAULTS[seed], []) if seed < len(FAULTS) else ("echo", [HABITS[seed - len(FAULTS)]])
    config = tmp_path / "mcp.json"
    server = {"command": sys.executable, "args": [str(CHAOS), str(tmp_path / "server.log"), *habits]}
    config.write_text(json.dumps({"mcpServers": {"chaos": server}}), encoding="utf-8")
    calls = [appending("a"), ("m", f"mcp__chaos__{tool}", {}), ("n", f"mcp__chaos__{tool}", {}), appending("b")]

    rows = run(tmp_path, message(*calls), "--transcript", "none", "--mcp-config", str(config))

    assert results(rows) == Counter("amnb")
    assert log(tmp_path) == Counter("ab")
    check_nothing_left(tmp_path)
