"""A program that becomes a subreaper, cancels a call that started a daemon, and prints whether the daemon is gone."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import anyio
import psutil

from toolspan.runtime.process import become_subreaper
from toolspan.runtime.runner import Runner
from toolspan.tools import coding_tools


async def main(folder: Path) -> None:
    become_subreaper()
    pid_file = folder / "pid"
    start = shlex.join([sys.executable, str(Path(__file__).with_name("daemon.py")), str(pid_file)])
    command = f"{start}; echo ready; exec sleep 1000"
    call = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": command}}
    async with Runner(coding_tools(only=["Bash"]), cwd=folder) as runner, anyio.create_task_group() as group:
        group.start_soon(runner.run, [call])
        while not pid_file.exists():
            await anyio.sleep(0.01)
        pid = int(pid_file.read_text(encoding="ascii"))
        runner.cancel("a")
        while runner.in_progress:
            await anyio.sleep(0.01)
        sys.stdout.write("gone\n" if not psutil.pid_exists(pid) else "alive\n")


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))
