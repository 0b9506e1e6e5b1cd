"""MultiEdit: edits in order, all or none, and byte for byte."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.client import Client, client, refusal
from toolspan.types.events import Finished

pytestmark = pytest.mark.anyio

UNREAD = "File has not been read yet. Read it first before writing to it."
NONE_MADE = "\nThe file was not changed, because edit {} of {} failed."


def edit(old: str, new: str, *, everywhere: bool = False) -> dict[str, object]:
    return {"old_string": old, "new_string": new, "replace_all": everywhere}


async def multi_edit(session: Client, path: Path, *edits: dict[str, object]) -> Finished:
    await session.call("Read", file_path=str(path))
    return await session.call("MultiEdit", file_path=str(path), edits=list(edits))


async def test_each_edit_applies_to_the_result_of_the_previous_one(tmp_path: Path) -> None:
    path = tmp_path / "m.go"
    path.write_bytes(b"a() { one() }\r\nb() { one() }\r\n")
    async with client(tmp_path, version="seed") as session:
        finished = await multi_edit(
            session, path,
            edit("a() { one() }\n", "a() { two() }\n"),
            edit("two()", "three()"),
            edit("()", "(x)", everywhere=True),
        )  # fmt: skip

    assert path.read_bytes() == b"a(x) { three(x) }\r\nb(x) { one(x) }\r\n"
    assert str(finished.content).split("\n")[0] == f"Applied 3 edits to {path}:"
    record = finished.structured
    assert isinstance(record, dict)
    assert record["originalFileContents"] == "a() { one() }\nb() { one() }\n"
    assert record["edits"][1] == edit("two()", "three()")
    assert record["structuredPatch"][0]["lines"] == [
        "-a() { one() }", "-b() { one() }", "+a(x) { three(x) }", "+b(x) { one(x) }",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("edits", "text"),
    [
        ([edit("a", "b"), edit("zz", "x")], "old_string not found in file" + NONE_MADE.format(2, 2)),
        ([edit("a", "b"), edit("a", "c")], "old_string not found in file" + NONE_MADE.format(2, 2)),
        ([edit("a", "b"), edit("", "c")], "Cannot create new file - file already exists."),
        ([edit("x", "x")], "No changes to make: old_string and new_string are exactly the same."),
        ([edit("x", "y")], "Found 2 matches of the string to replace, but replace_all is false."),
    ],
)
async def test_one_impossible_edit_prevents_all(tmp_path: Path, edits: list[dict[str, object]], text: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a x x\n")
    async with client(tmp_path, version="seed") as session:
        finished = await multi_edit(session, path, *edits)
        second = await multi_edit(session, path, edit("a", "b"))

    assert str(finished.content).startswith(f"<tool_use_error>{text}")
    assert second.span.state == "succeeded"
    assert path.read_bytes() == b"b x x\n"


async def test_a_file_must_exist_and_be_read_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("a\n", encoding="utf-8")
    (tmp_path / "n.ipynb").write_text("{}", encoding="utf-8")
    edits = [edit("a", "b")]
    async with client(tmp_path, version="seed") as session:
        unread = await session.text("MultiEdit", file_path=str(path), edits=edits)
        await session.call("Read", file_path=str(path))
        path.write_text("a a\n", encoding="utf-8")
        stale = await session.text("MultiEdit", file_path=str(path), edits=edits)
        missing = await session.text("MultiEdit", file_path="none", edits=edits)
        folder = await session.text("MultiEdit", file_path=".", edits=edits)
        notebook = await session.text("MultiEdit", file_path="n.ipynb", edits=edits)
        empty = await session.text("MultiEdit", file_path="f", edits=[])

    assert unread == refusal(UNREAD)
    assert stale.startswith("<tool_use_error>File has been modified since read")
    assert missing == refusal("File does not exist.")
    assert folder == refusal(UNREAD)
    assert notebook.startswith("<tool_use_error>File is a Jupyter Notebook.")
    assert empty.startswith("<tool_use_error>InputValidationError")
    assert path.read_text(encoding="utf-8") == "a a\n"


async def test_empty_first_text_creates_a_file(tmp_path: Path) -> None:
    async with client(tmp_path, version="seed") as session:
        finished = await session.call("MultiEdit", file_path="d/new", edits=[edit("", "a\nb\n"), edit("b", "c")])

    assert (tmp_path / "d" / "new").read_bytes() == b"a\nc\n"
    assert finished.span.state == "succeeded"


@given(
    st.binary(max_size=30).map(lambda data: data.replace(b"\0", b"")),
    st.lists(st.tuples(st.sampled_from(["a", "b", "ab", "\n", "é"]), st.sampled_from(["", "a", "b\n"]))).filter(bool),
    st.booleans(),
)
def test_the_file_has_all_edits_or_none(data: bytes, pairs: list[tuple[str, str]], everywhere: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name).resolve() / "f"
        before = b"ab\r\n" + data.removeprefix(b"\xff\xfe").removeprefix(b"\xfe\xff")
        path.write_bytes(before)
        edits = [edit(old, new, everywhere=everywhere) for old, new in pairs]

        async def run() -> Finished:
            async with client(path.parent, version="seed") as session:
                return await multi_edit(session, path, *edits)

        finished = anyio.run(run)
        after = path.read_bytes()

    if finished.span.state != "succeeded":
        assert after == before
        return
    text = before.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    for old, new in pairs:
        assert old in text
        takes_line_end = not new and not old.endswith("\n") and f"{old}\n" in text
        text = text.replace(f"{old}\n" if takes_line_end else old, new)
    assert after.decode("utf-8", "surrogateescape").replace("\r\n", "\n") == text
