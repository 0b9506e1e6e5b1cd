"""Measure the cost of a call without its tool: the whole pipeline with its transcript, and four peers.

Needs the peers' prefix (see `peers.py --dispatch`). Prints Markdown tables, and all numbers with `--json`; with
`--enforce`, exits with code 1 if a target is missed. All contestants run in one interpreter and one event loop, in
turns, so that a busy machine slows all of them; the tool does nothing. Inputs are made before the clock starts. Start
at `main`, then `CONTESTANTS`.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import anyio

import permission
from promises import Target, missed, ratio_target, table, target_table, write_json
from toolspan.runtime.hooks import Hooks
from toolspan.runtime.permissions import Permissions, PolicyStack
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import tool
from toolspan.session import Session
from toolspan.types.decision import Allow

SIZES = (1, 10)
US = 1e6


async def noop(text: str) -> str:
    """Return the text."""
    return text


OURS = tool(concurrent=True, read_only=True)(noop)


@dataclass(frozen=True)
class Lane:
    """A contestant that is ready: it makes batches and runs them."""

    make: Callable[[int, int], object]
    """Called with the number of the batch and its size; not measured."""
    run: Callable[[object], Awaitable[int]]
    """Runs a batch; returns the number of correct results."""


@dataclass(frozen=True)
class Contestant:
    name: str
    about: str
    open: Callable[[Path], AbstractAsyncContextManager[Lane]]
    package: str | None = None
    """The package that it needs; None for toolspan."""


# toolspan


def reply(number: int, size: int) -> dict[str, object]:
    """Return a model's reply with `size` calls."""
    blocks = [
        {"type": "tool_use", "id": f"toolu_{number}_{n}", "name": "noop", "input": {"text": "hi"}} for n in range(size)
    ]
    return {"id": f"msg_{number}", "role": "assistant", "content": blocks}


@asynccontextmanager
async def bare(_: Path) -> AsyncIterator[Lane]:
    async with Runner([OURS]) as runner:

        async def run(message: object) -> int:
            assert isinstance(message, dict)
            return sum(result.text == "hi" for result in await runner.run(message))

        yield Lane(reply, run)


def session_lane(session: Session) -> Lane:
    async def run(message: object) -> int:
        assert isinstance(message, dict)
        before = len(session.spans)
        await session.run(message)
        return sum(span.state == "succeeded" for span in session.spans[before:])

    return Lane(reply, run)


@asynccontextmanager
async def recorded(folder: Path) -> AsyncIterator[Lane]:
    async with Session(
        permissions=Permissions.allow_all(), cwd=folder, tools=[OURS], transcript=folder / "recorded.jsonl"
    ) as session:
        session.say("go")
        yield session_lane(session)
    check_lines(session)


@asynccontextmanager
async def guarded(folder: Path) -> AsyncIterator[Lane]:
    """Yield a recorded session with hooks, a policy and a sink around every call."""
    hooks, events = Hooks(), []
    hooks.pre_tool_use()(lambda _: None)
    hooks.post_tool_use()(lambda _, __: None)

    async def policy(_: object) -> Allow:
        return Allow("a rule says so")

    async with Session(
        cwd=folder,
        tools=[OURS],
        hooks=hooks,
        permissions=PolicyStack((policy,)),
        direct=[events.append],
        transcript=folder / "guarded.jsonl",
    ) as session:
        session.say("go")
        yield session_lane(session)
    check_lines(session)
    assert len(events) >= 6 * len(session.spans)


@asynccontextmanager
async def durable(folder: Path) -> AsyncIterator[Lane]:
    path = folder / "durable.jsonl"
    async with Session(
        permissions=Permissions.allow_all(), cwd=folder, tools=[OURS], transcript=path, fsync="results"
    ) as session:
        session.say("go")
        yield session_lane(session)
    check_lines(session)


