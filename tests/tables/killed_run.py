"""Kill a run of `write_tables` before each of its changes to the disk, and print what is left.

    python -m tests.tables.killed_run SOURCE OUT FOLDER STEP

For every STEP-th change, a copy of OUT in FOLDER is updated by a process that kills itself before the change.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from itertools import count
from pathlib import Path

from toolspan.tables import write_tables

_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")


def kill_before(change: int, folder: Path) -> None:
    """Kill this process before it makes a change below a folder for the nth time."""
    changes = 0

    def watch(event: str, values: tuple[object, ...]) -> None:
        nonlocal changes
        is_write = event == "open" and isinstance(values[2], int) and values[2] & (os.O_WRONLY | os.O_RDWR)
        if (is_write or event in _CHANGES) and str(values[0]).startswith(str(folder)):
            changes += 1
            if changes == change:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def main(source: str, out: str, folder: Path, step: int) -> None:
    """Print the folder of each killed run, as JSON."""
    for change in count(1, step):
        target = folder / str(change)
        shutil.copytree(out, target)
        child = os.fork()
        if not child:
            kill_before(change, target)
            write_tables([source], target, jobs=1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            sys.stdout.write(json.dumps({"finished": str(target), "code": status}) + "\n")
            return
        sys.stdout.write(json.dumps({"killed": str(target), "signal": os.WTERMSIG(status)}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
