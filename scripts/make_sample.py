"""Write the sample archive: ten invented sessions of one invented week.

The files go to `src/toolspan/reading/sample_archive/claude` and have the same bytes on every run. People, projects
and code are invented; only the texts of results are the clients' own. Each call states its intended state, which
`tests/testing/test_sample.py` compares with the reader. Start at `due_dates`: the other sessions work in the same
way.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from toolspan.testing import TranscriptBuilder, project_name
from toolspan.testing.claude_results import (
    Body,
    blocked_by_hook,
    denied_by_rule,
    edited,
    exited,
    failed,
    found_files,
    found_lines,
    in_background,
    launched,
    matched_paths,
    mcp_text,
    ran,
    read,
    refused,
    rejected,
    reported,
    spilled,
    timed_out,
    written,
)
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.state import State

ROOT = Path(__file__).parent.parent
ARCHIVE = ROOT / "src" / "toolspan" / "reading" / "sample_archive"
HOME = "/home/mira"

Ending = tuple[State, ErrorKind | None]
FINE: Ending = ("succeeded", None)
FAILED: Ending = ("failed", "command_failed")


@dataclass
class SampleSession:
    """A session under construction: its transcript, the project's files, and the intended state of each call."""

    transcript: TranscriptBuilder
    version: str
    cwd: str
    files: dict[str, str]
    intended: dict[str, Ending] = field(default_factory=dict)
    agents: list[SampleSession] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.begun = self.transcript.now

    def path(self, name: str) -> str:
        """Return the path of one of the project's files."""
        return f"{self.cwd}/{name}"

    def ask(self, tool: str, input: Mapping[str, object], ends: Ending = FINE) -> str:
        """Add a call and return its id. Pauses within a message are short."""
        turn = len(self.intended)
        pause = 60 + turn * 37 % 110 if self.transcript.is_in_message else 1_100 + turn * 397 % 2_900
        call_id = self.transcript.call(tool, input, after_ms=pause)
        self.intended[call_id] = ends
        return call_id

    def do(self, tool: str, input: Mapping[str, object], body: Body, ms: int, ends: Ending = FINE) -> Self:
        """Add a call and its result."""
        self.transcript.result(self.ask(tool, input, ends), body, after_ms=ms)
        return self

    def bash(self, command: str, body: Body, ms: int, ends: Ending = FINE, **more: object) -> Self:
        """Add a command and its result."""
        return self.do("Bash", {"command": command, **more}, body, ms, ends)

    def read(self, *names: str) -> Self:
        """Read files in one batch; the shortest one finishes first."""
        calls = {name: self.ask("Read", {"file_path": self.path(name)}) for name in names}
        for name in sorted(names, key=lambda name: len(self.files[name])):
            body = read(self.path(name), self.files[name], version=self.version)
            self.transcript.result(calls[name], body, after_ms=8 + len(self.files[name]) % 23)
        return self

    def edit(self, name: str, old: str, new: str, *, every: bool = False) -> str:
        """Edit a file; return the id of the call."""
        before = self.files[name]
        self.files[name] = before.replace(old, new, -1 if every else 1)
        call_id = self.ask("Edit", self.edit_input(name, old, new, every=every))
        body = edited(self.path(name), before, old, new, every=every, version=self.version)
        self.transcript.result(call_id, body, after_ms=31)
        return call_id

    def edit_input(self, name: str, old: str, new: str, *, every: bool = False) -> Mapping[str, object]:
        """Return the input of an edit."""
        return {"replace_all": every, "file_path": self.path(name), "old_string": old, "new_string": new}

    def write(self, name: str, text: str) -> Self:
        """Write a whole file."""
        body = written(self.path(name), text, before=self.files.get(name), version=self.version)
        self.files[name] = text
        return self.do("Write", {"file_path": self.path(name), "content": text}, body, 27)

    def agent(self, call_id: str, kind: str, description: str, prompt: str) -> SampleSession:
        """Return the session of a subagent, which begins with the prompt."""
        child = self.transcript.agent(call_id, kind=kind, description=description)
        child.prompt(prompt, after_ms=20)
        session = SampleSession(child, self.version, self.cwd, self.files)
        if not child.agent_id:
            session.intended = self.intended
        self.agents.append(session)
        return session

    def report(self, call_id: str, session: SampleSession, prompt: str, text: str) -> Self:
        """Add a subagent's final report, and the result of the call that started it."""
        session.transcript.text(text, after_ms=2_100)
        self.transcript.until(session.transcript)
        duration_ms = round((session.transcript.now - session.begun).total_seconds() * 1000)
        calls = 2 if session.intended is self.intended else len(session.intended)
        body = reported(
            session.transcript.agent_id, text, prompt=prompt, calls=calls, took_ms=duration_ms, version=self.version
        )
        self.transcript.result(call_id, body, after_ms=15)
        return self

    def intended_states(self) -> dict[str, dict[str, Ending]]:
        """Return the intended states of the calls by file name in the project's folder."""
        states = {f"{self.transcript.session_id}.jsonl": self.intended}
        names = self.transcript.files()
        for session in self.agents:
            suffix = f"agent-{session.transcript.agent_id}.jsonl"
            states |= {name: session.intended for name in names if name.endswith(suffix)}
        return states


