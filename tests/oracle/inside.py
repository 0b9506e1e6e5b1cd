"""Runs the real client on recorded sessions; started alone in a world of its own.

Arguments: the harness's folder, a folder of recorded files, the session's id, a name for the run,
the model that the recorded messages are from (a client drops another model's thinking).
Standard library only: it is copied beside the recorded files and run by a bare Python in a network
and mount namespace, where neither the project nor its virtual environment need be in sight.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_LASTING = "touch begun; exec sleep 30"


def main(harness: str, recorded: str, session_id: str, name: str, model: str) -> int:
    """Put the files where the client looks for them, and let it go on with the session.

    With `-` for the session, it begins one, and is killed while a command of it runs.
    """
    sys.path.insert(0, harness)
    import lib  # type: ignore[import-not-found]

    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    world = lib.S("claude", name)
    if session_id == "-":
        return _killed(world, lib, model)
    shutil.copytree(recorded, world.home + "/.claude/projects", dirs_exist_ok=True)
    world.scripts = {"resumed": [["resumed answer"]]}
    resume = ["--resume", session_id, "--model", model]
    return int(world.go(prompt="go on [[s:resumed]]", args=resume, timeout=90))


def _killed(world: Any, lib: Any, model: str) -> int:
    world.write("a", "aaa\n")
    world.turn("Both.", lib.T("Read", file_path=world.p("a")), lib.T("Bash", command=_LASTING))

    def kill(process: Any) -> None:
        while not Path(world.p("begun")).exists():
            time.sleep(0.05)
        time.sleep(0.5)  # its lines are written a moment later
        os.killpg(process.pid, signal.SIGKILL)

    world.go(args=["--model", model], timeout=60, during=kill)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
