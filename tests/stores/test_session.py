"""A session in a store outlives its host: another one resumes it, and only one has it at a time."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.runtime.waiting_tools import Held
from tests.session.role_models import Play, troupe
from tests.stores.conftest import MakeUrl, empty_postgres
from tests.stores.servers import Server
from toolspan import Archive, Permissions, Session, open_store, tool
from toolspan.errors import InUse, NotFound, ToolspanError
from toolspan.session import Agent
from toolspan.session.recording import StoredTranscript
from toolspan.stores import Lease, LeasedStore, LeaseLost, StoreUnavailable
from toolspan.stores.base import LeaseRequest, StreamKey
from toolspan.stores.sqlite import SqliteStore
from toolspan.testing import ScriptedModel, say, use
from toolspan.types.events import WriteFailed

pytestmark = pytest.mark.anyio

ALLOW_ALL = Permissions.allow_all()


@pytest.fixture
def on_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that makes this process the host with a name: its files are not those of other hosts."""

    def move(name: str) -> None:
        for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "CLAUDE_CONFIG_DIR"):
            monkeypatch.setenv(variable, str(tmp_path / name / variable))
        monkeypatch.setenv("TOOLSPAN_HOST", name)

    move("one")
    return move


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/store.db"


def spool_files(tmp_path: Path, host: str) -> list[Path]:
    return [path for path in (tmp_path / host / "XDG_STATE_HOME").rglob("*") if path.is_file()]


async def test_another_host_resumes_a_session_with_its_files(
    make_url: MakeUrl, tmp_path: Path, project: Path, on_host: Callable[[str], None]
) -> None:
    store = make_url()
    model = ScriptedModel([use("Bash", command="echo a >> log; seq 30000"), say("Done.")])
    async with Session(cwd=project, permissions=ALLOW_ALL, store=store) as session:
        ended = await Agent(session, model).prompt("Go.")
        assert ended.text == "Done."
    (spool,) = (tmp_path / "one" / "XDG_STATE_HOME" / "toolspan" / "stores").iterdir()
    assert list(spool.iterdir()) == []

    on_host("two")
    async with Session.resume(project, store=store, permissions=ALLOW_ALL) as resumed:
        assert resumed.session_id == session.session_id
        assert resumed.messages == session.messages
        assert resumed.transcript is not None
        (output,) = (resumed.transcript.with_suffix("") / "tool-results").iterdir()
        assert output.read_text(encoding="utf-8") == "".join(f"{n}\n" for n in range(1, 30001))
        model = ScriptedModel([use("Bash", command="cat log"), say("Again.")])
        await Agent(resumed, model).prompt("Again.")
    (row,) = Archive(store.replace("s3://", "store+s3://")).sessions()
    assert (row.id, row.calls, row.prompts) == (session.session_id, 2, 2)


async def test_only_one_host_has_a_session(url: str, project: Path, on_host: Callable[[str], None]) -> None:
    async with Session(cwd=project, permissions=ALLOW_ALL, store=url) as session:
        await Agent(session, ScriptedModel([say("Done.")])).prompt("Go.")
        on_host("two")
        with pytest.raises(InUse, match=f"process {os.getpid()} on one is running this session"):
            Session.resume(project, store=url)
    with pytest.raises(NotFound):
        Session.resume(project, session="0000", store=url)
    with pytest.raises(ToolspanError, match="the store has this session; resume it"):
        await Session(cwd=project, store=url, session_id=session.session_id).open()
    with pytest.raises(ToolspanError, match="either `store` or `transcript`"):
        Session(cwd=project, store=url, transcript=project / "t.jsonl")


async def test_the_event_loop_runs_while_a_session_is_resumed(project: Path) -> None:
    pytest.importorskip("psycopg")
    connections: list[anyio.abc.SocketStream] = []

    async def refuse(connection: anyio.abc.SocketStream) -> None:
        connections.append(connection)
        await connection.aclose()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as server, anyio.create_task_group() as group:
        group.start_soon(server.serve, refuse)
        port = server.extra(anyio.abc.SocketAttribute.local_port)
        with pytest.raises(StoreUnavailable):
            await Session.resume_async(project, store=f"postgresql://toolspan@127.0.0.1:{port}/postgres")
        group.cancel_scope.cancel()
    assert connections