def at(day: int, hour: int, minute: int) -> datetime:
    """Return a time in the week."""
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


def start_session(
    project: str, session_id: str, version: str, start: datetime, files: Mapping[str, str]
) -> SampleSession:
    """Return a new, empty session."""
    cwd = f"{HOME}/{project}"
    transcript = TranscriptBuilder(session_id=session_id, version=version, cwd=cwd, start=start)
    return SampleSession(transcript, version, cwd, dict(files))


def mcp(server: str, tool: str) -> str:
    """Return the full name of a server's tool."""
    return f"mcp__{server}__{tool}"


# The files of the projects

MODELS = '''\
"""What a todo is."""

from dataclasses import dataclass


@dataclass
class Todo:
    id: int
    title: str
    done: bool = False

    def toggle(self) -> None:
        self.done = not self.done
'''
STORE = '''\
"""Todos in a table."""

import sqlite3

from app.models import Todo


class Store:
    def __init__(self, path: str) -> None:
        self.db = sqlite3.connect(path)

    def add(self, title: str) -> Todo:
        cursor = self.db.execute("INSERT INTO todo (title) VALUES (?)", (title,))
        return Todo(cursor.lastrowid, title)

    def all(self) -> list[Todo]:
        rows = self.db.execute("SELECT id, title, done FROM todo ORDER BY id")
        return [Todo(id, title, bool(done)) for id, title, done in rows]

    def finish(self, id: int) -> None:
        self.db.execute("UPDATE todo SET done = 1 WHERE id = ?", (id,))
'''
VIEWS = '''\
"""Pages."""

from app.store import Store


def index(store: Store) -> str:
    items = "".join(f"<li>{todo.title}</li>" for todo in store.all())
    return page("Paperboat", f"<ul>{items}</ul>")


def page(title: str, body: str) -> str:
    return f"<!doctype html><title>{title}</title><body>{body}</body>"
'''
TESTS = """\
from app.store import Store


def test_a_new_todo_is_open(store: Store) -> None:
    todo = store.add("fold a boat")

    assert not todo.done


def test_a_finished_todo_is_done(store: Store) -> None:
    todo = store.add("launch it")
    store.finish(todo.id)

    assert store.all()[0].done
"""
STYLE = """\
body {
  color: #222;
  background: #fff;
  font-family: sans-serif;
}

li {
  color: #222;
  padding: 0.25rem;
}

a {
  color: #0366d6;
}
"""
PAPERBOAT = {
    "app/models.py": MODELS,
    "app/store.py": STORE,
    "app/views.py": VIEWS,
    "tests/test_store.py": TESTS,
    "static/style.css": STYLE,
}

TABLE = '''\
"""Tide tables in text files: one line per tide, time and height."""

from pathlib import Path


def load(path: Path) -> list[tuple[str, float]]:
    rows = []
    for line in path.read_text().splitlines():
        time, height = line.split()
        rows.append((time, float(height)))
    return rows
'''
TIDE_MAIN = """\
import sys

from tide.table import load


def main() -> None:
    for time, height in load(sys.argv[1]):
        print(time, height)
"""
TIDE_README = """\
# tide

Prints a tide table.

    tide tables/harbour.txt
"""
TIDE = {"tide/main.py": TIDE_MAIN, "tide/table.py": TABLE, "README.md": TIDE_README}

EXTRACT = '''\
"""River gauges: fetch yesterday's readings."""

from brook.http import get


def readings(station: str) -> list[dict[str, str]]:
    return get(f"/stations/{station}/readings?period=1d")
'''
CLEAN = '''\
"""Throw out what cannot be true."""


def clean(rows: list[dict[str, str]]) -> list[dict[str, float]]:
    kept = []
    for row in rows:
        level = float(row["level"])
        if level < 0:
            continue
        kept.append({"level": level})
    return kept
'''
LOAD = '''\
"""Write cleaned readings to the warehouse."""

from brook.warehouse import connect


def load(rows: list[dict[str, float]]) -> int:
    with connect() as db:
        db.executemany("INSERT INTO level VALUES (:level)", rows)
    return len(rows)
'''
BROOK = {"brook/extract.py": EXTRACT, "brook/clean.py": CLEAN, "brook/load.py": LOAD}


