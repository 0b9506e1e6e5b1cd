"""Measure commands on a large OpenCode database, and a writer while they read it.

Generates the database in `--folder` unless it is there. Each command runs with an empty cache, with the cache of that
run. Meanwhile a process writes to the database many times a second, as the client does, and notes the longest time that
a write took: reading must not lock it out. Peak memory is that of the largest process.
Prints a Markdown table, and all numbers with `--json`; with `--enforce`, exits with code 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from many_files import TOOLSPAN, Run, measure
from promises import Target, machine, missed, table, target_table, write_json

SCHEMA = """
CREATE TABLE session (id text PRIMARY KEY, parent_id text, directory text NOT NULL, title text NOT NULL,
    version text NOT NULL, agent text, time_created integer NOT NULL, time_updated integer NOT NULL);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
    time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
    time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE INDEX message_session_time_created_id_idx ON message (session_id, time_created, id);
CREATE INDEX part_message_id_id_idx ON part (message_id, id);
CREATE INDEX part_session_idx ON part (session_id);
"""
FIRST_MS = 1_780_000_000_000
MOST_MB, SLOWEST_WRITE_MS = 200, 1_000
REPLIES = 40
"""The number of replies in a session, each with a text and one call."""
COMMANDS = {
    "errors": ["errors"], "usage": ["usage"], "sessions": ["sessions"], "show --last": ["show", "--last"],
    "search": ["search", "needle in session 7"],
}  # fmt: skip
WRITER = """
import json, signal, sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
slowest, writes, is_over = 0.0, 0, []
signal.signal(signal.SIGTERM, lambda *_: is_over.append(True))
while not is_over:
    start = time.monotonic()
    database.execute("UPDATE part SET time_updated = time_updated + 1 WHERE rowid = ?", (writes % 1000 + 1,))
    slowest, writes = max(slowest, time.monotonic() - start), writes + 1
    time.sleep(0.02)
print(json.dumps({"slowest_ms": slowest * 1000, "writes": writes}))
"""


def generate(path: Path, size: int) -> None:
    """Write a database of about `size` bytes, with the log in which the client leaves the last changes."""
    chance = random.Random(1)
    words = [f"word{n:x}" for n in range(5_000)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=OFF")
        database.executescript(SCHEMA)
        number = 0
        while path.stat().st_size < size:
            database.execute("BEGIN")
            for _ in range(20):
                add_session(database, number, chance, words)
                number += 1
            database.execute("COMMIT")


def add_session(database: sqlite3.Connection, number: int, chance: random.Random, words: list[str]) -> None:
    """Add a session whose calls have outputs of 0.1 to 60 kB."""
    session, begin = f"ses_{number:026d}", FIRST_MS + number * 60_000
    database.execute(
        "INSERT INTO session VALUES (?, NULL, ?, ?, '1.18.33', 'build', ?, ?)",
        (session, f"/home/mira/project-{number % 30}", f"Session {number}", begin, begin + REPLIES * 1000),
    )
    for n in range(REPLIES + 1):
        at, message = begin + n * 1000, f"msg_{number:020d}{n:06d}"
        rows = list(make_parts(n, at, number, chance, words))
        database.execute(
            "INSERT INTO message VALUES (?, ?, ?, ?, ?)", (message, session, at, at, json.dumps(make_message(n, at)))
        )
        database.executemany(
            "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)",
            [(f"prt_{number:018d}{n:06d}{k:02d}", message, session, at, at, json.dumps(r)) for k, r in enumerate(rows)],
        )


def make_message(n: int, at: int) -> dict[str, Any]:
    """Return a prompt or a reply."""
    if n == 0:
        return {"role": "user", "time": {"created": at}, "agent": "build"}
    tokens = {"input": 900, "output": 120, "reasoning": 0, "cache": {"read": 8_000, "write": 0}}
    return {"role": "assistant", "time": {"created": at, "completed": at + 900}, "modelID": "gpt-5.5",
            "providerID": "openai", "cost": 0, "tokens": tokens, "finish": "tool-calls"}  # fmt: skip


def make_parts(n: int, at: int, number: int, chance: random.Random, words: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the parts of a message."""
    if n == 0:
        yield {"type": "text", "text": f"Find the needle in session {number}"}
        return
    yield {"type": "text", "text": " ".join(chance.choices(words, k=30))}
    output = " ".join(chance.choices(words, k=int(10 ** chance.uniform(1, 3.9))))
    code = 1 if chance.random() < 0.05 else 0
    yield {"type": "tool", "tool": "bash", "callID": f"call_{number}_{n}", "state": {
        "status": "completed", "input": {"command": f"make target-{n}"}, "output": output, "title": "make",
        "metadata": {"output": output[:2_000], "exit": code}, "time": {"start": at, "end": at + 500}}}  # fmt: skip


def wait_until_saved(cache: Path) -> None:
    """Wait for the process in which a command saves its results after it has answered."""
    for lock in cache.rglob("background.lock"):
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)


def main() -> int:
    """Generate the database, run the commands and print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the database is, or is generated")
    parser.add_argument("--gigabytes", type=float, default=5)
    parser.add_argument("--only", choices=COMMANDS, action="append", help="measure only this command (repeatable)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--enforce", action="store_true")
    options = parser.parse_args()
    path = options.folder / "opencode.db"
    if not path.exists():
        generate(path, int(options.gigabytes * 1e9))
    with closing(sqlite3.connect(path)) as database:
        sessions, parts = (
            database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("session", "part")
        )
    caches = Path(tempfile.mkdtemp(prefix="container-"))
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE)
    runs: list[Run] = []
    try:
        for name in options.only or COMMANDS:
            command = [TOOLSPAN, *COMMANDS[name], path]
            for state in ("first", "warm"):
                runs += [measure(f"{name}, {state}", command, caches / name)]
                wait_until_saved(caches / name)
    finally:
        writer.terminate()
        written = json.loads(writer.communicate()[0])
        shutil.rmtree(caches)
    size, peak, slowest = path.stat().st_size, max(run.peak_mb for run in runs), written["slowest_ms"]
    print(f"{size / 1e9:.1f} GB, {sessions:,} sessions, {parts:,} parts; {machine()}\n")
    rows = [[run.name, f"{run.wall:.2f}", f"{run.cpu:.2f}", f"{run.peak_mb:.0f}"] for run in runs]
    print(*table(["", "wall s", "CPU s", "peak MB"], rows), sep="\n")
    print(f"\nMeanwhile: {written['writes']:,} writes.\n")
    targets = [
        Target("memory of the largest process", f"≤ {MOST_MB} MB", f"{peak:.0f} MB", peak <= MOST_MB),
        Target("slowest write meanwhile", f"≤ {SLOWEST_WRITE_MS} ms", f"{slowest:.0f} ms", slowest <= SLOWEST_WRITE_MS),
    ]
    print(*target_table(targets), sep="\n")
    write_json({"bytes": size, "runs": [asdict(run) for run in runs], **written}, options.json)
    return int(options.enforce and missed(targets))


if __name__ == "__main__":
    sys.exit(main())
