"""A daemon without session, parent and environment of its command does not outlive call, session and `exec`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.fork_server import TOOLSPAN

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers"),
    pytest.mark.usefixtures("fork_server"),
]


def test_daemon_with_an_empty_environment_does_not_outlive_exec(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    start = shlex.join([sys.executable, str(HERE / "daemon.py"), str(pid_file)])
    command = f"{start}; until [ -e {shlex.quote(str(pid_file))} ]; do :; done"
    block = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": command}}
    message = {"type": "assistant", "message": {"role": "assistant", "content": [block]}}
    program = [*TOOLSPAN, "exec", "--permission-mode", "bypassPermissions"]
    environment = {**os.environ, "CLAUDE_CONFIG_DIR": str(tmp_path / "config")}

    result = subprocess.run(
        program, input=json.dumps(message).encode(), capture_output=True, cwd=tmp_path, env=environment, check=False
    )

    results = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["state"] for line in results if line["type"] == "result"] == ["succeeded"], result.stderr
    assert not psutil.pid_exists(int(pid_file.read_text(encoding="ascii")))


def test_daemon_of_a_cancelled_call_does_not_outlive_the_call(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.runtime.process.cancelled_daemon", str(tmp_path)]
    result = subprocess.run(program, capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.stdout == "gone\n", result.stderr
