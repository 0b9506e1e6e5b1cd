"""Settings in `toolspan exec` and `toolspan trust`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.fork_server import TOOLSPAN
from tests.requirement import requirement

pytestmark = pytest.mark.usefixtures("fork_server")

GUARD = {"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "exit 2"}]}]}}
CALL = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "echo hi"}}


class World:
    """A home and a project in it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.project = folder / "project"
        self.project.mkdir()

    def write(self, name: str, value: object) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value), encoding="utf-8")
        return path

    def toolspan(self, *arguments: str, told: str = "") -> subprocess.CompletedProcess[str]:
        remaining = {k: v for k, v in os.environ.items() if not k.startswith(("CLAUDE", "XDG"))}
        return subprocess.run(
            [*TOOLSPAN, *arguments],
            cwd=self.project,
            env={**remaining, "HOME": str(self.home)},
            input=told,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )

    def state(self, *options: str) -> tuple[str, str]:
        line = json.dumps({"type": "assistant", "message": {"content": [CALL]}}) + "\n"
        done = self.toolspan("exec", "--transcript", "none", *options, told=line)
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["state"]), done.stderr


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@requirement("exec.hooks")
def test_hooks_of_a_named_file_apply_to_every_call(world: World) -> None:
    named = world.write("project/.claude/settings.json", GUARD)

    assert world.state("--settings", str(named)) == ("blocked_by_hook", "")


@requirement("exec.hooks")
def test_user_settings_are_used_without_being_named(world: World) -> None:
    world.write(".claude/settings.json", GUARD)

    assert world.state()[0] == "blocked_by_hook"
    assert world.state("--setting-sources", "project")[0] == "succeeded"


@requirement("settings.trust-command")
def test_hooks_of_a_project_run_only_after_they_were_accepted(world: World) -> None:
    ran = world.project / "ran"
    hook = {"type": "command", "command": f"touch {ran}"}
    world.write("project/.claude/settings.json", {"hooks": {"PreToolUse": [{"hooks": [hook]}]}})

    state, output = world.state()
    assert (state, ran.exists()) == ("succeeded", False)
    assert "untrusted folder" in output

    displayed = world.toolspan("trust", told="n\n")
    assert f"PreToolUse * [command] touch {ran}" in displayed.stdout
    assert "Not trusted." in displayed.stdout
    assert world.toolspan("trust", "--check").returncode == 1

    assert "Trusted until" in world.toolspan("trust", told="y\n").stdout
    assert world.toolspan("trust", "--check").returncode == 0
    assert world.toolspan("trust", "--list").stdout == f"{world.project}\n"
    assert world.state() == ("succeeded", "")
    assert ran.exists()

    ran.unlink()
    world.toolspan("trust", "--revoke")
    world.state()
    assert not ran.exists()


@requirement("settings.trust-command")
def test_control_characters_in_settings_are_escaped_for_the_terminal(world: World) -> None:
    hook = {"type": "command", "command": "a\x1b[2Jb"}
    world.write("project/.claude/settings.json", {"hooks": {"Stop": [{"hooks": [hook]}]}})

    assert "a\\x1b[2Jb" in world.toolspan("trust", told="n\n").stdout


@requirement("settings.errors")
def test_invalid_settings_file_ends_the_command_with_one_line(world: World) -> None:
    named = world.write("bad.json", {"hooks": {"Stop": 3}})

    done = world.toolspan("exec", "--settings", str(named))

    assert done.returncode == 2
    assert done.stderr == (f"toolspan: {named}: `hooks.Stop` must be a list of groups, not a number\n")


@requirement("exec.hooks")
def test_hooks_can_be_made_to_fail_closed(world: World) -> None:
    hook = {"type": "command", "command": "/no/such/guard"}
    world.write(".claude/settings.json", {"hooks": {"PreToolUse": [{"hooks": [hook]}]}})

    assert world.state()[0] == "succeeded"
    assert world.state("--fail-closed")[0] == "blocked_by_hook"


@requirement("exec.hooks")
def test_exec_runs_hooks_for_prompts_and_ends_of_turns(world: World) -> None:
    def at(point: str, line: str) -> dict[str, object]:
        return {point: [{"hooks": [{"type": "command", "command": line}]}]}

    once = "[ -e once ] || { touch once; echo go on >&2; exit 2; }"
    block = {**at("UserPromptSubmit", "echo noted"), **at("Stop", once)}
    world.write(".claude/settings.json", {"hooks": block})
    output = [
        {"type": "user", "message": {"content": "Go"}},
        {"type": "assistant", "message": {"content": "done"}},
        {"type": "assistant", "message": {"content": "really"}},
    ]

    done = world.toolspan("exec", "--transcript", "none", told="".join(json.dumps(item) + "\n" for item in output))

    noted = "UserPromptSubmit hook additional context: noted"
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {
            "type": "prompt",
            "accepted": True,
            "content": [{"type": "text", "text": "Go"}, {"type": "text", "text": noted}],
        },
        {"type": "feedback", "content": [f"Stop hook feedback:\n[{once}]: go on\n"]},
    ]


@requirement("exec.strange")
def test_unknown_names_in_settings_are_reported_and_the_rest_is_used(world: World) -> None:
    rules = {"alow": ["Read"], "deny": ["Bsah(rm:*)", "Agent(x)", "mcp__db__drop", "Foo*"]}
    world.write(".claude/settings.json", {"permissions": rules, "theme": "dark"})
    output = json.dumps({"type": "assistant", "message": {"content": [CALL]}}) + "\n"

    done = world.toolspan(
        *("exec", "--transcript", "none", "--tools", "Bash,mcp__db__drop"),
        *("--allowed-tools", "Wirte Bash(echo:*)"),
        told=output,
    )

    lines = [line.removeprefix("toolspan: ") for line in done.stderr.splitlines()]
    assert [line.removeprefix("toolspan exec: ") for line in lines] == [
        f"{world.home}/.claude/settings.json: ignoring the unknown key `permissions.alow`; valid"
        " keys are allow, ask, deny, defaultMode, additionalDirectories,"
        " disableBypassPermissionsMode, disableAutoMode",
        "the rule Bsah(rm:*) (userSettings): there is no tool 'Bsah'; did you mean Bash?",
        "the rule Wirte (cliArg): there is no tool 'Wirte'; did you mean Write?",
    ]
    assert json.loads(done.stdout)["content"] == "hi"


@requirement("exec.strange")
@pytest.mark.parametrize(
    "command",
    [("exec",), ("mcp",), ("run", "-p", "Go.", "--model", "scripted:../steps.json")],
    ids=["exec", "mcp", "run"],
)
def test_unknown_tool_is_rejected_by_the_option_that_names_it(world: World, command: tuple[str, ...]) -> None:
    world.write("steps.json", [[{"type": "text", "text": "Done."}]])

    done = world.toolspan(*command, "--transcript", "none", "--tools", "Bash,read", told="")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "toolspan: --tools: there is no tool 'read'; did you mean Read?\n"
