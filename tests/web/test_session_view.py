"""The Session and Call views in a real browser: waterfall, list, keys, typed bodies, and hostile transcripts."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.conftest import Browser, command_rows, open_empty_page, running
from toolspan.reading import sample
from toolspan.testing import TranscriptBuilder, claude_results

AGENTS = "3c5a7e91-d0b4-42f6-a8e3-6b1d9f0c2e47"
REWOUND = "d48e2a06-9f1b-4d77-8c35-b60a7f2e1c98"
ORIGINAL = "91b7f3d2-4c08-4e6d-b2a7-5e8c0f1a7d34"
DENIED = "c2a9e6b4-71d3-4f0a-8e1c-93b5d2f4a610"
LONG = "11111111-2b64-4c1b-9a53-0d6f1c7b8e21"
RICH = "22222222-2b64-4c1b-9a53-0d6f1c7b8e21"
HOSTILE = "33333333-2b64-4c1b-9a53-0d6f1c7b8e21"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
ATTACK = (
    "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'><svg onload='window.pwned = 3'></svg>"
    "<iframe srcdoc='<script>parent.pwned = 4</script>'></iframe><style>body { display: none }</style>"
    "[link](javascript:window.pwned=5) <a href='javascript:window.pwned=6'>x</a> ![i](https://evil.example/x.png)"
    "\x1b]8;;javascript:window.pwned=7\x07y\x1b]8;;\x07\x1b[31mred\x1b[0m\x1b[2J\u202e</pre></textarea>${window.pwned=8}"
)


def _long_session() -> TranscriptBuilder:
    builder = TranscriptBuilder(session_id=LONG)
    builder.prompt("Read all of it")
    for number in range(1500):
        call = builder.call("Read", {"file_path": f"/home/mira/long/{number // 5 if number < 20 else number}.py"})
        is_last = number == 1400
        builder.result(call, "no such file" if is_last else "x = 1", is_error=True if is_last else None, after_ms=100)
    builder.text("The last message, after all files.")
    return builder


def _rich_session() -> TranscriptBuilder:
    builder = TranscriptBuilder(session_id=RICH)
    builder.prompt("Show **all** kinds of results")
    shell = builder.call("Bash", {"command": "ls --color", "description": "List", "run_in_background": False})
    builder.hook(shell, "PreToolUse", command="guard.sh", outcome="success", text="fine")
    builder.result(shell, claude_results.ran("plain \x1b[31mred\x1b[0m"), after_ms=300)
    edit = builder.call("Edit", {"file_path": "/home/mira/a.py", "old_string": "two", "new_string": "zwei"})
    builder.result(edit, claude_results.edited("/home/mira/a.py", "one\ntwo\nthree\n", "two", "zwei"))
    read = builder.call("Read", {"file_path": "/home/mira/a.py", "offset": 7})
    builder.result(read, claude_results.read("/home/mira/a.py", "\n" * 6 + "def f():\n    return 1\n", offset=7))
    picture = builder.call("mcp__camera__shoot", {"zoom": 2})
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    builder.result(picture, [{"type": "text", "text": '{"taken": true}'}, block])
    cells = [{"cellType": "code", "source": "print(1)", "outputs": [{"output_type": "stream", "text": "1 printed"}]}]
    notebook = builder.call("Read", {"file_path": "/home/mira/n.ipynb"})
    structured = {"type": "notebook", "file": {"filePath": "/home/mira/n.ipynb", "cells": cells}}
    builder.result(notebook, "cells", structured=structured)
    builder.text("Done, see [the manual](https://example.org/manual) and:\n\n```python\nx = 1\n```")
    return builder


def _hostile_session() -> TranscriptBuilder:
    builder = TranscriptBuilder(session_id=HOSTILE, cwd=f"/home/{ATTACK[:60]}")
    builder.title(ATTACK)
    builder.prompt(ATTACK)
    builder.thinking(ATTACK)
    builder.text(ATTACK)
    path = f"/home/{ATTACK}.html"
    inputs: dict[str, dict[str, object]] = {
        "Bash": {"command": ATTACK, "description": ATTACK},
        "Read": {"file_path": path},
        "Write": {"file_path": path, "content": ATTACK},
        "Edit": {"file_path": path, "old_string": ATTACK, "new_string": ATTACK * 2},
        "Grep": {"pattern": ATTACK},
        "WebFetch": {"url": "javascript:window.pwned=9", "prompt": ATTACK},
        "Task": {"prompt": ATTACK, "description": ATTACK, "subagent_type": ATTACK},
        "TodoWrite": {"todos": [{"content": ATTACK, "status": ATTACK}]},
        "AskUserQuestion": {"questions": [{"question": ATTACK, "options": [{"label": ATTACK}]}]},
        f"mcp__{ATTACK}": {ATTACK: {ATTACK: [ATTACK]}},
    }
    for tool, fields in inputs.items():
        call = builder.call(tool, fields)
        builder.hook(call, "PreToolUse", command=ATTACK, outcome="success", text=ATTACK)
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/svg+xml", "data": "PHN2Zz4="}}
        builder.result(call, [{"type": "text", "text": ATTACK}, image], structured={"stdout": ATTACK, ATTACK: ATTACK})
        builder.result(builder.call(tool, fields), ATTACK, is_error=True)
    child = builder.agent(call, kind=ATTACK, description=ATTACK)
    child.prompt(ATTACK)
    child.result(child.call("Bash", {"command": ATTACK}), ATTACK)
    builder.compact(ATTACK)
    return builder


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample archive with three more sessions."""
    folder = tmp_path_factory.mktemp("archive") / "archive"
    shutil.copytree(sample.archive(), folder)
    for builder in (_long_session(), _rich_session(), _hostile_session()):
        builder.write(folder / "claude" / "projects" / "-home-mira-tide" / f"{builder.session_id}.jsonl")
    return folder


