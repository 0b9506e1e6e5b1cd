"""File tools never follow a folder that a background command replaces with a link after the permission check."""

from __future__ import annotations

import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from toolspan import Permissions, Sandbox, Session
from toolspan.runtime.profiles import profile
from toolspan.session import SingleCallRunner
from toolspan.tools import bash_tool, glob_tool, grep_tool, ls_tool, read_tool

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bubblewrap")]

ATTEMPTS = 150
SWAP = """
import ctypes, os
exchange = lambda: libc.renameat2(-100, b"sub", -100, b"link", 2)
libc = ctypes.CDLL(None, use_errno=True)
if exchange():
    raise OSError(ctypes.get_errno(), "renameat2")
open("swapping", "w").close()
while not os.path.exists("stop"):
    exchange()
"""


@asynccontextmanager
async def swap_folders(folder: Path) -> AsyncIterator[SingleCallRunner]:
    """Run calls while a command exchanges `sub` with a link to the folder `outside`."""
    outside = folder.parent / "outside"
    for place, text in ((folder / "sub", "project"), (outside, "secret")):
        place.mkdir()
        (place / "a.txt").write_text(f"text of the {text}\n")
        (place / f"name-in-{text}.txt").touch()
    (folder / "link").symlink_to("../outside")
    (folder / "swap.py").write_text(SWAP)
    tools = [make(profile("2.1.327")) for make in (bash_tool, glob_tool, grep_tool, ls_tool, read_tool)]
    async with Session(
        cwd=folder, tools=tools, sandbox=Sandbox(), permissions=Permissions(), transcript=None
    ) as session:
        runner = SingleCallRunner(session)
        python = shlex.quote(sys.executable)
        await runner.run_call("Bash", {"command": f"{python} swap.py", "run_in_background": True})
        started = await runner.run_call("Bash", {"command": "until [ -e swapping ]; do sleep 0.01; done"})
        assert started.finished.span.state == "succeeded"
        yield runner
        (folder / "stop").touch()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Read", {"file_path": "{folder}/sub/a.txt"}),
        ("Grep", {"pattern": "text", "path": "{folder}/sub", "output_mode": "content"}),
        ("Grep", {"pattern": "text", "output_mode": "content"}),
        ("Glob", {"pattern": "*.txt", "path": "{folder}/sub"}),
        ("LS", {"path": "{folder}/sub"}),
    ],
    ids=["read", "grep-folder", "grep-project", "glob", "ls"],
)
async def test_folder_swapped_with_a_link_is_never_followed(folder: Path, tool: str, arguments: dict[str, str]) -> None:
    call = {name: value.format(folder=folder) for name, value in arguments.items()}
    async with swap_folders(folder) as runner:
        texts = [str((await runner.run_call(tool, call)).finished.content) for _ in range(ATTEMPTS)]

    assert not [text for text in texts if "secret" in text]
    assert [text for text in texts if "project" in text]


async def test_ignore_files_above_the_searched_folder_still_apply(folder: Path) -> None:
    (folder / ".git" / "info").mkdir(parents=True)
    (folder / ".git" / "info" / "exclude").write_text("excluded.txt\n")
    (folder / ".gitignore").write_text("ignored.txt\n")
    (folder / ".ignore").symlink_to(".gitignore")  # not followed
    (folder / "sub").mkdir()
    for name in ("ignored.txt", "excluded.txt", "found.txt"):
        (folder / "sub" / name).write_text("needle\n")
    tools = [grep_tool(profile("2.1.327"))]
    async with Session(
        cwd=folder, tools=tools, sandbox=Sandbox(), permissions=Permissions(), transcript=None
    ) as session:
        call = {"pattern": "needle", "path": str(folder / "sub")}
        result = await SingleCallRunner(session).run_call("Grep", call)

    assert result.finished.content == "Found 1 file\nsub/found.txt"
