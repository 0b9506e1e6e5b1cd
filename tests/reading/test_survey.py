"""Many files at once: the same facts from one process and from many."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.requirement import requirement
from toolspan.analysis.errors import file_recovery
from toolspan.reading import parallel as module
from toolspan.reading.parallel import scan_files
from toolspan.testing import TranscriptBuilder, claude_results


def archive(root: Path) -> list[Path]:
    """Thirty files: calls of all sorts, damage, a subagent, an empty and an unreadable file."""
    paths = []
    for n in range(28):
        story = TranscriptBuilder(session_id=f"s{n:02}").prompt("go")
        for m in range(n):
            call = story.call("Bash", {"command": f"echo {m}"}, after_ms=5)
            story.result(call, claude_results.exited(m) if m % 3 else claude_results.ran("x"), after_ms=n)
        if n % 5 == 0:
            story.raw(b'{"torn').call("Read", {"file_path": "/a"})
        paths.append(story.write(root / f"s{n:02}.jsonl"))
    (root / "empty.jsonl").touch()
    (root / "broken.jsonl.zst").write_bytes(b"no frame")
    return [*paths[:9], root / "empty.jsonl", root / "broken.jsonl.zst", *paths[9:]]


@requirement("survey.cores-change-nothing")
def test_many_processes_give_what_one_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = archive(tmp_path)
    alone = list(scan_files(paths))
    monkeypatch.setattr(module, "_SERIAL_LIMIT_BYTES", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)

    together = list(scan_files(paths))

    assert together == alone
    assert [Path(facts.file) for facts in together] == paths


@requirement("survey.progress")
@pytest.mark.parametrize("alone", [0, 1 << 40])
def test_every_byte_is_told_once(alone: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = archive(tmp_path)
    monkeypatch.setattr(module, "_SERIAL_LIMIT_BYTES", alone)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    told: list[int] = []

    list(scan_files(paths, advance=told.append))

    assert told == [path.stat().st_size for path in paths]


@requirement("survey.unreadable-files-are-told")
def test_a_file_that_cannot_be_read_is_told_not_raised(tmp_path: Path) -> None:
    paths = [*archive(tmp_path), tmp_path / "gone.jsonl"]

    problems = {Path(facts.file).name: facts.problem for facts in scan_files(paths) if facts.problem}

    assert set(problems) == {"broken.jsonl.zst", "gone.jsonl"}


@requirement("survey.failures")
def test_failures_and_names_of_successes_are_all_calls(tmp_path: Path) -> None:
    paths = archive(tmp_path)

    for whole, part in zip(scan_files(paths), map(file_recovery, map(str, paths)), strict=True):
        assert part.facts.calls == [row for row in whole.calls if row.state != "succeeded"]
        assert len(part.facts.calls) + len(part.facts.successes) == len(whole.calls)


def test_nothing_gives_nothing() -> None:
    assert list(scan_files([])) == []
