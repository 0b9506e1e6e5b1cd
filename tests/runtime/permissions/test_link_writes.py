"""Changes of files that are named by a symbolic link."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.runtime.permissions.asked import question
from toolspan.runtime.permissions.modes import guard_policy
from toolspan.runtime.profiles import profile
from toolspan.types.decision import Deny


@requirement("permission.traversal")
@pytest.mark.parametrize("tool", ["Edit", "Write"])
def test_a_new_client_refuses_to_change_a_file_through_a_link(tmp_path: Path, tool: str) -> None:
    (tmp_path / "a.txt").write_text("x\n", encoding="utf-8")
    (tmp_path / "link").symlink_to("a.txt")
    check = guard_policy("bypassPermissions", profile("2.1.325").refusals)

    refused = check(question(tool, tmp_path, file_path=str(tmp_path / "link")))

    assert isinstance(refused, Deny)
    assert f"Write to the link's target path instead: {tmp_path}/a.txt." in str(refused.reason)
    assert check(question(tool, tmp_path, file_path=str(tmp_path / "a.txt"))) is None
