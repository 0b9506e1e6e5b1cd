"""`toolspan run --resume`: a session in use by another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fork_server import TOOLSPAN

pytestmark = pytest.mark.usefixtures("fork_server")

HOLDS = """
import asyncio
from toolspan import Permissions
from toolspan.session import Agent, Session
from toolspan.testing import ScriptedModel, say, use

async def main():
    async with Session(cwd=".", permissions=Permissions.allow_all()) as session:
        model = ScriptedModel([use("Bash", command="echo hi")], then=say("Done."))
        await Agent(session, model).prompt("Go.")
        print(session.session_id, flush=True)
        await asyncio.to_thread(input)

asyncio.run(main())
"""


def test_session_in_use_is_refused_with_the_pid_of_its_process(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "TOOLSPAN_NO_CACHE": "1"}
    environment.pop("CLAUDE_CONFIG_DIR", None)
    script = tmp_path / "model.json"
    script.write_text("[]", encoding="utf-8")
    arguments = [sys.executable, "-c", HOLDS]
    with subprocess.Popen(
        arguments, cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        session = holder.stdout.readline().strip()
        second = [*TOOLSPAN, "run", "-p", "hi", "--resume", session]
        result = subprocess.run(
            [*second, "--model", f"scripted:{script}"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        holder.communicate("\n")

    assert result.returncode == 2
    assert f"process {holder.pid} is recording this session" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
