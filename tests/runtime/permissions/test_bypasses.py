"""Denied programs are found wherever they hide; harmless lines are allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.runtime.permissions.bypasses import FREE, HIDDEN, MORE_THAN_ALLOWED
from tests.runtime.permissions.requests import bash_request, decide_request
from toolspan.runtime.permissions import Permissions, Rules
from toolspan.types.decision import Allow, Ask, Deny

AGAINST_RM = Permissions(Rules(allow=["Bash"], deny=["Bash(rm:*)"]), "bypassPermissions")
SOME = Permissions(Rules(allow=["Bash(echo:*)", "Bash(cat:*)", "Bash(npm run:*)", "Bash(git status:*)"]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    for name in ("x", "y", "a", "b"):
        (tmp_path / name).write_text("1\n", encoding="utf-8")
    return tmp_path


@requirement("permission.nothing-hidden")
@pytest.mark.parametrize("command", HIDDEN)
def test_a_denied_program_never_runs_without_a_question(folder: Path, command: str) -> None:
    decision = decide_request(AGAINST_RM, bash_request(command, folder))

    assert isinstance(decision, Deny | Ask)


@requirement("permission.nothing-hidden")
def test_most_hidden_programs_are_denied_and_not_only_asked_about(folder: Path) -> None:
    refused = [
        command for command in HIDDEN if isinstance(decide_request(AGAINST_RM, bash_request(command, folder)), Deny)
    ]

    assert len(HIDDEN) >= 300
    assert len(refused) > 0.85 * len(HIDDEN)  # the others are asked about


@pytest.mark.parametrize("command", MORE_THAN_ALLOWED)
def test_a_line_that_does_more_than_its_allowed_start_is_asked_about(folder: Path, command: str) -> None:
    assert not isinstance(decide_request(Permissions(), bash_request(command, folder)), Allow)


@pytest.mark.parametrize("command", [line for line in MORE_THAN_ALLOWED if line.startswith("echo")])
def test_a_rule_for_a_program_allows_neither_redirects_nor_other_programs(folder: Path, command: str) -> None:
    assert not isinstance(decide_request(SOME, bash_request(command, folder)), Allow)


@requirement("permission.read-only")
@pytest.mark.parametrize("command", FREE)
def test_read_only_commands_in_the_session_folders_are_allowed(folder: Path, command: str) -> None:
    assert isinstance(decide_request(Permissions(), bash_request(command, folder)), Allow)