def check_lines(session: Session) -> None:
    """Check that the transcript has the prompt, and a request and a result for each call."""
    assert session.transcript is not None
    lines = session.transcript.read_bytes().count(b"\n")
    assert lines >= 1 + 2 * len(session.spans), f"{lines} lines for {len(session.spans)} calls"
    assert not session.failures


# Peers


@asynccontextmanager
async def pydantic_ai(_: Path) -> AsyncIterator[Lane]:
    import asyncio

    from pydantic_ai import RunContext
    from pydantic_ai.messages import ToolCallPart
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.tool_manager import ToolManager
    from pydantic_ai.toolsets import FunctionToolset
    from pydantic_ai.usage import RunUsage

    context = RunContext(deps=None, model=TestModel(), usage=RunUsage(), run_step=1)
    manager = await ToolManager(FunctionToolset([noop])).for_run_step(context)

    def make(number: int, size: int) -> object:
        ids = [f"call_{number}_{n}" for n in range(size)]
        return [ToolCallPart("noop", {"text": "hi"}, tool_call_id=call_id) for call_id in ids]

    async def run(calls: object) -> int:
        assert isinstance(calls, list)
        if len(calls) == 1:
            return int(await manager.handle_call(calls[0]) == "hi")
        tasks = [asyncio.create_task(manager.handle_call(call)) for call in calls]
        return (await asyncio.gather(*tasks)).count("hi")

    yield Lane(make, run)


@asynccontextmanager
async def openai_agents(_: Path) -> AsyncIterator[Lane]:
    from agents import (
        Agent,
        RunConfig,
        RunContextWrapper,
        RunHooks,
        function_tool,
        set_trace_processors,
        set_tracing_disabled,
    )
    from agents.run_internal.agent_bindings import bind_public_agent
    from agents.run_internal.run_steps import ToolRunFunction
    from agents.run_internal.tool_execution import execute_function_tool_calls
    from openai.types.responses import ResponseFunctionToolCall

    set_trace_processors([])
    set_tracing_disabled(True)
    theirs = function_tool(noop)
    bindings = bind_public_agent(Agent(name="bench", tools=[theirs]))
    hooks, config = RunHooks(), RunConfig(tracing_disabled=True)
    context = RunContextWrapper(context=None)

    def make(number: int, size: int) -> object:
        calls = [
            ResponseFunctionToolCall(
                arguments='{"text": "hi"}', call_id=f"call_{number}_{n}", name="noop", type="function_call"
            )
            for n in range(size)
        ]
        return [ToolRunFunction(tool_call=call, function_tool=theirs) for call in calls]

    async def run(runs: object) -> int:
        results, _, _ = await execute_function_tool_calls(
            bindings=bindings, tool_runs=runs, hooks=hooks, context_wrapper=context, config=config
        )
        return sum(result.output == "hi" for result in results)

    yield Lane(make, run)


@asynccontextmanager
async def langgraph(_: Path) -> AsyncIterator[Lane]:
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool as langchain_tool
    from langgraph.prebuilt import ToolNode
    from langgraph.runtime import Runtime

    node = ToolNode([langchain_tool(noop)])
    config = {"configurable": {"__pregel_runtime": Runtime()}}  # a graph passes this to its nodes

    def make(number: int, size: int) -> object:
        calls = [{"name": "noop", "args": {"text": "hi"}, "id": f"call_{number}_{n}"} for n in range(size)]
        return {"messages": [AIMessage("", tool_calls=calls)]}

    async def run(state: object) -> int:
        result = await node.ainvoke(state, config)
        return sum(message.content == "hi" for message in result["messages"])

    yield Lane(make, run)


def make_names(_: int, size: int) -> object:
    return ["noop"] * size


@asynccontextmanager
async def fastmcp_server(_: Path) -> AsyncIterator[Lane]:
    import asyncio

    from fastmcp import FastMCP

    server = FastMCP("bench")
    server.tool(noop)

    async def run(names: object) -> int:
        assert isinstance(names, list)
        results = await asyncio.gather(*(server.call_tool(name, {"text": "hi"}) for name in names))
        return sum(result.content[0].text == "hi" for result in results)

    yield Lane(make_names, run)


