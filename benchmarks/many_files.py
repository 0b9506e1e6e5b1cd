"""Measure commands on very many small transcripts: wall time, time per file, and memory, beside a plain walk.

Generates the files in `--folder` unless they are there: one call each, in one folder per hundred files. Each command
runs with an empty cache and then with the cache of that run. Peak memory is that of the largest process. The limits are
for CPU time, which depends less on other programs than wall time. Prints a Markdown table, and all numbers with
`--json`; with `--enforce`, exits with code 1 if a target is missed. Start at `main`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from promises import Target, machine, missed, table, target_table, write_json

TOOLSPAN = Path(sys.executable).with_name("toolspan")
FILES_PER_FOLDER = 100
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
WARM_MICROSECONDS = 60
COMMANDS = {"sessions": ["sessions"], "show --last": ["show", "--last"], "errors": ["errors"], "usage": ["usage"]}
WALK = """
import os, sys
pending = [sys.argv[1]]
while pending:
    with os.scandir(pending.pop()) as listing:
        for item in listing:
            if item.is_dir(follow_symlinks=False):
                pending.append(item.path)
            else:
                item.stat()
"""


@dataclass(frozen=True)
class Run:
    """One measured command."""

    name: str
    wall: float
    cpu: float
    peak_mb: float


def measure(name: str, command: Sequence[str | Path], cache: Path) -> Run:
    """Run a command and measure it with the processes that it started and waited for."""
    start = time.monotonic()
    pid = os.fork()
    if not pid:
        os.environ["XDG_CACHE_HOME"] = str(cache)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execv(command[0], [str(word) for word in command])
    _, status, usage = os.wait4(pid, 0)
    wall = time.monotonic() - start
    if status:
        raise SystemExit(f"{name}: {' '.join(map(str, command))} failed")
    print(f"{name}: {wall:.2f} s, {usage.ru_maxrss / 1024:.0f} MB", file=sys.stderr)
    return Run(name, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def write_transcript(path: Path, number: int) -> None:
    """Write a transcript of three lines: a prompt, a call and its result."""
    session, began = path.stem, FIRST_DAY + timedelta(seconds=10 * number)
    shared = {"isSidechain": False, "userType": "external", "cwd": f"/home/dev/{path.parent.name}", "version": "2.1.0"}
    request = {
        "type": "tool_use",
        "id": f"toolu_{number:024d}",
        "name": "Read",
        "input": {"file_path": "/home/dev/a.py"},
    }
    result = {"type": "tool_result", "tool_use_id": request["id"], "content": "     1\tprint()"}
    messages: list[dict[str, object]] = [
        {"role": "user", "content": f"Read file {number}"},
        {
            "id": f"msg_{number:024d}", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
            "content": [request], "stop_reason": "tool_use", "usage": {"input_tokens": 9, "output_tokens": 30},
        },
        {"role": "user", "content": [result]},
    ]  # fmt: skip
    parent, lines = None, []
    for n, message in enumerate(messages):
        uuid = str(UUID(int=number * 4 + n))
        at = (began + timedelta(seconds=n)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        record = {"parentUuid": parent, **shared, "sessionId": session, "type": message["role"], "message": message}
        lines.append(json.dumps({**record, "uuid": uuid, "timestamp": at}) + "\n")
        parent = uuid
    path.write_text("".join(lines))


def generate(folder: Path, count: int) -> None:
    """Write transcripts whose modification times are those of their last records."""
    projects = folder / "projects"
    for number in range(count):
        project = projects / f"-work-project-{number // FILES_PER_FOLDER:05d}"
        if number % FILES_PER_FOLDER == 0:
            project.mkdir(parents=True)
        path = project / f"{UUID(int=(number * 0x9E3779B97F4A7C15) % (1 << 128))}.jsonl"
        write_transcript(path, number)
        modified = (FIRST_DAY + timedelta(seconds=10 * number + 2)).timestamp()
        os.utime(path, (modified, modified))


def main() -> int:
    """Generate the files, run the commands and print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the files are, or are generated")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--only", choices=COMMANDS, action="append", help="measure only this command (repeatable)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--enforce", action="store_true")
    options = parser.parse_args()
    if not options.folder.exists():
        generate(options.folder, options.files)
    runs: list[Run] = []
    caches = Path(tempfile.mkdtemp(prefix="many-files-"))
    try:
        walk = [sys.executable, "-c", WALK, options.folder]
        measure("first walk", walk, caches)
        floor = measure("walk", walk, caches)
        for name in options.only or COMMANDS:
            command = [TOOLSPAN, *COMMANDS[name], options.folder]
            runs += [measure(f"{name}, {state}", command, caches / name) for state in ("cold", "warm")]
    finally:
        shutil.rmtree(caches)
    files = options.files
    print(f"{files:,} files; {machine()}\n")
    header = ["", "wall s", "beside the walk", "CPU s", "CPU µs per file", "peak MB"]
    rows = [
        [r.name, f"{r.wall:.2f}", f"{r.wall / floor.wall:.1f} ×", f"{r.cpu:.2f}", f"{r.cpu / files * 1e6:.0f}",
         f"{r.peak_mb:.0f}"] for r in [floor, *runs]
    ]  # fmt: skip
    print(*table(header, rows), sep="\n")
    targets = []
    for run in runs:
        if run.name.endswith("warm"):
            cost = run.cpu / files * 1e6
            limit = f"≤ {WARM_MICROSECONDS} µs"
            targets.append(Target(f"{run.name}, CPU per file", limit, f"{cost:.0f} µs", cost <= WARM_MICROSECONDS))
    print("", *target_table(targets), sep="\n")
    write_json({"files": files, "runs": [asdict(run) for run in [floor, *runs]]}, options.json)
    return int(options.enforce and missed(targets))


if __name__ == "__main__":
    sys.exit(main())
