"""`toolspan.analysis.file_history.archive`: changes to files, and their contents at any time."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from tests.analysis.recorded_edits import ClaudeFolder, CodexFolder
from tests.requirement import requirement
from toolspan.analysis.file_history.archive import (
    FileArchive,
    FileTotals,
    FileTotalsCollector,
    diff_of_change,
    known_text,
)
from toolspan.analysis.file_history.content import ABSENT
from toolspan.analysis.file_history.shell_writes import may_write
from toolspan.diffs.codex_patch import AddFile, DeleteFile, PatchChunk, UpdateFile
from toolspan.diffs.make import make_hunks
from toolspan.errors import Ambiguous, NotFound
from toolspan.reading.transcript import read
from toolspan.testing import TranscriptBuilder, claude_results


@pytest.fixture
def workspace(tmp_path: Path) -> ClaudeFolder:
    folder = tmp_path / "work"
    folder.mkdir()
    return ClaudeFolder(folder)


def archive(workspace: ClaudeFolder) -> FileArchive:
    return FileArchive([workspace.transcript()])


def file_totals(history: FileArchive) -> list[FileTotals]:
    collector = FileTotalsCollector()
    for change in history.changes_and_failures:
        collector.add(change)
    return collector.rows()


def test_each_change_has_kind_lines_and_diff(workspace: ClaudeFolder) -> None:
    write_call = workspace.write("a.py", "one\ntwo\n")
    changed = workspace.edit("a.py", "two", "2\n3")
    history = archive(workspace)

    rows = [(item.call, item.kind, item.added, item.removed, item.is_complete) for item in history.changes]
    assert rows == [(write_call, "created", 2, 0, True), (changed, "edited", 2, 1, True)]
    diff = diff_of_change(history, history.changes[1])
    assert diff.splitlines()[2:] == ["@@ -1,2 +1,3 @@", " one", "-two", "+2", "+3"]
    (row,) = file_totals(history)
    assert (row.path, row.changes, row.added, row.removed) == (workspace.path("a.py"), 2, 4, 1)


def test_calls_that_did_not_take_effect_change_nothing(workspace: ClaudeFolder) -> None:
    write_call = workspace.write("a.py", "one\n")
    for body in (claude_results.rejected(), claude_results.refused("String to replace not history in file.")):
        tool_input = {"file_path": workspace.path("a.py"), "old_string": "x", "new_string": "y"}
        workspace.builder.result(workspace.builder.call("Edit", tool_input), body)
    history = archive(workspace)

    assert [change.call for change in history.changes] == [write_call]
    assert [attempt.state for attempt in history.failed_changes] == ["denied", "failed"]
    assert file_totals(history)[0].unsuccessful == 2


def test_a_file_is_found_by_the_last_parts_of_its_path(workspace: ClaudeFolder) -> None:
    (workspace.folder / "x").mkdir()
    (workspace.folder / "y").mkdir()
    for name in ("x/a.py", "y/a.py", "b.py"):
        workspace.write(name, "1\n")
    history = archive(workspace)

    assert history.find_path("b.py") == workspace.path("b.py")
    assert history.find_path("x/a.py") == workspace.path("x/a.py")
    assert history.find_path("b.py", str(workspace.folder)) == workspace.path("b.py")
    with pytest.raises(Ambiguous, match="2 changed files end in"):
        history.find_path("a.py")
    with pytest.raises(NotFound):
        history.find_path("py")


TEXTS = st.lists(st.sampled_from(["a", "b", "", "\tc", "d é"]), max_size=6).map("\n".join)
NAMES = ("one.py", "two.py")


def act(workspace: ClaudeFolder, data: DataObject) -> None:
    """Draw one more call on any file."""
    name = data.draw(st.sampled_from(NAMES))
    held = workspace.content(name)
    kind = data.draw(st.sampled_from(["write", "edit", "read", "look", "edit all"]))
    if kind == "write" or not isinstance(held, str) or not held:
        workspace.write(name, data.draw(TEXTS))
    elif kind == "read":
        workspace.read(name)
    elif kind == "look":
        workspace.shell(f"cat {name}; ls -l")
    else:
        start = data.draw(st.integers(0, len(held) - 1))
        end = data.draw(st.integers(start + 1, len(held)))
        new = data.draw(TEXTS.filter(lambda text: text != held[start:end]))
        workspace.edit(name, held[start:end], new, every=kind == "edit all")


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data(), st.booleans())
def test_the_content_before_and_after_every_call_is_what_was_on_disk(data: DataObject, originals: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "work").mkdir()
        workspace = ClaudeFolder(Path(folder) / "work", originals=originals)
        for _ in range(data.draw(st.integers(1, 8))):
            act(workspace, data)
        history = archive(workspace)
        for side, (name, call), content in workspace.contents_around_calls():
            recovered = history.content(workspace.path(name), call, side)
            if recovered.confidence in ("exact", "derived"):
                assert recovered.content == content
            elif originals:
                assert isinstance(content, type(ABSENT))  # read before it was created
        assert all(not history.timeline_of(workspace.path(name)).disagreements for name in NAMES)


def test_changes_are_taken_from_requests_without_structured_results(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    workspace = ClaudeFolder(tmp_path / "work", companions=False)
    write_call = workspace.write("a", "one\ntwo\n")
    changed = workspace.edit("a", "two", "2")
    history = archive(workspace)

    assert history.content(workspace.path("a"), write_call, "before").content == ABSENT
    recovered = history.content(workspace.path("a"), changed, "after")
    assert (recovered.content, recovered.confidence) == ("one\n2\n", "derived")


def test_an_edit_is_reverted_from_a_later_read(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    workspace = ClaudeFolder(tmp_path / "work", originals=False)
    (workspace.folder / "a").write_text("one\ntwo\nthree\n", encoding="utf-8")
    changed = workspace.edit("a", "two", "2")
    workspace.read("a")
    history = archive(workspace).content(workspace.path("a"), changed, "before")
    assert (history.content, history.confidence) == ("one\ntwo\nthree\n", "derived")


def test_a_later_read_that_agrees_makes_a_content_exact(workspace: ClaudeFolder) -> None:
    write_call = workspace.write("a", "one\n")
    assert archive(workspace).content(workspace.path("a"), write_call, "after").confidence == "derived"
    workspace.read("a")
    assert archive(workspace).content(workspace.path("a"), write_call, "after").confidence == "exact"


def test_an_unrecorded_change_is_a_disagreement(workspace: ClaudeFolder) -> None:
    write_call = workspace.write("a", "one\n")
    (workspace.folder / "a").write_text("other\n", encoding="utf-8")
    changed = workspace.edit("a", "other", "third")
    history = archive(workspace)

    (disagreement,) = history.timeline_of(workspace.path("a")).disagreements
    assert disagreement.call == changed
    assert "the cause is not recorded" in disagreement.words
    assert history.content(workspace.path("a"), changed, "before").content == "other\n"
    rows = history.content(workspace.path("a"), write_call, "after")
    assert rows.content == "one\n"
    assert any("disagrees" in reason for reason in rows.reasons)


def test_only_the_lines_that_were_read_are_known(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    workspace = ClaudeFolder(tmp_path / "work", originals=False)
    (workspace.folder / "a").write_text("".join(f"{n}\n" for n in range(1, 31)), encoding="utf-8")
    workspace.read("a", offset=10, limit=3)
    changed = workspace.edit("a", "20", "zwanzig")
    history = archive(workspace).content(workspace.path("a"), changed, "before")

    assert (history.confidence, history.content) == ("partial", None)
    lines = known_text(history).splitlines()
    assert lines[:4] == ["… lines 1-9 are not known …", "10", "11", "12"]
    assert lines[5:8] == ["17", "18", "19"]


def test_undecodable_bytes_make_a_content_doubtful(workspace: ClaudeFolder) -> None:
    write_call = workspace.write("a", "caf\ufffd\n")
    workspace.read("a")
    assert archive(workspace).content(workspace.path("a"), write_call, "after").confidence == "doubtful"


def test_a_command_that_may_have_written_the_file_makes_it_doubtful(workspace: ClaudeFolder) -> None:
    workspace.write("a", "one\n")
    ran = workspace.shell("make format")
    history = archive(workspace).content(workspace.path("a"), ran, "after")
    assert (history.content, history.confidence) == ("one\n", "doubtful")
    assert any(ran in reason for reason in history.reasons)

    workspace.read("a")  # it did not
    history = archive(workspace).content(workspace.path("a"), ran, "after")
    assert (history.content, history.confidence) == ("one\n", "exact")


def test_an_unrecorded_change_names_the_suspected_command(workspace: ClaudeFolder) -> None:
    workspace.write("a", "one\n")
    ran = workspace.shell("sed -i s/one/two/ a", {"a": "two\n"})
    changed = workspace.edit("a", "two", "three")
    history = archive(workspace)

    (disagreement,) = history.timeline_of(workspace.path("a")).disagreements
    assert ran in disagreement.words
    assert history.content(workspace.path("a"), changed, "before").confidence == "exact"


def test_a_background_command_makes_all_later_contents_doubtful(workspace: ClaudeFolder) -> None:
    workspace.write("a", "one\n")
    tool_input = {"command": "npm run watch", "run_in_background": True}
    workspace.builder.result(workspace.builder.call("Bash", tool_input), claude_results.in_background("b1", "/tmp/b1"))
    workspace.read("a")
    look = workspace.shell("ls")
    assert archive(workspace).content(workspace.path("a"), look, "after").confidence == "doubtful"


@pytest.mark.parametrize(
    ("command", "doubt"),
    [
        ("cat a.py", False),
        ("git status && ls -l", False),
        ("echo x > /w/b.py", False),
        ("rm /w/other/c.py", False),
        ("mkdir -p /w/x", False),
        ("touch b.py", False),
        ("echo x > a.py", True),
        ("echo x >> /w/a.py", True),
        ("sed -i s/a/b/ a.py", True),
        ("sed -i s/a/b/ *.py", True),
        ("rm -rf /w", True),
        ("cp b.py a.py", True),
        ("mv /tmp/a.py .", True),
        ("cd src && rm a.py", True),
        ("make", True),
        ("python -c 'x'", True),
        ("git checkout a.py", True),
        ("for f in *; do cat $f; done > $OUT", True),
    ],
)
def test_commands_that_may_write_a_file_are_recognized(command: str, doubt: bool) -> None:
    assert may_write(command, "/w/a.py", "/w") is doubt


def test_backups_of_the_client_are_used(tmp_path: Path) -> None:
    name = "0123456789abcdef@v1"
    builder = TranscriptBuilder(session_id="s").prompt("Work")
    path = "/w/a.py"
    retained = {"backupFileName": name, "version": 1, "backupTime": builder.now.isoformat()}
    snapshot = {"messageId": "m", "trackedFileBackups": {path: retained}, "timestamp": ""}
    builder.state("file-history-snapshot", messageId="m", snapshot=snapshot, isSnapshotUpdate=True)
    edit = {"file_path": path, "old_string": "two", "new_string": "2"}
    call = builder.call("Edit", edit, after_ms=1_000)
    builder.result(call, "The file /w/a.py has been updated successfully.", after_ms=1_000)
    file = tmp_path / "projects" / "-w" / "s.jsonl"
    file.parent.mkdir(parents=True)
    builder.write(file)

    assert FileArchive([read(file)]).content(path, call, "before").confidence == "unknown"

    copy = tmp_path / "file-history" / "s" / name
    copy.parent.mkdir(parents=True)
    copy.write_text("one\ntwo\n", encoding="utf-8")
    history = FileArchive([read(file)])
    assert history.content(path, call, "before").confidence == "exact"
    assert history.content(path, call, "after").content == "one\n2\n"


def test_changes_of_subagents_are_included(workspace: ClaudeFolder, tmp_path: Path) -> None:
    workspace.write("a", "one\n")
    tool_input = {"description": "d", "prompt": "p", "subagent_type": "x"}
    task = workspace.builder.call("Task", tool_input)
    helper = workspace.builder.agent(task)
    body = claude_results.edited(workspace.path("a"), "one\n", "one", "two")
    edit = {"file_path": workspace.path("a"), "old_string": "one", "new_string": "two"}
    edit_call = helper.call("Edit", edit, after_ms=500)
    helper.result(edit_call, body, after_ms=500)
    workspace.builder.until(helper)
    report = claude_results.reported(helper.agent_id, "done", prompt="p", calls=1, took_ms=1_000)
    workspace.builder.result(task, report, after_ms=1_000)
    folder = tmp_path / "out"
    folder.mkdir()
    workspace.builder.write(folder / f"{workspace.builder.session_id}.jsonl")

    files = sorted(folder.rglob("*.jsonl"))
    history = FileArchive([read(file) for file in files])
    assert [change.agent is not None for change in history.changes] == [False, True]
    assert history.content(workspace.path("a"), edit_call, "after").content == "two\n"
    assert history.content(workspace.path("a"), task, "after").confidence == "derived"


CODEX_TEXTS = st.lists(st.integers(0, 20), unique=True, max_size=8).map(
    lambda history: tuple(f"line {n}" for n in history)
)


def patch(workspace: CodexFolder, data: DataObject) -> None:
    """Draw one more call of Codex on any file."""
    name = data.draw(st.sampled_from(NAMES))
    held = workspace.content(name)
    heredoc = data.draw(st.booleans())
    kind = data.draw(st.sampled_from(["update", "delete", "add", "move", "cat"]))
    if not isinstance(held, str) or kind == "add":
        workspace.patch(AddFile(path=name, lines=data.draw(CODEX_TEXTS)), heredoc=heredoc)
    elif kind == "cat" and held:
        workspace.cat(name)
    elif kind == "delete":
        workspace.patch(DeleteFile(path=name), heredoc=heredoc)
    else:
        new = "".join(f"{line}\n" for line in data.draw(CODEX_TEXTS))
        hunks = make_hunks(held, new)
        if hunks and all(hunk.old_lines and hunk.new_lines for hunk in hunks):
            chunks = tuple(PatchChunk(lines=hunk.lines) for hunk in hunks)
            target = next(other for other in NAMES if other != name) if kind == "move" else None
            workspace.patch(UpdateFile(path=name, chunks=chunks, move_to=target), heredoc=heredoc)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data(), st.booleans())
def test_contents_of_codex_sessions_are_what_was_on_disk(data: DataObject, events: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "work").mkdir()
        workspace = CodexFolder(Path(folder) / "work", events=events)
        for _ in range(data.draw(st.integers(1, 8))):
            patch(workspace, data)
        history = FileArchive([workspace.transcript()])
        for side, (name, call), content in workspace.contents_around_calls():
            recovered = history.content(workspace.path(name), call, side)
            assert recovered.confidence in ("exact", "derived")
            assert recovered.content == content


@pytest.mark.parametrize("events", [True, False])
@pytest.mark.parametrize("heredoc", [True, False])
def test_codex_patches_are_changes_of_every_kind(tmp_path: Path, events: bool, heredoc: bool) -> None:
    (tmp_path / "work").mkdir()
    workspace = CodexFolder(tmp_path / "work", events=events)
    workspace.patch(AddFile(path="a", lines=("one", "two")), AddFile(path="b", lines=("x",)), heredoc=heredoc)
    chunk = PatchChunk(lines=(" one", "-two", "+2"))
    workspace.patch(UpdateFile(path="a", chunks=(chunk,), move_to="c"), heredoc=heredoc)
    workspace.patch(DeleteFile(path="b"), heredoc=heredoc)
    history = FileArchive([workspace.transcript()])

    rows = [(Path(item.path).name, item.kind, item.added, item.removed) for item in history.changes]
    assert rows[:4] == [
        ("a", "created", 2, 0),
        ("b", "created", 1, 0),
        ("a", "moved", None, None),
        ("c", "moved", 1, 1),
    ]
    assert rows[4][:2] == ("b", "deleted")
    assert "-two\n+2\n" in diff_of_change(history, history.changes[3])
    assert "-x\n" in diff_of_change(history, history.changes[4])


def test_codex_patches_that_failed_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    workspace = CodexFolder(tmp_path / "work")
    workspace.patch(AddFile(path="a", lines=("one",)))
    workspace.lines[-1] = (
        workspace.lines[-1]
        .replace("Success. Updated the following files:", "")
        .replace('\\"exit_code\\": 0', '\\"exit_code\\": 1')
    )
    workspace.lines = [line for line in workspace.lines if "patch_apply_end" not in line]
    history = FileArchive([workspace.transcript()])
    assert history.changes == []
    assert [attempt.state for attempt in history.failed_changes] == ["failed"]


@pytest.mark.parametrize(
    ("message", "confidence"),
    [
        ("apply_patch verification failed: Failed to find expected lines in /w/a", "derived"),
        ("Failed to write file b", "doubtful"),
    ],
)
def test_a_patch_that_failed_halfway_makes_contents_doubtful(tmp_path: Path, message: str, confidence: str) -> None:
    (tmp_path / "work").mkdir()
    workspace = CodexFolder(tmp_path / "work", events=False)
    workspace.patch(AddFile(path="a", lines=("one",)))
    chunk = PatchChunk(lines=("-one", "+two"))
    failed = workspace.patch(UpdateFile(path="a", chunks=(chunk,)), AddFile(path="b", lines=("x",)))
    body = {"output": message, "metadata": {"exit_code": 1, "duration_seconds": 0.1}}
    record = json.loads(workspace.lines[-1])
    record["payload"]["output"] = json.dumps(body)
    workspace.lines[-1] = json.dumps(record)
    history = FileArchive([workspace.transcript()])

    assert [Path(attempt.path).name for attempt in history.failed_changes] == ["a", "b"]
    recovered = history.content(workspace.path("a"), failed, "after")
    assert (recovered.content, recovered.confidence) == ("one\n", confidence)


def test_multi_edits_and_notebooks_are_changes_too(workspace: ClaudeFolder) -> None:
    path, book = workspace.path("a.py"), workspace.path("b.ipynb")
    edits = [{"old_string": "one", "new_string": "1"}, {"old_string": "1\ntwo", "new_string": "1\n2"}]
    tool_input = {"file_path": path, "edits": edits}
    multi_edit = workspace.builder.call("MultiEdit", tool_input)
    structured = {**tool_input, "filePath": path, "originalFileContents": "one\ntwo\n", "structuredPatch": []}
    workspace.builder.result(multi_edit, "Applied 2 edits", structured=structured)
    cell = workspace.builder.call("NotebookEdit", {"notebook_path": book, "new_source": "x"})
    result = {"new_source": "x", "notebook_path": book, "original_file": "{}", "updated_file": "[]"}
    workspace.builder.result(cell, "Updated cell", structured={**result, "edit_mode": "replace"})
    bare = workspace.builder.call("NotebookEdit", {"notebook_path": book, "new_source": "y"})
    workspace.builder.result(bare, "Updated cell", structured={"new_source": "y", "cell_type": "code"})
    history = archive(workspace)

    changes = [(item.call, item.added, item.removed, item.is_complete) for item in history.changes]
    assert changes == [(multi_edit, 2, 2, True), (cell, 1, 1, True), (bare, None, None, False)]
    assert history.content(path, multi_edit, "after").content == "1\n2\n"
    assert history.content(book, cell, "before").content == "{}"
    assert history.content(book, bare, "after").confidence == "unknown"


def test_an_edit_changed_by_the_user_is_taken_from_the_patch(workspace: ClaudeFolder) -> None:
    path = workspace.path("a.py")
    tool_input = {"file_path": path, "old_string": "one", "new_string": "1"}
    body = claude_results.edited(path, "one\ntwo\n", "one", "eins")
    assert isinstance(body.structured, dict)
    rows = {**body.structured, "newString": "1", "userModified": True}
    call = workspace.builder.call("Edit", tool_input)
    workspace.builder.result(call, "updated", structured=rows)
    assert archive(workspace).content(path, call, "after").content == "eins\ntwo\n"


def test_tabs_that_a_patch_shows_as_blanks_are_kept(workspace: ClaudeFolder) -> None:
    path, before, new = workspace.path("a.go"), "a\nend\n\tmore\n", "end\nfunc {\n\tone\n}"
    body = claude_results.edited(path, before, "end", new)
    assert isinstance(body.structured, dict)
    output = [line.replace("\t", "  ") for line in (" a", " end", "+func {", "+\tone", "+}")]
    hunk = {"oldStart": 1, "oldLines": 2, "newStart": 1, "newLines": 5, "lines": output}
    rows = {**body.structured, "structuredPatch": [hunk]}
    tool_input = {"file_path": path, "old_string": "end", "new_string": new}
    call = workspace.builder.call("Edit", tool_input)
    workspace.builder.result(call, "updated", structured=rows)
    changed = workspace.builder.call("Edit", tool_input)
    workspace.builder.result(changed, "updated", structured={**rows, "userModified": True})
    history = archive(workspace)

    assert history.content(path, call, "after").content == before.replace("end", new)
    by_person = history.content(path, changed, "after")
    assert (by_person.content, by_person.confidence) == (None, "partial")


def test_lines_are_not_restored_from_a_patch_that_lost_their_tabs(tmp_path: Path) -> None:
    workspace = ClaudeFolder(tmp_path, originals=False)
    for name, rest in (("tabs", "a\nb\nc\n\tlast\n"), ("blanks", "a\nb\nc\n  last\n")):
        (tmp_path / name).write_text(f"all:\n  one\n{rest}", encoding="utf-8")
        workspace.write(name, f"all:\n{rest}")
    history = FileArchive([read(workspace.builder.write(tmp_path / "s.jsonl"))])
    tabs, blanks = [change.call for change in history.changes]

    assert history.content(workspace.path("tabs"), tabs, "before").content is None
    assert history.content(workspace.path("blanks"), blanks, "before").content == workspace.before["blanks", blanks]


def test_scripts_and_unknown_tools_make_contents_doubtful(workspace: ClaudeFolder) -> None:
    workspace.write("a.py", "one\n")
    other = workspace.builder.call("mcp__files__put", {"name": "b.py"})
    workspace.builder.result(other, claude_results.mcp_text("ok"))
    assert archive(workspace).content(workspace.path("a.py"), other, "after").confidence == "derived"
    same = workspace.builder.call("mcp__files__put", {"name": "a.py"})
    workspace.builder.result(same, claude_results.mcp_text("ok"))
    assert archive(workspace).content(workspace.path("a.py"), same, "after").confidence == "doubtful"


def test_a_content_is_doubtful_across_sessions(tmp_path: Path) -> None:
    path = "/w/a.py"
    first = TranscriptBuilder(session_id="one").prompt("go")
    write_call = first.call("Write", {"file_path": path, "content": "1\n"})
    first.result(write_call, claude_results.written(path, "1\n"), after_ms=10)
    second = TranscriptBuilder(session_id="two").until(first).prompt("go on", after_ms=1_000)
    edit = {"file_path": path, "old_string": "1", "new_string": "2"}
    changed = second.call("Edit", edit)
    second.result(changed, "The file has been updated successfully.", after_ms=10)
    files = [item.write(tmp_path / f"{item.session_id}.jsonl") for item in (first, second)]
    history = FileArchive([read(file) for file in files])

    assert history.content(path, write_call, "after").confidence == "derived"
    rows = history.content(path, changed, "after")
    assert (rows.content, rows.confidence) == ("2\n", "doubtful")


def test_a_command_that_states_what_it_writes_is_a_change(workspace: ClaudeFolder) -> None:
    path = workspace.path("a.py")
    write_call = workspace.shell(f"cat > {path} <<'EOF'\none $HOME\nEOF", {"a.py": "one $HOME\n"})
    append = workspace.shell(f"cat >> {path} <<'EOF'\ntwo\nEOF", {"a.py": "one $HOME\ntwo\n"})
    deletion = workspace.shell(f"rm -f {path}", {"a.py": None})
    history = archive(workspace)

    changes = [(item.call, item.kind, item.added) for item in history.changes]
    assert changes == [(write_call, "created", 1), (append, "edited", 1), (deletion, "deleted", None)]
    for side, (name, call), content in workspace.contents_around_calls():
        recovered = history.content(workspace.path(name), call, side)
        assert (recovered.content, recovered.confidence) == (content, "derived")


@pytest.mark.parametrize(
    "command",
    [
        "cat > a.py <<'EOF'\nx\nEOF",  # the shell may be in another folder
        "cat > {} <<EOF\n$X\nEOF",
        "cat > {} <<-'EOF'\n\tx\nEOF",
        "cat > {} <<'EOF'\nx\nEOF\nmake",
        "rm -rf {}",
        "rm {}*",
        "X=1 cat > {} <<'EOF'\nx\nEOF",
    ],
)
def test_a_command_that_does_not_state_what_it_writes_is_not_a_change(workspace: ClaudeFolder, command: str) -> None:
    workspace.write("a.py", "one\n")
    ran = workspace.shell(command.format(workspace.path("a.py")))
    history = archive(workspace)
    assert len(history.changes) == 1
    assert history.content(workspace.path("a.py"), ran, "after").confidence == "doubtful"


def test_a_command_with_unexpected_output_is_not_a_change(workspace: ClaudeFolder) -> None:
    ran = workspace.shell(f"cat > {workspace.path('a')} <<'EOF'\n`x`\nEOF", {"a": "\n"}, "x: not history")
    assert archive(workspace).changes == []
    assert archive(workspace).content(workspace.path("a"), ran, "after").confidence == "unknown"


def run_recording_changes(
    workspace: ClaudeFolder, command: str, files: list[dict[str, object]], changed: list[str]
) -> str:
    """Record a command with the changes that the client found in the working tree."""
    recorded = {"files": files, "moreFiles": len(changed) - len(files), "changedFiles": changed}
    body = claude_results.ran("")
    assert isinstance(body.structured, dict)
    call = workspace.builder.call("Bash", {"command": command})
    workspace.builder.result(call, replace(body, structured={**body.structured, "bashEditDiff": recorded}))
    return call


def edited_file(path: str, old: tuple[int, int], new: tuple[int, int], *lines: str, **kind: bool) -> dict[str, object]:
    hunk = {"oldStart": old[0], "oldLines": old[1], "newStart": new[0], "newLines": new[1], "lines": lines}
    return {"filePath": path, "hunks": [hunk] if lines else [], **kind}


@requirement("files.command-changes")
def test_changes_that_the_client_found_after_a_command_are_changes(workspace: ClaudeFolder) -> None:
    path, other, big = (workspace.path(name) for name in ("a.py", "b.py", "big.bin"))
    written = edited_file(path, (1, 0), (1, 2), "+one", "+two", "\\ No newline at end of file", created=True)
    created = run_recording_changes(workspace, "./make-files", [written], [path, big])
    edit = edited_file(path, (1, 2), (1, 2), "-one", "+1", " two", "\\ No newline at end of file")
    empty = edited_file(other, (0, 0), (0, 0), created=True)
    edited = run_recording_changes(workspace, "apply-fixes", [edit, empty], [path, other])
    gone = edited_file(path, (1, 2), (0, 0), "-1", "-two", "\\ No newline at end of file", deleted=True)
    deleted = run_recording_changes(workspace, f"rm {path}", [gone], [path])
    history = archive(workspace)

    assert [(item.call, item.path, item.kind, item.added, item.removed) for item in history.changes] == [
        (created, path, "created", 2, 0),
        (created, big, "edited", None, None),
        (edited, path, "edited", 1, 1),
        (edited, other, "created", 0, 0),
        (deleted, path, "deleted", 0, 2),
    ]
    assert [item.is_complete for item in history.changes] == [True, False, True, True, True]
    assert history.content(path, created, "before").content == ABSENT
    assert history.content(path, created, "after").content == "one\ntwo"
    assert history.content(path, deleted, "before").content == "1\ntwo"
    assert history.content(path, deleted, "after").content == ABSENT
    assert history.content(other, edited, "after").content == ""
    assert history.content(big, created, "after").confidence == "unknown"


def test_a_command_with_recorded_changes_may_have_written_other_files(workspace: ClaudeFolder) -> None:
    workspace.write("ignored.log", "1\n")
    workspace.write("a.py", "1\n")
    edit = edited_file(workspace.path("a.py"), (1, 1), (1, 1), "-1", "+2")
    call = run_recording_changes(workspace, "make", [edit], [workspace.path("a.py")])
    history = archive(workspace)

    assert history.content(workspace.path("a.py"), call, "after").confidence == "derived"
    assert history.content(workspace.path("ignored.log"), call, "after").confidence == "doubtful"


def test_a_moved_file_stays_doubtful(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    workspace = CodexFolder(tmp_path / "work", events=False)
    workspace.patch(AddFile(path="a", lines=("one",)))
    workspace.run("make format")
    chunk = PatchChunk(lines=("-one", "+two"))
    moved = workspace.patch(UpdateFile(path="a", chunks=(chunk,), move_to="b"))
    history = FileArchive([workspace.transcript()]).content(workspace.path("b"), moved, "after")
    assert (history.content, history.confidence) == ("two\n", "doubtful")
    assert any("call_0002" in reason for reason in history.reasons)


def test_only_the_first_doubts_are_listed(workspace: ClaudeFolder) -> None:
    workspace.write("a", "one\n")
    calls = [workspace.shell(f"make {n}") for n in range(10)]
    history = archive(workspace).content(workspace.path("a"), calls[-1], "after")
    assert history.reasons[-1] == "and 6 more such calls"
    assert len(history.reasons) == 6
