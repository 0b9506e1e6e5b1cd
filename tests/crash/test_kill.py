"""A process that is killed after any of its writes: nothing is lost, nothing is said wrongly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.judge import check_resumed, check_verdict, verdicts
from tests.crash.world import transcript
from tests.requirement import requirement
from toolspan.session.recording import Fsync

ROOT = Path(__file__).parent.parent.parent


def killed(folder: Path, fsync: Fsync, *, half: bool) -> list[Path]:
    """A place for each number of operations after which the session died; the last one lived."""
    program = [sys.executable, "-m", "tests.crash.world", "kill", str(folder), fsync]
    done = subprocess.run([*program, str(int(half))], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return sorted(folder.iterdir(), key=lambda place: int(place.name))


async def check_all(places: list[Path]) -> set[str]:
    seen: set[str] = set()
    for place in places:
        if not transcript(place).exists():
            continue
        for call, verdict in verdicts(place, None).items():
            check_verdict(place, call, verdict)
            seen.add(verdict.outcome)
        await check_resumed(place)
    return seen


@requirement("crash.kill")
@pytest.mark.anyio
async def test_killed_after_any_write_a_session_goes_on_and_tells_what_happened(tmp_path: Path) -> None:
    places = killed(tmp_path, "never", half=False)

    assert len(places) > 30
    assert await check_all(places) == {"never_started", "happened", "did_not_happen", "unknown"}
    assert verdicts(places[-1], None) == {}


@requirement("crash.kill")
@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("fsync", ["never", "results", "always"])
@pytest.mark.parametrize("half", [False, True])
async def test_killed_anywhere_within_a_write_and_with_any_care_for_the_disk(
    fsync: Fsync, half: bool, tmp_path: Path
) -> None:
    assert len(await check_all(killed(tmp_path, fsync, half=half))) >= 3
