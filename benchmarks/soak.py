"""Run very many calls in one session and check that it leaks nothing.

Prints a table, or JSON with `--json`; with `--enforce`, exits with code 1 if memory grows too fast or something is
left behind. A real `Session` with a transcript runs batches with calls of all kinds: successful, denied, failed,
cancelled, timed out, interrupted, and commands with real processes. The conversation is compacted from time to time,
as every long one must be (`Session.compact`). Start at `Soak.turn`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio

import toolspan
from toolspan.runtime.context import ToolContext
from toolspan.runtime.isolation import MAX_IDLE_TASKS, TASK_NAME
from toolspan.runtime.permissions import PolicyStack
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.tool import Tool, tool
from toolspan.session import Session
from toolspan.session.recording import Compaction
from toolspan.tools import coding_tools
from toolspan.types.decision import Deny
from toolspan.types.events import Finished, LiveEvent
from toolspan.types.state import OPEN_STATES

SLOPE_KB = 256.0
"""Permitted growth of memory per thousand calls, in KB. Only the ids of calls should accumulate: some hundred bytes
each, so that no call is ever run twice.
"""
BATCH, SAMPLE, CUT = 20, 1_000, 2_000
WARM = 0.3
"""The share of calls that warm up, before memory is measured."""
FILES = 8


@dataclass(frozen=True)
class Soaked:
    """The result of a run."""

    calls: int
    seconds: float
    states: dict[str, int]
    slope_kb: float
    """Growth of the resident memory per thousand calls, after the warm-up."""
    first_mb: float
    last_mb: float
    processes: int
    """Processes left when the session is closed."""
    descriptors: int
    """Additional open descriptors."""
    tasks: int
    threads: int
    settled: int
    """Calls with a result in the transcript."""
    transcript_mb: float
    problems: tuple[str, ...]


class Soak:
    """A session and its calls."""

    def __init__(self, folder: Path) -> None:
        self.files = [folder / f"file{n}.txt" for n in range(FILES)]
        for file in self.files:
            file.write_text("one\n")
        self.states: Counter[str] = Counter()
        self.session = Session(
            cwd=folder,
            tools=[*coding_tools(), *self._odd_tools()],
            permissions=PolicyStack((_deny,)),
            direct=[self._count],
            transcript=folder / "soak.jsonl",
        )
        self._made = 0

    def _count(self, event: LiveEvent) -> None:
        if isinstance(event, Finished):
            self.states[event.span.state] += 1

    def _odd_tools(self) -> list[Tool]:
        @tool(concurrent=True)
        async def hold(ctx: ToolContext) -> str:
            """Cancel this call and wait."""
            self.session.runner.cancel(ctx.call.id)
            await anyio.sleep_forever()
            return ""

        @tool(concurrent=True, timeout=0.001)
        async def slow() -> str:
            """Wait longer than the timeout."""
            await anyio.sleep_forever()
            return ""

        @tool
        async def stop() -> str:
            """Interrupt the turn and all waiting calls."""
            self.session.interrupt()
            await anyio.sleep_forever()
            return ""

        @tool
        async def secret() -> str:
            """Return a secret; always denied."""
            return ""

        @tool(concurrent=True)
        async def breaks() -> str:
            """Raise an exception."""
            raise RuntimeError("as it must")

        return [hold, slow, stop, secret, breaks]

    async def turn(self, number: int) -> None:
        """Run one turn: a prompt, a batch with calls of all kinds, and a final reply."""
        self.session.say(f"Turn {number}.")
        file = str(self.files[number % FILES])
        before, after = ("one", "two") if number // FILES % 2 == 0 else ("two", "one")
        edit: dict[str, object] = {"file_path": file, "old_string": before, "new_string": after}
        calls: list[tuple[str, dict[str, object]]] = [
            ("Read", {"file_path": file}),
            ("Edit", edit),
            ("Edit", {**edit, "old_string": "not there"}),
            ("Read", {"file_path": str(self.files[0].with_name("missing"))}),
            ("Read", {"limit": 1}),
            ("NoSuchTool", {}),
            ("secret", {}),
            ("breaks", {}),
            ("hold", {}),
            ("slow", {}),
        ]
        if number % 10 == 0:
            command = "echo hello" if number % 20 else "echo no >&2; exit 3"
            calls.append(("Bash", {"command": command}))
        if number % 25 == 0:
            calls.append(("stop", {}))
        calls += [("Read", {"file_path": file, "limit": 1})] * (BATCH - len(calls))
        blocks = [self._block(name, given) for name, given in calls]
        reply = {"role": "assistant", "model": "soak", "content": blocks, "stop_reason": "tool_use"}
        if await self.session.run(reply):
            done = [{"type": "text", "text": "Done."}]
            await self.session.run({"role": "assistant", "model": "soak", "content": done, "stop_reason": "end_turn"})

    def _block(self, name: str, given: dict[str, object]) -> dict[str, object]:
        self._made += 1
        return {"type": "tool_use", "id": f"toolu_01{self._made:022}", "name": name, "input": given}

    async def cut(self) -> None:
        """Replace the conversation by a summary."""
        summary = Compaction(summary="So far so good.", trigger="auto", tokens_before=0, duration_ms=0)
        await self.session.compact(summary)


def _deny(question: PermissionRequest) -> Deny | None:
    return Deny("not this one") if question.tool == "secret" else None


async def soak(folder: Path, calls: int, told: Callable[[str], None]) -> Soaked:
    await _warm_up(folder)
    descriptors, threads = _descriptors(), threading.active_count()
    samples: list[tuple[int, float]] = []
    began = time.monotonic()
    one = Soak(folder)
    tasks = _tasks()
    async with one.session:
        inside = _tasks()
        for number in range(calls // BATCH):
            await one.turn(number)
            ran = (number + 1) * BATCH
            if ran % CUT == 0:
                await one.cut()
            if ran % SAMPLE == 0:
                samples.append((ran, _memory_kb()))
            if ran % (10 * SAMPLE) == 0:
                told(f"{ran:,} calls, {samples[-1][1] / 1024:.1f} MB")
        more_tasks = await _tasks_left(inside, spare=MAX_IDLE_TASKS)
    more_tasks += await _tasks_left(tasks)
    seconds = time.monotonic() - began
    path = folder / "soak.jsonl"
    spans = toolspan.read(path).spans
    result = Soaked(
        calls=calls // BATCH * BATCH,
        seconds=round(seconds, 1),
        states=dict(one.states),
        slope_kb=round(slope(samples[int(len(samples) * WARM) :]) * 1_000, 1),
        first_mb=round(samples[int(len(samples) * WARM)][1] / 1024, 1),
        last_mb=round(samples[-1][1] / 1024, 1),
        processes=len(_children()),
        descriptors=_descriptors() - descriptors,
        tasks=more_tasks,
        threads=max(0, threading.active_count() - threads - _IDLE_THREADS),
        settled=sum(s.state not in OPEN_STATES | {"never_answered"} for s in spans),
        transcript_mb=round(path.stat().st_size / (1 << 20), 1),
        problems=(),
    )
    return Soaked(**{**asdict(result), "problems": tuple(_problems(result))})


_IDLE_THREADS = 40
"""Worker threads that the event loop keeps."""


async def _tasks_left(before: int, spare: int = 0) -> int:
    """Return the number of tasks that do not end within ten seconds; an open session may keep `spare` ones."""
    with anyio.move_on_after(10):
        while _tasks(spare) > before:
            await anyio.sleep(0.05)
    return max(0, _tasks(spare) - before)


def _tasks(spare: int = 0) -> int:
    """Return the number of tasks; up to `spare` tasks that a runner keeps for later calls are not counted."""
    found = asyncio.all_tasks()
    rooms = sum(task.get_name() == TASK_NAME for task in found)
    return len(found) - min(rooms, spare)


async def _warm_up(folder: Path) -> None:
    """Open everything that stays open: libraries, the loop's threads."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        one = Soak(Path(place))
        async with one.session:
            for number in range(3):
                await one.turn(number)


