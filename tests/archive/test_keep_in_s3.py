"""A kept archive in a bucket: incremental, written to by several machines, and read by every command."""

from __future__ import annotations

import io
import itertools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolspan
from tests.archive.test_keep import SESSION, home, transcript, tree
from tests.cli.command import one_row, rows, run
from tests.stores.servers import moto_server
from toolspan.archive import KeptArchive
from toolspan.archive.keep.kept import KeepSource
from toolspan.errors import SourceError
from toolspan.formats import zstd
from toolspan.formats.remote import RemotePath
from toolspan.formats.source import to_path

__all__ = ["home"]
pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries of stores
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[None]:
    s3fs = pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    with moto_server() as address, pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", address)
        s3fs.S3FileSystem.clear_instance_cache()  # connections to the server of another test
        yield
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def bucket(server: None) -> str:
    """Return the URL of an empty folder in a bucket."""
    return f"s3://test/kept{next(_numbers)}"


def contents(bucket: str) -> dict[str, bytes]:
    """Return the content of each kept object and version, before compression."""
    found = {}
    for path in to_path(bucket).rglob("*"):
        data = path.read_bytes()
        name = str(path.relative_to(to_path(bucket)))
        found[name] = zstd.ZstdFile(io.BytesIO(data)).read() if ".zst" in name else data
    return found


def test_every_command_reads_a_bucket_in_which_sessions_are_kept(home: Path, bucket: str) -> None:
    names = ("sessions", "calls", "errors", "agents")
    before = [rows(run(name, home / ".claude/projects", "--json")) for name in names]
    report = one_row(run("keep", "--to", bucket, "--json"))
    assert (report["folder"], report["problems"]) == (bucket, [])
    transcript(home).unlink()

    after = [rows(run(name, bucket, "--json")) for name in names]
    assert [len(answer) for answer in after] == [len(answer) for answer in before] == [1, 2, 1, 2]
    assert after[1][0]["file"].startswith(bucket)
    assert toolspan.Archive(bucket).call("toolu_1").span.state == "failed"


def test_a_run_uploads_only_what_is_new(home: Path, bucket: str) -> None:
    archive, path = KeptArchive(bucket), transcript(home)
    assert set(archive.keep().outcomes) == {"new"}
    assert set(archive.keep().outcomes) == {"unchanged"}
    whole = path.read_bytes()
    with path.open("ab") as stream:
        stream.write(b'{"type":"system","more":1}\n')
    assert archive.keep().outcomes["grown"] == 1
    grown = path.read_bytes()
    path.write_bytes(whole[:40])
    assert archive.keep().outcomes["shorter"] == 1
    path.write_bytes(b"{}\n" + whole)
    assert archive.keep().outcomes["rewritten"] == 1

    kept = contents(bucket)
    name = f"claude/projects/{path.parent.name}/{SESSION}.jsonl.zst"
    assert kept[name] == path.read_bytes()
    assert kept[f"versions/{name}.1"] == grown
    assert not [file for file in archive.verify() if file.problem]


def test_another_machine_knows_what_is_in_the_bucket(home: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    KeptArchive(bucket).keep()
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "other machine"))
    other = KeptArchive(bucket)

    assert set(other.keep().outcomes) == {"unchanged"}
    assert not [file for file in other.verify() if file.problem]
    assert sum(1 for _ in other.verify()) == len(contents(bucket))


