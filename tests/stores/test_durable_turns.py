"""The example with a durable engine: a crash in the middle of a turn neither loses nor repeats a call."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stores.chaos_host import count_results
from tests.stores.conftest import empty_postgres
from tests.stores.servers import Server
from toolspan import open_store

EXAMPLE = Path(__file__).parents[2] / "examples" / "durable_turns.py"


def test_turns_as_steps_of_a_durable_workflow_survive_a_crash(postgres: Server, tmp_path: Path) -> None:
    pytest.importorskip("dbos", reason="dbos is not installed")
    url = empty_postgres(postgres)

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(EXAMPLE), url, *options],
            cwd=tmp_path,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
            capture_output=True,
            text=True,
            check=False,
        )

    crashed = run("--crash")
    assert crashed.returncode == -signal.SIGKILL, crashed.stderr
    assert (tmp_path / "payments.txt").read_text() == "1\n2\n"

    resumed = run()
    assert resumed.returncode == 0, resumed.stderr
    assert "the call before the crash: [Tool call interrupted" in resumed.stdout
    answers = ["Paid invoice 1.", "Already paid: 1, 2.", "Paid invoice 3."]
    assert resumed.stdout.splitlines()[-3:] == answers
    assert (tmp_path / "payments.txt").read_text() == "1\n2\n3\n"

    store = open_store(url)
    (stream,) = [stream for stream in store.list_streams() if not stream.key.subpath]
    results = count_results(store.read_lines(stream.key) or [])
    store.close()
    assert len(results) == 4
    assert set(map(tuple, results.values())) == {(1, 1)}

    assert run().stdout.splitlines() == answers
    assert (tmp_path / "payments.txt").read_text() == "1\n2\n3\n"