def _problems(found: Soaked) -> list[str]:
    states, turns = Counter(found.states), found.calls // BATCH
    checks = {
        f"memory grows by {found.slope_kb} KB per 1,000 calls": found.slope_kb > SLOPE_KB,
        f"{found.processes} processes are left": found.processes > 0,
        f"{found.descriptors} descriptors are left": found.descriptors > 0,
        f"{found.tasks} tasks are left": found.tasks > 0,
        f"{found.threads} threads are left": found.threads > 0,
        f"{found.settled} of {found.calls} calls have a result": found.settled != found.calls,
        f"{states.total()} calls ended": states.total() != found.calls,
        f"{states['denied']} calls were denied": states["denied"] != turns,
        f"{states['timed_out']} calls timed out": states["timed_out"] != turns,
        "some kinds of outcome did not occur": not {"succeeded", "failed", "cancelled", "interrupted"} <= set(states),
    }
    return [words for words, wrong in checks.items() if wrong]


def slope(points: list[tuple[int, float]]) -> float:
    """Return the slope of the best-fitting line; 0 for too few points."""
    if len(points) < 20:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


def _memory_kb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1024


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _children() -> list[str]:
    found = []
    for thread in Path("/proc/self/task").iterdir():
        found += (thread / "children").read_text().split()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--json", metavar="OUT", help="write the numbers there; - for stdout")
    parser.add_argument("--enforce", action="store_true", help="exit 1 when something is wrong")
    parser.add_argument("--scratch", type=Path, help="scratch folder")
    asked = parser.parse_args()
    if not Path("/proc/self/statm").exists():
        print("soak.py needs Linux: it reads /proc", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(dir=asked.scratch) as place:
        found = asyncio.run(soak(Path(place), asked.calls, lambda t: print(t, file=sys.stderr)))
    text = json.dumps(asdict(found), indent=1)
    if asked.json == "-":
        print(text)
    else:
        for name, value in asdict(found).items():
            print(f"{name:<14} {value}")
    if asked.json not in (None, "-"):
        Path(asked.json).write_text(text + "\n")
    return 1 if asked.enforce and found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
