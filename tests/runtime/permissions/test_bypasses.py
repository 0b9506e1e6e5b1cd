"""Nothing runs unseen: what rules forbid is found wherever it hides, and free stays free."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.runtime.permissions.asked import decided, line
from tests.runtime.permissions.bypasses import FREE, HIDDEN, MORE_THAN_ALLOWED
from toolspan.runtime.permissions import Permissions, Rules
from toolspan.types.decision import Allow, Ask, Deny

AGAINST_RM = Permissions(Rules(allow=["Bash"], deny=["Bash(rm:*)"]), "bypassPermissions")
SOME = Permissions(Rules(allow=["Bash(echo:*)", "Bash(cat:*)", "Bash(npm run:*)", "Bash(git status:*)"]))
EVEN_THEN = ("echo", "cat", "git status")
"""What `SOME` allows: lines that begin so are judged by what else they do."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    for name in ("x", "y", "a", "b"):
        (tmp_path / name).write_text("1\n", encoding="utf-8")
    return tmp_path


@requirement("permission.nothing-hidden")
@pytest.mark.parametrize("command", HIDDEN)
def test_a_forbidden_program_is_never_run_in_silence(folder: Path, command: str) -> None:
    decision = decided(AGAINST_RM, line(command, folder))

    assert isinstance(decision, Deny | Ask)


@requirement("permission.nothing-hidden")
def test_most_of_them_are_refused_at_once_and_not_only_asked_about(folder: Path) -> None:
    refused = [command for command in HIDDEN if isinstance(decided(AGAINST_RM, line(command, folder)), Deny)]

    assert len(HIDDEN) >= 300
    assert len(refused) > 0.9 * len(HIDDEN)


@requirement("permission.no-more-than-allowed")
@pytest.mark.parametrize("command", MORE_THAN_ALLOWED)
def test_what_begins_like_something_allowed_and_does_more_is_asked_about(folder: Path, command: str) -> None:
    assert not isinstance(decided(Permissions(), line(command, folder)), Allow)


@requirement("permission.no-more-than-allowed")
@pytest.mark.parametrize("command", [one for one in MORE_THAN_ALLOWED if one.startswith("echo")])
def test_a_rule_for_a_program_allows_neither_redirects_nor_other_programs(folder: Path, command: str) -> None:
    assert not isinstance(decided(SOME, line(command, folder)), Allow)


@requirement("permission.free")
@pytest.mark.parametrize("command", FREE)
def test_looking_around_in_the_session_s_folders_is_free(folder: Path, command: str) -> None:
    assert isinstance(decided(Permissions(), line(command, folder)), Allow)
