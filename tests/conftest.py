"""Settings of all tests: markers, hypothesis profiles, environment."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.fork_server import run_server
from tests.limits import TEST_LIMIT
from tests.optional import MISSING, MODULES

# No deadlines, because machines may be busy. `ci` draws the same examples every time.
settings.register_profile("default", deadline=None, max_examples=25)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True, max_examples=25)
settings.register_profile(
    "soak", deadline=None, max_examples=5_000, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
# For planted faults a failing example is enough; it is not shrunk.
settings.register_profile("mutants", deadline=None, derandomize=True, max_examples=50, phases=[Phase.generate])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

collect_ignore = [path for path, packages in MODULES.items() if {*packages} & {*MISSING}]
SLOW_PARTS = ("tables", "sandbox/test_escapes.py", "web", "crash", "journeys", "reading", "runtime", "sandbox")
"""The parts that take longest. They run first, so that no process waits for another at the end. The escapes do not run
beside other tests of the sandbox, which would hide their named pipes while they come and go.
"""

os.environ["GEMINI_CLI_HOME"] = "/nonexistent"  # tests do not read the chats of the user
os.environ["TZ"] = "UTC"  # commands print local times
time.tzset()
os.environ["TOOLSPAN_NO_CACHE"] = "1"  # tests do not write into the home folder of the user
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job; commands under test inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.pop("COLUMNS", None)  # pytest-xdist sets it, and commands would use it as their width


def pytest_configure(config: pytest.Config) -> None:
    for marker in (
        "requirement(id): the behaviour in requirements.toml that this test shows",
        "slow: left out of `make test`, run by `make soak`",
    ):
        config.addinivalue_line("markers", marker)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        name = item.nodeid.removeprefix("tests/")
        return next((n for n, part in enumerate(SLOW_PARTS) if name.startswith(part)), len(SLOW_PARTS))

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """Leave the imported modules out of garbage collection, which otherwise takes a fifth of the CPU time."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Let Python free the modules at its end; DuckDB would report them as leaks."""
    gc.unfreeze()


def _fail_stuck_test(_signal: int, _frame: FrameType | None) -> None:
    pytest.fail(f"The test did not end within {TEST_LIMIT} seconds.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that waits forever, so that tests need no time limits of their own."""
    if item.get_closest_marker("slow"):
        return (yield)
    signal.signal(signal.SIGALRM, _fail_stuck_test)
    signal.setitimer(signal.ITIMER_REAL, TEST_LIMIT, 1)  # again each second: code under test may catch the first one
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user of all clients, with `.claude`, `.codex` and `.gemini`."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / ".claude"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / ".codex"))
    monkeypatch.setenv("GEMINI_CLI_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="session")
def fork_server() -> Iterator[None]:
    """The server for commands that start with `fork_server.TOOLSPAN`."""
    with run_server():
        yield


@pytest.fixture
def anyio_backend() -> str:
    """The backend the product is measured on; others may be installed by what tests need."""
    return "asyncio"
