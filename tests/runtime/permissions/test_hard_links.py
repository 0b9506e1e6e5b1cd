"""Denied files under other names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.runtime.permissions.asked import decided, line, question
from toolspan.runtime.permissions import Permissions, Rules
from toolspan.types.decision import Allow, Deny


@requirement("permission.traversal")
@pytest.mark.parametrize("command", ["cat hard", "cat HARD/../.ENV", "head -n 1 .ENV", "grep x hard"])
def test_a_denied_file_is_denied_under_each_of_its_names(tmp_path: Path, command: str) -> None:
    (tmp_path / ".env").write_text("x\n", encoding="utf-8")
    (tmp_path / "hard").hardlink_to(tmp_path / ".env")
    permissions = Permissions(Rules(allow=["Bash"], deny=["Read(./.env)"]))

    assert isinstance(decided(permissions, line(command, tmp_path)), Deny)
    assert isinstance(decided(permissions, question("Read", tmp_path, file_path=str(tmp_path / "hard"))), Deny)
    assert isinstance(decided(permissions, line("cat other", tmp_path)), Allow)


@requirement("permission.hostile-lines")
@pytest.mark.parametrize("command", ["touch x", "git push", "echo x > y", "npm test"])
def test_rules_do_not_extend_what_plan_mode_may_do(tmp_path: Path, command: str) -> None:
    permissions = Permissions(Rules(allow=["Bash", "Edit", "Write"]), mode="plan")

    assert not isinstance(decided(permissions, line(command, tmp_path)), Allow)
    assert isinstance(decided(permissions, line("ls", tmp_path)), Allow)
