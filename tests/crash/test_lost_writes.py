"""Writes that were not synced may be lost in any combination when the machine goes down."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crash.checks import check_history_of, check_verdict, results, verdicts
from tests.crash.killed_session import OLD, transcript
from toolspan.session.recording import Fsync

ROOT = Path(__file__).parent.parent.parent
Operations = list[tuple[str, str, bytes]]


@dataclass
class File:
    data: bytes = b""
    kept: int = 0
    named: bool = False

    def ends(self) -> list[int]:
        ends = [n + 1 for n, byte in enumerate(self.data) if byte == ord("\n")]
        return [end for end in ends if end >= self.kept]

    def lengths(self) -> st.SearchStrategy[int]:
        whole = st.sampled_from([self.kept, *self.ends(), len(self.data)])
        return st.one_of(whole, whole, st.integers(self.kept, len(self.data)))


@dataclass
class Disk:
    grown: dict[str, File] = field(default_factory=dict)
    """Files that were written to, piece by piece."""
    versions: dict[str, list[bytes | None]] = field(default_factory=dict)
    """Files that were replaced: every content that may still be theirs, the latest last."""

    def take(self, what: str, path: str, data: bytes) -> None:
        match what:
            case "write" if "/.toolspan-" not in path:
                self.grown.setdefault(path, File()).data += data
            case "named":
                before: bytes | None = OLD.encode() if path.endswith("edited.txt") else None
                self.versions.setdefault(path, [before]).append(data)
            case "fsync":
                self._keep(path)
            case _:
                pass

    def _keep(self, path: str) -> None:
        if path in self.grown:
            self.grown[path].kept = len(self.grown[path].data)
        for name, file in self.grown.items():
            file.named = file.named or str(Path(name).parent) == path
        for name, versions in self.versions.items():
            if str(Path(name).parent) == path:
                self.versions[name] = versions[-1:]


def noted(folder: Path, fsync: Fsync) -> Operations:
    program = [sys.executable, "-m", "tests.crash.killed_session", "note", str(folder), fsync]
    subprocess.run(program, cwd=ROOT, check=True, capture_output=True)
    result = json.loads((folder / "operations.json").read_text(encoding="utf-8"))
    return [(what, path, base64.b64decode(data)) for what, path, data in result]


Choice = Callable[[File], int | None]
Version = Callable[[list[bytes | None]], bytes | None]


def surviving_files(disk: Disk, place: Path, origin: Path, much: Choice, which: Version) -> None:
    def put(path: str, data: bytes) -> None:
        target = place / Path(path).relative_to(origin)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".log":  # it names files by their whole path
            data = data.replace(bytes(origin), bytes(place))
        target.write_bytes(data)

    (place / "project").mkdir(parents=True)
    put(str(origin / "project" / "edited.txt"), OLD.encode())
    for path, file in disk.grown.items():
        length = much(file)
        if length is not None:
            put(path, file.data[:length])
    for path, versions in disk.versions.items():
        content = which(versions)
        if content is not None:
            put(path, content)


@pytest.fixture(scope="module", params=["never", "results", "always"])
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Fsync, Path, Operations]:
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, folder, noted(folder, request.param)


def died(operations: Operations, until: int) -> tuple[Disk, set[str]]:
    disk = Disk()
    for what, path, written in operations[:until]:
        disk.take(what, path, written)
    return disk, {call for what, call, _ in operations[:until] if what == "told"}


def check(place: Path, fsync: Fsync, told: set[str]) -> None:
    if transcript(place).exists():
        check_history_of(place)
        for call, verdict in verdicts(place, "another start of the machine").items():
            check_verdict(place, call, verdict)
    if fsync != "never":
        assert told <= set(results(transcript(place)))


@given(st.data())
def test_session_is_resumed_without_wrong_evidence_after_lost_writes(
    story: tuple[Fsync, Path, Operations], data: st.DataObject
) -> None:
    fsync, origin, operations = story
    disk, output = died(operations, data.draw(st.integers(0, len(operations)), label="died after"))

    def much(file: File) -> int | None:
        there = file.named or data.draw(st.booleans(), label="has a name")
        return data.draw(file.lengths(), label="is left") if there else None

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        surviving_files(disk, place, origin, much, lambda versions: data.draw(st.sampled_from(versions)))
        check(place, fsync, output)


def test_any_number_of_intents_may_remain_beside_a_complete_transcript(
    story: tuple[Fsync, Path, Operations], tmp_path: Path
) -> None:
    fsync, origin, operations = story
    for until in range(len(operations)):
        disk, output = died(operations, until)
        name = next((item for item in disk.grown if item.endswith(".log")), "")
        intents = disk.grown.get(name, File())
        for length in intents.ends():

            def much(file: File, length: int = length, intents: File = intents) -> int:
                return length if file is intents else len(file.data)

            place = tmp_path / f"{until}-{length}"
            surviving_files(disk, place, origin, much, lambda versions: versions[-1])
            check(place, fsync, output)
