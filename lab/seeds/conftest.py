"""Fixtures of the document examples."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.csv"
    path.write_text("tea,3\ncake,4\nsoup,6\n", encoding="utf-8")
    return path
