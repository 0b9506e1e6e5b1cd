"""Measure what a sandbox costs: time and memory per command, many at once, and the time to cancel one.

Runs real commands through a session and through a supervisor, within and without the sandbox in turn. Prints a table,
or JSON with `--json`; with `--enforce`, exits with code 1 if a target is missed. `--friction FOLDER` counts instead how
many recorded commands need a question without and within the sandbox.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

import toolspan
from promises import write_json
from toolspan import Permissions, Sandbox, Session
from toolspan.runtime.authorization import is_freed_by_sandbox
from toolspan.runtime.permissions.decide import PermissionRequest, decide
from toolspan.runtime.process import ChildProcess, Command, ProcessPlatform, ProcessSupervisor, find_survivors
from toolspan.runtime.sandbox.active import ActiveSandbox
from toolspan.session import SingleCallRunner
from toolspan.shell.syntax import parse_line
from toolspan.types import Ask

COST_TARGET_MS, CANCEL_TARGET_MS = 15.0, 300.0
NETWORK_PROGRAMS = {
    "curl",
    "wget",
    "ssh",
    "scp",
    "rsync",
    "gh",
    "nc",
    "ping",
    "dig",
    "docker",
    "aws",
    "gcloud",
    "kubectl",
}
NETWORK_WORDS = {
    "git": {"push", "pull", "fetch", "clone", "ls-remote"},
    "npm": {"install", "i", "ci", "publish", "view"},
    "pnpm": {"install", "add"},
    "yarn": {"install", "add"},
    "pip": {"install", "download"},
    "uv": {"sync", "add", "pip"},
    "cargo": {"install", "fetch", "publish"},
    "go": {"get", "install"},
}


@asynccontextmanager
async def open_session(folder: Path, sandbox: Sandbox | None) -> AsyncIterator[SingleCallRunner]:
    permissions = Permissions.allow_all()
    async with Session(cwd=folder, sandbox=sandbox, permissions=permissions, transcript=None) as session:
        runner = SingleCallRunner(session)
        await runner.run_call("Bash", {"command": "true"})  # opens the network
        yield runner


async def measure_cost(folder: Path, rounds: int) -> dict[str, float]:
    """Return the median and lowest milliseconds of a call that runs `true`, in turn within and without."""
    times: dict[bool, list[float]] = {False: [], True: []}
    async with open_session(folder, None) as bare, open_session(folder, Sandbox(strict=True)) as inside:
        for _ in range(rounds):
            for is_inside, runner in ((False, bare), (True, inside)):
                begin = time.perf_counter()
                await runner.run_call("Bash", {"command": "true"})
                times[is_inside].append((time.perf_counter() - begin) * 1e3)
    return {
        "bare_ms": round(statistics.median(times[False]), 2),
        "sandbox_ms": round(statistics.median(times[True]), 2),
        "cost_ms": round(statistics.median(times[True]) - statistics.median(times[False]), 2),
        "lowest_cost_ms": round(min(times[True]) - min(times[False]), 2),
    }


async def start(
    supervisor: ProcessSupervisor, sandbox: ActiveSandbox | None, folder: Path, script: str, tag: str
) -> ChildProcess:
    command = Command(argv=["/bin/sh", "-c", script], cwd=folder, env=dict(os.environ), tag=tag, merge_streams=True)
    if sandbox is None:
        return await supervisor.start(command)
    async with sandbox.wrap(command, [folder]) as sandboxed:
        return await supervisor.start(sandboxed.command)


async def measure_many(folder: Path, sandbox: ActiveSandbox | None, count: int) -> float:
    """Return the seconds until `count` commands that start together have all run."""

    async def run(index: int) -> None:
        child = await start(supervisor, sandbox, folder, f"echo {index}", f"many-{index}")
        exit_status = await child.wait()
        if exit_status.status != 0 or child.stdout.data != f"{index}\n".encode():
            raise SystemExit(f"command {index} failed: {child.stdout.data!r}")

    begin = time.perf_counter()
    async with ProcessSupervisor() as supervisor, anyio.create_task_group() as group:
        for index in range(count):
            group.start_soon(run, index)
    return time.perf_counter() - begin


async def measure_memory(folder: Path, sandbox: ActiveSandbox) -> float:
    """Return the MB of memory that the sandbox of one running command takes, without the command itself."""
    sizes = []
    async with ProcessSupervisor() as supervisor:
        for is_inside in (False, True):
            child = await start(
                supervisor, sandbox if is_inside else None, folder, "echo up; exec sleep 1000", "memory"
            )
            while b"up" not in child.stdout.data:
                await anyio.sleep(0.01)
            members = child.tree.find_members(ProcessPlatform.detect().table)
            sizes.append(sum(_proportional_kb(process.pid) for process in members))
    return round((sizes[1] - sizes[0]) / 1024, 2)


def _proportional_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


async def measure_cancel(folder: Path, sandbox: ActiveSandbox, rounds: int) -> list[float]:
    """Return the sorted milliseconds until no process of a command is left, for a tree with a daemon."""
    script = "for i in 1 2 3 4; do (echo up; exec sleep 1000) & done; setsid sh -c 'echo up; exec sleep 1000' & wait"
    durations = []
    async with ProcessSupervisor() as supervisor:
        for number in range(rounds):
            tag = f"cancel-{number}"
            child = await start(supervisor, sandbox, folder, script, tag)
            while child.stdout.data.count(b"up") < 5:
                await anyio.sleep(0.005)
            begin = time.perf_counter()
            await child.terminate()
            durations.append((time.perf_counter() - begin) * 1e3)
            if survivors := find_survivors(tag):
                raise SystemExit(f"round {number}: still running: {survivors}")
    return sorted(durations)


async def count_questions(archive: Path) -> dict[str, float]:
    """Count the recorded commands that need a question without and within the sandbox."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as project:
        async with Session(cwd=project, sandbox=Sandbox(strict=True), transcript=None) as session:
            context = session.runner.runner_context
            assert context.fallback is not None
            for span in toolspan.history(archive).spans:
                command = span.call.arguments.get("command") if span.tool == "Bash" else None
                if not isinstance(command, str):
                    continue
                request = PermissionRequest(
                    span.call, {"command": command}, Path(project), Path(project), known_as="Bash"
                )
                decision = await decide(context.policies, request)
                final_decision = decision or await decide([context.fallback], request)
                counts["commands"] += 1
                if not isinstance(final_decision, Ask):
                    continue
                counts["asked"] += 1
                free = await is_freed_by_sandbox(request, decision, context)
                counts["free_inside"] += free
                counts["free_inside_offline"] += free and not _needs_network(command)
    shares = {
        f"{name}_share": round(counts[name] / counts["asked"], 3) for name in ("free_inside", "free_inside_offline")
    }
    return {**counts, **shares}


