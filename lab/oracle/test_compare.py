from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.reading.repair.defects import parallel
from tests.session.recording.emitted import wrong

from lab.oracle.compare import differences
from lab.oracle.recording_scenarios import SCENARIOS, record, unanswered
from toolspan.runtime.profiles import VERSIONS

ROOT = Path(__file__).parent.parent.parent


def history(transcript: Path) -> list[dict[str, Any]]:
    """Return the messages of a client that loses nothing."""
    messages: list[dict[str, Any]] = []
    for line in transcript.read_bytes().splitlines():
        entry = json.loads(line)
        if entry["type"] not in ("user", "assistant"):
            continue
        content = entry["message"]["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if messages and messages[-1]["role"] == entry["type"]:
            messages[-1]["content"] += content
        else:
            messages.append({"role": entry["type"], "content": content})
    return [*messages, {"role": "user", "content": "go on"}]


def test_a_complete_history_is_accepted(tmp_path: Path) -> None:
    transcript = record(parallel, tmp_path, "2.1.327")

    assert differences(transcript, history(transcript), repaired=False) == []


def test_lost_and_changed_messages_are_reported(tmp_path: Path) -> None:
    transcript = record(parallel, tmp_path, "2.1.327")
    without_text, changed, empty = (history(transcript) for _ in range(3))
    del without_text[1]["content"][0]
    changed[2]["content"][0]["content"] = "something else"
    del empty[2]

    assert differences(transcript, without_text, repaired=False) == [
        "not sent, changed or out of order: ('assistant', 'I look at them.')"
    ]
    assert len(differences(transcript, changed, repaired=False)) == 1
    assert any("invalid" in problem for problem in differences(transcript, empty, repaired=False))


def test_an_open_call_may_be_dropped_only_by_clients_that_do_so(tmp_path: Path) -> None:
    transcript = record(unanswered, tmp_path, "2.0.65")
    sent = history(transcript)
    del sent[1]["content"][-1]

    assert differences(transcript, sent, repaired=True) == []
    assert len(differences(transcript, sent, repaired=False)) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_scenarios_have_no_unexpected_findings(tmp_path: Path, version: str) -> None:
    for scenario in SCENARIOS:
        transcript = record(scenario, tmp_path / scenario.__name__, version)
        open_call = {"unanswered_call"}
        expected = {"torn": {"torn_line"}, "unanswered": open_call, "with_intent_log": open_call}

        assert {f.code for f in wrong(transcript)} <= expected.get(scenario.__name__, set())


def test_a_client_without_a_profile_resumes_records_of_the_nearest_one(tmp_path: Path) -> None:
    transcript = record(parallel, tmp_path, "2.9")

    assert '"version":"2.1.327"' in transcript.read_text(encoding="utf-8")
    assert "no profile 2.9; recording with the nearest one, 2.1.327" in run_oracle(tmp_path, "--version", "2.9").stderr


def test_a_missing_harness_is_reported(tmp_path: Path) -> None:
    run = run_oracle(tmp_path)

    assert run.returncode == 2
    assert f"the harness is not in {tmp_path.resolve() / 'oracle'}" in run.stderr


def run_oracle(shared: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lab.oracle", *options],
        cwd=ROOT,
        env={**os.environ, "SHARED": str(shared), "ORACLE_SCRATCH": str(shared)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("program", ["lab.oracle", "lab.explore"])
def test_folders_that_the_namespaces_hide_are_refused_at_the_start(program: str, tmp_path: Path) -> None:
    (tmp_path / "oracle").mkdir()
    environment = {**os.environ, "SHARED": str(tmp_path), "ORACLE_SCRATCH": "/home/hidden-scratch"}

    run = subprocess.run(
        [sys.executable, "-m", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )

    assert run.returncode == 2
    assert "namespaces hide" in run.stderr and "move it out of /home and /tmp" in run.stderr
