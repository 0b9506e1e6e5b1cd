"""The sample archive and the script that writes it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from scripts import make_sample
from scripts.make_sample import SampleSession

from toolspan import diffs
from toolspan.formats import json_repair
from toolspan.formats.claude import records
from toolspan.reading import sample
from toolspan.reading.transcript import Transcript, read
from toolspan.testing import project_name
from toolspan.types.hunk import Hunk
from toolspan.types.state import OPEN_STATES, STATES

ROOT = sample.archive() / "claude" / "projects"
LIMIT = 400_000
PLACES = re.compile(r"/(?:home|Users)/[\w.-]+|[\w.+-]+@[\w-]+\.[\w.]+|https?://[\w.-]+")
INVENTED = {"/home/mira", "https://contrast.example"}


def transcripts() -> dict[str, Transcript]:
    return {str(path.relative_to(ROOT)): read(path) for path in sorted(ROOT.rglob("*.jsonl"))}


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def session(name: str) -> SampleSession:
    (result,) = (make() for make in make_sample.SESSION_MAKERS if make.__name__ == name)
    return result


def transcript(sample_session: SampleSession) -> Transcript:
    return read(ROOT / project_name(sample_session.cwd) / f"{sample_session.transcript.session_id}.jsonl")


def test_archive_is_the_output_of_the_script(tmp_path: Path) -> None:
    make_sample.write(tmp_path)

    assert contents(tmp_path) == contents(sample.archive())


def test_archive_is_small_and_has_no_hidden_files() -> None:
    files = contents(sample.archive())

    assert sum(map(len, files.values())) <= LIMIT
    assert [name for name in files if "/." in f"/{name}"] == []
    assert len({name.split("/")[2] for name in files}) == 3


def test_every_call_has_the_state_of_its_session() -> None:
    meant = {
        f"{project_name(sample_session.cwd)}/{name}": intended_states
        for sample_session in make_sample.sessions()
        for name, intended_states in sample_session.intended_states().items()
    }

    result = {
        name: {span.id: (span.state, span.error_kind) for span in transcript.spans}
        for name, transcript in transcripts().items()
    }

    assert result == meant


def test_every_state_occurs() -> None:
    ended = {span.state for result in transcripts().values() for span in result.spans}

    assert ended == set(STATES) - OPEN_STATES


def test_every_complete_line_encodes_to_the_same_json() -> None:
    broken = Counter[str]()
    for path in ROOT.rglob("*.jsonl"):
        for line in path.read_bytes().removesuffix(b"\n").split(b"\n"):
            try:
                entry, odd = records.decode_entry(line)
            except ValueError:
                broken[path.stem] += 1
                continue
            assert (odd, entry.is_known) == ((), True)
            assert json_repair.is_same_json(records.encode_entry(entry, line), line)

    assert broken == {session("broken_night").transcript.session_id: 3}


def test_only_the_broken_session_is_damaged() -> None:
    damaged = {
        name: [finding.code for finding in result.findings] for name, result in transcripts().items() if result.findings
    }

    (codes,) = damaged.values()
    assert codes == ["torn_line", "glued_records", "torn_last_line"]


def test_every_recorded_patch_fits_its_file() -> None:
    checked = 0
    for path in ROOT.rglob("*.jsonl"):
        for line in path.read_bytes().split(b"\n"):
            if b'"structuredPatch":[{' not in line:
                continue
            result = msgspec.json.decode(line)["toolUseResult"]
            before = result.get("originalFile") or result.get("originalFileContents")
            hunks = msgspec.convert(result["structuredPatch"], list[Hunk])
            after = result.get("content")
            if "oldString" in result:
                times = -1 if result["replaceAll"] else 1
                after = before.replace(result["oldString"], result["newString"], times)
            assert diffs.problems(hunks) == ()
            assert diffs.verify(hunks, before, after) == diffs.Fits()
            checked += 1

    assert checked > 10


def test_subagents_are_named_by_the_calls_that_started_them() -> None:
    files = {Path(name).stem.removeprefix("agent-") for name in transcripts() if "agent-" in name}

    started = {span.agent for result in transcripts().values() for span in result.spans if span.agent}

    assert files == started
    assert len(started) == 4


def test_spilled_output_is_at_the_path_in_its_result() -> None:
    (spilled,) = (
        span.result for span in transcript(session("gauges")).spans if span.result and span.result.persisted_path
    )
    name = str(spilled.persisted_path).partition("/.claude/projects/")[2]

    assert (ROOT / name).read_text(encoding="utf-8").startswith("2026-10-01T00:00Z ford 1.2\n")


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.jsonl")), ids=lambda path: str(path.stem))
def test_sessions_are_within_one_week(path: Path) -> None:
    times = {entry.timestamp for entry, _ in read(path).entries() if entry.timestamp}

    assert min(times) >= "2026-11-02"
    assert max(times) < "2026-11-09"


def test_no_real_people_or_places_are_named() -> None:
    named = {place for data in contents(sample.archive()).values() for place in PLACES.findall(data.decode())}

    assert named == INVENTED
