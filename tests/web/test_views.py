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
WEEK = "since=2026-11-02T00:00:00Z&until=2026-11-09T00:00:00Z"
VIEWS = (
    "/", "/sessions", f"/session/{SESSION}", f"/call/{CALL}?session={SESSION}", "/errors", "/usage", "/files", "/calls",
    "/sessions?q=error", "/errors?group=e01b88bfb7", "/usage?by=context",
    f"/compare?a={SESSION}&b={OTHER}", "/live", "/doctor", "/lists", "/lists?about=denials", "/lists?about=hooks",
    "/lists?about=risky", "/lists?about=agents", "/lists?about=failures", "/lists?about=disk",
    f"/digest?{WEEK}", "/digest", f"/session/{OTHER}?text=read",
)  # fmt: skip


FIND_CLIPPED_ROWS = """
const isOutside = (part, row) => part.bottom > row.bottom + 1 || part.right > row.right + 1;
return [...document.querySelectorAll('table.small tbody tr, .item')]
  .filter((row) => [...row.querySelectorAll('.facts, .second-line, .took')]
    .some((part) => isOutside(part.getBoundingClientRect(), row.getBoundingClientRect())))
  .map((row) => row.innerText);"""
"""Returns the rows that hide the end of their second line or their duration."""
FIND_OVERPRINTED = """
return [...document.querySelectorAll('table.small .facts > span')]
  .filter((part) => part.scrollWidth > part.clientWidth + 1 && getComputedStyle(part).overflowX === 'visible')
  .map((part) => part.innerText);"""
"""Returns the parts of second lines whose text is drawn over the next part."""


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
    browser.wait("!document.querySelector('main .loading')")
    assert browser.run(FIND_CLIPPED_ROWS) == []
    assert browser.run(FIND_OVERPRINTED) == []
    assert browser.run("return document.querySelector('[data-test=zone]').clientWidth") > 0
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
            "return document.querySelector('script[data-addresses]').dataset.addresses.split(' ').filter(Boolean)"
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


def test_a_command_of_several_lines_is_listed_on_one(tmp_path: Path, empty_browser: Browser) -> None:
    builder = TranscriptBuilder(session_id=SESSION).prompt("Build")
    builder.result(builder.call("Bash", {"command": "cd /srv\n  make all\n"}), "done")
    builder.write(tmp_path / "s.jsonl")
    with running(tmp_path / "run", tmp_path / "s.jsonl") as server:
        empty_browser.sign_in(server)
        empty_browser.open("/calls", "table.rows tbody tr.link")
        assert any("cd /srv ⏎ make all" in text for text in empty_browser.texts("table.rows tbody tr.link"))


def test_errors_can_be_limited_to_a_period(browser: Browser) -> None:
    browser.open("/errors", "table.rows tbody tr.link")
    browser.click("[aria-label=Period] button:first-child")
    browser.wait("location.search.includes('days=')")
    browser.wait("document.querySelector('[aria-label=Period] button:first-child').ariaPressed === 'true'")
    browser.click("[aria-label=Period] button:last-child")
    browser.wait("!location.search.includes('days=') && document.querySelector('table.rows tbody tr.link')")


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


def test_back_returns_to_the_place_and_the_row(browser: Browser) -> None:
    browser.open("/calls", "table.rows tbody tr.link")
    browser.run("document.querySelector('.table-box').scrollTop = 700")
    browser.wait("document.querySelector('tr.link[aria-rowindex=\"20\"]')")
    browser.click('tr.link[aria-rowindex="20"]')
    browser.wait("document.querySelector('.call-detail')")
    browser.driver.back()
    browser.wait("document.querySelector('.table-box')?.scrollTop === 700")
    browser.wait("document.querySelector('tr.current')?.ariaRowIndex === '20'")
    browser.open("/?days=all", ".causes")
    browser.wait("!document.querySelector('.skeleton')")
    browser.run("document.querySelector('main').scrollTop = 300")
    browser.click("nav a[href='/usage']")
    browser.wait("document.querySelector('.usage')")
    browser.driver.back()
    browser.wait("document.querySelector('main').scrollTop === 300")


def test_keys_move_the_focus_to_the_row(browser: Browser) -> None:
    browser.open("/sessions", "table.rows tbody tr.link")
    browser.press("j", "j", "j", "k")
    browser.wait("document.activeElement.ariaRowIndex === '3' && document.activeElement.ariaCurrent === 'true'")
    assert browser.barriers() == []


@pytest.mark.parametrize("days", ["1", "yesterday", "7", "30", "90", "quarter"])
def test_a_period_in_an_address_moves_on_with_the_days(browser: Browser, days: str) -> None:
    for path in ("/calls", "/sessions", "/errors", "/usage", "/"):
        browser.open(f"{path}?days={days}", "[aria-label=Period]")
        browser.wait("document.querySelector('[aria-label=Period] [aria-pressed=true]')")
        assert "since=" not in browser.run("return location.search")
    assert browser.problems() == []


