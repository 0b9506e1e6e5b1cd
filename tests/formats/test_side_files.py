"""Files beside the conversation: backups, running processes, paths."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePath

import pytest

from tests.requirement import requirement
from toolspan.formats.base import RunningProcess
from toolspan.formats.claude.live import list_running_processes
from toolspan.formats.claude.paths import project_name
from toolspan.formats.claude.records import Backup, parse_backups
from toolspan.formats.codex import parse_thread_id
from toolspan.formats.registry import get_format, is_inside_folder, parse_file_name
from toolspan.formats.side_files import HOOK_LOG_NAME, hook_log_path

THREAD = "0199a0c2-0000-7000-8000-00000000000f"


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode()


KEPT = {"backupFileName": "abc@v1", "version": 1, "backupTime": "2026-11-02T09:00:00Z"}


def test_file_backups_are_found_in_both_record_forms() -> None:
    files = {"a.txt": KEPT, "/b.txt": {"backupFileName": None}}
    snapshot = line(type="file-history-snapshot", snapshot={"trackedFileBackups": files})
    delta = line(type="file-history-delta", trackingPath="c.txt", backup=KEPT)

    assert list(parse_backups(snapshot)) == [
        Backup(path="a.txt", name="abc@v1", at="2026-11-02T09:00:00Z"),
        Backup(path="/b.txt", name=None, at=""),
    ]
    assert [parse_backup.path for parse_backup in parse_backups(delta)] == ["c.txt"]


@pytest.mark.parametrize(
    "data",
    [
        line(type="user"),
        line(type="file-history-snapshot"),
        line(type="file-history-delta", trackingPath="c.txt"),
        line(type="file-history-delta", backup=KEPT),
        line(type="user", text="file-history-snapshot"),
        line(type="file-history-snapshot", snapshot=[1]),
        b'{"type":"file-history-snapshot","snapshot":',
        b'{"type":"file-history-snapshot","x":"\xff"}',
        b'{"type":"file-history-delta","x":' + b"[" * 2_000 + b"]" * 2_000 + b"}",
    ],
)
def test_record_without_file_backups_gives_none(data: bytes) -> None:
    assert list(parse_backups(data)) == []


@requirement("live.registry")
def test_running_processes_are_sorted_by_pid(tmp_path: Path) -> None:
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    for pid in (300, 7):
        (sessions / f"{pid}.json").write_bytes(line(pid=pid, sessionId=f"s{pid}", status="busy"))
    (sessions / "half.json").write_bytes(b'{"pid":1')
    (sessions / "other.json").write_bytes(line(name="no process"))
    (sessions / "notes.txt").write_bytes(line(pid=9, sessionId="s9"))
    (sessions / "elsewhere.json").symlink_to(sessions / "7.json")
    (sessions / "folder.json").mkdir()
    os.mkfifo(sessions / "pipe.json")  # opening it for reading blocks

    assert list_running_processes(sessions) == [
        RunningProcess(pid=7, session_id="s7", status="busy"),
        RunningProcess(pid=300, session_id="s300", status="busy"),
    ]
    assert list_running_processes(tmp_path / "gone") == []


@pytest.mark.parametrize(
    ("path", "output"),
    [
        ("/p/x/s1.jsonl", ("session", "s1", None, "s1", "x")),
        ("s1.jsonl.zst", ("session", "s1", None, "s1", None)),
        ("/s1.jsonl", ("session", "s1", None, "s1", None)),
        ("/p/x/agent-a1.jsonl", ("agent", "agent-a1", "a1", None, "x")),
        ("/p/x/s1/subagents/agent-a1.jsonl", ("agent", "agent-a1", "a1", "s1", "x")),
        ("/p/x/s1/subagents/w/f/agent-a1.jsonl", ("agent", "agent-a1", "a1", "s1", "x")),
        ("subagents/acompact-a1.jsonl", ("agent", "acompact-a1", "a1", "", None)),
        ("/p/history.jsonl", ("other", "history", None, None, None)),
        ("/p/x/s1/tool-results/a.jsonl", ("other", "a", None, None, None)),
        ("/c/projects/x/memory/a.jsonl", ("other", "a", None, None, None)),
        ("/c/x/memory/a.jsonl", ("session", "a", None, "a", "memory")),
        ("/p/a.txt", ("other", "a.txt", None, None, None)),
        (f"/c/rollout-2026-11-02T09-00-00-{THREAD}.jsonl", ("session", THREAD, None, THREAD, None)),
        ("/c/rollout-odd.json", ("session", "rollout-odd", None, "rollout-odd", None)),
    ],
)
def test_path_determines_the_kind_of_file(path: str, output: tuple[str | None, ...]) -> None:
    assert tuple(parse_file_name(PurePath(path))) == output


def test_hooks_record_a_session_and_its_subagents_in_one_file() -> None:
    session = Path("/p/x/s1.jsonl")

    assert hook_log_path(session) == Path("/p/x/s1") / HOOK_LOG_NAME
    assert hook_log_path(Path("/p/x/s1/subagents/agent-a1.jsonl")) == hook_log_path(session)
    assert parse_file_name(hook_log_path(session)).role == "other"


def test_thread_is_named_by_its_rollout_only_in_full() -> None:
    assert parse_thread_id(f"rollout-2026-11-02T09-00-00-{THREAD}") == THREAD
    assert parse_thread_id(f"rollout-2026-11-02-{THREAD}_{THREAD}") == THREAD
    assert parse_thread_id("rollout-2026-11-02T09-00-00") is None


def test_client_folders_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/dev")

    folders = {
        "claude": ".claude", "codex": ".codex", "gemini": ".gemini", "opencode": ".local/share/opencode",
        "copilot": ".copilot", "pi": ".pi/agent", "qwen": ".qwen", "kimi": ".kimi-code", "cursor": ".cursor",
    }  # fmt: skip
    for client, folder in folders.items():
        assert get_format(client).home({}) == Path("/home/dev", folder)
    assert get_format("claude").home({"CLAUDE_CONFIG_DIR": "~/c"}) == Path("/home/dev/c")
    assert get_format("codex").home({"CODEX_HOME": "~/x"}) == Path("/home/dev/x")
    assert get_format("gemini").home({"GEMINI_CLI_HOME": "~/x"}) == Path("/home/dev/x/.gemini")
    assert get_format("opencode").home({"XDG_DATA_HOME": "/data"}) == Path("/data/opencode")


def test_project_is_named_after_its_folder() -> None:
    assert project_name("/home/dev/my.pro_ject") == "-home-dev-my-pro-ject"
    assert project_name("/caf\u00e9") == project_name("/cafe\u0301") == "-caf-"
    assert len(project_name("/x" * 300)) == 200


def test_path_is_inside_by_its_link_target(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    (own / "out").symlink_to(other)
    (own / "round").symlink_to("round")

    assert is_inside_folder(own / "a.txt", own)
    assert not is_inside_folder(own / ".." / "other", own)
    assert not is_inside_folder(own / "out" / "a.txt", own)
    assert not is_inside_folder(Path("a\0b"), own)
