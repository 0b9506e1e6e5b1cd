"""`toolspan files`: what calls did to files, for people and for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.analysis.recorded_edits import ClaudeFolder, CodexFolder
from tests.cli.command import rows as rows_of
from tests.cli.command import run
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
def workspace(tmp_path: Path) -> ClaudeFolder:
    (tmp_path / "work").mkdir()
    workspace = ClaudeFolder(tmp_path / "work")
    workspace.write("a.py", "one\ntwo\n")
    workspace.edit("a.py", "two", "2\n3")
    workspace.write("b.md", "text\n")
    edit = {"file_path": workspace.path("b.md"), "old_string": "x", "new_string": "y"}
    workspace.builder.result(
        workspace.builder.call("Edit", edit), claude_results.refused("String to replace not found in file.")
    )
    return workspace


def transcript(workspace: ClaudeFolder) -> str:
    return workspace.transcript().file


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_changed_files_are_listed_with_lines_and_errors(workspace: ClaudeFolder, columns: int) -> None:
    output = printed(transcript(workspace), columns=columns).splitlines()
    assert all(len(line) <= columns for line in output)
    first, second = (line.split() for line in output[2:4])
    assert first[first.index("2") :][:3] == ["2", "+4", "−1"]
    assert "b.md" in output[3]
    assert second[second.index("+1") :][:3] == ["+1", "−0", "1"]
    assert "2 files, +5 −1 lines" in output
    assert any("--path FILE" in line for line in output)


def test_json_has_one_object_per_file(workspace: ClaudeFolder) -> None:
    first, second = rows(transcript(workspace))
    assert (first["path"], first["changes"], first["added"], first["removed"]) == (
        workspace.path("a.py"), 2, 4, 1,
    )  # fmt: skip
    assert (second["unsuccessful"], second["created"]) == (1, 1)
    edited = rows(transcript(workspace), "--tool", "edit")
    assert {row["path"]: row["changes"] for row in edited} == {workspace.path("a.py"): 1}
    assert "1 file, +2 −1 lines\nOnly unsuccessful calls would have changed 1 more file." in printed(
        transcript(workspace), "--tool", "edit"
    )
    failed = rows(transcript(workspace), "--state", "failed")
    assert {row["path"]: row["unsuccessful"] for row in failed} == {workspace.path("b.md"): 1}


def test_file_that_a_patch_replaces_is_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    workspace = CodexFolder(tmp_path / "work", events=False)
    workspace.patch(AddFile(path="a.py", lines=("one",)))
    workspace.patch(DeleteFile(path="a.py"), AddFile(path="a.py", lines=("two", "three")))
    chunks = [PatchChunk(lines=("-two", "+2")), PatchChunk(lines=("-three", "+3"))]
    workspace.patch(*(UpdateFile(path="a.py", chunks=(chunk,)) for chunk in chunks))
    rollout = workspace.transcript().file

    (row,) = rows(rollout)
    assert (row["changes"], row["added"], row["removed"], row["known"]) == (3, 5, 2, False)
    assert (row["created"], row["deleted"], row["last_kind"]) == (1, 0, "edited")
    assert "deleted" not in printed(rollout)
    (comparison,) = rows_of(run("compare", rollout, rollout, "--json"))
    side = comparison["a"]
    assert (side["files_changed"], side["lines_added"], side["lines_removed"]) == (1, 5, 2)


def test_the_history_of_a_file_has_every_diff(workspace: ClaudeFolder) -> None:
    output = printed(transcript(workspace), "a.py")
    assert "created" in output
    assert "@@ -1,2 +1,3 @@\n one\n-two\n+2\n+3\n" in output
    assert output.endswith("2 changes\nTimes in UTC.\n")
    created, changed = rows(transcript(workspace), "--path", "a.py")
    assert (created["kind"], changed["kind"]) == ("created", "edited")
    assert changed["diff"].endswith("-two\n+2\n+3\n")
    assert "1 further call was unsuccessful" in printed(transcript(workspace), "b.md")


def test_content_of_a_file_is_printed_as_it_was(workspace: ClaudeFolder) -> None:
    call = rows(transcript(workspace), "a.py")[0]["call"]
    assert printed(transcript(workspace), "a.py", "--content") == "one\n2\n3\n"
    assert printed(transcript(workspace), "a.py", "--after", call) == "one\ntwo\n"
    assert printed(transcript(workspace), "a.py", "--before", call) == ""
    (row,) = rows(transcript(workspace), "a.py", "--before", call[:14])
    assert (row["exists"], row["content"], row["confidence"]) == (False, None, "exact")
    result = files(transcript(workspace), "a.py", "--after", call)
    assert f"after {call}: exact" in result.stderr


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
def test_invalid_arguments_are_reported_in_one_line(workspace: ClaudeFolder, arguments: list[str], text: str) -> None:
    result = files(transcript(workspace), *arguments)
    assert result.exit_code == 2
    assert text in result.stderr
    assert "Traceback" not in result.output


def test_folder_path_restricts_the_list(workspace: ClaudeFolder) -> None:
    (workspace.folder / "sub").mkdir()
    workspace.write("sub/c.py", "1\n")
    result = rows(transcript(workspace), "--path", workspace.folder / "sub")
    assert [row["path"] for row in result] == [workspace.path("sub/c.py")]


def test_archive_is_listed_by_project(tmp_path: Path) -> None:
    import toolspan

    result = rows(toolspan.sample.archive())
    assert len(result) > 5
    assert [row["last"] for row in result] == sorted(row["last"] for row in result)


def test_moved_file_keeps_its_history(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    workspace = CodexFolder(tmp_path / "work")
    workspace.patch(AddFile(path="a.py", lines=("one", "two")))
    chunk = PatchChunk(lines=(" one", "-two", "+2"))
    moved = workspace.patch(UpdateFile(path="a.py", chunks=(chunk,), move_to="b.py"))
    workspace.patch(DeleteFile(path="b.py"))
    rollout = workspace.transcript().file

    assert printed(rollout, "b.py", "--after", moved) == "one\n2\n"
    arrival, deletion = rows(rollout, "b.py")
    assert (arrival["kind"], arrival["moved_from"]) == ("moved", workspace.path("a.py"))
    assert "rename from" in arrival["diff"]
    assert "-two\n+2\n" in arrival["diff"]
    assert deletion["kind"] == "deleted"
    assert "rename to" in rows(rollout, "a.py")[1]["diff"]


def test_client_restricts_the_list_to_one_client(workspace: ClaudeFolder, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    rollout = CodexFolder(tmp_path / "other")
    rollout.patch(AddFile(path="z.py", lines=("one",)))
    sources = [transcript(workspace), rollout.transcript().file]

    codex = {row["path"] for row in rows(*sources, "--client", "codex")}
    claude = {row["path"] for row in rows(*sources, "--client", "claude")}

    assert codex == {rollout.path("z.py")}
    assert claude == {row["path"] for row in rows(*sources)} - codex


def test_deleted_current_folder_is_reported(
    workspace: ClaudeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcript = workspace.transcript().file
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    for arguments in (["files", transcript, "a.py"], ["doctor"]):
        result = CliRunner().invoke(app, arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "the current folder no longer exists" in result.stderr


def changed(cwd: str, path: str) -> TranscriptBuilder:
    builder = TranscriptBuilder(session_id=cwd[1:], cwd=cwd).prompt("go")
    call = builder.call("Write", {"file_path": path, "content": "one\n"})
    return builder.result(call, claude_results.written(path, "one\n"))


def test_project_is_that_of_the_session_not_of_the_file(tmp_path: Path) -> None:
    changed("/lake", "/lake/boat.py").write(tmp_path / "a.jsonl")
    changed("/sea", "/lake/far.py").write(tmp_path / "b.jsonl")
    changed("/lake/deep", "/sea/near.py").write(tmp_path / "c.jsonl")

    assert {row["path"] for row in rows(tmp_path, "--project", "/lake")} == {"/lake/boat.py", "/sea/near.py"}


def test_unknown_session_is_refused(tmp_path: Path) -> None:
    changed("/lake", "/lake/boat.py").write(tmp_path / "a.jsonl")

    assert rows(tmp_path, "--session", "la")
    for command in (["files"], ["files", "boat.py"], ["search", "one"], ["search", "nowhere"], ["stats"]):
        result = run(*command, f"{tmp_path}/", "--session", "zzz", code=2)
        assert result.stderr == "toolspan: no session begins with 'zzz'\n"
    assert "no session" in run("calls", tmp_path / "a.jsonl", "--session", "zzz", code=2).stderr
    assert "0 matches" in run("search", "nowhere", f"{tmp_path}/", "--session", "la").stdout


def test_a_windows_drive_in_either_case_is_one_file_and_one_project(tmp_path: Path) -> None:
    for name, drive in (("a1", "c"), ("b2", "C")):
        path = f"{drive}:\\work\\lamp.py"
        builder = TranscriptBuilder(session_id=name, cwd=f"{drive}:\\work").prompt("fix")
        edit = builder.call("Edit", {"file_path": path, "old_string": "off", "new_string": "on"})
        builder.result(edit, claude_results.edited(path, "off", "off", "on")).write(tmp_path / f"{name}.jsonl")

    assert [row["path"] for row in rows_of(run("files", "--json", tmp_path))] == ["C:\\work\\lamp.py"]
    assert [row["project"] for row in rows_of(run("usage", "--by", "project", "--json", tmp_path))] == ["C:\\work"]
