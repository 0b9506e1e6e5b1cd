"""The programs that toolspan is compared with: how to install, start and query them.

Installs each peer below a prefix folder, by package name and version, from the configured indexes of pip and npm. A
`Job` has its command line, its environment and the location of its answer. The libraries that run tool calls share
one environment with toolspan, so that one interpreter can run them all. Running needs no network. `read.py` and
`dispatch.py` measure.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

TOKEN_FIELDS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


@dataclass(frozen=True)
class Answer:
    """A contestant's answer about the archive; None for numbers that it does not report."""

    calls: int | None = None
    tokens: Mapping[str, int] | None = None
    lines: int | None = None
    messages: int | None = None
    loop: float | None = None
    """Seconds inside the reading loop, without start-up."""
    note: str = ""


@dataclass(frozen=True)
class Bench:
    """The folders of the archive, the peers and the scratch space, for every contestant."""

    archive: Path
    peers: Path | None
    scratch: Path
    offline: tuple[str, ...]
    """Command prefix that disables the network; empty if that is not possible."""
    timeout: float

    @property
    def config(self) -> Path:
        """The archive's `.claude` directory."""
        return self.archive / "claude" / ".claude"


@dataclass(frozen=True)
class Job:
    """The command line of a contestant, and how to read its answer afterwards (not measured)."""

    command: Sequence[str | Path]
    env: Mapping[str, str] = field(default_factory=dict)
    answer: Callable[[Path], Answer] = lambda _: Answer()
    """Called with the file of the contestant's stdout. May raise KeyError or ValueError."""


class RunError(Exception):
    """A contestant failed or did not finish."""


@dataclass(frozen=True)
class Peer:
    """A program that answers some of the questions toolspan answers."""

    name: str
    version: str
    index: Literal["npm", "pypi"]
    folder: str = ""
    """The folder below the prefix, if it differs from the name."""

    def home(self, prefix: Path) -> Path:
        """Return the folder it is installed to."""
        return prefix / (self.folder or self.name)

    def program(self, prefix: Path) -> Path:
        """Return the path of its command."""
        if self.index == "npm":
            return self.home(prefix) / "node_modules" / ".bin" / self.name
        return self.home(prefix) / "bin" / self.name


CCUSAGE = Peer("ccusage", "20.0.24", "npm")
CCUSAGE_EARLY = Peer("ccusage", "20.0.11", "npm", "ccusage-early")
"""The first releases of this version took more than twice as long as the last ones."""
AGENTSVIEW = Peer("agentsview", "0.46.1", "pypi")
CLAUDE_CODE_LOG = Peer("claude-code-log", "1.7.0", "pypi")
PEERS = (CCUSAGE, CCUSAGE_EARLY, AGENTSVIEW, CLAUDE_CODE_LOG)

DISPATCHERS = ("pydantic-ai-slim==2.66.0", "openai-agents==0.24.0", "langgraph==1.2.20", "fastmcp==4.1.2")
"""Python libraries that run tool calls."""


def install(peer: Peer, prefix: Path) -> None:
    """Install one peer below the prefix.

    Raises:
        subprocess.CalledProcessError: pip or npm failed, or the command does not start.
        FileNotFoundError: npm is missing, or the package has no command.
    """
    home = peer.home(prefix)
    home.mkdir(parents=True, exist_ok=True)
    if peer.index == "npm":
        npm = shutil.which("npm")
        if npm is None:
            raise FileNotFoundError(f"npm, needed for {peer.name}")
        quiet = ["--no-audit", "--no-fund", "--silent"]
        package = f"{peer.name}@{peer.version}"
        subprocess.run([npm, "install", "--prefix", str(home), *quiet, package], check=True)
    else:
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        package = f"{peer.name}=={peer.version}"
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", package]
        subprocess.run(pip, check=True)
    # npm installs ccusage even if its platform package is missing; only a start shows that
    quiet_home = os.environ | {"HOME": str(home), "DO_NOT_TRACK": "1"}
    version = [str(peer.program(prefix)), "--version"]
    subprocess.run(version, check=True, env=quiet_home, stdout=subprocess.DEVNULL)


def install_dispatchers(prefix: Path) -> Path:
    """Install the libraries that run calls, and toolspan from this tree; return their Python.

    Raises:
        subprocess.CalledProcessError: pip failed.
    """
    home = prefix / "dispatch"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    python = home / "bin" / "python"
    tree = str(Path(__file__).resolve().parent.parent)
    pip = [str(python), "-m", "pip", "install", "--quiet", *DISPATCHERS, "--editable", tree]
    subprocess.run(pip, check=True)
    return python


