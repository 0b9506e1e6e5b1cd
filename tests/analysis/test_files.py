"""`toolspan.analysis.file_history.archive`: what was done to files, and what they held at any time."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from tests.analysis.file_acts import Desk, Rollout
from tests.requirement import requirement
from toolspan.analysis.file_history.archive import FileArchive, diff_of_change, known_text
from toolspan.analysis.file_history.content import ABSENT
from toolspan.analysis.file_history.shell_writes import may_write
from toolspan.diffs.codex_patch import AddFile, DeleteFile, PatchChunk, UpdateFile
from toolspan.diffs.make import make_hunks
from toolspan.errors import Ambiguous, NotFound
from toolspan.reading.transcript import read
from toolspan.testing import TranscriptBuilder, claude_results


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    folder = tmp_path / "work"
    folder.mkdir()
    return Desk(folder)


def archive(desk: Desk) -> FileArchive:
    return FileArchive([desk.transcript()])


@requirement("files.changes")
def test_each_change_is_told_with_its_kind_lines_and_diff(desk: Desk) -> None:
    made = desk.write("a.py", "one\ntwo\n")
    changed = desk.edit("a.py", "two", "2\n3")
    found = archive(desk)

    told = [(one.call, one.kind, one.added, one.removed, one.is_complete) for one in found.changes]
    assert told == [(made, "created", 2, 0, True), (changed, "edited", 2, 1, True)]
    diff = diff_of_change(found, found.changes[1])
    assert diff.splitlines()[2:] == ["@@ -1,2 +1,3 @@", " one", "-two", "+2", "+3"]
    (row,) = found.file_totals()
    assert (row.path, row.changes, row.added, row.removed) == (desk.path("a.py"), 2, 4, 1)


@requirement("files.changes")
def test_calls_that_did_not_take_effect_change_nothing(desk: Desk) -> None:
    made = desk.write("a.py", "one\n")
    for body in (claude_results.rejected(), claude_results.refused("String to replace not found in file.")):
        asked = {"file_path": desk.path("a.py"), "old_string": "x", "new_string": "y"}
        desk.story.result(desk.story.call("Edit", asked), body)
    found = archive(desk)

    assert [change.call for change in found.changes] == [made]
    assert [attempt.state for attempt in found.failed_changes] == ["denied", "failed"]
    assert found.file_totals()[0].errors == 2


@requirement("files.changes")
def test_a_file_is_found_by_the_last_parts_of_its_path(desk: Desk) -> None:
    (desk.folder / "x").mkdir()
    (desk.folder / "y").mkdir()
    for name in ("x/a.py", "y/a.py", "b.py"):
        desk.write(name, "1\n")
    found = archive(desk)

    assert found.find_path("b.py") == desk.path("b.py")
    assert found.find_path("x/a.py") == desk.path("x/a.py")
    assert found.find_path("b.py", str(desk.folder)) == desk.path("b.py")
    with pytest.raises(Ambiguous, match="2 changed files end in"):
        found.find_path("a.py")
    with pytest.raises(NotFound):
        found.find_path("py")


TEXTS = st.lists(st.sampled_from(["a", "b", "", "\tc", "d é"]), max_size=6).map("\n".join)
NAMES = ("one.py", "two.py")


def act(desk: Desk, data: DataObject) -> None:
    """One more call, of any sort, on any file."""
    name = data.draw(st.sampled_from(NAMES))
    held = desk.held(name)
    kind = data.draw(st.sampled_from(["write", "edit", "read", "look", "edit all"]))
    if kind == "write" or not isinstance(held, str) or not held:
        desk.write(name, data.draw(TEXTS))
    elif kind == "read":
        desk.read(name)
    elif kind == "look":
        desk.shell(f"cat {name}; ls -l")
    else:
        start = data.draw(st.integers(0, len(held) - 1))
        end = data.draw(st.integers(start + 1, len(held)))
        new = data.draw(TEXTS.filter(lambda text: text != held[start:end]))
        desk.edit(name, held[start:end], new, every=kind == "edit all")


@requirement("files.content")
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data(), st.booleans())
def test_before_and_after_every_call_it_is_what_was_on_disk(data: DataObject, originals: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "work").mkdir()
        desk = Desk(Path(folder) / "work", originals=originals)
        for _ in range(data.draw(st.integers(1, 8))):
            act(desk, data)
        found = archive(desk)
        for side, (name, call), content in desk.held_around():
            recovered = found.content(desk.path(name), call, side)
            if recovered.confidence in ("exact", "derived"):
                assert recovered.content == content
            elif originals:
                assert isinstance(content, type(ABSENT))  # looked at before it was made
        assert all(not found.timeline_of(desk.path(name)).disagreements for name in NAMES)


@requirement("files.content")
def test_without_companions_the_requests_tell_what_was_done(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    desk = Desk(tmp_path / "work", companions=False)
    made = desk.write("a", "one\ntwo\n")
    changed = desk.edit("a", "two", "2")
    found = archive(desk)

    assert found.content(desk.path("a"), made, "before").content == ABSENT
    recovered = found.content(desk.path("a"), changed, "after")
    assert (recovered.content, recovered.confidence) == ("one\n2\n", "derived")


@requirement("files.content")
def test_an_edit_is_taken_back_from_what_was_read_later(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    desk = Desk(tmp_path / "work", originals=False)
    (desk.folder / "a").write_text("one\ntwo\nthree\n", encoding="utf-8")
    changed = desk.edit("a", "two", "2")
    desk.read("a")
    found = archive(desk).content(desk.path("a"), changed, "before")
    assert (found.content, found.confidence) == ("one\ntwo\nthree\n", "derived")


@requirement("files.confidence")
def test_a_later_read_that_agrees_makes_a_content_exact(desk: Desk) -> None:
    made = desk.write("a", "one\n")
    assert archive(desk).content(desk.path("a"), made, "after").confidence == "derived"
    desk.read("a")
    assert archive(desk).content(desk.path("a"), made, "after").confidence == "exact"


@requirement("files.confidence")
def test_what_changed_behind_the_records_is_told(desk: Desk) -> None:
    made = desk.write("a", "one\n")
    (desk.folder / "a").write_text("other\n", encoding="utf-8")
    changed = desk.edit("a", "other", "third")
    found = archive(desk)

    (disagreement,) = found.timeline_of(desk.path("a")).disagreements
    assert disagreement.call == changed
    assert "nobody recorded by what" in disagreement.words
    assert found.content(desk.path("a"), changed, "before").content == "other\n"
    told = found.content(desk.path("a"), made, "after")
    assert told.content == "one\n"
    assert any("disagrees" in reason for reason in told.reasons)


@requirement("files.confidence")
def test_of_a_file_that_was_read_in_part_only_those_lines_are_known(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    desk = Desk(tmp_path / "work", originals=False)
    (desk.folder / "a").write_text("".join(f"{n}\n" for n in range(1, 31)), encoding="utf-8")
    desk.read("a", offset=10, limit=3)
    changed = desk.edit("a", "20", "zwanzig")
    found = archive(desk).content(desk.path("a"), changed, "before")

    assert (found.confidence, found.content) == ("partial", None)
    lines = known_text(found).splitlines()
    assert lines[:4] == ["… lines 1-9 are not known …", "10", "11", "12"]
    assert lines[5:8] == ["17", "18", "19"]


@requirement("files.confidence")
def test_bytes_that_are_no_text_make_a_content_doubtful(desk: Desk) -> None:
    made = desk.write("a", "caf\ufffd\n")
    desk.read("a")
    assert archive(desk).content(desk.path("a"), made, "after").confidence == "doubtful"


@requirement("files.doubt")
def test_a_command_that_may_have_written_the_file_is_a_doubt(desk: Desk) -> None:
    desk.write("a", "one\n")
    ran = desk.shell("make format")
    found = archive(desk).content(desk.path("a"), ran, "after")
    assert (found.content, found.confidence) == ("one\n", "doubtful")
    assert any(ran in reason for reason in found.reasons)

    desk.read("a")  # it did not
    found = archive(desk).content(desk.path("a"), ran, "after")
    assert (found.content, found.confidence) == ("one\n", "exact")


@requirement("files.doubt")
def test_a_change_by_a_command_is_told_with_the_command(desk: Desk) -> None:
    desk.write("a", "one\n")
    ran = desk.shell("sed -i s/one/two/ a", {"a": "two\n"})
    changed = desk.edit("a", "two", "three")
    found = archive(desk)

    (disagreement,) = found.timeline_of(desk.path("a")).disagreements
    assert ran in disagreement.words
    assert found.content(desk.path("a"), changed, "before").confidence == "exact"


@requirement("files.doubt")
def test_a_command_in_the_background_is_a_doubt_for_good(desk: Desk) -> None:
    desk.write("a", "one\n")
    asked = {"command": "npm run watch", "run_in_background": True}
    desk.story.result(desk.story.call("Bash", asked), claude_results.in_background("b1", "/tmp/b1"))
    desk.read("a")
    look = desk.shell("ls")
    assert archive(desk).content(desk.path("a"), look, "after").confidence == "doubtful"


@requirement("files.doubt")
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
def test_which_commands_may_write_a_file(command: str, doubt: bool) -> None:
    assert may_write(command, "/w/a.py", "/w") is doubt


@requirement("files.backups")
def test_copies_that_the_client_kept_are_used(tmp_path: Path) -> None:
    name = "0123456789abcdef@v1"
    story = TranscriptBuilder(session_id="s").prompt("Work")
    path = "/w/a.py"
    kept = {"backupFileName": name, "version": 1, "backupTime": story.now.isoformat()}
    snapshot = {"messageId": "m", "trackedFileBackups": {path: kept}, "timestamp": ""}
    story.state("file-history-snapshot", messageId="m", snapshot=snapshot, isSnapshotUpdate=True)
    edit = {"file_path": path, "old_string": "two", "new_string": "2"}
    call = story.call("Edit", edit, after_ms=1_000)
    story.result(call, "The file /w/a.py has been updated successfully.", after_ms=1_000)
    file = tmp_path / "projects" / "-w" / "s.jsonl"
    file.parent.mkdir(parents=True)
    story.write(file)

    assert FileArchive([read(file)]).content(path, call, "before").confidence == "unknown"

    copy = tmp_path / "file-history" / "s" / name
    copy.parent.mkdir(parents=True)
    copy.write_text("one\ntwo\n", encoding="utf-8")
    found = FileArchive([read(file)])
    assert found.content(path, call, "before").confidence == "exact"
    assert found.content(path, call, "after").content == "one\n2\n"


@requirement("files.content")
def test_subagents_are_part_of_the_story(desk: Desk, tmp_path: Path) -> None:
    desk.write("a", "one\n")
    asked = {"description": "d", "prompt": "p", "subagent_type": "x"}
    task = desk.story.call("Task", asked)
    helper = desk.story.agent(task)
    body = claude_results.edited(desk.path("a"), "one\n", "one", "two")
    edit = {"file_path": desk.path("a"), "old_string": "one", "new_string": "two"}
    done = helper.call("Edit", edit, after_ms=500)
    helper.result(done, body, after_ms=500)
    desk.story.until(helper)
    report = claude_results.reported(helper.agent_id, "done", prompt="p", calls=1, took_ms=1_000)
    desk.story.result(task, report, after_ms=1_000)
    folder = tmp_path / "out"
    folder.mkdir()
    desk.story.write(folder / f"{desk.story.session_id}.jsonl")

    files = sorted(folder.rglob("*.jsonl"))
    found = FileArchive([read(file) for file in files])
    assert [change.agent is not None for change in found.changes] == [False, True]
    assert found.content(desk.path("a"), done, "after").content == "two\n"
    assert found.content(desk.path("a"), task, "after").confidence == "derived"


CODEX_TEXTS = st.lists(st.integers(0, 20), unique=True, max_size=8).map(lambda found: tuple(f"line {n}" for n in found))


def patch(desk: Rollout, data: DataObject) -> None:
    """One more call of Codex's, on any file."""
    name = data.draw(st.sampled_from(NAMES))
    held = desk.held(name)
    heredoc = data.draw(st.booleans())
    kind = data.draw(st.sampled_from(["update", "delete", "add", "move", "cat"]))
    if not isinstance(held, str) or kind == "add":
        desk.patch(AddFile(path=name, lines=data.draw(CODEX_TEXTS)), heredoc=heredoc)
    elif kind == "cat" and held:
        desk.cat(name)
    elif kind == "delete":
        desk.patch(DeleteFile(path=name), heredoc=heredoc)
    else:
        new = "".join(f"{line}\n" for line in data.draw(CODEX_TEXTS))
        hunks = make_hunks(held, new)
        if hunks and all(hunk.old_lines and hunk.new_lines for hunk in hunks):
            chunks = tuple(PatchChunk(lines=hunk.lines) for hunk in hunks)
            target = next(other for other in NAMES if other != name) if kind == "move" else None
            desk.patch(UpdateFile(path=name, chunks=chunks, move_to=target), heredoc=heredoc)