@asynccontextmanager
async def fastmcp_client(_: Path) -> AsyncIterator[Lane]:
    import asyncio

    from fastmcp import Client, FastMCP

    server = FastMCP("bench")
    server.tool(noop)
    async with Client(server) as client:

        async def run(names: object) -> int:
            assert isinstance(names, list)
            calls = (client.call_tool(name, {"text": "hi"}) for name in names)
            return sum(result.data == "hi" for result in await asyncio.gather(*calls))

        yield Lane(make_names, run)


CONTESTANTS = (
    Contestant(
        "toolspan recorded",
        "`Session.run`: lookup, schema, queue, a task per call that waits, events, two transcript"
        " lines per call on disk, the history",
        recorded,
    ),
    Contestant("toolspan guarded", "the same with a hook before, a hook after, a policy and a direct sink", guarded),
    Contestant("toolspan bare", "`Runner.run`: the same without a transcript and a history", bare),
    Contestant(
        "pydantic-ai",
        "`ToolManager.handle_call`, one task per call when there are several: lookup, schema, "
        "retries; no hooks set, nothing recorded",
        pydantic_ai,
        "pydantic-ai-slim",
    ),
    Contestant(
        "openai-agents",
        "`execute_function_tool_calls`: schema, approval, guardrails, hooks, a task per call; "
        "tracing off, nothing recorded",
        openai_agents,
        "openai-agents",
    ),
    Contestant(
        "LangGraph",
        "`ToolNode.ainvoke`: schema, callbacks, error handling, a message per result; "
        "no checkpointer, nothing recorded",
        langgraph,
        "langgraph",
    ),
    Contestant(
        "fastmcp server",
        "`FastMCP.call_tool`: lookup, schema, middleware chain; no protocol, nothing recorded",
        fastmcp_server,
        "fastmcp",
    ),
    Contestant(
        "fastmcp client",
        "`Client.call_tool` to a server in memory: the above behind the MCP protocol",
        fastmcp_client,
        "fastmcp",
    ),
)


# Measuring


@dataclass
class Row:
    """The rounds of one contestant with one batch size: seconds per call."""

    name: str
    size: int
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, object]:
        return {
            "name": self.name,
            "batch": self.size,
            "rounds": len(self.wall),
            "wall_min_us": round(min(self.wall) * US, 1),
            "wall_median_us": round(statistics.median(self.wall) * US, 1),
            "cpu_min_us": round(min(self.cpu) * US, 1),
            "cpu_median_us": round(statistics.median(self.cpu) * US, 1),
        }