class SlowStore(SqliteStore):
    """A store that gives leases when it may."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_asked, self.may_answer = threading.Event(), threading.Event()

    def acquire_lease(self, request: LeaseRequest) -> Lease:
        self.is_asked.set()
        assert self.may_answer.wait(30)
        return super().acquire_lease(request)


async def test_a_resume_that_was_cancelled_leaves_the_session_free(project: Path, tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    async with Session(cwd=project, permissions=ALLOW_ALL, store=f"sqlite://{file}") as session:
        await Agent(session, ScriptedModel([say("Done.")])).prompt("Go.")
    store = SlowStore(file)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(Session.resume_async, project, store=store, lease_seconds=3600))
        await anyio.to_thread.run_sync(store.is_asked.wait)
        group.cancel_scope.cancel()
    store.may_answer.set()
    with anyio.fail_after(30):
        resumed = await _take_over(f"sqlite://{file}", project, session.session_id)
    async with resumed:
        assert resumed.messages == session.messages
    store.close()


async def test_the_new_owner_learns_where_calls_of_a_dead_host_ran(
    url: str, project: Path, on_host: Callable[[str], None]
) -> None:
    session_id = "5e551011-0000-4000-8000-00000000000a"
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.stores.killed_host", url, str(project), session_id],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == b"inside\n"
    await _until_answered(url, "toolu_quick")
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()

    on_host("two")
    session = await _take_over(url, project, session_id)
    async with session:
        results = {block["tool_use_id"]: block["content"] for block in session.messages[2]["content"]}  # type: ignore[attr-defined]
    assert results["toolu_quick"] == "quick result"
    assert f"it was started on another host (one, process {child.pid}) at 20" in str(results["toolu_hang"])


async def _until_answered(url: str, call: str) -> None:
    store = open_store(url)
    while True:
        for stream in store.list_streams():
            lines = store.read_lines(stream.key) or []
            if not stream.key.subpath and any(f'"tool_use_id":"{call}"'.encode() in line for line in lines):
                store.close()
                return
        await anyio.sleep(0.05)


async def _take_over(store: LeasedStore | str, project: Path, session_id: str) -> Session:
    """Resume a session as soon as the lease of its dead owner has ended."""
    while True:
        try:
            return Session.resume(project, session=session_id, store=store, permissions=ALLOW_ALL)
        except InUse:
            await anyio.sleep(0.1)


async def test_a_lost_lease_stops_the_running_calls(url: str, project: Path, on_host: Callable[[str], None]) -> None:
    held = Held("held")
    call = {"type": "tool_use", "id": "toolu_1", "name": "held", "input": {}}
    session = Session(cwd=project, tools=[held.tool], permissions=ALLOW_ALL, store=url, lease_seconds=0.9)
    async with session:
        session.say("Go.")
        async with anyio.create_task_group() as group:
            group.start_soon(_steal_lease, url, held)
            with pytest.raises(LeaseLost):
                await session.run({"role": "assistant", "content": [call]})
        assert any(isinstance(failure, WriteFailed) for failure in session.failures)
        with pytest.raises(LeaseLost):
            await session.run({"role": "assistant", "content": [{**call, "id": "toolu_2"}]})
    store = open_store(url)
    recorded = b"".join(line for s in store.list_streams() for line in store.read_lines(s.key) or ())
    assert b'"tool_use_id":"toolu_1"' not in recorded
    assert b"toolu_2" not in recorded


async def _steal_lease(url: str, held: Held) -> None:
    """Take over the session as if its lease had expired."""
    import sqlite3

    await held.inside.wait()
    with sqlite3.connect(url.removeprefix("sqlite://")) as database:
        database.execute("UPDATE toolspan_lease SET expires = 0, fence = fence + 1, owner = 'other'")
    database.close()


SWITCHED = {
    "commit", "read_lines", "list_streams", "acquire_lease", "renew_lease", "release_lease", "list_leases"
}  # fmt: skip


class SwitchedStore(LeasedStore):
    """A store that can be switched off."""

    def __init__(self, inner: LeasedStore) -> None:
        super().__init__()
        self._inner = inner
        self.url = inner.url
        self.is_off = False
        self.refusals = 0

    def __getattribute__(self, name: str) -> Any:
        if name in SWITCHED:
            if self.is_off:
                self.refusals += 1
                raise StoreUnavailable("switched off")
            return getattr(self._inner, name)
        return super().__getattribute__(name)

    commit = read_lines = list_streams = remove_stream = None  # type: ignore[assignment]
    acquire_lease = renew_lease = release_lease = list_leases = None  # type: ignore[assignment]


@pytest.fixture
def switched(url: str) -> SwitchedStore:
    return SwitchedStore(open_store(url))


async def test_results_wait_until_the_store_is_back(
    switched: SwitchedStore, project: Path, on_host: Callable[[str], None]
) -> None:
    held = Held("held")
    done = anyio.Event()
    call = {"type": "tool_use", "id": "toolu_1", "name": "held", "input": {}}
    async with Session(cwd=project, tools=[held.tool], permissions=ALLOW_ALL, store=switched) as session:
        session.say("Go.")

        async def run() -> None:
            await session.run({"role": "assistant", "content": [call]})
            done.set()

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await held.inside.wait()
            switched.is_off = True
            held.go_on.set()
            while not session.failures:
                await anyio.sleep(0.01)
            assert not done.is_set()
            assert "switched off; results wait in" in str(session.failures[0])
            switched.is_off = False
        assert done.is_set()
    stored = await switched.load(StoredKey(switched))
    assert "held" in json.dumps(stored)


def StoredKey(store: LeasedStore) -> Any:  # noqa: N802
    return store.list_streams()[0].key.to_json()


async def test_no_call_with_side_effects_starts_before_its_intent_is_stored(
    switched: SwitchedStore, project: Path, on_host: Callable[[str], None]
) -> None:
    ran = []

    @tool()
    async def effect() -> str:
        """Have a side effect."""
        ran.append(switched.is_off)
        return "done"

    call = {"type": "tool_use", "id": "toolu_1", "name": "effect", "input": {}}
    async with Session(cwd=project, tools=[effect], permissions=ALLOW_ALL, store=switched) as session:
        session.say("Go.")
        switched.is_off = True

        async def switch_on() -> None:
            while switched.refusals < 3:
                await anyio.sleep(0.01)
            switched.is_off = False

        async with anyio.create_task_group() as group:
            group.start_soon(switch_on)
            await session.run({"role": "assistant", "content": [call]})
    assert ran == [False]


async def test_an_interruption_ends_the_wait_of_a_call_and_a_cancellation_that_of_run(
    switched: SwitchedStore, project: Path, on_host: Callable[[str], None]
) -> None:
    ran = []

    @tool()
    async def effect() -> str:
        """Have a side effect."""
        ran.append(True)
        return "done"

    call = {"type": "tool_use", "id": "toolu_1", "name": "effect", "input": {}}
    async with Session(cwd=project, tools=[effect], permissions=ALLOW_ALL, store=switched) as session:
        session.say("Go.")
        switched.is_off = True
        async with anyio.create_task_group() as group:
            group.start_soon(session.run, {"role": "assistant", "content": [call]})
            while switched.refusals < 2:
                await anyio.sleep(0.01)
            session.interrupt()
            while not session.spans:
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        assert not ran
        switched.is_off = False
    async with Session.resume(project, store=switched) as resumed:
        assert resumed.messages == session.messages


async def test_a_full_disk_stops_calls_with_side_effects_and_loses_no_result(
    postgres: Server, project: Path, on_host: Callable[[str], None]
) -> None:
    ran = []

    @tool()
    async def effect(number: int) -> str:
        """Have a side effect."""
        ran.append(number)
        return "done"

    def reply(*numbers: int) -> dict[str, object]:
        calls = [{"type": "tool_use", "id": f"toolu_{n}", "name": "effect", "input": {"number": n}} for n in numbers]
        return {"role": "assistant", "content": calls}

    url = empty_postgres(postgres)
    async with Session(cwd=project, tools=[effect], permissions=ALLOW_ALL, store=url) as session:
        session.say("Go.")
        await session.run(reply(1))
        assert session.transcript is not None
        async with anyio.create_task_group() as group:
            with limited_files(session.transcript.stat().st_size + 10):
                group.start_soon(session.run, reply(2, 3))
                while len(session.spans) < 3:
                    await anyio.sleep(0.01)
                (failure,) = session.failures
                assert isinstance(failure, WriteFailed)
                assert "File too large; records wait in memory" in failure.reason
        await session.run(reply(4))
    assert ran == [1, 4]
    assert "The call was not run: it could not be recorded" in str(session.messages[-3])
    async with Session.resume(project, store=url) as resumed:
        assert resumed.messages == session.messages


@contextmanager
def limited_files(size: int) -> Iterator[None]:
    """Let this process write no file beyond a size, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_local_durability_waits_only_when_the_spool_is_full(
    switched: SwitchedStore, project: Path, on_host: Callable[[str], None]
) -> None:
    ran: list[str] = []

    @tool()
    async def effect(text: str) -> str:
        """Have a side effect."""
        ran.append(text[:1])
        return text * 3

    def reply(number: int, text: str) -> dict[str, object]:
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "effect", "input": {"text": text}}
        return {"role": "assistant", "content": [call]}

    async with Session(
        cwd=project, tools=[effect], permissions=ALLOW_ALL, store=switched, durability="local", spool_bytes=20_000
    ) as session:
        session.say("Go.")
        switched.is_off = True
        await session.run(reply(1, "a"))
        await session.run(reply(2, "b" * 8_000))
        assert ran == ["a", "b"]
        async with anyio.create_task_group() as group:
            group.start_soon(session.run, reply(3, "c"))
            while not any("toolu_3" in line for line in _intents(session)):
                await anyio.sleep(0.01)
            refusals = switched.refusals
            while switched.refusals < refusals + 2:
                await anyio.sleep(0.01)
            assert ran == ["a", "b"]
            switched.is_off = False
        assert ran == ["a", "b", "c"]
    async with Session.resume(project, store=switched) as resumed:
        assert resumed.messages == session.messages


