"""What pages give readers to put into files or to start works when they do."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
import urllib.request
from pathlib import Path

import anyio
import pytest

from tests.docs.blocks import ROOT, Block, all_blocks, blocks, is_made
from tests.docs.spoken import environment
from tests.integrations.mcp_client.stage import LONG, text
from tests.integrations.mcp_client.test_approver import ask
from toolspan.integrations.mcp_client import McpServers
from toolspan.session.subagents.definitions import load_agent_definitions


def only(page: str, language: str) -> Block:
    """The one block of a page in this language."""
    found = [block for block in blocks(page) if block.language == language]
    assert len(found) == 1, f"{page}: each block in {language} needs a test of its own"
    return found[0]


GUARD = only("docs/hooks.md", "json")
NOTE = only("docs/hook.md", "json")
CONSENT = only("docs/mcp.md", "jsonl")
FOR_CLAUDE = only("docs/mcp-server.md", "sh")
FOR_CODEX = only("docs/mcp-server.md", "toml")
SERVER = only("docs/scripted-model.md", "sh")
AGENT = only("docs/subagents.md", "markdown")
MADE = [block for block in all_blocks() if is_made(block)]
RUN = [GUARD, NOTE, CONSENT, FOR_CLAUDE, FOR_CODEX, SERVER, AGENT, *MADE]
"""The blocks that are tried here."""


HEADERS = {"content-type": "application/json", "x-api-key": "none", "anthropic-version": "2023-06-01"}


def toolspan(home: Path, *words: str, told: str) -> str:
    """What a command prints that reads something, in a folder of its own."""
    project = home / "project"
    project.mkdir(exist_ok=True)
    done = subprocess.run(
        ["toolspan", *words],
        input=told, cwd=project, env=environment(home, 80), timeout=60,
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


def test_the_handler_of_the_settings_guards(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/settings.json").write_text(GUARD.text, encoding="utf-8")
    guard = tmp_path / "project/guard"
    guard.parent.mkdir()
    guard.write_text("#!/bin/sh\necho not that >&2\nexit 2\n", encoding="utf-8")
    guard.chmod(0o755)
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "touch x"}}
    options = ("--permission-mode", "bypassPermissions", "--transcript", "none")

    told = toolspan(tmp_path, "exec", *options, told=json.dumps({"content": [call]}))

    assert json.loads(told)["state"] == "blocked_by_hook"
    assert "not that" in told
    assert not (tmp_path / "project/x").exists()


def test_a_hook_notes_the_line_that_is_shown(tmp_path: Path) -> None:
    session = tmp_path / ".claude/projects/p/s.jsonl"
    told = {
        "hook_event_name": "PermissionRequest",
        "transcript_path": str(session),
        "tool_name": "Bash",
        "tool_input": {"command": "make"},
        "permission_mode": "default",
    }

    assert toolspan(tmp_path, "hook", "record", told=json.dumps(told)) == ""

    noted = (session.with_suffix("") / "toolspan-hooks.jsonl").read_text(encoding="utf-8")
    moment = re.compile(r'(?<="at":)[\d.]+')
    assert moment.sub("", noted) == moment.sub("", NOTE.text)


@pytest.mark.anyio
async def test_a_tool_that_gives_these_answers_is_understood(tmp_path: Path) -> None:
    allowed, denied = CONSENT.text.splitlines()

    yes = await ask(tmp_path, allowed)
    no = await ask(tmp_path, denied)

    assert "not a git repository" in text(yes)  # what is run instead was run
    assert json.loads(denied)["message"] in text(no)


@pytest.mark.anyio
@pytest.mark.parametrize("block", [FOR_CLAUDE, FOR_CODEX], ids=lambda block: block.language)
async def test_what_clients_are_given_starts_the_server(block: Block, tmp_path: Path) -> None:
    if block is FOR_CODEX:
        servers = tomllib.loads(block.text)["mcp_servers"]
    else:
        words = shlex.split(block.text, comments=True)
        command, *rest = words[words.index("--") + 1 :]
        assert words[:3] == ["claude", "mcp", "add"]
        servers = {words[3]: {"command": command, "args": rest}}
    own = environment(tmp_path, 80)

    with anyio.fail_after(LONG):
        async with McpServers({"mcpServers": servers}, cwd=tmp_path, environment=own) as connected:
            assert "mcp__toolspan__Bash" in connected.tools().names


def test_the_scripted_model_is_served(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text("[]", encoding="utf-8")
    words = shlex.split(SERVER.text)
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Done?"}]}
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment(tmp_path, 80), stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            url = f"{server.stdout.readline().strip()}/v1/messages"
            request = urllib.request.Request(url, json.dumps(asked).encode(), HEADERS)
            with urllib.request.urlopen(request, timeout=LONG) as answer:
                said = json.load(answer)
        finally:
            server.terminate()

    assert said["content"] == [{"type": "text", "text": words[words.index("--then") + 1]}]
    assert server.returncode == 0


def test_the_agent_that_is_shown_is_one(tmp_path: Path) -> None:
    (tmp_path / "reviewer.md").write_text(AGENT.text, encoding="utf-8")

    found = load_agent_definitions([tmp_path])

    assert found.problems == ()
    assert [kind.name for kind in found.definitions] == ["reviewer"]


@pytest.mark.parametrize("block", MADE, ids=lambda block: block.name)
def test_make_knows_what_is_to_be_made(block: Block) -> None:
    """The tests cannot run themselves; what `make run` runs is run by the first lines of README."""
    does = {"run": ".venv/bin/toolspan demo", "test": ".venv/bin/pytest "}
    for line in block.text.splitlines():
        target = line.split()[2]
        done = subprocess.run(
            ["make", "--dry-run", target],
            cwd=ROOT, env=environment(ROOT, 80), timeout=60,
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        assert does[target] in done.stdout
