"""Compare the first and the second question with an earlier version, in turn, by CPU time.

`--before` is the `src` folder of the earlier version, such as one that `git archive` wrote. A first question has an
empty cache. A second one has the cache of `errors`, after the facts that it leaves out were added in the background.
CPU time of the background is not counted. Prints a Markdown table. Start at `main`.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from promises import table

QUESTIONS = (
    "errors", "usage", "stats", "time", "files", "flows", "sessions", "calls", "calls --json", "prompts", "denials",
    "hooks", "agents", "risky",
)  # fmt: skip
PROGRAM = "import sys; sys.argv[0] = 'toolspan'; from toolspan.cli import main; sys.exit(main())"
WAIT = """
import os, sys
from pathlib import Path
from toolspan.reading.cache import Cache
lock = Cache(Path(sys.argv[1])).lock_background(wait=True)
if lock is not None:
    os.close(lock)
"""
NOW = Path(__file__).parent.parent / "src"


def run(source: Path, arguments: Sequence[str], scratch: Path, cache: Path) -> float | None:
    """Run a command of one version, and return its CPU time in seconds, or None if the version does not have it."""
    env = {
        "PATH": os.environ["PATH"], "HOME": str(scratch), "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(source),
        "TZ": "UTC",
    }  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], env=env, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds if done.returncode == 0 else None


def wait_for_background(cache: Path) -> None:
    """Wait until no process adds facts to the cache."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(NOW)}
    subprocess.run([sys.executable, "-c", WAIT, str(cache / "toolspan")], env=env, check=True)


def measure(archive: Path, before: Path, rounds: int, questions: Sequence[str], scratch: Path) -> list[list[object]]:
    """Return a row for each question: the lowest CPU time of its first and second time in both versions."""
    prepared: dict[Path, Path] = {}
    for source in (before, NOW):
        prepared[source] = cache = scratch / f"prepared-{len(prepared)}"
        cache.mkdir()
        run(source, ["errors", str(archive)], scratch, cache)
    wait_for_background(prepared[NOW])
    lowest: dict[tuple[str, str, Path], float] = {}
    for _ in range(rounds):
        for question in questions:
            name, *options = question.split()
            for source in (before, NOW):
                for kind in ("first", "second"):
                    cache = scratch / "cache"
                    shutil.rmtree(cache, ignore_errors=True)
                    if kind == "second":
                        shutil.copytree(prepared[source], cache)
                    seconds = run(source, [name, str(archive), *options], scratch, cache)
                    if source == NOW:
                        wait_for_background(cache)
                    if seconds is not None:
                        key = (question, kind, source)
                        lowest[key] = min(seconds, lowest.get(key, seconds))
    return [
        [f"`{question}`", *(_format(lowest, question, kind, before) for kind in ("first", "second"))]
        for question in questions
    ]


def _format(lowest: dict[tuple[str, str, Path], float], question: str, kind: str, before: Path) -> str:
    then, now = lowest.get((question, kind, before)), lowest[question, kind, NOW]
    return f"{now:.2f}" if then is None else f"{then:.2f} → {now:.2f} ({now / then:.2f} ×)"


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--archive", type=Path, required=True, help="a folder of transcripts")
    parser.add_argument("--before", type=Path, required=True, help="the src folder of the earlier version")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("questions", nargs="*", default=QUESTIONS, help="commands, with options in quotes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folders = arguments.archive.resolve(), arguments.before.resolve()
        rows = measure(*folders, arguments.rounds, arguments.questions, Path(name))
    print(*table(["CPU seconds", "first", "second"], rows), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
