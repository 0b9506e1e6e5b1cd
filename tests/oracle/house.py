"""A home where a real client and toolspan are installed, in a world of its own.

In: a client's name and version, by the harness's variables. Out: a `House`: what a person types in
it, what a scripted model asks for, and what is found afterwards. Runs as root in namespaces that
`__main__.py` makes: the network is loopback, `/home` and `/tmp` are empty, and whoever lives in the
house is nobody else. Only here are mounts made; they end with the namespace.
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

from tests.journeys.screen import Screen, screen

Json = dict[str, Any]
ROOT = Path(__file__).parent.parent.parent
LONG = 90.0
"""Seconds after which something is missing."""
_WHO = ("setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", "--")
_KEY = "sk-test-dummy"
_TAPPED = """[ "$1" = mcp ] || exec {0} "$@"
mkdir -p {1}; exec {0} "$@" < <(exec tee -a {1}/in) > >(exec tee -a {1}/out)"""
"""Toolspan; what passes between its server and a client is kept as well."""
_PAGE = "docs/mcp-server.md"
_CLOCK = re.compile(r"^Wall time: [\d.]+ seconds\nOutput:\n")


class Ran(NamedTuple):
    """What became of a line that was typed."""

    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        """Both outputs."""
        return self.out + self.err


class House:
    """Home of somebody who uses a client."""

    def __init__(self, harness: Path, client: str, name: str) -> None:
        sys.path.insert(0, str(harness))
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        self.lib: Any = importlib.import_module("lib")
        self.world: Any = self.lib.S(client, name)
        self.home, self.cwd = Path(self.world.home), Path(self.world.cwd)
        self.captured = Path(self.world.out)
        for folder in {Path(sys.base_prefix), Path(sys.prefix), ROOT}:
            open_way(folder)
        self._config = ""
        self.wire = self.home / "wire"
        self._program("toolspan", _TAPPED.format(Path(sys.prefix) / "bin/toolspan", self.wire))
        self._program("claude", f'exec {" ".join(self.lib.CLAUDE)} "$@"')
        self._program("codex", f'exec {self.lib.CODEX} "$@"')
        self.world.env["PATH"] = f"{self.home}/bin:/usr/local/bin:/usr/bin:/bin"

    def _program(self, name: str, script: str) -> None:
        program = self.writes(f"bin/{name}", f"#!/bin/bash\n{script}\n")
        program.chmod(0o755)

    # What somebody does

    def types(self, line: str, *, answers: str = "") -> Ran:
        """Type a line in the project's folder, and what it asks for."""
        self.world.chown()
        done = subprocess.run(
            [*self.owner(), "bash", "-c", line],
            cwd=self.cwd, input=answers, capture_output=True, encoding="utf-8", check=False,
            timeout=LONG,
        )  # fmt: skip
        return Ran(done.returncode, done.stdout, done.stderr)

    def owner(self) -> list[str]:
        """How a program is started as whoever lives here."""
        return [*_WHO, "env", "-i", *(f"{key}={value}" for key, value in self.environment().items())]

    def environment(self) -> Mapping[str, str]:
        """The variables of the house."""
        return {
            "HOME": str(self.home), "USER": "dev", "SHELL": "/bin/bash", "LANG": "C.UTF-8",
            "TERM": "xterm", "ANTHROPIC_API_KEY": _KEY, **self.world.env,
        }  # fmt: skip

    def writes(self, name: str, text: str) -> Path:
        """Write a file of the home; the project is in `proj/`."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    # What the client does

    def connects(self, *options: str) -> Ran:
        """Give the client our server: as the README says, or with options, as its page does."""
        if self.is_codex:
            self._config = snippet(_PAGE, r"```toml\n(.*?)```")
            more = "".join(f", {json.dumps(option)}" for option in options)
            self._config = re.sub(r"^(args = .*)\]$", rf"\1{more}]", self._config, flags=re.M)
            return Ran(0, "", "")
        page, line = (_PAGE, r"^(claude mcp add .*?) *#")
        if not options:
            page, line = ("README.md", r"`(claude mcp add [^`]*)`")
        return self.types(f"{snippet(page, line)} {' '.join(options)}")

    def works(self, during: Callable[[Any], None] | None = None) -> int:
        """Let the client work on what the model asks for, once it knows our tools."""
        shutil.rmtree(self.wire, ignore_errors=True)
        self.world.scripts["main"].insert(0, [self.waits()])
        if self.is_codex:
            self.world.model = "gpt-5.5"
            return int(self.world.codex(config=self._config, during=during, timeout=LONG))
        if during is None:
            return int(self.world.go(timeout=LONG))
        prompt = {"type": "user", "message": {"role": "user", "content": "Go [[s:main]]"}}
        return int(self.world.sdk(json.dumps(prompt) + "\n", during, timeout=LONG))

    def interrupts(self, client: Any) -> None:
        """Stop what the client does, as its user would."""
        if self.is_codex:
            os.kill(client.pid, signal.SIGINT)
            return
        wish = {"type": "control_request", "request_id": "1", "request": {"subtype": "interrupt"}}
        client.stdin.write(json.dumps(wish).encode() + b"\n")
        client.stdin.flush()

    @property
    def version(self) -> tuple[int, ...]:
        """The client's version."""
        name = self.lib.OUTNAME[self.world.client]
        return tuple(map(int, name.rpartition("-")[2].split(".")))

    @property
    def is_codex(self) -> bool:
        """Whether Codex lives here."""
        return bool(self.world.client == "codex")

    @contextmanager
    def terminal(self) -> Iterator[Screen]:
        """A terminal in which somebody sits, with the client's way to its model."""
        server = self.world.ensure_server()
        quiet = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER")
        environment = {
            **self.environment(),
            **dict.fromkeys(quiet, "1"),
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.port}",
        }
        self._accepts_key()
        self.world.chown()
        folder = Path(tempfile.mkdtemp())
        folder.chmod(0o755)
        with screen(folder, self.cwd, environment) as shell:
            shell.starts(f"exec {shlex.join(_WHO)} sh")
            yield shell

    def _accepts_key(self) -> None:
        """Somebody has told the client once that the key in the environment is the one to use."""
        path = self.home / ".claude.json"
        known = json.loads(path.read_bytes())
        known["customApiKeyResponses"] = {"approved": [_KEY], "rejected": []}
        path.write_text(json.dumps(known), encoding="utf-8")

    # What the model asks for

    def call(self, tool: str, **given: object) -> Json:
        """A call of one of toolspan's tools, in the words of the client's model."""
        if self.is_codex:
            return {"tool": tool, "namespace": "mcp__toolspan", "input": given}
        return {"tool": f"mcp__toolspan__{tool}", "input": given}

    def waits(self) -> Json:
        """A call of the client's own that lasts until it knows our tools."""
        ready = f"until grep -q inputSchema {self.wire}/out; do sleep 0.1; done; sleep 1"
        if self.is_codex:
            return {"tool": "exec_command", "input": {"cmd": ready, "yield_time_ms": 30_000}}
        return {"tool": "Bash", "input": {"command": ready, "description": "wait"}}

    def turn(self, *blocks: object) -> None:
        """The next reply of the model."""
        self.world.turn(*blocks)

    # What is found afterwards

    def stream(self, run: int = 1) -> list[Json]:
        """What the client printed in its nth run."""
        name = "stream.jsonl" if run == 1 else f"stream.{run}.jsonl"
        return list(_objects(self.captured / name))

    def sent(self, script: str) -> list[list[Json]]:
        """The messages of every request that the client made in a script."""
        found = _objects(self.captured / "requests.jsonl")
        return [one["body"]["messages"] for one in found if one.get("route") == script and "body" in one]

    def answers(self) -> list[str]:
        """What the model was told of its calls of our tools, in order."""
        found = [_words(one) for one in _objects(self.captured / "tool_results.jsonl")]
        return [_CLOCK.sub("", one) for one in found[1:]]

    def heard(self) -> str:
        """What the model was sent before it called one of our tools, tools included."""
        whole = (self.captured / "requests.jsonl").read_text(encoding="utf-8")
        ours = [line for line in whole.splitlines() if '"route": "main"' in line]
        asked = [line for line in ours if '"tool_names"' in line][1]
        blobs = (self.captured.parent / "_blobs").glob("*.json")
        return asked + "".join(one.read_text("utf-8") for one in blobs if one.stem in asked)

    def said(self, side: str) -> list[Json]:
        """What passed between our server and the client: `in` or `out`."""
        return list(_objects(self.wire / side))

    def calls(self, *options: str) -> list[Json]:
        """Our own record of a session, by `toolspan calls`."""
        ran = self.types(f"toolspan calls --json {' '.join(options)}")
        return [json.loads(line) for line in ran.out.splitlines()]


