"""Run programs as an ordinary user, also in a test run of root."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toolspan.runtime.sandbox.bubblewrap import detect_bubblewrap
from toolspan.runtime.sandbox.settings import Sandbox

NOBODY = 65534
REPOSITORY = Path(__file__).parents[2]
RunAsUser = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def bubblewrap() -> None:
    """Skip a test where bubblewrap does not work."""
    found = detect_bubblewrap(Sandbox())
    if found.backend is None:
        pytest.skip(f"{found.problem}{f'; run {found.fix}' if found.fix else ''}")


@pytest.fixture(scope="session")
def curl() -> None:
    """Skip a test where curl is not installed."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")


@pytest.fixture
def user_folder() -> Iterator[Path]:
    """An empty folder of an ordinary user, not in /tmp, which a sandbox replaces."""
    base = Path("/opt") if os.getuid() == 0 else Path.home()
    folder = Path(tempfile.mkdtemp(prefix="toolspan-test-", dir=base))
    if os.getuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def folder(user_folder: Path) -> Path:
    """An empty project of the user who runs the tests."""
    project = user_folder / "project"
    project.mkdir()
    return project


@pytest.fixture(scope="session")
def run_as_user(bubblewrap: None) -> RunAsUser:
    """A function that runs a Python program of this repository as an ordinary user."""
    if os.getuid() == 0 and subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("root needs a mount namespace here to become an ordinary user")

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        paths = [str(REPOSITORY / "src"), str(REPOSITORY), *(path for path in sys.path if "site-packages" in path)]
        env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": ":".join(paths),
               "HOME": "/nonexistent", "LC_ALL": "C", "TOOLSPAN_NO_CACHE": "1", **environment}  # fmt: skip
        if os.getuid() == 0:
            command = ["unshare", "--mount", "bash", "-ec", _as_nobody(command)]
        return subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd="/")

    return run


def _as_nobody(command: list[str]) -> str:
    """Return a script that opens the closed folders in which the interpreter lies, for itself only."""
    lines = []
    needed = {Path(path).resolve() for path in (sys.base_prefix, sys.prefix, REPOSITORY)}
    for folder in sorted({parent for path in needed for parent in path.parents if not parent.stat().st_mode & 1}):
        inside = {f"/run/toolspan-{index}": path for index, path in enumerate(needed) if folder in path.parents}
        lines += [f"mkdir -p {place}; mount --bind {path} {place}" for place, path in inside.items()]
        lines.append(f"mount -t tmpfs -o mode=755 none {folder}")
        lines += [f"mkdir -p {path}; mount --bind {place} {path}; umount {place}; rmdir {place}"
                  for place, path in inside.items()]  # fmt: skip
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]
    return "\n".join([*lines, f"exec {shlex.join(drop)}"])
