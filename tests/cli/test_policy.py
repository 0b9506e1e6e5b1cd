"""`toolspan policy`: what rules would do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.cli.command import one_row, run
from tests.requirement import requirement
from toolspan.testing import TranscriptBuilder, claude_results


def policy(*arguments: str | Path) -> Result:
    return run("policy", *arguments, code=None)


def checked(*arguments: str | Path) -> dict[str, Any]:
    return one_row(run("policy", "check", "--json", *arguments))


@requirement("policy.check")
@pytest.mark.parametrize(
    ("rules", "command", "decision"),
    [
        ([], "ls", "allow"),
        ([], "touch x", "ask"),
        (["Bash(touch:*)"], "touch x", "allow"),
        (["allow:Bash(touch:*)"], "touch x", "allow"),
        (["ask:Bash(ls:*)"], "ls", "ask"),
        (["Bash", "deny:Bash(rm:*)"], "ls && sudo rm x", "deny"),
    ],
)
def test_rules_are_tested_on_a_command(tmp_path: Path, rules: list[str], command: str, decision: str) -> None:
    result = checked("--cwd", tmp_path, *rules, "--", command)

    assert result["decision"] == decision


@requirement("run.nearest-profile")
def test_an_unknown_profile_is_replaced_by_the_nearest_one() -> None:
    for arguments in (["policy", "check", "--profile", "2.9", "--", "ls"], ["tools", "--profile", "2.9"]):
        assert "there is no profile 2.9; using the nearest one, 2.1.325" in run(*arguments).stderr


@requirement("policy.check")
def test_answer_names_the_rule_the_commands_and_the_suggestions(tmp_path: Path) -> None:
    denied = checked("deny:Bash(rm:*)", "--cwd", tmp_path, "--", "sudo", "rm", "a b")
    unclear = checked("--cwd", tmp_path, "--", "npm run build; $x")
    offered = checked("--cwd", tmp_path, "--", "npm run build")

    assert (denied["rule"], denied["origin"]) == ("Bash(rm:*)", "cliArg")
    assert denied["programs"] == ["sudo rm 'a b'", "rm a b"]
    assert unclear["unclear"] == [
        "A variable",
        "npm is not a known program",
        "a command's name is filled in by the shell",
    ]
    assert unclear["words"].startswith("A variable in this command")
    assert offered["suggestions"][0]["rules"] == [{"toolName": "Bash", "ruleContent": "npm run:*"}]


@requirement("policy.check")
@pytest.mark.parametrize(
    ("command", "roles"),
    [
        ("A=1 timeout 5 git log -n 3 >x", "A variable, timeout wrapper, 5 wrapper, git program, log subcommand, "
         "-n option, 3 value, >x redirect"),
        ("git -C x log", "git program, -C unknown, x unknown, log unknown"),
        ("A=1", "A variable"),
    ],
)  # fmt: skip
def test_answer_names_the_role_of_each_word(tmp_path: Path, command: str, roles: str) -> None:
    assert checked("--cwd", tmp_path, "--", command)["roles"] == [roles]


@requirement("policy.check")
@pytest.mark.parametrize(
    ("mode", "folder", "decision"),
    [("bypassPermissions", "", "allow"), ("bypassPermissions", ".claude", "ask"), ("manual", "", "ask")],
)
def test_default_mode_counts_as_in_a_session(tmp_path: Path, mode: str, folder: str, decision: str) -> None:
    settings = tmp_path / folder / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"permissions": {"defaultMode": mode}}), encoding="utf-8")

    assert checked("--settings", settings, "--cwd", tmp_path, "--", "make")["decision"] == decision


@requirement("policy.check")
def test_other_tools_are_checked_by_their_input_and_settings_count(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    block = {"permissions": {"deny": ["Read(/secret)"], "defaultMode": "acceptEdits"}}
    settings.write_text(json.dumps(block), encoding="utf-8")
    common = ("--settings", settings, "--cwd", tmp_path, "--input")

    read = checked("--tool", "Read", *common, '{"file_path": "secret"}')
    write = checked("--tool", "Write", *common, '{"file_path": "x", "content": ""}')

    assert (read["decision"], read["rule"], read["origin"]) == (
        "deny", "Read(/secret)", "flagSettings",
    )  # fmt: skip
    assert (write["decision"], write["basis"]) == ("allow", "mode")


@requirement("policy.check")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "settings.json", "--", "ls"], "--settings settings.json"),
        (["check"], "no call to check"),
        (["check", "--input", "{"], "not JSON"),
        (["check", "--input", "[]"], "not a JSON object"),
        (["check", "Bash(", "--", "ls"], "not a permission rule"),
    ],
)
def test_missing_or_invalid_arguments_are_reported(arguments: list[str], says: str) -> None:
    result = policy(*arguments)

    assert result.exit_code == 2
    assert says in result.output


@requirement("policy.check")
def test_text_output_has_the_same_facts(tmp_path: Path) -> None:
    result = policy("check", "mcp__*", "deny:Bash(rm:*)", "--cwd", tmp_path, "--", "rm x")

    assert result.exit_code == 0
    assert result.stdout.startswith("deny  rm x")
    assert "Bash(rm:*) (cliArg)" in result.stdout
    assert "mcp__*: allows nothing, because `*` must come after the name of an MCP server" in result.stdout


@requirement("policy.replay")
def test_recorded_session_is_checked_call_by_call(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    for command in ("ls", "touch x", "curl x", "git push"):
        builder.result(builder.call("Bash", {"command": command}), claude_results.exited(1, "no"))
    path = builder.write(tmp_path / "s.jsonl")
    settings = tmp_path / "settings.json"
    rules = {"allow": ["Bash(touch:*)"], "deny": ["Bash(curl:*)"], "ask": ["Bash(git push:*)"]}
    settings.write_text(json.dumps({"permissions": rules}), encoding="utf-8")

    result = policy("replay", path, "--settings", settings, "--json")
    every = policy("replay", path, "--settings", settings, "--json", "--all")
    output = policy("replay", path, "--settings", settings)

    rows = [json.loads(row) for row in result.stdout.splitlines()]
    assert [(row["about"], row["decision"]) for row in rows] == [
        ("curl x", "deny"), ("git push", "ask"),
    ]  # fmt: skip
    assert len(every.stdout.splitlines()) == 4
    assert output.stdout.splitlines()[-1] == "4 calls: 2 allow, 1 ask, 1 deny"