@requirement("files.content")
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data(), st.booleans())
def test_with_codex_too_it_is_what_was_on_disk(data: DataObject, events: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "work").mkdir()
        desk = Rollout(Path(folder) / "work", events=events)
        for _ in range(data.draw(st.integers(1, 8))):
            patch(desk, data)
        found = FileArchive([desk.transcript()])
        for side, (name, call), content in desk.held_around():
            recovered = found.content(desk.path(name), call, side)
            assert recovered.confidence in ("exact", "derived")
            assert recovered.content == content


@requirement("files.changes")
@pytest.mark.parametrize("events", [True, False])
@pytest.mark.parametrize("heredoc", [True, False])
def test_codex_patches_are_changes_of_every_kind(tmp_path: Path, events: bool, heredoc: bool) -> None:
    (tmp_path / "work").mkdir()
    desk = Rollout(tmp_path / "work", events=events)
    desk.patch(AddFile(path="a", lines=("one", "two")), AddFile(path="b", lines=("x",)), heredoc=heredoc)
    chunk = PatchChunk(lines=(" one", "-two", "+2"))
    desk.patch(UpdateFile(path="a", chunks=(chunk,), move_to="c"), heredoc=heredoc)
    desk.patch(DeleteFile(path="b"), heredoc=heredoc)
    found = FileArchive([desk.transcript()])

    told = [(Path(one.path).name, one.kind, one.added, one.removed) for one in found.changes]
    assert told[:4] == [
        ("a", "created", 2, 0),
        ("b", "created", 1, 0),
        ("a", "moved", None, None),
        ("c", "moved", 1, 1),
    ]
    assert told[4][:2] == ("b", "deleted")
    assert "-two\n+2\n" in diff_of_change(found, found.changes[3])
    assert "-x\n" in diff_of_change(found, found.changes[4])


