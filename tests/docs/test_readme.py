"""The output in the README is what the commands print."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks
from toolspan.reading.sample import archive

ANY_LINES = "…"
CONSOLE = [block for block in blocks("README.md") if block.language == "console" and "make " not in block.text]


def commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of a block, each with its output."""
    command, output = "", list[str]()
    for line in block.text.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, output
            command, output = line.removeprefix("$ "), []
        else:
            output.append(line)
    yield command, output


def matches(expected: list[str], printed: list[str]) -> bool:
    """Return whether the output fits; a line with an ellipsis matches any lines."""
    if not expected:
        return not printed
    if expected[0] == ANY_LINES:
        return any(matches(expected[1:], printed[start:]) for start in range(len(printed) + 1))
    return bool(printed) and expected[0] == printed[0] and matches(expected[1:], printed[1:])


def test_the_readme_shows_output() -> None:
    assert any(output for block in CONSOLE for _, output in commands(block))


@pytest.mark.parametrize("block", CONSOLE, ids=lambda block: block.name)
def test_commands_print_what_the_readme_shows(block: Block, tmp_path: Path) -> None:
    shutil.copytree(archive() / "claude", tmp_path / ".claude")
    environment = {
        "HOME": str(tmp_path),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TZ": "UTC",
        "LANG": "C.UTF-8",
        "COLUMNS": "90",
        "TOOLSPAN_NO_CACHE": "1",
    }
    for command, expected in commands(block):
        if not expected:
            continue
        result = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        printed = [line.rstrip() for line in result.stdout.splitlines()]
        assert matches(expected, printed), result.stdout
