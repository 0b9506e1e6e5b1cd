"""Files that a simple command has shown count as read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.tools.toolbox import Toolbox, open_toolbox
from toolspan.runtime.profiles import profile
from toolspan.tools import bash_tool, edit_tool
from toolspan.tools.files.shell_views import find_shell_views


@requirement("edit-tool.read-first")
@pytest.mark.parametrize(
    ("command", "views"),
    [
        ("cat a", [("a", None)]),
        ("cat -n './a b'", [("./a b", None)]),
        ("echo hi && cat a; cat b", [("a", None), ("b", None)]),
        ("head a", [("a", 10)]),
        ("head -n 5 a", [("a", 5)]),
        ("sed -n '1,20p' a", [("a", 20)]),
        ("sed -n 2p a", []),
        ("cat a b", []),
        ("cat a && ls", []),
        ("cat a | head", []),
        ("cat a 2>&1", []),
        ("cat $A", []),
        ("cat *", []),
        ("cat -A a", []),
        ("cat 'a", []),
        ('echo ";" cat a', []),
    ],
)
def test_only_lines_of_plain_views_show_files(command: str, views: list[tuple[str, int | None]]) -> None:
    assert find_shell_views(command) == views


@pytest.mark.anyio
@requirement("edit-tool.read-first")
@pytest.mark.parametrize(("command", "seen"), [("cat a.txt", True), ("head -n 2 a.txt", False), ("wc a.txt", False)])
async def test_an_edit_notes_whether_the_file_was_seen(tmp_path: Path, command: str, *, seen: bool) -> None:
    client = profile("2.1.327")
    async with open_toolbox(Toolbox(tmp_path, [bash_tool(client), edit_tool(client)])) as toolbox:
        (toolbox.project / "a.txt").write_text("one\ntwo\n", encoding="utf-8")

        await toolbox.call("Bash", command=command)
        edited = await toolbox.call("Edit", file_path="a.txt", old_string="two", new_string="2")

    assert isinstance(edited.structured, dict)
    assert ("contentNotInModelContext" not in edited.structured) is seen
