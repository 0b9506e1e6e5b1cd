"""Facts for later questions, which a process in the background adds to the cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reading.cache.test_cache import archive
from toolspan.archive.engine import list_fact_kinds
from toolspan.reading.cache import Cache, CacheKey, cached_map, compute_file_stamp
from toolspan.reading.facts import read_facts, tuple_job

ASK = """
import sys, time
from pathlib import Path
from toolspan.analysis.usage import USAGE_JOB
from toolspan.archive.engine import list_fact_kinds
from toolspan.reading.cache import Cache, cached_map

cache, *paths = map(Path, sys.argv[1:])
now = lambda: time.time_ns() + 10_000_000_000  # the files have not been changed for some seconds
files = list(cached_map(paths, USAGE_JOB, Cache(cache), now=now, further_kinds=list_fact_kinds))
print(*(file.file for file in files))
"""


def ask_usage(cache: Path, paths: list[Path]) -> str:
    """Ask in a process, and read its output until every process that holds the pipe has closed it."""
    command = [sys.executable, "-c", ASK, str(cache), *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def cached_kinds(cache: Cache, path: Path) -> set[str]:
    stamp = compute_file_stamp(path) or ""
    keys = [(CacheKey(str(path), str(path), kind.name), stamp) for kind in list_fact_kinds()]
    return {key.job_name for key in cache.find_current(keys)}


def wait_for_facts(cache: Cache) -> None:
    descriptor = cache.lock_background(wait=True)
    assert descriptor is not None
    os.close(descriptor)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="facts are added by a forked process")
def test_facts_for_every_question_follow_the_first_one(tmp_path: Path) -> None:
    paths = archive(tmp_path / "archive", "one", "two")
    cache = Cache(tmp_path / "cache")

    assert ask_usage(tmp_path / "cache", paths).split() == [str(path) for path in paths]
    wait_for_facts(cache)

    kinds = list_fact_kinds()
    assert cached_kinds(cache, paths[0]) == cached_kinds(cache, paths[1]) == {kind.name for kind in kinds}
    assert [list(facts) for facts in cached_map(paths, tuple_job(*kinds), cache)] == [
        read_facts(path, kinds) for path in paths
    ]


def test_one_process_adds_facts_at_a_time(tmp_path: Path) -> None:
    paths = archive(tmp_path / "archive", "one")
    cache = Cache(tmp_path / "cache")
    descriptor = cache.lock_background()
    assert descriptor is not None
    try:
        ask_usage(tmp_path / "cache", paths)
    finally:
        os.close(descriptor)

    assert cached_kinds(cache, paths[0]) == {"usage"}
