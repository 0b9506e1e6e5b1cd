"""Sessions in a database: found, read by index, joined, cached and searched like files."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.cli.command import rows, run
from tests.formats import opencode_database as opencode
from toolspan import read
from toolspan.formats.source import source_for_path
from toolspan.reading.cache import compute_file_stamp
from toolspan.reading.discovery import find_transcripts

CHILD = "ses_e1160001ffe1Abcdefghijklmn"


def make_two(home: Path) -> Path:
    """Write a database with a session and its subagent, and return the path of the session."""
    path = opencode.write_database(home, opencode.document())
    task = opencode.tool("call_9", "task", {"prompt": "dig"}, output="done", sessionId=CHILD)
    messages = [
        opencode.user("dig"),
        opencode.reply(opencode.tool("call_8", "bash", {"command": "ls"}, output="needle")),
    ]
    opencode.add_session(path.parent, opencode.document(messages), CHILD, opencode.SESSION, shift=60_000)
    with closing(sqlite3.connect(path.parent)) as database, database:
        info = {"id": "msg_0009", "role": "assistant", "time": {"created": opencode.moment(8)}}
        opencode.add_message(database, opencode.SESSION, info, [task | {"id": "prt_9"}])
    return path


def test_sessions_of_a_database_are_found_below_it_with_their_subagents(tmp_path: Path) -> None:
    path = make_two(tmp_path)

    files = find_transcripts(tmp_path)

    assert [file.path for file in files] == [path, path / CHILD]
    assert [file.name.role for file in files] == ["session", "agent"]
    assert files[1].name.session_id == opencode.SESSION
    assert [file.path for file in find_transcripts(path.parent)] == [path, path / CHILD]


def test_subagent_is_linked_to_the_call_that_started_it(tmp_path: Path) -> None:
    path = make_two(tmp_path)

    assert read(path).agent_starters == {CHILD: "call_9"}
    assert read(path / CHILD).info.agent_id == CHILD
    assert read(path / CHILD).info.session_id == opencode.SESSION
    assert "call_8" in run("show", "--json", path).stdout


def test_changes_in_the_log_are_read_without_blocking_or_changing_the_writer(tmp_path: Path) -> None:
    path = opencode.write_database(tmp_path, opencode.document())
    container = path.parent
    with closing(sqlite3.connect(container, isolation_level=None, timeout=0)) as writer:
        writer.execute("BEGIN IMMEDIATE")  # a lock that readers do not need, and cannot keep from the writer
        writer.execute("UPDATE part SET data = replace(data, 'print(1)', 'print(2)'), time_updated = time_updated + 1")
        before = read(path).spans[0].result
        writer.execute("COMMIT")
        assert Path(f"{container}-wal").stat().st_size > 0
        after = read(path).spans[0].result
        writer.execute("DELETE FROM part WHERE id LIKE 'prt_0002%'")  # raises at once if a reader holds a lock

    assert before is not None
    assert after is not None
    assert after.text == "print(2)\n"


def test_reading_a_database_at_rest_leaves_no_files_beside_it(tmp_path: Path) -> None:
    path = opencode.write_database(tmp_path, opencode.document())
    before = {item.name: item.stat().st_mtime_ns for item in path.parent.parent.iterdir()}

    assert len(read(path).spans) == 5

    assert {item.name: item.stat().st_mtime_ns for item in path.parent.parent.iterdir()} == before


def test_stamp_changes_only_for_the_session_that_changed(tmp_path: Path) -> None:
    path = make_two(tmp_path)
    stamps = [compute_file_stamp(path), compute_file_stamp(path / CHILD)]

    with closing(sqlite3.connect(path.parent)) as database, database:
        database.execute("UPDATE part SET time_updated = time_updated + 1 WHERE id = 'prt_9' || ?", (opencode.SESSION,))

    assert compute_file_stamp(path) != stamps[0]
    assert compute_file_stamp(path / CHILD) == stamps[1]


def test_any_range_of_a_session_equals_the_range_of_its_lines(tmp_path: Path) -> None:
    source = source_for_path(opencode.write_database(tmp_path, opencode.document()))
    with source.open() as stream:
        data = b"".join(iter(lambda: stream.read(1000), b""))

    assert all(json.loads(line) for line in data.splitlines())
    for offset, length in ((0, 10), (5, len(data)), (len(data) - 7, 100), (data.index(b"call_2"), 6), (len(data), 1)):
        assert source.read(offset, length) == data[offset : offset + length]
        with source.open(offset) as stream:
            assert stream.read(1) == data[offset : offset + 1]


def test_row_that_changed_since_it_was_read_is_read_as_it_is_now(tmp_path: Path) -> None:
    path = opencode.write_database(tmp_path, opencode.document())
    result = read(path).spans[0].result
    assert result is not None
    with closing(sqlite3.connect(path.parent)) as database, database:
        database.execute("UPDATE part SET data = replace(data, 'print(1)', 'print(1) # more')")

    assert result.text == "print(1) # more\n"


def test_missing_session_and_foreign_database_are_clear_errors(tmp_path: Path) -> None:
    path = opencode.write_database(tmp_path, opencode.document())
    missing = run("calls", path.with_name("ses_none"), code=None)
    assert missing.exit_code != 0
    assert "ses_none" in missing.stderr

    (tmp_path / "foreign").mkdir()
    with closing(sqlite3.connect(tmp_path / "foreign" / "opencode.db")) as database, database:
        database.execute("CREATE TABLE other (id)")
    told = run("calls", tmp_path / "foreign", code=None)
    assert "no such table" in told.stderr


def test_commands_take_a_database_like_a_folder(tmp_path: Path) -> None:
    path = make_two(tmp_path)
    database = str(path.parent)

    assert "needle" in run("search", "needle", database).stdout
    calls = rows(run("calls", "--json", database))
    assert {row["id"]: row["state"] for row in calls} == {
        "call_1": "succeeded", "call_2": "failed", "call_3": "failed", "call_4": "denied", "call_5": "never_answered",
        "call_8": "succeeded", "call_9": "succeeded",
    }  # fmt: skip
    assert {row["client"] for row in calls} == {"opencode"}
    assert rows(run("calls", "--json", database)) == calls
