"""Shared fixtures of the MCP server tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    result = tmp_path / "project"
    result.mkdir()
    return result
