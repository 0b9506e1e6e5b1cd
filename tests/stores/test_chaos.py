"""Hosts that are paused and killed, and servers that are restarted, break no promise of a store."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.stores.servers import find_postgres


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    ["--store postgres --calls 5000 --failures 500", "--store redis --calls 2000 --failures 200",
     "--store s3 --calls 500 --failures 50", "--store sqlite --calls 1000 --failures 100"],
)  # fmt: skip
def test_failures_of_hosts_and_servers_break_no_promise(options: str) -> None:
    if ("postgres" in options and find_postgres() is None) or ("redis" in options and not shutil.which("redis-server")):
        pytest.skip("the server is not installed (Debian: postgresql, redis-server)")
    command = [sys.executable, "-m", "tests.stores.chaos", *options.split()]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    sys.stdout.write(completed.stdout)
    assert completed.returncode == 0, completed.stdout + completed.stderr