def due_dates() -> SampleSession:
    """Parallel reads and searches, tasks, edits with a hook, a failing and a passing test run."""
    d = start_session("paperboat", "5f0c1d7e-2b64-4c1b-9a53-0d6f1c7b8e21", "2.1.325", at(2, 8, 12), PAPERBOAT)
    t = d.transcript
    t.prompt("Todos need a due date. Add the field, show it in the list, keep the tests green.")
    t.thinking("Model, store, view and a migration. Look at all of them before changing any.")
    t.text("I'll look at the model, the store and everything that builds a todo.")
    models, store = (d.ask("Read", {"file_path": d.path(f"app/{name}.py")}) for name in ("models", "store"))
    built = d.ask("Grep", {"pattern": r"Todo\(", "output_mode": "content"})
    users = d.ask("Grep", {"pattern": "store.all", "output_mode": "files_with_matches"})
    tests = d.ask("Glob", {"pattern": "tests/**/*.py"})
    t.result(models, read(d.path("app/models.py"), MODELS), after_ms=12)
    t.result(tests, matched_paths(["tests/conftest.py", "tests/test_store.py"], took_ms=9))
    t.result(users, found_files(["app/views.py", "tests/test_store.py"]), after_ms=14)
    places = [f"app/store.py:{n}:{STORE.splitlines()[n - 1]}" for n in (14, 18)]
    t.result(built, found_lines(places), after_ms=3)
    t.result(store, read(d.path("app/store.py"), STORE), after_ms=2)
    _tasks(d, "Add the column", "Show the date")
    _add_the_column(d)
    _run_the_tests(d)
    t.text("Todos have a due date now, the list shows it, and all three tests pass.", after_ms=2_600)
    t.prompt("Commit it, please.", after_ms=64_000)
    d.bash(
        "git add -A && git commit -m 'Todos have a due date'",
        ran("[main 4e1c2aa] Todos have a due date\n 5 files changed, 11 insertions(+)"),
        ms=420,
    )
    t.text("Committed as 4e1c2aa.", after_ms=1_200).title("Due dates for todos")
    return d


def _tasks(d: SampleSession, *subjects: str) -> None:
    """Add tasks to the list, in one batch."""
    calls = [
        d.ask("TaskCreate", {"subject": subject, "description": f"{subject}, with a test"}) for subject in subjects
    ]
    for n, (call_id, subject) in enumerate(zip(calls, subjects, strict=True), start=1):
        task = {"id": str(n), "subject": subject, "description": f"{subject}, with a test"}
        text = f"Task #{n} created successfully: {subject}"
        d.transcript.result(call_id, Body(content=text, structured={"task": task}), after_ms=4)


def _add_the_column(d: SampleSession) -> None:
    d.write("migrations/0002_due.sql", "ALTER TABLE todo ADD COLUMN due TEXT;\n")
    change = d.edit(
        "app/models.py",
        "    title: str\n    done: bool = False\n",
        "    title: str\n    done: bool = False\n    due: str | None = None\n",
    )
    d.transcript.hook(change, "PostToolUse", command="ruff format", text="1 file left unchanged", took_ms=85)
    d.edit(
        "app/store.py",
        '"SELECT id, title, done FROM todo ORDER BY id")\n'
        "        return [Todo(id, title, bool(done)) for id, title, done in rows]",
        '"SELECT id, title, done, due FROM todo ORDER BY due, id")\n'
        "        return [Todo(id, title, bool(done), due) for id, title, done, due in rows]",
    )
    d.edit("app/views.py", "<li>{todo.title}</li>", "<li>{todo.title} {todo.due or ''}</li>")
    status = {"from": "pending", "to": "completed"}
    update = {"success": True, "taskId": "1", "updatedFields": ["status"], "statusChange": status}
    d.do(
        "TaskUpdate",
        {"taskId": "1", "status": "completed"},
        Body(content="Updated task #1 status", structured=update),
        ms=5,
    )


def _run_the_tests(d: SampleSession) -> None:
    lost = "E       sqlite3.OperationalError: no such column: due"
    report = f"..F\n{lost}\nFAILED tests/test_store.py::test_a_finished_todo_is_done\n1 failed, 1 passed"
    d.bash("pytest -q", exited(1, report), ms=2_310, ends=FAILED, description="Run the tests")
    d.transcript.text("The test database is made without the new migration.", after_ms=1_900)
    d.read("tests/test_store.py")
    d.edit(
        "tests/test_store.py",
        "    assert store.all()[0].done\n",
        "    assert store.all()[0].done\n\n\n"
        "def test_todos_come_in_the_order_of_their_dates(store: Store) -> None:\n"
        '    assert [todo.due for todo in store.all()] == ["2026-11-03", "2026-11-09"]\n',
    )
    d.bash("pytest -q", ran("...\n3 passed in 0.41s"), ms=1_870, description="Run the tests")


