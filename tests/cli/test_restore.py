"""`toolspan restore`: a file as it was, written all or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.analysis.file_acts import Desk
from tests.fork_server import TOOLSPAN
from tests.requirement import requirement
from toolspan.cli.app import app
from toolspan.cli.restore import BACKUP_SUFFIX


def restore(*arguments: str | Path, desk: Desk) -> Result:
    transcript = desk.transcript().file
    name = desk.path(str(arguments[0]))
    return CliRunner().invoke(app, ["restore", name, transcript, *map(str, arguments[1:])])


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "work").mkdir()
    return Desk(tmp_path / "work")


def names(desk: Desk) -> list[str]:
    return sorted(path.name for path in desk.folder.iterdir())


@requirement("restore.command")
def test_file_gets_its_earlier_content_back(desk: Desk) -> None:
    made = desk.write("a.py", "one\n")
    desk.edit("a.py", "one", "two")
    (desk.folder / "a.py").chmod(0o750)
    done = restore("a.py", "--after", made, "--yes", desk=desk)

    assert done.exit_code == 0, done.output
    assert desk.held("a.py") == "one\n"
    assert desk.held("a.py" + BACKUP_SUFFIX) == "two\n"
    assert "-two\n+one\n" in done.stdout
    for name in ("a.py", "a.py" + BACKUP_SUFFIX):
        assert (desk.folder / name).stat().st_mode & 0o777 == 0o750


@requirement("restore.command")
def test_deleted_file_gets_its_last_content_back(desk: Desk) -> None:
    desk.write("a.py", "one\n")
    desk.edit("a.py", "one", "two")
    (desk.folder / "a.py").unlink()
    assert restore("a.py", "--yes", desk=desk).exit_code == 0
    assert desk.held("a.py") == "two\n"
    assert names(desk) == ["a.py"]

    done = restore("a.py", "--yes", desk=desk)
    assert "already has this content" in done.stdout
    assert names(desk) == ["a.py"]


@requirement("restore.command")
def test_file_that_did_not_exist_yet_is_removed(desk: Desk) -> None:
    made = desk.write("a.py", "one\n")
    done = restore("a.py", "--before", made, "--yes", desk=desk)
    assert done.exit_code == 0, done.output
    assert "the file did not exist" in done.stdout
    assert names(desk) == ["a.py" + BACKUP_SUFFIX]

    (desk.folder / "a.py").write_text("new\n", encoding="utf-8")
    assert restore("a.py", "--before", made, "--yes", desk=desk).exit_code == 0
    assert names(desk) == ["a.py" + BACKUP_SUFFIX, f"a.py{BACKUP_SUFFIX}-2"]


@requirement("restore.command")
def test_no_backup_and_dry_run_are_respected(desk: Desk) -> None:
    made = desk.write("a.py", "one\n")
    desk.edit("a.py", "one", "two")
    done = restore("a.py", "--after", made, "--dry-run", desk=desk)
    assert (done.exit_code, desk.held("a.py"), names(desk)) == (0, "two\n", ["a.py"])

    restore("a.py", "--after", made, "--yes", "--no-backup", desk=desk)
    assert (desk.held("a.py"), names(desk)) == ("one\n", ["a.py"])
    restore("a.py", "--before", made, "--yes", "--no-backup", desk=desk)
    assert names(desk) == []


@requirement("restore.command")
def test_content_can_be_written_to_another_path(desk: Desk, tmp_path: Path) -> None:
    made = desk.write("a.py", "one\n")
    desk.edit("a.py", "one", "two")
    target = tmp_path / "copy.py"
    done = restore("a.py", "--after", made, "--output", target, "--yes", "--json", desk=desk)
    row = json.loads(done.stdout)
    assert (row["action"], row["done"], row["confidence"]) == ("create", True, "exact")
    assert target.read_text(encoding="utf-8") == "one\n"
    assert desk.held("a.py") == "two\n"

    assert restore("a.py", "--after", made, "--output", "-", desk=desk).stdout == "one\n"


@requirement("restore.folder")
def test_folder_is_refused_as_target(desk: Desk, tmp_path: Path) -> None:
    desk.write("a.py", "one\n")

    done = restore("a.py", "--output", tmp_path, "--yes", desk=desk)

    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{tmp_path}: is a folder; name a file in it" in done.stderr


@requirement("restore.command")
def test_line_endings_bom_and_links_of_the_file_on_disk_are_kept(desk: Desk, tmp_path: Path) -> None:
    made = desk.write("a.txt", "one\ntwo\n")
    target = tmp_path / "real.txt"
    target.write_bytes(b"\xef\xbb\xbfone\r\n2\r\n")
    (desk.folder / "a.txt").unlink()
    (desk.folder / "a.txt").symlink_to(target)
    done = restore("a.txt", "--after", made, "--yes", desk=desk)
    assert done.exit_code == 0, done.output
    assert target.read_bytes() == b"\xef\xbb\xbfone\r\ntwo\r\n"
    assert (desk.folder / "a.txt").is_symlink()
    assert (tmp_path / ("real.txt" + BACKUP_SUFFIX)).read_bytes() == b"\xef\xbb\xbfone\r\n2\r\n"

    done = restore("a.txt", "--before", made, "--yes", desk=desk)
    assert (done.exit_code, target.exists()) == (2, True)
    assert "is a link" in done.stderr


@requirement("restore.refuses")
def test_nothing_is_written_without_confirmation(desk: Desk) -> None:
    made = desk.write("a.py", "one\n")
    desk.edit("a.py", "one", "two")
    done = restore("a.py", "--after", made, desk=desk)
    assert (done.exit_code, desk.held("a.py")) == (2, "two\n")
    assert "--yes" in done.stderr


@requirement("restore.refuses")
def test_doubtful_content_needs_force(desk: Desk) -> None:
    desk.write("a.py", "one\n")
    ran = desk.shell("make format", {"a.py": "ONE\n"})
    done = restore("a.py", "--after", ran, "--yes", desk=desk)
    assert (done.exit_code, desk.held("a.py")) == (2, "ONE\n")
    assert "doubtful" in done.stderr
    assert "--force" in done.stderr

    assert restore("a.py", "--after", ran, "--yes", "--force", desk=desk).exit_code == 0
    assert desk.held("a.py") == "one\n"


@requirement("restore.refuses")
def test_partial_content_is_written_only_elsewhere_and_with_force(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    desk = Desk(tmp_path / "work", originals=False)
    (desk.folder / "a").write_text("".join(f"{n}\n" for n in range(30)), encoding="utf-8")
    changed = desk.edit("a", "15", "x")
    for arguments in ([], ["--force"], ["--output", str(tmp_path / "b")]):
        done = restore("a", "--before", changed, "--yes", *arguments, desk=desk)
        assert done.exit_code == 2
        assert "only parts of the content are known" in done.stderr
    elsewhere = ["--output", str(tmp_path / "b"), "--force"]
    assert restore("a", "--before", changed, "--yes", *elsewhere, desk=desk).exit_code == 0
    assert (tmp_path / "b").read_text(encoding="utf-8").startswith("… lines 1-12 are not known …")


@requirement("restore.refuses")
def test_missing_folder_is_reported_in_one_line(desk: Desk) -> None:
    (desk.folder / "sub").mkdir()
    desk.write("sub/a.py", "one\n")
    (desk.folder / "sub" / "a.py").unlink()
    (desk.folder / "sub").rmdir()
    done = restore("sub/a.py", "--yes", desk=desk)
    assert done.exit_code == 2
    assert "no such folder" in done.stderr
    assert done.stderr.count("\n") == 1
    assert names(desk) == []


@requirement("restore.refuses")
@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full's file system limits")
def test_full_disk_loses_nothing(desk: Desk) -> None:
    import resource
    import signal

    made = desk.write("a.py", "one\n" * 5_000)
    desk.write("a.py", "two\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    transcript = desk.transcript().file
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, before[1]))
    try:
        arguments = ["restore", desk.path("a.py"), transcript, "--after", made, "--yes"]
        done = CliRunner().invoke(app, arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert done.exit_code == 2
    assert "file too large" in done.stderr
    assert (desk.held("a.py"), names(desk)) == ("two\n", ["a.py"])


@requirement("restore.refuses")
@pytest.mark.skipif(os.geteuid() == 0, reason="file permissions do not apply to root")
def test_read_only_folder_loses_nothing(desk: Desk) -> None:
    made = desk.write("a.py", "one\n")
    desk.edit("a.py", "one", "two")
    (desk.folder / "a.py").chmod(0o444)
    desk.folder.chmod(0o555)
    try:
        done = restore("a.py", "--after", made, "--yes", desk=desk)
    finally:
        desk.folder.chmod(0o755)
    assert done.exit_code == 2
    assert "permission denied" in done.stderr
    assert (desk.held("a.py"), names(desk)) == ("two\n", ["a.py"])


def answered(desk: Desk, answer: bytes, *arguments: str) -> tuple[int, str]:
    """Return the output of restore at a terminal after this answer, and its exit code."""
    ours, theirs = os.openpty()
    command = [*TOOLSPAN, "restore", "a.py", desk.transcript().file, *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, answer)
        text = b""
        with suppress(OSError):  # the terminal is gone when the process is
            while piece := os.read(ours, 4_096):
                text += piece
        os.close(ours)
        return process.wait(30), text.decode()


@requirement("restore.command")
@pytest.mark.usefixtures("fork_server")
def test_user_at_a_terminal_is_asked(desk: Desk) -> None:
    made = desk.write("a.py", "one\n")
    desk.edit("a.py", "one", "two")
    code, text = answered(desk, b"n\n", "--after", made)
    assert (code, desk.held("a.py"), names(desk)) == (2, "two\n", ["a.py"])
    assert f"write {desk.path('a.py')}?" in text
    assert "nothing was changed" in text

    code, text = answered(desk, b"y\n", "--before", made)
    assert (code, names(desk)) == (0, ["a.py" + BACKUP_SUFFIX])
    assert "DELETE" in text


@requirement("restore.refuses")
def test_only_a_nearby_or_fully_named_file_is_written_with_yes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write("a.py", "one\n")
    (desk.folder / "a.py").unlink()
    arguments = ["restore", "a.py", desk.transcript().file, "--yes"]
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, names(desk)) == (2, [])
    assert "name it by its full path" in done.stderr

    monkeypatch.chdir(desk.folder)
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert names(desk) == ["a.py"]