def _intents(session: Session) -> list[str]:
    assert session.recorder is not None
    log = session.recorder.open_intent_log()
    assert log is not None
    return log.path.read_text(encoding="utf-8").splitlines()


async def test_what_a_closed_session_could_not_store_is_stored_when_it_is_resumed_here(
    switched: SwitchedStore, tmp_path: Path, project: Path, on_host: Callable[[str], None]
) -> None:
    model = ScriptedModel([use("Bash", command="echo found"), say("Done.")])
    session = Session(cwd=project, permissions=ALLOW_ALL, store=switched, durability="local", lease_seconds=2)
    await session.open()
    switched.is_off = True
    await Agent(session, model).prompt("Go.")
    with pytest.raises(StoreUnavailable, match="resuming the session on this machine stores them"):
        await session.close()
    assert spool_files(tmp_path, "one")

    switched.is_off = False
    async with await _take_over(switched, project, session.session_id) as resumed:
        assert resumed.messages == session.messages


async def test_subagents_are_in_the_store(url: str, tmp_path: Path, on_host: Callable[[str], None]) -> None:
    play = Play({"Main": [[use("Agent", description="Left", prompt="Left", run_in_background=False)], say("Done.")],
                 "Left": [[use("echo", text="l")], say("Left is back.")]})  # fmt: skip
    async with troupe(tmp_path, play, transcript="home", store=url) as agent:
        await agent.prompt("Main.")
        assert agent.session.transcript is not None
        before = sorted((agent.session.transcript.with_suffix("") / "subagents").iterdir())
        contents = [path.read_bytes() for path in before]
    assert len(before) == 2  # a transcript and its metadata

    on_host("two")
    async with Session.resume(tmp_path, store=url) as resumed:
        assert resumed.transcript is not None
        after = sorted((resumed.transcript.with_suffix("") / "subagents").iterdir())
        assert [path.name for path in after] == [path.name for path in before]
        assert [json.loads(path.read_bytes().splitlines()[-1]) for path in after] == [
            json.loads(content.splitlines()[-1]) for content in contents
        ]