@requirement("files.changes")
def test_codex_patches_that_failed_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    desk = Rollout(tmp_path / "work")
    desk.patch(AddFile(path="a", lines=("one",)))
    desk.lines[-1] = (
        desk.lines[-1]
        .replace("Success. Updated the following files:", "")
        .replace('\\"exit_code\\": 0', '\\"exit_code\\": 1')
    )
    desk.lines = [line for line in desk.lines if "patch_apply_end" not in line]
    found = FileArchive([desk.transcript()])
    assert found.changes == []
    assert [attempt.state for attempt in found.failed_changes] == ["failed"]


@requirement("files.doubt")
@pytest.mark.parametrize(
    ("said", "confidence"),
    [
        ("apply_patch verification failed: Failed to find expected lines in /w/a", "derived"),
        ("Failed to write file b", "doubtful"),
    ],
)
def test_a_patch_that_failed_half_way_is_a_doubt(tmp_path: Path, said: str, confidence: str) -> None:
    (tmp_path / "work").mkdir()
    desk = Rollout(tmp_path / "work", events=False)
    desk.patch(AddFile(path="a", lines=("one",)))
    chunk = PatchChunk(lines=("-one", "+two"))
    failed = desk.patch(UpdateFile(path="a", chunks=(chunk,)), AddFile(path="b", lines=("x",)))
    body = {"output": said, "metadata": {"exit_code": 1, "duration_seconds": 0.1}}
    answer = json.loads(desk.lines[-1])
    answer["payload"]["output"] = json.dumps(body)
    desk.lines[-1] = json.dumps(answer)
    found = FileArchive([desk.transcript()])

    assert [Path(attempt.path).name for attempt in found.failed_changes] == ["a", "b"]
    recovered = found.content(desk.path("a"), failed, "after")
    assert (recovered.content, recovered.confidence) == ("one\n", confidence)


