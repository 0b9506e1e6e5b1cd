"""Measure the time from a cancel until no process of the command is left.

Runs real processes with `ProcessSupervisor.running` and cancels them. Prints a table, or JSON with `--json`; with
`--enforce`, exits with code 1 if a target is missed. The kernel detects the end: every process of a command holds the
write end of a pipe, which is closed when the last one has died. Start at `cancelled`, then `CASES`.
"""

from __future__ import annotations

import argparse
import os
import platform
import select
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio

from promises import write_json
from toolspan.runtime.process import Command, ProcessSupervisor, find_survivors

TARGET_MS = 300.0


@dataclass(frozen=True)
class Case:
    name: str
    script: str
    ups: int
    """Number of `up` lines that the script prints."""
    grace: float = 2.0
    ignores: bool = False
    """True if the script ignores the signal and is killed after the grace period, which is subtracted."""
    enforced: bool = True


STAY = "echo up; exec sleep 1000"
CASES = [
    Case("sleep", STAY, 1),
    Case("tree of 5", f"for i in 1 2 3 4; do ({STAY}) & done; echo up; wait", 5),
    Case("daemons", f"setsid sh -c '{STAY}' & (setsid sh -c '{STAY}' &) ; wait; {STAY}", 2),
    Case(
        "ignores TERM",
        f"trap '' TERM; for i in 1 2 3 4; do ({STAY}) & done; echo up; wait",
        5,
        grace=0.1,
        ignores=True,
        enforced=False,
    ),
]


@dataclass(frozen=True)
class Times:
    name: str
    rounds: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    target_ms: float | None


class UpCounter:
    """Detects that all parts of a command are running."""

    def __init__(self, times: int) -> None:
        self._left = times
        self.all = anyio.Event()

    def read_output(self, data: bytes) -> None:
        self._left -= data.count(b"up\n")
        if self._left <= 0:
            self.all.set()


async def cancelled(case: Case, supervisor: ProcessSupervisor, mark: str) -> float:
    """Return the seconds from the cancel until no process holds the pipe and the caller continues."""
    ups = UpCounter(case.ups)
    held, theirs = os.pipe()
    command = Command(
        argv=["/bin/sh", "-c", case.script],
        cwd=Path("/"),
        env=dict(os.environ),
        tag=mark,
        merge_streams=True,
        on_output=ups.read_output,
        pass_fds=(theirs,),
    )

    async def run() -> None:
        async with supervisor.running(command, case.grace) as child:
            os.close(theirs)
            await child.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await ups.all.wait()
        begin = time.perf_counter()
        group.cancel_scope.cancel()
    seconds = time.perf_counter() - begin
    readable, _, _ = select.select([held], [], [], 0)
    os.close(held)
    if not readable:
        raise SystemExit(f"{case.name}: something was left behind: {find_survivors(mark)}")
    return seconds - case.grace if case.ignores else seconds


async def measure(case: Case, rounds: int) -> Times:
    async with ProcessSupervisor() as supervisor:
        durations = [await cancelled(case, supervisor, f"cancel-{number}") for number in range(rounds)]
    took_ms = sorted(seconds * 1000 for seconds in durations)
    return Times(
        name=case.name,
        rounds=rounds,
        p50_ms=round(statistics.median(took_ms), 2),
        p99_ms=round(took_ms[min(len(took_ms) - 1, int(len(took_ms) * 0.99))], 2),
        max_ms=round(took_ms[-1], 2),
        target_ms=TARGET_MS if case.enforced else None,
    )


@dataclass(frozen=True)
class Starts:
    """Time to start and wait for `true`, compared with `subprocess`."""

    custody_ms: float
    popen_ms: float
    ratio: float


async def starting(rounds: int) -> Starts:
    ours, theirs = [], []
    command = Command(argv=["true"], cwd=Path("/"), env=dict(os.environ), tag="start")
    async with ProcessSupervisor() as supervisor:
        for _ in range(rounds):
            begin = time.perf_counter()
            await (await supervisor.start(command)).wait()
            between = time.perf_counter()
            subprocess.run(["true"], capture_output=True, stdin=subprocess.DEVNULL, check=True)
            ours.append(between - begin)
            theirs.append(time.perf_counter() - between)
    custody_ms, popen_ms = (statistics.median(times) * 1000 for times in (ours, theirs))
    return Starts(round(custody_ms, 2), round(popen_ms, 2), round(custody_ms / popen_ms, 2))


async def main(rounds: int) -> tuple[list[Times], Starts]:
    return [await measure(case, rounds) for case in CASES], await starting(rounds)


def table(times: list[Times], starts: Starts) -> str:
    lines = ["| cancel of | p50 ms | p99 ms | max ms | target p99 ms |", "|---|---|---|---|---|"]
    for row in times:
        target = "" if row.target_ms is None else f"{row.target_ms:g}"
        lines.append(f"| {row.name} | {row.p50_ms} | {row.p99_ms} | {row.max_ms} | {target} |")
    lines.append("")
    lines.append(
        f"Start and wait for `true`: {starts.custody_ms} ms, "
        f"`subprocess.run` {starts.popen_ms} ms, ratio {starts.ratio}."
    )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", type=Path, help="write all numbers here; - for stdout")
    parser.add_argument("--enforce", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args()
    times, starts = anyio.run(main, options.rounds)
    print(table(times, starts))
    numbers = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cancel": [asdict(row) for row in times],
        "start": asdict(starts),
    }
    write_json(numbers, options.json)
    missed = [row.name for row in times if row.target_ms and row.p99_ms > row.target_ms]
    if options.enforce and missed:
        print(f"missed: {', '.join(missed)}", file=sys.stderr)
        sys.exit(1)
