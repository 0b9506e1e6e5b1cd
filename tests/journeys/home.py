"""The environment of a journey: an empty home, and toolspan on the path.

The random name of the home is always as long as `SHOWN_HOME`, which replaces it on pages, so that
output is always cut at the same column.
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

from tests.journeys.screen import Screen, open_screen
from toolspan.testing import TranscriptBuilder, project_name

ROOT = Path(__file__).parent.parent.parent
SHOWN_HOME = "/home/miranda"
SHOWN_TODAY = datetime(2026, 11, 9, tzinfo=UTC)
_SHOWN_DAYS = 30
"""Number of days before today that a page may name."""


@dataclass(frozen=True)
class Home:
    """A scratch home with a project, and a terminal in it."""

    path: Path
    project: Path
    screen: Screen
    today: datetime

    def ago(self, days: int, hour: int, minute: int) -> datetime:
        """Return a time of day some days ago."""
        return self.today - timedelta(days=days) + timedelta(hours=hour, minutes=minute)

    def add_transcript(self, transcript: TranscriptBuilder) -> Path:
        """Write a transcript to the client's folder of the project."""
        folder = self.path / ".claude/projects" / project_name(str(self.project))
        return transcript.write(folder / f"{transcript.session_id}.jsonl")

    def normalize(self, text: str) -> str:
        """Replace the home and the dates with those of a page."""
        text = text.replace(str(self.path), SHOWN_HOME)
        text = text.replace(project_name(str(self.path)), project_name(SHOWN_HOME))
        shift = SHOWN_TODAY - self.today
        dates = (self.today - timedelta(days=n) for n in range(-1, _SHOWN_DAYS))
        days = {f"{day:%Y-%m-%d}": f"{day + shift:%Y-%m-%d}" for day in dates}
        return re.sub(r"\d{4}-\d\d-\d\d", lambda match: days.get(match[0], match[0]), text)


@contextmanager
def open_home(project: str, *, python: Path | None = None, programs: Mapping[str, str] | None = None) -> Iterator[Home]:
    """Create a home with a project.

    Shell scripts in `programs` come first on the path, then the programs beside `python`.
    """
    home = Path(tempfile.mkdtemp(prefix="", dir="/tmp")).resolve()
    scratch = Path(tempfile.mkdtemp())
    try:
        (home / project).mkdir()
        (scratch / "bin").mkdir()
        for name, script in (programs or {}).items():
            program = scratch / "bin" / name
            program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            program.chmod(0o755)
        path = [str(scratch / "bin"), str((python or Path(sys.executable)).parent)]
        environment = {
            "HOME": str(home),
            "PATH": os.pathsep.join([*path, os.environ["PATH"]]),
            "TOOLSPAN_NO_CACHE": "1",
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
        }
        with open_screen(scratch, home / project, environment) as screen:
            today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
            yield Home(home, home / project, screen, today)
    finally:
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(scratch, ignore_errors=True)


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this source."""
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(folder), str(ROOT)],
        check=True,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    (wheel,) = folder.glob("toolspan-*.whl")
    return wheel


def bare_python(folder: Path) -> Path:
    """Create a virtual environment with our dependencies but without toolspan, offline."""
    venv.create(folder / "venv", symlinks=True)
    packages = folder / "packages"
    packages.mkdir()
    for site_packages in filter(Path.is_dir, map(Path, site.getsitepackages())):  # Debian names some that do not exist
        for path in site_packages.iterdir():
            if path.suffix != ".pth" and not path.name.startswith("toolspan"):
                (packages / path.name).symlink_to(path)
    (target,) = (folder / "venv").glob("lib/python*/site-packages")
    (target / "packages.pth").write_text(f"{packages}\n", encoding="utf-8")
    return folder / "venv/bin/python"
