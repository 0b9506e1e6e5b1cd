"""The commands of the README work, and print what it shows."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from toolspan.sample import archive

ROOT = Path(__file__).parent.parent.parent
ELSEWHERE = {"demo", "restore"}
"""Tested by themselves: the one takes long, the other wants to write into somebody's project."""


class Typed(NamedTuple):
    """A command, and the beginning of what it prints, up to a line of dots."""

    words: list[str]
    shown: list[str]


def typed() -> Iterator[Typed]:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```console\n(.*?)^```", readme, re.S | re.M):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            words = command.partition("#")[0].split()
            if words[0] == "toolspan" and not ELSEWHERE & set(words):
                yield Typed(words, output.partition("…\n")[0].splitlines())


@pytest.mark.parametrize("command", list(typed()), ids=lambda command: " ".join(command.words))
def test_a_command_of_the_readme_works(command: Typed, tmp_path: Path) -> None:
    shutil.copytree(archive() / "claude", tmp_path / ".claude")

    done = subprocess.run(
        [sys.executable, "-m", *command.words],
        capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "TZ": "UTC", "COLUMNS": "100"},
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    printed = [line.rstrip() for line in done.stdout.splitlines()]
    assert printed[: len(command.shown)] == command.shown