@requirement("files.changes")
def test_multi_edits_and_notebooks_are_changes_too(desk: Desk) -> None:
    path, book = desk.path("a.py"), desk.path("b.ipynb")
    edits = [{"old_string": "one", "new_string": "1"}, {"old_string": "1\ntwo", "new_string": "1\n2"}]
    asked = {"file_path": path, "edits": edits}
    many = desk.story.call("MultiEdit", asked)
    told = {**asked, "filePath": path, "originalFileContents": "one\ntwo\n", "structuredPatch": []}
    desk.story.result(many, "Applied 2 edits", structured=told)
    cell = desk.story.call("NotebookEdit", {"notebook_path": book, "new_source": "x"})
    result = {"new_source": "x", "notebook_path": book, "original_file": "{}", "updated_file": "[]"}
    desk.story.result(cell, "Updated cell", structured={**result, "edit_mode": "replace"})
    bare = desk.story.call("NotebookEdit", {"notebook_path": book, "new_source": "y"})
    desk.story.result(bare, "Updated cell", structured={"new_source": "y", "cell_type": "code"})
    found = archive(desk)

    told_of = [(one.call, one.added, one.removed, one.is_complete) for one in found.changes]
    assert told_of == [(many, 2, 2, True), (cell, 1, 1, True), (bare, None, None, False)]
    assert found.content(path, many, "after").content == "1\n2\n"
    assert found.content(book, cell, "before").content == "{}"
    assert found.content(book, bare, "after").confidence == "unknown"


