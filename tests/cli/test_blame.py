"""`toolspan blame`: lines of files and commits with the calls that wrote them, in real repositories."""

from __future__ import annotations

import json
import os
import random
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import rows, run, saved
from toolspan import Archive
from toolspan.integrations import blame_file
from toolspan.testing import TranscriptBuilder, claude_results

Line = tuple[str, str | None]
"""A line and the call that wrote it; None for a person."""


class Project:
    """A repository whose files are edited by calls, which are recorded, and by hand."""

    def __init__(self, home: Path) -> None:
        self.home, self.root = home, home / "project"
        self.root.mkdir()
        self.builder = TranscriptBuilder(session_id="5e551011-0000-4000-8000-000000000001", cwd=str(self.root))
        self.builder.prompt("build the harbour")
        self.calls = 0
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "commit.gpgSign=false")
        command = ["git", *identity, "-C", str(self.root), *arguments]
        env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout.strip()

    def commit(self, message: str = "work") -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def text(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8")

    def by_hand(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def write(self, name: str, text: str) -> str:
        path = self.root / name
        before = self.text(name) if path.exists() else None
        call = self._call("Write", {"file_path": str(path), "content": text})
        self.builder.result(call, claude_results.written(str(path), text, before=before), after_ms=500)
        self.by_hand(name, text)
        return call

    def edit(self, name: str, old: str, new: str) -> str:
        path, before = str(self.root / name), self.text(name)
        call = self._call("Edit", {"file_path": path, "old_string": old, "new_string": new})
        self.builder.result(call, claude_results.edited(path, before, old, new), after_ms=500)
        self.by_hand(name, before.replace(old, new, 1))
        return call

    def _call(self, tool: str, tool_input: dict[str, str]) -> str:
        self.calls += 1
        return self.builder.call(tool, tool_input, id=f"toolu_{self.calls:03}", after_ms=1_000)

    def owners(self, name: str) -> list[Line]:
        saved(self.builder, self.home / ".claude", self.root)
        return [(row.text, row.call) for row in blame_file(Archive(), self.root / name)]

    def blame(self, *arguments: str) -> list[dict[str, Any]]:
        saved(self.builder, self.home / ".claude", self.root)
        return rows(run("blame", *arguments, "--json"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    result = Project(tmp_path)
    monkeypatch.chdir(result.root)
    return result


def test_each_line_has_the_call_and_prompt_that_wrote_it(project: Project) -> None:
    first = project.write("a.py", "one = 1\ntwo = 2\nthree = 3\n")
    project.builder.prompt("make two larger", after_ms=1_000)
    second = project.edit("a.py", "two = 2\n", "two = 22\nmore = 0\n")
    project.by_hand("a.py", project.text("a.py") + "by_hand = True\n")
    commit = project.commit()

    lines = project.blame("a.py")
    assert [(row["text"], row["call"], row["prompt"], row["certainty"]) for row in lines] == [
        ("one = 1", first, "build the harbour", "certain"),
        ("two = 22", second, "make two larger", "certain"),
        ("more = 0", second, "make two larger", "certain"),
        ("three = 3", first, "build the harbour", "certain"),
        ("by_hand = True", None, None, None),
    ]
    assert {row["commit"] for row in lines} == {commit}
    (line,) = project.blame("a.py:2")
    assert (line["line"], line["author"]) == (2, "Ann")
    shown = run("blame", "a.py:2-5").output
    assert "“make two larger”" in shown
    assert "by hand or unknown" in shown


def test_a_commit_shows_the_lines_that_it_added(project: Project) -> None:
    project.by_hand("a.py", "start = 0\n")
    project.commit()
    call = project.edit("a.py", "start = 0\n", "start = 0\nadded = 1\n")
    project.by_hand("b.txt", "hello\n")
    at = datetime.fromisoformat("2026-12-31T00:00:00+00:00")
    os.environ["GIT_COMMITTER_DATE"] = at.isoformat()
    try:
        commit = project.commit()
    finally:
        del os.environ["GIT_COMMITTER_DATE"]

    lines = project.blame(commit[:10])
    assert [(row["path"], row["text"], row["call"]) for row in lines] == [
        ("a.py", "added = 1", call), ("b.txt", "hello", None)
    ]  # fmt: skip
    assert "neither a file nor a commit" in run("blame", "abcdef1", code=2).output


def test_a_renamed_file_keeps_its_history(project: Project) -> None:
    call = project.write("old.py", "lantern = 1\nharbour = 2\nanchor = 3\n")
    project.commit()
    project.git("mv", "old.py", "new.py")
    project.commit()

    assert {owner for _, owner in project.owners("new.py")} == {call}


def test_a_moved_repository_keeps_its_history(project: Project) -> None:
    call = project.write("src/a.py", "lantern = 1\n")
    project.commit()
    saved(project.builder, project.home / ".claude", project.root)
    moved = project.home / "elsewhere"
    project.root.rename(moved)
    os.chdir(moved)

    assert [row.call for row in blame_file(Archive(), moved / "src/a.py")] == [call]


def test_a_file_of_the_same_name_elsewhere_is_not_confused(project: Project) -> None:
    project.write("src/a.py", "lantern = 1\n")
    project.by_hand("lib/a.py", "lantern = 1\n")

    assert project.owners("lib/a.py") == [("lantern = 1", None)]


def test_a_file_of_another_project_is_not_confused(project: Project) -> None:
    project.write("src/main.py", "import os\nlantern = 1\nharbour = 2\n")
    saved(project.builder, project.home / ".claude", project.root)
    other = project.home / "other/src/main.py"
    other.parent.mkdir(parents=True)
    other.write_text("import os\nanchor = 3\n", encoding="utf-8")

    assert [row.call for row in blame_file(Archive(), other)] == [None, None]


def test_a_formatter_makes_lines_likely(project: Project) -> None:
    call = project.write("a.py", "def light( oil ):\n  return {'oil':oil}\n")
    project.by_hand("a.py", 'def light(oil):\n    return {"oil": oil}\n')

    lines = project.blame("a.py")
    assert [(row["call"], row["certainty"]) for row in lines] == [(call, "likely")] * 2


def test_without_git_or_history_lines_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".claude/projects").mkdir(parents=True)
    (tmp_path / "a.txt").write_text("hello\n", encoding="utf-8")

    (line,) = rows(run("blame", tmp_path / "a.txt", "--json"))
    assert (line["call"], line["commit"]) == (None, None)
    for name in ("missing.txt", "missing.txt:40", "missing.txt:4-7"):
        assert "missing.txt: no such file; `toolspan files missing.txt`" in run("blame", tmp_path / name, code=2).output


def test_an_agent_trace_names_sessions_and_ranges(project: Project) -> None:
    project.write("a.py", "one = 1\ntwo = 2\n")
    project.by_hand("a.py", "zero = 0\n" + project.text("a.py"))
    commit = project.commit()
    saved(project.builder, project.home / ".claude", project.root)

    record = json.loads(run("blame", "a.py", "--trace").stdout)
    (file,) = record["files"]
    assert (file["path"], record["vcs"]["revision"]) == ("a.py", commit)
    assert file["conversations"][0]["ranges"] == [{"start_line": 2, "end_line": 3}]
    assert file["conversations"][0]["contributor"]["type"] == "ai"


def test_a_repository_cannot_make_blame_run_its_programs(project: Project) -> None:
    call = project.write("a.py", "one = 1\n")
    project.by_hand(".gitattributes", "* diff=evil filter=evil\n")
    project.commit()
    mark = project.home / "ran"
    for name in ("diff.evil.textconv", "diff.evil.command", "diff.external", "filter.evil.smudge", "gpg.program",
                 "core.fsmonitor", "core.pager", "filter.evil.clean"):  # fmt: skip
        project.git("config", name, f"touch {mark};:")
    project.git("config", "log.showSignature", "true")
    hook = project.root / ".git/hooks/post-index-change"
    hook.write_text(f"#!/bin/sh\ntouch {mark}\n", encoding="utf-8")
    hook.chmod(0o755)
    commit = project.git("-c", "core.fsmonitor=false", "rev-parse", "HEAD")
    mark.unlink(missing_ok=True)

    assert project.blame("a.py")[0]["call"] == call
    assert project.blame(commit)
    assert not mark.exists()


WORDS = ("lantern", "harbour", "anchor", "compass", "sail", "mast", "keel", "tide", "rope", "crew")


def test_scripted_histories_are_attributed_precisely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    pairs: list[tuple[str | None, str | None]] = []
    for seed in range(6):
        home = tmp_path / str(seed)
        home.mkdir()
        monkeypatch.setenv("HOME", str(home))
        pairs += play_history(Project(home), seed)

    attributed = [(truth, owner) for truth, owner in pairs if owner is not None]
    written = [(truth, owner) for truth, owner in pairs if truth is not None]
    assert len(attributed) > 50
    assert sum(truth == owner for truth, owner in attributed) >= 0.99 * len(attributed)
    assert sum(owner is not None for _, owner in written) >= 0.90 * len(written)


def play_history(project: Project, seed: int) -> list[tuple[str | None, str | None]]:
    """Let calls and a person edit a file, which is renamed and whose commits are squashed.

    Return who wrote each line and who is said to have written it.
    """
    number = random.Random(seed)
    name, lines = "ship.py", list[Line]()
    serial = 0

    def fresh(count: int, *, unique: bool = False) -> list[str]:
        nonlocal serial
        serial += count
        some = [f"{number.choice(WORDS)}_{serial - n} = {number.randrange(9)}" for n in range(count)]
        return [line if unique or number.random() < 0.8 else number.choice(["", "    pass", "}"]) for line in some]

    def text_of(some: list[Line]) -> str:
        return "".join(f"{line}\n" for line, _ in some)

    start = fresh(12)
    call = project.write(name, "".join(f"{line}\n" for line in start))
    lines = [(line, call) for line in start]
    for step in range(30):
        at, size = number.randrange(len(lines)), number.randrange(1, 4)
        kind = number.choice(["agent", "agent", "hand", "commit", "rename", "squash"])
        new = fresh(number.randrange(1, 5), unique=kind == "hand")
        after = [*lines[:at], *((line, None) for line in new), *lines[at + size :]]
        old = text_of(lines[at : at + size])
        if kind == "agent" and project.text(name).count(old) == 1 and lines[at : at + size]:
            call = project.edit(name, old, text_of([(line, None) for line in new]))
            lines = [*lines[:at], *((line, call) for line in new), *lines[at + size :]]
        elif kind == "hand":
            lines = after
            project.by_hand(name, text_of(lines))
        elif kind == "rename":
            project.commit()
            renamed = f"ship{step}.py"
            project.git("mv", name, renamed)
            project.commit()
            name = renamed
        elif kind == "squash":
            project.commit()
            project.commit("again")
            if int(project.git("rev-list", "--count", "HEAD")) > 3:
                project.git("reset", "-q", "--soft", "HEAD~2")
                project.commit("squashed")
        else:
            project.commit()
    found = project.owners(name)

    assert [line for line, _ in found] == [line for line, _ in lines]
    return [(truth, owner) for (_, truth), (_, owner) in zip(lines, found, strict=True)]
