"""One job per file, on all cores: the same answers from one process and from many."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolspan.analysis.flows import FLOWS
from toolspan.analysis.search import find as search_module
from toolspan.analysis.search.find import complete_matches, search
from toolspan.analysis.search.query import Candidate, query_of
from toolspan.reading import parallel as spread_module
from toolspan.reading.facts import single_job
from toolspan.reading.parallel import parallel_map, scan_files

ODD = (
    r'{"type":"assistant","sessionId":"s","message":{"content":[{"type":"tool_use",'
    r'"id":"t\ud800","name":"B\udfff","input":{"command":"ls \ud800"}}]}}'
)
"""A call whose names hold halves of surrogate pairs."""


def test_results_that_msgpack_cannot_encode_are_passed_between_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / "plain.jsonl", tmp_path / os.fsdecode(b"no\xfftext.jsonl")]
    for path in paths:
        path.write_text(ODD, encoding="utf-8")
    candidates = [Candidate(str(path), len(ODD), None) for path in paths]

    def answers() -> tuple[object, ...]:
        matches = search(candidates, query_of(["ls"])).matches
        flows = list(parallel_map(paths, single_job(FLOWS)))
        return list(scan_files(paths)), flows, complete_matches(matches, scan_files)

    alone = answers()
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(spread_module, "_SERIAL_LIMIT_BYTES", 0)
    monkeypatch.setattr(search_module, "_SERIAL_LIMIT_BYTES", 0)

    assert answers() == alone
    assert [row.id for facts in scan_files(paths) for row in facts.calls] == ["t\ud800"] * 2
