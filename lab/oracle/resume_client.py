"""Resume a recorded session with the real client, in namespaces that `__main__.py` makes.

Arguments: the harness's folder, a folder of recorded files, the session's id, a name for the run,
the model of the recorded messages (a client drops another model's thinking).
Standard library only: it is copied beside the recorded files and run by a bare Python, which may
see neither the project nor its virtual environment.
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

_LONG_COMMAND = "touch begun; exec sleep 30"


def main(harness: str, recorded: str, session_id: str, name: str, model: str) -> int:
    """Copy the files to the client's folder and resume the session.

    With `-` for the session, start a new one and kill the client while a command runs.
    """
    sys.path.insert(0, harness)
    import lib  # type: ignore[import-not-found]

    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    scenario = lib.S("claude", name)
    if session_id == "-":
        return _start_and_kill(scenario, lib, model)
    shutil.copytree(recorded, scenario.home + "/.claude/projects", dirs_exist_ok=True)
    scenario.scripts = {"resumed": [["resumed answer"]]}
    resume = ["--resume", session_id, "--model", model]
    return int(scenario.go(prompt="go on [[s:resumed]]", args=resume, timeout=90))


def _start_and_kill(scenario: Any, lib: Any, model: str) -> int:
    scenario.write("a", "aaa\n")
    scenario.turn("Both.", lib.T("Read", file_path=scenario.p("a")), lib.T("Bash", command=_LONG_COMMAND))

    def kill(process: Any) -> None:
        while not Path(scenario.p("begun")).exists():
            time.sleep(0.05)
        time.sleep(0.5)  # the client writes its lines a moment later
        os.killpg(process.pid, signal.SIGKILL)

    scenario.go(args=["--model", model], timeout=60, during=kill)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
