"""`toolspan run` with agents: as a process, with a server, a trusted folder, and a look back."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.fork_server import run_toolspan
from tests.session.role_models import Play
from toolspan.testing import ModelServer, say, use

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fork_server")]
Completed = subprocess.CompletedProcess[str]


def toolspan(folder: Path, *arguments: str) -> Completed:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ANTHROPIC", "OPENAI"))}
    work = folder / "work"
    work.mkdir(exist_ok=True)
    env = {**inherited, "HOME": str(folder / "home"), "CLAUDE_CONFIG_DIR": str(folder / "config")}
    return run_toolspan(*arguments, cwd=work, env=env)


def run(folder: Path, server: ModelServer, *more: str) -> Completed:
    pytest.importorskip("anthropic")
    model = ("--model", "anthropic:claude-test", "--base-url", server.url)
    return toolspan(folder, "run", "--no-sandbox", "-p", "Main", *model, *more)


def test_two_agents_run_and_are_reported(tmp_path: Path) -> None:
    def start(prompt: str) -> dict[str, object]:
        return use("Agent", description=prompt, prompt=prompt, run_in_background=False)

    play = Play(
        {
            "Main": [[start("Left"), start("Right")], say("Both are back.")],
            "Left": [[use("Bash", command="echo left")], say("It says left.")],
            "Right": [[use("Bash", command="echo right")], say("It says right.")],
        }
    )
    with ModelServer(play.model) as server:
        result = run(tmp_path, server, "--output-format", "stream-json")
    output = toolspan(tmp_path, "show", "--last")
    listed = json.loads(toolspan(tmp_path, "show", "--last", "--json").stdout)

    assert (result.returncode, result.stderr) == (0, "")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    below = [row for row in rows if row.get("agent_id")]
    above = {
        block["tool_use_id"]
        for row in rows
        if row["type"] == "user" and not row.get("agent_id")
        for block in row["message"]["content"]
    }
    assert {row["parent_tool_use_id"] for row in below} == above
    assert rows[-1]["result"] == "Both are back."
    assert "2 subagents" in output.stdout
    assert output.stdout.index("Left") < output.stdout.index("It says left.")
    assert len(listed["session"]["files"]) == 3


def test_command_waits_for_background_agents(tmp_path: Path) -> None:
    call = use("Agent", description="L", prompt="Left")
    play = Play({"Main": [[call], say("Sent."), say("Heard.")], "Left": [say("Left is back.")]})
    with ModelServer(play.model) as server:
        result = run(tmp_path, server)

    assert (result.stdout, result.returncode) == ("Heard.\n", 0)


def test_agents_of_a_folder_are_used_once_it_is_trusted(tmp_path: Path) -> None:
    for folder, name in ((tmp_path / "config", "mine"), (tmp_path / "work" / ".claude", "ours")):
        (folder / "agents").mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: Helps.\ntools: Read\n---\nI am {name}.\n"
        (folder / "agents" / f"{name}.md").write_text(text)
    (tmp_path / "config" / "agents" / "broken.md").write_text("nothing")

    def run_agent(kind: str) -> tuple[Completed, Play]:
        call = use("Agent", description="L", prompt="Left", subagent_type=kind, run_in_background=False)
        play = Play({"Main": [[call]]})
        with ModelServer(play.model) as server:
            return run(tmp_path, server), play

    user_agent, first = run_agent("mine")
    refused, second = run_agent("ours")
    accepted = toolspan(tmp_path, "trust", "--yes")
    allowed, third = run_agent("ours")

    assert "broken.md: there is no frontmatter" in user_agent.stderr
    assert str(first.requests("Left")[0]["system"]).count("I am mine.") == 1
    assert "untrusted folder" in refused.stderr
    assert "Agent type 'ours' not found. Available agents: general-purpose, mine" in json.dumps(
        second.requests("Main")[1]
    )
    assert accepted.returncode == 0
    assert "not trusted" not in allowed.stderr
    assert "I am ours." in str(third.requests("Left")[0]["system"])
