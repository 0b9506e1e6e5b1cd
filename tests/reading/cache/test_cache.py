"""The cache: a second read is faster and gives the same answer."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolspan.analysis.errors import RECOVERY_JOB
from toolspan.reading import cache as cache_module
from toolspan.reading import parallel
from toolspan.reading.cache import (
    Cache,
    CacheKey,
    CacheRow,
    StampedFiles,
    cached_answer,
    cached_map,
    compute_file_stamp,
    default_folder,
)
from toolspan.reading.discovery import iter_transcripts
from toolspan.reading.facts import SCAN_JOB, FileJob, FileSummary
from toolspan.reading.parallel import parallel_map
from toolspan.reading.parallel import scan_files as survey_files
from toolspan.testing import TranscriptBuilder, claude_results

JOBS: tuple[FileJob[Any], ...] = (SCAN_JOB, RECOVERY_JOB)
LATER = 10_000_000_000
"""Nanoseconds: seen from then, what changed a moment ago has long settled."""


def later() -> int:
    return time.time_ns() + LATER


def story(name: str, calls: int = 2) -> TranscriptBuilder:
    output = TranscriptBuilder(session_id=name).prompt("go")
    for number in range(calls):
        call = output.call("Bash", {"command": f"make {number}"}, id=f"{name}{number}")
        output.result(call, claude_results.ran("a secret body") if number % 2 else claude_results.exited(2, "no rule"))
    return output


def archive(root: Path, *names: str) -> list[Path]:
    root.mkdir(exist_ok=True)
    return [story(name).write(root / f"{name}.jsonl") for name in names]


def cached(paths: list[Path], cache: Cache, now: Callable[[], int] = later) -> list[FileSummary]:
    return list(cached_map(paths, SCAN_JOB, cache, now=now))


def known(cache: Cache) -> int:
    return cache.usage()[0]


def _pretend(cache: Cache, path: Path) -> None:
    output = "SELECT path, name, form, value FROM file JOIN body USING (id) WHERE path = ?"
    with closing(sqlite3.connect(cache.file)) as database:
        result = database.execute(output, [str(path)]).fetchall()
    cache.store([CacheRow(CacheKey(*key), compute_file_stamp(path) or "", value) for *key, value in result], 0)


@pytest.mark.parametrize(
    "mixed_up",
    [
        "UPDATE body SET value = (SELECT value FROM body ORDER BY id DESC LIMIT 1)",
        "UPDATE file SET stamp = stamp || '0'",
        "UPDATE file SET path = path || '0'",
    ],
)
def test_cached_result_of_another_key_is_not_returned(tmp_path: Path, mixed_up: str) -> None:
    cache = Cache(tmp_path)
    rows = [CacheRow(CacheKey(f"/{n}", f"{n}", "facts"), f"s{n}", b"told of %d" % n) for n in range(2)]
    cache.store(rows, 0)
    with closing(sqlite3.connect(cache.file)) as database, database:
        database.execute(mixed_up)

    keys = [CacheKey(f"/{n}{more}", f"{n}", "facts") for n in range(2) for more in ("", "0")]
    request = [(key, f"s{key.name}{more}") for key in keys for more in ("", "0")]
    right = {row.key: row.value for row in rows}

    assert cache.load(request).items() <= right.items()
    assert len(cache.load(request)) < len(rows)


@pytest.mark.parametrize("job", JOBS)
def test_unchanged_file_is_not_read_again(tmp_path: Path, job: FileJob[Any]) -> None:
    (path,) = archive(tmp_path / "archive", "a")
    cache = Cache(tmp_path / "cache")
    first = list(cached_map([path], job, cache, now=later))
    path.write_bytes(b"")
    _pretend(cache, path)  # so that only a reader could see that it changed

    assert list(cached_map([path], job, cache, now=later)) == first


KINDS = ["append", "truncate", "replace", "touch", "delete", "add", "rewrite", "ask"]
CHANGES = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.integers(0, 4)), max_size=10)


class Archive:
    """Four names, some of which are files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ticks = count(1)

    def paths(self) -> list[Path]:
        return sorted(self.root.glob("*.jsonl"))

    def change(self, kind: str, number: int, size: int) -> None:
        path = self.root / f"s{number}.jsonl"
        match kind:
            case "add":
                story(f"s{number}", size).write(path)
            case "append" if path.exists():
                more = story(f"m{number}", size).data()
                path.write_bytes(path.read_bytes() + more[: len(more) - size])
            case "truncate" if path.exists():
                os.truncate(path, path.stat().st_size * size // 5)
            case "rewrite" if path.exists():  # in place, same size
                path.write_bytes(path.read_bytes().replace(b"make", b"fake"))
            case "replace":
                other = self.root / "other"
                other.write_bytes(story(f"s{number}", size).data())
                other.replace(path)
            case "delete":
                path.unlink(missing_ok=True)
            case _:
                pass
        if path.exists() and kind != "ask":  # clocks are coarse, and the test is fast
            moment = next(self._ticks) * 1_000_000_000
            os.utime(path, ns=(moment, moment))


@given(CHANGES)
def test_cache_never_changes_an_answer(changes: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(Path(folder) / "cache")
        (Path(folder) / "archive").mkdir()
        files = Archive(Path(folder) / "archive")
        for change in changes:
            files.change(*change)
            paths = files.paths()
            for job in JOBS:
                plain = list(parallel_map(paths, job))
                assert list(cached_map(paths, job, cache, now=later)) == plain
                assert list(cached_map(paths, job, cache, now=later)) == plain


def test_recently_changed_file_is_not_cached(tmp_path: Path) -> None:
    paths = archive(tmp_path / "archive", "a")
    cache = Cache(tmp_path / "cache")

    cached(paths, cache, now=time.time_ns)

    assert known(cache) == 0


@pytest.fixture(params=[1, 3])
def _processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_SERIAL_LIMIT_BYTES", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: request.param)


@pytest.mark.usefixtures("_processes")
def test_every_process_caches_the_files_that_it_has_read(tmp_path: Path) -> None:
    paths = archive(tmp_path / "archive", *"abcdefghijkl")
    cache = Cache(tmp_path / "cache")

    assert cached(paths[:4], cache) + cached(paths[4:], cache) == cached(paths, cache) == list(survey_files(paths))
    assert known(cache) == 12


@pytest.mark.usefixtures("_processes")
def test_file_changed_during_reading_is_not_cached(tmp_path: Path) -> None:
    quiet, busy = archive(tmp_path / "archive", "a", "b")
    cache = Cache(tmp_path / "cache")

    def written_meanwhile() -> int:  # called when the stamps are taken, before the file is read
        busy.write_bytes(busy.read_bytes() + b"\n")
        return later()

    cached([quiet, busy], cache, now=written_meanwhile)

    assert known(cache) == 1


def _garbage(file: Path) -> None:
    file.write_bytes(b"not a database, but long enough to be looked at " * 100)


def _foreign(file: Path) -> None:
    file.unlink()
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE file (something TEXT)")
    file.chmod(0o600)


def _torn(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.execute("PRAGMA journal_mode=DELETE")
    os.truncate(file, file.stat().st_size // 2)


def _other_values(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("UPDATE body SET value = ?", (b"\xc1",))


@pytest.mark.parametrize("spoil", [_garbage, _foreign, _torn, _other_values])
def test_damaged_or_foreign_cache_is_recreated(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    paths = archive(tmp_path / "archive", "a", "b")
    cache = Cache(tmp_path / "cache")
    first = cached(paths, cache)
    spoil(cache.file)

    assert cached(paths, cache) == first
    assert cached(paths, cache) == first
    assert cached(paths, cache) == first
    assert known(cache) == 2


def test_unwritable_cache_folder_is_not_an_error(tmp_path: Path) -> None:
    paths = archive(tmp_path / "archive", "a")
    (tmp_path / "file").write_bytes(b"")

    assert cached(paths, Cache(tmp_path / "file" / "cache")) == list(survey_files(paths))


def test_cache_locked_by_another_process_is_not_an_error(tmp_path: Path) -> None:
    paths = archive(tmp_path / "archive", "a", "b")
    cache = Cache(tmp_path / "cache")
    cached(paths[:1], cache)
    with closing(sqlite3.connect(cache.file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert cached(paths, cache) == list(survey_files(paths))
        other.execute("ROLLBACK")

    assert known(cache) == 1  # nothing was lost either


def test_worker_processes_wait_for_a_locked_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_SERIAL_LIMIT_BYTES", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    paths = archive(tmp_path / "archive", *"abcdefgh")
    cache = Cache(tmp_path / "cache")
    cache.store([], 0)
    script = (
        "import sqlite3, sys\n"
        "database = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "database.execute('BEGIN IMMEDIATE')\n"
        "print('locked', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    command = [sys.executable, "-c", script, str(cache.file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        monkeypatch.setattr(cache_module, "_LOCK_TIMEOUT", 0.0)  # of this process
        files = StampedFiles(paths)
        assert list(cached_map(files, SCAN_JOB, cache, now=later)) == list(survey_files(paths))
        holder.communicate(b"\n")  # releases the lock

    assert files.storing is not None
    assert files.storing.wait()
    assert known(cache) == len(paths)


def test_several_processes_can_use_the_cache(tmp_path: Path) -> None:
    paths = archive(tmp_path / "archive", *"abcdefgh")
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from toolspan.reading.cache import Cache, cached_map\n"
        "from toolspan.reading.facts import SCAN_JOB\n"
        "paths = [Path(name) for name in sys.argv[2:]]\n"
        f"now = lambda: time.time_ns() + {LATER}\n"
        "for path in paths * 3:\n"
        "    assert len(list(cached_map([path], SCAN_JOB, Cache(Path(sys.argv[1])), now=now))[0].calls) == 2\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "cache"), *map(str, paths)]
    running = [subprocess.Popen(command) for _ in range(3)]

    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert known(Cache(tmp_path / "cache")) == 8


def test_cache_is_private_and_contains_no_bodies(tmp_path: Path) -> None:
    paths = archive(tmp_path / "archive", "a")
    cache = Cache(tmp_path / "cache")
    cached(paths, cache)

    assert stat.S_IMODE(cache.file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(cache.file.stat().st_mode) == 0o600
    remaining = b"".join(file.read_bytes() for file in cache.file.parent.iterdir())
    assert b"no rule" in remaining  # the beginning of an error
    assert b"a secret" not in remaining


def test_cache_writable_by_others_or_linked_is_not_used(tmp_path: Path) -> None:
    paths = archive(tmp_path / "archive", "a")
    shared = Cache(tmp_path / "shared")
    shared.file.parent.mkdir()
    shared.file.parent.chmod(0o777)
    linked = Cache(tmp_path / "linked")
    linked.file.parent.mkdir(mode=0o700)
    linked.file.symlink_to(tmp_path / "elsewhere")

    for cache in (shared, linked):
        assert cached(paths, cache) == list(survey_files(paths))
    assert list(shared.file.parent.iterdir()) == []
    assert not (tmp_path / "elsewhere").exists()


def rows(paths: list[str], size: int) -> Iterator[CacheRow]:
    for path in paths:
        yield CacheRow(CacheKey(path, path, "all"), "stamp", b"x" * size)


def test_full_cache_drops_its_oldest_entries(tmp_path: Path) -> None:
    here = str(tmp_path)
    cache = Cache(tmp_path / "cache", limit=200_000)
    for number in range(200):
        cache.store(list(rows([f"{here}/{number}"], 2_000)), 0)

    assert 30 <= known(cache) <= 100
    assert cache.usage()[1] < 300_000
    newest = CacheKey(f"{here}/199", f"{here}/199", "all")
    assert list(cache.load([(newest, "stamp")])) == [newest]


def test_removed_files_are_dropped_the_next_day(tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b"")
    cache = Cache(tmp_path / "cache")
    cache.store([], 0)
    cache.store(list(rows([str(tmp_path / "here"), str(tmp_path / "gone")], 10)), 10)
    assert known(cache) == 2

    cache.store([], 86_400)

    assert known(cache) == 1


def test_file_keeps_the_path_it_was_requested_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = archive(tmp_path / "archive", "a")
    cache = Cache(tmp_path / "cache")
    cached([path], cache)
    monkeypatch.chdir(path.parent)

    (facts,) = cached([Path("a.jsonl")], cache)

    assert {facts.file, *(row.file for row in facts.calls)} == {"a.jsonl"}


def test_cache_lies_in_the_cache_folder_of_the_user() -> None:
    assert default_folder({"XDG_CACHE_HOME": "/var/x"}) == Path("/var/x/toolspan")
    assert default_folder({"XDG_CACHE_HOME": "x"}) == Path.home() / ".cache" / "toolspan"
    assert default_folder({}) == Path.home() / ".cache" / "toolspan"
    assert default_folder({"TOOLSPAN_NO_CACHE": "1"}) is None


def test_file_name_that_is_not_utf8_is_read_each_time(tmp_path: Path) -> None:
    plain, odd = archive(tmp_path / "archive", "a", "b")
    odd.write_bytes(odd.read_bytes().replace(b"no rule", b"no \\ud800"))
    nameless = odd.with_name(os.fsdecode(b"\xff.jsonl"))
    nameless.write_bytes(plain.read_bytes())
    paths = [plain, odd, nameless]
    cache = Cache(tmp_path / "cache")

    assert cached(paths, cache) == cached(paths, cache) == list(survey_files(paths))
    assert known(cache) == 1


def test_answer_is_computed_again_only_after_a_file_changed(tmp_path: Path) -> None:
    paths = archive(tmp_path / "archive", "one", "two")
    cache, computed = Cache(tmp_path / "cache"), count(1)

    def ask(question: str = "how many?", files: list[Path] = paths) -> int | None:
        return cached_answer(files, question, int, lambda: next(computed), cache, now=later)

    assert [ask(), ask()] == [1, 1]
    assert [ask("how few?"), ask("how few?")] == [2, 2]
    assert ask(files=paths[:1]) == 3
    assert ask() == 4  # the answer for other files took its place
    with paths[1].open("ab") as stream:
        stream.write(b"\n")
    assert [ask(), ask()] == [5, 5]


def test_files_keep_the_stamps_of_their_listing(tmp_path: Path) -> None:
    archive(tmp_path / "archive", "one", "two")
    files = list(iter_transcripts(tmp_path / "archive"))
    paths = [file.path for file in files]

    assert StampedFiles.from_listing(files).stamps == StampedFiles(paths).stamps
    with paths[1].open("ab") as stream:
        stream.write(b"\n")
    before, after = StampedFiles.from_listing(files).stamps, StampedFiles(paths).stamps
    assert (before[0] == after[0], before[1] == after[1]) == (True, False)


@pytest.mark.usefixtures("_processes")
@pytest.mark.parametrize("change", [Path.touch, Path.unlink])
def test_answer_is_cached_only_if_no_file_changed_while_it_was_read(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    paths = archive(tmp_path / "archive", *"abcdefgh")
    cache, computed = Cache(tmp_path / "cache"), count(1)

    def ask(now: Callable[[], int] = later) -> int | None:
        files = StampedFiles(paths)

        def compute() -> int:
            assert len(list(cached_map(files, SCAN_JOB, cache, now=now))) == len(paths)
            return next(computed)

        return cached_answer(files, "how many?", int, compute, cache, now=later)

    def change_one() -> int:  # called when the stamps are taken, before the file is read
        change(paths[3])
        return later()

    assert ask(change_one) == 1
    assert known(cache) == len(paths) - 1
    story("d").write(paths[3])
    assert [ask(), ask()] == [2, 2]
    assert known(cache) == len(paths)


def test_answer_that_leaves_out_a_file_is_not_cached_so_that_every_command_says_so(tmp_path: Path) -> None:
    paths = archive(tmp_path / "archive", "one", "two")
    foreign = tmp_path / "archive" / "foreign.jsonl"
    foreign.write_text('{"level":"info"}\n')
    cache = Cache(tmp_path / "cache")

    def ask() -> list[str]:
        files = StampedFiles([*paths, foreign])
        problems: list[str] = []

        def compute() -> int:
            problems.extend(file.problem for file in cached_map(files, SCAN_JOB, cache, now=later) if file.problem)
            return 1

        assert cached_answer(files, "how many?", int, compute, cache, now=later) == 1
        return problems

    cold, warm = ask(), ask()
    assert len(cold) == 1
    assert warm == cold


def test_answer_about_changing_files_is_not_cached(tmp_path: Path) -> None:
    paths = archive(tmp_path / "archive", "one")
    cache, computed = Cache(tmp_path / "cache"), count(1)

    answers = [cached_answer(paths, "q", int, lambda: next(computed), cache) for _ in range(2)]
    missing = [cached_answer(paths, "q", int, lambda: None, cache, now=later) for _ in range(2)]

    assert answers == [1, 2]
    assert missing == [None, None]
