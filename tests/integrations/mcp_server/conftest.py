"""What all tests of the server share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The project in which a server works; what it records stands beside it."""
    found = tmp_path / "project"
    found.mkdir()
    return found
