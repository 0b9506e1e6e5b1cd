from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import toolspan
from tests.session.recording.emitted import START, Failures, error, finished, message, origin, recorder, use, wrong
from toolspan.runtime.profiles import VERSIONS
from toolspan.session.recording import Fsync, Recorder

ROOT = Path(__file__).parents[3]


def whole_session(path: Path, version: str = "2.1.327") -> None:
    recording = recorder(path, version=version)
    recording.record_prompt("go")
    recording.record_reply(message("ok", use("toolu_a", "Read", file_path="a"), use("toolu_b", "Bash")))
    recording.record_result(finished("toolu_b", "Bash", "é\u2028" * 5, is_error=False, at=START + 61))
    recording.record_result(error("toolu_a", "Read", "File does not exist.", at=START + 62))


@pytest.mark.parametrize("version", VERSIONS)
def test_file_cut_in_its_last_line_is_read_and_continued(tmp_path: Path, version: str) -> None:
    path = tmp_path / "session.jsonl"
    whole_session(path, version)
    data = path.read_bytes()
    start = data.rindex(b"\n", 0, -1) + 1

    for cut in (*range(start, len(data) - 8, 11), *range(len(data) - 8, len(data) + 1)):
        path.write_bytes(data[:cut])
        complete = cut >= len(data) - 1
        states = [span.state for span in toolspan.read(path).spans]
        assert states == ["failed" if complete else "never_answered", "succeeded"]

        again = Recorder.resume(path, origin(tmp_path, version=version), Failures())
        if again.open_calls:
            again.record_result(error("toolu_a", "Read", "File does not exist."))
        again.record_reply(message("done", id="msg_02"))
        again.close()

        transcript = toolspan.read(path)
        assert [span.state for span in transcript.spans] == ["failed", "succeeded"]
        assert transcript.counts.malformed == 0


def test_full_disk_is_reported_and_does_not_raise() -> None:
    failures = Failures()
    recording = recorder(Path("/dev/full"), failures=failures)
    recording.record_prompt("go")
    recording.record_reply(message(use("toolu_a", "Read")))
    recording.record_result(finished("toolu_a", "Read", "x"))
    recording.close()

    assert failures.reasons[:2] == ["No space left on device"] * 2
    assert failures.told[0].path == "/dev/full"
    assert failures.reasons[2] == "toolu_a is not in the file, so its result is omitted"


_LIMITED = """
import resource, sys
from pathlib import Path
from tests.session.recording.emitted import *

def set_limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

folder = Path(sys.argv[1])
for limit in range(0, 3600, 61):
    path, failures = folder / f"{limit}.jsonl", Failures()
    set_limit(limit)
    recording = recorder(path, failures=failures)
    recording.record_prompt("go")
    recording.record_reply(message("ok", use("toolu_a", "Read"), use("toolu_b", "Read")))
    recording.record_result(finished("toolu_a", "Read", "a"))
    recording.record_result(finished("toolu_b", "Read", "b"))
    set_limit(resource.RLIM_INFINITY)
    recording.record_reply(message(use("toolu_c", "Read"), id="msg_02"))
    recording.record_result(finished("toolu_c", "Read", "c"))
    recording.close()
    assert failures.told, limit
    assert all("File too large" in r or "not in the file" in r for r in failures.reasons)
"""


def test_full_disk_leaves_a_complete_prefix_with_every_call_answered(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(tmp_path)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.stderr == ""

    for path in sorted(tmp_path.glob("*.jsonl")):
        transcript = toolspan.read(path)
        torn = transcript.counts.malformed
        assert torn <= 1, path
        assert {span.state for span in transcript.spans} == {"succeeded"}, path
        assert transcript.spans[-1].id == "toolu_c"
        known: set[str | None] = {None}
        for line in path.read_bytes().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if "uuid" in entry:
                assert entry["parentUuid"] in known, path
                known.add(entry["uuid"])


def test_removed_folder_is_reported_and_created_again(tmp_path: Path) -> None:
    path = tmp_path / "project" / "session.jsonl"
    failures = Failures()
    recording = recorder(path, failures=failures)
    recording.record_prompt("go")
    recording.record_reply(message(use("toolu_a", "Read")))
    shutil.rmtree(path.parent)
    recording.record_result(finished("toolu_a", "Read", "x"))
    recording.record_prompt("again")
    recording.record_reply(message(use("toolu_b", "Read"), id="msg_02"))
    recording.record_result(finished("toolu_b", "Read", "x"))
    recording.close()

    assert failures.reasons == [
        "the file was removed, and the records in it are lost",
        "toolu_a is not in the file, so its result is omitted",
    ]
    assert [(span.id, span.state) for span in toolspan.read(path).spans] == [("toolu_b", "succeeded")]
    assert wrong(path) == []


def test_file_that_cannot_be_created_is_reported_and_retried(tmp_path: Path) -> None:
    in_the_way = tmp_path / "project"
    in_the_way.write_text("a file")
    path = in_the_way / "session.jsonl"
    failures = Failures()
    recording = recorder(path, failures=failures)
    recording.record_prompt("lost")
    in_the_way.unlink()
    recording.record_prompt("kept")

    assert len(failures.told) == 1
    (remaining,) = map(json.loads, path.read_text().splitlines())
    assert (remaining["message"]["content"], remaining["parentUuid"]) == ("kept", None)


def test_side_file_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    (tmp_path / "session").write_text("a file in the way")
    failures = Failures()
    agent = recorder(path, failures=failures).subagent_recorder("a1", {"agentType": "x"})
    agent.record_prompt("look")

    assert [Path(failed.path).name for failed in failures.told] == ["agent-a1.meta.json", "agent-a1.jsonl"]


@pytest.mark.parametrize(("tail", "first"), [(b'{"torn', []), (b"not JSON", [b"not JSON"])])
def test_record_after_a_torn_line_starts_on_a_new_line(tail: bytes, first: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(tail)
    recording = recorder(path)
    recording.record_prompt("one")
    recording.record_prompt("two")

    lines = path.read_bytes().splitlines()
    others = lines[len(first) :]

    assert lines[: len(first)] == first
    assert [json.loads(line)["message"]["content"] for line in others] == ["one", "two"]


@pytest.mark.parametrize("fsync", ["never", "results", "always"])
def test_two_writers_never_mix_within_a_line(tmp_path: Path, fsync: Fsync) -> None:
    path = tmp_path / "session.jsonl"
    first, two = (Recorder(path, origin(tmp_path, fsync=fsync), Failures()) for _ in range(2))
    for number in range(20):
        first.record_prompt(f"one {number} " + "x" * 9_000)
        two.record_prompt(f"two {number}")
    first.close()
    two.close()

    prompts = [json.loads(line) for line in path.read_bytes().splitlines()]

    assert len([line for line in prompts if line["type"] == "user"]) == 40


def test_file_is_not_inherited_by_child_processes(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    recording = recorder(path)
    recording.record_prompt("go")

    listed = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=False)

    assert str(path) not in listed.stdout
    recording.close()
    assert os.path.getsize(path) > 0  # noqa: PTH202 - after all descriptors are closed
