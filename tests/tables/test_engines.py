"""Both engines write the same tables, also if nodes or processes die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import toolspan
from tests.tables.datasets import table_bytes, write_archive
from toolspan.errors import ToolspanError
from toolspan.reading.facts import SCAN_JOB
from toolspan.reading.history import CallTable
from toolspan.tables import Dataset, write_tables
from toolspan.tables.engines import LocalEngine, make_engine
from toolspan.tables.query import load_results

ROOT = Path(__file__).parents[2]
TIMEOUT = 300
"""Seconds after which a run is considered to hang."""


def test_cluster_that_loses_a_node_writes_the_same_tables(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    check_cluster(write_archive(tmp_path / "archive", sessions=12), tmp_path, TIMEOUT)


def check_cluster(folder: Path, tmp_path: Path, timeout: float) -> None:
    """Check that a cluster that loses a node writes the same tables of a folder as one machine."""
    report = write_tables([folder], tmp_path / "local", jobs=2)

    program: list[str | Path] = [sys.executable, "-m", "tests.tables.cluster_run", folder, tmp_path / "ray"]
    completed = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)

    assert completed.returncode == 0, completed.stderr[-2_000:]
    result = json.loads(completed.stdout.splitlines()[-1])
    assert result["nodes"] == [3, 2]
    assert result["report"]["rows"] == report.rows
    assert table_bytes(tmp_path / "ray") == table_bytes(tmp_path / "local")
    rows = CallTable(load_results(Dataset(tmp_path / "ray"), SCAN_JOB)).calls
    assert rows == toolspan.history(folder).call_table.calls


def die_once(item: tuple[int, str]) -> int:
    number, folder = item
    mark = Path(folder) / str(number)
    if number % 3 == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * 2


def die_always(item: int) -> int:
    if item == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return item * 2


def test_task_whose_process_dies_is_run_again(tmp_path: Path) -> None:
    engine = LocalEngine(2)

    results = dict(engine.map(die_once, [(number, str(tmp_path)) for number in range(10)]))
    engine.close()

    assert {item[0]: value for item, value in results.items()} == {number: number * 2 for number in range(10)}


def test_task_that_kills_every_process_is_given_up_alone() -> None:
    engine = LocalEngine(2)

    results = dict(engine.map(die_always, range(1, 7)))
    engine.close()

    assert results == {1: 2, 2: 4, 3: None, 4: 8, 5: 10, 6: 12}


def test_address_needs_ray() -> None:
    with pytest.raises(ToolspanError, match="--engine ray"):
        make_engine("local", address="auto")