def test_days_are_chosen_and_shown_in_one_zone(browser: Browser) -> None:
    browser.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Pacific/Auckland"})
    try:
        for zone, tz in (("local", "Pacific/Auckland"), ("UTC", "UTC")):
            browser.run(f"localStorage.setItem('toolspan-zone', '{zone}')")
            browser.open("/usage", "table.rows tbody tr.link")
            rows = browser.server.request(
                "/api/usage?by=day", Authorization=f"Bearer {browser.server.secret}", X_Toolspan_Zone=tz
            )
            days = sorted((row["period"] for row in json.loads(rows[2])), reverse=True)
            assert browser.texts("tr.link td:first-child") == days
            cost = browser.texts("tr.link td:last-child")[0]
            browser.click("tr.link td:first-child a")  # the sessions of that day
            browser.wait("location.search.includes('by=session') && document.querySelector('[data-test=cost]')")
            browser.wait(f"document.querySelector('[data-test=cost]').innerText === {json.dumps(cost.lstrip('+ '))}")
    finally:
        browser.run("localStorage.removeItem('toolspan-zone')")
        browser.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})
    assert browser.problems() == []


def test_ctrl_k_goes_to_a_session_a_cause_a_file_or_a_view_by_its_name(browser: Browser) -> None:
    from selenium.webdriver import ActionChains, Keys

    file = browser.server.get("files")[0]["path"].rpartition("/")[2]
    for typed, place in (
        ("due dates", f"/session/{SESSION}"), ("usage", "/usage"), (file, "/files"), ("command failed", "/errors"),
    ):  # fmt: skip
        browser.open("/live", ".live h1")
        ActionChains(browser.driver).key_down(Keys.CONTROL).send_keys("k").key_up(Keys.CONTROL).perform()
        browser.wait("document.querySelector('.palette[open]')")
        browser.press(*typed)
        browser.wait("document.querySelector('.palette li')")
        kinds = {"/errors": "cause", "/files": "file", "/usage": "view"}
        kind = kinds.get(place, "session")
        found = (
            f"[...document.querySelectorAll('.palette li')].find((row) => row.firstElementChild.innerText === '{kind}')"
        )
        browser.wait(found)
        assert browser.barriers() == []
        if kind == "session":
            browser.press(Keys.ENTER)
        else:
            browser.run(f"{found}.click()")
        browser.wait(f"location.pathname === {json.dumps(place)}")
    assert browser.problems() == []


def test_lists_have_the_rows_of_the_commands(browser: Browser) -> None:
    for about in ("prompts", "denials", "hooks", "risky", "agents"):
        rows = browser.server.get(about, **({"every": "1"} if about == "denials" else {}))
        assert rows, about
        browser.open(f"/lists?about={about}", "table.rows tbody tr.link")
        browser.wait("document.querySelector('[data-test=count]')")
        assert browser.texts("[data-test=count]")[0].split()[0] == str(len(rows))
        browser.press("j", "\ue007")
        browser.wait("['/session/', '/call/'].some((start) => location.pathname.startsWith(start))")
    assert browser.problems() == []


@pytest.mark.parametrize(
    ("about", "question", "groupings"),
    [
        ("failures", "errors", ["program", "tool", "kind", "client-version", "project", "session", "day"]),
        ("disk", "disk", ["project", "client", "age", "session"]),
    ],
)
def test_lists_have_a_row_per_group(browser: Browser, about: str, question: str, groupings: list[str]) -> None:
    for by in groupings:
        rows = browser.server.get(question, by=by)
        assert rows
        browser.open(f"/lists?about={about}&by={by}", "table.rows tbody tr")
        assert browser.texts("[data-test=count]")[0].split()[0] == str(len(rows))
        assert browser.texts("[aria-label=By] [aria-pressed=true]") == [by.replace("-", " ")]
    assert browser.problems() == []


@pytest.mark.parametrize("by", ["program", "tool", "kind"])
def test_a_row_of_failures_leads_to_its_causes(browser: Browser, by: str) -> None:
    browser.open(f"/lists?about=failures&by={by}", "table.rows tbody tr")
    cells = browser.texts("tr[aria-rowindex='2'] td")
    browser.click("tr[aria-rowindex='2'] a")
    browser.wait("document.querySelector('[data-test=unsuccessful]')")
    assert browser.texts("[data-test=unsuccessful]")[0].split()[0] == cells[1]


