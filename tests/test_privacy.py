"""Commands that read connect to nothing, as docs/privacy.md says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, os, sys

def audit(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname"):
        address = arguments[1] if event.startswith(("socket.connect", "socket.send")) else arguments[0]
        if isinstance(address, (tuple, str)) and not str(address).startswith("/"):
            record(["connection", event, str(address)])
    elif event == "subprocess.Popen":
        record(["program", os.path.basename(arguments[0])])

def record(row):
    with open(os.environ["SEEN"], "a") as file:
        file.write(json.dumps(row) + "\\n")

sys.addaudithook(audit)
from toolspan.cli import main
sys.argv = ["toolspan", *sys.argv[1:]]
main()
"""
COMMANDS = (
    "", "sessions", "sessions --live", "show --last", "calls", "agents", "prompts", "errors", "denials", "hooks",
    "disk", "digest", "stats", "usage", "usage --context",
    "time", "flows", "files", "search water", "why toolu_01IZEhtLdBt6gyzFSJhUAVb9",
    "doctor 91b7f3d2", "policy suggest", "compare 91b7f3d2 d48e2a06", "export --redact",
)  # fmt: skip


def run_audited(command: str, home: Path) -> list[list[str]]:
    environment = {
        "HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path),
        "SEEN": str(home / "seen"),
    }  # fmt: skip
    arguments = [sys.executable, "-c", PROGRAM, "--demo", *command.split()]
    subprocess.run(arguments, env=environment, cwd=home, stdout=subprocess.DEVNULL, check=True)
    seen = home / "seen"
    return [json.loads(line) for line in seen.read_text().splitlines()] if seen.exists() else []


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command or "overview")
def test_a_command_that_reads_connects_to_nothing(command: str, tmp_path: Path) -> None:
    assert [row for row in run_audited(command, tmp_path) if row != ["program", "rg"]] == []


def test_the_audit_sees_a_connection(tmp_path: Path) -> None:
    program = PROGRAM.partition("from toolspan")[0] + "import socket\nsocket.socket().connect_ex(('127.0.0.1', 9))"
    subprocess.run([sys.executable, "-c", program], env={"SEEN": str(tmp_path / "seen")}, check=True)

    assert "connection" in (tmp_path / "seen").read_text()