@pytest.fixture(scope="module")
def page(driver: Any, archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser on that archive."""
    browser = open_empty_page(driver)
    with running(tmp_path_factory.mktemp("run"), archive) as server:
        browser.sign_in(server)
        browser.resize(1360, 1500)
        yield browser


def _calls(archive: Path, session: str) -> list[Any]:
    return command_rows("calls", "--session", session, "--limit", "0", archive)


def _drag(page: Browser, selector: str, start: float, end: float) -> None:
    """Drag from one share of an element's width to another."""
    from selenium.webdriver import ActionChains

    element = page.driver.find_element("css selector", selector)
    width = element.size["width"]
    chain = ActionChains(page.driver).move_to_element(element).move_by_offset(int((start - 0.5) * width), 0)
    chain.click_and_hold().move_by_offset(int((end - start) * width), 0).release().perform()


def test_a_session_shows_the_numbers_and_calls_of_the_command(page: Browser, archive: Path) -> None:
    page.open(f"/session/{AGENTS}", ".item.call")
    [session] = command_rows("show", "--session", AGENTS, archive)
    counts = dict(text.rsplit(" ", 1) for text in page.texts(".chip"))
    assert counts == {f"{_symbol(state)} {state.replace('_', ' ')}": str(n) for state, n in _states(session).items()}
    rows = _calls(archive, AGENTS)
    assert sorted(page.texts(".item.call .tool")) == sorted(str(row["tool"]) for row in rows)
    assert page.texts(".item.agent b") == ["Explore", "Explore", "general-purpose"]
    usage = command_rows("usage", "--by", "session", "--session", AGENTS, archive)
    page.wait(f"document.querySelector('.facts').innerText.includes('${usage[0]['cost_usd']:.2f}')")
    page.click(".item.agent .bare")
    page.wait("location.search.includes('closed=1')")
    page.wait(f"document.querySelectorAll('.item.call').length === {len(rows) - 3}")
    page.click(".chip:nth-child(2)")
    page.wait("document.querySelectorAll('.item.call').length === 2")
    assert page.problems() == []


def _states(session: dict[str, dict[str, dict[str, int]]]) -> dict[str, int]:
    return session["session"]["calls"]


def _symbol(state: str) -> str:
    return {"succeeded": "✓", "failed": "✗", "timed_out": "◷"}[state]


def test_the_first_click_waits_for_data_only_which_is_requested_at_once(page: Browser) -> None:
    page.open("/", ".overview a[href^='/session/']")
    resources = "performance.getEntriesByType('resource')"
    page.wait(f"['call.css', 'highlight.js'].every((name) => {resources}.some((r) => r.name.endsWith(name)))")
    page.run("performance.clearResourceTimings()")
    page.click(".overview a[href^='/session/']")
    page.wait(f"document.querySelector('.item.call') && {resources}.some((r) => r.name.includes('/api/usage'))")
    page.click(".item.call")
    page.wait(f"{resources}.filter((r) => r.name.includes('/api/call/')).length === 2")
    assert page.run(f"return {resources}.filter((r) => r.name.endsWith('.js')).map((r) => r.name)") == []
    for names in (("/timeline", "/api/usage"), ("/api/call/", "/records")):
        times = [f"{resources}.find((r) => r.name.includes('{name}'))" for name in names]
        assert page.run(f"return {times[1]}.startTime < {times[0]}.responseEnd"), names


def test_keys_go_from_failure_to_failure_and_open_the_call(page: Browser, archive: Path) -> None:
    page.open(f"/session/{AGENTS}", ".item.call")
    failures = [row["id"] for row in _calls(archive, AGENTS) if row["state"] in ("failed", "timed_out")]
    visited = []
    for _ in failures:
        before = page.run("return location.search")
        page.press("n")
        page.wait(f"location.search !== {json.dumps(before)}")
        visited.append(page.run("return new URLSearchParams(location.search).get('call')"))
    assert sorted(visited) == sorted(failures)
    page.press("p")
    page.wait(f"location.search.includes('{visited[-2]}')")
    page.press("k", "j")
    page.wait(f"document.querySelector('.item.current')?.href.includes('{visited[-2]}')")
    page.wait("document.querySelector('.panel .failure')")
    page.press("\ue007")
    page.wait(f"location.pathname === '/call/{visited[-2]}' && document.querySelector('h1')")
    page.press("u")
    page.wait(f"location.search.includes('call={visited[-2]}') && document.querySelector('.item.current')")
    assert page.problems() == []


def test_dragging_selects_a_range_and_the_wheel_zooms(page: Browser) -> None:
    page.open(f"/session/{AGENTS}", ".item.call")
    _drag(page, ".stack .over", 0.2, 0.6)
    page.wait("document.querySelector('[data-test=range]')")
    start, end = map(int, page.run("return new URLSearchParams(location.search).get('range')").split("~"))
    columns = page.server.get(f"session/{AGENTS}/timeline")["calls"]
    times = zip(columns["start"], columns["end"], strict=True)
    inside = sum(at <= end and (finished if finished is not None else at) >= start for at, finished in times)
    assert f"{inside} calls" in page.texts("[data-test=range]")[0]
    assert re.search(r"(model|tools) [\d.]+ ?m?s", page.texts("[data-test=range]")[0])
    assert len(page.texts(".item.call")) == inside
    page.press("\ue00c")
    page.wait("!location.search.includes('range=')")
    page.run(
        "const e = document.querySelector('.stack .over'), b = e.getBoundingClientRect();"
        "const at = { clientX: b.left + b.width / 2, clientY: b.top + 40 };"
        "e.dispatchEvent(new WheelEvent('wheel', { deltaY: -240, cancelable: true, ...at }))"
    )
    page.wait("location.search.includes('zoom=')")
    page.press("0")
    page.wait("!location.search.includes('zoom=')")
    _drag(page, ".minimap .over", 0.3, 0.5)
    page.wait("location.search.includes('zoom=')")
    assert page.problems() == []


def test_a_long_session_opens_at_a_line_and_draws_only_what_is_in_view(page: Browser, archive: Path) -> None:
    page.open(f"/session/{LONG}", ".item.call")
    assert page.texts("[data-test=calls]") == ["1,500 calls"]
    assert page.texts(".item.fold .badge") == ["×5"] * 4
    assert page.run("return document.querySelectorAll('.item').length") < 80
    page.click(".item.fold .bare")
    page.wait("document.querySelectorAll('.item.inside').length === 5")
    row = next(row for row in _calls(archive, LONG) if row["state"] == "failed")
    page.open(f"/session/{LONG}?line={row['result_line']}", ".item.current")
    assert page.run(f"return document.querySelector('.item.current').href.includes('{row['id']}')")
    assert page.run("const b = document.querySelector('.item.current').getBoundingClientRect(); "
                    "return b.top > 0 && b.bottom < innerHeight")  # fmt: skip
    lines = Path(str(row["file"])).read_text(encoding="utf-8").splitlines()
    last = next(n for n, line in enumerate(lines, 1) if "The last message" in line)
    page.open(f"/session/{LONG}?line={last}&text=full", ".item.message.current .markdown")
    page.wait("document.querySelector('.item.message.current').innerText.includes('The last message')")


def test_branches_and_whole_messages_are_shown(page: Browser) -> None:
    page.open(f"/session/{REWOUND}?text=full", ".item.message .markdown")
    assert page.texts(".mark-line.rewind") == ["Left behind by a rewind"]
    assert page.texts(".item.call.abandoned .tool") == ["Edit", "Bash"]


def test_rows_show_the_reason_of_a_denial_and_the_time_limit(page: Browser) -> None:
    page.open("/calls?state=denied&state=timed_out", "tr.link")
    errors = page.texts("tr.link .second-line .tone-bad")
    assert "keep static/old, the print page uses it" in errors
    assert "Command timed out after 2m 0s" in errors
    page.open(f"/session/{DENIED}?state=denied", ".item.call .why")
    assert "denied by the user: keep static/old, the print page uses it" in page.texts(".item.call .why")


def test_a_fork_says_how_many_calls_are_counted_in_the_original(page: Browser, archive: Path) -> None:
    calls = {row["id"]: row["calls"] for row in command_rows("sessions", archive)}
    page.open(f"/session/{REWOUND}", "[data-test=calls] a")
    assert page.texts("[data-test=calls]") == [f"{calls[REWOUND] + 8} calls, 8 copied from Search box"]
    page.click("[data-test=calls] a")
    page.wait("document.querySelector('h1')?.innerText === 'Search box' && document.querySelector('.item.call')")
    assert page.server.get(f"session/{ORIGINAL}/copies") == []
    assert page.texts("[data-test=calls]") == [f"{calls[ORIGINAL]} calls"]


def test_a_call_shows_its_input_and_result_by_tool(page: Browser, archive: Path) -> None:
    shell, edit, read, picture, notebook = (str(row["id"]) for row in _calls(archive, RICH))
    page.open(f"/call/{shell}?session={RICH}", ".call-detail .ansi .ansi-1")
    assert page.texts(".ansi-1") == ["red"]
    page.wait("document.querySelector('.crumbs a').innerText === '← Session: Show **all** kinds of results'")
    page.wait("[...document.querySelectorAll('.field dt')].some((e) => e.innerText === 'because')")
    [why] = command_rows("why", shell, archive)
    texts = page.texts(".field dd")
    assert why["allowed"] is True
    assert "allowed" in texts
    assert any("guard.sh" in text for text in texts)
    labels = "[...document.querySelectorAll('.field dt')].filter((e) => e.innerText === 'run_in_background')"
    assert page.run(f"return {labels}.map((e) => e.offsetHeight < 2 * parseFloat(getComputedStyle(e).lineHeight))") == [
        True
    ]
    page.run("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    for number, expected in enumerate(("BashInput", "ls --color", f"toolspan show {shell} --session {RICH}"), 1):
        page.click(f".copies button:nth-child({number})")
        page.wait(f"window.copied.includes({json.dumps(expected)})")
    page.click(".records summary")
    page.wait("document.querySelectorAll('.record').length >= 2")
    page.press("j")
    page.wait(f"location.pathname === '/call/{edit}' && document.querySelector('.diff td.new')")
    assert page.texts(".diff td.old") == ["two"]
    assert page.texts(".diff td.new") == ["zwei"]
    page.open(f"/call/{read}?session={RICH}", ".numbered .hljs-keyword")
    assert page.texts(".numbers")[0].split() == ["7", "8"]
    assert page.texts(".described")[-1] == "2 of 8 lines"
    page.open(f"/call/{picture}?session={RICH}", "img.picture")
    assert page.run("return document.querySelector('img.picture').src").startswith("data:image/png")
    page.open(f"/call/{notebook}?session={RICH}", ".notebook .cell")
    assert "1 printed" in page.texts(".cell")[0]
    page.open(f"/session/{RICH}?text=full", ".item.message .markdown a")
    assert page.run("return document.querySelector('.markdown a').rel") == "noopener noreferrer"
    assert page.problems() == []


def test_nothing_in_a_hostile_transcript_runs(page: Browser, archive: Path) -> None:
    bad = "main :is(script, iframe, svg, style, form, [onerror], [onload], [href^='javascript:' i], img[src^='http'])"
    paths = [f"/session/{HOSTILE}?text=full&thinking=1", "/sessions"]
    rows = _calls(archive, HOSTILE)
    paths += [f"/call/{row['id']}?session={HOSTILE}" for row in [*rows[::2], rows[1]]]  # one per tool, and an error
    paths.append(f"/session/{HOSTILE}?call={rows[0]['id']}")
    for path in paths:
        page.open(path, ".markdown, .code, .item.call, tr.link")
        if path.startswith("/call"):
            page.click(".records summary")
            page.wait("document.querySelector('.record .code')")
        assert page.run(f"return [...document.querySelectorAll({json.dumps(bad)})].map((e) => e.outerHTML)") == []
        assert page.run("return window.pwned === undefined && getComputedStyle(document.body).display !== 'none'")
        assert page.problems() == [], path


def test_a_session_without_its_main_file_draws_each_agent_once(tmp_path: Path, empty_browser: Browser) -> None:
    builder = TranscriptBuilder(session_id="5e551011-0000-4000-8000-0000000000aa").prompt("Look")
    for name in ("one", "two"):
        task = builder.call("Task", {"prompt": name, "subagent_type": "Explore", "description": name})
        agent = builder.agent(task, kind="Explore", description=name).prompt(name)
        agent.result(agent.call("Glob", {"pattern": "*.js"}), "a.js", after_ms=9)
        builder.result(task, "done")
    main = tmp_path / "archive" / "projects" / "-home-user" / f"{builder.session_id}.jsonl"
    main.parent.mkdir(parents=True)
    builder.write(main)
    main.unlink()
    with running(tmp_path / "run", tmp_path / "archive") as server:
        (session,) = server.get("sessions")
        empty_browser.sign_in(server)
        empty_browser.open(f"/session/{session['id']}", ".item.agent")
        # one of the two takes the place of the main conversation, as in the list and in `show`
        assert len(empty_browser.texts(".item.agent")) == session["agents"] == 1
        assert len(empty_browser.texts(".item.call")) == session["calls"] == 2
        assert sorted(empty_browser.texts(".item.message .line")) == ["one", "two"]
        assert empty_browser.problems() == []
