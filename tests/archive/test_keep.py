"""A kept archive: it survives what happens to its sources and to itself, and sessions come back from it."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import toolspan
from tests.cli.command import one_row, rows, run, saved
from toolspan.archive import KeptArchive
from toolspan.archive.keep.kept import KeepSource
from toolspan.errors import ToolspanError
from toolspan.formats import zstd
from toolspan.formats.source import source_for_path
from toolspan.testing import TranscriptBuilder, claude_results

SESSION = "5e551011-0000-4000-8000-000000000001"
CWD = "/home/dev/project"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with one session of Claude Code, with a subagent, a long result and a copy of an edited file."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    builder = TranscriptBuilder(session_id=SESSION, cwd=CWD).prompt("light the lantern")
    call = builder.call("Bash", {"command": f"cat {CWD}/lantern.conf {CWD}2/x"}, id="toolu_1")
    builder.result(call, claude_results.exited(1, "no oil"))
    agent = builder.call("Task", {"prompt": "look", "description": "look", "subagent_type": "x"}, id="toolu_2")
    builder.agent(agent).prompt("look").text("nothing")
    builder.result(agent, claude_results.reported("a1", "nothing", prompt="look", calls=0, took_ms=1))
    path = saved(builder, tmp_path / ".claude")
    folder = path.with_suffix("")
    (folder / "tool-results").mkdir(parents=True)
    (folder / "tool-results/long.txt").write_text("dark\n" * 5_000, encoding="utf-8")
    backups = tmp_path / ".claude/file-history" / SESSION
    backups.mkdir(parents=True)
    (backups / "abc@v1").write_bytes(b"oil = 0\r\n")
    return tmp_path


def transcript(home: Path) -> Path:
    return next((home / ".claude/projects").glob(f"*/{SESSION}.jsonl"))


def kept_bytes(archive: KeptArchive, name: str) -> bytes:
    path = next(path for path in archive.folder.rglob("*") if path.name in (name, f"{name}.zst"))
    with source_for_path(path).open() as stream:
        return stream.read()


def tree(folder: Path) -> Mapping[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_every_command_reads_a_kept_archive_like_a_folder(home: Path) -> None:
    before = [
        rows(run(name, home / ".claude/projects", "--json")) for name in ("sessions", "calls", "errors", "agents")
    ]
    report = KeptArchive().keep()
    assert report.problems == ()
    for path in (home / ".claude").rglob("*.jsonl"):
        path.unlink()

    archive = home / ".local/share/toolspan/kept"
    after = [rows(run(name, archive, "--json")) for name in ("sessions", "calls", "errors", "agents")]
    assert [len(answer) for answer in after] == [len(answer) for answer in before] == [1, 2, 1, 2]
    assert after[1][0]["file"].startswith(str(archive))
    assert [(row["id"], row["state"]) for row in after[1]] == [(row["id"], row["state"]) for row in before[1]]
    assert [row["call"] for row in rows(run("search", "oil", archive, "--json"))] == ["toolu_1"]
    assert toolspan.Archive(archive).call("toolu_1").span.state == "failed"


def test_a_run_costs_only_what_is_new(home: Path) -> None:
    archive = KeptArchive()
    assert set(archive.keep().outcomes) == {"new"}
    assert set(archive.keep().outcomes) == {"unchanged"}

    with transcript(home).open("ab") as stream:
        stream.write(b'{"type":"system","more":1}\n')
    assert archive.keep().outcomes["grown"] == 1
    assert kept_bytes(archive, f"{SESSION}.jsonl") == transcript(home).read_bytes()
    assert not [file for file in archive.verify() if file.problem]


def test_what_the_client_deletes_truncates_or_rewrites_stays(home: Path) -> None:
    archive, path = KeptArchive(), transcript(home)
    whole = path.read_bytes()
    archive.keep()

    path.write_bytes(whole[: len(whole) // 2])
    assert archive.keep().outcomes["shorter"] == 1
    assert kept_bytes(archive, f"{SESSION}.jsonl") == whole

    path.write_bytes(b'{"type":"summary"}\n' + whole)
    assert archive.keep().outcomes["rewritten"] == 1
    (version,) = (archive.folder / "versions").rglob("*.zst.1")
    copy = home / "version.zst"
    copy.write_bytes(version.read_bytes())
    with source_for_path(copy).open() as stream:
        assert stream.read() == whole

    path.unlink()
    report = archive.keep()
    assert report.gone == 1
    assert kept_bytes(archive, f"{SESSION}.jsonl").endswith(whole)


CHANGES = st.lists(st.sampled_from(["append", "truncate", "rewrite", "delete", "same"]), min_size=1, max_size=8)


@given(changes=CHANGES, seed=st.integers(0, 1_000))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_content_is_ever_lost(tmp_path_factory: pytest.TempPathFactory, changes: list[str], seed: int) -> None:
    folder = tmp_path_factory.mktemp("keep")
    number = random.Random(seed)
    source = folder / "projects" / "-p"
    source.mkdir(parents=True)
    path = source / f"{SESSION}.jsonl"
    path.write_bytes(b'{"n":0}\n')
    archive = KeptArchive(folder / "kept")
    seen: set[bytes] = set()
    for step, change in enumerate(["same", *changes]):
        data = path.read_bytes() if path.exists() else b""
        if change == "append":
            data += b'{"n":%d}\n' % number.randrange(10**9) * number.randrange(1, 60)
        elif change == "truncate":
            data = data[: number.randrange(len(data) + 1)]
        elif change == "rewrite":
            data = b'{"r":%d}\n' % number.randrange(10**9) + data
        path.write_bytes(data) if change != "delete" else path.unlink(missing_ok=True)
        if path.exists():
            os.utime(path, ns=(step, step))
            seen.add(data)
        archive.keep([KeepSource("claude", "projects", folder / "projects")])

    stored = []
    for file in (folder / "kept").rglob("*.zst*"):
        copy = folder / "copy.zst"
        copy.write_bytes(file.read_bytes())
        with source_for_path(copy).open() as stream:
            stored.append(stream.read())
    assert all(any(kept.startswith(data) for kept in stored) for data in seen)
    assert not [file for file in archive.verify() if file.problem]


def test_equal_files_are_stored_once(home: Path) -> None:
    twin = transcript(home).parent / SESSION.replace("5e55", "6e66") / "tool-results/long.txt"
    twin.parent.mkdir(parents=True)
    twin.write_bytes((transcript(home).with_suffix("") / "tool-results/long.txt").read_bytes())
    KeptArchive().keep()

    links = [path.stat().st_nlink for path in KeptArchive().folder.rglob("long.txt.zst")]
    assert links == [2, 2]


def test_a_damaged_file_is_found(home: Path) -> None:
    archive = KeptArchive()
    archive.keep()
    path = next(archive.folder.rglob(f"{SESSION}.jsonl.zst"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)

    assert "damaged" in run("keep", "verify", code=1).output
    damaged = [file.name for file in archive.verify() if file.problem]
    assert [Path(name).name for name in damaged] == [f"{SESSION}.jsonl"]


def test_a_file_that_the_client_has_compressed_is_kept_as_it_is(home: Path) -> None:
    name = "rollout-2026-01-02T03-04-05-0198c7a2-0000-7000-8000-000000000001.jsonl.zst"
    path = home / ".codex/sessions/2026/01/02" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(zstd.compress(b'{"type":"session_meta"}\n' * 9_000))
    archive = KeptArchive()
    archive.keep()

    assert (archive.folder / "codex/sessions/2026/01/02" / name).read_bytes() == path.read_bytes()
    assert not [file for file in archive.verify() if file.problem]


def test_a_damaged_file_becomes_a_version_when_its_session_is_kept_again(home: Path) -> None:
    archive = KeptArchive()
    archive.keep()
    kept = next(archive.folder.rglob(f"{SESSION}.jsonl.zst"))
    kept.write_bytes(kept.read_bytes()[:-30])
    with transcript(home).open("ab") as stream:
        stream.write(b"{}\n")

    report = archive.keep()
    assert kept_bytes(archive, f"{SESSION}.jsonl") == transcript(home).read_bytes(), report
    assert report.problems == ()


def test_a_run_that_is_killed_is_continued(home: Path) -> None:
    folder = home / ".claude/projects/-many"
    folder.mkdir()
    for number in range(300):
        name = f"{number:08x}-0000-4000-8000-000000000002.jsonl"
        (folder / name).write_bytes(b'{"type":"user","n":%d}\n' % number * 2_000)
    program = "from toolspan.archive import KeptArchive; KeptArchive().keep()"
    for count in (1, 40, 150):
        process = subprocess.Popen([sys.executable, "-c", program])
        kept = KeptArchive().folder / "claude/projects/-many"
        while process.poll() is None and not (kept.is_dir() and len(list(kept.iterdir())) > count):
            os.sched_yield()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not [file for file in KeptArchive().verify() if file.problem]
    KeptArchive().keep()

    assert len(list(kept.glob("*.zst"))) == 300
    assert not [file for file in KeptArchive().verify() if file.problem]
    for path in folder.iterdir():
        assert kept_bytes(KeptArchive(), path.name) == path.read_bytes()


def test_a_file_that_was_written_but_not_noted_is_read_again(home: Path) -> None:
    archive = KeptArchive()
    archive.keep()
    with sqlite3.connect(archive.folder / "kept.sqlite") as notes:
        notes.execute("DELETE FROM files")
    with transcript(home).open("ab") as stream:
        stream.write(b"{}\n")

    outcomes = archive.keep().outcomes
    assert (outcomes["grown"], outcomes.get("rewritten")) == (1, None)
    assert kept_bytes(archive, f"{SESSION}.jsonl") == transcript(home).read_bytes()


def test_a_second_run_at_the_same_time_does_nothing(home: Path) -> None:
    archive = KeptArchive()
    archive.keep()
    holder = subprocess.Popen(
        [sys.executable, "-c", "import fcntl, sys\nlock = open(sys.argv[1], 'wb')\n"
         "fcntl.flock(lock, fcntl.LOCK_EX)\nprint('held', flush=True)\nsys.stdin.read()",
         str(archive.folder / ".lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    holder.stdout.readline()

    assert "another process" in run("keep").output
    assert run("keep", "--quiet").output == ""
    holder.communicate(b"")


FULL_DISK = """
set -u
mount -t tmpfs -o size=8m,mode=700 tmpfs "$DISK"
head -c {ballast}k /dev/zero > "$DISK/ballast"
"$@" keep --to "$DISK/kept" 2>&1; echo "first $?"
if [ -e "$DISK/kept/kept.sqlite" ]; then "$@" keep verify --to "$DISK/kept"; echo "verify $?"; fi
cp -r "$DISK/kept" "$OUT/full"
rm "$DISK/ballast"
"$@" keep --to "$DISK/kept"; echo "second $?"
"$@" keep verify --to "$DISK/kept"; echo "verify $?"
cp -r "$DISK/kept" "$OUT/whole"
"""


@pytest.mark.parametrize("size", [8, 20, 60, 340])
def test_a_full_disk_ends_the_run_and_the_next_one_continues(home: Path, size: int) -> None:
    namespace = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        probe = subprocess.run([*namespace, "mount", "-t", "tmpfs", "tmpfs", home / ".claude"],
                               capture_output=True, check=False)  # fmt: skip
    except FileNotFoundError:
        pytest.skip("there is no `unshare`")
    if probe.returncode:
        pytest.skip("file systems cannot be mounted here")
    chaos = random.Random(size)
    for number in range(8):  # random, so that they do not compress
        path = transcript(home).with_name(f"5e551011-0000-4000-8000-00000000010{number}.jsonl")
        path.write_bytes(b'{"type":"system","x":"%s"}\n' % chaos.randbytes(50_000).hex().encode())
    disk, out = home / "disk", home / "out"
    disk.mkdir()
    out.mkdir()
    toolspan_command = [sys.executable, "-c", "from toolspan.cli import main; main()"]
    done = subprocess.run(
        [*namespace, "sh", "-c", FULL_DISK.format(ballast=8 * 1024 - size), "sh", *toolspan_command],
        env={**os.environ, "DISK": str(disk), "OUT": str(out)}, capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip

    assert "first 2" in done.stdout, done
    assert "Traceback" not in done.stdout + done.stderr
    assert "verify 1" not in done.stdout, done
    assert done.stdout.count("second 0") == 1, done
    assert done.stdout.endswith("verify 0\n"), done
    present = {path.name: path.read_bytes() for path in (home / ".claude/projects").rglob("*.jsonl")}
    assert {name: kept_bytes(KeptArchive(out / "whole"), name) for name in present} == present
    for path in (out / "full").rglob("*.jsonl.zst"):  # no file is there in part
        assert kept_bytes(KeptArchive(out / "full"), path.name) == present[path.name.removesuffix(".zst")]
    assert not list((out / "whole").glob(".tmp/*"))


def test_an_archive_that_cannot_be_written_is_one_error(home: Path) -> None:
    (home / "file").write_bytes(b"")

    assert "file" in run("keep", "--to", home / "file" / "below", code=2).output


# Restoring


def test_a_deleted_session_is_restored_byte_for_byte_as_new(home: Path) -> None:
    before = tree(home / ".claude")
    KeptArchive().keep()
    old = transcript(home)
    os.utime(old, (0, 0))
    for path in sorted((home / ".claude").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()

    restored = one_row(run("keep", "restore", SESSION[:8], "--json"))
    assert tree(home / ".claude") == before
    assert restored["command"] == f"claude --resume {SESSION}"
    assert old.stat().st_mtime > 10**9


def test_an_earlier_version_of_a_rewritten_session_is_restored(home: Path) -> None:
    path = transcript(home)
    contents = [path.read_bytes()]
    KeptArchive().keep()
    assert "rewritten none" in run("keep", "versions", SESSION[:8]).stdout
    for number in range(11):
        contents.append(b'{"type":"summary","summary":"%d"}\n' % number + contents[0])
        path.write_bytes(contents[-1])
        KeptArchive().keep()
    path.unlink()

    listed = rows(run("keep", "versions", SESSION[:8], "--json"))
    assert [(row["version"], row["size"], row["is_session"]) for row in listed] == [
        (number, len(content), True) for number, content in enumerate(contents[:-1], start=1)
    ]
    assert run("keep", "versions", SESSION[:8]).stdout.count("version ") == 11
    for number in (11, 1):
        restored = KeptArchive().restore(SESSION[:8], version=number, replace=True)
        assert str(path) in restored.files
        assert path.read_bytes() == contents[number - 1]
    assert "no version 12" in run("keep", "restore", SESSION[:8], "--version", "12", code=2).output
    run("keep", "restore", SESSION[:8], "--replace")
    assert path.read_bytes() == contents[-1]


def test_a_restored_session_moves_to_another_folder(home: Path) -> None:
    KeptArchive().keep()
    run("keep", "restore", SESSION[:8], "--folder", "/srv/other place")

    moved = home / ".claude/projects/-srv-other-place" / f"{SESSION}.jsonl"
    lines = [json.loads(line) for line in moved.read_bytes().splitlines()]
    assert {line["cwd"] for line in lines if "cwd" in line} == {"/srv/other place"}
    assert toolspan.read(moved).spans[0].call.target == f"cat /srv/other place/lantern.conf {CWD}2/x"
    assert transcript(home).exists()


def test_a_file_in_the_way_is_not_overwritten(home: Path) -> None:
    KeptArchive().keep()
    path = transcript(home)
    path.write_bytes(b"{}\n")

    assert "--replace" in run("keep", "restore", SESSION[:8], code=2).output
    assert path.read_bytes() == b"{}\n"
    run("keep", "restore", SESSION[:8], "--replace")
    assert len(path.read_bytes()) > 10


def test_an_unknown_session_is_an_error(home: Path) -> None:
    assert "no kept archive" in run("keep", "restore", "ffff", code=2).output
    KeptArchive().keep()
    run("keep", "restore", "ffff", code=2)


# Several machines


def test_archives_of_two_machines_are_joined(home: Path) -> None:
    here = KeptArchive(home / "here")
    here.keep()
    path = transcript(home)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"type":"system"}\n')
    there = KeptArchive(home / "there")
    there.keep()

    assert one_row(run("keep", "pull", there.folder, "--to", here.folder, "--json"))["outcomes"] == {"grown": 1}
    assert kept_bytes(here, path.name) == path.read_bytes()
    assert one_row(run("keep", "push", home / "third", "--to", here.folder, "--json"))["outcomes"].keys() == {"new"}
    assert kept_bytes(KeptArchive(home / "third"), path.name) == path.read_bytes()
    assert here.push(there.folder).outcomes == {}
    with pytest.raises(ToolspanError, match="no kept archive"):
        here.pull(home / "nothing")


# When the client deletes


def test_the_overview_says_when_the_client_deletes_sessions(home: Path) -> None:
    age = 27 * 86_400
    at = toolspan.read(transcript(home)).info.ended_at
    assert at is not None
    now = transcript(home).stat().st_mtime
    os.utime(transcript(home), (now - age, now - age))

    retention = toolspan.Archive().retention()
    assert retention is not None
    assert (retention.days, retention.is_default, retention.soon) == (30, True, 1)
    assert "deletes 1 session within a week" in " ".join(run().output.split())
    (home / ".claude/settings.json").write_text('{"cleanupPeriodDays": 99}', encoding="utf-8")
    changed = toolspan.Archive().retention()
    assert changed is not None
    assert (changed.days, changed.soon, changed.advice) == (99, 0, None)
