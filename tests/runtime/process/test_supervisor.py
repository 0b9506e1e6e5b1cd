"""Leaving a supervisor, in any way, leaves no process behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import pytest

from tests.runtime.process.commands import UpCounter, command, python, sh, zombies
from toolspan.runtime.process import ChildProcess, ExitStatus, ProcessSupervisor, find_survivors, is_subreaper

pytestmark = pytest.mark.anyio

UP_AND_STAY = "echo up; exec sleep 1000"
SUBREAPER = Path(__file__).with_name("subreaper.py")


async def test_leaving_a_supervisor_terminates_all_its_children() -> None:
    ups = UpCounter(50)
    async with ProcessSupervisor() as supervisor:
        commands = [sh(UP_AND_STAY, on_output=ups) for _ in range(50)]
        children = [await supervisor.start(command) for command in commands]
        await ups.wait()

    assert [child.exit for child in children] == [ExitStatus(None, 15)] * 50
    assert [find_survivors(command.tag) for command in commands] == [[]] * 50
    assert zombies() == []


async def test_exception_leaves_no_process_behind() -> None:
    ups = UpCounter()
    command = sh(f"setsid sh -c '{UP_AND_STAY}' & wait", on_output=ups)
    with pytest.raises(LookupError):
        async with ProcessSupervisor() as supervisor:
            await supervisor.start(command)
            await ups.wait()
            raise LookupError

    assert find_survivors(command.tag) == []


async def test_cancellation_leaves_no_process_behind() -> None:
    ups = UpCounter()
    command = sh("trap '' TERM; " + UP_AND_STAY, on_output=ups)
    with anyio.CancelScope() as scope:
        async with ProcessSupervisor(grace=0.05) as supervisor:
            child = await supervisor.start(command)
            await ups.wait()
            scope.cancel()
            await child.wait()

    assert child.exit == ExitStatus(None, 9)
    assert find_survivors(command.tag) == []


async def test_daemon_of_a_finished_command_is_terminated() -> None:
    ups = UpCounter()
    command = sh(f"setsid sh -c '{UP_AND_STAY}' & exit", on_output=ups)
    async with ProcessSupervisor() as supervisor:
        child = await supervisor.start(command)
        await ups.wait()
        await child.wait()
        for _ in range(3):
            await (await supervisor.start(sh("exit 0"))).wait()
        assert len(find_survivors(command.tag)) == 1

    assert find_survivors(command.tag) == []


async def test_supervisor_starts_nothing_outside_its_block() -> None:
    supervisor = ProcessSupervisor()
    with pytest.raises(RuntimeError):
        await supervisor.start(sh("exit 0"))
    async with supervisor:
        pass
    with pytest.raises(RuntimeError):
        await supervisor.start(sh("exit 0"))


async def test_cancelled_wait_terminates_the_command_and_keeps_its_output() -> None:
    ups = UpCounter(2)
    command = sh(f"({UP_AND_STAY}) & {UP_AND_STAY}", on_output=ups)
    held: list[ChildProcess] = []

    async def run(supervisor: ProcessSupervisor) -> None:
        async with supervisor.running_child(command) as child:
            held.append(child)
            await child.wait()

    async with ProcessSupervisor() as supervisor:
        async with anyio.create_task_group() as group:
            group.start_soon(run, supervisor)
            await ups.wait()
            group.cancel_scope.cancel()

        assert find_survivors(command.tag) == []
        assert held[0].stdout.data == b"up\nup\n"
        assert zombies() == []


async def test_leaving_the_block_early_terminates_the_command() -> None:
    ups = UpCounter()
    command = sh(UP_AND_STAY, on_output=ups)
    async with ProcessSupervisor() as supervisor:
        async with supervisor.running_child(command) as child:
            await ups.wait()

        assert child.exit == ExitStatus(None, 15)
        assert find_survivors(command.tag) == []


async def test_orphans_of_a_finished_command_run_until_the_supervisor_is_left() -> None:
    command = sh("sleep 1000 & exit 0")
    async with ProcessSupervisor() as supervisor:
        async with supervisor.running_child(command) as child:
            await child.wait()

        assert len(find_survivors(command.tag)) == 1
    assert find_survivors(command.tag) == []


async def test_cancelled_start_leaves_no_process_behind() -> None:
    command = sh("sleep 1000")
    async with ProcessSupervisor() as supervisor:
        with anyio.CancelScope() as scope:
            scope.cancel()
            async with supervisor.running_child(command):
                pytest.fail("started in a cancelled scope")

        assert find_survivors(command.tag) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
async def test_orphans_are_reparented_to_a_subreaper_and_reaped() -> None:
    async with ProcessSupervisor() as supervisor:
        child = await supervisor.start(command([sys.executable, str(SUBREAPER)]))
        ended = await child.wait()

    assert (ended, json.loads(child.stdout.data)) == (
        ExitStatus(0, None),
        {
            "was": False,
            "became": True,
            "adopted": True,
            "zombies after the orphan ended": [],
            "zombies after the supervisor": [],
            "survivors": [],
        },
    )


async def test_the_library_does_not_become_a_subreaper() -> None:
    async with ProcessSupervisor() as supervisor:
        await (await supervisor.start(python("pass"))).wait()

    assert not is_subreaper()
