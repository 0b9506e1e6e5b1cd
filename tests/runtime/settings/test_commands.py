"""Settings in `toolspan exec` and `toolspan trust`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.fork_server import run_toolspan

pytestmark = pytest.mark.usefixtures("fork_server")

GUARD = {"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "exit 2"}]}]}}
CALL = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "echo hi"}}


class Home:
    """A home with a project, in which commands run."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.project = folder / "project"
        self.project.mkdir()

    def write(self, name: str, value: object) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value), encoding="utf-8")
        return path

    def toolspan(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        remaining = {k: v for k, v in os.environ.items() if not k.startswith(("CLAUDE", "XDG"))}
        return run_toolspan(*arguments, cwd=self.project, env={**remaining, "HOME": str(self.path)}, stdin=stdin)

    def state(self, *options: str) -> tuple[str, str]:
        line = json.dumps({"type": "assistant", "message": {"content": [CALL]}}) + "\n"
        result = self.toolspan("exec", "--transcript", "none", *options, stdin=line)
        assert result.returncode == 0, result.stderr
        return str(json.loads(result.stdout)["state"]), result.stderr


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_hooks_of_a_named_file_apply_to_every_call(home: Home) -> None:
    named = home.write("project/.claude/settings.json", GUARD)

    assert home.state("--settings", str(named)) == ("blocked_by_hook", "")


def test_user_settings_are_used_without_being_named(home: Home) -> None:
    home.write(".claude/settings.json", GUARD)

    assert home.state()[0] == "blocked_by_hook"
    assert home.state("--setting-sources", "project")[0] == "succeeded"


def test_hooks_of_a_project_run_only_after_they_were_accepted(home: Home) -> None:
    ran = home.project / "ran"
    hook = {"type": "command", "command": f"touch {ran}"}
    home.write("project/.claude/settings.json", {"hooks": {"PreToolUse": [{"hooks": [hook]}]}})

    state, output = home.state()
    assert (state, ran.exists()) == ("succeeded", False)
    assert "untrusted folder" in output

    displayed = home.toolspan("trust", stdin="n\n")
    assert f"PreToolUse * [command] touch {ran}" in displayed.stdout
    assert "Not trusted." in displayed.stdout
    assert home.toolspan("trust", "--check").returncode == 1

    assert "Trusted until" in home.toolspan("trust", stdin="y\n").stdout
    assert home.toolspan("trust", "--check").returncode == 0
    assert home.toolspan("trust", "--list").stdout == f"{home.project}\n"
    assert home.state() == ("succeeded", "")
    assert ran.exists()

    ran.unlink()
    home.toolspan("trust", "--revoke")
    home.state()
    assert not ran.exists()


def test_control_characters_in_settings_are_escaped_for_the_terminal(home: Home) -> None:
    hook = {"type": "command", "command": "a\x1b[2Jb"}
    home.write("project/.claude/settings.json", {"hooks": {"Stop": [{"hooks": [hook]}]}})

    assert "a\\x1b[2Jb" in home.toolspan("trust", stdin="n\n").stdout


def test_invalid_settings_file_ends_the_command_with_one_line(home: Home) -> None:
    named = home.write("bad.json", {"hooks": {"Stop": 3}})

    result = home.toolspan("exec", "--settings", str(named))

    assert result.returncode == 2
    assert result.stderr == (f"toolspan: {named}: `hooks.Stop` must be a list of groups, not a number\n")


def test_hooks_can_be_made_to_fail_closed(home: Home) -> None:
    hook = {"type": "command", "command": "/no/such/guard"}
    home.write(".claude/settings.json", {"hooks": {"PreToolUse": [{"hooks": [hook]}]}})

    assert home.state()[0] == "succeeded"
    assert home.state("--fail-closed")[0] == "blocked_by_hook"


@pytest.mark.parametrize(("version", "home_path"), [("2.1.327", "{home}/x"), ("2.0.65", "{project}/sub/~/x")])
def test_hooks_get_the_absolute_path_and_the_current_folder(home: Home, version: str, home_path: str) -> None:
    log = home.path / "log"
    hook = {"hooks": [{"type": "command", "command": f"cat >> {log}"}]}
    rules = {"allow": ["Bash", "Write", "Read"]}
    home.write(".claude/settings.json", {"permissions": rules, "hooks": {"PreToolUse": [hook], "PostToolUse": [hook]}})
    (home.project / "sub" / "~").mkdir(parents=True)
    calls: list[tuple[str, dict[str, str]]] = [
        ("Write", {"file_path": "a.txt", "content": "x"}),
        ("Bash", {"command": "cd sub"}),
        ("Write", {"file_path": "../b.txt", "content": "x"}),
        ("Read", {"file_path": "~/x"}),
    ]
    for folder in (home.path, home.project / "sub" / "~"):
        (folder / "x").write_text("x")
    lines = [
        {"type": "tool_use", "id": f"t{number}", "name": name, "input": value}
        for number, (name, value) in enumerate(calls)
    ]
    replies = (json.dumps({"type": "assistant", "message": {"content": [line]}}) + "\n" for line in lines)

    home.toolspan("exec", "--transcript", "none", "--profile", version, stdin="".join(replies))

    rows = [json.loads(line) for line in log.read_text().splitlines()]
    project = str(home.project)
    paths = [(row["hook_event_name"], row["tool_input"].get("file_path"), row["cwd"]) for row in rows]
    assert paths[:6] == [
        ("PreToolUse", f"{project}/a.txt", project),
        ("PostToolUse", f"{project}/a.txt", project),
        ("PreToolUse", None, project),
        ("PostToolUse", None, f"{project}/sub"),
        ("PreToolUse", f"{project}/b.txt", f"{project}/sub"),
        ("PostToolUse", f"{project}/b.txt", f"{project}/sub"),
    ]
    assert paths[6] == ("PreToolUse", home_path.format(home=home.path, project=project), f"{project}/sub")
    assert (home.project / "b.txt").exists()


def test_exec_runs_hooks_for_prompts_and_ends_of_turns(home: Home) -> None:
    def at(point: str, line: str) -> dict[str, object]:
        return {point: [{"hooks": [{"type": "command", "command": line}]}]}

    once = "[ -e once ] || { touch once; echo go on >&2; exit 2; }"
    block = {**at("UserPromptSubmit", "echo noted"), **at("Stop", once)}
    home.write(".claude/settings.json", {"hooks": block})
    output = [
        {"type": "user", "message": {"content": "Go"}},
        {"type": "assistant", "message": {"content": "done"}},
        {"type": "assistant", "message": {"content": "really"}},
    ]

    result = home.toolspan("exec", "--transcript", "none", stdin="".join(json.dumps(item) + "\n" for item in output))

    noted = "UserPromptSubmit hook additional context: noted"
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {
            "type": "prompt",
            "accepted": True,
            "content": [{"type": "text", "text": "Go"}, {"type": "text", "text": noted}],
        },
        {"type": "feedback", "content": [f"Stop hook feedback:\n[{once}]: go on\n"]},
    ]


