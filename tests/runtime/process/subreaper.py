"""A program that becomes the subreaper and tells what came of it; run by `test_custody.py`."""

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
    return [one.pid for one in psutil.Process().children() if one.status() == status]


async def main() -> None:
    told: dict[str, object] = {"was": is_subreaper(), "became": become_subreaper()}
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
    async with ProcessSupervisor() as custody:
        child = await custody.start(command)
        os.close(go_read)
        await child.wait()
        before = [one.pid for one in psutil.Process().children()]
        told["adopted"] = len(before) == 3
        os.write(go_write, b"!\n")
        while len(psutil.Process().children()) == 3:
            await anyio.lowlevel.checkpoint()
        told["zombies after the orphan ended"] = own_children(psutil.STATUS_ZOMBIE)
    told["zombies after the custody"] = own_children(psutil.STATUS_ZOMBIE)
    told["survivors"] = find_survivors(command.tag)
    json.dump(told, sys.stdout)


anyio.run(main)
