"""A process killed after any of its writes loses nothing and gives no wrong evidence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.checks import check_resumed, check_verdict, verdicts
from tests.crash.killed_session import transcript
from toolspan.session.recording import Fsync

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent.parent


def killed(folder: Path, fsync: Fsync, *, half: bool) -> list[Path]:
    program = [sys.executable, "-m", "tests.crash.killed_session", "kill", str(folder), fsync]
    done = subprocess.run([*program, str(int(half))], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return sorted(folder.iterdir(), key=lambda place: int(place.name))


async def check_all(places: list[Path], resume_every: int = 1) -> set[str]:
    seen: set[str] = set()
    for number, place in enumerate(places):
        if not transcript(place).exists():
            continue
        for call, verdict in verdicts(place, None).items():
            check_verdict(place, call, verdict)
            seen.add(verdict.outcome)
        if number % resume_every == 0:
            await check_resumed(place)
    return seen


async def test_session_killed_after_any_write_is_resumed_with_correct_evidence(tmp_path: Path) -> None:
    places = killed(tmp_path, "never", half=False)

    assert len(places) > 30
    assert await check_all(places, resume_every=3) == {"never_started", "happened", "did_not_happen", "unknown"}
    assert verdicts(places[-1], None) == {}


@pytest.mark.slow
@pytest.mark.parametrize("fsync", ["never", "results", "always"])
@pytest.mark.parametrize("half", [False, True])
async def test_session_killed_within_a_write_is_resumed_with_any_sync_setting(
    fsync: Fsync, half: bool, tmp_path: Path
) -> None:
    assert len(await check_all(killed(tmp_path, fsync, half=half))) >= 3
