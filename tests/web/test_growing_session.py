"""The timeline of a session that grows has the numbers of the commands; only changes are sent and drawn."""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.limits import PATIENCE
from tests.web.conftest import Browser, Server, command_rows, running
from toolspan.analysis.timing import TIME_PARTS
from toolspan.reading import sample
from toolspan.testing import TranscriptBuilder
from toolspan.web.timeline import SessionTimeline

SESSION = "5e551011-0000-4000-8000-000000000001"
SAMPLES = sorted(sample.archive().glob("claude/projects/*/*.jsonl"))


class Page:
    """The timeline as a page keeps it: whole at first, then changed by each answer."""

    def __init__(self, server: Server, session: str) -> None:
        self._server = server
        self._path = f"session/{session}/timeline"
        self.data: dict[str, Any] = expand_columns(server.get(self._path))

    def ask(self) -> dict[str, Any]:
        """Ask for the changes, apply them, and return them."""
        answer: dict[str, Any] = self._server.get(self._path, after=self.data["version"])
        self.data = apply_changes(self.data, answer)
        return answer


def expand_columns(data: dict[str, Any]) -> dict[str, Any]:
    """Make lists of columns that have a shorter form, because many of their values are the same."""
    for name in ("calls", "messages", "requests"):
        size = len(next(iter(data[name].values())))
        data[name] = {key: expand_column(value, size) for key, value in data[name].items()}
    return data


def expand_column(value: Any, size: int) -> list[Any]:
    if isinstance(value, dict):
        return [value["values"][n] for n in value["index"]]
    return value if isinstance(value, list) else [value] * size


