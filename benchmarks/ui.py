"""Measure the web UI in a real browser, beside agentsview: first page, long lists, filter, sort, scrolling, memory,
restarts, abandoned queries, and sessions that grow.

Needs an archive of transcripts and Chromium with its driver, and for the comparison the peers' prefix (see
`peers.py`). Adds short sessions until the archive has `--sessions` of them, and one session with `--calls` calls; small
numbers make a quick run. While a view is open, a session grows by a line a second for `--seconds`. Another session, of
`--growing` MB, grows by 10 calls at a time. With `--scratch`, the archive and what the servers keep about it are used
again. Prints Markdown tables, and all numbers with `--json`; with `--enforce`, exits with code 1 if a target is missed.
All times are measured inside the page, but for the CPU time of servers. Start at `main`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from peers import AGENTSVIEW
from promises import Target, machine, missed, ratio_target, table, target_table, write_json
from toolspan.testing import TranscriptBuilder
from ui_servers import cpu_of, memory_of, request_headers, serve_agentsview, serve_toolspan

LONG_SESSION = "00000000-1111-4222-8333-444444444444"
GROWING_SESSION = "00000000-1111-4222-8333-555555555555"
SLOW_SESSION = "00000000-1111-4222-8333-666666666666"
"""The session that grows by a line a second."""
ABANDONED = 10
"""The number of searches whose client closes the connection."""
GROWTHS = 10
GROWTH_CALLS = 10
PAGE_SECONDS = 120
SCROLL_MS = 2000
IDLE_SECONDS = 10
"""How long the CPU time of an idle server is counted."""

# The element that scrolls furthest, and whether it holds a long list.
HELPERS = """
window.scroller = () => {
  let best = null;
  for (const element of document.querySelectorAll('*')) {
    const room = element.scrollHeight - element.clientHeight;
    if (element.clientHeight > 150 && room > 0 && /auto|scroll/.test(getComputedStyle(element).overflowY)
        && (!best || room > best.scrollHeight - best.clientHeight)) best = element;
  }
  return best;
};
window.isLong = () => { const found = window.scroller(); return found && found.scrollHeight > 4 * found.clientHeight; };
window.frame = () => new Promise((done) => requestAnimationFrame(() => done(performance.now())));
"""
WATCH = """
(() => {
  const ready = () => { try { return Boolean(%s); } catch { return false; } };
  const check = () => { if (ready()) requestAnimationFrame(() => { window.readyAt ??= performance.now(); });
                        else setTimeout(check, 4); };
  check();
})();
"""
SCROLL = """
const done = arguments[arguments.length - 1];
(async () => {
  const box = window.scroller();
  const step = Math.max(40, Math.min(400, (box.scrollHeight - box.clientHeight) / 180));
  const frames = [];
  box.scrollTop = 0;
  for (let n = 0; n < 10; n += 1) await window.frame();
  let last = await window.frame();
  const end = last + %d;
  while (last < end) {
    box.scrollTop += step;
    if (box.scrollTop + box.clientHeight >= box.scrollHeight - 2) box.scrollTop = 0;
    const now = await window.frame();
    frames.push(now - last);
    last = now;
  }
  frames.sort((a, b) => a - b);
  done({ p50: frames[Math.floor(frames.length * 0.5)], p99: frames[Math.floor(frames.length * 0.99)],
         max: frames[frames.length - 1], frames: frames.length });
})();
"""
ACT = """
const done = arguments[arguments.length - 1];
(async () => {
  const find = (selector) => document.querySelector(selector);
  const seen = () => { try { return %(seen)s; } catch { return null; } };
  const until = async (test) => {
    const limit = performance.now() + 10000;
    while (!test() && performance.now() < limit) await window.frame();
  };
  try {
    %(prepare)s;
  } catch (error) {
    return done(null);
  }
  const before = seen();
  const start = performance.now();
  %(action)s;
  while (seen() === before) { if (performance.now() - start > 30000) return done(null); await window.frame(); }
  done(await window.frame() - start);
})();
"""


@dataclass(frozen=True)
class View:
    """A page of a UI, and when it shows its data."""

    name: str
    path: str
    ready: str
    scrolls: bool = False
    actions: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    """What comes first, the action, and an expression that changes when its result is shown."""


LIST = "document.querySelector('main h1') && window.isLong?.()"
SORT = ("", "[...document.querySelectorAll('main thead th button')].at(-1).click()", "find('main tbody').innerText")
FILTER = (
    "find('main .facet:not(.custom) summary').click(); await until(() => find('main .facet input[type=checkbox]'))",
    "find('main .facet input[type=checkbox]').click()",
    "find('main [data-test=count]').innerText",
)
OPEN_CALL = (
    "await until(() => find('main a.item.call'))",
    "const rows = document.querySelectorAll('main a.item.call'); rows[Math.floor(Math.random() * rows.length)].click()",
    "find('.panel .call-detail h2').innerText",
)
FILTER_CALLS = ("", "find('main .chips .chip:nth-child(2)').click()", "find('main [data-test=shown]').innerText")
ANY = "document.body.innerText.length > 40"
FIRST_PAGE = "document.querySelector('main .tiles') && !document.querySelector('main .loading, main .skeleton')"
OURS = (
    View("first page", "/", FIRST_PAGE),
    View("sessions list", "/sessions", LIST, scrolls=True, actions={"sort": SORT, "filter": FILTER}),
    View(
        "long session",
        f"/session/{LONG_SESSION}",
        LIST,
        scrolls=True,
        actions={"open a call": OPEN_CALL, "filter": FILTER_CALLS},
    ),
)
THEIRS = (
    View("first page", "/", "document.querySelector('.metric-value') && document.querySelector('.session-item')"),
    View("sessions list", "/sessions", "document.querySelector('.session-item') && window.isLong?.()", scrolls=True),
    View(
        "long session",
        f"/sessions/{LONG_SESSION}",
        "document.querySelector('.message-list-scroll .virtual-row') && window.isLong?.()",
        scrolls=True,
    ),
)


@dataclass(frozen=True)
class Api:
    """What the API of a UI is asked: `search` may take a while, `quick` does not; both need a number."""

    search: str
    quick: str


OUR_API = Api("/api/search?q=({}|file|line|done)&regex=1&limit=2000", "/api/calls?tool=Read&state=failed&limit={}")
THEIR_API = Api("/api/v1/search/content?pattern=line+{}&mode=regex&limit=500", "/api/v1/sessions?limit={}")
OUR_GROWING = {
    "Overview": "/", "Sessions": "/sessions", "Session": f"/session/{SLOW_SESSION}", "Live": "/live"
}  # fmt: skip
THEIR_GROWING = {"home": "/", "session": f"/sessions/{SLOW_SESSION}"}


@dataclass(frozen=True)
class Contestant:
    """A UI: how its server starts, and what is measured."""

    name: str
    version: str
    server: Callable[[], Any]
    views: Sequence[View]
    growing: Mapping[str, str]
    """The pages that are open while a session grows."""
    api: Api


@dataclass
class Measured:
    """The numbers of one UI; each is a list with one value per run."""

    name: str
    version: str
    start: float | None = None
    memory: float | None = None
    idle_cpu: float | None = None
    """Milliseconds of CPU in ten seconds, with a page open."""
    numbers: dict[str, list[float]] = field(default_factory=dict)
    growth: dict[str, float] = field(default_factory=dict)
    """Numbers of the session that grows."""
    notes: list[str] = field(default_factory=list)

    def add(self, what: str, value: float | None) -> None:
        """Add a value, unless it could not be measured."""
        if value is not None:
            self.numbers.setdefault(what, []).append(value)

    def median(self, what: str) -> float | None:
        """Return the median of the runs."""
        values = self.numbers.get(what)
        return statistics.median(values) if values else None


# The archive


def build_projects(archive: Path, projects: Path, sessions: int, calls: int) -> str:
    """Link the archive's sessions into `projects` and add the rest, unless it is there; describe the result."""
    note = projects.parent / f"{sessions}-{calls}.txt"
    if note.exists():
        return note.read_text(encoding="utf-8")
    shutil.rmtree(projects, ignore_errors=True)
    source = next(iter(sorted(archive.rglob("projects"))), archive)
    shutil.copytree(source, projects, copy_function=_link)
    count = sum(1 for _ in projects.glob("*/*.jsonl"))
    folder = projects / "-home-user-many"
    folder.mkdir()
    for number in range(max(0, sessions - count - 1)):
        builder = TranscriptBuilder(session_id=f"{number:08x}-aaaa-4bbb-8ccc-dddddddddddd", cwd="/home/user/many")
        builder.prompt(f"Task {number}: make it work")
        for step in range(3):
            call = builder.call("Bash", {"command": f"make step{step}"})
            builder.result(call, f"done {step}", after_ms=200)
        builder.text("It works.").write(folder / f"{builder.session_id}.jsonl")
    long = TranscriptBuilder(session_id=LONG_SESSION, cwd="/home/user/long").prompt("A long day")
    for number in range(calls):
        call = long.call("Read", {"file_path": f"/home/user/long/file{number % 997}.py"}, after_ms=1500)
        long.result(call, f"line {number}\n" * 3, is_error=number % 50 == 49, after_ms=20 + number * 37 % 900)
    folder = projects / "-home-user-long"
    folder.mkdir()
    long.write(folder / f"{LONG_SESSION}.jsonl")
    size = sum(file.stat().st_size for file in projects.rglob("*") if file.is_file())
    total = sum(1 for _ in projects.glob("*/*.jsonl"))
    about = f"{size / 1e6:,.0f} MB, {total:,} sessions, one of them with {calls:,} calls"
    note.write_text(about, encoding="utf-8")
    return about


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


