"""Start the servers of the web UI and of agentsview for `ui.py`, and count their memory and CPU time."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from peers import environment

START_SECONDS = 900
"""How long a server may take for its first reading of the archive."""


@contextlib.contextmanager
def serve_toolspan(projects: Path, scratch: Path) -> Iterator[tuple[subprocess.Popen[bytes], str, float]]:
    """Run `toolspan ui` and yield its process, its address and its start time."""
    program = Path(sys.executable).with_name("toolspan")
    env = {**environment(scratch), "XDG_CACHE_HOME": str(scratch / "cache"), "XDG_RUNTIME_DIR": str(scratch / "run")}
    started = time.monotonic()
    command = [str(program), "ui", str(projects.parent), "--json", "--no-open", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=env)
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        yield process, url, time.monotonic() - started
    finally:
        _stop(process)


@contextlib.contextmanager
def serve_agentsview(
    program: Path, projects: Path, scratch: Path
) -> Iterator[tuple[subprocess.Popen[bytes], str, float]]:
    """Run `agentsview serve` and yield it when it answers."""
    data = scratch / "data"
    data.mkdir(exist_ok=True)
    env = {
        **environment(scratch), "AGENTSVIEW_DATA_DIR": str(data), "AGENTSVIEW_NO_DAEMON": "1",
        "AGENTSVIEW_TELEMETRY_ENABLED": "0", "AGENTSVIEW_DISABLE_UPDATE_CHECK": "1", "AGENTSVIEW_NO_BROWSER": "1",
        "DO_NOT_TRACK": "1", "CLAUDE_PROJECTS_DIR": str(projects),
    }  # fmt: skip
    port = _free_port()
    log = scratch / "agentsview.log"
    started = time.monotonic()
    with log.open("wb") as stream:
        command = [str(program), "serve", "--no-browser", "--port", str(port)]
        process = subprocess.Popen(command, env=env, stdout=stream, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + START_SECONDS
        while b"listening at" not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text(errors="replace")[-400:])
            time.sleep(0.2)
        yield process, f"http://127.0.0.1:{port}/", time.monotonic() - started
    finally:
        _stop(process)


def request_headers(scratch: Path, base: str) -> dict[str, str]:
    """Return the headers of requests to a server: `toolspan ui` expects the secret in its state file."""
    state = scratch / "run" / "toolspan" / "ui" / f"{base.rpartition(':')[2]}.json"
    return {"Authorization": f"Bearer {json.loads(state.read_bytes())['secret']}"} if state.exists() else {}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def memory_of(process: subprocess.Popen[bytes]) -> float:
    """Return the memory of a server and its children in MB; shared pages count once."""
    main = psutil.Process(process.pid)
    total = 0
    for one in (main, *main.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            total += getattr(one.memory_full_info(), "pss", one.memory_info().rss)
    return total / 1e6


def cpu_of(process: subprocess.Popen[bytes]) -> float:
    """Return the CPU seconds that a server and its children have used."""
    main = psutil.Process(process.pid)
    total = 0.0
    for one in (main, *main.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            total += sum(one.cpu_times()[:4])
    return total
