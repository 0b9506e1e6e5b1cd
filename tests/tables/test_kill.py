"""A run that is killed leaves the old dataset whole, and the next run completes it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tables.datasets import listed_bytes, table_bytes, write_archive, write_edits
from toolspan.tables import write_tables

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_run_killed_before_any_change_leaves_the_old_or_the_new_dataset(step: int, tmp_path: Path) -> None:
    source, out = write_archive(tmp_path / "archive"), tmp_path / "out"
    write_tables([source], out, jobs=1)
    old = table_bytes(out)
    write_edits(source, "99999999-2222-4000-8000-000000000000")
    (source / "other.jsonl").unlink()
    write_tables([source], tmp_path / "fresh", jobs=1)
    new = table_bytes(tmp_path / "fresh")
    killed = tmp_path / "killed"

    program: list[str | Path] = [sys.executable, "-m", "tests.tables.killed_run", source, out, killed, str(step)]
    result = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    *runs, last = map(json.loads, result.stdout.splitlines())

    assert last["code"] == 0
    assert len(runs) * step > 45
    assert {run["signal"] for run in runs} == {9}
    contents = [listed_bytes(Path(run["killed"])) for run in runs]
    assert all(content in (old, new) for content in contents)
    assert old in contents
    for run in (runs[0], runs[len(runs) // 2], runs[-1]):
        write_tables([source], run["killed"], jobs=1)
        assert table_bytes(Path(run["killed"])) == new