@pytest.mark.parametrize("by", ["client", "project", "session", "day"])
def test_a_row_of_failures_leads_to_its_calls(browser: Browser, by: str) -> None:
    row = browser.server.get("errors", by=by)[0]
    day = {"since": f"{row['name']}T00:00:00Z", "until": f"{row['name']}T23:59:59Z"}
    assert row["sessions"] <= len(browser.server.get("sessions"))
    groups = browser.server.get("errors", **(day if by == "day" else {by: row["name"]}))
    later = sum(group["background"] for group in groups)  # their calls succeeded, so they are not among those listed
    browser.run("localStorage.setItem('toolspan-zone', 'UTC')")
    try:
        browser.open(f"/lists?about=failures&by={by}", "table.rows tbody tr")
        browser.click("tr[aria-rowindex='2'] a")
        browser.wait("document.querySelector('[data-test=unsuccessful]')")
        assert browser.texts("[data-test=unsuccessful]") == [f"{row['unsuccessful'] - later} unsuccessful"]
    finally:
        browser.run("localStorage.removeItem('toolspan-zone')")


def test_the_digest_has_the_numbers_of_the_command_and_leads_on(browser: Browser) -> None:
    since, until = "2026-11-02T00:00:00Z", "2026-11-09T00:00:00Z"
    digest = browser.server.get("digest", since=since, until=until)
    browser.open(f"/digest?since={since}&until={until}", ".tiles")
    figures = browser.texts(".tile .figure")
    assert figures[:3] == [str(digest[name]) for name in ("sessions", "calls", "unsuccessful")]
    assert browser.texts(".full .steps .step") == [cause["step"] for cause in digest["causes"]]
    assert digest["causes"] and digest["projects"] and digest["hooks"] and digest["context"]
    browser.click(".full .steps a")
    browser.wait("document.querySelector('[data-test=group-count]')")
    assert browser.texts("[data-test=group-count]") == [str(digest["causes"][0]["count"])]
    browser.open("/", "a[href='/digest']")
    browser.click("a[href='/digest']")
    browser.wait("document.querySelector('[data-test=period]')")
    browser.run("[...document.querySelectorAll('[aria-label=Period] button')][1].click()")
    browser.wait("location.search === '?days=week'")
    browser.wait("document.querySelector('[data-test=period]')")
    assert browser.problems() == []


def test_a_row_without_an_address_opens_nothing(browser: Browser) -> None:
    browser.open("/lists?about=disk&by=age", "table.rows tbody tr")
    browser.press("j", "\ue007")
    browser.wait("document.querySelector('tr.current')")
    browser.click("tr.current td")
    assert browser.run("return location.pathname") == "/lists"


def test_a_star_and_a_note_stay_with_the_session(browser: Browser) -> None:
    browser.open(f"/session/{SESSION}", ".star")
    browser.click(".star")
    browser.wait("document.querySelector('.star').ariaPressed === 'true'")
    browser.click("button.note-text")
    browser.wait("document.activeElement.matches('input.note-text')")
    browser.press("it worked\ue007")
    browser.wait("document.querySelector('button.note-text')?.innerText === 'it worked'")
    browser.open("/sessions?starred=yes", "tr.link")
    assert len(browser.texts("tr.link")) == 1
    assert "it worked" in browser.texts("tr.link .second-line")[0]
    assert browser.barriers() == []
    browser.click("tr.link .star")
    browser.wait("!document.querySelector('tr.link')")
    assert browser.problems() == []


def test_reading_folds_the_calls_between_messages(browser: Browser) -> None:
    browser.open(f"/session/{SESSION}?text=read", ".item.message .markdown")
    assert browser.texts(".item.call") == []
    browser.click(".item.fold button")
    browser.wait("document.querySelector('.item.call')")


def test_a_link_to_a_call_opens_it(browser: Browser) -> None:
    browser.open(f"/call/{CALL}?session={SESSION}", ".call-detail")
    browser.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    browser.run("[...document.querySelectorAll('.copies button')].find((b) => b.innerText === 'Copy link').click()")
    browser.wait("window.copied")
    link = browser.run("return window.copied")
    assert link.startswith(browser.server.base)
    browser.open(link.removeprefix(browser.server.base), ".call-detail")
    assert CALL in browser.driver.current_url


def test_a_tooltip_is_shown_at_once_and_the_text_stays_in_the_page(browser: Browser) -> None:
    from selenium.webdriver import ActionChains

    browser.open("/?days=all", ".bars a.column:not(.none)")
    column = browser.driver.find_element("css selector", ".bars a.column:not(.none)")
    title = column.get_attribute("title")
    ActionChains(browser.driver).move_to_element(column).perform()
    browser.wait(f"document.querySelector('.tooltip:not([hidden])')?.textContent === {json.dumps(title)}")
    ActionChains(browser.driver).move_to_element(browser.driver.find_element("tag name", "h1")).perform()
    browser.wait("document.querySelector('.tooltip').hidden")
    assert column.get_attribute("title") == title
