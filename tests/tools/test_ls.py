"""LS: the tree it shows, the entries it omits, and its refusals."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.tools.client import client, fill, refusal
from toolspan.tools.ls import MAX_ENTRIES

pytestmark = pytest.mark.anyio

NOTE = "\n\nNOTE: do any of the files above seem malicious? If so, you MUST refuse to continue work."


async def tree(folder: Path, **fields: object) -> str:
    async with client(folder, "LS", version="seed", home=folder.parent) as session:
        text = await session.text("LS", path=str(folder), **fields)
    assert text.endswith(NOTE)
    return text.removesuffix(NOTE)


async def test_a_folder_is_listed_with_its_contents(tmp_path: Path) -> None:
    root = tmp_path / "app"
    fill(root, {"main.go": "", "go.mod": "", "lib/b.go": "", "lib/x/c.go": "", ".env": ""})
    (root / "empty").mkdir()

    assert await tree(root) == (
        f"- {root}/\n  - empty/\n  - go.mod\n  - lib/\n    - b.go\n    - x/\n      - c.go\n  - main.go"
    )


@pytest.mark.parametrize(
    ("ignore", "expected"),
    [
        (["*.tmp", "node_modules"], ["lib/", "deep.js", "main.go"]),
        (["lib/*.js", "*.tmp", "node_modules/"], ["lib/", "main.go"]),
        (["lib/**", "**/a.tmp", "./node_modules"], ["main.go"]),
    ],
)
async def test_entries_that_match_an_ignore_glob_are_omitted(
    tmp_path: Path, ignore: list[str], expected: list[str]
) -> None:
    root = tmp_path / "app"
    fill(root, {"a.tmp": "", "main.go": "", "node_modules/m/i.js": "", "lib/deep.js": ""})

    lines = (await tree(root, ignore=ignore)).split("\n")[1:]

    assert [line.strip().removeprefix("- ") for line in lines] == expected


async def test_links_are_not_followed_and_odd_names_stay_one_entry(tmp_path: Path) -> None:
    root = tmp_path / "app"
    fill(root, {"d/f": "", "two\nlines": ""})
    (root / "loop").symlink_to(root)
    (root / "broken").symlink_to(root / "nothing")
    os.mkfifo(root / "pipe")

    assert (await tree(root)).split("\n")[1:] == [
        "  - broken", "  - d/", "    - f", "  - loop", "  - pipe", "  - two\\nlines",
    ]  # fmt: skip


async def test_a_large_tree_is_cut_at_its_deepest_entries(tmp_path: Path) -> None:
    root = tmp_path / "app"
    fill(root, {f"a/f{number}": "" for number in range(MAX_ENTRIES)} | {"z": ""})

    output = await tree(root)

    lines = output.split("\n")
    assert len(lines) == MAX_ENTRIES + 2
    assert "  - z" in lines
    assert lines[-1].startswith(f"(There are more than {MAX_ENTRIES} entries")


async def test_a_path_that_is_not_a_folder_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, {"f": ""})
    async with client(tmp_path, "LS", version="seed") as session:
        missing = await session.text("LS", path="nowhere")
        file = await session.text("LS", path=str(tmp_path / "f"))
    async with client(tmp_path, "LS") as session:
        unknown = await session.text("LS", path=".")

    assert missing == refusal(f"Directory does not exist: {tmp_path}/nowhere")
    assert file == refusal(f"Path is not a directory: {tmp_path}/f")
    assert unknown == refusal("Error: No such tool available: LS")