def dark_theme() -> SampleSession:
    """Failed edits and their recoveries, a network error, and denials by the user and by a rule."""
    d = start_session("paperboat", "c2a9e6b4-71d3-4f0a-8e1c-93b5d2f4a610", "2.1.197", at(3, 14, 5), PAPERBOAT)
    t = d.transcript
    t.prompt("Give the page a dark theme.")
    _edit_unread(d)
    _edit_what_is_not_there(d)
    _edit_in_two_places(d)
    t.text("Let me look up contrast values.", after_ms=1_500)
    address = "https://contrast.example/wcag"
    d.do(
        "WebFetch",
        {"url": address, "prompt": "Minimum contrast for body text"},
        failed("Request failed with status code 503"),
        ms=5_120,
        ends=("failed", "network"),
    )
    d.do(
        "WebFetch",
        {"url": f"{address}/mirror", "prompt": "Minimum contrast for body text"},
        Body(
            content="Body text needs a contrast of at least 4.5 to 1.",
            structured={
                "bytes": 18211,
                "code": 200,
                "codeText": "OK",
                "result": "Body text needs a contrast of at least 4.5 to 1.",
                "durationMs": 2240,
                "url": f"{address}/mirror",
            },
        ),
        ms=2_260,
    )
    d.bash(
        "rm -r static/old",
        rejected("keep static/old, the print page uses it"),
        ms=9_400,
        ends=("denied", "user_denied"),
        description="Remove the old styles",
    )
    push = "git push origin main"
    d.bash(push, denied_by_rule(push), ms=11, ends=("denied", "rule_denied"))
    t.text("The theme is in. The old styles stay, and pushing is left to you.", after_ms=2_000)
    t.title("Dark theme")
    return d


def _edit_unread(d: SampleSession) -> None:
    """Edit, get the error to read first, read, and edit again."""
    dark = "body {\n  color-scheme: light dark;\n  color: #222;"
    d.do(
        "Edit",
        d.edit_input("static/style.css", "body {\n  color: #222;", dark),
        refused("File has not been read yet. Read it first before writing to it."),
        ms=6,
        ends=("failed", "read_required"),
    )
    d.read("static/style.css").edit("static/style.css", "body {\n  color: #222;", dark)


def _edit_what_is_not_there(d: SampleSession) -> None:
    missing = '<html class="light">'
    d.read("app/views.py").do(
        "Edit",
        d.edit_input("app/views.py", missing, '<html class="dark">'),
        refused(f"String to replace not found in file.\nString: {missing}"),
        ms=7,
        ends=("failed", "no_match"),
    )
    line = 'app/views.py:12:    return f"<!doctype html><title>{title}</title><body>{body}</body>"'
    d.do("Grep", {"pattern": "doctype", "output_mode": "content"}, found_lines([line]), ms=18)
    d.edit("app/views.py", "<!doctype html><title>", '<!doctype html><html class="dark"><title>')


def _edit_in_two_places(d: SampleSession) -> None:
    d.do(
        "Edit",
        d.edit_input("static/style.css", "color: #222;", "color: var(--ink);"),
        refused(
            "Found 2 matches of the string to replace, but replace_all is false. To replace all"
            " occurrences, set replace_all to true. To replace only one occurrence, please provide"
            " more context to uniquely identify the instance.\nString: color: #222;"
        ),
        ms=6,
        ends=("failed", "ambiguous_match"),
    )
    d.edit("static/style.css", "color: #222;", "color: var(--ink);", every=True)
    d.do(
        "Edit",
        d.edit_input("static/style.css", "background: #fff;", "background: var(--paper);"),
        refused(
            "File has been modified since read, either by the user or by a linter. Read it again"
            " before attempting to write it."
        ),
        ms=5,
        ends=("failed", "stale_file"),
    )
    d.read("static/style.css")
    d.edit("static/style.css", "background: #fff;", "background: var(--paper);")


SEARCH = """\
const box = document.querySelector("#search");
box.addEventListener("input", () => {
  for (const item of document.querySelectorAll("li")) {
    item.hidden = !item.textContent.includes(box.value);
  }
});
"""


