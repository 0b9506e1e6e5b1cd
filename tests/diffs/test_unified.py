from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from tests.diffs.diffs import NO_NEWLINE, hunk, hunks_between, texts
from toolspan.diffs import DiffKind, PatchError, unified

NAMES = ["plain.txt", "two words.txt", 'quo"ted\\.txt', "tab\tand\nline.txt", "dir/é\u2028.txt", "\x01\x7f"]

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
needs_patch = pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")


def put(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes().decode() for path in files}


def feed(folder: Path, diff: str, *command: str) -> None:
    """Pass a diff to a program that applies it in a folder; repositories above it are ignored."""
    environment = {
        **os.environ,
        "GIT_CEILING_DIRECTORIES": str(folder.parent),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    done = subprocess.run(command, cwd=folder, input=diff.encode(), capture_output=True, env=environment, check=False)
    assert done.returncode == 0, (done.stderr.decode(), diff)


def patched(old: str, new: str, name: str, *command: str, context: int = 3) -> dict[str, str]:
    """Apply the diff between two texts with a program, and return the files of its folder."""
    hunks = hunks_between(old, new, context=context)
    change: DiffKind = "update" if old and new else "delete" if old else "create"
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        if old:
            put(folder, name, old)
        if old != new:
            feed(folder, unified(hunks, name, change=change), *command)
        return contents(folder)


def test_diff_has_the_git_format() -> None:
    hunks = [hunk("-1,3 +1,3", " a", "-b", "+B", " c"), hunk("-9,1 +9,1", "-i", "+I", NO_NEWLINE)]

    assert unified(hunks, "src/x.py") == snapshot("""\
--- a/src/x.py
+++ b/src/x.py
@@ -1,3 +1,3 @@
 a
-b
+B
 c
@@ -9,1 +9,1 @@
-i
+I
\\ No newline at end of file
""")


def test_creation_and_removal_name_dev_null() -> None:
    assert unified([hunk("-1,0 +1,1", "+a")], "x", change="create") == snapshot("""\
--- /dev/null
+++ b/x
@@ -0,0 +1,1 @@
+a
""")
    assert unified([hunk("-1,1 +1,0", "-a")], "x", change="delete") == snapshot("""\
--- a/x
+++ /dev/null
@@ -1,1 +0,0 @@
-a
""")


def test_rename_has_the_lines_of_git() -> None:
    change = hunk("-1,1 +1,1", "-a", "+b")

    assert unified([change], "new", old_path="old") == snapshot("""\
diff --git a/old b/new
rename from old
rename to new
--- a/old
+++ b/new
@@ -1,1 +1,1 @@
-a
+b
""")


def test_leading_slash_of_an_absolute_path_is_dropped() -> None:
    diff = unified([hunk("-1,1 +1,1", "-a", "+b")], "/home/someone/x")

    assert diff.splitlines()[:2] == ["--- a/home/someone/x", "+++ b/home/someone/x"]


def test_name_with_a_space_ends_in_a_tab() -> None:
    diff = unified([hunk("-1,1 +1,1", "-a", "+b")], "two words")

    assert diff.split("\n")[:2] == ["--- a/two words\t", "+++ b/two words\t"]


def test_raw_byte_in_a_name_is_written_in_octal() -> None:
    diff = unified([hunk("-1,1 +1,1", "-a", "+b")], os.fsdecode(b"x\xff"))

    assert diff.split("\n")[0] == '--- "a/x\\377"'


def test_diff_without_changes_is_empty() -> None:
    assert unified([], "x") == ""


def test_invalid_hunks_are_refused() -> None:
    smuggled = hunk("-1,0 +1,1", "+a\n--- a/other\n+++ b/other")

    with pytest.raises(PatchError, match="Hunk 1 has a line break inside line 1"):
        unified([smuggled], "x")


@needs_git
@given(texts, texts, st.sampled_from(NAMES), st.sampled_from([1, 3]))
def test_git_applies_every_diff(old: str, new: str, name: str, context: int) -> None:
    result = patched(old, new, name, "git", "apply", "--unidiff-zero", context=context)

    assert result == ({name: new} if new else {})


@needs_patch
@given(texts, texts, st.sampled_from(NAMES))
def test_patch_applies_every_diff(old: str, new: str, name: str) -> None:
    result = patched(old, new, name, "patch", "-p1", "--binary")

    assert result == ({name: new} if new else {})


@needs_git
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("old", "new"), [("a\n", "b\n"), ("a\n", "a\n")])
def test_git_renames(tmp_path: Path, name: str, old: str, new: str) -> None:
    put(tmp_path, "before", old)

    diff = unified(hunks_between(old, new), name, old_path="before")
    feed(tmp_path, diff, "git", "apply")

    assert contents(tmp_path) == {name: new}


@needs_git
def test_git_creates_and_removes_empty_files(tmp_path: Path) -> None:
    put(tmp_path, "old", "")

    feed(tmp_path, unified([], "new", change="create"), "git", "apply")
    feed(tmp_path, unified([], "old", change="delete"), "git", "apply")

    assert contents(tmp_path) == {"new": ""}


@needs_git
def test_git_applies_a_patch_with_a_note_on_an_earlier_line(tmp_path: Path) -> None:
    put(tmp_path, "x", "a\nb\nc")
    change = hunk("-1,3 +1,4", " a", "+x", " b", NO_NEWLINE, "-c", "+d", NO_NEWLINE)

    feed(tmp_path, unified([change], "x"), "git", "apply")

    assert contents(tmp_path) == {"x": "a\nx\nb\nd"}