def is_installed(contestant: Contestant) -> bool:
    if contestant.package is None:
        return True
    try:
        importlib.metadata.version(contestant.package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


async def measure(contestant: Contestant, row: Row, calls: int) -> None:
    """Run one round of calls in batches, after a short warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        async with contestant.open(Path(folder)) as lane:
            count = max(1, calls // row.size)
            batches = [lane.make(number, row.size) for number in range(count + 3)]
            right = 0
            for batch in batches[:3]:
                right += await lane.run(batch)
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            for batch in batches[3:]:
                right += await lane.run(batch)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            if right != len(batches) * row.size:
                raise AssertionError(f"{row.name}: {right} of {len(batches) * row.size} calls")
    row.wall.append(wall / (count * row.size))
    row.cpu.append(cpu / (count * row.size))


async def compare(chosen: Sequence[Contestant], rounds: int, calls: int) -> list[Row]:
    """Run all contestants once per round with each batch size, after a warm-up round."""
    rows = {(contestant.name, size): Row(contestant.name, size) for contestant in chosen for size in SIZES}
    for contestant in chosen:
        await measure(contestant, Row(contestant.name, 1), 50)
    gc.collect()
    gc.freeze()  # objects from one contestant's imports must not slow down the others
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        for contestant in chosen:
            for size in SIZES:
                await measure(contestant, rows[contestant.name, size], calls)
    return list(rows.values())


@dataclass(frozen=True)
class Durable:
    """Calls whose results are synced, compared with a bare fsync of a line of the same length."""

    call_ms: float
    fsync_ms: float

    @property
    def extra_ms(self) -> float:
        return self.call_ms - self.fsync_ms


async def durability(folder: Path, times: int) -> Durable:
    """Return the medians; each call is followed by one bare write and fsync."""
    calls, syncs = [], []
    line = b"x" * 700 + b"\n"
    file = os.open(folder / "bare", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        async with durable(folder) as lane:
            for number in range(times):
                message = lane.make(number, 1)
                begin = time.perf_counter()
                await lane.run(message)
                between = time.perf_counter()
                os.write(file, line)
                os.fsync(file)
                syncs.append(time.perf_counter() - between)
                calls.append(between - begin)
    finally:
        os.close(file)
    call_ms, fsync_ms = (statistics.median(samples) * 1e3 for samples in (calls, syncs))
    return Durable(round(call_ms, 3), round(fsync_ms, 3))


@dataclass(frozen=True)
class Crowd:
    """Many calls that are inside their tool at the same time."""

    calls: int
    wall_us: float
    """Microseconds per call."""
    grown_mb: float
    """Growth of the process's peak memory."""


async def crowd(folder: Path, calls: int) -> Crowd:
    """Run calls none of which returns before all have begun."""
    inside, all_in = 0, anyio.Event()

    @tool(concurrent=True)
    async def meet(text: str) -> str:
        nonlocal inside
        inside += 1
        if inside == calls:
            all_in.set()
        await all_in.wait()
        return text

    base = profile()
    unlimited = replace(base, availability=replace(base.availability, max_concurrent=None))
    blocks = [{"type": "tool_use", "id": f"toolu_{n}", "name": "meet", "input": {"text": "hi"}} for n in range(calls)]
    message = {"id": "msg_1", "role": "assistant", "content": blocks}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path = folder / "crowd.jsonl"
    async with Session(
        permissions=Permissions.allow_all(), cwd=folder, tools=[meet], profile=unlimited, transcript=path
    ) as session:
        session.say("go")
        begin = time.perf_counter()
        with anyio.fail_after(300):
            await session.run(message)
        wall = time.perf_counter() - begin
    check_lines(session)
    assert sum(span.state == "succeeded" for span in session.spans) == calls
    unit = 1 if sys.platform == "darwin" else 1024
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * unit
    return Crowd(calls, round(wall / calls * US, 1), round(grown / 1e6, 1))


def cancelling(rounds: int) -> dict[str, object] | None:
    """Return the results of `cancel.py`; None if it failed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "cancel.json"
        script = Path(__file__).with_name("cancel.py")
        command = [sys.executable, str(script), "--rounds", str(rounds), "--json", str(out)]
        completed = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        report = json.loads(out.read_bytes()) if out.exists() and completed.returncode == 0 else None
    return report if isinstance(report, dict) else None


# Comparing


RATIOS = (
    ("toolspan bare", "pydantic-ai", 1, 1.5),
    ("toolspan bare", "pydantic-ai", 10, 1.5),
    ("toolspan recorded", "openai-agents", 10, 1 / 4),
    ("toolspan recorded", "LangGraph", 10, 1 / 4),
)


def ratio_targets(rows: Sequence[Row]) -> list[Target]:
    """Return the targets compared with each peer, by the best CPU time of all rounds."""
    best = {(row.name, row.size): min(row.cpu) for row in rows if row.cpu}
    return [
        ratio_target(
            f"{name} / {peer}, batch of {size}",
            limit,
            (best.get((name, size)), best.get((peer, size))),
            at_most=True,
        )
        for name, peer, size, limit in RATIOS
    ]


def other_targets(synced: Durable, cancel: dict[str, object] | None) -> list[Target]:
    targets = [
        Target(
            "durable call beside the disk's own fsync (medians)",
            "≤ fsync + 1 ms",
            f"{synced.fsync_ms:.2f} + {synced.extra_ms:.2f} ms",
            synced.extra_ms <= 1,
        )
    ]
    cases = cancel.get("cancel") if cancel else None
    for case in cases if isinstance(cases, list) else []:
        limit, p99 = case["target_ms"], case["p99_ms"]
        if limit is not None:
            what = f"cancel of {case['name']}, p99"
            targets.append(Target(what, f"≤ {limit:g} ms", f"{p99:g} ms", p99 <= limit))
    return targets


def decision_targets() -> list[Target]:
    return [
        Target(f"decision on a {name} command line, in parses", "≤ 5", f"{ratio:.1f}", ratio <= 5)
        for name, ratio in permission.summary().items()
    ]


def row_table(rows: Sequence[Row]) -> Iterator[str]:
    head = ("", "batch", "CPU min µs", "CPU median µs", "wall min µs", "wall median µs")
    keys = ("name", "batch", "cpu_min_us", "cpu_median_us", "wall_min_us", "wall_median_us")
    reports = [row.summary() for row in rows if row.cpu]
    return table(head, [[report[key] for key in keys] for report in reports])


def packages() -> dict[str, str]:
    """Return the versions of the packages."""
    names = {"toolspan", "anyio", *(contestant.package for contestant in CONTESTANTS if contestant.package)}
    versions = {}
    for name in sorted(names):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def go_to(prefix: Path) -> None:
    """Restart in the interpreter that has the peers, with this tree's toolspan; return if already there."""
    python = prefix.resolve() / "dispatch" / "bin" / "python"
    if Path(sys.prefix) == python.parent.parent:
        return
    if not python.exists():
        sys.exit(f"not installed: {python}; see benchmarks/peers.py --dispatch")
    source = Path(__file__).resolve().parent.parent / "src"
    quiet = {"PYTHONPATH": str(source), "DO_NOT_TRACK": "1", "LANGSMITH_TRACING": "false"}
    os.execve(python, [str(python), *sys.argv], os.environ | quiet)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, help="prefix of the peers; without it, only toolspan is measured")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=500, help="calls per round and batch size")
    parser.add_argument("--crowd", type=int, default=10_000, help="calls at the same time")
    parser.add_argument("--cancels", type=int, default=100, help="rounds of cancel.py; 0 for none")
    parser.add_argument("--only", help="names of contestants, separated by commas")
    parser.add_argument("--json", type=Path, help="write all numbers here; - for stdout")
    parser.add_argument("--enforce", action="store_true", help="exit 1 when a target is missed")
    return parser.parse_args()


