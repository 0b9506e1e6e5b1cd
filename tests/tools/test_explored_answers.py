"""Answers in which toolspan once differed from the clients, found by `make explore`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tools.client import client, fill
from toolspan import Session
from toolspan.runtime.permissions.modes import Mode, Permissions
from toolspan.runtime.permissions.rules import Rules
from toolspan.session.single_calls import SingleCallRunner
from toolspan.tools.files.notebook import explain_for_jsc, explain_for_v8
from toolspan.types.decision import Allow

pytestmark = pytest.mark.anyio
OLD = "2.0.65"


async def test_a_missing_file_is_answered_with_the_first_file_of_its_stem(tmp_path: Path) -> None:
    fill(tmp_path, {f"sub/a.{suffix}": "x\n" for suffix in ("txt", "py", "md", "json", "ts", "yaml")})
    fill(tmp_path, {"b.txt": "x\n"})
    first = next((tmp_path / "sub").iterdir()).name
    async with client(tmp_path / "sub", "Read") as session:
        new, left_out = await session.text("Read", file_path="a.x"), await session.text("Read", file_path="../b.txtx")
    async with client(tmp_path / "sub", "Read", version=OLD) as session:
        old = await session.text("Read", file_path="a.x")
        elsewhere = await session.text("Read", file_path=str(tmp_path / "a.ts"))

    assert new.endswith(f"Did you mean {first}?")
    assert left_out.endswith("Did you mean b.txt?")
    assert old == "<tool_use_error>File does not exist. Did you mean a.json?</tool_use_error>"
    assert elsewhere == "<tool_use_error>File does not exist.</tool_use_error>"


@pytest.mark.parametrize("version", [OLD, "2.1.327"])
async def test_a_new_text_keeps_its_blanks_if_the_path_ends_with_a_slash(tmp_path: Path, version: str) -> None:
    fill(tmp_path, {"a.txt": "x\n"})
    async with client(tmp_path, version=version) as session:
        await session.call("Read", file_path=f"{tmp_path}/a.txt")
        plain = await session.text("Edit", file_path=f"{tmp_path}/a.txt", old_string="x", new_string="x  ")
        slash = await session.text("Edit", file_path=f"{tmp_path}/a.txt/", old_string="x", new_string="x  ")

    assert "No changes to make" in plain
    assert ("ENOTDIR" if version != OLD else "File does not exist") in slash


@pytest.mark.parametrize("version", [OLD, "2.1.327"])
async def test_blanks_around_a_missing_search_path_are_shown(tmp_path: Path, version: str) -> None:
    async with client(tmp_path, "Glob", "Grep", version=version) as session:
        grep = await session.text("Grep", pattern="x", path=f" {tmp_path}/no")
        glob = await session.text("Glob", pattern="*", path=f" {tmp_path}/no ")

    assert f"Path does not exist:  {tmp_path}/no" in grep
    assert f"Directory does not exist:  {tmp_path}/no " in glob


async def test_lists_of_one_number_and_odd_folders_are_read_as_the_newest_client_reads_them(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "1\n2\n3"})
    async with client(tmp_path, "Read") as session:
        assert await session.text("Read", file_path="a.txt", offset=[2], limit=["1"]) == "2\t2"
        assert "provided as `boolean`" in await session.text("Read", file_path="a.txt", limit=[True])
        assert "provided as `array`" in await session.text("Read", file_path="a.txt", limit=[1, 2])
        assert (await session.text("Read", file_path="//")).endswith("read '/'")
        if Path("/proc/version").exists():
            assert await session.text("Read", file_path="/proc/version", offset=2) == "2\t"


async def test_files_of_blanks_are_read_and_filled_as_the_newest_client_does_it(tmp_path: Path) -> None:
    fill(tmp_path, {"mark.txt": b"\xef\xbb\xbf", "line.txt": "\n"})
    async with client(tmp_path, "Read", "Edit") as session:
        mark = await session.text("Read", file_path="mark.txt")
        line = await session.text("Read", file_path="line.txt", offset=2)
        same = await session.text("Edit", file_path="line.txt", old_string="", new_string="\n")

    assert "the contents are empty" in mark
    assert line == "2\t"
    assert same == "String not found in file. Failed to apply edit."


async def test_tasks_without_an_id_and_with_an_unknown_status_are_refused(tmp_path: Path) -> None:
    async with client(tmp_path, "TaskStop", "TaskUpdate") as session:
        stopped = [
            await session.text("TaskStop", **tool_input)
            for tool_input in ({"shell_id": ""}, {"task_id": "", "shell_id": "x"})
        ]
        updated = await session.text("TaskUpdate", taskId="1", status="bogus", bogus=1)

    assert stopped == ["<tool_use_error>Missing required parameter: task_id</tool_use_error>"] * 2
    assert "The parameter `status` matches none of the accepted forms" in updated


async def test_a_text_that_is_not_in_a_changed_file_is_answered_with_the_change(tmp_path: Path) -> None:
    fill(tmp_path, {"read.txt": "1\n1\n2\n", "written.txt": "1\n"})
    async with client(tmp_path, "Read", "Write", "Edit") as session:
        await session.call("Read", file_path="read.txt")
        await session.call("Write", file_path="written.txt", content="1\n1\n2\n")
        fill(tmp_path, {"read.txt": "1\n1\n2\n3\n", "written.txt": "1\n1\n2\n3\n"})
        edits = [("read.txt", "no"), ("read.txt", "1"), ("written.txt", "no")]
        answers = [await session.text("Edit", file_path=name, old_string=old, new_string="x") for name, old in edits]
        result = await session.record("Edit", file_path="read.txt", old_string="2", new_string="x")

    assert ["File has been modified since read" in answer for answer in answers] == [True, True, False]
    assert result["staleRecovered"] is True


async def test_a_formatter_that_rewrites_files_that_were_read_is_reported(tmp_path: Path) -> None:
    fill(tmp_path, {"src/a.txt": "1\n", "b.txt": "1\n", "c.txt": "1\n"})
    async with client(tmp_path, "Read", "Bash") as session:
        for name in ("src/a.txt", "b.txt"):
            await session.call("Read", file_path=name)
        other = await session.text("Bash", command="echo 2 >> src/a.txt")
        sed = await session.call("Bash", command="cd src && echo done && sed -i s/1/2/ a.txt ../c.txt")
        failed = await session.text("Bash", command="sed -i s/2/3/ a.txt; false")
    async with client(tmp_path, "Read", "Bash", version=OLD) as session:
        await session.call("Read", file_path="b.txt")
        old = await session.text("Bash", command="sed -i s/1/2/ b.txt; echo done")

    hint = "[This command modified 1 file you've previously read: a.txt. Call Read before editing.]"
    assert other == "(Bash completed with no output)"
    assert sed.content == f"done\n{hint}"
    assert isinstance(sed.structured, dict)
    assert sed.structured["staleReadFileStateHint"] == hint
    assert failed == "Exit code 1"
    assert old == "done"


async def test_oldest_client_misreads_some_exit_codes_as_its_own_kill(tmp_path: Path) -> None:
    async with client(tmp_path, "Bash", version=OLD) as session:
        killed = await session.text("Bash", command="echo out; exit 137")
        stopped = await session.text("Bash", command="exit 143")
        late = await session.text("Bash", command="exit 143", timeout=1500)

    assert killed == "Exit code 137\n[Request interrupted by user for tool use]\nout"
    assert stopped == "Exit code 143\nCommand timed out after 2m 0s"
    assert late == "Exit code 143\nCommand timed out after 1.5s"


@pytest.mark.parametrize(
    ("text", "jsc", "v8"),
    [
        ("", "Unexpected EOF", "Unexpected end of JSON input"),
        ("not json", 'Unexpected identifier "not"', "Unexpected token 'o', \"not json\" is not valid JSON"),
        ('{"cells": [}', "Unexpected token '}'", "Unexpected token '}', \"{\"cells\": [}\" is not valid JSON"),
        ("[1 2]", "Expected ']'", "Expected ',' or ']' after array element in JSON at position 3"),
        ("{} x", "Unable to parse JSON string", "Unexpected non-whitespace character after JSON at position 3"),
        ('"a\tb"', "Unterminated string", "Bad control character in string literal in JSON at position 2"),
        ("[1,]", "Unexpected comma at the end of array expression", "Unexpected token ']', \"[1,]\" is not valid JSON"),
        ("'x'", "Single quotes (') are not allowed in JSON", "Unexpected token ''', \"'x'\" is not valid JSON"),
        ('{"a" 1}', "Expected ':' before value in object property definition",
         "Expected ':' after property name in JSON at position 5"),
        ('{"a": 1', "Expected '}'", "Expected ',' or '}' after property value in JSON at position 7"),
        ("{a:1}", "Expected '}'", "Expected property name or '}' in JSON at position 1"),
        ('"abc', "Unterminated string", "Unterminated string in JSON at position 4"),
        ('{"long": "text before", "x": }', "Unexpected token '}'",
         'Unexpected token \'}\', ..."re", "x": }" is not valid JSON'),
    ],
)  # fmt: skip
async def test_broken_notebook_is_described_with_the_error_of_the_parser(text: str, jsc: str, v8: str) -> None:
    with pytest.raises(json.JSONDecodeError) as result:
        json.loads(text)

    assert explain_for_jsc(result.value) == jsc
    assert explain_for_v8(result.value) == v8


async def test_files_that_are_not_notebooks_are_refused(tmp_path: Path) -> None:
    cells = ["{}", '{"cells": [5]}', '{"cells": [{"source": 5}]}', '{"cells": [{"source": [5]}]}']
    fill(tmp_path, {f"{number}.ipynb": text for number, text in enumerate(["not json", *cells])})
    async with client(tmp_path, "Read") as session:
        broken, *others = [await session.text("Read", file_path=f"{number}.ipynb") for number in range(5)]
    async with client(tmp_path, "Read", version=OLD) as session:
        old = await session.text("Read", file_path="0.ipynb")

    assert broken.startswith("Notebook file is not valid JSON") and broken.endswith('Unexpected identifier "not"')
    assert all(text.startswith("Notebook file is not a valid Jupyter notebook") for text in others)
    assert old == "Unexpected token 'o', \"not json\" is not valid JSON"


@pytest.mark.parametrize(("version", "omitted"), [(OLD, [True, True]), ("2.1.327", [False, True])])
async def test_long_outputs_of_a_cell_are_left_out(tmp_path: Path, version: str, omitted: list[bool]) -> None:
    outputs = [[{"output_type": "stream", "text": "y" * size}] for size in (10_000, 10_001)]
    cells = [{"cell_type": "code", "source": "x", "metadata": {}, "outputs": output} for output in outputs]
    fill(tmp_path, {"a.ipynb": json.dumps({"cells": cells, "metadata": {}})})
    async with client(tmp_path, "Read", version=version) as session:
        result = (await session.record("Read", file_path="a.ipynb"))["file"]["cells"]

    assert ["too large" in cell["outputs"][0]["text"] for cell in result] == omitted


async def test_empty_images_and_documents_are_refused(tmp_path: Path) -> None:
    fill(tmp_path, {"a.png": "", "a.pdf": "", "a.mp3": "ID3\n"})
    async with client(tmp_path, "Read") as session:
        new = [await session.text("Read", file_path=name) for name in ("a.png", "a.pdf", f"{tmp_path}/a.mp3/")]
    async with client(tmp_path, "Read", version=OLD) as session:
        old = [await session.text("Read", file_path=name) for name in ("a.png", "a.pdf")]

    assert new == [f"Image file is empty: {tmp_path}/a.png", f"PDF file is empty: {tmp_path}/a.pdf", "1\tID3\n2\t"]
    assert old == ["<tool_use_error>Empty image files cannot be processed.</tool_use_error>", new[1]]


@pytest.mark.parametrize("version", [OLD, "2.1.327"])
async def test_no_file_is_created_through_a_link_to_nothing(tmp_path: Path, version: str) -> None:
    (tmp_path / "link").symlink_to("gone")
    async with client(tmp_path, "Write", "Edit", version=version) as session:
        answers = [
            await session.text("Write", file_path=f"{tmp_path}/link/x/a.txt", content="a"),
            await session.text("Edit", file_path=f"{tmp_path}/link/a.txt", old_string="", new_string="a"),
        ]

    sign = "ENOENT: no such file or directory, mkdir" if version == OLD else "Refusing to write"
    assert all(answer.startswith(sign) for answer in answers)
    assert not (tmp_path / "gone").exists()


async def test_the_oldest_client_creates_files_by_the_expanded_path(tmp_path: Path) -> None:
    fill(tmp_path, {"proj/blank.txt": "\n", "proj/dir/x": "", "proj/n.ipynb": '{"cells": []}', "proj/a.pdf": "text\n"})
    project = tmp_path / "proj"
    async with client(project, version=OLD, home=tmp_path) as session:
        created = await session.text("Edit", file_path="~/proj/new.txt", old_string="", new_string="a\n")
        unread = await session.text("Edit", file_path=f"{project}/blank.txt", old_string="", new_string="a\n")
        await session.call("Read", file_path=f"{project}/blank.txt")
        filled = await session.text("Edit", file_path=f"{project}/blank.txt", old_string="", new_string="a\n")
        folder = await session.text("Edit", file_path=f"{project}/dir", old_string="", new_string="a\n")
        path = f"{project}/no/../n.ipynb"
        book = await session.text(
            "NotebookEdit", notebook_path=path, new_source="", cell_type="code", edit_mode="insert"
        )
        document = await session.text("Read", file_path="a.pdf")
        names = await session.record("Glob", pattern="dir/*", path=f"{project}/dir")
        none = await session.record("Glob", pattern="x", path=f"{project}/dir")

    assert "has been updated" in created
    assert (project / "new.txt").read_text(encoding="utf-8") == "a\n"
    assert unread.startswith("File has been unexpectedly modified.")
    assert filled.endswith("     1→a\n     2→\n     3→")
    assert "Error calling tool (Edit): EISDIR" in folder
    assert book == "<tool_use_error>Notebook file does not exist.</tool_use_error>"
    assert document == f"PDF file read: {project}/a.pdf (5 bytes)"
    assert names["filenames"] == none["filenames"] == [f"{project}/dir/x"]


async def test_a_pattern_may_repeat_the_name_of_the_folder(tmp_path: Path) -> None:
    fill(tmp_path, {"src/a.txt": "", "src/sub/b.txt": ""})
    async with client(tmp_path, "Glob") as session:
        patterns = ("src/*", "sub/*", "src/sub/*", "no/*")
        result = [(await session.record("Glob", pattern=pattern, path="src"))["filenames"] for pattern in patterns]

    assert result == [["src/a.txt"], ["src/sub/b.txt"], ["src/sub/b.txt"], []]


async def test_a_file_that_was_read_with_a_slash_at_its_end_is_another_file(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "1\n", "b.txt": "1\n"})
    async with client(tmp_path, "Read", "Edit", "Grep") as session:
        for name, slash in (("a.txt", ""), ("b.txt", "/")):
            await session.call("Read", file_path=f"{tmp_path}/{name}{slash}")
        read_file, unseen = [
            await session.text("Edit", file_path=name, old_string="1", new_string="2") for name in ("a.txt", "b.txt")
        ]
        searched = await session.text("Grep", pattern="1", path=f"{tmp_path}/a.txt/")
        empty = await session.text("Read", file_path="")
        binary = await session.text("Read", file_path="none.mp3")
        (tmp_path / "link").symlink_to(tmp_path)
        folders = [await session.text("Read", file_path=f"{path}/") for path in (tmp_path, tmp_path / "link")]

    assert (read_file.count("file state is current"), unseen.count("file state is current")) == (1, 0)
    assert searched == f"ENOTDIR: not a directory, stat '{tmp_path}/a.txt/'"
    assert "cannot read binary files" in binary
    assert [text.partition("read ")[2] for text in folders] == [f"'{tmp_path}//'", f"'{tmp_path}/link/'"]
    assert empty == f"EISDIR: illegal operation on a directory, read '{tmp_path}'"


async def test_a_write_through_a_link_out_of_the_project_requires_a_read_first(tmp_path: Path) -> None:
    fill(tmp_path, {"out.txt": "x\n", "proj/a.txt": "x\n"})
    (tmp_path / "proj/link").symlink_to(tmp_path / "out.txt")
    async with client(tmp_path / "proj", "Write") as session:
        result = await session.text("Write", file_path="link", content="y\n")

    assert "File has not been read yet" in result
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == "x\n"


@pytest.mark.parametrize(
    ("settings", "mode", "inside", "outside"),
    [
        ({"allow": ["Read", "Edit"]}, "default", True, False),
        ({"allow": ["Edit", "Read(~/**)"]}, "default", True, True),
        ({"allow": ["Edit"], "ask": ["Read"]}, "default", False, False),
        ({"allow": ["Edit"], "ask": ["Read(proj/**)"]}, "default", True, False),
        ({}, "bypassPermissions", True, True),
    ],
)
async def test_a_file_must_be_read_first_if_reading_it_needs_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, list[str]], mode: Mode, *, inside: bool,
    outside: bool,
) -> None:  # fmt: skip
    monkeypatch.setenv("HOME", str(tmp_path))
    fill(tmp_path, {"out.txt": "x\n", "proj/a.txt": "x\n"})
    permissions = Permissions(Rules(allow=settings.get("allow", ()), ask=settings.get("ask", ())), mode)
    async with client(tmp_path / "proj", "Edit", home=tmp_path, permissions=permissions) as session:
        answers = [
            await session.text("Edit", file_path=str(path), old_string="x", new_string="y")
            for path in (tmp_path / "proj/a.txt", tmp_path / "out.txt")
        ]

    assert ["File has not been read yet" not in answer for answer in answers] == [inside, outside]


async def test_protected_files_are_called_sensitive_except_for_settings(tmp_path: Path) -> None:
    permissions = Permissions(Rules(allow=["Write", "Bash"]))
    async with client(tmp_path, "Write", "Bash", permissions=permissions) as session:
        written = await session.text("Write", file_path=f"{tmp_path}/.git/config", content="x")
        printed = await session.text("Bash", command="echo x > .bashrc")
        settings = await session.text("Write", file_path=f"{tmp_path}/.claude/settings.json", content="{}")

    assert written == f"Claude requested permissions to edit {tmp_path}/.git/config which is a sensitive file."
    assert printed == f"Claude requested permissions to edit {tmp_path}/.bashrc which is a sensitive file."
    assert settings.startswith(f"Claude requested permissions to write to {tmp_path}/.claude/settings.json, but")


async def test_dont_ask_mode_denies_every_call_that_would_be_asked_about(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "x\n", "secret/k": "x\n"})
    rules = Rules(allow=["Write", "Bash", "Read"], ask=["Read(/secret/**)", "Bash(rm:*)"])
    permissions = Permissions(rules, "dontAsk", approver=lambda _request, _ask: Allow())
    lines = ("echo x > .git/config", "rm a.txt", "rm -rf /nosuch-folder/*", "echo $(ls", "sleep 0 &")
    calls: list[tuple[str, dict[str, object]]] = [("Bash", {"command": line}) for line in lines]
    calls.append(("Read", {"file_path": f"{tmp_path}/secret/k"}))
    calls.append(("Write", {"file_path": f"{tmp_path}/a~1", "content": "x"}))
    async with Session(permissions=permissions, cwd=tmp_path, transcript=None) as session:
        lane = SingleCallRunner(session)
        answers = [str((await lane.run_call(tool, tool_input)).all_blocks()[0]["text"]) for tool, tool_input in calls]
        allowed = (await lane.run_call("Bash", {"command": "cat a.txt"})).all_blocks()

    denial = "Permission to use {} has been denied because Claude Code is running in don't ask mode."
    assert [answer.partition(" IMPORTANT")[0] for answer in answers] == [denial.format(tool) for tool, _ in calls]
    assert allowed == [{"type": "text", "text": "x"}]


async def test_files_of_processes_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc/self/status")
    async with client(tmp_path, "Read") as session:
        refused = [
            await session.text("Read", file_path=f"/proc/{name}") for name in ("self/environ", "1/maps", "kcore")
        ]
        linked = await session.text("Read", file_path="link")
        other = await session.text("Read", file_path="/proc/version")

    assert all("names a device or process file" in text and text.startswith("<tool_use_error>") for text in refused)
    assert linked == "Cannot read 'link': this path names a device or process file that this tool does not read."
    assert other.startswith("1\tLinux")


@pytest.mark.parametrize(("version", "suffixes"), [(OLD, ["zip"]), ("2.1.327", ["bmp", "heic", "zip"])])
async def test_each_version_has_its_own_list_of_binary_files(tmp_path: Path, version: str, suffixes: list[str]) -> None:
    names = ["bmp", "heic", "zip", "pkl"]
    fill(tmp_path, {f"f.{name}": "text\n" for name in names})
    async with client(tmp_path, "Read", version=version) as session:
        answers = {name: await session.text("Read", file_path=f"{tmp_path}/f.{name}") for name in names}

    assert [name for name, answer in answers.items() if "cannot read binary files" in answer] == suffixes


async def test_a_long_line_is_read_if_a_limit_is_given(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "x" * 300_000 + "\nend\n"})
    async with client(tmp_path, "Read") as session:
        new = await session.text("Read", file_path=f"{tmp_path}/a.txt", length=1)
    async with client(tmp_path, "Read", version=OLD) as session:
        old = await session.text("Read", file_path=f"{tmp_path}/a.txt", limit=1)
        end = await session.text("Read", file_path=f"{tmp_path}/a.txt", offset=2)

    assert new == "1\t" + "x" * 300_000
    assert old.startswith("File content (293KB) exceeds maximum allowed size (256KB).")
    assert end.startswith("     2→end")


async def test_the_oldest_client_trims_the_lines_it_found(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "  one x \r\n  two x \t\r\n"})
    field = {"pattern": "x", "path": f"{tmp_path}/a.txt", "output_mode": "content", "-n": False}
    async with client(tmp_path, "Grep", version=OLD) as session:
        old = await session.text("Grep", **field)

    assert old == "one x \r\n  two x"


@pytest.mark.parametrize("version", [OLD, "2.1.327"])
async def test_a_binary_file_that_is_searched_alone_is_not_named(tmp_path: Path, version: str) -> None:
    fill(tmp_path, {"a.bin": b"x\0y\n"})
    async with client(tmp_path, "Grep", version=version) as session:
        result = await session.text("Grep", pattern="x", path=f"{tmp_path}/a.bin", output_mode="content")

    assert result == 'binary file matches (found "\\0" byte around offset 1)'


async def test_commands_find_ripgrep_and_show_nothing_of_their_preparation(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "one\n"})
    async with client(tmp_path, "Bash") as session:
        result = await session.text("Bash", command="PATH=/usr/bin:/bin; rg one a.txt")
        traced = await session.text("Bash", command="set -x; echo a")
        record = await session.record("Bash", command="echo a", timeout_ms=5000, dangerouslyDisableSandbox=True)

    assert result == "one"
    assert traced == "++ echo a\na\n+ pwd -P"
    assert record["dangerouslyDisableSandbox"] is True


async def test_files_that_are_named_like_a_document_must_be_one(tmp_path: Path) -> None:
    fill(tmp_path, {"a.pdf": "text\n"})
    async with client(tmp_path, "Read") as session:
        result = await session.text("Read", file_path=f"{tmp_path}/a.pdf", offset=2)
        pages = await session.text("Read", file_path=f"{tmp_path}/a.pdf", pages="3-")

    assert result == f"File is not a valid PDF (missing %PDF- header): {tmp_path}/a.pdf"
    assert 'Page range "3-" exceeds maximum of 20 pages per request. Please use a smaller range.' in pages
