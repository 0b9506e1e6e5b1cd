"""Every accepted call gets exactly one result, for generated schedules."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from tests.runtime.schedules import faults, play
from tests.strategies_run import Schedule, make_schedule, schedules

SCHEDULES = int(os.environ.get("TOOLSPAN_SCHEDULES", "100000"))
FAIR_SHARE = 400


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(schedule=schedules)
def test_schedule_finalizes_every_call(loop: asyncio.Runner, schedule: Schedule) -> None:
    assert faults(loop.run(play(schedule))) == []


def test_sample_of_schedules_finalizes_every_call(loop: asyncio.Runner) -> None:
    assert _unsettled(loop, range(FAIR_SHARE)) == []


@pytest.mark.slow
def test_hundred_thousand_schedules_finalize_every_call(loop: asyncio.Runner) -> None:
    assert _unsettled(loop, range(FAIR_SHARE, FAIR_SHARE + SCHEDULES)) == []


def _unsettled(loop: asyncio.Runner, seeds: range) -> list[tuple[int, list[str], Schedule]]:
    result: list[tuple[int, list[str], Schedule]] = []
    for seed in seeds:
        schedule = make_schedule(random.Random(seed))
        wrong = faults(loop.run(play(schedule)))
        if wrong:
            result.append((seed, wrong, schedule))
        if len(result) == 3:
            break
    return result
