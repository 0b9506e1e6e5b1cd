"""Rules that can have no effect are reported when a session starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import home_at, run
from toolspan import Permissions, Rules, Session, tool
from toolspan.session.rule_problems import RuleNames, find_rule_problems
from toolspan.tools import client_tools

NAMES = RuleNames.from_tools(client_tools().values(), servers=["github"])


def problems(rule: str) -> list[tuple[str, bool]]:
    found = find_rule_problems(Rules(deny=[rule]), NAMES)
    return [(problem.text.partition(": ")[2], problem.is_useless_denial) for problem in found]


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("bash(rm:*)", "did you mean Bash?"),
        ("Bsh(x)", "did you mean Bash?"),
        ("READ", "did you mean Read?"),
        ("mcp__githb__get", "did you mean github?"),
        ("mcp_github_get", "two underscores"),
        ("Bsh*", "no tool has a name like"),
        ("Bash(git:*push)", "only at the end"),
        ("Bash(npm:install)", "matches only the command"),
        ("Bash(rm:)", "write Bash(rm:*)"),
        ("WebFetch(example.com)", "a pattern for WebFetch is a host"),
        ("WebFetch(domain:https://example.com)", "without scheme"),
        ("TodoWrite(x)", "write TodoWrite"),
    ],
)
def test_a_denial_that_matches_nothing_is_found(rule: str, says: str) -> None:
    ((text, is_useless),) = problems(rule)

    assert says in text
    assert is_useless


@pytest.mark.parametrize(
    "rule",
    [
        "Bash", "Bash(rm:*)", "Bash(npm run test:unit)", "Bash(npm run test:*)", "Bash(* --version)",
        "Bash(run_in_background:true)", "Read(./.env)", "Edit(src/**)", "WebFetch(domain:*.example.com)",
        "WebFetch(domain:[::1])", "Agent(reviewer)", "Agent(model:opus)", "Skill(review:*)", "Task", "*", "mcp__*",
        "mcp__github", "mcp__github__get", "mcp__other__get", "Web*", "Glob(**/*.pem)", "WebSearch(x)",
    ],
)  # fmt: skip
def test_a_rule_that_can_match_has_no_problem(rule: str) -> None:
    assert problems(rule) == []


def test_an_unfamiliar_name_is_reported_but_may_belong_to_a_newer_client() -> None:
    assert problems("TeleportSheep") == [("there is no tool 'TeleportSheep'", False)]


def test_the_tools_of_a_session_are_known_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @tool
    def look_up(word: str) -> str:
        """Look up a word."""
        return word

    rules = Rules(deny=["look_up(word:x)", "lok_up"])
    Session(cwd=tmp_path, tools=[look_up], permissions=Permissions(rules), transcript=None)

    assert [record.message for record in caplog.records] == [
        "the rule lok_up: there is no tool 'lok_up'; did you mean look_up?"
    ]


def test_run_refuses_a_denial_that_matches_nothing(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([[{"type": "text", "text": "hi"}]]), encoding="utf-8")
    common = ("run", "--cwd", tmp_path, "--transcript", "none", "--no-sandbox", "--model", f"scripted:{script}")

    refused = run(*common, "--disallowed-tools", "bash(rm:*)", "-p", "x", env=home_at(tmp_path), code=None)
    warned = run(*common, "--allowed-tools", "bash(ls:*)", "-p", "x", env=home_at(tmp_path), code=None)

    assert refused.exit_code == 2
    assert "there is no tool 'bash'; did you mean Bash?" in refused.stderr
    assert "there is no tool 'bash'; did you mean Bash?" in warned.stderr
    assert "a rule that denies nothing" not in warned.stderr


def test_run_refuses_such_a_denial_before_servers_and_hooks_run(tmp_path: Path) -> None:
    script, config, trace = tmp_path / "script.json", tmp_path / "servers.json", tmp_path / "trace"
    script.write_text(json.dumps([[{"type": "text", "text": "hi"}]]), encoding="utf-8")
    config.write_text(json.dumps({"mcpServers": {"db": {"command": "touch", "args": [str(trace)]}}}), encoding="utf-8")
    hook = {"hooks": [{"type": "command", "command": f"touch {trace}"}]}
    settings = {"permissions": {"deny": ["Bsh(rm:*)"]}, "hooks": {"SessionStart": [hook]}}
    settings_file = tmp_path / "settings.json"
    settings_file.write_text(json.dumps(settings), encoding="utf-8")
    common = ("run", "--cwd", tmp_path, "--model", f"scripted:{script}", "--settings", settings_file)

    refused = run(*common, "--mcp-config", config, "-p", "x", env=home_at(tmp_path / "home"), code=2)

    assert refused.stderr.count("\n") == 1
    assert "did you mean Bash?" in refused.stderr
    assert not trace.exists()
    assert not (tmp_path / "home").exists()


def test_a_pattern_for_a_tool_that_is_not_offered_is_reported(tmp_path: Path) -> None:
    line = ("exec", "--cwd", tmp_path, "--transcript", "none", "--tools", "Bash", "--disallowed-tools", "TodoWrite(x)")

    result = run(*line, env=home_at(tmp_path), code=None)

    assert "the rule TodoWrite(x) (cliArg): TodoWrite has nothing that a pattern is compared with" in result.stderr


def test_doctor_reports_rules_in_the_settings(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"permissions": {"deny": ["bash(rm:*)"]}}', encoding="utf-8")

    result = run("doctor", tmp_path, env=home_at(tmp_path), code=None)

    assert "there is no tool 'bash'; did you mean Bash?" in result.stderr
