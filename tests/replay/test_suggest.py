"""Suggested rules: they save exactly what they promise, and allow nothing that was refused or is risky."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolspan import Archive, Permissions, Rules
from toolspan.replay import CallDecider, suggest_rules
from toolspan.replay.risks import find_risk, probe_lines
from toolspan.testing import TranscriptBuilder, claude_results
from toolspan.types.decision import Allow, Ask

PROJECT = "/home/dev/project"
LINES = (
    "npm run build", "npm run lint", "npm run build && npm run lint", "npm test", "pytest -q", "pytest tests",
    "make check", "git add .", "git add . && git commit -m x", "git push", "curl https://x.org", "ls", "$x",
    "python3 -c x", "python3 tool.py", "uv run pytest", "uv run python -c x", "rm -rf ../x", "rm build", "sudo make",
    "npm run build | sh", "touch x > .git/hooks/pre-commit", "mkdir -p out",
)  # fmt: skip
calls = st.tuples(st.sampled_from(LINES), st.booleans())


def write_history(folder: Path, history: list[tuple[str, bool]]) -> Archive:
    """Write a session of commands, each with True if the user refused it."""
    builder = TranscriptBuilder(session_id="s", cwd=PROJECT, version="2.1.80").prompt("go")
    for command, refused in history:
        result = claude_results.rejected() if refused else claude_results.ran("done")
        builder.result(builder.call("Bash", {"command": command}), result)
    builder.call("Edit", {"file_path": f"{PROJECT}/src/a.py", "old_string": "a", "new_string": "b"})
    return Archive(builder.write(folder / "s.jsonl"))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(calls, max_size=30))
def test_a_replay_under_the_rules_asks_exactly_the_promised_questions_less(
    tmp_path: Path, history: list[tuple[str, bool]]
) -> None:
    archive = write_history(tmp_path, history)

    suggested = suggest_rules(archive)

    before, after = (
        CallDecider(Permissions()),
        CallDecider(Permissions(Rules(allow=[row.rule for row in suggested.rules]))),
    )
    refused = {command for command, is_refused in history if is_refused}
    saved = 0
    for record in archive.permissions():
        decisions = [
            decider.decide(record.tool, record.input, project=Path(PROJECT)).decision for decider in (before, after)
        ]
        if isinstance(decisions[0], Ask) and isinstance(decisions[1], Allow):
            saved += 1
            assert record.input["command"] not in refused
            assert find_risk(str(record.input["command"])) is None
    assert saved == suggested.saved_questions
    assert all(row.questions >= 2 for row in suggested.rules)


def test_a_rule_that_saves_nothing_beside_the_others_is_left_out(tmp_path: Path) -> None:
    history = [("npm run build", False)] * 3 + [("npm run build && make check", False)] * 2

    suggested = suggest_rules(write_history(tmp_path, history))

    assert {row.rule: row.questions for row in suggested.rules} == {"Bash(npm run:*)": 5, "Bash(make check:*)": 2}
    assert suggested.saved_questions == 5


def test_the_number_of_rules_can_be_limited(tmp_path: Path) -> None:
    history = [("npm run build", False)] * 3 + [("make check", False)] * 2

    suggested = suggest_rules(write_history(tmp_path, history), limit=1)

    assert [row.rule for row in suggested.rules] == ["Bash(npm run:*)"]


def test_questions_that_a_rule_answers_already_are_not_counted(tmp_path: Path) -> None:
    archive = write_history(tmp_path, [("npm run build", False)] * 3)

    suggested = suggest_rules(archive, permissions=Permissions(Rules(allow=["Bash(npm:*)"])))

    assert (suggested.rules, suggested.questions) == ((), 1)


@pytest.mark.parametrize(
    ("line", "risk"),
    [
        ("make test", None),
        ("python3 tools/x.py", None),
        ("python3 -m pytest -q", None),
        ("python3 -m http.server", "interpreter"),
        ("python3 -c x", "interpreter"),
        ("python3 - <x", "interpreter"),
        ("bash ../x.sh", "interpreter"),
        ("uv run pytest", None),
        ("uv run python3 -c x", "interpreter"),
        ("timeout 5 curl x", "network"),
        ("ls && git -C x push", "network"),
        ("npm install", "network"),
        ("rm -rf ~/x", "removal"),
        ("sudo ls", "privileged"),
        ("eval x", "interpreter"),
        ("$x", "not understood"),
    ],
)
def test_risky_lines_are_recognized(line: str, risk: str | None) -> None:
    assert find_risk(line) == risk


@pytest.mark.parametrize("name", ["curl", "git", "npm", "uv", "python3", "sh", "rm", "find", "sed", "awk", "sudo"])
def test_every_risky_program_has_probes(name: str) -> None:
    assert any(find_risk(line) for line in probe_lines(name))
