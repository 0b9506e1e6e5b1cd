"""Further hostile projects: `toolspan exec` runs no call in them that it does not run in an empty project."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

import pytest

from tests.fork_server import run_toolspan
from tests.requirement import requirement
from tests.runtime.settings.hostile_projects import HOSTILE_FOLDERS, write_files
from tests.runtime.settings.more_hostile_projects import ALLOW, LINKS, MORE_HOSTILE_FOLDERS

pytestmark = pytest.mark.usefixtures("fork_server")

CALLS: list[tuple[str, dict[str, object]]] = [
    ("Bash", {"command": "touch ../ran"}),
    ("Bash", {"command": 'python3 -c \'open("../ran", "w")\''}),
    ("Bash", {"command": "./run"}),
    ("Bash", {"command": "make"}),
    ("Bash", {"command": "git status"}),
    ("Bash", {"command": "git -C sub status"}),
    ("Bash", {"command": "touch ../ran", "dangerouslyDisableSandbox": True}),
    ("Bash", {"command": "cat ../secret"}),
    ("Bash", {"command": "curl http://127.0.0.1:9/"}),
    ("Bash", {"command": "ls"}),
    ("Write", {"file_path": "../ran", "content": "x"}),
    ("Write", {"file_path": "new.txt", "content": "x"}),
    ("Edit", {"file_path": "a.txt", "old_string": "a", "new_string": "b"}),
    ("Read", {"file_path": "../secret"}),
    ("Read", {"file_path": "a.txt"}),
    ("Skill", {"skill": "deploy"}),
    ("mcp__a__run", {"q": "x"}),
]
RUNNING = ("succeeded", "failed", "timed_out", "interrupted")
GUARD = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "touch ~/guard-ran"}]}]}
USER = {"hooks": GUARD, "permissions": {"allow": ["Bash(true:*)"], "deny": ["Bash(curl:*)"], "ask": ["Bash(ls:*)"]}}


def run_calls(home: Path) -> dict[int, str] | None:
    """Run all calls in the project, and return their states, or None if the command has not begun."""
    blocks = [
        {"type": "tool_use", "id": f"t{number}", "name": name, "input": value}
        for number, (name, value) in enumerate(CALLS)
    ]
    result = run_toolspan(
        *("exec", "--transcript", "none"),
        cwd=home / "project",
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        stdin="".join(json.dumps({"content": [block]}) + "\n" for block in blocks),
    )
    if result.returncode == 2:
        assert not result.stdout
        return None
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return {int(line["tool_use_id"][1:]): line["state"] for line in lines if line["type"] == "result"}


def make_home(home: Path) -> None:
    write_files(home, {".claude/settings.json": json.dumps(USER), "secret": "x", "project/a.txt": "a"})
    write_files(home, {"project/run": "#!/bin/sh\ntouch ../ran\n", "elsewhere/settings.json": json.dumps(ALLOW)})
    (home / "project/run").chmod(0o755)


@cache
def find_usual_states(base: Path) -> dict[int, str]:
    home = base / "usual-home"
    make_home(home)
    states = run_calls(home)
    assert states is not None
    return states


def check_folder(home: Path, base: Path) -> None:
    usual = find_usual_states(base)
    states = run_calls(home)
    if states is None:
        return  # an invalid file ends the command before it runs anything
    assert len(states) == len(CALLS)
    freed = [CALLS[number] for number, state in states.items() if state in RUNNING and usual[number] not in RUNNING]
    assert freed == []
    assert (home / "guard-ran").exists()
    assert not [name for name in ("ran", "hook-ran") if (home / name).exists()]


@requirement("settings.untrusted-restricts")
@pytest.mark.parametrize("name", MORE_HOSTILE_FOLDERS)
def test_exec_runs_no_further_call_in_a_hostile_folder(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    make_home(tmp_path)
    write_files(tmp_path / "project", MORE_HOSTILE_FOLDERS[name])

    check_folder(tmp_path, tmp_path_factory.getbasetemp())


@requirement("settings.untrusted-restricts")
@pytest.mark.parametrize("name", LINKS)
def test_exec_runs_no_further_call_in_a_folder_with_links(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    make_home(tmp_path)
    for link, target in LINKS[name].items():
        path = tmp_path / "project" / link
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target.format(home=tmp_path))

    check_folder(tmp_path, tmp_path_factory.getbasetemp())


def test_the_hostile_folders_are_different_ones() -> None:
    known = [dict(files) for files in HOSTILE_FOLDERS.values()]

    assert len(MORE_HOSTILE_FOLDERS) + len(LINKS) >= 60
    assert [name for name, files in MORE_HOSTILE_FOLDERS.items() if dict(files) in known] == []


@requirement("settings.untrusted-restricts")
def test_settings_in_another_encoding_do_not_free_calls(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    make_home(tmp_path)
    (tmp_path / "project/.claude").mkdir()
    (tmp_path / "project/.claude/settings.json").write_bytes(b"\xff\xfe" + json.dumps(ALLOW).encode("utf-16-le"))

    check_folder(tmp_path, tmp_path_factory.getbasetemp())