async def test_a_store_of_the_agent_sdk_works_too(project: Path, on_host: Callable[[str], None]) -> None:
    sdk = pytest.importorskip("claude_agent_sdk", reason="claude-agent-sdk is not installed")
    store = sdk.InMemorySessionStore()
    async with Session(cwd=project, permissions=ALLOW_ALL, store=store) as session:
        await Agent(session, ScriptedModel([use("Bash", command="echo a"), say("Done.")])).prompt("Go.")
    listed = await store.list_sessions(sdk.project_key_for_directory(project))
    assert [row["session_id"] for row in listed] == [session.session_id]
    on_host("two")
    async with Session.resume(project, store=store) as resumed:
        assert resumed.messages == session.messages


async def test_the_agent_sdk_reads_what_toolspan_recorded(
    make_url: MakeUrl, project: Path, on_host: Callable[[str], None]
) -> None:
    sdk = pytest.importorskip("claude_agent_sdk", reason="claude-agent-sdk is not installed")
    store = open_store(make_url())
    async with Session(cwd=project, permissions=ALLOW_ALL, store=store) as session:
        await Agent(session, ScriptedModel([use("Bash", command="echo a"), say("Done.")])).prompt("Find the bug.")
    (listed,) = await sdk.list_sessions_from_store(store, directory=str(project))
    assert (listed.session_id, listed.first_prompt) == (session.session_id, "Find the bug.")
    messages = await sdk.get_session_messages_from_store(store, session.session_id, directory=str(project))
    assert [message.type for message in messages] == ["user", "assistant", "user", "assistant"]
    store.close()


