"""Rules, modes, and the decision of several policies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.permissions import requests
from toolspan.errors import ToolspanError
from toolspan.runtime.permissions import MODES, Mode, Rules, decide, mode_policy
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.types.decision import Allow, Ask, Decision, Deny

DECISIONS = st.sampled_from([None, Allow("a"), Ask("b"), Deny("c")])


def make_request(
    tool: str, *, known_as: str | None = None, read_only: bool = False, **tool_input: object
) -> PermissionRequest:
    request = requests.make_request(tool, Path("/p"), **tool_input)
    return replace(request, cwd=Path("/p/in"), read_only=read_only, known_as=known_as)


@given(st.lists(DECISIONS, max_size=5))
def test_deny_wins_over_ask_and_ask_over_allow(decisions: list[Decision | None]) -> None:
    policies = [lambda question, decision=decision: decision for decision in decisions]
    decision = requests.run_without_waiting(decide(policies, make_request("Bash")))

    rank = [type(None), Allow, Ask, Deny]
    strongest = max((rank.index(type(item)) for item in decisions), default=0)
    assert type(decision) is rank[strongest]


@pytest.mark.anyio
async def test_a_policy_that_gives_no_decision_counts_as_a_refusal() -> None:
    decision = await decide([lambda question: Allow(), lambda question: cast("Decision", True)], make_request("Bash"))

    assert isinstance(decision, Deny)
    assert "not bool" in str(decision.reason)


@pytest.mark.parametrize(
    ("rule", "command", "allowed"),
    [
        ("Bash", "anything; at all", True),
        ("Bash(*)", "ls", True),
        ("Bash(git *)", "git log", True),
        ("Bash(git:*)", "git", True),
        ("Bash(git:*)", "git log -1", True),
        ("Bash(git:*)", "gitk", False),
        ("Bash(git *)", "git log; rm x", False),
        ("Bash(git *)", "git log && rm x", False),
        ("Bash(git *)", "git log | sh", False),
        ("Bash(git *)", "git log $(rm x)", False),
        ("Bash(git *)", "git log `rm x`", False),
        ("Bash(git *)", "git log\nrm x", False),
        ("Bash(git *)", "git log > x", False),
        ("Read", "ls", False),
    ],
)
def test_an_allow_rule_matches_only_lines_that_hide_nothing(rule: str, command: str, allowed: bool) -> None:
    decision = Rules(allow=[rule])(make_request("Bash", command=command))

    assert isinstance(decision, Allow) is allowed


def test_deny_rules_win_over_ask_rules_and_those_over_allow_rules() -> None:
    rules = Rules(allow=["Bash"], ask=["Bash(git *)"], deny=["Bash(git push *)"])

    assert isinstance(rules(make_request("Bash", command="ls")), Allow)
    assert isinstance(rules(make_request("Bash", command="git log")), Ask)
    assert isinstance(rules(make_request("Bash", command="git push origin")), Deny)
    assert rules(make_request("Read", file_path="x")) is None


def test_the_closing_bracket_of_a_test_is_not_part_of_the_command() -> None:
    rules = Rules(allow=["Bash"], ask=["Bash(* a.txt)"])

    assert isinstance(rules(make_request("Bash", command="[ -f a.txt ]")), Ask)
    assert isinstance(rules(make_request("Bash", command="ls; [[ -d src && -f 'a.txt' ]]")), Ask)
    assert isinstance(rules(make_request("Bash", command="[ -f b.txt ]")), Allow)


@pytest.mark.parametrize("rule", ["mcp__db", "mcp__db__*", "mcp__db__query"])
def test_rules_name_servers_and_their_tools(rule: str) -> None:
    rules = Rules(deny=[rule])

    assert isinstance(rules(make_request("mcp__db__query")), Deny)
    assert rules(make_request("mcp__dbx__query")) is None


@pytest.mark.parametrize("rule", ["Agent", "Task"])
def test_aliases_of_a_tool_do_not_bypass_a_rule(rule: str) -> None:
    assert isinstance(Rules(deny=[rule])(make_request("Task", known_as="Agent")), Deny)


@pytest.mark.parametrize("text", ["", "Bash(", "(x)", "1x", "Bash)"])
def test_an_invalid_rule_is_rejected(text: str) -> None:
    with pytest.raises(ToolspanError, match="not a permission rule"):
        Rules(allow=[text])


MODE_DECISIONS: dict[Mode, dict[str, type]] = {
    "default": {"Read /p/x": Allow, "Read /q/x": Ask, "Edit /p/x": Ask},
    "acceptEdits": {"Edit /p/x": Allow, "Edit /p/../q": Ask, "Edit ../../q": Ask},
    "plan": {"Edit /p/x": Ask, "Read /p/x": Allow},
    "dontAsk": {"Edit /p/x": Deny, "Read /p/x": Allow},
    "bypassPermissions": {"Edit /q/x": Allow},
}


@pytest.mark.parametrize(
    ("mode", "call", "decision"),
    [(mode, call, decision) for mode, calls in MODE_DECISIONS.items() for call, decision in calls.items()],
)
def test_the_mode_decides_calls_that_no_rule_matches(mode: Mode, call: str, decision: type) -> None:
    tool, path = call.split()

    assert type(mode_policy(mode)(make_request(tool, file_path=path))) is decision


@pytest.mark.parametrize("mode", MODES)
def test_a_read_only_command_is_not_asked_about(mode: Mode) -> None:
    decision = mode_policy(mode)(make_request("Bash", command="ls", read_only=True))

    assert isinstance(decision, Allow)