@requirement("files.changes")
def test_what_a_person_changed_in_an_edit_is_taken_from_the_patch(desk: Desk) -> None:
    path = desk.path("a.py")
    asked = {"file_path": path, "old_string": "one", "new_string": "1"}
    body = claude_results.edited(path, "one\ntwo\n", "one", "eins")
    assert isinstance(body.structured, dict)
    told = {**body.structured, "newString": "1", "userModified": True}
    call = desk.story.call("Edit", asked)
    desk.story.result(call, "updated", structured=told)
    assert archive(desk).content(path, call, "after").content == "eins\ntwo\n"


@requirement("files.changes")
def test_tabs_that_a_patch_shows_as_blanks_are_kept(desk: Desk) -> None:
    path, before, new = desk.path("a.go"), "a\nend\n\tmore\n", "end\nfunc {\n\tone\n}"
    body = claude_results.edited(path, before, "end", new)
    assert isinstance(body.structured, dict)
    shown = [line.replace("\t", "  ") for line in (" a", " end", "+func {", "+\tone", "+}")]
    hunk = {"oldStart": 1, "oldLines": 2, "newStart": 1, "newLines": 5, "lines": shown}
    told = {**body.structured, "structuredPatch": [hunk]}
    asked = {"file_path": path, "old_string": "end", "new_string": new}
    call = desk.story.call("Edit", asked)
    desk.story.result(call, "updated", structured=told)
    changed = desk.story.call("Edit", asked)
    desk.story.result(changed, "updated", structured={**told, "userModified": True})
    found = archive(desk)

    assert found.content(path, call, "after").content == before.replace("end", new)
    by_person = found.content(path, changed, "after")
    assert (by_person.content, by_person.confidence) == (None, "partial")


@requirement("files.changes")
def test_lines_that_only_a_patch_remembers_are_not_given_back_without_their_tabs(tmp_path: Path) -> None:
    desk = Desk(tmp_path, originals=False)
    for name, rest in (("tabs", "a\nb\nc\n\tlast\n"), ("blanks", "a\nb\nc\n  last\n")):
        (tmp_path / name).write_text(f"all:\n  one\n{rest}", encoding="utf-8")
        desk.write(name, f"all:\n{rest}")
    found = FileArchive([read(desk.story.write(tmp_path / "s.jsonl"))])
    tabs, blanks = [change.call for change in found.changes]

    assert found.content(desk.path("tabs"), tabs, "before").content is None
    assert found.content(desk.path("blanks"), blanks, "before").content == desk.before["blanks", blanks]


@requirement("files.doubt")
def test_scripts_and_tools_nobody_knows_are_doubts(desk: Desk) -> None:
    desk.write("a.py", "one\n")
    other = desk.story.call("mcp__files__put", {"name": "b.py"})
    desk.story.result(other, claude_results.mcp_text("ok"))
    assert archive(desk).content(desk.path("a.py"), other, "after").confidence == "derived"
    same = desk.story.call("mcp__files__put", {"name": "a.py"})
    desk.story.result(same, claude_results.mcp_text("ok"))
    assert archive(desk).content(desk.path("a.py"), same, "after").confidence == "doubtful"


