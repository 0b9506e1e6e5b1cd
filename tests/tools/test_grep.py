"""Grep: its results, its limits, and its errors."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.requirement import requirement
from tests.runtime.process.commands import find_survivors_in
from tests.tools.client import client, fill, refusal
from toolspan.runtime.profiles import profile
from toolspan.tools.grep import GrepOptions
from toolspan.tools.ripgrep import RecordSplitter, RipgrepRecord

pytestmark = pytest.mark.anyio

FILES = {"src/a.py": "import os\n# TODO one\nend\n", "src/b.py": "TODO two\nTODO three\n", ".dot/c.md": "todo four\n"}
LINES = {"mode": "content", "numFiles": 0, "filenames": []}


@requirement("grep-tool.files")
async def test_matching_files_are_listed_newest_first(tmp_path: Path) -> None:
    fill(tmp_path, FILES)
    async with client(tmp_path, "Grep") as session:
        finished = await session.call("Grep", pattern="todo", **{"-i": True})
        by_glob = await session.text("Grep", pattern="TODO", glob="a.*,*.md")
        braces = await session.text("Grep", pattern="todo", glob="*.{md,txt},c.* x.py")
        typed = await session.record("Grep", pattern="TODO", type="py")
        none = await session.call("Grep", pattern="nowhere")

    names = [".dot/c.md", "src/b.py", "src/a.py"]
    assert finished.content == "\n".join(("Found 3 files", *names))
    assert finished.structured == {"mode": "files_with_matches", "filenames": names, "numFiles": 3, "totalFiles": 3}
    assert by_glob == "Found 1 file\nsrc/a.py"
    assert braces == "Found 1 file\n.dot/c.md"
    assert typed["filenames"] == ["src/b.py", "src/a.py"]
    assert none.content == "No files found"


@requirement("grep-tool.lines")
async def test_lines_have_names_and_numbers_unless_the_root_is_a_file_or_they_are_off(tmp_path: Path) -> None:
    fill(tmp_path, FILES)
    async with client(tmp_path, "Grep") as session:

        async def lines(**fields: object) -> list[str]:
            text = await session.text("Grep", output_mode="content", **fields)
            return sorted(text.split("\n"))

        assert await lines(pattern="TODO") == ["src/a.py:2:# TODO one", "src/b.py:1:TODO two", "src/b.py:2:TODO three"]
        assert await lines(pattern="one", **{"-n": False}) == ["src/a.py:# TODO one"]
        assert await lines(pattern="one", path="src/a.py") == ["2:# TODO one"]
        assert await lines(pattern="one", path="src/a.py", **{"-n": False}) == ["# TODO one"]
        assert await lines(pattern="T.*o", **{"-o": True}) == ["src/a.py:2:TODO o", "src/b.py:1:TODO two"]
        assert await lines(pattern="os.*one", multiline=True) == ["src/a.py:1:import os", "src/a.py:2:# TODO one"]
        record = await session.record("Grep", pattern="one", output_mode="content")
        assert record == {**LINES, "content": "src/a.py:2:# TODO one", "numLines": 1, "totalLines": 1}


@requirement("grep-tool.sorted")
async def test_lines_and_counts_of_several_files_are_sorted_by_path(tmp_path: Path) -> None:
    names = ["src/z2.py", "src/z10.py", "src/B.py", "README.md", "lib/x/y.py", ".hidden/h.py", "a b.txt"]
    fill(tmp_path, dict.fromkeys(names, "TODO one\nTODO two\n"))
    async with client(tmp_path, "Grep") as session:
        lines = await session.text("Grep", pattern="TODO", output_mode="content")
        some = await session.text("Grep", pattern="TODO", output_mode="content", head_limit=3)
        counts = await session.text("Grep", pattern="TODO", output_mode="count")

    assert [line.split(":")[0] for line in lines.split("\n")] == [name for name in sorted(names) for _ in range(2)]
    assert some.split("\n")[:3] == lines.split("\n")[:3]
    assert [line.split(":")[0] for line in counts.split("\n")[: len(names)]] == sorted(names)


@requirement("grep-tool.lines")
@pytest.mark.parametrize("version", ["2.1.327", "2.0.65"])
async def test_lines_around_a_match_are_marked_and_groups_are_apart(tmp_path: Path, version: str) -> None:
    fill(tmp_path, {"f": "a\nX\nb\n1\n2\nc: d\nX\n"})
    prefix = "" if version == "2.1.327" else f"{tmp_path}/"
    async with client(tmp_path, "Grep", version=version) as session:
        text = await session.text("Grep", pattern="X", output_mode="content", **{"-C": 1})
        plain = await session.text("Grep", pattern="X", output_mode="content", **{"-B": 1, "-n": False})

    assert text.split("\n") == [
        f"{prefix}f-1-a", "f:2:X", f"{prefix}f-3-b", "--", "f-6-c: d", "f:7:X",
    ]  # fmt: skip
    assert plain.split("\n") == [f"{prefix}f-a", "f:X", "--", "f-c: d", "f:X"]


@requirement("grep-tool.counts")
async def test_matches_are_counted_per_file_and_in_total(tmp_path: Path) -> None:
    fill(tmp_path, FILES)
    async with client(tmp_path, "Grep") as session:
        finished = await session.call("Grep", pattern="TODO", output_mode="count")
        single = await session.text("Grep", pattern="one", output_mode="count")
        none = await session.text("Grep", pattern="zzz", output_mode="count")

    counts, output = str(finished.content).split("\n\n")
    assert sorted(counts.split("\n")) == ["src/a.py:1", "src/b.py:2"]
    assert output == "Found 3 total occurrences across 2 files."
    assert single == "src/a.py:1\n\nFound 1 total occurrence across 1 file."
    assert none == "No matches found\n\nFound 0 total occurrences across 0 files."


ROWS = {"rows": "".join(f"row {number}\n" for number in range(400))}


@requirement("grep-tool.limit")
@pytest.mark.parametrize(
    ("version", "tool_input", "first", "lines", "footer"),
    [
        ("2.1.327", {}, 0, 250, "limit: 250"),
        ("2.1.327", {"head_limit": 0}, 0, 400, ""),
        ("2.1.327", {"head_limit": 2, "offset": 3}, 3, 2, "limit: 2, offset: 3"),
        ("2.1.327", {"head_limit": 400}, 0, 400, ""),
        ("2.1.327", {"head_limit": 2}, 0, 2, "limit: 2"),
        ("2.0.65", {}, 0, 400, ""),
        ("2.0.65", {"head_limit": 400}, 0, 400, "limit: 400, offset: 0"),
        ("2.0.65", {"offset": 399}, 399, 1, "limit: undefined, offset: 399"),
    ],
)
async def test_the_limit_bounds_the_number_of_lines(
    tmp_path: Path, version: str, tool_input: dict[str, object], first: int, lines: int, footer: str
) -> None:
    fill(tmp_path, ROWS)
    async with client(tmp_path, "Grep", version=version) as session:
        finished = await session.call("Grep", pattern="row", output_mode="content", **tool_input)

    content = "\n".join(f"rows:{at + 1}:row {at}" for at in range(first, first + lines))
    output = f"\n\n[Showing results with pagination = {footer}]" if footer else ""
    assert finished.content == content + output
    record = finished.structured
    assert isinstance(record, dict)
    assert (record["content"], record["numLines"]) == (content, lines)
    assert record.get("totalLines") == (400 if version == "2.1.327" else None)


@requirement("grep-tool.limit")
async def test_an_offset_past_the_end_differs_from_no_match(tmp_path: Path) -> None:
    fill(tmp_path, ROWS)
    async with client(tmp_path, "Grep") as session:
        files = await session.text("Grep", pattern="row", offset=9)
        lines = await session.text("Grep", pattern="row", offset=999, output_mode="content")
    async with client(tmp_path, "Grep", version="2.0.65") as session:
        old = await session.text("Grep", pattern="row", offset=9)

    page = "[Showing results with pagination = offset: {}]"
    assert files == "No entries at this offset. " + page.format(9)
    assert lines == "No entries at this offset\n\n" + page.format(999)
    assert old == "No files found"


@requirement("grep-tool.limit")
async def test_the_newest_files_are_returned_however_many_match(tmp_path: Path) -> None:
    fill(tmp_path, {f"d/f{number:04}": "x" for number in range(1_500)})
    async with client(tmp_path, "Grep") as session:
        record = await session.record("Grep", pattern="x", head_limit=3, offset=1)

    assert record["filenames"] == ["d/f1498", "d/f1497", "d/f1496"]
    assert (record["totalFiles"], record["appliedLimit"]) == (1_500, 3)


@requirement("grep-tool.limit")
async def test_the_oldest_client_cuts_long_answers(tmp_path: Path) -> None:
    fill(tmp_path, {"f": "".join(f"{'y' * 96}\n" for _ in range(300))})
    async with client(tmp_path, "Grep", version="2.0.65") as session:
        text = await session.text("Grep", pattern="y", output_mode="content")

    head, note = text.split("\n\n")
    assert len(head) == 20_000
    omitted = 300 - head.count("\n")
    assert note == f"... [{omitted} lines truncated] ..."


@requirement("grep-tool.refuses")
@pytest.mark.parametrize(
    ("tool_input", "error"),
    [
        ({"pattern": "("}, "rg: regex parse error:\n    (?:()\n    ^\nerror: unclosed group"),
        ({"pattern": "x", "type": "nosuch"}, "rg: unrecognized file type: nosuch"),
        ({"pattern": "x", "glob": "["}, "rg: error parsing glob '['"),
    ],
)
async def test_arguments_that_ripgrep_rejects_are_an_error_in_the_newest_client(
    tmp_path: Path, tool_input: dict[str, object], error: str
) -> None:
    async with client(tmp_path, "Grep") as session:
        finished = await session.call("Grep", **tool_input)
    async with client(tmp_path, "Grep", version="2.0.65") as session:
        assert await session.text("Grep", **tool_input) == "No files found"

    head = "Search failed — ripgrep rejected the pattern, glob, or file type without searching:\n"
    assert str(finished.content).startswith(head + error)
    assert finished.span.state == "failed"


@requirement("grep-tool.refuses")
async def test_invalid_ranges_and_paths_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    async with client(tmp_path, "Grep") as session:
        assert await session.text("Grep", pattern="x", head_limit=-1) == refusal(
            "head_limit must be a whole number of 0 or more, got -1. Pass 0 for unlimited."
        )
        assert await session.text("Grep", pattern="x", offset=1.5) == refusal(
            "offset must be a whole number of 0 or more, got 1.5."
        )
        missing = "Path does not exist: no. Note: your current working directory is"
        assert await session.text("Grep", pattern="x", path="no") == f"{missing} {tmp_path}."
        assert (await session.text("Grep", pattern="x", path="pipe")).startswith(
            "Path is neither a file nor a directory"
        )


async def test_odd_names_and_bytes_are_returned_unchanged(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {
            "new\nline": "word nl\n",
            "colon:1:x": "word c\n",
            "u16": "word wide\n".encode("utf-16"),
            "latin": b"word caf\xe9\n",
            "long": "word " + "z" * 600 + "\n",
            "--flag": "word f\n",
            "skipped": b"word\0\1\2\n",
            "repo/.git/config": "word g\n",
        },
    )
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    (tmp_path / "linked").symlink_to(tmp_path / "latin")
    async with client(tmp_path, "Grep", home=tmp_path / "home") as session:
        record = await session.record("Grep", pattern="word", output_mode="content")
        dash = await session.text("Grep", pattern="-f|d f", output_mode="content")
        link = await session.text("Grep", pattern="word", path="linked", output_mode="content")
        binary = await session.text("Grep", pattern="word", path="skipped", output_mode="content")

    assert record["numLines"] == 6
    for line in (
        "new\nline:1:word nl",
        "colon:1:x:1:word c",
        "u16:1:word wide",
        "latin:1:word caf\ufffd",
        "long:1:[Omitted long matching line]",
        "--flag:1:word f",
    ):
        assert line in record["content"]
    assert (dash, link) == ("--flag:1:word f", "1:word caf\ufffd")
    assert binary == 'binary file matches (found "\\0" byte around offset 4)'


@pytest.mark.skipif(os.geteuid() == 0, reason="file permissions do not apply to root")
async def test_an_unreadable_folder_hides_only_its_own_content(tmp_path: Path) -> None:
    fill(tmp_path, {"open/a": "word\n", "shut/b": "word\n"})
    (tmp_path / "shut").chmod(0)
    try:
        async with client(tmp_path, "Grep") as session:
            assert await session.text("Grep", pattern="word") == "Found 1 file\nopen/a"
            assert await session.text("Grep", pattern="none") == "No files found"
            text = await session.text("Grep", pattern="word", path="shut")
    finally:
        (tmp_path / "shut").chmod(0o700)
    assert text.startswith(f"Refusing to search {tmp_path}/shut: it could not be opened (EACCES)")


async def test_a_cancelled_search_leaves_no_process(tmp_path: Path) -> None:
    with (tmp_path / "endless").open("wb") as file:
        file.truncate(1 << 42)  # sparse: hours to read, no disk space
    async with client(tmp_path, "Grep") as session:
        async with anyio.create_task_group() as group:

            async def search() -> None:
                finished = await session.call("Grep", pattern="needle", path="endless")
                assert finished.span.state == "interrupted"

            group.start_soon(search)
            while not find_survivors_in(tmp_path, "toolu_0"):
                await anyio.lowlevel.checkpoint()
            session.runner.cancel()
        assert not find_survivors_in(tmp_path, "toolu_0")


async def test_a_client_without_totals_stops_when_it_has_enough(tmp_path: Path) -> None:
    with (tmp_path / "endless").open("wb") as file:
        file.write(b"needle\n" * 100_000)
        file.truncate(1 << 42)
    async with client(tmp_path, "Grep", version="2.0.65") as session:
        tool_input = {"pattern": "needle", "path": "endless", "output_mode": "content"}
        text = await session.text("Grep", head_limit=2, **tool_input)

    assert text == "1:needle\n2:needle\n\n[Showing results with pagination = limit: 2, offset: 0]"


async def test_several_searches_of_one_message_each_have_their_own_result(tmp_path: Path) -> None:
    fill(tmp_path, {f"f{number}": f"word{number}\n" for number in range(12)})
    async with client(tmp_path, "Grep") as session:
        searches = [("Grep", {"pattern": f"word{number}$"}) for number in range(12)]
        results = await session.calls(*searches)

    assert [result.content for result in results] == [f"Found 1 file\nf{n}" for n in range(12)]


@given(
    st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=9).filter(lambda name: b"\0" not in name),
            st.binary(max_size=9).filter(lambda line: not {0, 10} & set(line)),
        )
        | st.just((b"", b"--")),
        max_size=12,
    ),
    st.integers(1, 7),
)
def test_records_do_not_depend_on_how_the_output_is_split(records: list[tuple[bytes, bytes]], size: int) -> None:
    data = b"".join(name + b"\0" + line + b"\n" for name, line in records)
    cutter = RecordSplitter()
    result = [record for at in range(0, len(data), size) for record in cutter.split_output(data[at : at + size])]

    assert result == [RipgrepRecord(*record) for record in records]


@requirement("grep-tool.limit")
def test_a_limit_is_interpreted_as_in_the_client_version() -> None:
    def reach(version: str, **fields: object) -> int | None:
        return GrepOptions.parse({"pattern": "x", **fields}, profile(version).search).needed_count

    assert [reach("2.1.327"), reach("2.0.65")] == [250, None]
    assert [reach("2.1.327", head_limit=0), reach("2.0.65", head_limit=0)] == [None, 0]
    assert reach("2.1.327", head_limit=5, offset=7) == 12
