"""Questions about transcripts of real sessions have consistent answers. Needs the corpus in $SHARED."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.reading.test_lineage import disagreements, sums_of_files, sums_of_pages, sums_of_sessions
from tests.tables.test_engines import TIMEOUT, check_cluster

CORPUS = Path(os.environ.get("SHARED", "../shared")).resolve() / "corpus"
pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="needs the corpus in $SHARED")


def test_totals_of_all_questions_agree_on_real_transcripts() -> None:
    projects = sorted((CORPUS / "claude/.claude/projects").iterdir())[::12]
    for folder in (*projects, CORPUS / "codex/.codex/sessions/2025"):
        assert disagreements(sums_of_files(folder)) == {}, folder
        assert disagreements(sums_of_sessions(folder)) == {}, folder


@pytest.mark.parametrize("folder", ["claude/.claude/projects", "codex/.codex/sessions"])
def test_lists_and_pages_have_the_same_numbers_of_each_real_session(folder: str) -> None:
    assert disagreements(sums_of_pages(CORPUS / folder)) == {}


@pytest.mark.slow
def test_cluster_that_loses_a_node_writes_the_same_tables_of_real_transcripts(tmp_path: Path) -> None:
    check_cluster(CORPUS, tmp_path, TIMEOUT * 10)
