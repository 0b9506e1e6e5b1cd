"""Runs the real client on recorded sessions; started alone in a world of its own.

Arguments: the harness's folder, a folder of recorded files, the session's id, a name for the run,
the model that the recorded messages are from (a client drops another model's thinking).
Standard library only: it is copied beside the recorded files and run by a bare Python in a network
and mount namespace, where neither the project nor its virtual environment need be in sight.
"""

import shutil
import subprocess
import sys


def main(harness: str, recorded: str, session_id: str, name: str, model: str) -> int:
    """Put the files where the client looks for them, and let it go on with the session."""
    sys.path.insert(0, harness)
    import lib  # type: ignore[import-not-found]

    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    world = lib.S("claude", name)
    shutil.copytree(recorded, world.home + "/.claude/projects", dirs_exist_ok=True)
    world.scripts = {"resumed": [["resumed answer"]]}
    resume = ["--resume", session_id, "--model", model]
    return int(world.go(prompt="go on [[s:resumed]]", args=resume, timeout=90))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
