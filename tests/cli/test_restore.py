"""`toolspan restore`: a file as it was, written all or not at all."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.analysis.recorded_edits import ClaudeFolder
from tests.cli.terminal import run_at_terminal
from tests.fork_server import TOOLSPAN
from toolspan.cli.app import app
from toolspan.integrations.restore import BACKUP_SUFFIX


def restore(*arguments: str | Path, workspace: ClaudeFolder) -> Result:
    transcript = workspace.transcript().file
    name = workspace.path(str(arguments[0]))
    return CliRunner().invoke(app, ["restore", name, transcript, *map(str, arguments[1:])])


@pytest.fixture
def workspace(tmp_path: Path) -> ClaudeFolder:
    (tmp_path / "work").mkdir()
    return ClaudeFolder(tmp_path / "work")


def names(workspace: ClaudeFolder) -> list[str]:
    return sorted(path.name for path in workspace.folder.iterdir())


def test_file_gets_its_earlier_content_back(workspace: ClaudeFolder) -> None:
    write_call = workspace.write("a.py", "one\n")
    workspace.edit("a.py", "one", "two")
    (workspace.folder / "a.py").chmod(0o750)
    result = restore("a.py", "--after", write_call, "--yes", workspace=workspace)

    assert result.exit_code == 0, result.output
    assert workspace.content("a.py") == "one\n"
    assert workspace.content("a.py" + BACKUP_SUFFIX) == "two\n"
    assert "-two\n+one\n" in result.stdout
    for name in ("a.py", "a.py" + BACKUP_SUFFIX):
        assert (workspace.folder / name).stat().st_mode & 0o777 == 0o750


def test_deleted_file_gets_its_last_content_back(workspace: ClaudeFolder) -> None:
    workspace.write("a.py", "one\n")
    workspace.edit("a.py", "one", "two")
    (workspace.folder / "a.py").unlink()
    assert restore("a.py", "--yes", workspace=workspace).exit_code == 0
    assert workspace.content("a.py") == "two\n"
    assert names(workspace) == ["a.py"]

    result = restore("a.py", "--yes", workspace=workspace)
    assert "already has this content" in result.stdout
    assert names(workspace) == ["a.py"]


def test_file_that_did_not_exist_yet_is_removed(workspace: ClaudeFolder) -> None:
    write_call = workspace.write("a.py", "one\n")
    result = restore("a.py", "--before", write_call, "--yes", workspace=workspace)
    assert result.exit_code == 0, result.output
    assert "the file did not exist" in result.stdout
    assert names(workspace) == ["a.py" + BACKUP_SUFFIX]

    (workspace.folder / "a.py").write_text("new\n", encoding="utf-8")
    assert restore("a.py", "--before", write_call, "--yes", workspace=workspace).exit_code == 0
    assert names(workspace) == ["a.py" + BACKUP_SUFFIX, f"a.py{BACKUP_SUFFIX}-2"]


def test_no_backup_and_dry_run_are_respected(workspace: ClaudeFolder) -> None:
    write_call = workspace.write("a.py", "one\n")
    workspace.edit("a.py", "one", "two")
    result = restore("a.py", "--after", write_call, "--dry-run", workspace=workspace)
    assert (result.exit_code, workspace.content("a.py"), names(workspace)) == (0, "two\n", ["a.py"])

    restore("a.py", "--after", write_call, "--yes", "--no-backup", workspace=workspace)
    assert (workspace.content("a.py"), names(workspace)) == ("one\n", ["a.py"])
    restore("a.py", "--before", write_call, "--yes", "--no-backup", workspace=workspace)
    assert names(workspace) == []


def test_content_can_be_written_to_another_path(workspace: ClaudeFolder, tmp_path: Path) -> None:
    write_call = workspace.write("a.py", "one\n")
    workspace.edit("a.py", "one", "two")
    target = tmp_path / "copy.py"
    result = restore("a.py", "--after", write_call, "--output", target, "--yes", "--json", workspace=workspace)
    row = json.loads(result.stdout)
    assert (row["action"], row["done"], row["confidence"]) == ("create", True, "exact")
    assert target.read_text(encoding="utf-8") == "one\n"
    assert workspace.content("a.py") == "two\n"

    assert restore("a.py", "--after", write_call, "--output", "-", workspace=workspace).stdout == "one\n"


def test_folder_is_refused_as_target(workspace: ClaudeFolder, tmp_path: Path) -> None:
    workspace.write("a.py", "one\n")

    result = restore("a.py", "--output", tmp_path, "--yes", workspace=workspace)

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{tmp_path}: is a folder; name a file in it" in result.stderr


def test_line_endings_bom_and_links_of_the_file_on_disk_are_kept(workspace: ClaudeFolder) -> None:
    write_call = workspace.write("a.txt", "one\ntwo\n")
    target = workspace.folder / "real.txt"
    target.write_bytes(b"\xef\xbb\xbfone\r\n2\r\n")
    (workspace.folder / "a.txt").unlink()
    (workspace.folder / "a.txt").symlink_to(target)
    result = restore("a.txt", "--after", write_call, "--yes", workspace=workspace)
    assert result.exit_code == 0, result.output
    assert target.read_bytes() == b"\xef\xbb\xbfone\r\ntwo\r\n"
    assert (workspace.folder / "a.txt").is_symlink()
    assert (workspace.folder / ("real.txt" + BACKUP_SUFFIX)).read_bytes() == b"\xef\xbb\xbfone\r\n2\r\n"

    result = restore("a.txt", "--before", write_call, "--yes", workspace=workspace)
    assert (result.exit_code, target.exists()) == (2, True)
    assert "is a link" in result.stderr


@pytest.mark.parametrize("is_current_folder", [True, False])
@pytest.mark.parametrize(
    ("link", "target"),
    [("sub/a.py", "../../outside/a.py"), ("sub", "../outside"), ("sub/a.py", "../../outside/new.py")],
    ids=["file", "folder", "dangling"],
)
def test_link_out_of_the_folder_is_not_written_through(
    workspace: ClaudeFolder, monkeypatch: pytest.MonkeyPatch, is_current_folder: bool, link: str, target: str
) -> None:
    (workspace.folder / "sub").mkdir()
    workspace.write("sub/a.py", "one\n")
    outside = workspace.folder.parent / "outside"
    outside.mkdir()
    (outside / "a.py").write_text("outside\n", encoding="utf-8")
    (workspace.folder / "sub" / "a.py").unlink()
    if link == "sub":
        (workspace.folder / "sub").rmdir()
    (workspace.folder / link).symlink_to(target)
    if is_current_folder:
        monkeypatch.chdir(workspace.folder)

    for arguments in (["--yes"], ["--yes", "--output", str(workspace.folder / "sub" / "a.py")]):
        result = restore("sub/a.py", *arguments, workspace=workspace)
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"{workspace.folder / link}: is a link to {target}, out of the folder" in result.stderr

    assert {path.name: path.read_text() for path in outside.iterdir()} == {"a.py": "outside\n"}
    assert restore("sub/a.py", "--yes", "--output", str(outside / "a.py"), workspace=workspace).exit_code == 0
    assert (outside / "a.py").read_text(encoding="utf-8") == "one\n"


def test_nothing_is_written_without_confirmation(workspace: ClaudeFolder) -> None:
    write_call = workspace.write("a.py", "one\n")
    workspace.edit("a.py", "one", "two")
    result = restore("a.py", "--after", write_call, workspace=workspace)
    assert (result.exit_code, workspace.content("a.py")) == (2, "two\n")
    assert "--yes" in result.stderr


def test_doubtful_content_needs_force(workspace: ClaudeFolder) -> None:
    workspace.write("a.py", "one\n")
    ran = workspace.shell("make format", {"a.py": "ONE\n"})
    result = restore("a.py", "--after", ran, "--yes", workspace=workspace)
    assert (result.exit_code, workspace.content("a.py")) == (2, "ONE\n")
    assert "doubtful" in result.stderr
    assert "--force" in result.stderr

    assert restore("a.py", "--after", ran, "--yes", "--force", workspace=workspace).exit_code == 0
    assert workspace.content("a.py") == "one\n"


def test_partial_content_is_written_only_elsewhere_and_with_force(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    workspace = ClaudeFolder(tmp_path / "work", originals=False)
    (workspace.folder / "a").write_text("".join(f"{n}\n" for n in range(30)), encoding="utf-8")
    changed = workspace.edit("a", "15", "x")
    for arguments in ([], ["--force"], ["--output", str(tmp_path / "b")]):
        result = restore("a", "--before", changed, "--yes", *arguments, workspace=workspace)
        assert result.exit_code == 2
        assert "only parts of the content are known" in result.stderr
    elsewhere = ["--output", str(tmp_path / "b"), "--force"]
    assert restore("a", "--before", changed, "--yes", *elsewhere, workspace=workspace).exit_code == 0
    assert (tmp_path / "b").read_text(encoding="utf-8").startswith("… lines 1-12 are not known …")


def test_missing_folder_is_reported_in_one_line(workspace: ClaudeFolder) -> None:
    (workspace.folder / "sub").mkdir()
    workspace.write("sub/a.py", "one\n")
    (workspace.folder / "sub" / "a.py").unlink()
    (workspace.folder / "sub").rmdir()
    result = restore("sub/a.py", "--yes", workspace=workspace)
    assert result.exit_code == 2
    assert "no such folder" in result.stderr
    assert result.stderr.count("\n") == 1
    assert names(workspace) == []
    preview = restore("sub/a.py", "--dry-run", workspace=workspace)
    assert preview.exit_code == 0
    assert "+one\n" in preview.stdout
    assert "no such folder; create it before you restore" in " ".join(preview.stdout.split())


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full's file system limits")
def test_full_disk_loses_nothing(workspace: ClaudeFolder) -> None:
    import resource
    import signal

    write_call = workspace.write("a.py", "one\n" * 5_000)
    workspace.write("a.py", "two\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    transcript = workspace.transcript().file
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, before[1]))
    try:
        arguments = ["restore", workspace.path("a.py"), transcript, "--after", write_call, "--yes"]
        result = CliRunner().invoke(app, arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert result.exit_code == 2
    assert "file too large" in result.stderr
    assert (workspace.content("a.py"), names(workspace)) == ("two\n", ["a.py"])


@pytest.mark.skipif(os.geteuid() == 0, reason="file permissions do not apply to root")
def test_read_only_folder_loses_nothing(workspace: ClaudeFolder) -> None:
    write_call = workspace.write("a.py", "one\n")
    workspace.edit("a.py", "one", "two")
    (workspace.folder / "a.py").chmod(0o444)
    workspace.folder.chmod(0o555)
    try:
        result = restore("a.py", "--after", write_call, "--yes", workspace=workspace)
    finally:
        workspace.folder.chmod(0o755)
    assert result.exit_code == 2
    assert "permission denied" in result.stderr
    assert (workspace.content("a.py"), names(workspace)) == ("two\n", ["a.py"])


def restore_at_terminal(workspace: ClaudeFolder, answer: bytes, *arguments: str) -> tuple[int, str]:
    """Answer the question of restore at a terminal; return its exit code and output."""
    return run_at_terminal([*TOOLSPAN, "restore", "a.py", workspace.transcript().file, *arguments], answer)


@pytest.mark.usefixtures("fork_server")
def test_user_at_a_terminal_is_asked(workspace: ClaudeFolder) -> None:
    write_call = workspace.write("a.py", "one\n")
    workspace.edit("a.py", "one", "two")
    code, text = restore_at_terminal(workspace, b"n\n", "--after", write_call)
    assert (code, workspace.content("a.py"), names(workspace)) == (2, "two\n", ["a.py"])
    assert f"write {workspace.path('a.py')}?" in text
    assert "nothing was changed" in text

    code, text = restore_at_terminal(workspace, b"y\n", "--before", write_call)
    assert (code, names(workspace)) == (0, ["a.py" + BACKUP_SUFFIX])
    assert "DELETE" in text


def test_only_a_nearby_or_fully_named_file_is_written_with_yes(
    workspace: ClaudeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write("a.py", "one\n")
    (workspace.folder / "a.py").unlink()
    arguments = ["restore", "a.py", workspace.transcript().file, "--yes"]
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, names(workspace)) == (2, [])
    assert "name it by its full path" in result.stderr

    monkeypatch.chdir(workspace.folder)
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert names(workspace) == ["a.py"]
