"""The environment of a journey: an empty home, and toolspan on the path.

The home's name is random and always as long as `SHOWN_HOME`, by which pages name it, so that what
is cut to the width of the terminal is cut in the same place every time.
"""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.journeys.screen import Screen, screen
from toolspan.testing import TranscriptBuilder, project_name

ROOT = Path(__file__).parent.parent.parent
SHOWN_HOME = "/home/miranda"
SHOWN_TODAY = datetime(2026, 11, 9, tzinfo=UTC)
_MEMORY = 30
"""Days before today that a page may name."""


@dataclass(frozen=True)
class World:
    """A person's home, and the shell in it."""

    home: Path
    project: Path
    screen: Screen
    today: datetime

    def ago(self, days: int, hour: int, minute: int) -> datetime:
        """A moment some days ago."""
        return self.today - timedelta(days=days) + timedelta(hours=hour, minutes=minute)

    def keeps(self, transcript: TranscriptBuilder) -> Path:
        """Put a transcript where the client keeps those of the project."""
        folder = self.home / ".claude/projects" / project_name(str(self.project))
        return transcript.write(folder / f"{transcript.session_id}.jsonl")

    def settled(self, text: str) -> str:
        """A text of this world in the words of a page: its home, and the days."""
        text = text.replace(str(self.home), SHOWN_HOME)
        text = text.replace(project_name(str(self.home)), project_name(SHOWN_HOME))
        shift = SHOWN_TODAY - self.today
        ours = (self.today - timedelta(days=n) for n in range(-1, _MEMORY))
        days = {f"{day:%Y-%m-%d}": f"{day + shift:%Y-%m-%d}" for day in ours}
        return re.sub(r"\d{4}-\d\d-\d\d", lambda found: days.get(found[0], found[0]), text)


@contextmanager
def world(project: str, *, python: Path | None = None, programs: Mapping[str, str] | None = None) -> Iterator[World]:
    """A new home with a project in it; `python` is one whose programs are found first.

    `programs` are shell scripts by their names, which are found before all others.
    """
    home = Path(tempfile.mkdtemp(prefix="", dir="/tmp")).resolve()
    beside = Path(tempfile.mkdtemp())
    try:
        (home / project).mkdir()
        (beside / "bin").mkdir()
        for name, script in (programs or {}).items():
            program = beside / "bin" / name
            program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            program.chmod(0o755)
        path = [str(beside / "bin"), str((python or Path(sys.executable)).parent)]
        environment = {
            "HOME": str(home),
            "PATH": os.pathsep.join([*path, os.environ["PATH"]]),
            "TOOLSPAN_NO_CACHE": "1",
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
        }
        with screen(beside, home / project, environment) as shell:
            today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
            yield World(home, home / project, shell, today)
    finally:
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(beside, ignore_errors=True)


def wheel(folder: Path) -> Path:
    """The wheel of toolspan as it is now."""
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(folder), str(ROOT)],
        check=True,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    (made,) = folder.glob("toolspan-*.whl")
    return made


def bare_python(folder: Path) -> Path:
    """A Python of its own in which all is installed but toolspan; no network is needed for it."""
    venv.create(folder / "venv", symlinks=True)
    shelf = folder / "shelf"
    shelf.mkdir()
    for place in map(Path, site.getsitepackages()):
        for one in place.iterdir():
            if one.suffix != ".pth" and not one.name.startswith("toolspan"):
                (shelf / one.name).symlink_to(one)
    (found,) = (folder / "venv").glob("lib/python*/site-packages")
    (found / "shelf.pth").write_text(f"{shelf}\n", encoding="utf-8")
    return folder / "venv/bin/python"