def search_box() -> SampleSession:
    """An attempt that is rewound, so that its calls are on an abandoned branch."""
    d = start_session("paperboat", "91b7f3d2-4c08-4e6d-b2a7-5e8c0f1a7d34", "2.1.325", at(4, 10, 30), PAPERBOAT)
    t = d.transcript
    t.prompt("Add a search box above the list.")
    d.read("app/views.py", "app/store.py")
    crossing, before = t.last, dict(d.files)
    t.text("I'll search in the database and add a query parameter.", after_ms=1_700)
    d.edit("app/store.py", "    def all(self)", "    def search(self, words: str)")
    d.bash("pytest -q", exited(1, "E  AttributeError: 'Store' object has no attribute 'all'"),
           ms=1_640, ends=FAILED)  # fmt: skip
    t.rewind(crossing)
    d.files = before
    t.prompt("Add a search box above the list. Filter in the browser, not in the store.",
             after_ms=41_000)  # fmt: skip
    d.write("static/search.js", SEARCH)
    d.write("static/search.js", SEARCH.replace("box.value", "box.value.trim()"))
    d.edit("app/views.py", 'f"<ul>{items}</ul>"', "f'<input id=\"search\"><ul>{items}</ul>'")
    d.bash("pytest -q", ran("..\n2 passed in 0.38s"), ms=1_590)
    t.text("The box filters the list as you type.", after_ms=1_800).title("Search box")
    return d


def search_box_fork(original: SampleSession) -> SampleSession:
    """A fork: the lines of another session with their uuids, then new ones."""
    twin = original.transcript.fork("d48e2a06-9f1b-4d77-8c35-b60a7f2e1c98")
    d = SampleSession(twin, original.version, original.cwd, dict(original.files), dict(original.intended))
    d.transcript.prompt("In this copy, let it find words with typing errors too.", after_ms=300_000)
    d.read("static/search.js")
    d.edit(
        "static/search.js",
        "!item.textContent.includes(box.value.trim())",
        "distance(item.textContent, box.value.trim()) > 2",
    )
    d.bash(
        "node --test static",
        exited(127, "/bin/bash: line 1: node: command not found"),
        ms=48,
        ends=("failed", "command_not_found"),
    )
    d.transcript.text("There is no node here to test it with.", after_ms=1_400)
    d.transcript.title("Search box, forgiving", custom=True)
    return d


def tide_heights() -> SampleSession:
    """An old client, which writes the subagent's lines into the session's file."""
    d = start_session("tide", "0b6d8f15-e3a2-4b9c-a7d0-1f4c5e6a7b82", "1.0.88", at(2, 16, 40), TIDE)
    t = d.transcript
    t.prompt("Which tables does tide understand, and does it check them?")
    listing = f"- {d.cwd}/\n  - README.md\n  - tide/\n    - main.py\n    - table.py\n"
    d.do("LS", {"path": d.cwd}, Body(content=listing, structured=listing), ms=14)
    prompt = "Find every place where tide reads a file and say what it checks."
    question = {"description": "Find file reading", "prompt": prompt}
    call_id = d.ask("Task", {**question, "subagent_type": "general-purpose"})
    sub = d.agent(call_id, "general-purpose", "Find file reading", prompt)
    lines = [f"{d.path('tide/table.py')}:8:    for line in path.read_text().splitlines():"]
    sub.do("Grep", {"pattern": "read_text", "output_mode": "content"}, found_lines(lines), ms=22)
    sub.read("tide/table.py")
    d.report(call_id, sub, prompt, "Only `load` reads a file. It checks nothing.")
    d.do(
        "Read",
        {"file_path": d.path("tide/check.py")},
        refused("File does not exist."),
        ms=5,
        ends=("failed", "not_found"),
    )
    _check_the_table(d)
    t.text("`load` now names the line that it cannot read.", after_ms=2_300)
    t.title("Tide tables are checked")
    return d


def _check_the_table(d: SampleSession) -> None:
    name, before = "tide/table.py", d.files["tide/table.py"]
    after = before.replace("    for line in", "    for number, line in enumerate(").replace(
        "splitlines():", "splitlines(), start=1):"
    )
    patch = written(d.path(name), after, before=before, version=d.version).structured
    hunks = patch["structuredPatch"] if isinstance(patch, dict) else []
    edits = [
        {"old_string": "    for line in", "new_string": "    for number, line in enumerate("},
        {"old_string": "splitlines():", "new_string": "splitlines(), start=1):"},
    ]
    structured = {
        "filePath": d.path(name),
        "edits": edits,
        "originalFileContents": before,
        "structuredPatch": hunks,
        "userModified": False,
    }
    summary = "\n".join(f'{n}. Replaced "{e["old_string"]}"' for n, e in enumerate(edits, start=1))
    body = Body(content=f"Applied 2 edits to {d.path(name)}:\n{summary}", structured=structured)
    d.do("MultiEdit", {"file_path": d.path(name), "edits": edits}, body, ms=24)
    d.files[name] = after