def apply_changes(data: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Return the timeline after an answer to `after`."""
    if "after" not in answer:
        return expand_columns(answer)
    assert answer["after"] == data["version"]
    result = data | {key: answer[key] for key in ("version", "session", "base", "agents") if key in answer}
    if "order" not in answer:
        return result
    for table in ("calls", "messages", "requests"):
        columns = {name: list(values) for name, values in data[table].items()}
        for name, column in columns.items():
            for row, value in zip(answer[table]["rows"], answer[table][name], strict=True):
                column[row : row + 1] = [value]
        result[table] = columns
    order, slices = answer["order"], answer["slices"]
    kept = data["order"][len(data["order"]) - order["tail"] :]
    result["order"] = data["order"][: order["keep"]] + order["add"] + kept
    result["slices"] = data["slices"][: 3 * slices["keep"]] + slices["add"]
    return result


def page_rows(data: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return calls and messages in the order of the page."""
    calls, messages = data["calls"], data["messages"]
    rows: list[tuple[Any, ...]] = []
    for code in data["order"]:
        n, kind = divmod(code, 3)
        if kind == 0:
            rows.append(tuple(calls[name][n] for name in ("id", "state", "duration_ms", "branch")))
        elif kind == 1:
            rows.append(tuple(messages[name][n] for name in ("line", "voice", "branch")))
        else:
            rows.append((data["agents"][n]["id"], data["agents"][n]["linked"]))
    return rows


def shown_rows(turns: list[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the same from the turns of `show --json --thinking`."""
    for item in (item for turn in turns for item in turn["items"]):
        if item["type"] == "message":
            if item["text"].strip():
                yield item["place"]["line"], item["voice"], item["branch"]
        elif item["type"] == "agent":
            yield item["agent"], item["linked"]
            yield from shown_rows(item["turns"])
        for call in (call for group in item.get("groups", ()) for call in group["calls"]):
            yield call["id"], call["state"], call["duration_ms"], call["branch"]
            for agent in call["agents"]:
                yield agent["agent"], agent["linked"]
                yield from shown_rows(agent["turns"])


def assert_equals_commands(data: dict[str, Any], file: Path) -> None:
    """Compare a timeline with `show --json` and `calls --json`."""
    (shown,) = command_rows("show", file, "--thinking")
    facts = {key: value for key, value in data["session"].items() if key != "findings"}
    spent = ("context_last", "context_max", "cost_usd", "unpriced_requests")  # the page takes them from `usage`
    assert facts == {name: value for name, value in shown["session"].items() if name not in spent}
    assert page_rows(data) == list(shown_rows(shown["turns"]))
    names = ("state", "error_kind", "exit_code", "batch", "request_line", "result_line", "session", "truncated", "file")
    calls = {row["id"]: [row[name] for name in names] for row in command_rows("calls", file.parent)}
    columns = data["calls"]
    assert {call: [columns[name][n] for name in names] for n, call in enumerate(columns["id"])} == calls
    whole = expand_columns(json.loads(SessionTimeline((str(file),), None).encode_changes("")))
    assert data["session"]["findings"] == whole["session"]["findings"]
    assert named_slices(data) == named_slices(whole)


def named_slices(data: dict[str, Any]) -> list[tuple[int, int, str]]:
    """Return what the time was used for, in times since 1970."""
    at, slices = data["base"], []
    for gap, length, part in zip(*[iter(data["slices"])] * 3, strict=True):
        slices.append((at + gap, at + gap + length, TIME_PARTS[part]))
        at += gap + length
    return slices


class Growing:
    """A session whose file grows by what its builder has gained."""

    def __init__(self, folder: Path) -> None:
        self.builder = TranscriptBuilder(session_id=SESSION, cwd="/home/user/grow").prompt("Keep going")
        self.archive = folder
        self.file = folder / "projects" / "-home-user-grow" / f"{SESSION}.jsonl"
        self.file.parent.mkdir(parents=True)

    def add_calls(self, count: int) -> None:
        """Add calls with their results."""
        for number in range(count):
            call = self.builder.call("Read", {"file_path": f"/home/user/grow/f{number}.py"}, after_ms=900)
            self.builder.result(call, f"line {number}", is_error=number % 7 == 6, after_ms=120)

    def write(self, torn: int = 0) -> None:
        """Append the new bytes of all files, without the last `torn` bytes of the session's own."""
        for name, data in self.builder.files(SESSION).items():
            target = self.file.parent / name
            target.parent.mkdir(parents=True, exist_ok=True)
            end = len(data) - torn if target == self.file else len(data)
            with target.open("ab") as stream:
                stream.write(data[stream.tell() : end])


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    return Growing(tmp_path / "archive")


@pytest.fixture
def server(growing: Growing, tmp_path: Path) -> Iterator[Server]:
    growing.add_calls(300)
    growing.write()
    with running(tmp_path / "run", growing.archive) as started:
        yield started


@pytest.fixture
def page(server: Server) -> Page:
    opened = Page(server, SESSION)
    opened.ask()  # makes a worker keep the timeline
    return opened


def test_only_new_and_changed_rows_are_sent(growing: Growing, page: Page) -> None:
    open_call = growing.builder.call("Bash", {"command": "make"}, after_ms=50)
    growing.write()
    page.ask()
    growing.add_calls(10)
    growing.builder.result(open_call, "late", after_ms=10)
    growing.write()

    changes = page.ask()

    assert "after" in changes
    assert sorted(changes["calls"]["id"]) == sorted([open_call, *page.data["calls"]["id"][-10:]])
    assert changes["messages"]["rows"] == []
    assert changes["order"]["keep"] == len(page.data["order"]) - 10
    assert_equals_commands(page.data, growing.file)


def test_nothing_is_sent_if_nothing_changed(growing: Growing, page: Page) -> None:
    growing.builder.call("Bash", {"command": "make"}, after_ms=50)  # without a result, it is looked at again each time
    growing.write()
    version = page.ask()["version"]
    answer = page.ask()
    assert sorted(answer) == ["after", "session", "version"]
    assert answer["version"] == version


def test_a_stream_starts_with_the_changes_since_the_page_was_made(growing: Growing, server: Server) -> None:
    _, _, body = server.request("/", Authorization=f"Bearer {server.secret}")
    (position,) = re.findall(rb'name="toolspan-position" content="([0-9a-f-]+)"', body)
    with contextlib.closing(server.events("/api/live")) as events:
        next(events)  # it is connected
        growing.add_calls(1)
        growing.write()
        assert next(data for name, data in events if name == "changed") == [SESSION]

    for after, expected in ((position.decode(), [SESSION]), ("0-0-0", None)):
        with contextlib.closing(server.events(f"/api/live?after={after}")) as events:
            assert next(data for name, data in events if name == "changed") == expected


def test_open_pages_of_several_sessions_do_not_drop_each_others_timelines(growing: Growing, server: Server) -> None:
    sessions = [SESSION, *(SESSION[:-1] + str(number) for number in (2, 3, 4))]
    for name in sessions[1:]:
        builder = TranscriptBuilder(session_id=name, cwd="/home/user/grow").prompt("Go")
        builder.write(growing.file.with_name(f"{name}.jsonl"))
    pages = [Page(server, name) for name in sessions]
    for page in pages:
        page.ask()
    assert all("after" in page.ask() for page in pages)


def test_only_the_timeline_of_a_running_session_is_kept_at_once(growing: Growing, server: Server, page: Page) -> None:
    running = TranscriptBuilder(session_id=SESSION[:-1] + "2", cwd=f"/home/user/{SESSION}", start=datetime.now(UTC))
    call = running.prompt("Go").call("Bash", {"command": "make"})
    file = growing.file.with_name(f"{running.session_id}.jsonl")
    running.write(file)
    with contextlib.closing(server.events("/api/live")) as events:
        next(rows for name, rows in events if name == "sessions" and rows)
        token = server.get(f"session/{running.session_id}/timeline")["version"].partition("-")[0]
        again = server.get(f"session/{running.session_id}/timeline")["version"].partition("-")[0]
        assert again == token  # of the same timeline
        running.result(call, "made")
        call = running.call("Bash", {"command": "make test"})
        running.write(file)
        next(rows for name, rows in events if name == "sessions" and rows[0]["calls"][0]["id"] == call)
    assert not server.get(f"session/{SESSION}/timeline")["version"].startswith(page.data["version"].partition("-")[0])


@pytest.mark.parametrize("way", ["stopped", "killed"])
def test_no_worker_outlives_the_server(server: Server, page: Page, way: str) -> None:
    assert page.data["order"]
    helpers = psutil.Process(server.process.pid).children()
    workers = [worker for helper in helpers for worker in helper.children()]
    for worker in workers:
        worker.suspend()  # as one that computes: it does not notice that its connection is closed
    server.process.send_signal(signal.SIGTERM if way == "stopped" else signal.SIGKILL)
    server.process.wait(PATIENCE)
    if way == "killed":
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.resume()
    psutil.wait_procs([*helpers, *workers], timeout=PATIENCE)
    assert len(workers) > 2
    assert not any(map(is_alive, [*helpers, *workers]))


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_numbers_equal_the_commands_after_each_growth(growing: Growing, server: Server, page: Page) -> None:
    builder = growing.builder
    waiting = builder.call("Bash", {"command": "sleep 9"}, after_ms=10)
    builder.usage(input_tokens=5, output_tokens=70)

    def add_parallel_calls() -> None:
        calls = [builder.call("Grep", {"pattern": word}, message="together") for word in ("a", "b", "c")]
        for call in reversed(calls):
            builder.result(call, "found", after_ms=300)

    def add_rewind() -> None:
        before = builder.lines()[-1]
        builder.prompt("A dead end", after_ms=100)
        growing.add_calls(2)
        builder.rewind(json.loads(before)["uuid"])
        builder.prompt("Another way", after_ms=100)

    for grow in (
        lambda: growing.add_calls(3),
        add_parallel_calls,
        lambda: builder.text("Some words", after_ms=40).usage(input_tokens=9, output_tokens=11),
        lambda: builder.result(waiting, "done at last", after_ms=700),
        add_rewind,
        lambda: growing.add_calls(70),
        lambda: builder.compact("What happened so far"),
        lambda: growing.add_calls(2),
        lambda: builder.title("A growing session"),
    ):
        grow()
        growing.write()
        assert "after" in page.ask()
        assert_equals_commands(page.data, growing.file)
    usage = server.get("usage", by="session", session=SESSION)  # from the worker that has read the session
    assert usage == command_rows("usage", "--by", "session", "--session", SESSION, growing.archive)


def test_a_torn_last_line_is_a_finding_until_it_is_complete(growing: Growing, page: Page) -> None:
    growing.add_calls(1)
    growing.write(torn=40)
    page.ask()
    assert page.data["session"]["findings"] == 1
    assert_equals_commands(page.data, growing.file)

    growing.write()
    page.ask()

    assert page.data["session"]["findings"] == 0
    assert_equals_commands(page.data, growing.file)


def test_a_record_without_its_newline_counts_as_in_the_commands(growing: Growing, page: Page) -> None:
    growing.add_calls(1)
    growing.write(torn=1)
    page.ask()
    assert_equals_commands(page.data, growing.file)

    growing.add_calls(1)
    growing.write()
    page.ask()

    assert_equals_commands(page.data, growing.file)


def test_subagents_appear_below_their_calls_and_grow(growing: Growing, page: Page) -> None:
    builder = growing.builder
    task = builder.call("Task", {"prompt": "Look around", "subagent_type": "Explore", "description": "look"})
    growing.write()
    page.ask()
    agent = builder.agent(task, kind="Explore").prompt("Look around")
    name = next(name for name in builder.files(SESSION) if "agent-" in name and name.endswith(".jsonl"))
    (growing.file.parent / name).parent.mkdir(parents=True)
    for length in (0, 20):  # created, and in the middle of its first line
        (growing.file.parent / name).write_bytes(builder.files(SESSION)[name][:length])
        assert "after" in page.ask()
    growing.write()
    assert "after" in page.ask()
    assert page.data["session"]["agents"] == 1
    assert_equals_commands(page.data, growing.file)
    growing.add_calls(2)
    for number in range(3):
        call = agent.call("Glob", {"pattern": f"*.{number}"}, after_ms=50)
        agent.result(call, "a.py", after_ms=60)
        growing.write()

        changes = page.ask()

        assert call in changes["calls"]["id"]
        assert_equals_commands(page.data, growing.file)


@pytest.mark.parametrize("way", ["replaced", "truncated"])
def test_a_replaced_file_is_read_anew(growing: Growing, page: Page, way: str) -> None:
    other = TranscriptBuilder(session_id=SESSION, cwd="/home/user/grow").prompt("Something else")
    call = other.call("Bash", {"command": "true"})
    data = other.result(call, "ok", after_ms=5).data()
    if way == "replaced":
        draft = growing.file.with_suffix(".new")
        draft.write_bytes(data)
        draft.replace(growing.file)
    else:
        growing.file.write_bytes(data)

    changes = page.ask()

    assert "after" not in changes
    assert_equals_commands(page.data, growing.file)


def test_an_unknown_version_gets_the_whole_timeline(server: Server, page: Page) -> None:
    whole = server.get(f"session/{SESSION}/timeline", after="0badc0de-3")
    assert whole["order"] == page.data["order"]
    status, _, body = server.request(
        f"/api/session/{SESSION}/timeline?after=..%2Fx", Authorization=f"Bearer {server.secret}"
    )
    assert (status, "version" in json.loads(body)["error"]) == (400, True)


def test_a_whole_message_is_found_by_its_line(growing: Growing, page: Page, server: Server) -> None:
    growing.builder.text("word " * 4000, after_ms=5)
    growing.write()
    page.ask()
    messages = page.data["messages"]
    assert messages["text"][-1].endswith("more characters")
    place = {"message": str(messages["line"][-1]), "part": str(messages["part"][-1]), "file": str(growing.file)}
    assert server.get(f"session/{SESSION}/timeline", **place)["text"] == ("word " * 4000).strip()
    status, _, _ = server.request(
        f"/api/session/{SESSION}/timeline?message=1&file=%2Fetc%2Fpasswd", Authorization=f"Bearer {server.secret}"
    )
    assert status == 404


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(SAMPLES), st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_any_growth_gives_what_one_reading_gives(
    tmp_path_factory: pytest.TempPathFactory, source: Path, shares: list[float]
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    inside = source.with_suffix("")
    files = [source, *(path for path in inside.rglob("*") if path.is_file())]
    timeline: SessionTimeline | None = None
    data: dict[str, Any] = {"version": ""}
    for share in [*sorted(shares), 1.0]:
        for path in files:
            target = folder / path.relative_to(source.parent)
            target.parent.mkdir(parents=True, exist_ok=True)
            content = path.read_bytes()
            least = content.find(b"\n") + 1 if path == source else 0
            end = max(least, round(share * len(content))) if path.suffix == ".jsonl" else len(content)
            with target.open("ab") as stream:
                stream.write(content[stream.tell() : end])
        timeline = timeline or SessionTimeline((str(folder / source.name),), None)
        data = apply_changes(data, json.loads(timeline.encode_changes(data["version"])))
        whole = expand_columns(json.loads(SessionTimeline((str(folder / source.name),), None).encode_changes("")))
        assert page_rows(data) == page_rows(whole)
        assert data["session"] == whole["session"]
        assert named_slices(data) == named_slices(whole)


def test_the_open_page_changes_only_the_rows_that_changed(
    growing: Growing, server: Server, empty_browser: Browser
) -> None:
    browser = empty_browser
    builder = growing.builder
    waiting = builder.call("Bash", {"command": "make slow"}, after_ms=10)
    growing.write()
    browser.sign_in(server)
    browser.open(f"/session/{SESSION}?call={waiting}", ".item.call.current")
    browser.run(
        "window.changes = 0; window.row = [...document.querySelectorAll('.item.call')].at(-3);"
        "new MutationObserver((list) => { window.changes += list.length; })"
        ".observe(window.row, { attributes: true, childList: true, subtree: true, characterData: true })"
    )
    builder.result(waiting, "built", after_ms=4000)
    call = builder.call("Read", {"file_path": "/home/user/grow/appeared.py"}, after_ms=700)
    builder.result(call, "new", after_ms=50)
    growing.write()

    browser.wait("[...document.querySelectorAll('.item.call .about')].some((e) => e.innerText === 'appeared.py')")

    (shown,) = command_rows("show", growing.file)
    total = sum(shown["session"]["calls"].values())
    assert browser.texts("[data-test=calls]") == [f"{total} calls"]
    assert browser.run("return [window.changes, window.row.isConnected]") == [0, True]
    assert "4.0 s" in browser.texts(".item.call.current .took")[0]
    task = builder.call("Task", {"prompt": "Look", "subagent_type": "Explore", "description": "look"})
    agent = builder.agent(task, kind="Explore").prompt("Look")
    agent.result(agent.call("Glob", {"pattern": "*.js"}), "a.js", after_ms=9)
    growing.write()
    browser.wait("[...document.querySelectorAll('.item.agent b')].some((e) => e.innerText === 'Explore')")
    assert browser.run("return window.changes") == 0
    assert browser.problems() == []


def test_a_page_says_how_many_rows_are_new_and_follows_at_the_end(
    growing: Growing, server: Server, empty_browser: Browser
) -> None:
    browser = empty_browser
    browser.sign_in(server)
    browser.open(f"/session/{SESSION}", ".item.call")
    for added, total in ((2, 2), (1, 3)):
        growing.add_calls(added)
        growing.write()
        browser.wait(f"document.querySelector('[data-test=news]')?.innerText === '{total} new rows ↓'")
    assert browser.barriers() == []
    browser.click("[data-test=news]")
    browser.wait("!document.querySelector('[data-test=news]')")
    last = growing.builder.call("Read", {"file_path": "/home/user/grow/last.py"}, after_ms=900)
    growing.builder.result(last, "end", after_ms=120)
    growing.write()
    browser.wait("[...document.querySelectorAll('.item.call .about')].some((e) => e.innerText === 'last.py')")
    assert browser.texts("[data-test=news]") == []
    assert browser.problems() == []
