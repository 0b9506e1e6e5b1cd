"""Bash itself says which programs a line runs: stubs on PATH log their names.

Lines run in an empty folder, with nothing on PATH but stubs and a few real programs that run
others. Generated lines hold no absolute paths, so that nothing but these can be reached.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
from pathlib import Path

STUBS = ("rm", "cat", "ls", "git", "curl", "p0", "p1", "p2")
RUNNERS = ("env", "nice", "nohup", "timeout", "xargs", "find", "stdbuf", "setsid", "sh", "bash")
_STUB = "#!/bin/sh\necho {name} >> {log}\necho x\n"


class Oracle:
    """A folder with stubs, and what they log."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.log = folder / "bin", folder / "log"
        self.work = folder / "work"
        self.bin.mkdir()
        self.work.mkdir()
        for name in STUBS:
            stub = self.bin / name
            stub.write_text(_STUB.format(name=name, log=self.log), encoding="utf-8")
            stub.chmod(0o755)
        for name in RUNNERS:
            found = shutil.which(name)
            if found:
                (self.bin / name).symlink_to(found)

    def ran(self, line: str) -> set[str]:
        """The stubs that bash runs for a line."""
        self.log.write_text("", encoding="utf-8")
        if self.work.exists():
            shutil.rmtree(self.work)
        self.work.mkdir()
        (self.work / "a.txt").write_text("p0\n", encoding="utf-8")
        bash = shutil.which("bash") or "bash"
        # Whatever the line starts holds this pipe open: its end is the end of them all.
        ends, held = os.pipe()
        with subprocess.Popen(
            [bash, "--noprofile", "--norc", "-c", line.encode("utf-8", "surrogateescape")],
            cwd=self.work,
            env={"PATH": str(self.bin), "HOME": str(self.work), "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=[held],
        ) as child:
            os.close(held)
            ready, _, _ = select.select([ends], [], [], 5)
            if not ready:
                os.killpg(child.pid, signal.SIGKILL)
            os.close(ends)
        return set(self.log.read_text(encoding="utf-8").split())