def tide_flags() -> SampleSession:
    """A client of version 2.0: results in one chain, the subagent in a file beside the session."""
    d = start_session("tide", "7e3f9c40-5d21-4a8e-9b16-c8d7e0f2a359", "2.0.65", at(5, 9, 20), TIDE)
    t = d.transcript
    t.prompt("tide should take --low and --high.")
    open_todos = [
        {"content": "Parse the flags", "status": "in_progress", "activeForm": "Parsing the flags"},
        {"content": "Document them", "status": "pending", "activeForm": "Documenting them"},
    ]
    _todos(d, [], open_todos)
    d.read("tide/main.py", "tide/table.py", "README.md")
    prompt = "How do other small tools name flags for a lower and an upper limit?"
    question = {"description": "Compare flag names", "prompt": prompt}
    call_id = d.ask("Task", {**question, "subagent_type": "Explore"})
    sub = d.agent(call_id, "Explore", "Compare flag names", prompt)
    sub.bash("ls /usr/share/doc | head -3", ran("bc\ncal\nunits", version=d.version), ms=31)
    sub.do("Glob", {"pattern": "**/*.md"}, matched_paths([d.path("README.md")], took_ms=7), ms=12)
    d.report(call_id, sub, prompt, "Most say --min and --max; --low and --high are clear too.")
    d.edit(
        "tide/main.py",
        "    for time, height in load(sys.argv[1]):\n",
        "    low, high = limits(sys.argv[2:])\n"
        "    for time, height in load(sys.argv[1]):\n"
        "        if not low <= height <= high:\n"
        "            continue\n",
    )
    d.bash(
        "shellcheck bin/tide",
        exited(127, "/bin/bash: line 1: shellcheck: command not found"),
        ms=44,
        ends=("failed", "command_not_found"),
    )
    d.bash("python -m tide tables/harbour.txt --low 2", ran("06:12 3.4", version=d.version), ms=96)
    _todos(d, open_todos, [{**todo, "status": "completed"} for todo in open_todos])
    t.text("--low and --high work; shellcheck is not installed here.", after_ms=1_700)
    return d


def _todos(d: SampleSession, old: list[dict[str, str]], new: list[dict[str, str]]) -> None:
    body = Body(content="Todos have been modified successfully.", structured={"oldTodos": old, "newTodos": new})
    d.do("TodoWrite", {"todos": new}, body, ms=9)


def tide_benchmark() -> SampleSession:
    """A client that writes progress lines: an interrupted run, and a call that never began."""
    d = start_session("tide", "a64c20e9-8b73-4f15-8d02-3e9f7b1c6d50", "2.1.80", at(6, 11, 15), TIDE)
    t = d.transcript
    t.prompt("How fast is load for a year of tides?")
    d.read("tide/table.py")
    make = d.ask("Bash", {"command": "python bench/make_year.py", "description": "Make a table"})
    t.hook(make, "PreToolUse", command=".hooks/only-in-project.sh")
    t.progress(make, "bash_progress", output="1461 tides", fullOutput="1461 tides",
               elapsedTimeSeconds=2, totalLines=1)  # fmt: skip
    t.result(make, ran("1461 tides"), after_ms=3_200)
    t.text("Now the timing, many times over.", after_ms=1_100)
    time, plot = (
        d.ask("Bash", {"command": "python -m timeit -n 5000 -s 'import bench' 'bench.load()'"},
              ("interrupted", "interrupted")),
        d.ask("Bash", {"command": "python bench/plot.py"}, ("cancelled", "cancelled")),
    )  # fmt: skip
    for seconds in (2, 5, 9):
        line = "5000 loops, still running"
        t.wait(3_000).progress(time, "bash_progress", output=line, fullOutput=line,
                               elapsedTimeSeconds=seconds, totalLines=1)  # fmt: skip
    partial = "[Request interrupted by user for tool use]\n5000 loops, still running"
    t.result(time, exited(137, partial), after_ms=2_400)
    words = (
        "The user doesn't want to take this action right now. STOP what you are doing and wait for"
        " the user to tell you how to proceed."
    )
    t.result(plot, Body(content=words, structured=words, is_error=True), after_ms=1)
    t.interrupt().prompt("That takes too long. 50 loops are enough.", after_ms=20_000)
    d.bash(
        "python -m timeit -n 50 -s 'import bench' 'bench.load()'",
        ran("50 loops, best of 5: 1.92 msec per loop"),
        ms=640,
    )
    d.do(
        "Read",
        {"file_path": d.path("bench/README.md")},
        failed(f"File does not exist. Note: your current working directory is {d.cwd}."),
        ms=5,
        ends=("failed", "not_found"),
    )
    t.text("About 1.9 ms for a year.", after_ms=1_300).title("How fast load is")
    return d


