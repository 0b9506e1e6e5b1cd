"""Settings of the lab's own tests: the same as of all tests."""

from __future__ import annotations

from tests.conftest import (
    anyio_backend,
    fork_server,
    pytest_collection_finish,
    pytest_configure,
    pytest_runtest_call,
    user,
)

__all__ = [
    "anyio_backend",
    "fork_server",
    "pytest_collection_finish",
    "pytest_configure",
    "pytest_runtest_call",
    "user",
]
