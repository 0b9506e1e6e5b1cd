"""`toolspan files`: what calls did to files, for people and for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.analysis.file_acts import Desk, Rollout
from tests.cli.command import rows as rows_of
from tests.cli.command import run
from tests.requirement import requirement
from toolspan.cli.app import app
from toolspan.diffs.codex_patch import AddFile, DeleteFile, PatchChunk, UpdateFile
from toolspan.testing import TranscriptBuilder, claude_results

ESCAPE = "\x1b[2J\x1b]0;owned\x07"


def files(*arguments: str | Path, columns: int = 160) -> Result:
    return run("files", *arguments, code=None, env={"COLUMNS": str(columns)})


def printed(*arguments: str | Path, columns: int = 160) -> str:
    return run("files", *arguments, env={"COLUMNS": str(columns)}).stdout


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    return rows_of(run("files", *arguments, "--json"))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "work").mkdir()
    desk = Desk(tmp_path / "work")
    desk.write("a.py", "one\ntwo\n")
    desk.edit("a.py", "two", "2\n3")
    desk.write("b.md", "text\n")
    asked = {"file_path": desk.path("b.md"), "old_string": "x", "new_string": "y"}
    desk.story.result(desk.story.call("Edit", asked), claude_results.refused("String to replace not found in file."))
    return desk


def transcript(desk: Desk) -> str:
    return desk.transcript().file


@requirement("files.command")
@pytest.mark.parametrize("columns", [60, 80, 140])
def test_changed_files_are_listed_with_lines_and_errors(desk: Desk, columns: int) -> None:
    output = printed(transcript(desk), columns=columns).splitlines()
    assert all(len(line) <= columns for line in output)
    first, second = (line.split() for line in output[2:4])
    assert first[first.index("2") :][:3] == ["2", "+4", "−1"]
    assert "b.md" in output[3]
    assert second[second.index("+1") :][:3] == ["+1", "−0", "1"]
    assert "2 files, +5 −1 lines" in output
    assert any("--path FILE" in line for line in output)


@requirement("files.command")
def test_json_has_one_object_per_file(desk: Desk) -> None:
    first, second = rows(transcript(desk))
    assert (first["path"], first["changes"], first["added"], first["removed"]) == (
        desk.path("a.py"), 2, 4, 1,
    )  # fmt: skip
    assert (second["errors"], second["created"]) == (1, 1)
    edited = rows(transcript(desk), "--tool", "edit")
    assert {row["path"]: row["changes"] for row in edited} == {desk.path("a.py"): 1, desk.path("b.md"): 0}


@requirement("files.command")
def test_the_history_of_a_file_has_every_diff(desk: Desk) -> None:
    output = printed(transcript(desk), "a.py")
    assert "created" in output
    assert "@@ -1,2 +1,3 @@\n one\n-two\n+2\n+3\n" in output
    assert output.endswith("2 changes\nTimes in UTC.\n")
    made, changed = rows(transcript(desk), "--path", "a.py")
    assert (made["kind"], changed["kind"]) == ("created", "edited")
    assert changed["diff"].endswith("-two\n+2\n+3\n")
    assert "1 further call failed" in printed(transcript(desk), "b.md")


@requirement("files.command")
def test_content_of_a_file_is_printed_as_it_was(desk: Desk) -> None:
    made = rows(transcript(desk), "a.py")[0]["call"]
    assert printed(transcript(desk), "a.py", "--content") == "one\n2\n3\n"
    assert printed(transcript(desk), "a.py", "--after", made) == "one\ntwo\n"
    assert printed(transcript(desk), "a.py", "--before", made) == ""
    (row,) = rows(transcript(desk), "a.py", "--before", made[:14])
    assert (row["exists"], row["content"], row["confidence"]) == (False, None, "exact")
    done = files(transcript(desk), "a.py", "--after", made)
    assert f"after {made}: exact" in done.stderr


@requirement("files.command")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["c.py"], "no call in these transcripts changed c.py"),
        (["a.py", "b.md"], "one path at a time"),
        (["--content"], "need the path of a file"),
        (["a.py", "--after", "zzz"], "no call begins with 'zzz'"),
        (["a.py", "--after", "t", "--before", "t"], "use either"),
        (["nowhere.jsonl"], "no such file"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line(desk: Desk, arguments: list[str], text: str) -> None:
    done = files(transcript(desk), *arguments)
    assert done.exit_code == 2
    assert text in done.stderr
    assert "Traceback" not in done.output


@requirement("files.command")
def test_folder_path_restricts_the_list(desk: Desk) -> None:
    (desk.folder / "sub").mkdir()
    desk.write("sub/c.py", "1\n")
    result = rows(transcript(desk), "--path", desk.folder / "sub")
    assert [row["path"] for row in result] == [desk.path("sub/c.py")]


@requirement("files.command")
def test_archive_is_listed_by_project(tmp_path: Path) -> None:
    import toolspan

    result = rows(toolspan.sample.archive())
    assert len(result) > 5
    assert [row["last"] for row in result] == sorted(row["last"] for row in result)


@requirement("files.command")
def test_moved_file_keeps_its_history(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    desk = Rollout(tmp_path / "work")
    desk.patch(AddFile(path="a.py", lines=("one", "two")))
    chunk = PatchChunk(lines=(" one", "-two", "+2"))
    moved = desk.patch(UpdateFile(path="a.py", chunks=(chunk,), move_to="b.py"))
    desk.patch(DeleteFile(path="b.py"))
    rollout = desk.transcript().file

    assert printed(rollout, "b.py", "--after", moved) == "one\n2\n"
    came, gone = rows(rollout, "b.py")
    assert (came["kind"], came["moved_from"]) == ("moved", desk.path("a.py"))
    assert "rename from" in came["diff"]
    assert "-two\n+2\n" in came["diff"]
    assert gone["kind"] == "deleted"
    assert "rename to" in rows(rollout, "a.py")[1]["diff"]


@requirement("files.command")
def test_dialect_restricts_the_list_to_one_client(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    rollout = Rollout(tmp_path / "other")
    rollout.patch(AddFile(path="z.py", lines=("one",)))
    both = [transcript(desk), rollout.transcript().file]

    codex = {row["path"] for row in rows(*both, "--dialect", "codex")}
    claude = {row["path"] for row in rows(*both, "--dialect", "claude")}

    assert codex == {rollout.path("z.py")}
    assert claude == {row["path"] for row in rows(*both)} - codex


@requirement("cli.wrong-words-are-one-line")
def test_deleted_current_folder_is_reported(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transcript = desk.transcript().file
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    for arguments in (["files", transcript, "a.py"], ["doctor"]):
        done = CliRunner().invoke(app, arguments)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "the current folder no longer exists" in done.stderr


def changed(cwd: str, path: str) -> TranscriptBuilder:
    builder = TranscriptBuilder(session_id=cwd[1:], cwd=cwd).prompt("go")
    call = builder.call("Write", {"file_path": path, "content": "one\n"})
    return builder.result(call, claude_results.written(path, "one\n"))


@requirement("files.project")
def test_project_is_that_of_the_session_not_of_the_file(tmp_path: Path) -> None:
    changed("/lake", "/lake/boat.py").write(tmp_path / "a.jsonl")
    changed("/sea", "/lake/far.py").write(tmp_path / "b.jsonl")
    changed("/lake/deep", "/sea/near.py").write(tmp_path / "c.jsonl")

    assert {row["path"] for row in rows(tmp_path, "--project", "/lake")} == {"/lake/boat.py", "/sea/near.py"}


@requirement("cli.session-is-there")
def test_unknown_session_is_refused(tmp_path: Path) -> None:
    changed("/lake", "/lake/boat.py").write(tmp_path / "a.jsonl")

    assert rows(tmp_path, "--session", "la")
    for command in (["files"], ["files", "boat.py"], ["search", "one"], ["search", "nowhere"], ["stats"]):
        done = run(*command, f"{tmp_path}/", "--session", "zzz", code=2)
        assert done.stderr == "toolspan: no session begins with 'zzz'\n"
    assert "no session" in run("calls", tmp_path / "a.jsonl", "--session", "zzz", code=2).stderr
    assert "0 matches" in run("search", "nowhere", f"{tmp_path}/", "--session", "la").stdout
