"""Hooks of agents and skills, at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.runtime.hooks.hook_sessions import run_agent
from toolspan.runtime.hooks import Hooks
from toolspan.runtime.hooks.events import HookRunner
from toolspan.runtime.settings import SettingsPaths, build_trust_request
from toolspan.session.subagents import load_agent_definitions
from toolspan.testing import say, use

pytestmark = pytest.mark.usefixtures("fork_server")

AGENT = """\
---
name: helper
description: Helps.
hooks:
  PreToolUse:
    - matcher: Bash
      hooks:
        - type: command
          command: "echo agent $(cat) >> {log}"
  Stop:
    - hooks:
        - type: command
          command: "echo stop $(cat) >> {log}"
---
You help.
"""
SKILL = """\
---
name: doit
description: Does it.
hooks:
  PreToolUse:
    - matcher: Bash
      hooks:
        - type: command
          command: "echo skill $(cat) >> {log}"
        - type: command
          once: true
          command: "echo once $(cat) >> {log}"
---
Do it.
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def logged_runs(log: Path) -> list[tuple[str, str, str | None]]:
    runs = []
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
        name, _, payload = line.partition(" ")
        row = json.loads(payload)
        runs.append((name, row["hook_event_name"], row.get("agent_type")))
    return runs


def bash(line: str) -> dict[str, object]:
    return use("Bash", command=line)


@requirement("hooks.front-matter")
def test_hooks_of_an_agent_last_while_it_works_and_hooks_of_a_skill_from_its_launch(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write(tmp_path / "home/.claude/agents/helper.md", AGENT.format(log=log))
    write(tmp_path / "home/.claude/skills/doit/SKILL.md", SKILL.format(log=log))
    errand = use("Agent", description="x", prompt="Help.", subagent_type="helper", run_in_background=False)
    script = [
        [bash("true")], [errand], [bash("true")], say("Helped."),
        [use("Skill", skill="doit")], [use("Skill", skill="doit")],
        [bash("true")], [bash("true")], say("Done."),
    ]  # fmt: skip
    result = run_agent(tmp_path, script)

    assert (result.returncode, result.stdout) == (0, "Done.\n"), result.stderr
    assert sorted(logged_runs(log)[:2]) == [
        ("agent", "PreToolUse", "helper"), ("stop", "SubagentStop", "helper"),
    ]  # fmt: skip
    assert sorted(logged_runs(log)[2:]) == [
        ("once", "PreToolUse", None), ("skill", "PreToolUse", None), ("skill", "PreToolUse", None),
    ]  # fmt: skip


@requirement("hooks.front-matter")
def test_skills_of_an_untrusted_project_are_not_used(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write(tmp_path / "work/.claude/skills/doit/SKILL.md", SKILL.format(log=log))
    result = run_agent(tmp_path, [[use("Skill", skill="doit")], [bash("true")], say("Done.")])

    assert (result.returncode, logged_runs(log)) == (0, [])
    assert "untrusted folder brings: .claude/skills/doit/SKILL.md (hooks, skill)" in result.stderr


@requirement("hooks.front-matter")
def test_skill_or_agent_with_invalid_hooks_is_not_used(tmp_path: Path) -> None:
    broken = SKILL.format(log="x").replace("type: command", "type: commando")
    write(tmp_path / "home/.claude/skills/doit/SKILL.md", broken)
    result = run_agent(tmp_path, [[use("Skill", skill="doit")], say("I could not.")])

    assert result.stdout == "I could not.\n"
    write(tmp_path / "home/.claude/agents/helper.md", AGENT.format(log="x") + "\n")
    assert load_agent_definitions([tmp_path / "home/.claude/agents"]).definitions == ()


@requirement("hooks.front-matter")
def test_program_can_build_the_hooks_of_agents(tmp_path: Path) -> None:
    write(tmp_path / "helper.md", AGENT.format(log="x"))
    hooks = Hooks()
    requests: list[object] = []

    def make(block: object, path: Path) -> HookRunner:
        requests.append((sorted(block) if isinstance(block, dict) else None, path.name))
        return hooks

    (definition,) = load_agent_definitions([tmp_path], make).definitions
    assert definition.hooks is hooks
    assert requests == [(["PreToolUse", "Stop"], "helper.md")]


@requirement("hooks.front-matter")
def test_trust_request_shows_the_hooks_of_agents_and_skills(tmp_path: Path) -> None:
    paths = SettingsPaths(project=tmp_path, user=tmp_path / "home")
    write(tmp_path / ".claude/agents/helper.md", AGENT.format(log="x"))
    write(tmp_path / ".claude/skills/doit/SKILL.md", SKILL.format(log="x"))
    write(tmp_path / ".claude/skills/odd/SKILL.md", "---\nhooks:\n  Stop: [3, {}]\n---\n")
    write(tmp_path / ".claude/skills/plain/SKILL.md", "---\nname: plain\n---\nhooks: none\n")
    request = build_trust_request(paths, [])
    before = request.digest
    lines = [line.strip() for line in request.format_lines()]
    write(tmp_path / ".claude/skills/doit/SKILL.md", SKILL.format(log="other"))

    assert "PreToolUse Bash [command] echo once $(cat) >> x" in lines
    assert "Stop * [command] echo stop $(cat) >> x" in lines
    assert "Stop 3" in lines
    assert "| name: plain" in lines
    assert build_trust_request(paths, []).digest != before


@requirement("hooks.front-matter")
def test_line_that_only_resembles_the_end_of_frontmatter_hides_no_hooks(tmp_path: Path) -> None:
    head = SKILL.format(log="x").replace("description:", "---x: y\ndescription:")
    write(tmp_path / ".claude/skills/doit/SKILL.md", head)

    request = build_trust_request(SettingsPaths(project=tmp_path, user=tmp_path / "home"), [])

    assert "PreToolUse" in "".join(request.format_lines())
