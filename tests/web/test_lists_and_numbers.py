"""Overview, Sessions with search, Calls, Errors, Usage and Compare: numbers of the commands, links, keys, marks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.web.conftest import Browser, Server, command_rows, running
from toolspan.reading import sample
from toolspan.testing import TranscriptBuilder

ENTER = "\ue007"
FIRST, FORK = "91b7f3d2-4c08-4e6d-b2a7-5e8c0f1a7d34", "d48e2a06-9f1b-4d77-8c35-b60a7f2e1c98"
GROUP = "e01b88bfb7"  # two calls of Read
LOADED = "document.querySelector('[data-test=overview-calls]')?.innerText && !document.querySelector('.skeleton')"
CALL_COUNT = "Number(document.querySelector('[data-test=calls]')?.innerText.replace(/[^0-9]/g, ''))"


def test_marks_of_the_overview_lead_to_what_they_count(browser: Browser) -> None:
    (stats,) = command_rows("stats", sample.archive())
    browser.open("/?days=all")
    browser.wait(LOADED)
    assert browser.barriers() == []
    assert browser.texts("[data-test=overview-calls]") == [str(stats["calls"])]
    assert browser.texts("[data-test=sessions]") == [str(stats["sessions"])]
    failed = browser.texts("[data-test=overview-unsuccessful]")[0]
    assert int(failed) == stats["unsuccessful"]
    costs = sum(row["cost_usd"] for row in command_rows("usage", "--by", "day", sample.archive()))
    assert browser.texts("[data-test=overview-cost]") == [f"${costs:.2f}"]
    squares = browser.run(
        "return [...document.querySelectorAll('a.cell')].map((a) => [a.href, Number(a.dataset.calls)])"
    )
    assert sum(count for _, count in squares) == stats["calls"]
    causes = browser.run(
        "return [...document.querySelectorAll('.causes a')].map((a) => [a.href, parseInt(a.innerText)])"
    )
    latest = browser.run("return [...document.querySelectorAll('.latest a')].map((a) => a.pathname)")
    sessions = command_rows("sessions", "--sort", "-ended", sample.archive())
    assert latest == [f"/session/{row['id']}" for row in sessions[:12]]
    address, count = squares[0]
    browser.click("a.cell")
    browser.wait(f"{CALL_COUNT} === {count} && location.href === {json.dumps(address)}")
    browser.open("/calls?kind=shell", "tr.link")
    shell = [
        row
        for row in command_rows("calls", sample.archive())
        if row["kind"] == "shell" and row["state"] != "orphan_result"
    ]
    browser.wait(f"parseInt(document.querySelector('[data-test=calls]').innerText) === {len(shell)}")
    browser.open("/calls?unsuccessful=yes", "tr.link")
    assert browser.texts("[data-test=calls]") == [f"{failed} calls"]
    browser.open(causes[0][0].removeprefix(browser.server.base), "tr.link")
    assert browser.texts("[data-test=group-count]") == [str(causes[0][1])]
    server = stats["servers"][0]
    browser.open(f"/calls?server={server['server']}&unsuccessful=yes", "tr.link")
    assert browser.texts("[data-test=calls]") == [f"{server['unsuccessful']} calls"]
    assert browser.problems() == []


def test_a_search_shows_matches_in_context_and_opens_the_session_there(browser: Browser) -> None:
    matches = command_rows("search", "due", sample.archive())
    browser.open("/", "h1")
    browser.press("/")
    browser.press("due", ENTER)
    browser.wait("document.querySelectorAll('tr.hit mark').length")
    assert browser.texts("[data-test=count]") == [f"{len(matches)} matches"]
    assert {text.lower() for text in browser.texts("tr.hit mark")} == {"due"}
    browser.run("document.activeElement.blur()")
    browser.press("j", ENTER)
    browser.wait("location.pathname.startsWith('/session/')")
    parameter = f"call={matches[0]['call']}" if matches[0]["call"] else f"line={matches[0]['line']}"
    assert browser.run("return location.pathname") == f"/session/{matches[0]['session']}"
    assert parameter in browser.run("return location.search")
    browser.open("/sessions?q=due&in=message", "tr.hit")
    messages = command_rows("search", "due", "--in", "message", sample.archive())
    assert browser.texts("[data-test=count]") == [f"{len(messages)} matches"]


def test_two_rows_of_the_list_are_compared_and_the_numbers_are_those_of_the_command(browser: Browser) -> None:
    browser.open("/sessions?sort=title", "tr.link")
    browser.press("j", "c")
    browser.wait("document.querySelector('.banner') && location.search.includes('mark=')")
    browser.open(f"/sessions?mark={FIRST}", "tr.marked")
    browser.click(f"a.compare-with[href*='{FORK}']")
    browser.wait("document.querySelector('.parting') && document.querySelectorAll('.pairs').length > 3")
    assert browser.barriers() == []
    assert browser.run("return location.search") == f"?a={FIRST}&b={FORK}"
    (data,) = command_rows("compare", FIRST, FORK, sample.archive())
    assert f"same {data['parting']['shared_steps']} steps" in browser.texts(".parting")[0]
    rows = browser.texts(".pairs tbody tr")
    assert rows[0].split() == [
        "calls",
        str(data["a"]["calls"]),
        str(data["b"]["calls"]),
        f"+{data['difference']['calls']}",
    ]
    first, second = (sum(data[side]["tokens"].values()) / 1000 for side in ("a", "b"))
    assert next(row for row in rows if row.startswith("all")).split()[1:3] == [f"{first:.1f}k", f"{second:.0f}k"]
    browser.press("x")
    browser.wait(f"location.search === '?a={FORK}&b={FIRST}'")
    browser.click("#a")
    browser.run(
        "const a = document.querySelector('#a'); a.focus(); a.value = 'gauge'; a.dispatchEvent(new Event('input'))"
    )
    browser.wait("document.querySelectorAll('#a-list [role=option]').length === 1")
    browser.press(ENTER)
    browser.wait("location.search.startsWith('?a=3c5a7e91')")
    assert browser.problems() == []


def test_usage_has_the_totals_of_the_command_for_each_grouping(browser: Browser) -> None:
    for grouping in ("day", "model", "block", "session"):
        rows = command_rows("usage", "--by", grouping, sample.archive())
        browser.open(f"/usage?by={grouping}", "tr td")
        assert browser.texts("[data-test=cost]") == [f"${sum(row['cost_usd'] for row in rows):.2f}"]
        assert len(browser.texts("table.rows tbody tr")) == len(rows)
    browser.open("/usage", ".u-over")
    browser.open("/usage?by=context", ".by-tool tbody tr")
    tools = [row for row in command_rows("usage", "--context", sample.archive()) if row["row"] == "tool"]
    assert browser.texts(".by-tool tbody tr td:first-child") == [row["tool"] for row in tools]
    assert browser.problems() == []


@pytest.fixture
def marks(server: Server) -> Path:
    """The file that holds muted groups; removed afterwards."""
    assert server.process is not None
    environment = Path(f"/proc/{server.process.pid}/environ").read_bytes().split(b"\0")
    (folder,) = (text.partition(b"=")[2].decode() for text in environment if text.startswith(b"XDG_CONFIG_HOME="))
    file = Path(folder) / "toolspan" / "muted.json"
    file.unlink(missing_ok=True)
    return file


def test_a_cause_is_muted_fixed_and_shown_again_and_a_broken_file_is_kept(browser: Browser, marks: Path) -> None:
    groups = command_rows("errors", sample.archive())
    browser.open("/errors", "tr.issue")
    assert browser.texts("[data-test=count]") == [f"{len(groups)} causes"]
    failures = sum(group["count"] for group in groups if group["kind"] != "orphan_result")
    assert browser.texts("[data-test=unsuccessful]") == [f"{failures} unsuccessful calls"]
    browser.open(f"/errors?group={GROUP}", "tr.link")
    assert len(browser.texts("tr.link")) == len(command_rows("calls", sample.archive(), "--group", GROUP)) == 2
    browser.press("m")
    browser.wait("document.querySelector('[data-test=unmark]')")
    document = json.loads(marks.read_text(encoding="utf-8"))
    assert document["groups"][GROUP]["status"] == "muted"
    browser.open("/errors", "tr.issue")
    browser.wait(f"document.querySelector('[data-test=count]').innerText === '{len(groups) - 1} causes'")
    browser.open(f"/errors?show=muted&group={GROUP}", "[data-test=fix]")
    browser.click("[data-test=fix]")
    browser.wait("document.querySelector('.badge.tone-good')")
    document = json.loads(marks.read_text(encoding="utf-8"))
    assert document["groups"][GROUP]["status"] == "fixed"
    document["groups"][GROUP]["since"] = "2026-11-05T20:00:00Z"  # it has a call after this
    marks.write_text(json.dumps(document), encoding="utf-8")
    browser.open("/errors?sort=-last", "tr.issue")
    browser.wait("[...document.querySelectorAll('.badge')].some((badge) => badge.innerText === 'came back')")
    assert browser.problems() == []
    marks.write_text("{", encoding="utf-8")
    browser.open(f"/errors?group={GROUP}", ".warning")
    browser.click("[data-test=mute]")
    browser.wait("document.querySelector('.warning').innerText.includes('muted.json cannot be used')")
    assert marks.read_text(encoding="utf-8") == "{"
    browser.problems()  # the refused change


def test_a_text_that_the_calls_of_a_group_share_is_shown_once(tmp_path: Path, empty_browser: Browser) -> None:
    rejection = "Exit code 1\nnpm error code E403: publishing is not allowed from here"
    builder = TranscriptBuilder().prompt("Publish it")
    for command in ("npm publish", "npm publish --tag next", "npm publish --dry-run"):
        builder.result(builder.call("Bash", {"command": command}), rejection, is_error=True, after_ms=2000)
    builder.write(tmp_path / "projects" / "-home-dev-project" / f"{builder.session_id}.jsonl")
    with running(tmp_path / "ui", tmp_path / "projects") as server:
        empty_browser.sign_in(server)
        (group,) = (row for row in server.get("errors") if row["count"] == 3)
        empty_browser.open(f"/errors?group={group['id']}", "tr.link")
        assert len(empty_browser.texts("tr.link")) == 3
        assert empty_browser.texts("main")[0].count("publishing is not allowed") == 1
        empty_browser.resize(390, 800)
        empty_browser.wait("document.querySelector('table.small tr.link')")
        assert empty_browser.texts("main")[0].count("publishing is not allowed") == 1
        assert empty_browser.problems() == []


def test_a_mark_needs_the_secret_and_a_known_status(tmp_path: Path) -> None:
    with running(tmp_path, sample.archive()) as server:
        secret = {"Authorization": f"Bearer {server.secret}"}
        body = json.dumps({"status": "muted"})
        assert server.request(f"/api/muted/{GROUP}", "POST", body)[0] == 401
        for path, text in ((GROUP, "{}"), (GROUP, '{"status": "gone"}'), ("a.b", body), (GROUP, "x" * 5000)):
            assert server.request(f"/api/muted/{path}", "POST", text, **secret)[0] in (400, 413), text
        file = tmp_path / "config" / "toolspan" / "muted.json"
        assert not file.exists()
        assert server.request(f"/api/muted/{GROUP}", "POST", body, **secret)[0] == 200
        assert server.get("muted")["groups"][GROUP]["status"] == "muted"
        assert server.request(f"/api/muted/{GROUP}", "POST", '{"status": null}', **secret)[0] == 200
        assert json.loads(file.read_text(encoding="utf-8")) == {"groups": {}}
        assert [path.name for path in file.parent.iterdir()] == ["muted.json"]


def test_durations_are_rounded_as_in_the_commands(browser: Browser) -> None:
    session = "e8f1b3d5-06a7-4c92-b4d8-7a2c0e9f5b16"
    (row,) = command_rows("time", "--session", session, sample.archive())
    assert (row["split"]["tools_ms"], row["split"]["idle_ms"]) == (132_537, 2_941_900)
    browser.open(f"/session/{session}", ".legend.part-tools")
    assert browser.texts(".legend.part-tools") == ["tools 2m 13s"]
    assert browser.texts(".legend.part-idle") == ["idle 49m 02s"]