def until(holds: Callable[[], object], *, what: str) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + LONG
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not come about")
        time.sleep(0.05)


def shows(shell: Screen, words: str) -> bool:
    """Whether words are on the screen; the client may take all of it, and leave it again."""
    return words in "\n".join(shell.lines())


def enters(shell: Screen, words: str, *, then: Callable[[], bool]) -> None:
    """Type words into the client and press Enter, until something comes about."""
    shell.presses(words)
    until(lambda: shows(shell, words), what=words)
    for _ in range(10):  # what comes too fast is taken for pasted, an end of line included
        time.sleep(1)
        shell.presses("Enter")
        end = time.monotonic() + 5
        while time.monotonic() < end:
            if then():
                return
            time.sleep(0.1)
    raise TimeoutError(f"{words}: no answer, but\n" + "\n".join(shell.lines()))


def snippet(page: str, pattern: str) -> str:
    """What a page tells its readers to type."""
    found = re.search(pattern, (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    if found is None:
        raise LookupError(f"{page} has nothing like {pattern!r} any more")
    return found[1]


def _objects(path: Path) -> Iterator[Json]:
    for line in path.read_bytes().splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


def _words(result: Json) -> str:
    content = result.get("content", result.get("output"))
    if isinstance(content, str):
        return content
    return "\n".join(str(one.get("text", one["type"])) for one in content or ())


def open_way(folder: Path) -> None:
    """Let everybody reach a folder, though one above it is closed to others."""
    closed = [one for one in folder.parents if not one.stat().st_mode & 0o001]
    if not closed:
        return
    aside = Path("/home/.aside")
    aside.mkdir(exist_ok=True)
    for words in (
        ["mount", "--bind", str(folder), str(aside)],
        ["mount", "-t", "tmpfs", "-o", "mode=755", "none", str(closed[-1])],
        ["mkdir", "-p", str(folder)],
        ["mount", "--move", str(aside), str(folder)],
    ):
        subprocess.run(words, check=True)