def gauges() -> SampleSession:
    """Parallel subagents, background work, an unreliable MCP server, a long output."""
    d = start_session("brook", "3c5a7e91-d0b4-42f6-a8e3-6b1d9f0c2e47", "2.1.325", at(5, 13, 0), BROOK)
    t = d.transcript
    t.prompt("Some gauges report levels that jump. Find out where that comes from.")
    t.thinking("Two questions that do not depend on each other: the source and the cleaning.")
    _two_agents(d)
    command = {"command": "python -m brook.backfill --days 30", "description": "Backfill a month"}
    backfill = d.ask("Bash", {**command, "run_in_background": True})
    t.result(backfill, in_background("b7k2m9xqa", t.task_output("b7k2m9xqa")), after_ms=90)
    _ask_the_warehouse(d)
    t.task_notification(
        backfill, "b7k2m9xqa", 'Background command "Backfill a month" completed (exit code 0)', queued=True
    )
    _long_output(d)
    _agent_in_background(d)
    t.title("Jumping gauge levels")
    return d


def _two_agents(d: SampleSession) -> None:
    prompts = {
        "Trace the source": "Read how brook fetches readings. Can a reading come twice?",
        "Check the cleaning": "Read how brook cleans readings. Which wrong levels pass?",
    }
    calls = {
        name: d.ask(
            "Agent", {"description": name, "prompt": prompt, "subagent_type": "Explore"} | {"run_in_background": False}
        )
        for name, prompt in prompts.items()
    }
    source, cleaning = (d.agent(calls[name], "Explore", name, prompt) for name, prompt in prompts.items())
    source.read("brook/extract.py")
    source.do(
        "Read",
        {"file_path": d.path("brook/http.py")},
        failed(f"File does not exist. Note: your current working directory is {d.cwd}."),
        ms=6,
        ends=("failed", "not_found"),
    )
    source.do("Grep", {"pattern": "def get", "output_mode": "files_with_matches"},
              found_files(["brook/http/__init__.py"]), ms=16)  # fmt: skip
    cleaning.read("brook/clean.py", "brook/load.py")
    first, second = prompts
    d.report(calls[second], cleaning, prompts[second],
             "Negative levels are dropped.\nAnything too high passes.")  # fmt: skip
    d.report(calls[first], source, prompts[first],
             "Yes: the period overlaps by an hour, so readings come twice.")  # fmt: skip


def _ask_the_warehouse(d: SampleSession) -> None:
    """Calls to an MCP server that answers, times out, fails and disconnects."""
    query = mcp("warehouse", "query")
    counted = mcp_text("station,rows\nupper-mill,1440\nford,2880")
    sql = "SELECT station, count(*) FROM level GROUP BY station"
    d.do(query, {"sql": sql}, counted, ms=310)
    d.do(
        query,
        {"sql": "SELECT * FROM level a JOIN level b USING (station)"},
        failed('MCP server "warehouse" tool "query" timed out after 30s'),
        ms=30_040,
        ends=("timed_out", "mcp_timeout"),
    )
    d.do(
        query,
        {"sql": "SELECT levl FROM level"},
        failed("MCP error -32603: no such column: levl"),
        ms=120,
        ends=("failed", "mcp_error"),
    )
    d.do(
        mcp("warehouse", "explain"),
        {"sql": sql},
        failed("Connection closed"),
        ms=45,
        ends=("failed", "mcp_no_response"),
    )


def _long_output(d: SampleSession) -> None:
    start = datetime(2026, 10, 1, tzinfo=UTC)
    output = "\n".join(
        f"{start + n * timedelta(minutes=30):%Y-%m-%dT%H:%MZ} ford {1.2 + n % 17 / 10:.1f}" for n in range(1_200)
    )
    path = d.transcript.sidecar("tool-results/bq4w8n1zt.txt", output.encode())
    d.bash("python -m brook.dump ford", spilled(output, path), ms=880, description="Dump a station")
    d.transcript.text("Every hour has one reading twice. I'll have that counted.", after_ms=2_100)


def _agent_in_background(d: SampleSession) -> None:
    prompt = "Count the readings of October that occur twice, station by station."
    question = {"description": "Count doubles", "prompt": prompt}
    call_id = d.ask("Agent", {**question, "subagent_type": "general-purpose"})
    sub = d.agent(call_id, "general-purpose", "Count doubles", prompt)
    name = sub.transcript.agent_id
    output_file = d.transcript.task_output(name)
    body = launched(name, description="Count doubles", prompt=prompt, output_file=output_file)
    d.transcript.result(call_id, body, after_ms=40)
    d.transcript.text("Counting goes on in the background.", after_ms=1_000)
    sub.bash("python -m brook.doubles --month 10", ran("ford 720\nupper-mill 0"), ms=7_300)
    sub.transcript.text("ford has 720 doubles, upper-mill none.", after_ms=1_600)
    d.transcript.until(sub.transcript).task_notification(
        call_id, name, 'Agent "Count doubles" finished',
        result="ford has 720 doubles, upper-mill none.",
    )  # fmt: skip
    d.transcript.text("Only ford is fetched twice: 720 doubles in October.", after_ms=2_200)


