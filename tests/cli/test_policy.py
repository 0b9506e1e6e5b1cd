"""`toolspan policy`: what rules would do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.cli.command import home_at, one_row, run, saved
from toolspan.testing import TranscriptBuilder, claude_results


def policy(*arguments: str | Path) -> Result:
    return run("policy", *arguments, code=None)


def checked(*arguments: str | Path) -> dict[str, Any]:
    return one_row(run("policy", "check", "--json", *arguments))


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


def test_an_unknown_profile_is_replaced_by_the_nearest_one() -> None:
    for arguments in (["policy", "check", "--profile", "2.9", "--", "ls"], ["tools", "--profile", "2.9"]):
        assert "there is no profile 2.9; using the nearest one, 2.1.327" in run(*arguments).stderr


def test_answer_names_the_rule_the_commands_and_the_suggestions(tmp_path: Path) -> None:
    denied = checked("deny:Bash(rm:*)", "--cwd", tmp_path, "--", "sudo", "rm", "a b")
    hidden = checked("--cwd", tmp_path, "--", "npm run build; $x")
    offered = checked("--cwd", tmp_path, "--", "npm run build")

    assert (denied["rule"], denied["origin"]) == ("Bash(rm:*)", "cliArg")
    assert denied["programs"] == ["sudo rm 'a b'", "rm 'a b'"]
    assert hidden["not_understood"] == "A variable in the line is not understood."
    assert hidden["words"].startswith("A variable in this command")
    assert offered["not_understood"] == "npm is not a known program."
    assert offered["suggestions"][0]["rules"] == [{"toolName": "Bash", "ruleContent": "npm run:*"}]


def test_answer_names_the_files_that_a_line_reads_and_changes(tmp_path: Path) -> None:
    result = checked("--cwd", tmp_path, "--", "timeout 5 head -n 3 a.txt > x && rm y")

    assert (result["files_read"], result["files_written"]) == (["a.txt"], ["y", "x"])
    assert result.get("not_understood") is None


@pytest.mark.parametrize(
    ("mode", "folder", "decision"),
    [("bypassPermissions", "", "allow"), ("bypassPermissions", ".claude", "ask"), ("manual", "", "ask")],
)
def test_default_mode_counts_as_in_a_session(tmp_path: Path, mode: str, folder: str, decision: str) -> None:
    settings = tmp_path / folder / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"permissions": {"defaultMode": mode}}), encoding="utf-8")

    assert checked("--settings", settings, "--cwd", tmp_path, "--", "make")["decision"] == decision


def test_mode_that_asks_nobody_denies_dangerous_removals_too(tmp_path: Path) -> None:
    options = ("--permission-mode", "dontAsk", "--cwd", tmp_path, "--")

    assert checked(*options, "rm -rf ~")["decision"] == "deny"
    assert checked(*options, "ls")["decision"] == "allow"


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


def test_text_output_has_the_same_facts(tmp_path: Path) -> None:
    result = policy("check", "mcp__*", "deny:Bash(rm:*)", "--cwd", tmp_path, "--", "rm x")

    assert result.exit_code == 0
    assert result.stdout.startswith("deny  rm x")
    assert "Bash(rm:*) (cliArg)" in result.stdout
    assert "mcp__*: allows nothing, because `*` must come after the name of an MCP server" in result.stderr


def test_text_output_explains_in_sentences(tmp_path: Path) -> None:
    lines = policy("check", "deny:Bash(rm:*)", "--cwd", tmp_path, "--", "ls . && sudo rm x").stdout.splitlines()

    assert lines[1:] == [
        "  rule     Bash(rm:*) (cliArg)",
        "  because  the rule Bash(rm:*) denies a command in the line",
        "  runs     ls .",
        "  runs     sudo rm x",
        "  runs     rm x",
        "  reads    .",
        "  changes  x",
        "  but      sudo is not a known program.",
    ]


@pytest.mark.parametrize(
    ("tool", "tool_input", "decision"),
    [
        ("TodoWrite", {"todos": []}, "allow"),
        ("TaskCreate", {"subject": "a", "description": "b"}, "allow"),
        ("Agent", {"description": "a", "prompt": "b", "subagent_type": "general-purpose"}, "allow"),
        ("WebSearch", {"query": "cats"}, "ask"),
        ("mcp__db__query", {"sql": "select 1"}, "ask"),
        ("Monitor", {"command": "ls"}, "allow"),
        ("Monitor", {"command": "touch x"}, "ask"),
        ("Bash", {}, "deny"),
    ],
)
def test_every_tool_gets_the_decision_of_a_session(
    tmp_path: Path, tool: str, tool_input: dict[str, object], decision: str
) -> None:
    row = checked("--cwd", tmp_path, "--tool", tool, "--input", json.dumps(tool_input))

    assert row["decision"] == decision


@pytest.mark.parametrize(
    ("behavior", "rule"),
    [
        ("allow", "bash(rm:*)"),
        ("deny", "Bsh(x)"),
        ("deny", "Bash(git:*push)"),
        ("ask", "WebFetch(example.com)"),
    ],
)
def test_a_rule_that_matches_nothing_is_reported(tmp_path: Path, behavior: str, rule: str) -> None:
    result = policy("check", f"{behavior}:{rule}", "--cwd", tmp_path, "--", "ls")

    assert f"the rule {rule} (cliArg): " in result.stderr


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


def history(root: Path, project: Path) -> Path:
    """Write a session with questions that a rule could have answered, and others that none may answer."""
    builder = TranscriptBuilder(session_id="s", cwd=str(project), version="2.1.80").prompt("go")
    for command in (
        "npm run build",
        "npm run test",
        "npm run build && npm run lint",
        "curl https://x.org",
        "pytest -q",
    ):
        builder.result(builder.call("Bash", {"command": command}), claude_results.ran("done"))
    builder.result(builder.call("Bash", {"command": "pytest --pdb"}), claude_results.rejected())
    for command in ("pytest tests", "$x", "rm -rf ../other", "python3 -c 'import os'", "python3 -c 'import os'"):
        builder.result(builder.call("Bash", {"command": command}), claude_results.ran("done"))
    return saved(builder, root, project)


def suggested(root: Path, *arguments: str | Path) -> dict[str, Any]:
    return one_row(run("policy", "suggest", "--json", "--since", "2000-01-01", *arguments, env=home_at(root)))


def test_rules_are_suggested_for_questions_that_were_never_refused(tmp_path: Path) -> None:
    path = history(tmp_path, tmp_path / "project")

    result = suggested(tmp_path, path)

    assert [(row["rule"], row["questions"]) for row in result["rules"]] == [("Bash(npm run:*)", 3)]
    assert (result["calls"], result["saved_questions"]) == (11, 3)
    assert set(result["excluded"]) >= {"network", "denied", "not understood", "removal", "interpreter"}
    assert not (tmp_path / "settings.json").exists()


def test_written_rules_save_the_promised_questions(tmp_path: Path) -> None:
    path = history(tmp_path, tmp_path / "project")
    settings = tmp_path / "settings.json"
    before = '{\n    "model": "x",   "permissions": {"deny": ["Bash(sudo:*)"]}\n}'
    settings.write_text(before, encoding="utf-8")

    def decisions() -> list[str]:
        result = policy("replay", path, "--settings", settings, "--all", "--json")
        return [json.loads(line)["decision"] for line in result.stdout.splitlines()]

    asked = decisions()
    result = suggested(tmp_path, path, "--write")
    afterwards = decisions()

    assert result["written"] is True
    assert asked.count("ask") - afterwards.count("ask") == result["saved_questions"] == 3
    added = '"permissions": {"deny": ["Bash(sudo:*)"], "allow": [\n            "Bash(npm run:*)"\n        ]}'
    assert settings.read_text(encoding="utf-8") == before.replace('"permissions": {"deny": ["Bash(sudo:*)"]}', added)
    assert suggested(tmp_path, path, "--write")["rules"] == []


def test_suggested_rules_are_shown_as_a_diff(tmp_path: Path) -> None:
    path = history(tmp_path, tmp_path / "project")

    output = run("policy", "suggest", "--since", "2000-01-01", path, env=home_at(tmp_path)).stdout

    assert "Bash(npm run:*)  saves 3 questions" in output
    assert "Together these rules save 3 of 11 questions." in output
    assert '+      "Bash(npm run:*)"' in output


@pytest.mark.parametrize("content", ["{", '{"permissions": []}', '{"permissions": {"allow": "Bash"}}', "[]"])
def test_a_damaged_settings_file_is_refused_and_unchanged(tmp_path: Path, content: str) -> None:
    path = history(tmp_path, tmp_path / "project")
    settings = tmp_path / "settings.json"
    settings.write_text(content, encoding="utf-8")

    result = run("policy", "suggest", path, "--write", "--since", "2000-01-01", env=home_at(tmp_path), code=None)

    assert result.exit_code == 2
    assert "settings.json" in result.stderr
    assert settings.read_text(encoding="utf-8") == content
