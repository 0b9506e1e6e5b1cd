"""What every test runs under: the markers, and how hard hypothesis looks."""

import os

import pytest
from hypothesis import HealthCheck, settings

# No deadlines: a busy machine is not a bug. `ci` draws the same examples every time.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "soak",
    deadline=None,
    max_examples=5_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure(config: pytest.Config) -> None:
    for marker in (
        "requirement(id): the promise in requirements.toml that this test keeps",
        "slow: left out of `make test`, run by `make soak`",
    ):
        config.addinivalue_line("markers", marker)
