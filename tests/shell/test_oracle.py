"""Bash runs nothing that was not seen."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.runtime.permissions.requests import bash_request, decide_request
from tests.shell import lines
from tests.shell.bash_oracle import Oracle
from toolspan.runtime.permissions import Permissions, Rules
from toolspan.shell.plans import NotUnderstood, plan
from toolspan.shell.program import program_basename
from toolspan.types.decision import Allow

MAKERS = [lines.soup, lines.made, lines.broken]
AGAINST_RM = Permissions(Rules(allow=["Bash"], deny=["Bash(rm:*)"]), "bypassPermissions")


def missed(command: str, oracle: Oracle) -> set[str]:
    """The programs that bash ran although the plan of the line neither contains nor may hide them."""
    understood = plan(command)
    if isinstance(understood, NotUnderstood) and understood.hides_programs:
        return set()
    seen = {program_basename(found.program.name) for found in understood.reached}
    unseen = oracle.ran(command) - seen
    # Asked twice: what an earlier line left running in a session of its own may log late.
    return unseen and unseen & oracle.ran(command)


def look_at(maker: Callable[[random.Random], str], seed: int, count: int, folder: Path) -> int:
    """How many of the lines were clear; all of those must be right."""
    oracle, rng, clear = Oracle(folder), random.Random(seed), 0
    for _ in range(count):
        command = maker(rng)
        assert missed(command, oracle) == set(), repr(command)
        understood = plan(command)
        clear += not (isinstance(understood, NotUnderstood) and understood.hides_programs)
    return clear


@pytest.mark.parametrize("maker", MAKERS)
def test_bash_runs_only_what_was_seen(tmp_path: Path, maker: Callable[[random.Random], str]) -> None:
    clear = look_at(maker, 1, 120, tmp_path)

    assert clear > 5  # else the test would show nothing


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("maker", MAKERS)
def test_bash_runs_only_what_was_seen_however_long_one_looks(
    tmp_path: Path, maker: Callable[[random.Random], str], seed: int
) -> None:
    look_at(maker, seed, 1_000, tmp_path)


@requirement("permission.nothing-hidden")
def test_no_line_that_runs_a_forbidden_program_is_allowed(tmp_path: Path) -> None:
    oracle, rng, found = Oracle(tmp_path), random.Random(3), 0
    for _ in range(250):
        command = lines.made(rng)
        if "rm" in oracle.ran(command):
            found += 1
            decision = decide_request(AGAINST_RM, bash_request(command, oracle.work))
            assert not isinstance(decision, Allow), repr(command)

    assert found > 20
