"""Every view opens without errors and barriers, in both themes and on a phone, and follows changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.web.conftest import Browser, running
from toolspan.reading import sample
from toolspan.testing import TranscriptBuilder

SESSION = "5f0c1d7e-2b64-4c1b-9a53-0d6f1c7b8e21"
OTHER = "3c5a7e91-d0b4-42f6-a8e3-6b1d9f0c2e47"
CALL = "toolu_01ohax96vbDCt9B7TgtfcVLe"
VIEWS = (
    "/", "/sessions", f"/session/{SESSION}", f"/call/{CALL}?session={SESSION}", "/errors", "/usage", "/files", "/calls",
    "/sessions?q=error", "/errors?group=e01b88bfb7", "/usage?by=context",
    f"/compare?a={SESSION}&b={OTHER}", "/live", "/doctor",
)  # fmt: skip


@pytest.mark.parametrize("path", VIEWS)
def test_a_view_has_no_errors_and_no_barriers(browser: Browser, path: str) -> None:
    browser.run("localStorage.setItem('theme', 'light')")
    browser.open(path, "main h1")
    assert browser.problems() == []
    assert browser.barriers() == []


@pytest.mark.parametrize("path", VIEWS)
def test_a_view_fits_a_phone_and_is_legible_in_the_dark(browser: Browser, path: str) -> None:
    browser.run("localStorage.setItem('theme', 'dark')")
    browser.resize(390, 800)
    browser.open(path, "main h1")
    assert browser.run("return document.documentElement.scrollWidth") <= 390
    assert browser.problems() == []
    assert browser.barriers("color-contrast") == []
    browser.resize(1360, 900)


@pytest.mark.parametrize(
    ("path", "entries"),
    [
        ("/doctor", ["Doctor"]),
        (f"/doctor?session={SESSION}&tab=share", ["Sessions"]),
        ("/sessions?q=error", []),
        (f"/session/{SESSION}", ["Sessions"]),
    ],
)
def test_the_menu_marks_the_entry_that_a_page_belongs_to(browser: Browser, path: str, entries: list[str]) -> None:
    browser.open(path, "main h1")
    assert browser.texts("nav [aria-current]") == entries


def test_a_view_has_only_its_own_style_sheets(browser: Browser) -> None:
    browser.open(f"/session/{SESSION}", ".session .item.call")
    browser.click("nav a[href='/']")
    browser.wait("document.querySelector('.overview .tiles')")
    active = (
        "[...document.querySelectorAll('link[data-view]')].filter((link) => !link.disabled).map(({ href }) => href)"
    )
    assert [address.rpartition("/")[2] for address in browser.run(f"return {active}")] == ["overview.css"]


RECORD_REQUESTS = """const original = window.fetch; window.requested = [];
window.fetch = (url, options) => { window.requested.push(String(url)); return original(url, options); }"""


@pytest.mark.parametrize("path", ["/", "/?days=all", "/sessions", "/sessions?q=due", "/session/:id"])
def test_a_page_asks_for_all_data_that_it_preloads(browser: Browser, path: str) -> None:
    script = browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": RECORD_REQUESTS})
    try:
        browser.open(path.replace(":id", SESSION))
        preloaded = browser.run(
            "return [...document.querySelectorAll('link[rel=preload]')].map((link) => link.getAttribute('href'))"
        )
        browser.wait(f"{json.dumps(preloaded)}.every((address) => window.requested.includes(address))")
    finally:
        browser.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def test_escape_closes_a_dialog_and_a_key_takes_the_focus_from_the_navigation(browser: Browser) -> None:
    browser.open("/sessions", "table.rows tbody tr.link")
    browser.press("?")
    browser.wait("document.querySelector('dialog[open]')")
    browser.press("\ue00c")
    browser.wait("!document.querySelector('dialog')")
    browser.run("document.querySelector('nav a[href=\"/usage\"]').focus()")
    browser.press("j", "\ue007")
    browser.wait("location.pathname.startsWith('/session/')")


def test_a_match_in_a_result_is_marked_where_it_is(tmp_path: Path, empty_browser: Browser) -> None:
    builder = TranscriptBuilder(session_id=SESSION).prompt("Count")
    call = builder.call("Bash", {"command": "seq 5000"})
    builder.result(call, "\n".join(f"line {number}" for number in range(5000)) + "\nneedle")
    builder.write(tmp_path / "s.jsonl")
    with running(tmp_path / "run", tmp_path / "s.jsonl") as server:
        empty_browser.sign_in(server)
        empty_browser.open("/sessions?q=needle", "tr.hit")
        empty_browser.click("tr.hit a.snippet")
        empty_browser.wait("CSS.highlights.get('hit')?.size")
        empty_browser.wait("document.querySelector('.panel .code.ansi')?.scrollTop > 1000")


def test_errors_can_be_limited_to_a_period(browser: Browser) -> None:
    browser.open("/errors", "table.rows tbody tr.link")
    browser.click("[aria-label=Period] button:first-child")
    browser.wait("location.search.includes('since=')")
    browser.wait("document.querySelector('[aria-label=Period] button:first-child').ariaPressed === 'true'")
    browser.click("[aria-label=Period] button:last-child")
    browser.wait("!location.search.includes('since=') && document.querySelector('table.rows tbody tr.link')")


def test_a_new_session_appears_without_a_reload(empty_browser: Browser, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    shutil.copytree(sample.archive(), archive)
    with running(tmp_path / "run", archive) as server:
        empty_browser.sign_in(server)
        empty_browser.open("/sessions", "table.rows tbody tr.link")
        assert empty_browser.texts("[data-test=count]") == ["10 sessions"]
        builder = TranscriptBuilder(session_id="99999999-2b64-4c1b-9a53-0d6f1c7b8e21")
        builder.prompt("One more")
        builder.write(archive / "claude" / "projects" / "-home-mira-tide" / f"{builder.session_id}.jsonl")
        empty_browser.wait("document.querySelector('[data-test=count]').innerText === '11 sessions'")