async def main(options: argparse.Namespace) -> int:
    names = set(options.only.split(",")) if options.only else None
    chosen = [contestant for contestant in CONTESTANTS if names is None or contestant.name in names]
    chosen = [contestant for contestant in chosen if is_installed(contestant)]
    rows = await compare(chosen, options.rounds, options.calls)
    with tempfile.TemporaryDirectory() as folder:
        synced = await durability(Path(folder), 100)
        crowded = await crowd(Path(folder), options.crowd)
    cancel = cancelling(options.cancels) if options.cancels else None
    targets = ratio_targets(rows) + other_targets(synced, cancel) + decision_targets()
    print("\n".join([*row_table(rows), "", *target_table(targets), ""]))
    print(f"{crowded.calls} calls at once, recorded: {crowded.wall_us} µs each, +{crowded.grown_mb} MB")
    report: dict[str, object] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "packages": packages(),
        "about": {contestant.name: contestant.about for contestant in chosen},
        "rows": [row.summary() for row in rows],
        "durable": asdict(synced),
        "crowd": asdict(crowded),
        "cancel": cancel,
        "targets": [asdict(target) for target in targets],
    }
    write_json(report, options.json)
    return int(options.enforce and missed(targets))


if __name__ == "__main__":
    chosen_options = arguments()
    if chosen_options.peers is not None:
        go_to(chosen_options.peers)
    sys.exit(anyio.run(main, chosen_options))