def nightly_load() -> SampleSession:
    """A hook that blocks, a timeout, a compaction, and a session that is killed and resumed."""
    d = start_session("brook", "e8f1b3d5-06a7-4c92-b4d8-7a2c0e9f5b16", "2.1.325", at(7, 15, 0), BROOK)
    t = d.transcript
    t.prompt("Make the nightly load safe to run twice.")
    d.read("brook/load.py", "brook/clean.py")
    _tasks(d, "Make loading idempotent")
    drop = "psql warehouse -c 'TRUNCATE level'"
    d.bash(
        drop,
        blocked_by_hook("Bash", ".hooks/no-truncate.sh", "TRUNCATE is not allowed here"),
        ms=58,
        ends=("blocked_by_hook", "hook_blocked"),
        description="Empty the table",
    )
    d.edit("brook/load.py", "INSERT INTO level VALUES (:level)",
           "INSERT INTO level VALUES (:level) ON CONFLICT DO NOTHING")  # fmt: skip
    checked = d.ask("Bash", {"command": "python -m brook.load --dry-run"})
    t.hook(checked, "PreToolUse", command=".hooks/audit.sh", outcome="context",
           text="The warehouse is in maintenance until 16:00.")  # fmt: skip
    t.result(checked, ran(), after_ms=1_250)
    d.bash(
        "sleep 600",
        timed_out("2m 0s"),
        ms=120_030,
        ends=("timed_out", "command_timeout"),
        description="Wait for the warehouse",
    )
    t.text("The warehouse is still in maintenance.", after_ms=1_800)
    t.wait(1_000).compact("Loading skips rows that are already there. Left: run it twice and compare the counts.")
    t.prompt("Maintenance is over, go on.", after_ms=2_400_000)
    d.read("brook/load.py")
    d.bash("python -m brook.load && python -m brook.load", ran("1440\n0"), ms=8_900)
    ended: Ending = ("interrupted", "interrupted")
    d.ask("Bash", {"command": "python -m brook.compare --nights 7"}, ended)
    t.resume(after_ms=540_000).prompt("The laptop died. Did the comparison finish?", after_ms=900)
    d.bash("python -m brook.compare --nights 1", ran("no differences"), ms=2_150)
    t.text("Run again for one night: no differences.", after_ms=1_400).title("Loading twice is safe")
    t.state("last-prompt", lastPrompt="The laptop died. Did the comparison finish?", leafUuid=t.last)
    return d


def broken_night() -> SampleSession:
    """Damage by a crash: a lost line, two records on one line, a torn end."""
    d = start_session("brook", "16d9c7a2-f584-4e3b-90c1-d2b8a5e7f463", "2.1.325", at(8, 19, 45), BROOK)
    t = d.transcript
    t.prompt("The nightly run broke at 03:10. What happened?")
    d.read("brook/extract.py")
    lost = d.ask("Bash", {"command": "tail -2 log/night.txt"}, ("orphan_result", None))
    t.tear(300, ended=True)
    t.result(lost, ran("03:09 fetched 1440\n03:10 disk full"), after_ms=33)
    t.text("The disk was full. I'll see by what.", after_ms=1_500).glue()
    d.bash("du -sh log data", ran("212M\tlog\n61G\tdata"), ms=2_700)
    died: Ending = ("never_answered", None)
    d.ask("Bash", {"command": "find data -size +1G"}, died)
    t.result(d.ask("Bash", {"command": "df -h data"}, died), ran("/dev/vdb 64G 64G 0 100%"))
    t.tear(640)
    return d


SESSION_MAKERS: tuple[Callable[[], SampleSession], ...] = (
    due_dates, dark_theme, search_box, tide_heights, tide_flags, tide_benchmark, gauges,
    nightly_load, broken_night,
)  # fmt: skip


def sessions() -> list[SampleSession]:
    """Return all sessions, in no particular order."""
    return [*(make_session() for make_session in SESSION_MAKERS), search_box_fork(search_box())]


def write(archive: Path) -> None:
    """Write the archive."""
    root = archive / "claude"
    shutil.rmtree(root, ignore_errors=True)
    for session in sessions():
        folder = root / "projects" / project_name(session.cwd)
        session.transcript.write(folder / f"{session.transcript.session_id}.jsonl")


def main() -> None:
    """Write the archive into the package, or to the named folder."""
    parser = argparse.ArgumentParser(description="Write the sample archive.")
    parser.add_argument("--out", type=Path, default=ARCHIVE, help="the archive's folder")
    write(parser.parse_args().out)


if __name__ == "__main__":
    main()