@requirement("files.doubt")
def test_between_two_sessions_anybody_may_have_written_it(tmp_path: Path) -> None:
    path = "/w/a.py"
    first = TranscriptBuilder(session_id="one").prompt("go")
    made = first.call("Write", {"file_path": path, "content": "1\n"})
    first.result(made, claude_results.written(path, "1\n"), after_ms=10)
    second = TranscriptBuilder(session_id="two").until(first).prompt("go on", after_ms=1_000)
    edit = {"file_path": path, "old_string": "1", "new_string": "2"}
    changed = second.call("Edit", edit)
    second.result(changed, "The file has been updated successfully.", after_ms=10)
    files = [one.write(tmp_path / f"{one.session_id}.jsonl") for one in (first, second)]
    found = FileArchive([read(file) for file in files])

    assert found.content(path, made, "after").confidence == "derived"
    told = found.content(path, changed, "after")
    assert (told.content, told.confidence) == ("2\n", "doubtful")


@requirement("files.shell")
def test_a_command_that_writes_a_file_in_so_many_words_is_a_change(desk: Desk) -> None:
    path = desk.path("a.py")
    made = desk.shell(f"cat > {path} <<'EOF'\none $HOME\nEOF", {"a.py": "one $HOME\n"})
    more = desk.shell(f"cat >> {path} <<'EOF'\ntwo\nEOF", {"a.py": "one $HOME\ntwo\n"})
    gone = desk.shell(f"rm -f {path}", {"a.py": None})
    found = archive(desk)

    told = [(one.call, one.kind, one.added) for one in found.changes]
    assert told == [(made, "created", 1), (more, "edited", 1), (gone, "deleted", None)]
    for side, (name, call), content in desk.held_around():
        recovered = found.content(desk.path(name), call, side)
        assert (recovered.content, recovered.confidence) == (content, "derived")


@requirement("files.shell")
@pytest.mark.parametrize(
    "command",
    [
        "cat > a.py <<'EOF'\nx\nEOF",  # the shell may stand in another folder
        "cat > {} <<EOF\n$X\nEOF",
        "cat > {} <<-'EOF'\n\tx\nEOF",
        "cat > {} <<'EOF'\nx\nEOF\nmake",
        "rm -rf {}",
        "rm {}*",
        "X=1 cat > {} <<'EOF'\nx\nEOF",
    ],
)
def test_what_a_command_does_not_say_is_a_doubt_and_no_change(desk: Desk, command: str) -> None:
    desk.write("a.py", "one\n")
    ran = desk.shell(command.format(desk.path("a.py")))
    found = archive(desk)
    assert len(found.changes) == 1
    assert found.content(desk.path("a.py"), ran, "after").confidence == "doubtful"


@requirement("files.shell")
def test_a_command_that_printed_what_it_should_not_was_not_run_as_written(desk: Desk) -> None:
    ran = desk.shell(f"cat > {desk.path('a')} <<'EOF'\n`x`\nEOF", {"a": "\n"}, "x: not found")
    assert archive(desk).changes == []
    assert archive(desk).content(desk.path("a"), ran, "after").confidence == "unknown"


@requirement("files.doubt")
def test_a_move_brings_the_doubt_along(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    desk = Rollout(tmp_path / "work", events=False)
    desk.patch(AddFile(path="a", lines=("one",)))
    desk.run("make format")
    chunk = PatchChunk(lines=("-one", "+two"))
    moved = desk.patch(UpdateFile(path="a", chunks=(chunk,), move_to="b"))
    found = FileArchive([desk.transcript()]).content(desk.path("b"), moved, "after")
    assert (found.content, found.confidence) == ("two\n", "doubtful")
    assert any("call_0002" in reason for reason in found.reasons)


@requirement("files.confidence")
def test_of_very_many_doubts_only_some_are_told(desk: Desk) -> None:
    desk.write("a", "one\n")
    calls = [desk.shell(f"make {n}") for n in range(10)]
    found = archive(desk).content(desk.path("a"), calls[-1], "after")
    assert found.reasons[-1] == "and 6 more such calls"
    assert len(found.reasons) == 6
