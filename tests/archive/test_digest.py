"""`toolspan digest`: a week compared with the week before it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.command import one_row, run
from toolspan import Archive
from toolspan.archive.clock import NOW_VARIABLE
from toolspan.errors import InvalidFilter
from toolspan.testing import TranscriptBuilder, claude_results

NOW = datetime(2026, 3, 16, 8, tzinfo=UTC)
FREE = {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
HOSTILE = "<script>alert(1)</script>\x1b[2J"


def write_week(root: Path, name: str, days_ago: int, *, tokens: int, failures: tuple[str, ...], cwd: str) -> None:
    builder = TranscriptBuilder(session_id=name, cwd=cwd, start=NOW - timedelta(days=days_ago), version="2.0.65")
    builder.prompt("go")
    for text in failures:
        call = builder.call("Bash", {"command": "make lamp"}, after_ms=1_000)
        body = claude_results.Body(content=f"Exit code 2\nmake: *** {text}", is_error=True)
        builder.usage(**FREE).result(call, body, after_ms=2_000)
    builder.text("done", after_ms=1_000)
    builder.usage(**{**FREE, "input_tokens": tokens})
    builder.write(root / f"{name}.jsonl")


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    monkeypatch.setenv(NOW_VARIABLE, NOW.isoformat())
    write_week(tmp_path, "aaa1", 10, tokens=100_000, failures=("no bulb", "no wire"), cwd="/home/ada/lamp")
    write_week(tmp_path, "bbb2", 3, tokens=200_000, failures=("no wire", "no wire", HOSTILE), cwd="/home/ada/lamp")
    write_week(tmp_path, "ccc3", 2, tokens=50_000, failures=(), cwd="/home/ada/moth")
    write_week(tmp_path, "ddd4", 30, tokens=900_000, failures=("too old",), cwd="/home/ada/lamp")
    return Archive(tmp_path)


def test_the_last_seven_days_are_compared_with_the_seven_before(archive: Archive) -> None:
    digest = archive.digest()

    assert (digest.until, digest.since) == (NOW, NOW - timedelta(days=7))
    assert (digest.sessions, digest.calls, digest.calls_before) == (2, 3, 2)
    assert (digest.unsuccessful, digest.unsuccessful_before) == (3, 2)
    costs = {row.project: (row.cost_usd, row.cost_before_usd) for row in digest.projects}
    lamp, moth = costs["/home/ada/lamp"], costs["/home/ada/moth"]
    assert lamp[0] == pytest.approx(2 * lamp[1])
    assert moth[1] == 0
    assert digest.cost_usd == pytest.approx(lamp[0] + moth[0])
    assert [cause.count for cause in digest.causes] == [2, 1]
    assert "no wire" in (digest.causes[0].message or "")
    assert all(cause.step for cause in digest.causes)
    assert ["no bulb" in (cause.message or "") for cause in digest.gone] == [True]
    assert ["alert" in (cause.message or "") for cause in digest.new] == [True]


def test_a_period_can_be_chosen_and_calls_cannot(archive: Archive) -> None:
    (root,) = archive.names
    early = archive.digest(since="2026-03-02", until="2026-03-08")

    assert (early.calls, early.calls_before) == (2, 0)
    assert one_row(run("digest", root, "--project", "moth", "--json"))["calls"] == 0
    with pytest.raises(InvalidFilter):
        archive.digest(tool="Bash")
    with pytest.raises(InvalidFilter):
        archive.digest(since="2026-03-08", until="2026-03-02")


def test_the_page_has_the_same_rows_and_runs_nothing(archive: Archive, tmp_path: Path) -> None:
    (root,) = archive.names
    page = tmp_path / "week.html"
    run("digest", root, "--html", "-o", page)
    html = page.read_text(encoding="utf-8")
    printed = run("digest", root, env={"COLUMNS": "150"}).stdout

    for title in ("Cost by project", "Worst causes, and one step for each", "New", "Gone"):
        assert f"<h2>{title}</h2>" in html
        assert f"\n{title}\n" in printed
    assert "<script" not in html
    assert "\x1b" not in html + printed
    assert "/home/ada/lamp (+100%)" in html
    assert "/home/ada/lamp (+100%)" in printed


def test_an_archive_without_calls_has_an_empty_digest(tmp_path: Path) -> None:
    digest = Archive(tmp_path).digest()

    assert (digest.calls, digest.projects, digest.causes) == (0, (), ())


def test_two_named_periods_are_compared(archive: Archive) -> None:
    (root,) = archive.names
    comparison = archive.compare("2026-02", "2026-03")

    assert (comparison.a.calls, comparison.b.calls) == (1, 5)
    assert (comparison.a.sessions, comparison.b.sessions) == (1, 3)
    assert one_row(run("compare", "2026-02", "2026-03", root, "--json"))["b"]["calls"] == 5


def test_the_overview_can_begin_at_any_time(archive: Archive) -> None:
    assert archive.overview().overview.calls == 3
    assert archive.overview(since="20d").overview.calls == 5
    assert archive.overview(since="24h").overview.calls == 0
    assert (
        "write --since after the command: toolspan errors --since 1h" in run("--since", "1h", "errors", code=2).stderr
    )
