"""Questions are answered by worker processes that can end at any time, and that read a new archive together."""

from __future__ import annotations

import itertools
import os
import sqlite3
import time
from pathlib import Path

import psutil
import pytest

from tests.limits import PATIENCE
from tests.web.conftest import Server, command_rows, running
from toolspan.reading import sample
from toolspan.reading.cache import compute_file_stamp, is_stable
from toolspan.testing import TranscriptBuilder


def find_workers(server: Server) -> list[psutil.Process]:
    return [worker for helper in psutil.Process(server.process.pid).children() for worker in helper.children()]


def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    with running(tmp_path, sample.archive()) as server:
        expected = server.get("sessions")
        for worker in find_workers(server):
            worker.kill()
            worker.wait(PATIENCE)
        assert server.get("sessions", sort="-ended", limit="100") == list(
            command_rows("sessions", "--sort", "-ended", "--limit", "100", sample.archive())
        )
        assert server.get("sessions", fields="id") == [{"id": row["id"]} for row in expected]


def cached_kinds(cache: Path) -> set[str]:
    """Return the kinds of facts that are cached."""
    file = cache / "toolspan" / "facts.sqlite3"
    if not file.exists():
        return set()
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
        try:
            return {kind for (kind,) in database.execute("SELECT DISTINCT form FROM file")}
        except sqlite3.OperationalError:  # it is being created
            return set()


def test_workers_read_a_new_archive_together_and_then_add_the_facts_for_other_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    folder = tmp_path / "archive" / "projects" / "-work"
    for number in range(401):
        builder = TranscriptBuilder(session_id=f"{number:08x}-aaaa-4bbb-8ccc-dddddddddddd").prompt("Go")
        builder.result(builder.call("Bash", {"command": "make"}), "made\n" * 2400)
        path = builder.write(folder / f"{builder.session_id}.jsonl")
    expected = command_rows("sessions", tmp_path / "archive")
    (expected_time,) = command_rows("time", tmp_path / "archive")
    monkeypatch.delenv("TOOLSPAN_NO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    # Facts of quite new files are not cached, and a few files are not read together: all must be old enough at once.
    while not is_stable(compute_file_stamp(path) or "", time.time_ns()):
        os.sched_yield()
    with running(tmp_path / "run", tmp_path / "archive") as server:
        deadline = time.monotonic() + PATIENCE
        for limit in itertools.count(500):  # until another process has added the facts
            rows = server.get("sessions", limit=str(limit))
            if "times" in cached_kinds(cache) or time.monotonic() > deadline:
                break
        assert {"calls", "times", "changes"} <= cached_kinds(cache)
        assert rows == expected
        assert server.get("time") == expected_time
