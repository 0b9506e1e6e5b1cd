"""A real client with toolspan installed beside it, in a scratch home directory.

`__main__.py` starts each scenario as root in its own namespaces: the network is loopback, `/home`
and `/tmp` are empty. The harness's variables choose the client and its version. Mounts are made
only here and end with the namespace.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.journeys.screen import Screen, open_screen

Json = dict[str, Any]
ROOT = Path(__file__).parent.parent.parent
TIMEOUT = 90.0
_AS_USER = ("setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", "--")
_KEY = "sk-test-dummy"
_LOGGING_TOOLSPAN = """[ "$1" = mcp ] || exec {0} "$@"
mkdir -p {1}; exec {0} "$@" < <(exec tee -a {1}/in) > >(exec tee -a {1}/out)"""
"""A wrapper of toolspan that logs the messages between its MCP server and the client."""
_PAGE = "docs/mcp.md"
_CODEX_RESULT_HEADER = re.compile(r"^Wall time: [\d.]+ seconds\nOutput:\n")


class CommandResult(NamedTuple):
    """Exit code and output of a shell command."""

    code: int
    out: str
    err: str

    @property
    def output(self) -> str:
        """Standard output and standard error."""
        return self.out + self.err


class InstalledClient:
    """A client in a scratch home, driven by a scripted model."""

    def __init__(self, harness: Path, client: str, name: str) -> None:
        sys.path.insert(0, str(harness))
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        self._lib: Any = importlib.import_module("lib")
        self.scenario: Any = self._lib.S(client, name)
        self.home, self.cwd = Path(self.scenario.home), Path(self.scenario.cwd)
        self._captures = Path(self.scenario.out)
        for folder in {Path(sys.base_prefix), Path(sys.prefix), ROOT}:
            make_reachable(folder)
        self._codex_config = ""
        self._mcp_log = self.home / "wire"
        self._install("toolspan", _LOGGING_TOOLSPAN.format(Path(sys.prefix) / "bin/toolspan", self._mcp_log))
        self._install("claude", f'exec {" ".join(self._lib.CLAUDE)} "$@"')
        self._install("codex", f'exec {self._lib.CODEX} "$@"')
        self.scenario.env["PATH"] = f"{self.home}/bin:/usr/local/bin:/usr/bin:/bin"

    def _install(self, name: str, script: str) -> None:
        self.write_file(f"bin/{name}", f"#!/bin/bash\n{script}\n").chmod(0o755)

    # The user

    def run_command(self, line: str, *, stdin: str = "") -> CommandResult:
        """Run a shell command as the user, in the project's folder."""
        self.scenario.chown()
        variables = [f"{key}={value}" for key, value in self._environment().items()]
        run = subprocess.run(
            [*_AS_USER, "env", "-i", *variables, "bash", "-c", line],
            cwd=self.cwd, input=stdin, capture_output=True, encoding="utf-8", check=False,
            timeout=TIMEOUT,
        )  # fmt: skip
        return CommandResult(run.returncode, run.stdout, run.stderr)

    def _environment(self) -> Mapping[str, str]:
        return {
            "HOME": str(self.home), "USER": "dev", "SHELL": "/bin/bash", "LANG": "C.UTF-8",
            "TERM": "xterm", "ANTHROPIC_API_KEY": _KEY, **self.scenario.env,
        }  # fmt: skip

    def write_file(self, name: str, text: str) -> Path:
        """Write a file of the home; the project is in `proj/`."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    @contextmanager
    def terminal(self) -> Iterator[Screen]:
        """Open a terminal in which the client reaches its scripted model."""
        server = self.scenario.ensure_server()
        quiet = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER")
        environment = {
            **self._environment(),
            **dict.fromkeys(quiet, "1"),
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.port}",
        }
        self._approve_api_key()
        self.scenario.chown()
        folder = Path(tempfile.mkdtemp())
        folder.chmod(0o755)
        with open_screen(folder, self.cwd, environment) as screen:
            screen.start(f"exec {shlex.join(_AS_USER)} sh")
            yield screen

    def _approve_api_key(self) -> None:
        """Store the approval of the key, so that the client does not ask for it."""
        path = self.home / ".claude.json"
        config = json.loads(path.read_bytes())
        config["customApiKeyResponses"] = {"approved": [_KEY], "rejected": []}
        path.write_text(json.dumps(config), encoding="utf-8")

    # The client

    def add_mcp_server(self, *options: str) -> CommandResult:
        """Connect our MCP server as the README documents it, or with options as its page does."""
        if self.is_codex:
            config = find_in_page(_PAGE, r"```toml\n(.*?)```")
            arguments = "".join(f", {json.dumps(option)}" for option in options)
            self._codex_config = re.sub(r"^(args = .*)\]$", rf"\1{arguments}]", config, flags=re.M)
            return CommandResult(0, "", "")
        page, pattern = (_PAGE, r"^(claude mcp add [^\n#]*)")
        if not options:
            page, pattern = ("README.md", r"`(claude mcp add [^`]*)`")
        return self.run_command(f"{find_in_page(page, pattern)} {' '.join(options)}")

    def run_session(self, during: Callable[[Any], None] | None = None) -> int:
        """Run the scripted replies once the client knows our tools; return its exit code."""
        shutil.rmtree(self._mcp_log, ignore_errors=True)
        self.scenario.scripts["main"].insert(0, [self.wait_for_tools()])
        if self.is_codex:
            self.scenario.model = "gpt-5.5"
            return int(self.scenario.codex(config=self._codex_config, during=during, timeout=TIMEOUT))
        if during is None:
            return int(self.scenario.go(timeout=TIMEOUT))
        prompt = {"type": "user", "message": {"role": "user", "content": "Go [[s:main]]"}}
        return int(self.scenario.sdk(json.dumps(prompt) + "\n", during, timeout=TIMEOUT))

    def interrupt(self, process: Any) -> None:
        """Interrupt the running turn as the user would."""
        if self.is_codex:
            os.kill(process.pid, signal.SIGINT)
            return
        request = {"type": "control_request", "request_id": "1", "request": {"subtype": "interrupt"}}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()

    @property
    def version(self) -> tuple[int, ...]:
        """The client's version."""
        name = self._lib.OUTNAME[self.scenario.client]
        return tuple(map(int, name.rpartition("-")[2].split(".")))

    @property
    def is_codex(self) -> bool:
        """Return whether the client is Codex."""
        return bool(self.scenario.client == "codex")

    # The scripted model

    def tool_call(self, tool: str, **arguments: object) -> Json:
        """Return a call of one of toolspan's tools in the client's naming."""
        if self.is_codex:
            return {"tool": tool, "namespace": "mcp__toolspan", "input": arguments}
        return {"tool": f"mcp__toolspan__{tool}", "input": arguments}

    def wait_for_tools(self) -> Json:
        """Return a call of a built-in tool that lasts until the client knows our tools."""
        ready = f"until grep -q inputSchema {self._mcp_log}/out; do sleep 0.1; done; sleep 1"
        if self.is_codex:
            return {"tool": "exec_command", "input": {"cmd": ready, "yield_time_ms": 30_000}}
        return {"tool": "Bash", "input": {"command": ready, "description": "wait"}}

    def add_reply(self, *blocks: object) -> None:
        """Add a reply to the model's script."""
        self.scenario.turn(*blocks)

    # Captures

    def stream(self) -> list[Json]:
        """Return the events that the client printed."""
        return list(_read_objects(self._captures / "stream.jsonl"))

    def requests(self, script: str) -> list[list[Json]]:
        """Return the messages of every request that the client made in a script."""
        requests = _read_objects(self._captures / "requests.jsonl")
        bodies = [item["body"] for item in requests if item.get("route") == script and "body" in item]
        return [body.get("messages") or body.get("input") or [] for body in bodies]

    def tool_results(self) -> list[str]:
        """Return the result texts of calls of our tools as the model saw them, in order."""
        results = [_result_text(item) for item in _read_objects(self._captures / "tool_results.jsonl")]
        return [_CODEX_RESULT_HEADER.sub("", text) for text in results[1:]]

    def results_of(self, script: str) -> list[str]:
        """Return the results of all calls in a script, as the model saw them."""
        results: dict[str, str] = {}
        for messages in self.requests(script):
            for message in messages:
                content = message["content"] if isinstance(message["content"], list) else ()
                blocks = [block for block in content if block.get("type") == "tool_result"]
                results |= {block["tool_use_id"]: _result_text(block) for block in blocks}
        return list(results.values())

    def first_tool_request(self) -> str:
        """Return the request before the first call of our tools, with its tool definitions."""
        lines = (self._captures / "requests.jsonl").read_text(encoding="utf-8").splitlines()
        request = [line for line in lines if '"route": "main"' in line and '"tool_names"' in line][1]
        blobs = (self._captures.parent / "_blobs").glob("*.json")
        return request + "".join(path.read_text("utf-8") for path in blobs if path.stem in request)

    def mcp_messages(self, direction: str) -> list[Json]:
        """Return the messages that our server received (`in`) or sent (`out`)."""
        return list(_read_objects(self._mcp_log / direction))

    def recorded_calls(self, *options: str) -> list[Json]:
        """Return the calls that `toolspan calls` lists."""
        run = self.run_command(f"toolspan calls --json {' '.join(options)}")
        return [json.loads(line) for line in run.out.splitlines()]