def test_a_session_is_restored_from_a_bucket(home: Path, bucket: str) -> None:
    before = tree(home / ".claude")
    archive = KeptArchive(bucket)
    archive.keep()
    first = transcript(home).read_bytes()
    transcript(home).write_bytes(b"{}\n" + first)
    archive.keep()
    for path in sorted((home / ".claude").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()

    assert [row["version"] for row in rows(run("keep", "versions", SESSION[:8], "--to", bucket, "--json"))] == [1]
    run("keep", "restore", SESSION[:8], "--to", bucket, "--version", "1")
    assert tree(home / ".claude") == before
    run("keep", "restore", SESSION[:8], "--to", bucket, "--folder", "/srv/moved")
    moved = home / f".claude/projects/-srv-moved/{SESSION}.jsonl"
    assert b'"/srv/moved"' in moved.read_bytes()


def test_archives_are_pushed_to_a_bucket_and_pulled_from_it(
    home: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = KeptArchive(home / "here")
    here.keep()
    assert one_row(run("keep", "push", bucket, "--to", here.folder, "--json"))["outcomes"].keys() == {"new"}
    assert here.push(bucket).outcomes == {}

    monkeypatch.setenv("XDG_DATA_HOME", str(home / "other machine"))
    there = KeptArchive(home / "there")
    assert set(there.pull(bucket).outcomes) == {"new"}
    assert there.pull(bucket).outcomes == {}
    kept = {name: data for name, data in tree(there.folder).items() if name.startswith("claude/")}
    assert kept == {name: data for name, data in tree(here.folder).items() if name.startswith("claude/")}


def test_a_damaged_object_is_found(home: Path, bucket: str) -> None:
    archive = KeptArchive(bucket)
    archive.keep()
    path = next(iter(RemotePath(bucket).rglob(f"{SESSION}.jsonl.zst")))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    metadata = path.read_metadata()
    copy = home / "damaged"
    copy.write_bytes(data)
    with copy.open("rb") as stream:
        path.write(stream, metadata, replaces=path.info)

    assert [Path(file.name).name for file in archive.verify() if file.problem] == [f"{SESSION}.jsonl"]
    assert "damaged" in run("keep", "verify", "--to", bucket, code=1).output


KEEP = """
import sys
from pathlib import Path
from toolspan.archive import KeptArchive
from toolspan.archive.keep.kept import KeepSource
for folder in sys.argv[2:]:
    report = KeptArchive(sys.argv[1]).keep([KeepSource("claude", "projects", Path(folder))])
    assert not report.problems, report
"""


def make_sessions(folder: Path, count: int) -> None:
    project = folder / "-many"
    project.mkdir(parents=True)
    for number in range(count):
        path = project / f"{number:08x}-0000-4000-8000-000000000002.jsonl"
        path.write_bytes(b'{"type":"user","n":%d}\n' % number * 200)


def test_a_run_to_a_bucket_that_is_killed_is_continued(home: Path, bucket: str) -> None:
    folder = home / "projects"
    make_sessions(folder, 30)
    for count in (1, 15):
        process = subprocess.Popen([sys.executable, "-c", KEEP, bucket, str(folder)])
        while process.poll() is None and len(list(to_path(bucket).rglob("*.zst"))) <= count:
            os.sched_yield()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not [file for file in KeptArchive(bucket).verify() if file.problem]
    KeptArchive(bucket).keep([KeepSource("claude", "projects", folder)])

    present = {f"claude/projects/-many/{path.name}.zst": path.read_bytes() for path in (folder / "-many").iterdir()}
    assert contents(bucket) == present


@pytest.mark.parametrize("seed", range(2))
def test_two_machines_keep_the_same_files_at_the_same_time(home: Path, bucket: str, seed: int) -> None:
    """Each machine has four stages of the same sessions, which grow or differ; no content of any stage is lost."""
    number = random.Random(seed)
    stages: list[list[Path]] = [[], []]
    for machine, folders in enumerate(stages):
        for stage in range(4):
            folder = home / f"machine{machine}" / str(stage)
            make_sessions(folder, 4)
            for path in (folder / "-many").iterdir():
                with path.open("ab") as stream:
                    stream.write(b'{"m":%d}\n' % machine if number.random() < 0.5 else b"")
                    stream.write(b'{"more":1}\n' * stage * 40)
            folders.append(folder)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", KEEP, bucket, *map(str, folders)],
            env=os.environ | {"XDG_DATA_HOME": str(home / f"data{machine}")},
        )
        for machine, folders in enumerate(stages)
    ]
    assert [process.wait() for process in processes] == [0, 0]

    kept = contents(bucket)
    for folder in (folder for folders in stages for folder in folders):
        for path in (folder / "-many").iterdir():
            stored = [data for name, data in kept.items() if path.name in name]
            assert any(data.startswith(path.read_bytes()) for data in stored), (path, len(stored))
    assert not [file for file in KeptArchive(bucket).verify() if file.problem]


def test_what_cannot_be_an_archive_is_one_error(home: Path, bucket: str) -> None:
    assert "s3://" in run("keep", "--to", "gs://bucket/kept", code=2).output
    assert "no such object, folder or bucket" in run("keep", "--to", "s3://missing/kept", code=2).output
    assert "no kept archive" in run("keep", "verify", "--to", bucket, code=2).output
    with pytest.raises(SourceError, match="no kept archive"):
        KeptArchive(bucket).restore(SESSION)
