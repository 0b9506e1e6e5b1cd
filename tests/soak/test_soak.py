"""A very long session keeps nothing in memory but the ids of its calls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"
pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")


def soaked(tmp_path: Path, calls: int) -> dict[str, Any]:
    command = [sys.executable, str(SOAK), "--calls", str(calls), "--json", "-"]
    done = subprocess.run([*command, "--scratch", str(tmp_path)], check=True, capture_output=True, timeout=3600)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_a_thousand_calls_of_every_outcome_leave_nothing_behind(tmp_path: Path) -> None:
    result = soaked(tmp_path, 1_000)
    assert result["problems"] == []
    assert result["settled"] == 1_000


@pytest.mark.slow
def test_memory_stays_flat_over_a_hundred_thousand_calls(tmp_path: Path) -> None:
    result = soaked(tmp_path, 100_000)
    assert result["problems"] == []
    assert result["settled"] == 100_000
    assert result["slope_kb"] < 256