def test_unknown_names_in_settings_are_reported_and_the_rest_is_used(home: Home) -> None:
    rules = {"alow": ["Read"], "deny": ["Bsah(rm:*)", "Agent(x)", "mcp__db__drop", "Foo*"]}
    home.write(".claude/settings.json", {"permissions": rules, "theme": "dark"})
    output = json.dumps({"type": "assistant", "message": {"content": [CALL]}}) + "\n"

    result = home.toolspan(
        *("exec", "--transcript", "none", "--tools", "Bash,mcp__db__drop"),
        *("--allowed-tools", "Wirte Bash(echo:*)"),
        stdin=output,
    )

    lines = [line.removeprefix("toolspan: ") for line in result.stderr.splitlines()]
    assert [line.removeprefix("toolspan exec: ") for line in lines] == [
        f"{home.path}/.claude/settings.json: ignoring the unknown key `permissions.alow`; valid"
        " keys are allow, ask, deny, defaultMode, additionalDirectories,"
        " disableBypassPermissionsMode, disableAutoMode",
        "the rule Bsah(rm:*) (userSettings): there is no tool 'Bsah'; did you mean Bash?",
        "the rule Foo* (userSettings): no tool has a name like 'Foo*'",
        "the rule Wirte (cliArg): there is no tool 'Wirte'; did you mean Write?",
    ]
    assert json.loads(result.stdout)["content"] == "hi"


@pytest.mark.parametrize(
    "command",
    [("exec",), ("mcp",), ("run", "-p", "Go.", "--model", "scripted:../steps.json")],
    ids=["exec", "mcp", "run"],
)
def test_unknown_tool_is_rejected_by_the_option_that_names_it(home: Home, command: tuple[str, ...]) -> None:
    home.write("steps.json", [[{"type": "text", "text": "Done."}]])

    result = home.toolspan(*command, "--transcript", "none", "--tools", "Bash,read", stdin="")

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "toolspan: tools: there is no tool 'read'; did you mean Read?\n"
