"""A program that becomes a subreaper and prints the results; run by `test_supervisor.py`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import psutil

from toolspan.runtime.process import Command, ProcessSupervisor, become_subreaper, find_survivors, is_subreaper


def own_children(status: str) -> list[int]:
    return [child.pid for child in psutil.Process().children() if child.status() == status]


async def main() -> None:
    facts: dict[str, object] = {"was": is_subreaper(), "became": become_subreaper()}
    go_read, go_write = os.pipe()
    script = f"""
        (sh -c 'read line <&{go_read}' &)
        (setsid sleep 1000 &)
        sleep 1000 &
    """
    command = Command(
        argv=["bash", "-c", script],
        cwd=Path("/"),
        env=dict(os.environ),
        tag=f"subreaper-{os.getpid()}",
        pass_fds=(go_read,),
    )
    async with ProcessSupervisor() as supervisor:
        child = await supervisor.start(command)
        os.close(go_read)
        await child.wait()
        before = [child.pid for child in psutil.Process().children()]
        facts["adopted"] = len(before) == 3
        os.write(go_write, b"!\n")
        while len(psutil.Process().children()) == 3:
            await anyio.lowlevel.checkpoint()
        facts["zombies after the orphan ended"] = own_children(psutil.STATUS_ZOMBIE)
    facts["zombies after the supervisor"] = own_children(psutil.STATUS_ZOMBIE)
    facts["survivors"] = find_survivors(command.tag)
    json.dump(facts, sys.stdout)


anyio.run(main)
