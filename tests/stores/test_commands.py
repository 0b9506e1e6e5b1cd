"""`--store` records and resumes from the command line, and commands read stores like folders."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import rows, run
from toolspan import open_store
from toolspan.stores.base import LeaseRequest

SESSION = "5e551011-0000-4000-8000-00000000000b"


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for variable in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    (tmp_path / "project").mkdir()
    return f"sqlite://{tmp_path}/store.db"


def exec_calls(url: str, tmp_path: Path, *options: str, call: str) -> list[dict[str, object]]:
    block = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": "echo found; exit 3"}}
    line = json.dumps({"type": "assistant", "message": {"content": [block]}})
    arguments = ["exec", "--store", url, "--cwd", str(tmp_path / "project"), "--permission-mode", "bypassPermissions"]
    command = [sys.executable, "-m", "toolspan", *arguments, "--no-sandbox", *options]
    return rows(subprocess.run(command, input=line, capture_output=True, text=True, check=True))


def test_a_session_is_recorded_resumed_and_read(url: str, tmp_path: Path) -> None:
    (row,) = exec_calls(url, tmp_path, call="toolu_1")
    assert row["state"] == "failed"
    (session,) = rows(run("sessions", url, "--json"))
    assert (session["calls"], session["project"]) == (1, str(tmp_path / "project"))

    exec_calls(url, tmp_path, "--resume", session["id"][:8], call="toolu_2")
    (resumed,) = rows(run("sessions", url, "--json"))
    assert (resumed["id"], resumed["calls"]) == (session["id"], 2)
    assert "echo found" in run("show", session["id"], url).output
    (group,) = rows(run("errors", url, "--json"))
    assert group["count"] == 2
    assert len(rows(run("search", "found", url, "--json"))) >= 2
    run("usage", url)
    errors = run("errors", url, env={"TOOLSPAN_HINTS": "1"}).output
    assert f"toolspan calls {url} --group" in " ".join(errors.replace("\\\n", "").split())
    assert "XDG_CACHE_HOME" not in errors  # the folder of the copy


def test_live_sessions_show_host_and_lease(url: str, tmp_path: Path) -> None:
    exec_calls(url, tmp_path, call="toolu_1")
    store = open_store(url)
    key = store.list_streams()[0].key
    assert rows(run("sessions", url, "--live", "--json")) == []
    lease = store.acquire_lease(LeaseRequest(key, "owner", "host-a", 4711, 60))
    (row,) = rows(run("sessions", url, "--live", "--json"))
    assert (row["id"], row["host"], row["pid"], row["owner"]) == (key.session, "host-a", 4711, "owner")
    assert "process 4711 on host-a has its lease for" in row["evidence"][0]
    assert "process 4711 on host-a" in run("sessions", url, "--live").output
    store.release_lease(lease)
    store.acquire_lease(LeaseRequest(key, "other", "host-b", 4712, -5))
    (row,) = rows(run("sessions", url, "--live", "--json"))
    assert row["status"] == "dead"
    hint = f"toolspan run --store {url} --resume SESSION continues a dead session on this host."
    assert hint in " ".join(run("sessions", url, "--live", env={"TOOLSPAN_HINTS": "1"}).output.split())
    assert "the lease of process 4712 on host-b expired" in row["evidence"][0]
    store.close()


def test_a_deleted_session_is_gone_from_the_copy(url: str, tmp_path: Path) -> None:
    exec_calls(url, tmp_path, call="toolu_1")
    exec_calls(url, tmp_path, call="toolu_1")
    assert len(rows(run("sessions", url, "--json"))) == 2
    store = open_store(url)
    store.remove_stream(store.list_streams()[0].key.with_subpath(""))
    store.close()
    assert len(rows(run("sessions", url, "--json"))) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["exec", "--resume", "x"], "--resume needs --store"),
        (["exec", "--store", "URL", "--transcript", "none"], "use either --store or --transcript"),
        (["exec", "--store", "URL", "--resume", "0000"], "no session begins with '0000'"),
        (["exec", "--store", "mongodb://x"], "is not the URL of a store"),
    ],
)
def test_a_wrong_option_is_one_sentence(url: str, arguments: list[str], message: str) -> None:
    result = run(*[url if argument == "URL" else argument for argument in arguments], code=None)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_server_that_does_not_answer_is_one_sentence() -> None:
    pytest.importorskip("psycopg")

    result = run("sessions", "postgresql://127.0.0.1:1/db", code=2)

    assert "postgresql://127.0.0.1:1/db: connection" in result.output


def test_a_session_is_forked_and_rewound_while_another_host_runs_it(url: str, tmp_path: Path) -> None:
    exec_calls(url, tmp_path, call="toolu_1")
    store = open_store(url)
    (main,) = [stream.key for stream in store.list_streams() if not stream.key.subpath]
    exec_calls(url, tmp_path, "--resume", main.session, call="toolu_2")
    lines = store.read_lines(main) or []
    lease = store.acquire_lease(LeaseRequest.make(main))

    def fork(*options: str) -> None:
        script = tmp_path / "replies.json"
        script.write_text('[[{"type": "text", "text": "Done."}]]', encoding="utf-8")
        arguments = ["run", "--store", url, "--cwd", str(tmp_path / "project"), "--model", f"scripted:{script}"]
        arguments += ["--no-sandbox", "-p", "Go on.", "--resume", main.session[:8]]
        subprocess.run([sys.executable, "-m", "toolspan", *arguments, *options], check=True, stdout=subprocess.DEVNULL)

    copy = "5e551011-0000-4000-8000-00000000000c"
    refused = run("exec", "--store", url, "--cwd", str(tmp_path / "project"), "--resume", main.session, code=2)
    assert "is running this session" in refused.output
    fork("--fork-session", "--session-id", copy)
    record = next(json.loads(line) for line in lines if b'"tool_use_id":"toolu_1"' in line)
    fork("--rewind-to", record["uuid"])
    store.release_lease(lease)
    assert store.read_lines(main) == lines
    sessions = {row["id"]: row["calls"] for row in rows(run("sessions", url, "--json"))}
    assert sorted(sessions.values()) == [0, 0, 2]  # calls of a copy count once
    forks = {stream.key.session: stream.key for stream in store.list_streams() if not stream.key.subpath}
    assert copy in forks
    counts = {name: b"".join(store.read_lines(key) or []).count(b'"tool_use_id"') for name, key in forks.items()}
    assert sorted(counts.values()) == [1, 2, 2]
    store.close()