def _needs_network(command: str) -> bool:
    for program in parse_line(command).programs:
        arguments = {word.text for word in program.words[1:]}
        if program.name in NETWORK_PROGRAMS or arguments & NETWORK_WORDS.get(program.name, set()):
            return True
    return False


async def measure(arguments: argparse.Namespace) -> dict[str, float]:
    if arguments.friction is not None:
        return await count_questions(arguments.friction)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        numbers = await measure_cost(folder, arguments.rounds)
        sandbox = ActiveSandbox(Sandbox(strict=True))
        sandbox.open()
        await measure_many(folder, sandbox, 1)
        numbers["memory_mb"] = await measure_memory(folder, sandbox)
        numbers["bare_100_s"] = round(await measure_many(folder, None, 100), 2)
        numbers["sandbox_100_s"] = round(await measure_many(folder, sandbox, 100), 2)
        cancels = await measure_cancel(folder, sandbox, arguments.rounds)
        numbers["cancel_p50_ms"] = round(statistics.median(cancels), 1)
        numbers["cancel_p99_ms"] = round(cancels[int(len(cancels) * 0.99)], 1)
        await sandbox.close()
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--friction", type=Path, metavar="FOLDER")
    parser.add_argument("--json", type=Path, help="write all numbers here; - for stdout")
    parser.add_argument("--enforce", action="store_true")
    arguments = parser.parse_args()
    numbers = anyio.run(measure, arguments)
    for name, value in numbers.items():
        print(f"{name:<26}{value:>12g}")
    write_json(numbers, arguments.json)
    if arguments.enforce and (numbers["cost_ms"] > COST_TARGET_MS or numbers["cancel_p99_ms"] > CANCEL_TARGET_MS):
        sys.exit("a target is missed")


if __name__ == "__main__":
    main()
