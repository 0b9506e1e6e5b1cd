"""The cost of a recorded call in each store, and the time to resume a long session.

    python benchmarks/store.py [--calls 200] [--sessions 100] [--resume 10000]

Servers are started in a scratch folder (PostgreSQL, Redis) or in this process (moto for S3); missing ones are left out.
Contestants are measured in turn, round by round, and the lowest of the rounds counts. CPU is that of this process: the
servers' own is not in it, but that of moto is. Servers and sessions share the processors, so that ratios say more than
times.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.stores.servers import find_postgres, moto_server, prepare_postgres, prepare_redis

from toolspan import Permissions, Session, tool
from toolspan.stores import open_store
from toolspan.stores.base import Append, LeaseRequest, StreamKey

BATCH = 10


@tool(concurrent=True)
async def nothing() -> str:
    """Return at once; it may have side effects."""
    return "done"


def reply(count: int) -> dict[str, Any]:
    blocks = [
        {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex}", "name": "nothing", "input": {}} for _ in range(count)
    ]
    return {"role": "assistant", "content": blocks}


class Cost(NamedTuple):
    """Milliseconds."""

    wall: float
    cpu: float

    @classmethod
    def measure(cls, work: Callable[[], object], calls: int) -> Cost:
        """Return the milliseconds per call."""
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        return cls((time.perf_counter() - wall) * 1000 / calls, (time.process_time() - cpu) * 1000 / calls)


async def run_session(folder: Path, store: Any, calls: int, batch: int) -> None:
    options: dict[str, Any] = (
        {"transcript": folder.parent / f"{uuid.uuid4()}.jsonl"} if store is None else {"store": store}
    )
    async with Session(cwd=folder, tools=[nothing], permissions=Permissions.allow_all(), **options) as session:
        session.say("Go.")
        for _ in range(calls // batch):
            await session.run(reply(batch))


async def run_together(folder: Path, store: Any, sessions: int) -> None:
    await asyncio.gather(*(run_session(folder, store, BATCH, BATCH) for _ in range(sessions)))


def store_long_session(folder: Path, store: Any, calls: int) -> str:
    """Store a session with many calls, and return its id."""
    session_id = str(uuid.uuid4())
    key = StreamKey("project", session_id)
    lines: list[bytes] = []
    parent = "null"
    for n in range(calls):
        call, result = f'"u{n}c"', f'"u{n}r"'
        common = (
            f'"isSidechain":false,"sessionId":"{session_id}","cwd":"{folder}","timestamp":"2026-01-01T00:00:00.000Z"'
        )
        block = f'{{"type":"tool_use","id":"toolu_{n}","name":"Read","input":{{"file_path":"/a/{n}"}}}}'
        answer = f'{{"type":"tool_result","tool_use_id":"toolu_{n}","content":"line"}}'
        lines.append(
            f'{{"parentUuid":{parent},{common},"type":"assistant","uuid":{call},"message":{{"id":"msg_{n}","role":'
            f'"assistant","model":"m","content":[{block}]}}}}'.encode()
        )
        lines.append(
            f'{{"parentUuid":{call},{common},"type":"user","uuid":{result},"message":{{"role":"user","content":[{answer}]}}}}'
            .encode()
        )  # fmt: skip
        parent = result
    lease = store.acquire_lease(LeaseRequest.make(key))
    for start in range(0, len(lines), 1_000):
        store.commit([Append(key, lines[start : start + 1_000], start)], lease)
    store.release_lease(lease)
    return session_id


async def resume(folder: Path, store: Any, session_id: str, calls: int) -> None:
    session = Session.resume(folder, session=session_id, store=store, tools=[nothing])
    assert len(session.messages) >= calls
    session._stored.close()  # ends the lease, for the next round


async def run_langgraph(url: str, calls: int, batch: int, graphs: int = 1) -> None:
    """Run LangGraph with its PostgreSQL checkpointer."""
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool as langchain_tool
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    @langchain_tool
    async def nothing_here() -> str:
        """Return at once."""
        return "done"

    def call_model(state: Any) -> Any:
        rounds = sum(isinstance(message, AIMessage) for message in state["messages"])
        if rounds >= calls // batch:
            return {"messages": [AIMessage("Done.")]}
        requested = [{"name": "nothing_here", "args": {}, "id": uuid.uuid4().hex} for _ in range(batch)]
        return {"messages": [AIMessage("", tool_calls=requested)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", call_model)
    graph.add_node("tools", ToolNode([nothing_here]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(url, min_size=1, max_size=16, kwargs=settings) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        app = graph.compile(checkpointer=saver)

        async def run_graph() -> None:
            config: Any = {"configurable": {"thread_id": uuid.uuid4().hex}, "recursion_limit": 10_000}
            await app.ainvoke({"messages": [("user", "Go.")]}, config)

        await asyncio.gather(*(run_graph() for _ in range(graphs)))


@contextmanager
def open_stores(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the stores that can be opened here, by name; None is the local file."""
    with ExitStack() as stack:
        stores: dict[str, Any] = {"local file": None, "sqlite": open_store(f"sqlite://{folder}/store.db")}
        if find_postgres() is not None and find_spec("psycopg"):
            server = prepare_postgres(folder / "postgres")
            server.start()
            stack.callback(server.stop)
            stores["postgres"] = open_store(server.url)
        if shutil.which("redis-server") and find_spec("redis"):
            server = prepare_redis(folder / "redis")
            server.start()
            stack.callback(server.stop)
            stores["redis"] = open_store(server.url)
        if find_spec("moto"):
            os.environ |= {
                "AWS_ENDPOINT_URL_S3": stack.enter_context(moto_server()), "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1",
            }  # fmt: skip
            stores["s3 (moto)"] = open_store("s3://test/benchmark")
        if find_spec("claude_agent_sdk"):
            from claude_agent_sdk import InMemorySessionStore

            stores["SDK's in-memory store"] = InMemorySessionStore()
        yield stores
        for store in stores.values():
            if hasattr(store, "close"):
                store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--resume", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="toolspan-bench-"))
    folder.chmod(0o711)
    project = folder / "project"  # without the servers' files, of which a session would compute the digest
    project.mkdir()
    os.environ |= {"XDG_STATE_HOME": str(folder / "state"), "CLAUDE_CONFIG_DIR": str(folder / "config")}
    kinds = ("one by one", f"batch of {BATCH}", f"{options.sessions} sessions", f"resume {options.resume:,}")
    best: dict[str, dict[str, Cost]] = {}

    def measure(name: str, kind: str, calls: int, work: Callable[..., Coroutine[Any, Any, None]], *values: Any) -> None:
        cost = Cost.measure(lambda: asyncio.run(work(*values)), calls)
        row = best.setdefault(name, {})
        row[kind] = Cost(*map(min, row.get(kind, cost), cost))

    with open_stores(folder) as stores:
        postgres = stores["postgres"]._target if "postgres" in stores else None
        long = {
            name: store_long_session(project, store, options.resume)
            for name, store in stores.items()
            if hasattr(store, "acquire_lease")
        }
        together = options.sessions * BATCH
        for _ in range(options.rounds):
            for name, store in stores.items():
                measure(name, kinds[0], options.calls, run_session, project, store, options.calls, 1)
                measure(name, kinds[1], options.calls, run_session, project, store, options.calls, BATCH)
                measure(name, kinds[2], together, run_together, project, store, options.sessions)
                if name in long:
                    measure(name, kinds[3], 1000, resume, project, store, long[name], options.resume)
            if postgres and find_spec("langgraph") and find_spec("langgraph.checkpoint.postgres"):
                name = "LangGraph, postgres"
                measure(name, kinds[0], options.calls, run_langgraph, postgres, options.calls, 1)
                measure(name, kinds[1], options.calls, run_langgraph, postgres, options.calls, BATCH)
                measure(name, kinds[2], together, run_langgraph, postgres, BATCH, BATCH, options.sessions)
            print_table(best, kinds)
    shutil.rmtree(folder, ignore_errors=True)


def print_table(best: dict[str, dict[str, Cost]], kinds: Sequence[str]) -> None:
    print("wall / CPU: ms per recorded call; s to resume")
    print(f"{'':24}" + "".join(f"{kind:>16}" for kind in kinds) + f"{'batch / file':>16}")
    for name, row in best.items():
        print(f"{name:24}" + "".join(_format(row.get(kind)) for kind in kinds), end="")
        ratio = Cost(*(mine / file for mine, file in zip(row[kinds[1]], best["local file"][kinds[1]], strict=True)))
        print(_format(ratio))
    print(flush=True)


def _format(cost: Cost | None) -> str:
    return " " * 16 if cost is None else f"{f'{cost.wall:.2f} / {cost.cpu:.2f}':>16}"


if __name__ == "__main__":
    main()
