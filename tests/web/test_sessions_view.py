"""The Sessions and Session views in a real browser."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from tests.web.conftest import Browser, command_rows, running
from toolspan.reading import sample
from toolspan.testing import RolloutBuilder


def test_sessions_show_the_numbers_of_the_command(browser: Browser) -> None:
    rows = sorted(command_rows("sessions", sample.archive()), key=lambda row: row["ended"], reverse=True)
    browser.open("/sessions", "table.rows tbody tr.link")
    assert browser.texts("[data-test=count]") == [f"{len(rows)} sessions"]
    assert browser.texts("tbody tr.link td:nth-child(5)") == [str(row["calls"]) for row in rows]
    assert browser.texts("tbody tr.link td:nth-child(6)") == [str(row["unsuccessful"]) for row in rows]
    titles = [(row["title"] or row["first_prompt"]).strip().split("\n")[0] for row in rows]
    assert browser.texts("tbody tr.link td:nth-child(1) a") == titles
    assert browser.problems() == []


def test_sessions_and_usage_show_the_same_tokens_for_a_client_whose_input_contains_cached_ones(
    tmp_path: Path, empty_browser: Browser
) -> None:
    RolloutBuilder().prompt("Count").tokens(5000, 100, cached=4000).write(tmp_path / "codex")
    with running(tmp_path / "ui", tmp_path / "codex") as server:
        empty_browser.sign_in(server)
        totals = []
        for path in ("/sessions", "/usage?metric=tokens"):
            empty_browser.open(path, "[data-test=tokens]")
            totals += empty_browser.texts("[data-test=tokens]")
        assert totals == ["5.1k tokens", "5.1k tokens"]


def test_active_time_is_the_time_of_the_command_without_idle_time(browser: Browser) -> None:
    (times,) = command_rows("time", sample.archive())
    active = {
        row["id"]: row["split"]["wall_ms"] - row["split"]["idle_ms"] - row["split"]["nothing_recorded_ms"]
        for row in times["by_session"]
    }
    rows = sorted(command_rows("sessions", sample.archive()), key=lambda row: active[row["id"]])
    browser.open("/sessions?sort=active", "table.rows tbody tr.link td:nth-child(4):not(:empty)")
    titles = [(row["title"] or row["first_prompt"]).strip().split("\n")[0] for row in rows]
    assert browser.texts("tbody tr.link td:nth-child(1) a") == titles
    shortest = active[rows[0]["id"]] / 1000
    assert browser.texts("tbody tr.link td:nth-child(4)")[0] == f"{shortest:.1f} s"
    assert 1 < shortest < 10


def test_order_and_filters_are_in_the_address(browser: Browser) -> None:
    rows = command_rows("sessions", sample.archive())
    browser.open("/sessions?sort=-calls&project=/home/mira/tide", "table.rows tbody tr.link")
    calls = sorted((row["calls"] for row in rows if row["project"] == "/home/mira/tide"), reverse=True)
    assert browser.texts("tbody tr.link td:nth-child(5)") == [str(count) for count in calls]
    browser.click("th:nth-child(5) button")
    browser.wait("location.search.includes('sort=calls')")
    browser.wait("document.querySelector('th:nth-child(5)').getAttribute('aria-sort') === 'ascending'")
    assert browser.texts("tbody tr.link td:nth-child(5)") == [str(count) for count in reversed(calls)]


def test_keys_choose_and_open_a_session_whose_calls_are_listed(browser: Browser) -> None:
    rows = command_rows("sessions", sample.archive())
    newest_first = sorted(rows, key=lambda row: datetime.fromisoformat(row["ended"]), reverse=True)
    browser.open("/sessions", "table.rows tbody tr.link")
    browser.press("j", "j")
    browser.wait("document.querySelectorAll('tr.link')[1].classList.contains('current')")
    browser.press("\ue007")
    browser.wait("document.querySelector('.session .item.call')")
    chosen = newest_first[1]
    assert browser.run("return location.pathname") == f"/session/{chosen['id']}"
    assert browser.texts("[data-test=calls]") == [f"{chosen['calls']} calls"]
    assert browser.problems() == []