def test_files_of_a_store_stay_in_the_sessions_folder(url: str, tmp_path: Path, project: Path,
                                                      on_host: Callable[[str], None]) -> None:  # fmt: skip
    key = StreamKey(project.resolve().as_posix().replace("/", "-").replace("_", "-"), "evil")
    store = open_store(url)
    lease = store.acquire_lease(LeaseRequest.make(key))
    piece = {"type": "toolspan_file", "offset": 0, "data": "YQ=="}
    from toolspan.stores.base import Append

    store.commit(
        [
            Append(key, [b'{"type":"user","uuid":"u","message":{"role":"user","content":"x"}}'], 0),
            Append(key.with_subpath("subagents/../../../agent-x"), [b"{}"], 0),
            Append(key.with_subpath("/agent-y"), [b"{}"], 0),
            Append(
                key.with_subpath("toolspan/files"),
                [
                    json.dumps({**piece, "path": path}).encode()
                    for path in ("../../out", "/out", "a/../../out", "in/ok")
                ],
                0,
            ),
        ],
        lease,
    )
    store.release_lease(lease)
    stored = StoredTranscript.resume(url, "evil", project, options=_options(tmp_path / "spool"))
    names = {
        path.relative_to(tmp_path / "spool").as_posix() for path in (tmp_path / "spool").rglob("*") if path.is_file()
    }
    assert {name.split("/", 4)[-1] for name in names} == {"evil.jsonl", "evil.lease", "evil/in/ok"}
    assert not list(tmp_path.rglob("out"))
    stored.close()
    store.close()


def _options(folder: Path) -> Any:
    from toolspan.session.recording import StoreOptions

    return StoreOptions(folder=folder)


@pytest.mark.parametrize("durability", ["store", "local"])
async def test_a_restarted_server_loses_nothing(
    postgres: Server, project: Path, on_host: Callable[[str], None], durability: Any
) -> None:
    url = empty_postgres(postgres)
    model = ScriptedModel([use("Bash", command=f"echo {n} >> log") for n in range(6)], then=say("Done."))
    async with Session(cwd=project, permissions=ALLOW_ALL, store=url, durability=durability) as session:
        agent = Agent(session, model)
        async with anyio.create_task_group() as group:
            group.start_soon(agent.prompt, "Go.")
            while not (project / "log").exists():
                await anyio.sleep(0.01)
            postgres.stop(signal.SIGQUIT)
            postgres.start()
    assert (project / "log").read_text(encoding="utf-8") == "".join(f"{n}\n" for n in range(6))
    async with Session.resume(project, store=url) as resumed:
        assert resumed.messages == session.messages


async def test_a_host_with_other_files_tells_the_model(url: str, project: Path, on_host: Callable[[str], None]) -> None:
    (project / "a.txt").write_text("a", encoding="utf-8")
    async with Session(cwd=project, permissions=ALLOW_ALL, store=url) as session:
        await Agent(session, ScriptedModel([use("Bash", command="echo b > b.txt"), say("Done.")])).prompt("Go.")
    notice = "The files in the project folder differ from those that it last saw on two at 20"

    on_host("two")
    async with Session.resume(project, store=url) as same:
        same.say("Continue.")
        assert "last saw" not in json.dumps(same.messages)

    (project / "a.txt").write_text("changed", encoding="utf-8")
    async with Session.resume(project, store=url) as here:
        here.say("Continue.")
        assert "last saw" not in json.dumps(here.messages)

    on_host("three")
    (project / "a.txt").write_text("other", encoding="utf-8")
    async with Session.resume(project, store=url) as other:
        other.say("Continue.")
        assert notice in json.dumps(other.messages)
