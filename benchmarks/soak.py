"""Run very many calls in one session and measure what it keeps.

Prints a table, or JSON with `--json`; with `--enforce`, exits with code 1 if memory grows too fast or
anything is left behind. A real `Session` with a transcript runs batches of all kinds of calls:
successful, denied, failed, cancelled, timed out, interrupted, and commands with real processes. The
conversation is compacted from time to time, as any long one. Read `Soak.run_turn` first.
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
"""Permitted growth of memory per thousand calls. The session keeps the ids of its calls, some hundred
bytes each, so that no call runs twice."""
BATCH, SAMPLE, CUT = 20, 1_000, 2_000
WARM = 0.3
"""Share of the calls after which memory is measured."""
FILES = 8


@dataclass(frozen=True)
class SoakResult:
    """The measurements of a run."""

    calls: int
    seconds: float
    states: dict[str, int]
    slope_kb: float
    """Growth of the resident memory per thousand calls, after the warm-up."""
    first_mb: float
    last_mb: float
    processes: int
    """Processes that remain after the session is closed."""
    descriptors: int
    """Descriptors that remain."""
    tasks: int
    threads: int
    settled: int
    """Calls with a result, read back from the transcript."""
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
        self._calls = 0

    def _count(self, event: LiveEvent) -> None:
        if isinstance(event, Finished):
            self.states[event.span.state] += 1

    def _odd_tools(self) -> list[Tool]:
        @tool(concurrent=True)
        async def hold(ctx: ToolContext) -> str:
            """Wait until cancelled."""
            self.session.runner.cancel(ctx.call.id)
            await anyio.sleep_forever()
            return ""

        @tool(concurrent=True, timeout=0.001)
        async def slow() -> str:
            """Time out."""
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
            """Return nothing; a policy denies it."""
            return ""

        @tool(concurrent=True)
        async def breaks() -> str:
            """Raise an exception."""
            raise RuntimeError("expected")

        return [hold, slow, stop, secret, breaks]

    async def run_turn(self, number: int) -> None:
        """Run a prompt, one batch of all kinds of calls, and a final reply."""
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
        blocks = [self._block(name, tool_input) for name, tool_input in calls]
        reply = {"role": "assistant", "model": "soak", "content": blocks, "stop_reason": "tool_use"}
        if await self.session.run(reply):
            text = [{"type": "text", "text": "Done."}]
            await self.session.run({"role": "assistant", "model": "soak", "content": text, "stop_reason": "end_turn"})

    def _block(self, name: str, tool_input: dict[str, object]) -> dict[str, object]:
        self._calls += 1
        return {"type": "tool_use", "id": f"toolu_01{self._calls:022}", "name": name, "input": tool_input}

    async def compact(self) -> None:
        """Replace the conversation with a summary."""
        summary = Compaction(summary="So far so good.", trigger="auto", tokens_before=0, duration_ms=0)
        await self.session.compact(summary)


def _deny(question: PermissionRequest) -> Deny | None:
    return Deny("not this one") if question.tool == "secret" else None


async def run_soak(folder: Path, calls: int, report: Callable[[str], None]) -> SoakResult:
    await _warm_up(folder)
    descriptors, threads = _descriptors(), threading.active_count()
    samples: list[tuple[int, float]] = []
    began = time.monotonic()
    soak = Soak(folder)
    tasks = len(asyncio.all_tasks())
    async with soak.session:
        inside = len(asyncio.all_tasks())
        for number in range(calls // BATCH):
            await soak.run_turn(number)
            ran = (number + 1) * BATCH
            if ran % CUT == 0:
                await soak.compact()
            if ran % SAMPLE == 0:
                samples.append((ran, _memory_kb()))
            if ran % (10 * SAMPLE) == 0:
                report(f"{ran:,} calls, {samples[-1][1] / 1024:.1f} MB")
        more_tasks = await _remaining_tasks(inside)
    more_tasks += await _remaining_tasks(tasks)
    seconds = time.monotonic() - began
    path = folder / "soak.jsonl"
    spans = toolspan.read(path).spans
    result = SoakResult(
        calls=calls // BATCH * BATCH,
        seconds=round(seconds, 1),
        states=dict(soak.states),
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
    return SoakResult(**{**asdict(result), "problems": tuple(_problems(result))})


_IDLE_THREADS = 40
"""Worker threads that the event loop keeps."""


async def _remaining_tasks(before: int) -> int:
    """Return the number of new tasks that do not end within ten seconds."""
    with anyio.move_on_after(10):
        while len(asyncio.all_tasks()) > before:
            await anyio.sleep(0.05)
    return max(0, len(asyncio.all_tasks()) - before)


async def _warm_up(folder: Path) -> None:
    """Load libraries and start the loop's threads, which stay open."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        soak = Soak(Path(scratch))
        async with soak.session:
            for number in range(3):
                await soak.run_turn(number)


def _problems(result: SoakResult) -> list[str]:
    states, turns = Counter(result.states), result.calls // BATCH
    checks = {
        f"memory grows by {result.slope_kb} KB per 1,000 calls": result.slope_kb > SLOPE_KB,
        f"{result.processes} processes are left": result.processes > 0,
        f"{result.descriptors} descriptors are left": result.descriptors > 0,
        f"{result.tasks} tasks are left": result.tasks > 0,
        f"{result.threads} threads are left": result.threads > 0,
        f"{result.settled} of {result.calls} calls are settled": result.settled != result.calls,
        f"{states.total()} calls ended": states.total() != result.calls,
        f"{states['denied']} calls were denied": states["denied"] != turns,
        f"{states['timed_out']} calls ran out of time": states["timed_out"] != turns,
        "not everything happened": not {"succeeded", "failed", "cancelled", "interrupted"} <= set(states),
    }
    return [message for message, is_problem in checks.items() if is_problem]


def slope(points: list[tuple[int, float]]) -> float:
    """Return the slope of the regression line; 0 for fewer than 20 points."""
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
    pids = []
    for thread in Path("/proc/self/task").iterdir():
        pids += (thread / "children").read_text().split()
    return pids


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--json", metavar="OUT", help="write the numbers to this file; - for stdout")
    parser.add_argument("--enforce", action="store_true", help="exit 1 if there is a problem")
    parser.add_argument("--scratch", type=Path, help="folder for temporary files")
    options = parser.parse_args()
    if not Path("/proc/self/statm").exists():
        print("soak.py needs Linux: it reads /proc", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        result = asyncio.run(run_soak(Path(scratch), options.calls, lambda t: print(t, file=sys.stderr)))
    text = json.dumps(asdict(result), indent=1)
    if options.json == "-":
        print(text)
    else:
        for name, value in asdict(result).items():
            print(f"{name:<14} {value}")
    if options.json not in (None, "-"):
        Path(options.json).write_text(text + "\n")
    return 1 if options.enforce and result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
