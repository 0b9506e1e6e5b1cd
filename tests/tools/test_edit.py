"""Edit: replacements, the bytes around them, and refusals."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.requirement import requirement
from tests.tools.files import CURRENT, ToolCaller, failed, kind, record, refusal
from tests.tools.test_write import STALE, UNREAD, full_disk
from toolspan.runtime.profiles import profile
from toolspan.runtime.schema.issues import Valid
from toolspan.tools import edit_tool, read_tool, write_tool

pytestmark = pytest.mark.anyio

SNIPPET = "The file {} has been updated. Here's the result of running `cat -n` on a snippet of the edited file:\n{}"


async def session_after_read(folder: Path, data: bytes, version: str = "2.1.327") -> tuple[ToolCaller, Path]:
    """Write a file and read it; return the session and the path."""
    path = folder / "a.txt"
    path.write_bytes(data)
    session = ToolCaller(folder, version)
    await session.read(path)
    return session, path


@requirement("edit-tool.replaces")
async def test_one_text_is_replaced_and_recorded_as_a_patch(tmp_path: Path) -> None:
    session, path = await session_after_read(tmp_path, b"a\nb\nc\n")

    finished = await session.edit(path, "b", "B")

    assert path.read_bytes() == b"a\nB\nc\n"
    assert finished.content == f"The file {path} has been updated successfully.{CURRENT}"
    hunk = {"oldStart": 1, "oldLines": 3, "newStart": 1, "newLines": 3}
    assert record(finished) == {
        "filePath": str(path),
        "oldString": "b",
        "newString": "B",
        "originalFile": "a\nb\nc\n",
        "structuredPatch": [{**hunk, "lines": [" a", "-b", "+B", " c"]}],
        "userModified": False,
        "replaceAll": False,
    }


@requirement("edit-tool.replaces")
@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("2.0.65", "All occurrences of 'x' were successfully replaced with 'y'."),
        ("2.1.327", "All occurrences were successfully replaced." + CURRENT),
    ],
)
async def test_all_occurrences_are_replaced_on_request(tmp_path: Path, version: str, text: str) -> None:
    session, path = await session_after_read(tmp_path, b"x x\nx\n", version)

    finished = await session.edit(path, "x", "y", replace_all=True)

    assert path.read_bytes() == b"y y\ny\n"
    assert finished.content == f"The file {path} has been updated. {text}"


@requirement("edit-tool.replaces")
async def test_the_oldest_client_shows_the_new_lines_with_four_around(tmp_path: Path) -> None:
    lines = "".join(f"l{number}\n" for number in range(1, 21))
    session, path = await session_after_read(tmp_path, lines.encode(), "2.0.65")

    finished = await session.edit(path, "l10\n", "x\ny\n")

    snippet = [f"l{number}" for number in range(6, 10)] + ["x", "y"]
    snippet += [f"l{number}" for number in range(11, 16)]
    text = "\n".join(f"{number:>6}→{line}" for number, line in enumerate(snippet, 6))
    assert finished.content == SNIPPET.format(path, text)


@requirement("edit-tool.creates")
async def test_empty_old_text_creates_a_file(tmp_path: Path) -> None:
    session = ToolCaller(tmp_path)

    finished = await session.edit("d/new.txt", "", "a\n")
    second = await session.edit("d/new.txt", "", "b\n")

    assert (tmp_path / "d" / "new.txt").read_bytes() == b"a\n"
    assert record(finished)["originalFile"] == ""
    assert record(finished)["structuredPatch"] == [
        {"oldStart": 1, "oldLines": 0, "newStart": 1, "newLines": 1, "lines": ["+a"]}
    ]
    assert second.content == refusal("Cannot create new file - file already exists.")


@requirement("edit-tool.creates")
async def test_an_empty_old_text_fills_an_empty_file(tmp_path: Path) -> None:
    session, path = await session_after_read(tmp_path, b"")

    await session.edit(path, "", "a\n")

    assert path.read_bytes() == b"a\n"


@requirement("edit-tool.refuses")
@pytest.mark.parametrize(
    ("old", "new", "error", "text"),
    [
        ("nope", "x", "no_match", "String to replace not found in file.\nString: nope"),
        ("b", "x", "ambiguous_match",
         "Found 2 matches of the string to replace, but replace_all is false. To replace all"
         " occurrences, set replace_all to true. To replace only one occurrence, please provide"
         " more context to uniquely identify the instance.\nString: b"),
        ("a", "a", "no_change",
         "No changes to make: old_string and new_string are exactly the same."),
        ("a", "a  ", "no_change",
         "No changes to make: old_string and new_string are exactly the same."),
    ],
)  # fmt: skip
async def test_an_ambiguous_edit_changes_nothing(tmp_path: Path, old: str, new: str, error: str, text: str) -> None:
    session, path = await session_after_read(tmp_path, b"a b b\n")
    before = path.stat()

    finished = await session.edit(path, old, new)

    assert finished.content == refusal(text)
    assert record(finished) == f"Error: {text}"
    assert kind(finished) == error
    assert path.read_bytes() == b"a b b\n"
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.stat().st_ino == before.st_ino


@requirement("edit-tool.refuses")
async def test_uneditable_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "nb.ipynb").write_text("{}", encoding="utf-8")
    os.mkfifo(tmp_path / "pipe")
    session = ToolCaller(tmp_path)

    notebook = await session.edit("nb.ipynb", "a", "b")
    missing = await session.edit("none.txt", "a", "b")
    folder = await session.edit(tmp_path, "a", "b")
    pipe = await session.edit("pipe", "a", "b")

    assert notebook.content == refusal("File is a Jupyter Notebook. Use the NotebookEdit to edit this file.")
    assert missing.content == refusal(f"File does not exist. Note: your current working directory is {tmp_path}.")
    assert kind(folder) == "is_directory"
    assert failed(pipe)


@requirement("edit-tool.read-first")
async def test_an_unread_file_is_kept_if_the_client_and_model_require_it(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a")

    old = await ToolCaller(tmp_path, "2.0.65").edit(path, "a", "b")
    careful = await ToolCaller(tmp_path, model="claude-sonnet-4-5").edit(path, "a", "b")
    free = await ToolCaller(tmp_path).edit(path, "a", "b")

    assert old.content == careful.content == UNREAD
    assert free.content == f"The file {path} has been updated successfully."
    assert record(free)["contentNotInModelContext"] is True


@requirement("edit-tool.read-first")
async def test_a_partial_read_allows_edits_but_is_not_a_full_view(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\nb\nc\n")
    old, new = ToolCaller(tmp_path, "2.0.65"), ToolCaller(tmp_path, model="claude-sonnet-4-5")
    await old.read(path, limit=1)
    await new.read(path, limit=1)

    new_edit = await new.edit(path, "c", "C")
    await old.read(path, limit=1)
    old_edit = await old.edit(path, "b", "B")

    assert new_edit.content == f"The file {path} has been updated successfully."
    assert record(new_edit)["contentNotInModelContext"] is True
    assert str(old_edit.content).startswith(f"The file {path} has been updated. Here's the result")


@requirement("edit-tool.read-first")
async def test_a_read_through_a_link_is_a_read_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a")
    (tmp_path / "link").symlink_to(path)
    session = ToolCaller(tmp_path, "2.1.327")
    await session.read("link")

    assert not failed(await session.edit(path, "a", "b"))
    assert not failed(await session.edit("link", "b", "c"))
    assert (tmp_path / "link").is_symlink()
    assert path.read_bytes() == b"c"


@requirement("edit-tool.stale")
async def test_a_changed_file_is_refused_or_edited_in_its_current_state(tmp_path: Path) -> None:
    old, path = await session_after_read(tmp_path, b"a\n", "2.0.65")
    new = ToolCaller(tmp_path)
    await new.read(path)
    path.write_bytes(b"a\nmore\n")

    refused = await old.edit(path, "a", "b")
    recovered = await new.edit(path, "a", "b")

    assert refused.content == STALE
    assert kind(refused) == "stale_file"
    assert record(recovered)["staleRecovered"] is True
    assert record(recovered)["contentNotInModelContext"] is True
    assert path.read_bytes() == b"b\nmore\n"


@requirement("edit-tool.stale")
async def test_edits_of_one_message_run_one_after_the_other(tmp_path: Path) -> None:
    session, path = await session_after_read(tmp_path, b"0\n", "2.0.65")
    edits = [{"file_path": str(path), "old_string": str(number), "new_string": str(number + 1)} for number in range(9)]

    result = await session.calls(*(session.block("Edit", edit) for edit in edits))

    assert not any(failed(result) for result in result)
    assert path.read_bytes() == b"9\n"


def test_calls_lock_the_canonical_path_of_their_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.touch()
    (tmp_path / "link").symlink_to(path)
    spellings = (path, tmp_path / "link", f"{tmp_path}/./b/../a.txt")

    for make in (read_tool, write_tool, edit_tool):
        paths = make(profile()).paths
        assert paths is not None
        named = {paths({"file_path": str(spelling)}) for spelling in spellings}
        assert named == {frozenset({os.path.realpath(path)})}
        with pytest.raises(ValueError, match=r"a\.txt"):
            paths({"file_path": "a.txt"})


@requirement("edit-tool.quotes")
@pytest.mark.parametrize(("version", "text"), [("2.0.65", "say \"bye\" or 'so'\n"), ("2.1.327", "say “bye” or ‘so’\n")])
async def test_straight_quotes_match_curly_ones(tmp_path: Path, version: str, text: str) -> None:
    session, path = await session_after_read(tmp_path, "say “hello” or ‘hi’\n".encode(), version)

    finished = await session.edit(path, "\"hello\" or 'hi'", "\"bye\" or 'so'")

    assert path.read_text(encoding="utf-8") == text
    assert record(finished)["oldString"] == "“hello” or ‘hi’"
    assert record(finished)["newString"] == "\"bye\" or 'so'"


@requirement("edit-tool.trims")
def test_trailing_blanks_of_new_lines_are_dropped_and_not_recorded() -> None:
    tool = edit_tool(profile())
    tool_input = {"file_path": "a.py", "old_string": "x ", "new_string": "a \t\nb  \n c "}

    code = tool.parse(tool_input)
    prose = tool.parse({**tool_input, "file_path": "a.md"})

    assert isinstance(code, Valid)
    assert isinstance(prose, Valid)
    assert list(code.recorded.items()) == [
        ("replace_all", False), ("file_path", "a.py"), ("old_string", "x "),
        ("new_string", "a\nb\n c"),
    ]  # fmt: skip
    assert prose.recorded["new_string"] == tool_input["new_string"]


@pytest.mark.parametrize(
    ("data", "old", "new", "expected"),
    [
        (b"a\r\nb\r\n", "a\nb", "A\nx\nB", b"A\r\nx\r\nB\r\n"),
        (b"\xef\xbb\xbfa\n", "a", "b", b"\xef\xbb\xbfb\n"),
        ("\ufeffa\r\n\U0001f600".encode("utf-16-le"), "a", "ü",
         "\ufeffü\r\n\U0001f600".encode("utf-16-le")),
        (b"ab\rc", "b", "x", b"ax\rc"),
        (b"a\r\nb\r\nc", "b", "", b"a\r\nc"),
    ],
)  # fmt: skip
async def test_byte_order_mark_and_line_ends_are_kept(
    tmp_path: Path, data: bytes, old: str, new: str, expected: bytes
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    path.chmod(0o741)

    finished = await ToolCaller(tmp_path).edit(path, old, new)

    assert not failed(finished), finished.content
    assert path.read_bytes() == expected
    assert stat.S_IMODE(path.stat().st_mode) == 0o741
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("data", "new", "expected"),
    [
        (b"a\r\nb\r\nc\n", "B\nX", b"a\r\nB\r\nX\r\nc\r\n"),
        (b"a\r\nb\nc", "B", b"a\nB\nc"),
        (b"a\nb\r\nc\n", "B\r\nX", b"a\nB\r\nX\nc\n"),
        (b"x\n" * 2048 + b"b\r\n" + b"c\r\n" * 3000, "B", b"x\n" * 2048 + b"B\n" + b"c\n" * 3000),
    ],
    ids=["most are crlf", "a tie", "new text", "only the start counts"],
)
async def test_edit_gives_all_lines_the_most_common_ending(
    tmp_path: Path, data: bytes, new: str, expected: bytes
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(data)

    finished = await ToolCaller(tmp_path).edit(path, "b", new)

    assert not failed(finished), finished.content
    assert path.read_bytes() == expected


async def test_the_seed_profile_keeps_the_line_endings_of_other_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\nb\r\nc\n")
    session = ToolCaller(tmp_path, "seed")
    await session.read(path)

    await session.edit(path, "b", "B\nX")

    assert path.read_bytes() == b"a\nB\nX\r\nc\n"


async def test_a_file_with_only_a_byte_order_mark_counts_as_empty(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf\n")

    finished = await ToolCaller(tmp_path).edit(path, "", "x")

    assert not failed(finished), finished.content
    assert path.read_bytes() == b"\xef\xbb\xbfx"


@requirement("edit-tool.read-first")
async def test_2_0_65_remembers_ten_files_and_looks_them_up_between_turns(tmp_path: Path) -> None:
    paths = [tmp_path / f"f{number:02}.txt" for number in range(14)]
    for path in paths:
        path.write_text("x\n", encoding="utf-8")
    one_by_one, at_once = ToolCaller(tmp_path, "2.0.65"), ToolCaller(tmp_path, "2.0.65")

    for path in paths:
        await one_by_one.read(path)
    await at_once.calls(*(at_once.block("Read", {"file_path": str(path)}) for path in paths))

    async def unread(session: ToolCaller) -> list[int]:
        edits = [session.block("Edit", {"file_path": str(path), "old_string": "?", "new_string": ""}) for path in paths]
        results = await session.calls(*edits)
        return [at for at, result in enumerate(results) if "has not been read yet" in str(result.content)]

    assert await unread(one_by_one) == [9, 10, 11, 12]
    assert len(await unread(at_once)) == 4


@requirement("edit-tool.read-first")
async def test_2_0_65_remembers_a_file_by_the_spelling_of_its_path(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x\n", encoding="utf-8")
    (tmp_path / "link").symlink_to(path)
    session = ToolCaller(tmp_path, "2.0.65")
    await session.read("a.txt")

    for other in (f"{tmp_path}/./a.txt", f"{tmp_path}//a.txt", tmp_path / "link"):
        assert "has not been read yet" in str((await session.edit(other, "x", "y")).content)
    assert not failed(await session.edit(path, "x", "y"))
    assert not failed(await session.write(f"{tmp_path}/./a.txt", "z\n"))


@pytest.mark.parametrize(
    "data", [b"caf\xe9 a\n", b"a\0b\n", "\ufeffa\n".encode("utf-16-be")], ids=["latin-1", "null", "big-endian"]
)
async def test_a_file_whose_encoding_would_change_is_not_changed(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(data)

    finished = await ToolCaller(tmp_path).edit(path, "a", "b")

    assert "The file was not changed" in str(finished.content)
    assert path.read_bytes() == data


async def test_bytes_that_are_not_text_stay_with_an_older_client(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xff\x80 a \xe9\n")
    session = ToolCaller(tmp_path, version="2.0.65")
    await session.read(path)

    assert not failed(await session.edit(path, "a", "é"))
    assert path.read_bytes() == b"\xff\x80 \xc3\xa9 \xe9\n"


# Mixed line endings are unified, so there are no carriage returns.
_CONTENT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=40).map(str.encode)


@given(
    before=_CONTENT,
    after=_CONTENT,
    new=st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc"]), min_size=1, max_size=10),
)
def test_every_byte_outside_the_replaced_text_stays(before: bytes, after: bytes, new: str) -> None:
    old = "«needle»"
    data = b"." + before + old.encode() + after

    async def edit(folder: Path) -> bytes:
        path = folder / "a.txt"
        path.write_bytes(data)
        assert not failed(await ToolCaller(folder).edit(path, old, new, replace_all=True))
        return path.read_bytes()

    with tempfile.TemporaryDirectory() as folder:
        changed = anyio.run(edit, Path(folder))

    assert changed == data.replace(old.encode(), new.encode())


async def test_an_edit_on_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    session, path = await session_after_read(tmp_path, b"a")

    with full_disk(after=10_000):
        finished = await session.edit(path, "a", "x" * 100_000)
    retried = await session.edit(path, "a", "b")

    assert failed(finished)
    assert path.read_bytes() == b"b"
    assert not failed(retried)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@requirement("edit-tool.refuses")
async def test_broken_utf_16_is_reported_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xff\xfea\0b")

    finished = await ToolCaller(tmp_path).edit(path, "a", "b")

    assert "UTF-16" in str(finished.content)
    assert path.read_bytes() == b"\xff\xfea\0b"


async def test_2_0_65_numbers_the_lines_of_a_new_blank_file(tmp_path: Path) -> None:
    result = await ToolCaller(tmp_path, "2.0.65").edit(tmp_path / "a.txt", "", "\n\n")

    assert str(result.content).endswith(":\n     1→\n     2→\n     3→")


@requirement("edit-tool.read-first")
async def test_2_0_65_fills_a_blank_file_only_if_it_was_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n", encoding="utf-8")
    session = ToolCaller(tmp_path, "2.0.65")

    assert str((await session.edit(path, "", "x")).content).startswith("File has been unexpectedly modified.")
    await session.read(path)
    assert not failed(await session.edit(path, "", "x"))


async def test_a_name_that_is_too_long_is_reported_with_the_system_error(tmp_path: Path) -> None:
    finished = await ToolCaller(tmp_path).edit(tmp_path / ("x" * 300), "a", "b")

    assert "Error calling tool (Edit): ENAMETOOLONG: name too long, stat" in str(finished.content)
