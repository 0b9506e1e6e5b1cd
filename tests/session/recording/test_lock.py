"""The lock on a transcript whose owner was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from toolspan.session.recording.writer import TranscriptWriter

_KEEPS_LOCK_AFTER_OWNER = """
import fcntl, os, sys

fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX)
if os.fork():
    os._exit(0)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the owner of a lock is unknown")
def test_a_child_of_a_dead_owner_may_keep_the_lock_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"{}\n")
    command = [sys.executable, "-c", _KEEPS_LOCK_AFTER_OWNER, os.fspath(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        owner.wait()

        def end_child(_seconds: float) -> None:
            assert owner.stdin is not None and owner.stdout is not None
            owner.stdin.close()
            owner.stdout.read()  # until the child ends

        monkeypatch.setattr(time, "sleep", end_child)
        writer = TranscriptWriter(path, pytest.fail)
        writer.ensure_open()
        writer.close()

    assert writer.owner is None
