"""Run hosts on one store, break hosts, connections, disks and the server, then check every promise and print a table.

    python -m tests.stores.chaos --calls 5000 --failures 500

Each host reaches the server through a link of its own, which can be cut. Each host, and the server, is broken again and
again, so that several failures happen at once. Start at `Chaos.run`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import psutil
from anyio.abc import ByteStream

from tests.stores.chaos_host import (
    DISK_BYTES,
    LEASE_SECONDS,
    Host,
    count_old_appends,
    count_results,
    iter_blocks,
    run_host,
    session_name,
)
from tests.stores.servers import S3_KEYS, Server, prepare_postgres, prepare_redis, prepare_s3
from toolspan import Permissions, Session, open_store
from toolspan.errors import NotFound
from toolspan.stores import LeasedStore, StoreUnavailable

HOSTS = ("host-a", "host-b", "host-c", "host-d")
PROCESSES = multiprocessing.get_context("forkserver")
PROMISES = (
    "calls without exactly one result", "results the model does not see", "side effects that happened twice",
    "side effects without a call in the store", "entries appended by an old fence", "sessions that cannot be resumed",
    "faults in hosts",
)  # fmt: skip


class Link:
    """The connection of a host to the server."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._is_up = anyio.Event()
        self._is_up.set()
        self._connections: set[anyio.CancelScope] = set()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[int]:
        """Forward connections from a port, which is yielded."""
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as group,
        ):
            group.start_soon(listener.serve, self._forward)
            yield listener.extra(anyio.abc.SocketAttribute.local_port)
            group.cancel_scope.cancel()

    async def _forward(self, client: ByteStream) -> None:
        with suppress(OSError, anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
            async with client, await anyio.connect_tcp("127.0.0.1", self._server_port) as server:
                with anyio.CancelScope() as scope:
                    self._connections.add(scope)
                    try:
                        async with anyio.create_task_group() as group:
                            group.start_soon(self._copy, client, server, group.cancel_scope)
                            group.start_soon(self._copy, server, client, group.cancel_scope)
                    finally:
                        self._connections.discard(scope)

    async def _copy(self, source: ByteStream, target: ByteStream, scope: anyio.CancelScope) -> None:
        with suppress(OSError, anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
            while True:
                data = await source.receive()
                await self._is_up.wait()
                await target.send(data)
        scope.cancel()

    @contextmanager
    def partition(self) -> Iterator[None]:
        """Hold back everything in both directions. Then it arrives, late."""
        self._is_up = anyio.Event()
        try:
            yield
        finally:
            self._is_up.set()

    def cut(self) -> None:
        """Close all connections in the middle of what they do."""
        for scope in self._connections:
            scope.cancel()


class Chaos:
    """Hosts, a server and a count of what was done to them."""

    def __init__(self, url: str, folder: Path, sessions: int, server: Server | None = None, seed: int = 0) -> None:
        self.url = url
        self.folder = folder
        self.sessions = sessions
        self.server = server
        self.random = random.Random(seed)
        self.failures: Counter[str] = Counter()
        self.allowed_failures = 0.0
        (folder / "project").mkdir(parents=True)

    def read_log(self, name: str) -> str:
        with suppress(FileNotFoundError):
            return (self.folder / name).read_text(encoding="utf-8")
        return ""

    async def run(self, calls: int, failures: int) -> None:
        """Break things until there are enough calls and failures, then stop all hosts where they are."""
        async with anyio.create_task_group() as group:
            for number, name in enumerate(HOSTS):
                host = Host(self.url, self.folder, name, self.sessions, number == 0 and os.geteuid() == 0)
                group.start_soon(self.run_host, host)
            if self.server is not None:
                group.start_soon(self.break_server, self.server)
            while self.failures.total() < failures or self.allowed_failures < failures:
                await anyio.sleep(0.2)
                self.allowed_failures = self.read_log("effects").count("\n") * failures / calls
            group.cancel_scope.cancel()

    async def choose_failure(self, kinds: list[str], pause: float) -> str:
        """Wait up to `pause` seconds, and until the calls catch up with the failures; return a kind of failure."""
        await anyio.sleep(self.random.uniform(0.2, pause))
        while self.failures.total() > self.allowed_failures:
            await anyio.sleep(0.1)
        kind = self.random.choice(kinds)
        self.failures[kind] += 1
        return kind

    async def run_host(self, host: Host) -> None:
        if self.server is None:
            await self.break_host(host, None)
        else:
            link = Link(self.server.port)
            async with link.serve() as port:
                url = host.url.replace(f":{self.server.port}/", f":{port}/")
                await self.break_host(host._replace(url=url, s3_address=f"http://127.0.0.1:{port}"), link)

    async def break_host(self, host: Host, link: Link | None) -> None:
        """Start a host, and break something of it again and again."""
        kinds = ["paused", "killed", "clock shifted by an hour"]
        kinds += ["partitioned", "connections cut"] if link is not None else []
        kinds += ["disk full"] if host.has_own_disk else []
        process = start(host)
        try:
            while True:
                kind = await self.choose_failure(kinds, 1.2)
                if kind == "killed":
                    process.kill()
                    process.join()
                    process = start(host)
                elif kind == "clock shifted by an hour":
                    os.kill(process.pid, signal.SIGUSR1)
                elif kind == "connections cut" and link is not None:
                    link.cut()
                else:
                    with self.disturb(kind, process.pid, host, link):
                        await anyio.sleep(self.random.choice([0.1, 0.5, 2 * LEASE_SECONDS]))
        finally:
            process.kill()
            process.join()

    @contextmanager
    def disturb(self, kind: str, pid: int, host: Host, link: Link | None) -> Iterator[None]:
        """Break something until this ends."""
        if kind == "paused":
            with paused(pid):
                yield
        elif kind == "partitioned" and link is not None:
            with link.partition():
                yield
        else:
            with full_disk(Path(f"/proc/{pid}/root{host.state}")):
                yield

    async def break_server(self, server: Server) -> None:
        """Crash the server or make it hang, again and again."""
        while True:
            kinds = ["server hung", *(["server restarted"] if server.is_durable else [])]
            kind = await self.choose_failure(kinds, 3)
            if kind == "server restarted":
                with anyio.CancelScope(shield=True):
                    server.stop(signal.SIGQUIT)
                    await anyio.to_thread.run_sync(server.start)
            else:
                assert server.process is not None
                with paused(server.process.pid):
                    await anyio.sleep(self.random.choice([0.2, 1.5 * LEASE_SECONDS]))

    def is_ready(self, store: LeasedStore) -> bool:
        """Return whether the server is up again and no lease is left."""
        try:
            return not any(lease.is_live for lease in store.list_leases())
        except StoreUnavailable:
            return False

    async def check(self) -> dict[str, int]:
        """Resume every session and count violations of each promise."""
        os.environ |= {"TOOLSPAN_HOST": "checker", "XDG_STATE_HOME": str(self.folder / "checker")}
        await anyio.sleep(LEASE_SECONDS + 1)
        store, counts = open_store(self.url), Counter[str]()
        while not self.is_ready(store):
            await anyio.sleep(0.2)
        effects = Counter(self.read_log("effects").split())
        recorded: set[str] = set()
        for number in range(self.sessions):
            try:
                async with Session.resume(
                    self.folder / "project",
                    session=session_name(number),
                    store=store,
                    permissions=Permissions.allow_all(),
                ) as session:
                    answered = {str(block.get("tool_use_id")) for block in iter_blocks(session.messages)}
                counts["sessions resumed"] += 1
                streams = (stream.key for stream in store.list_streams() if not stream.key.subpath)
                key = next((key for key in streams if key.session == session_name(number)), None)
                if key is None:  # its host got the lease and was killed before it recorded anything
                    counts["sessions without a record"] += 1
                    continue
                for call, (asked, results) in count_results(store.read_lines(key) or []).items():
                    counts["calls"] += 1
                    counts["calls without exactly one result"] += (asked, results) != (1, 1)
                    counts["results the model does not see"] += call not in answered
                    recorded.add(call.removeprefix("toolu_"))
            except NotFound:  # no host has begun it
                counts["sessions without a record"] += 1
            except Exception as error:  # noqa: BLE001 - the table counts it
                sys.stderr.write(f"{session_name(number)}: {type(error).__name__}: {error}\n")
                counts["sessions that cannot be resumed"] += 1
        counts["side effects"] = len(effects)
        counts["side effects that happened twice"] = sum(count > 1 for count in effects.values())
        counts["side effects without a call in the store"] = sum(effect not in recorded for effect in effects)
        counts["commits"] = self.read_log("appends").count("\n")
        counts["entries appended by an old fence"] = count_old_appends(self.read_log("appends"))
        counts["faults in hosts"] = self.read_log("faults").count("Traceback")
        store.close()
        return dict(counts)


def start(host: Host) -> Any:
    process = PROCESSES.Process(target=run_host, args=(host,), name=host.name)
    process.start()
    return process


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """Pause a process and its children."""
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.resume()


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Fill the disk of a folder."""
    ballast = folder / "ballast"
    with suppress(OSError):
        ballast.write_bytes(bytes(2 * DISK_BYTES))
    try:
        yield
    finally:
        with suppress(OSError):
            ballast.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--failures", type=int, default=500)
    parser.add_argument("--sessions", type=int, default=16)
    parser.add_argument("--store", choices=["postgres", "redis", "s3", "sqlite"], default="postgres")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="toolspan-chaos-"))
    folder.chmod(0o711)
    server: Server | None = None
    if options.store == "postgres":  # the machine does not crash, so that a restart need not wait for the disk
        server = prepare_postgres(folder / "server", "fsync=off")
    elif options.store == "redis":
        server = prepare_redis(folder / "server")
    elif options.store == "s3":
        server = prepare_s3(folder / "server")
        os.environ |= {**S3_KEYS, "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{server.port}"}
    url = f"sqlite://{folder}/store.db" if server is None else server.url
    if server is not None:
        server.start()
    PROCESSES.set_forkserver_preload(["tests.stores.chaos_host"])
    chaos = Chaos(url, folder, options.sessions, server, options.seed)
    started = time.monotonic()
    try:
        anyio.run(chaos.run, options.calls, options.failures)
        counts = anyio.run(chaos.check)
    finally:
        if server is not None:
            server.stop()
    sys.stdout.write(f"{options.store}, {len(HOSTS)} hosts, {time.monotonic() - started:.0f} s\n")
    sys.stdout.write(f"{chaos.failures.total():>8,}  failures\n")
    for name, count in (*sorted(chaos.failures.items()), *counts.items()):
        sys.stdout.write(f"{count:>8,}  {name}\n")
    if any(counts.get(name) for name in PROMISES):
        sys.stdout.write(f"the files are in {folder}\n")
        sys.exit(1)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
