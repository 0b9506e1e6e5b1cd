"""The tests of the running half are worth something: they notice faults that are planted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.runtime.mutants import MUTANTS

SCRIPT = Path(__file__).with_name("mutants.py")


@requirement("run.mutants")
def test_a_fair_share_of_planted_faults_is_noticed() -> None:
    share = ["--share", "7/19"]
    ran = subprocess.run([sys.executable, SCRIPT, *share], capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
@requirement("run.mutants")
def test_every_planted_fault_is_noticed() -> None:
    ran = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(MUTANTS) >= 30
