"""Read: texts, ranges, binary files and devices."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import sys
import threading
import zlib
from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.tools.files import ToolCaller, failed, kind, record, refusal
from toolspan.runtime.profiles import profile
from toolspan.tools import coding_tools

pytestmark = pytest.mark.anyio

VERSIONS = ("seed", "2.0.65", "2.1.327")
WARNING = "<system-reminder>Warning: the file exists but {}</system-reminder>"


NUMBERED = {"2.1.327": "1\ta\n2\tb\n3\t", "2.0.65": "     1→a\n     2→b\n     3→"}


@requirement("read-tool.numbers-lines")
@pytest.mark.parametrize("version", NUMBERED)
async def test_lines_are_numbered_as_the_client_numbers_them(tmp_path: Path, version: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\nb\n")

    finished = await ToolCaller(tmp_path, version).read(path)

    assert finished.content == NUMBERED[version]
    assert record(finished) == {
        "type": "text",
        "file": {"filePath": str(path), "content": "a\nb\n", "numLines": 3, "startLine": 1, "totalLines": 3},
    }


@requirement("read-tool.ranges")
@pytest.mark.parametrize(
    ("tool_input", "text"),
    [
        ({"offset": 2}, "2\tb\n3\tc"),
        ({"limit": 1}, "1\ta"),
        ({"offset": 2, "limit": 1}, "2\tb"),
        ({"offset": 0}, "0\ta\n1\tb\n2\tc"),
        ({"offset": -5, "limit": 0}, "1\ta\n2\tb\n3\tc"),
        ({"offset": "2", "limit": "1"}, "2\tb"),
        ({"offset": 10**30}, WARNING.format(
            f"is shorter than the provided offset ({10**30}). The file has 3 lines."
        )),
    ],
)  # fmt: skip
async def test_a_range_shows_its_lines_and_no_others(tmp_path: Path, tool_input: dict[str, object], text: str) -> None:
    (tmp_path / "a.txt").write_text("a\nb\nc", encoding="utf-8")

    assert (await ToolCaller(tmp_path).read("a.txt", **tool_input)).content == text


@requirement("read-tool.ranges")
async def test_the_oldest_client_counts_a_negative_offset_from_the_end(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\nb\nc", encoding="utf-8")

    finished = await ToolCaller(tmp_path, "2.0.65").read("a.txt", offset=-1)

    assert finished.content == "    -1→b\n     0→c"


@requirement("read-tool.ranges")
async def test_a_blank_line_inside_a_file_is_shown_as_one(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n\nc", encoding="utf-8")

    assert (await ToolCaller(tmp_path).read("a.txt", offset=2, limit=1)).content == "2\t"


@requirement("read-tool.ranges")
async def test_lines_deep_in_a_large_file_are_found(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    with path.open("wb") as file:
        for number in range(1, 400_001):
            file.write(b"line %d\r\n" % number)

    finished = await ToolCaller(tmp_path).read(path, offset=399_999, limit=2)

    assert finished.content == "399999\tline 399999\n400000\tline 400000"
    assert record(finished)["file"]["totalLines"] == 400_001


@requirement("read-tool.empty")
async def test_an_empty_file_is_reported_as_empty(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    session = ToolCaller(tmp_path)

    assert (await session.read("a.txt")).content == WARNING.format("the contents are empty.")
    assert (await session.read(os.devnull)).content == WARNING.format("the contents are empty.")


@requirement("read-tool.decodes")
@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"a\r\nb\nc\rd", "a\nb\nc\rd"),
        (b"\xef\xbb\xbfa\n", "a\n"),
        ("\ufeffhé\r\n".encode("utf-16-le"), "hé\n"),
        (b"a\rb\r", "a\rb"),
        (b"caf\xe9\n", "caf\ufffd\n"),
        ("ok \ufffd\n".encode(), "ok \ufffd\n"),
    ],
)
async def test_text_is_decoded_by_its_mark_and_shown_with_plain_line_ends(
    tmp_path: Path, data: bytes, text: str
) -> None:
    (tmp_path / "a.txt").write_bytes(data)

    finished = await ToolCaller(tmp_path).read("a.txt")

    assert record(finished)["file"]["content"] == text
    assert ("not valid in its encoding" in str(finished.content)) == (b"\xe9\n" in data)


@requirement("read-tool.missing")
async def test_a_missing_file_is_reported_with_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()

    new = await ToolCaller(tmp_path).read("config.yml")
    old = await ToolCaller(tmp_path, "2.0.65").read("config.yml")

    assert kind(new) == kind(old) == "not_found"
    assert new.content == (
        f"File does not exist. Note: your current working directory is {tmp_path}. Did you mean config.yaml?"
    )
    assert old.content == refusal("File does not exist. Did you mean config.yaml?")


@requirement("read-tool.never-hangs")
@pytest.mark.parametrize("version", VERSIONS)
async def test_devices_and_pipes_are_refused_not_read(tmp_path: Path, version: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        session = ToolCaller(tmp_path, version)
        for path in ("/dev/zero", "/dev/random", tmp_path / "pipe", tmp_path / "socket"):
            finished = await session.read(path, limit=1)
            assert str(finished.content).startswith(f"<tool_use_error>Cannot read '{path}': this ")


@requirement("read-tool.never-hangs")
async def test_a_pipe_in_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("pipe")
    os.mkfifo(tmp_path / "pipe")

    assert failed(await ToolCaller(tmp_path).read("link"))


@requirement("read-tool.too-large")
async def test_a_huge_sparse_file_is_refused_by_its_size(tmp_path: Path) -> None:
    with (tmp_path / "sparse.txt").open("wb") as file:
        file.write(b"text\n" * 10_000)
        file.truncate(1 << 40)
    session = ToolCaller(tmp_path)

    full = await session.read("sparse.txt")
    part = await session.read("sparse.txt", offset=1, limit=5)

    assert kind(full) == kind(part) == "too_large"
    assert "1TB" in str(full.content)


@requirement("read-tool.too-large")
async def test_a_file_over_the_limit_needs_a_range(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    path.write_bytes(b"x" * 99 + b"\n" + b"y" * 599_000)
    session = ToolCaller(tmp_path)

    full = await session.read(path)
    line = await session.read(path, offset=1, limit=1)
    long_line = await session.read(path, offset=2, limit=1)
    allowed = await session.read(path, allow_large=True)

    assert str(full.content).startswith("File content (585.1KB) exceeds maximum allowed size (256KB).")
    assert line.content == "1\t" + "x" * 99
    assert long_line.content == "2\t" + "y" * 599_000
    assert len(str(allowed.content)) > 599_000


@requirement("read-tool.binary")
@pytest.mark.parametrize(
    ("name", "data", "text"),
    [("a.exe", b"MZ", "a binary .exe file."), ("a.bin", b"text", "a binary .bin file.")],
)
async def test_binary_files_are_refused(tmp_path: Path, name: str, data: bytes, text: str) -> None:
    (tmp_path / name).write_bytes(data)

    finished = await ToolCaller(tmp_path).read(name)

    assert str(finished.content).startswith(
        f"<tool_use_error>This tool cannot read binary files. The file appears to be {text}"
    )


@requirement("read-tool.system-errors")
async def test_a_folder_is_reported_with_the_system_error(tmp_path: Path) -> None:
    new = await ToolCaller(tmp_path).read(tmp_path)
    old = await ToolCaller(tmp_path, "2.0.65").read(tmp_path)

    assert new.content == f"EISDIR: illegal operation on a directory, read '{tmp_path}'"
    assert old.content == "EISDIR: illegal operation on a directory, read"
    with_slash = await ToolCaller(tmp_path).read(f"{tmp_path}/./")
    assert with_slash.content == f"EISDIR: illegal operation on a directory, read '{tmp_path}//'"


@requirement("read-tool.system-errors")
async def test_a_link_to_itself_is_refused_by_new_clients_and_missing_for_old_ones(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")

    new = await ToolCaller(tmp_path).read(loop)
    old = await ToolCaller(tmp_path, "2.0.65").read(loop)

    assert str(new.content).startswith(f"Refusing to read {loop}: where it leads on disk could not be determined")
    assert old.content == "<tool_use_error>File does not exist.</tool_use_error>"


@requirement("read-tool.numbers-lines")
async def test_a_carriage_return_before_a_line_ending_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\r\r\nb\r\n")

    old = await ToolCaller(tmp_path, "2.0.65").read("a.txt")

    assert old.content == "     1→a\n     2→b\n     3→"


@requirement("read-tool.system-errors")
@pytest.mark.skipif(os.geteuid() == 0, reason="file permissions do not apply to root")
async def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.touch(mode=0o200)

    finished = await ToolCaller(tmp_path).read(path)

    assert finished.content == f"EACCES: permission denied, open '{path}'"


@pytest.mark.parametrize("name", ["a\nb.txt", "tab\tname", "ü", "a b"])
async def test_odd_path_names_are_quoted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")

    assert (await ToolCaller(tmp_path).read(tmp_path / name)).content == "1\tx"


@pytest.mark.parametrize("name", ["", "a\0b", "half \ud800", "x" * 300, "loop"])
async def test_impossible_file_names_are_reported(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")

    finished = await ToolCaller(tmp_path).read(name)

    assert failed(finished)
    str(finished.content).encode()


async def test_the_home_folder_is_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.txt").write_bytes(b"x")
    (tmp_path / "work").mkdir()

    new = await ToolCaller(tmp_path / "work").read("~/a.txt")
    old = await ToolCaller(tmp_path / "work", "2.0.65").read("~/a.txt")

    assert record(new)["file"]["filePath"] == "~/a.txt"
    assert failed(old)


def png(width: int, height: int) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + b"\0" * width for _ in range(height)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@requirement("read-tool.images")
async def test_an_image_is_returned_with_its_size(tmp_path: Path) -> None:
    data = png(3, 2)
    (tmp_path / "a.png").write_bytes(data)
    encoded = base64.b64encode(data).decode()

    finished = await ToolCaller(tmp_path).read("a.png")

    source = {"type": "base64", "data": encoded, "media_type": "image/png"}
    assert finished.content == [{"type": "image", "source": source}]
    assert record(finished)["file"]["dimensions"] == {
        "originalWidth": 3, "originalHeight": 2, "displayWidth": 3, "displayHeight": 2,
    }  # fmt: skip


@requirement("read-tool.images")
async def test_an_image_suffix_without_image_content_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no image")

    new = await ToolCaller(tmp_path).read("a.png")
    old = await ToolCaller(tmp_path, "2.0.65").read("a.png")

    assert str(new.content).startswith("File has an image extension but its content is not a valid")
    assert "dimensions" not in record(old)["file"]


@requirement("read-tool.documents")
async def test_a_pdf_comes_as_a_document(tmp_path: Path) -> None:
    data = b"%PDF-1.4\n%%EOF\n"
    (tmp_path / "a.pdf").write_bytes(data)
    text = f"PDF file read: {tmp_path}/a.pdf (15 bytes)"
    source = {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(data).decode()}
    document = {"type": "document", "source": source}

    new = await ToolCaller(tmp_path).read("a.pdf")
    old = await ToolCaller(tmp_path, "2.0.65").read("a.pdf")

    assert new.content == [{"type": "text", "text": text}, document]
    assert old.content == text
    assert old.companions == ([document],)


@requirement("read-tool.documents")
async def test_a_pdf_suffix_without_pdf_content_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "b.pdf").write_bytes(b"text")

    result = await ToolCaller(tmp_path).read("b.pdf")

    assert result.content == f"File is not a valid PDF (missing %PDF- header): {tmp_path}/b.pdf"


@requirement("read-tool.notebooks")
async def test_a_notebook_is_shown_as_cells_with_outputs(tmp_path: Path) -> None:
    picture = base64.b64encode(png(1, 1)).decode()
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["hi\n", "there"]},
        {"output_type": "display_data", "data": {"image/png": picture, "text/plain": "plot"}},
        {"output_type": "error", "ename": "E", "evalue": "bad", "traceback": ["one", "two"]},
    ]
    cells = [
        {"cell_type": "markdown", "id": "m", "source": ["# A\n", "b"]},
        {"cell_type": "code", "source": "x", "execution_count": 4, "outputs": outputs},
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")

    finished = await ToolCaller(tmp_path).read("a.ipynb")

    before = (
        '<cell id="m"><cell_type>markdown</cell_type># A\nb</cell id="m">\n'
        '<cell id="cell-1">x</cell id="cell-1">\n\nhi\nthere\n\nplot'
    )
    source = {"data": picture, "media_type": "image/png", "type": "base64"}
    assert finished.content == [
        {"text": before, "type": "text"},
        {"type": "image", "source": source},
        {"text": "\nE: bad\none\ntwo", "type": "text"},
    ]
    assert [cell["cell_id"] for cell in record(finished)["file"]["cells"]] == ["m", "cell-1"]


@requirement("read-tool.notebooks")
@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": 5}'])
async def test_an_invalid_notebook_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.ipynb").write_text(text, encoding="utf-8")

    assert "Notebook file is not" in str((await ToolCaller(tmp_path).read("a.ipynb")).content)


async def test_files_are_read_beside_the_event_loop(tmp_path: Path) -> None:
    path = tmp_path / "beside.txt"
    path.write_bytes(b"x\n" * 100_000)
    threads: set[int] = set()

    def note_thread(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and str(arguments[0]).endswith(path.name):
            threads.add(threading.get_ident())

    sys.addaudithook(note_thread)
    await ToolCaller(tmp_path).read(path)

    assert threads
    assert threading.get_ident() not in threads


@requirement("builtin.offered")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_profile_has_the_coding_tools_with_closed_schemas(version: str) -> None:
    tools = {tool.name: tool for tool in coding_tools(profile(version))}

    assert {"Bash", "Edit", "Read", "Write"} <= tools.keys()
    assert all(tool.input_schema["additionalProperties"] is False for tool in tools.values())
    assert tools["Read"].concurrent is True
    assert tools["Edit"].concurrent is tools["Write"].concurrent is False


@requirement("builtin.offered")
def test_the_newest_client_is_the_default() -> None:
    properties = next(tool for tool in coding_tools() if tool.name == "Read").input_schema

    assert "allow_large" in properties["properties"]  # type: ignore[operator]


@requirement("read-tool.ranges")
@pytest.mark.parametrize(
    ("tool_input", "lines"),
    [
        ({"offset": -1}, ["-1→d", "0→"]),
        ({"limit": -2}, ["1→a", "2→b", "3→c"]),
        ({"offset": -1, "limit": 3}, []),
        ({"offset": 3, "limit": -1}, []),
        ({"offset": -1, "limit": -1}, []),
    ],
)
async def test_2_0_65_counts_both_ends_of_a_negative_range_from_the_end(
    tmp_path: Path, tool_input: dict[str, int], lines: list[str]
) -> None:
    (tmp_path / "a.txt").write_text("a\nb\nc\nd\n", encoding="utf-8")

    content = str((await ToolCaller(tmp_path, "2.0.65").read("a.txt", **tool_input)).content)

    numbered = [] if content.startswith("<system-reminder>") else [line.strip() for line in content.split("\n")]
    assert numbered == lines


@requirement("read-tool.missing")
async def test_2_0_65_suggests_nothing_below_a_missing_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n", encoding="utf-8")

    session = ToolCaller(tmp_path, "2.0.65")
    for name in ("nodir/../a.py", "a.txt/."):
        missing = await session.read(f"{tmp_path}/{name}")
        assert missing.content == "<tool_use_error>File does not exist.</tool_use_error>"
    with_slash = await session.read(f"{tmp_path}/a.txt/")
    assert "Did you mean a.txt?" in str(with_slash.content)
