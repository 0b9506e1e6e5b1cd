"""No attempt to leave the sandbox succeeds, and each one succeeds without it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.sandbox.conftest import RunAsUser


@pytest.mark.parametrize("mode", ["strict", *(pytest.param(name, marks=pytest.mark.slow) for name in ("open", "run"))])
def test_no_attempt_with_files_and_processes_leaves_the_sandbox(
    run_as_user: RunAsUser, user_folder: Path, mode: str
) -> None:
    arguments = [str(user_folder), mode]
    if os.getuid() == 0:
        setuid = shutil.copy("/usr/bin/id", user_folder / "id")
        Path(setuid).chmod(0o4755)
        arguments.append(str(setuid))

    done = run_as_user("-m", "tests.sandbox.escape_driver", *arguments)

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [name for name, (bare, _, _) in report.items() if not bare] == [], done.stderr
    assert {name: result for name, (_, inside, result) in report.items() if inside} == {}
    assert len(report) >= 200
