"""The names that `import toolspan` provides, and its cost."""

from __future__ import annotations

import subprocess
import sys

import toolspan

NOT_AT_IMPORT = {"click", "rich", "watchfiles", "backports"}


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter in which a warning is an error."""
    command = [sys.executable, "-I", "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True)


def reading_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions, each by name: the order ruff keeps."""
    rank = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return (rank, name)


def test_the_public_names_are_sorted() -> None:
    assert list(toolspan.__all__) == sorted(toolspan.__all__, key=reading_order)


def test_no_public_name_is_given_twice() -> None:
    assert len(set(toolspan.__all__)) == len(toolspan.__all__)


def test_every_public_name_can_be_imported() -> None:
    python(f"from toolspan import {', '.join(toolspan.__all__)}")


def test_importing_prints_nothing() -> None:
    done = python("import toolspan")

    assert (done.stdout, done.stderr) == ("", "")


def test_importing_loads_no_heavy_library() -> None:
    loaded = python("import sys, toolspan; print(*sys.modules)").stdout.split()

    assert NOT_AT_IMPORT.intersection(loaded) == set()
