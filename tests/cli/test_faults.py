"""Faults beside the calls are reported once, and counted at the end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.terminal import message
from tests.cli.test_exec import run
from tests.fork_server import TOOLSPAN
from tests.runtime.hooks.hook_sessions import at, command, run_agent
from toolspan.testing import say, use

pytestmark = pytest.mark.usefixtures("fork_server")

MISSING = "the PreToolUse hook '/no/such/guard' failed and is ignored: "
LATE = "the PreToolUse hook 'sleep 1000' failed and is ignored: "
CLIENT = {"name": "terminal", "version": "1"}
FAILING = at("PreToolUse", command("/no/such/guard"), command("sleep 1000", timeout=0.05))


def settings(folder: Path, block: object) -> tuple[str, str]:
    path = folder / "s.json"
    path.write_text(json.dumps({"hooks": block}), encoding="utf-8")
    return "--settings", str(path)


def test_failing_hook_is_reported_once_and_counted_at_the_end(tmp_path: Path) -> None:
    lines = [message((f"c{n}", "Bash", {"command": "true"})) for n in range(3)]

    rows, result = run(tmp_path, *lines, options=("--transcript", "none", *settings(tmp_path, FAILING)))

    assert [row["state"] for row in rows] == ["succeeded"] * 3
    output = [line.removeprefix("toolspan exec: ") for line in result.stderr.splitlines()]
    missing = [line.removeprefix(MISSING) for line in output if line.startswith(MISSING)]
    late = [line.removeprefix(LATE) for line in output if line.startswith(LATE)]
    assert len(output) == len(missing) + len(late)
    assert "/no/such/guard" in missing[0]
    assert late[0] == "timed out after 0.05 s"
    assert missing[1:] == late[1:] == ["3 times in total"]


def test_hook_that_fails_closed_is_reported_only_in_the_result(tmp_path: Path) -> None:
    line = message(("a", "Bash", {"command": "true"}))
    options = ("--transcript", "none", "--fail-closed", *settings(tmp_path, FAILING))

    ((row,), result) = run(tmp_path, line, options=options)

    assert (row["state"], result.stderr) == ("blocked_by_hook", "")


@pytest.mark.parametrize("form", ["text", "stream-json"])
def test_run_reports_a_failing_hook_on_stderr(tmp_path: Path, form: str) -> None:
    block = {
        **at("PreToolUse", command("printf '\\033[31mred\\n' >&2; exit 1")),
        **at("SessionEnd", command("/no/such/guard")),
    }
    script = [[use("Bash", command="touch ran")], say("Done.")]
    output = ("--setting-sources", "", "--output-format", form, *settings(tmp_path, block))

    result = run_agent(tmp_path, script, *output)

    assert (tmp_path / "work" / "ran").exists()
    first, last = [line for line in result.stderr.splitlines() if "a sandbox: " not in line]
    assert first.startswith("toolspan: the PreToolUse hook ")
    assert first.endswith("failed and is ignored: Failed with non-blocking status code: red")
    assert last.startswith("toolspan: the SessionEnd hook '/no/such/guard' failed and is ignored: ")


def test_server_reports_a_failing_hook_on_stderr(tmp_path: Path) -> None:
    called = {"name": "Bash", "arguments": {"command": "true"}}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT}
    with subprocess.Popen(
        [
            *(*TOOLSPAN, "mcp", "--transcript", "none"),
            *("--permission-mode", "bypassPermissions", "--setting-sources", ""),
            *settings(tmp_path, at("PreToolUse", command("/no/such/guard"))),
        ],
        cwd=tmp_path,
        encoding="utf-8",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for number, (method, params) in enumerate(
            [("initialize", hello), ("tools/call", called), ("tools/call", called)]
        ):
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
            assert json.loads(child.stdout.readline())["id"] == number
        output = child.communicate()[1].splitlines()

    about = f"toolspan mcp: {MISSING}"
    assert [line.startswith(about) for line in output] == [True, True]
    assert output[1] == f"{about}2 times in total"


def test_folder_name_is_printed_without_control_characters(tmp_path: Path) -> None:
    folder = tmp_path / "new\x1b]0;owned\x07"
    (folder / ".claude").mkdir(parents=True)
    (folder / ".claude/settings.json").write_text(json.dumps({"hooks": FAILING}), encoding="utf-8")

    rows, result = run(
        folder,
        message(("a", "Bash", {"command": "true"})),
        options=("--transcript", "none", "--setting-sources", "project"),
    )

    assert [row["state"] for row in rows] == ["succeeded"]
    assert "untrusted folder" in result.stderr
    assert not set(result.stderr) & {"\x1b", "\x07"}