def environment(run_dir: Path) -> dict[str, str]:
    """Return the environment of a contestant: a PATH and an empty home."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": str(run_dir / "home"),
        "TMPDIR": str(run_dir / "tmp"),
    }


def program_of(peer: Peer, bench: Bench) -> str:
    """Return the peer's command.

    Raises:
        RunError: it is not installed.
    """
    if bench.peers is None:
        raise RunError("--peers is missing")
    program = peer.program(bench.peers)
    if not program.exists():
        raise RunError(f"not installed: {program}")
    return str(program)


def camel_tokens(totals: Mapping[str, int]) -> dict[str, int]:
    """Return the totals of ccusage or agentsview under toolspan's names."""
    names = ("inputTokens", "outputTokens", "cacheCreationTokens", "cacheReadTokens")
    return {ours: totals[theirs] for ours, theirs in zip(TOKEN_FIELDS, names, strict=True)}


def scalar(database: sqlite3.Connection, query: str) -> int:
    """Return the single number that a query yields."""
    (number,) = database.execute(query).fetchone()
    return int(number or 0)


def ccusage_job(bench: Bench, _: Path, peer: Peer = CCUSAGE) -> Job:
    """Run `ccusage claude daily`, with prices from the package itself."""
    return Job(
        [program_of(peer, bench), "claude", "daily", "--json", "--offline"],
        env={"CLAUDE_CONFIG_DIR": str(bench.config)},
        answer=lambda stdout: Answer(tokens=camel_tokens(json.loads(stdout.read_bytes())["totals"])),
    )


def agentsview_job(bench: Bench, run_dir: Path) -> Job:
    """Run `agentsview sync` into an empty data folder, without its daemon and telemetry."""
    program = program_of(AGENTSVIEW, bench)
    data = run_dir / "data"
    data.mkdir()
    env = {
        "AGENTSVIEW_DATA_DIR": str(data),
        "AGENTSVIEW_NO_DAEMON": "1",
        "AGENTSVIEW_TELEMETRY_ENABLED": "0",
        "AGENTSVIEW_DISABLE_UPDATE_CHECK": "1",
        "AGENTSVIEW_NO_BROWSER": "1",
        "DO_NOT_TRACK": "1",
        "CLAUDE_PROJECTS_DIR": str(bench.config / "projects"),
    }

    def answer(_: Path) -> Answer:
        ask = [program, "usage", "daily", "--json", "--all", "--offline", "--no-sync"]
        usage = subprocess.run(
            [*bench.offline, *ask],
            env={**environment(run_dir), **env},
            capture_output=True,
            check=True,
            timeout=bench.timeout,
        )
        with closing(sqlite3.connect(data / "sessions.db")) as database:
            calls = scalar(database, "SELECT count(DISTINCT tool_use_id) FROM tool_calls")
            messages = scalar(database, "SELECT count(*) FROM messages")
            sessions = scalar(database, "SELECT count(*) FROM sessions")
        tokens = camel_tokens(json.loads(usage.stdout)["totals"])
        return Answer(calls=calls, tokens=tokens, messages=messages, note=f"{sessions} sessions")

    return Job([program, "sync"], env=env, answer=answer)


def claude_code_log_job(bench: Bench, run_dir: Path) -> Job:
    """Convert all projects to HTML; the cache, usually beside the transcripts, goes to scratch space."""
    cache = run_dir / "cache.db"
    out = run_dir / "html"
    out.mkdir()
    projects = bench.config / "projects"

    def answer(_: Path) -> Answer:
        columns = ("input", "output", "cache_creation", "cache_read")
        with closing(sqlite3.connect(cache)) as database:
            messages = scalar(database, "SELECT sum(total_message_count) FROM projects")
            tokens = {
                name: scalar(database, f"SELECT sum(total_{column}_tokens) FROM projects")
                for name, column in zip(TOKEN_FIELDS, columns, strict=True)
            }
        return Answer(tokens=tokens, messages=messages)

    command = [program_of(CLAUDE_CODE_LOG, bench), "--all-projects"]
    return Job(
        [*command, "--projects-dir", str(projects), "--output", str(out)],
        env={"CLAUDE_CODE_LOG_CACHE_PATH": str(cache)},
        answer=answer,
    )


def main() -> int:
    """Install all peers, or the named ones; return 1 if one could not be installed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prefix", type=Path, required=True, help="folder to install to")
    parser.add_argument("--dispatch", action="store_true", help="install the libraries for dispatch.py instead")
    parser.add_argument("names", nargs="*", help="default: all")
    arguments = parser.parse_args()
    if arguments.dispatch:
        try:
            print(f"{', '.join(DISPATCHERS)}: {install_dispatchers(arguments.prefix.resolve())}")
        except subprocess.CalledProcessError as problem:
            print(f"not installed: {problem}", file=sys.stderr)
            return 1
        return 0
    failed = 0
    for peer in PEERS:
        if arguments.names and peer.name not in arguments.names:
            continue
        try:
            install(peer, arguments.prefix.resolve())
        except (subprocess.CalledProcessError, FileNotFoundError) as problem:
            print(f"{peer.name} {peer.version}: not installed: {problem}", file=sys.stderr)
            failed = 1
        else:
            print(f"{peer.name} {peer.version}: {peer.program(arguments.prefix)}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
