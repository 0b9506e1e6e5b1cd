"""Termination of whole process trees, whatever they do to escape."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import psutil
import pytest

from tests.runtime.process.commands import UpCounter, eventually, python, sh, zombies
from toolspan.runtime.process import (
    Command,
    ExitStatus,
    ProcessPlatform,
    TerminationError,
    find_survivors,
    start_process,
)
from toolspan.runtime.process.tree import ProcessInfo, ProcFs, PsutilTable

pytestmark = pytest.mark.anyio

SYSTEMS = [
    pytest.param(ProcessPlatform.detect(), id="here"),
    pytest.param(ProcessPlatform(PsutilTable(), has_pidfd=False), id="portable"),
]
UP_AND_STAY = "echo up; exec sleep 1000"
DAEMON = """
import os, sys, time
if os.fork():
    sys.stdin.read()
    time.sleep(1000)
os.setsid()
if os.fork():
    os._exit(0)
os.write(1, b"up\\n")
null = os.open("/dev/null", os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(null, number)
time.sleep(1000)
"""
RUNS_AWAY = """
import os, time
os.write(1, b"up\\n")
while True:
    if os.fork():
        os._exit(0)
    if not os.environ.get("HURRY"):
        time.sleep(0.001)
"""
BREEDS = """
import os, time
os.write(1, b"up\\n")
while True:
    if not os.fork():
        time.sleep(0.005)
        os._exit(0)
    if not os.environ.get("HURRY"):
        time.sleep(0.001)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
"""


async def started(command: Command, ups: UpCounter, system: ProcessPlatform | None = None) -> list[int]:
    """Start a command, terminate it when it is up, and return its processes."""
    child = await start_process(command, system)
    await ups.wait()
    before = find_survivors(command.tag)
    await child.terminate(grace=0.2)
    return before


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(
    ("script", "ups"),
    [
        pytest.param(UP_AND_STAY, 1, id="plain"),
        pytest.param(f"for i in 1 2 3 4; do ({UP_AND_STAY}) & done; wait", 4, id="tree"),
        pytest.param(f"setsid sh -c '{UP_AND_STAY}' & wait", 1, id="session of its own"),
        pytest.param(f"(setsid sh -c '{UP_AND_STAY}' &); sleep 1000", 1, id="lost parent"),
        pytest.param(f"setsid sh -c '{UP_AND_STAY}' & exit", 1, id="only the orphan is left"),
    ],
)
async def test_terminating_a_command_leaves_no_process(script: str, ups: int, system: ProcessPlatform) -> None:
    received = UpCounter(ups)
    command = sh(script, on_output=received)
    before = await started(command, received, system)

    assert len(before) >= ups
    assert find_survivors(command.tag) == []
    assert zombies() == []


@pytest.mark.parametrize("system", SYSTEMS)
async def test_daemon_that_forked_twice_is_terminated(system: ProcessPlatform) -> None:
    ups = UpCounter()
    command = python(DAEMON, on_output=ups)
    before = await started(command, ups, system)

    assert len(before) >= 2
    assert find_survivors(command.tag) == []


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("env -i sh -c '{}' & wait", id="same session"),
        pytest.param("(env -i sh -c '{}' &); sleep 1000", id="same session, lost parent"),
        pytest.param("env -i sh -c '{}' & exit", id="same session, command over"),
        pytest.param("setsid env -i sh -c '{}' & wait", id="session of its own"),
    ],
)
async def test_process_without_its_tag_is_terminated(script: str) -> None:
    ups = UpCounter()
    command = sh(script.format("echo $$ up; echo up; exec sleep 1000"), on_output=ups)
    await started(command, ups)

    hidden = int(ups.output.split()[0])
    assert not psutil.pid_exists(hidden) or psutil.Process(hidden).status() == "zombie"


@pytest.mark.parametrize("system", SYSTEMS)
async def test_tree_that_ignores_sigterm_is_killed(system: ProcessPlatform) -> None:
    ups = UpCounter(2)
    command = sh("trap '' TERM; (echo up; sleep 1000) & echo up; wait", on_output=ups)
    child = await start_process(command, system)
    await ups.wait()

    assert await child.terminate(grace=0.05) == ExitStatus(None, 9)
    assert find_survivors(command.tag) == []


async def test_command_gets_one_sigterm_and_may_clean_up_within_the_grace() -> None:
    ups = UpCounter()
    script = "trap 'echo asked; sleep 0.1; echo clean; exit 7' TERM; echo up; sleep 1000 & wait"
    child = await start_process(sh(script, on_output=ups))
    await ups.wait()
    async with anyio.create_task_group() as group:
        group.start_soon(child.terminate, 10)
        group.start_soon(child.terminate, 10)

    assert child.exit == ExitStatus(7, None)
    assert child.stdout.data == b"up\nasked\nclean\n"


@pytest.mark.parametrize("hurry", ["", "yes"])
@pytest.mark.parametrize("script", [RUNS_AWAY, BREEDS])
async def test_command_that_forks_forever_is_terminated(script: str, hurry: str) -> None:
    ups = UpCounter()
    read_end, write_end = os.pipe()
    env = {**os.environ, "HURRY": hurry}
    child = await start_process(python(script, on_output=ups, env=env, pass_fds=(write_end,)))
    os.close(write_end)
    await ups.wait()
    if script is RUNS_AWAY:
        await eventually(lambda: child.exit is not None)
    await child.terminate(grace=0.2)

    await anyio.wait_readable(read_end)  # a look could miss them; their descriptor cannot
    assert os.read(read_end, 1) == b""
    os.close(read_end)


async def test_orphan_that_no_scan_sees_is_terminated() -> None:
    class Blind(ProcFs):
        """A table that misses all other processes, as a scan misses those that fork and exit faster than it reads."""

        def list_processes(self) -> dict[int, ProcessInfo]:
            return {}

        def get_process(self, pid: int) -> ProcessInfo | None:
            return None

    read_end, write_end = os.pipe()
    command = sh("sleep 1000 & exit 0", pass_fds=(write_end,))
    child = await start_process(command, ProcessPlatform(Blind(), has_pidfd=True))
    os.close(write_end)
    await eventually(lambda: child.exit is not None)
    await child.terminate(grace=0.2)

    await anyio.wait_readable(read_end)
    assert os.read(read_end, 1) == b""
    os.close(read_end)


async def test_stopped_command_is_terminated() -> None:
    child = await start_process(sh("kill -STOP $$"))
    stopped = psutil.Process(child.pid)
    await eventually(lambda: stopped.status() == psutil.STATUS_STOPPED)

    assert await child.terminate(grace=15) == ExitStatus(None, 15)


async def test_output_before_the_termination_is_kept() -> None:
    ups = UpCounter()
    child = await start_process(sh("echo up; printf 'no end'; echo err >&2; sleep 1000", on_output=ups))
    await ups.wait()
    await eventually(lambda: child.stdout.total >= 13)
    await child.terminate()

    assert child.stdout.data == b"up\nno enderr\n"


async def test_processes_that_cannot_be_terminated_are_reported() -> None:
    class Haunted(ProcFs):
        def list_processes(self) -> dict[int, ProcessInfo]:
            ghost = ProcessInfo(2**22 + 1, child.pid, child.pid, child.pid, float("inf"), is_zombie=False)
            return {**super().list_processes(), ghost.pid: ghost}

        def get_process(self, pid: int) -> ProcessInfo | None:
            return self.list_processes()[pid] if pid > 2**22 else super().get_process(pid)

    child = await start_process(sh("sleep 1000"), ProcessPlatform(Haunted(), has_pidfd=True, kill_timeout=0.05))
    with pytest.raises(TerminationError) as raised:
        await child.terminate(grace=0.05)

    assert raised.value.pids == (2**22 + 1,)
    child.abandon()
    await eventually(lambda: child.exit is not None)


async def test_another_command_with_the_same_tag_is_not_terminated() -> None:
    here, there = UpCounter(), UpCounter()
    terminated = sh(UP_AND_STAY, on_output=here, tag="same-mark-twice")
    child = await start_process(terminated)
    other = await start_process(sh(UP_AND_STAY, on_output=there, tag="same-mark-twice"))
    await here.wait()
    await there.wait()
    await child.terminate()

    assert find_survivors("same-mark-twice") == [other.pid]
    await other.terminate()
    assert find_survivors("same-mark-twice") == []


async def test_nested_runner_keeps_the_outer_tag() -> None:
    ups = UpCounter()
    env = {**os.environ, "TOOLSPAN_CALL": "outer@1"}
    command = sh("echo $TOOLSPAN_CALL; " + UP_AND_STAY, on_output=ups, env=env)
    child = await start_process(command)
    await ups.wait()

    assert find_survivors("outer@1") == find_survivors("outer") == find_survivors(command.tag) == [child.pid]
    await child.terminate()
    assert child.stdout.data.startswith(f"outer@1:{command.tag}@".encode())


async def test_both_process_tables_agree() -> None:
    ups = UpCounter()
    child = await start_process(sh(UP_AND_STAY, on_output=ups))
    await ups.wait()
    proc, portable = ProcFs(), PsutilTable()
    first, other = proc.get_process(child.pid), portable.get_process(child.pid)

    assert first is not None
    assert other is not None
    assert first._replace(started=0) == other._replace(started=0)
    assert first == proc.list_processes()[child.pid]
    assert other == portable.list_processes()[child.pid]
    assert proc.env_tags(child.pid) == portable.env_tags(child.pid) != frozenset()
    await child.terminate()
    assert (proc.get_process(child.pid), portable.get_process(child.pid)) == (None, None)
    assert proc.env_tags(child.pid) == portable.env_tags(child.pid) == frozenset()


def test_limitations_of_the_platform_are_listed() -> None:
    full = ProcessPlatform(ProcFs(), has_pidfd=True)

    assert full.limitations == ([] if Path("/proc/self/stat").exists() else full.limitations)
    assert any("pidfd" in line for line in ProcessPlatform(PsutilTable(), has_pidfd=False).limitations)
