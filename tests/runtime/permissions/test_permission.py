"""Rules, modes, and one decision out of many opinions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.requirement import requirement
from tests.runtime.permissions import asked
from toolspan.errors import ToolspanError
from toolspan.runtime.permissions import MODES, Mode, Rules, decide, mode_policy
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.types.decision import Allow, Ask, Decision, Deny

OPINIONS = st.sampled_from([None, Allow("a"), Ask("b"), Deny("c")])


def question(tool: str, *, known_as: str | None = None, read_only: bool = False, **given: object) -> PermissionRequest:
    made = asked.question(tool, Path("/p"), **given)
    return replace(made, cwd=Path("/p/in"), read_only=read_only, known_as=known_as)


@requirement("permission.strongest")
@given(st.lists(OPINIONS, max_size=5))
def test_deny_wins_over_ask_and_ask_over_allow(opinions: list[Decision | None]) -> None:
    policies = [lambda question, opinion=opinion: opinion for opinion in opinions]
    decision = asked.answered(decide(policies, question("Bash")))

    rank = [type(None), Allow, Ask, Deny]
    strongest = max((rank.index(type(opinion)) for opinion in opinions), default=0)
    assert type(decision) is rank[strongest]


@requirement("permission.fails-closed")
@pytest.mark.anyio
async def test_a_policy_that_gives_no_decision_counts_as_a_refusal() -> None:
    decision = await decide([lambda question: Allow(), lambda question: cast("Decision", True)], question("Bash"))

    assert isinstance(decision, Deny)
    assert "not bool" in str(decision.reason)


@requirement("permission.rules")
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
def test_an_allow_rule_grants_only_what_cannot_hide_more(rule: str, command: str, allowed: bool) -> None:
    decision = Rules(allow=[rule])(question("Bash", command=command))

    assert isinstance(decision, Allow) is allowed


@requirement("permission.rules")
def test_deny_rules_win_over_ask_rules_and_those_over_allow_rules() -> None:
    rules = Rules(allow=["Bash"], ask=["Bash(git *)"], deny=["Bash(git push *)"])

    assert isinstance(rules(question("Bash", command="ls")), Allow)
    assert isinstance(rules(question("Bash", command="git log")), Ask)
    assert isinstance(rules(question("Bash", command="git push origin")), Deny)
    assert rules(question("Read", file_path="x")) is None


@requirement("permission.rules")
@pytest.mark.parametrize("rule", ["mcp__db", "mcp__db__*", "mcp__db__query"])
def test_rules_name_servers_and_their_tools(rule: str) -> None:
    rules = Rules(deny=[rule])

    assert isinstance(rules(question("mcp__db__query")), Deny)
    assert rules(question("mcp__dbx__query")) is None


@requirement("permission.alias")
@pytest.mark.parametrize("rule", ["Agent", "Task"])
def test_no_other_name_of_a_tool_leads_around_a_rule(rule: str) -> None:
    assert isinstance(Rules(deny=[rule])(question("Task", known_as="Agent")), Deny)


@requirement("permission.rules")
@pytest.mark.parametrize("text", ["", "Bash(", "(x)", "1x", "Bash)"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ToolspanError, match="not a permission rule"):
        Rules(allow=[text])


SAID: dict[Mode, dict[str, type]] = {
    "default": {"Read /p/x": Allow, "Read /q/x": Ask, "Edit /p/x": Ask},
    "acceptEdits": {"Edit /p/x": Allow, "Edit /p/../q": Ask, "Edit ../../q": Ask},
    "plan": {"Edit /p/x": Ask, "Read /p/x": Allow},
    "dontAsk": {"Edit /p/x": Deny, "Read /p/x": Allow},
    "bypassPermissions": {"Edit /q/x": Allow},
}


@requirement("permission.modes")
@pytest.mark.parametrize(
    ("mode", "call", "decision"), [(mode, call, said) for mode, calls in SAID.items() for call, said in calls.items()]
)
def test_what_a_mode_says_when_nobody_else_does(mode: Mode, call: str, decision: type) -> None:
    tool, path = call.split()

    assert type(mode_policy(mode)(question(tool, file_path=path))) is decision


@requirement("permission.modes")
@pytest.mark.parametrize("mode", MODES)
def test_a_command_that_changes_nothing_needs_no_question(mode: Mode) -> None:
    decision = mode_policy(mode)(question("Bash", command="ls", read_only=True))

    assert isinstance(decision, Allow)