def wait_until(condition: Callable[[], object], *, description: str) -> None:
    """Wait for another process to meet a condition."""
    end = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"timed out waiting for {description}")
        time.sleep(0.05)


def is_on_screen(screen: Screen, text: str) -> bool:
    """Return whether the terminal shows a text, in its normal or alternate screen."""
    return text in "\n".join(screen.lines())


def submit(screen: Screen, text: str, *, until: Callable[[], bool]) -> None:
    """Type a text into the client and press Enter until a condition holds."""
    screen.press(text)
    wait_until(lambda: is_on_screen(screen, text), description=text)
    for _ in range(10):  # the client takes fast input for a paste, its Enter included
        time.sleep(1)
        screen.press("Enter")
        end = time.monotonic() + 5
        while time.monotonic() < end:
            if until():
                return
            time.sleep(0.1)
    raise TimeoutError(f"no reaction to {text!r}; the screen shows\n" + "\n".join(screen.lines()))


def find_in_page(page: str, pattern: str) -> str:
    """Return the part of a documentation page that a reader is asked to type."""
    match = re.search(pattern, (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    if match is None:
        raise LookupError(f"{page} does not contain {pattern!r} any more")
    return match[1]


def _read_objects(path: Path) -> Iterator[Json]:
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def _result_text(result: Json) -> str:
    content = result.get("content", result.get("output"))
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text", block["type"])) for block in content or ())


def find_hidden(*folders: Path) -> Path | None:
    """Return the first folder that a client's namespaces hide, or None."""
    hidden = (Path("/home"), Path("/tmp"))
    for folder in (ROOT, Path(sys.prefix), Path(sys.base_prefix), *folders):
        if any(folder.resolve().is_relative_to(place) for place in hidden):
            return folder
    return None


def make_reachable(folder: Path) -> None:
    """Let every user reach a folder, even if one above it is closed to others."""
    closed = [parent for parent in folder.parents if not parent.stat().st_mode & 0o001]
    if not closed:
        return
    staging = Path("/home/.staging")
    staging.mkdir(exist_ok=True)
    for command in (
        ["mount", "--bind", str(folder), str(staging)],
        ["mount", "-t", "tmpfs", "-o", "mode=755", "none", str(closed[-1])],
        ["mkdir", "-p", str(folder)],
        ["mount", "--move", str(staging), str(folder)],
    ):
        subprocess.run(command, check=True)
