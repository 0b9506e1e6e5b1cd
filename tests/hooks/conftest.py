"""Hooks run under asyncio, the backend the package is made for."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
