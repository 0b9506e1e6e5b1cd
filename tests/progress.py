"""Progress of a long test run: how many tests, about how long, a line every few seconds, and each failure at once.

    pytest -p tests.progress [--file-seconds 2] [--record-durations]

`tests/durations.json` has the seconds that each test file takes, and those of the whole run on two quiet cores. A
run with `--record-durations` writes it anew. `--file-seconds` leaves out files that take longer.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Generator, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.optional import MISSING

DURATIONS = Path(__file__).with_name("durations.json")
LINE_SECONDS = 5
EXPECTED_SHARE = 0.1
"""The share of the run from which on its own speed counts more than the recorded one."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help=f"write {DURATIONS.name}")
    parser.addoption("--file-seconds", type=float, help="leave out test files that take longer")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # workers report to the process that started them
        config.pluginmanager.register(Progress(config), "toolspan-progress")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    limit = config.getoption("file_seconds")
    if limit is None or collection_path.suffix != ".py":
        return None
    return load_durations()["files"].get(str(collection_path.relative_to(config.rootpath)), 0) > limit or None


@cache
def load_durations() -> dict[str, Any]:
    result: dict[str, Any] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    return result


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _minutes(seconds: float) -> str:
    return f"{seconds // 60:.0f}:{seconds % 60:02.0f}"


class Progress:
    """Prints lines instead of a letter for each test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        recorded = load_durations()
        self._recorded: dict[str, float] = recorded["files"]
        self._speed = recorded["seconds"] / sum(self._recorded.values())
        self._weights: dict[str, float] = {}
        """The expected seconds of one test of each file."""
        self._sum = self._done = 0.0
        self._tests = 0
        self._outcomes: Counter[str] = Counter()
        self._durations: Counter[str] = Counter()
        self._start = self._last_line = time.monotonic()

    def _write(self, line: str, **markup: bool) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        assert terminal is not None
        terminal.write_line(line, **markup)
        terminal.flush()  # a file or a pipe shows the progress, too

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        if MISSING:
            self._write(f"Not installed: {', '.join(MISSING)}. Their tests are skipped; make test-all runs them.")
        self._write("Collecting tests ...")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._begin(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        self._begin(ids)

    def _begin(self, ids: Iterable[str]) -> None:
        counts = Counter(map(_file, ids))
        if self._tests or not counts:
            return
        self._tests = counts.total()
        average = sum(self._recorded.values()) / len(self._recorded)
        self._weights = {file: self._recorded.get(file, average) / count for file, count in counts.items()}
        self._sum = sum(self._weights[file] * count for file, count in counts.items())
        need = _minutes(self._speed * self._sum)
        self._write(f"{self._tests:,} tests. Two quiet cores need about {need} minutes.")
        self._start = self._last_line = time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> Generator[None, tuple[str, str, object], tuple[str, str, object]]:
        category, _, _ = yield
        return category, "", ""  # counted, but not printed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = _file(report.nodeid)
        self._durations[file] += report.duration  # type: ignore[assignment]
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = f": {crash.message.partition(chr(10))[0]}" if crash else ""
            self._write(
                f"FAILED {report.nodeid}{'' if report.when == 'call' else f' ({report.when})'}{reason}", red=True
            )
            self._outcomes["failed"] += 1
        if report.when != "teardown":
            return
        self._outcomes["finished"] += 1
        self._done += self._weights.get(file, 0)
        now = time.monotonic()
        if now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            self._print_progress(now - self._start)

    def _print_progress(self, elapsed: float) -> None:
        share = min(self._done / self._sum, 1)
        total = (EXPECTED_SHARE * self._speed * self._sum + elapsed) / (EXPECTED_SHARE + share)
        failed = f", {self._outcomes['failed']} failed" if self._outcomes["failed"] else ""
        self._write(
            f"{share:4.0%}  {self._outcomes['finished']:>6,} of {self._tests:,} tests{failed}  "
            f"{_minutes(elapsed)}, about {_minutes(total * (1 - share))} left"
        )

    def pytest_sessionfinish(self) -> None:
        if self._config.getoption("record_durations"):
            recorded = {
                "seconds": round(time.monotonic() - self._start),
                "files": {file: round(seconds, 1) for file, seconds in sorted(self._durations.items())},
            }
            DURATIONS.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