# The servers


def _idle_cpu(process: subprocess.Popen[bytes]) -> float:
    """Return the CPU milliseconds of a server in some idle seconds, once what the page asked for is answered."""
    deadline = time.monotonic() + PAGE_SECONDS
    used = -1.0
    while used != (used := cpu_of(process)) and time.monotonic() < deadline:
        time.sleep(2)
    time.sleep(IDLE_SECONDS)
    return (cpu_of(process) - used) * 1000


# The browser


@contextlib.contextmanager
def open_browser(profile: Path) -> Iterator[Any]:
    """Start headless Chromium."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1360,900",
                     "--disable-background-networking", "--disable-component-update", "--no-first-run",
                     f"--user-data-dir={profile}"):  # fmt: skip
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_page_load_timeout(PAGE_SECONDS)
    driver.set_script_timeout(PAGE_SECONDS)
    try:
        yield driver
    finally:
        driver.quit()


def open_view(driver: Any, base: str, view: View) -> dict[str, float]:
    """Open a view and return the milliseconds from navigation to its first paint and to its data."""
    script = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": HELPERS + WATCH % view.ready})
    try:
        driver.get(base + view.path)
        deadline = time.monotonic() + PAGE_SECONDS
        while (ready := driver.execute_script("return window.readyAt ?? null")) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{view.name} did not show its data in {PAGE_SECONDS} s")
            time.sleep(0.05)
        paint = driver.execute_script(
            "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
        )
    finally:
        driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": script["identifier"]})
    return {"paint": paint if paint is not None else ready, "data": ready}


def measure(result: Measured, driver: Any, base: str, views: Sequence[View], runs: int) -> None:
    """Open each view once to warm up, and then measure it in each run."""
    for view in views:
        try:
            print(f"{result.name}: {view.name}", file=sys.stderr, flush=True)
            open_view(driver, base, view)
            for _ in range(runs):
                times = open_view(driver, base, view)
                result.add(f"{view.name}: first paint", times["paint"])
                result.add(f"{view.name}: data shown", times["data"])
                if view.scrolls:
                    scrolled = driver.execute_async_script(SCROLL % SCROLL_MS)
                    result.add(f"{view.name}: scroll p50", scrolled["p50"])
                    result.add(f"{view.name}: scroll p99", scrolled["p99"])
                for name, action in view.actions.items():
                    result.add(f"{view.name}: {name}", _act(result, driver, view, action))
        except Exception as problem:  # noqa: BLE001 - one view that fails must not end the run
            result.notes.append(f"{view.name}: {type(problem).__name__}: {str(problem).splitlines()[0][:200]}")


def _act(result: Measured, driver: Any, view: View, action: tuple[str, str, str]) -> float | None:
    try:
        parts = dict(zip(("prepare", "action", "seen"), action, strict=True))
        value: float | None = driver.execute_async_script(ACT % parts)
    except Exception as problem:  # noqa: BLE001 - the view may not have it
        result.notes.append(f"{view.name}: {str(problem).splitlines()[0][:160]}")
        return None
    return value


def run_contestant(contestant: Contestant, runs: int, seconds: int, projects: Path, scratch: Path) -> Measured:
    """Start a server and a browser and measure all views, then start the server again, and let a session grow."""
    result = Measured(contestant.name, contestant.version)
    try:
        with contestant.server() as (process, url, started), open_browser(scratch / "browser") as driver:
            result.start = started
            base = _sign_in(driver, url)
            measure(result, driver, base, contestant.views, runs)
            result.memory = memory_of(process)
            driver.get(base)
            result.idle_cpu = _idle_cpu(process)
        for _ in range(runs):
            with contestant.server() as (_, url, started), open_browser(scratch / "browser") as driver:
                result.add("restart: server", started * 1000)
                base = _sign_in(driver, url)
                result.add("restart: first page", open_view(driver, base, contestant.views[0])["data"])
        with contestant.server() as (process, url, _), open_browser(scratch / "browser") as driver:
            base = _sign_in(driver, url)
            open_view(driver, base, contestant.views[0])
            _idle_cpu(process)
            measure_abandoned(result, contestant.api, base, request_headers(scratch, base))
            if seconds:
                measure_lines(result, process, driver, base, contestant.growing, projects, seconds)
    except Exception as problem:  # noqa: BLE001 - the other contestant is still measured
        result.notes.append(f"{type(problem).__name__}: {str(problem)[:300]}")
    print("\n".join(report([result], "so far")), file=sys.stderr, flush=True)  # kept if the run is cut off
    return result


def _sign_in(driver: Any, url: str) -> str:
    """Open the printed address, and return that of the first page."""
    base, _, query = url.rstrip("/").partition("/?")
    driver.get(f"{base}/?{query}" if query else base)
    return base


def measure_abandoned(result: Measured, api: Api, base: str, headers: Mapping[str, str]) -> None:
    """Ask a question alone, and again after the clients of some searches have closed their connections."""
    host, port = base.removeprefix("http://").split(":")

    def ask(number: int) -> float:
        started = time.monotonic()
        with urllib.request.urlopen(urllib.request.Request(base + api.quick.format(number), headers=headers)) as answer:
            answer.read()
        return (time.monotonic() - started) * 1000

    result.add("query", ask(101))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    for number in range(ABANDONED):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(f"GET {api.search.format(number)} HTTP/1.1\r\nHost: {host}:{port}\r\n{lines}\r\n".encode())
            time.sleep(0.1)
    result.add(f"query after {ABANDONED} abandoned searches", ask(102))


# Sessions that grow


def measure_lines(
    result: Measured,
    process: subprocess.Popen[bytes],
    driver: Any,
    base: str,
    pages: Mapping[str, str],
    projects: Path,
    seconds: int,
) -> None:
    """Let a session grow by a line a second while a page is open, and count the CPU time of the server."""
    file = projects / "-home-user-lines" / f"{SLOW_SESSION}.jsonl"
    file.parent.mkdir(exist_ok=True)
    for name, path in pages.items():
        builder = TranscriptBuilder(session_id=SLOW_SESSION, cwd="/home/user/lines", start=datetime.now(UTC))
        add_calls(builder.prompt("A slow day"), seconds, 5)
        lines = builder.data().splitlines(keepends=True)
        file.write_bytes(b"".join(lines[:seconds]))
        open_view(driver, base, View(name, path, ANY))
        _idle_cpu(process)
        used, started = cpu_of(process), time.monotonic()
        for number, line in enumerate(lines[seconds : 2 * seconds]):
            with file.open("ab") as stream:
                stream.write(line)
            time.sleep(max(0.0, started + number + 1 - time.monotonic()))
        result.growth[f"a line a second, {name} open: CPU s a minute"] = (cpu_of(process) - used) * 60 / seconds


def add_calls(builder: TranscriptBuilder, count: int, lines: int) -> None:
    """Add calls of Read, each with a result of some lines."""
    for number in range(count):
        call = builder.call("Read", {"file_path": f"/home/user/grow/file{number % 997}.py"}, after_ms=1500)
        builder.result(call, f"{number} some words of a file\n" * lines, is_error=number % 50 == 49, after_ms=300)


def measure_growth(result: Measured, scratch: Path, megabytes: int) -> None:
    """Let a session grow: CPU time of the server and bytes sent, for the first answer and for each growth.

    First the timeline is asked for alone; then a page of the session is open, which asks for more.
    """
    print(f"{result.name}: growing session", file=sys.stderr, flush=True)
    projects = scratch / "growing" / "projects"
    file = projects / "-home-user-grow" / f"{GROWING_SESSION}.jsonl"
    shutil.rmtree(projects, ignore_errors=True)
    file.parent.mkdir(parents=True)
    builder = TranscriptBuilder(session_id=GROWING_SESSION, cwd="/home/user/grow").prompt("A long day")
    add_calls(builder, 10, 100)
    add_calls(builder, megabytes * 1_000_000 * 10 // len(builder.data()) + 2 * GROWTHS * GROWTH_CALLS, 100)
    lines = builder.data().splitlines(keepends=True)
    size = 2 * GROWTH_CALLS  # a call and its result are two lines
    later = [lines[at : at + size] for at in range(len(lines) - 2 * GROWTHS * size, len(lines), size)]
    file.write_bytes(b"".join(lines[: len(lines) - 2 * GROWTHS * size]))

    def grow() -> None:
        with file.open("ab") as stream:
            stream.writelines(later.pop(0))

    with serve_toolspan(projects, scratch) as (process, url, _), open_browser(scratch / "browser") as driver:
        base = url.partition("/?")[0]
        headers = request_headers(scratch, base)

        def ask(version: str) -> tuple[str, int]:
            address = f"{base}/api/session/{GROWING_SESSION}/timeline?after={version}"
            request = urllib.request.Request(address, headers=headers)
            with urllib.request.urlopen(request) as response:
                body = response.read()
            return json.loads(body)["version"], len(body)

        used = cpu_of(process)
        version, sent = ask("")
        result.growth["first answer: CPU, ms"] = (cpu_of(process) - used) * 1000
        result.growth["first answer: kB sent"] = sent / 1000
        total, used = 0, cpu_of(process)
        for _ in range(GROWTHS):
            grow()
            version, sent = ask(version)
            total += sent
        result.growth["growth: CPU, ms"] = (cpu_of(process) - used) * 1000 / GROWTHS
        result.growth["growth: kB sent"] = total / 1000 / GROWTHS
        driver.get(url)
        open_view(driver, base, View("growing", f"/session/{GROWING_SESSION}", LIST))
        _idle_cpu(process)
        shown, used = "return document.querySelector('[data-test=calls]').innerText", cpu_of(process)
        times = []
        for _ in range(GROWTHS):
            before, started = driver.execute_script(shown), time.monotonic()
            grow()
            while driver.execute_script(shown) == before and time.monotonic() < started + PAGE_SECONDS:
                time.sleep(0.02)
            times.append((time.monotonic() - started) * 1000)
        result.growth["growth, page open: shown after, ms"] = statistics.median(times)
        _idle_cpu(process)
        result.growth["growth, page open: CPU of all answers, ms"] = (cpu_of(process) - used) * 1000 / GROWTHS
        result.growth["server memory, MB"] = memory_of(process)


# The report


def targets_of(ours: Measured, theirs: Measured | None) -> list[Target]:
    """Return the targets and whether they are met."""
    limits = {
        "first page: data shown": 300.0,
        "sessions list: data shown": 1000.0,
        "long session: data shown": 1000.0,
        "sessions list: filter": 100.0,
        "sessions list: sort": 100.0,
        "long session: filter": 100.0,
        "long session: open a call": 1000.0,
    }
    targets = [_limit_target(what, ours.median(what), limit, "ms") for what, limit in limits.items()]
    targets.append(_limit_target("server memory", ours.memory, 200, "MB"))
    targets.append(_limit_target("CPU of the idle server in 10 s", ours.idle_cpu, 10, "ms"))
    first, growth = ours.growth.get("first answer: CPU, ms"), ours.growth.get("growth: CPU, ms")
    targets.append(ratio_target("CPU of a growth against the first answer", 0.05, (growth, first), at_most=True))
    for name in OUR_GROWING:
        what = f"a line a second, {name} open: CPU s a minute"
        targets.append(_limit_target(what, ours.growth.get(what), 3 if name == "Overview" else 1, "s"))
    targets.append(_limit_target("restart: first page", ours.median("restart: first page"), 1000.0, "ms"))
    targets.append(_limit_target("start", ours.start and ours.start * 1000, 1000, "ms"))
    for view in ("sessions list", "long session"):
        what = f"{view}: scroll p99"
        pair = (ours.median(what), theirs.median(what) if theirs else None)
        targets.append(ratio_target(f"{what} against agentsview", 1.0, pair, at_most=True))
    return targets


def _limit_target(what: str, value: float | None, limit: float, unit: str) -> Target:
    measured = "not measured" if value is None else f"{value:,.{2 if unit == 's' else 0}f} {unit}"
    return Target(what, f"≤ {limit:,.0f} {unit}", measured, None if value is None else value <= limit)


def report(contestants: Sequence[Measured], about: str) -> Iterator[str]:
    """Yield the tables: each number is the median of the runs, in ms, with all runs in brackets."""
    yield f"{machine()}, load {os.getloadavg()[0]:.1f}; {about}\n"
    names = list(dict.fromkeys(name for contestant in contestants for name in contestant.numbers))

    def cell(contestant: Measured, name: str) -> str:
        values = contestant.numbers.get(name)
        runs = f" ({' '.join(f'{value:,.0f}' for value in values)})" if values else ""
        return f"{contestant.median(name):,.1f}{runs}" if values else "–"

    rows = [[name, *(cell(contestant, name) for contestant in contestants)] for name in names]
    rows.append(
        [
            "start, seconds",
            *(f"{contestant.start:.2f}" if contestant.start is not None else "–" for contestant in contestants),
        ]
    )
    rows.append(
        ["server memory, MB", *(f"{contestant.memory:.0f}" if contestant.memory else "–" for contestant in contestants)]
    )
    rows.append(
        [
            "idle server, ms of CPU in 10 s",
            *("–" if contestant.idle_cpu is None else f"{contestant.idle_cpu:.0f}" for contestant in contestants),
        ]
    )
    yield from table(
        ["ms, median (runs)", *(f"{contestant.name} {contestant.version}" for contestant in contestants)], rows
    )
    for contestant in (contestant for contestant in contestants if contestant.growth):
        yield ""
        rows = [[name, f"{value:,.2f}"] for name, value in contestant.growth.items()]
        yield from table([f"{contestant.name}: sessions that grow (each growth: {GROWTH_CALLS} calls)", "mean"], rows)
    for contestant in contestants:
        for note in dict.fromkeys(contestant.notes):
            yield f"\n{contestant.name}: {note}"


def main() -> int:
    """Measure and print; return 1 with --enforce if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--archive", type=Path, required=True, help="folder of transcripts of Claude Code")
    parser.add_argument("--peers", type=Path, help="prefix of the peers; without it, only toolspan is measured")
    parser.add_argument("--sessions", type=int, default=5001)
    parser.add_argument("--calls", type=int, default=50_001)
    parser.add_argument("--seconds", type=int, default=60, help="how long a session grows with each view open")
    parser.add_argument("--growing", type=int, default=100, help="MB of the session that grows; 0 to leave it out")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scratch", type=Path, help="folder that is kept; default: a temporary one")
    parser.add_argument("--json", type=Path, help="also write all numbers to this file, or - for stdout")
    parser.add_argument("--enforce", action="store_true", help="exit with code 1 if a target is missed")
    arguments = parser.parse_args()
    if not ((shutil.which("chromium") or shutil.which("google-chrome")) and shutil.which("chromedriver")):
        print("Chromium and its driver are needed (Debian: chromium, chromium-driver)", file=sys.stderr)
        return 2
    with contextlib.ExitStack() as stack:
        kept = arguments.scratch and arguments.scratch.resolve()
        scratch = kept or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ui-bench-")))
        for folder in ("ours/home", "ours/tmp", "ours/run", "theirs/home", "theirs/tmp", "archive"):
            (scratch / folder).mkdir(parents=True, exist_ok=True)
        projects = scratch / "archive" / "projects"
        about = build_projects(arguments.archive.resolve(), projects, arguments.sessions, arguments.calls)
        time.sleep(3)  # files are cached when they are not quite new
        from importlib.metadata import version

        ours = Contestant(
            "toolspan", version("toolspan"), lambda: serve_toolspan(projects, scratch / "ours"),
            OURS, OUR_GROWING, OUR_API,
        )  # fmt: skip
        contestants = [run_contestant(ours, arguments.runs, arguments.seconds, projects, scratch / "ours")]
        if arguments.growing:
            try:
                measure_growth(contestants[0], scratch / "ours", arguments.growing)
            except Exception as problem:  # noqa: BLE001 - the other numbers are still reported
                contestants[0].notes.append(f"growing session: {type(problem).__name__}: {str(problem)[:300]}")
        if arguments.peers is not None:
            program = AGENTSVIEW.program(arguments.peers.resolve())
            theirs = Contestant(
                "agentsview", AGENTSVIEW.version, lambda: serve_agentsview(program, projects, scratch / "theirs"),
                THEIRS, THEIR_GROWING, THEIR_API,
            )  # fmt: skip
            contestants.append(run_contestant(theirs, arguments.runs, arguments.seconds, projects, scratch / "theirs"))
    targets = targets_of(contestants[0], contestants[1] if len(contestants) > 1 else None)
    print("\n".join([*report(contestants, about), "", *target_table(targets)]))
    write_json(
        {
            "archive": about,
            "contestants": [
                {
                    "name": contestant.name,
                    "start": contestant.start,
                    "memory": contestant.memory,
                    "idle_cpu": contestant.idle_cpu,
                    "ms": contestant.numbers,
                    "growth": contestant.growth,
                    "notes": contestant.notes,
                }
                for contestant in contestants
            ],
        },
        arguments.json,
    )
    return 1 if arguments.enforce and missed(targets) else 0


if __name__ == "__main__":
    sys.exit(main())
