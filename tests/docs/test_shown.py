"""Commands that pages show with their output work, and print it."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from toolspan.sample import archive

ROOT = Path(__file__).parent.parent.parent
PAGES = {
    "README.md": 90,
    "docs/files.md": 88,
    "docs/flows.md": 88,
    "docs/permissions.md": 88,
    "docs/replay.md": 100,
    "docs/search.md": 88,
    "docs/time.md": 88,
}
"""Those whose commands are about the sample as if it were the user's own, and their columns."""
ELSEWHERE = {"demo", "restore"}
"""Tested by themselves: the one takes long, the other wants to write into somebody's project."""


class Typed(NamedTuple):
    """A command, and the beginning of what it prints, up to a line of dots."""

    words: list[str]
    shown: list[str]
    columns: int


def typed(page: str) -> Iterator[Typed]:
    text = (ROOT / page).read_text(encoding="utf-8")
    for block in re.findall(r"^```(?:console|text)?\n(.*?)^```", text, re.S | re.M):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            words = shlex.split(command.replace("~/", "./"), comments=True)
            if words[0] == "toolspan" and not ELSEWHERE & set(words):
                yield Typed(
                    words, re.split(r"^…\n", output, flags=re.M)[0].splitlines(), PAGES[page]
                )


@pytest.mark.parametrize(
    "command",
    [command for page in PAGES for command in typed(page)],
    ids=lambda command: " ".join(command.words),
)
def test_a_command_prints_what_its_page_shows(command: Typed, tmp_path: Path) -> None:
    shutil.copytree(archive() / "claude", tmp_path / ".claude")
    shutil.copytree(archive(), tmp_path / "archive")
    for transcript in archive().rglob("7e3f9c40*.jsonl"):
        shutil.copy(transcript, tmp_path)

    done = subprocess.run(
        [sys.executable, "-m", *command.words],
        capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "TZ": "UTC", "COLUMNS": str(command.columns)},
    )  # fmt: skip

    assert done.stderr == ""
    assert done.returncode in (0, 1)  # done; done, and there is something to tell
    printed = [line.rstrip() for line in done.stdout.splitlines()]
    assert printed[: len(command.shown)] == command.shown
