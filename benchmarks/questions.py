"""Measure how long queries take: the first, the second, and a search; compared with peers and ripgrep.

Needs an archive with its `expected-totals.json`, the peers' prefix (see `peers.py`), and optionally a folder of
rollouts. Prints Markdown tables, and all numbers with `--json`; with `--enforce`, exits with code 1 if a target is
missed. The first query starts without a cache, the second with the cache of the first; a search never has an index.
All contestants run in turns, round by round. `read.py` measures. Start at `main`.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from peers import AGENTSVIEW, CCUSAGE, Answer, Bench, Job, agentsview_job, ccusage_job
from promises import Target, ratio_target, table
from read import Row, print_queries, query_bench, query_parser, run_into, toolspan

WORDS = ("ENOENT", "Traceback", "error")
SLACK = 0.25
"""Seconds that a search may take longer than ripgrep."""

Maker = Callable[[Bench, Path], Job]


def ripgrep() -> Path:
    """Return the ripgrep that toolspan uses."""
    return Path(sys.executable).with_name("rg")


def digest(stdout: Path) -> Answer:
    """Return a digest of the output: the second answer must equal the first."""
    return Answer(note=hashlib.sha256(stdout.read_bytes()).hexdigest()[:12])


def errors_job(bench: Bench, run_dir: Path) -> Job:
    """Run `toolspan errors` with an empty cache."""
    env = {"XDG_CACHE_HOME": str(run_dir / "cache")}
    return Job([toolspan(), "errors", "--json", bench.archive], env=env, answer=digest)


def errors_again_job(bench: Bench, _: Path) -> Job:
    """Run `toolspan errors` with a warm cache."""
    env = {"XDG_CACHE_HOME": str(bench.scratch / "cache")}
    return Job([toolspan(), "errors", "--json", bench.archive], env=env, answer=digest)


def agentsview_again_job(bench: Bench, run_dir: Path) -> Job:
    """Run `agentsview sync` again on the same archive."""
    job = agentsview_job(bench, run_dir)
    data_folder = bench.scratch / "agentsview"
    data_folder.mkdir(exist_ok=True)
    return replace(job, env={**job.env, "AGENTSVIEW_DATA_DIR": str(data_folder)}, answer=lambda _: Answer())


def search_job(word: str, path: Path) -> Maker:
    """Return the job for `toolspan search`, as users run it."""

    def job(_: Bench, run_dir: Path) -> Job:
        env = {"XDG_CACHE_HOME": str(run_dir / "cache")}
        return Job([toolspan(), "search", word, f"{path}/"], env=env)

    return job


def ripgrep_job(word: str, path: Path) -> Maker:
    """Return the job for ripgrep with the same literal in the same files; its output is kept."""
    return lambda _, __: Job([*ripgrep_command(word), path])


def ripgrep_command(word: str, *options: str) -> list[str]:
    """Return a ripgrep command that searches all transcripts."""
    every = ["--no-config", "--no-ignore", "--hidden", "--text", "--glob=*.jsonl"]
    return [str(ripgrep()), *every, "--fixed-strings", *options, "-e", word]


class Search(NamedTuple):
    """A word to search for, and the place."""

    word: str
    place: Path
    suffix: str = ""

    @property
    def ours(self) -> str:
        """The name of toolspan's row."""
        return f"search {self.word}{self.suffix}"

    @property
    def floor(self) -> str:
        """The name of ripgrep's row."""
        return f"rg {self.word}{self.suffix}"


def contestants(bench: Bench, searches: Sequence[Search]) -> Iterator[tuple[str, str, Maker, bool]]:
    """Yield name, description, job, and whether it is too slow for more than one round."""
    peers = bench.peers is not None
    yield "errors, first", "`toolspan errors --json`, empty cache", errors_job, False
    if peers:
        about = f"ccusage {CCUSAGE.version}: `claude daily --json --offline`"
        yield "ccusage", about, ccusage_job, False
        about = f"agentsview {AGENTSVIEW.version}: cold `sync`, no daemon"
        yield "agentsview, first", about, agentsview_job, True
    yield "errors, second", "the same, archive unchanged", errors_again_job, False
    if peers:
        yield "agentsview, second", "`sync`, archive unchanged", agentsview_again_job, False
    for search in searches:
        word, place = search.word, search.place
        yield search.ours, f"`toolspan search '{word}'`{search.suffix}", search_job(word, place), False
        yield search.floor, f"`rg -F '{word}'`{search.suffix}", ripgrep_job(word, place), False


def run_all(bench: Bench, searches: Sequence[Search], repeats: int) -> list[Row]:
    """Run all jobs round by round; the caches for second queries are prepared before the first round."""
    chosen = list(contestants(bench, searches))
    rows = [Row(name, about) for name, about, _, _ in chosen]
    for name, about, job, _ in chosen:
        if name.endswith("second"):
            prepared = Row(f"{name}, prepared", about)
            run_into(prepared, bench, job)
            rows[[row.name for row in rows].index(name)].failure = prepared.failure
    for number in range(repeats):
        for (_, _, job, slow), row in zip(chosen, rows, strict=True):
            if row.failure is None and not (slow and number):
                run_into(row, bench, job)
    return rows


def targets(rows: Mapping[str, Row], searches: Sequence[Search]) -> list[Target]:
    """Return the targets for these queries."""

    def wall(name: str) -> float | None:
        return rows[name].wall if name in rows and rows[name].ran else None

    first, second = "errors, first", "errors, second"
    result = [
        ratio_target("ccusage / errors, first", 1, (wall("ccusage"), wall(first)), at_most=False),
        ratio_target("ccusage / errors, second", 4, (wall("ccusage"), wall(second)), at_most=False),
        ratio_target("agentsview / errors, first", 15,
                     (wall("agentsview, first"), wall(first)), at_most=False),
        ratio_target("agentsview / errors, second", 1,
                     (wall("agentsview, second"), wall(second)), at_most=False),
    ]  # fmt: skip
    notes = {run.answer.note for name in (first, second) for run in rows[name].runs}
    measured = f"{len(notes)} different"
    result.append(Target("all answers of errors", "equal", measured, met=len(notes) == 1))
    for search in searches:
        ours, floor = wall(search.ours), wall(search.floor)
        limit = f"≤ rg + {SLACK:g} s"
        if ours is None or floor is None:
            result.append(Target(search.ours, limit, "not measured", None))
        else:
            measured = f"{ours:.3f} s, rg {floor:.3f} s: + {ours - floor:.3f} s"
            result.append(Target(search.ours, limit, measured, ours <= floor + SLACK))
    result += [
        Target(f"{row.name} runs", "exit 0", row.failure, met=False) for row in rows.values() if row.failure is not None
    ]
    return result


def agreement(bench: Bench, word: str) -> tuple[str, int, int, int]:
    """Return a word, its matches, ripgrep's lines, and matches outside these lines, of which there should be none."""
    env = {**os.environ, "XDG_CACHE_HOME": str(bench.scratch / "cache")}
    ours = subprocess.run(
        [toolspan(), "search", word, f"{bench.archive}/", "--json"],
        env=env, capture_output=True, check=True,
    )  # fmt: skip
    theirs = subprocess.run(
        [*ripgrep_command(word, "--byte-offset", "--max-columns=1", "--null"), bench.archive],
        capture_output=True, check=False,
    )  # fmt: skip
    lines = {
        (os.fsdecode(name), int(rest.partition(b":")[0]))
        for name, _, rest in (line.partition(b"\0") for line in theirs.stdout.splitlines())
    }
    matches = [json.loads(line) for line in ours.stdout.splitlines()]
    odd = sum((match["file"], match["offset"]) not in lines for match in matches)
    return word, len(matches), len(lines), odd


def main() -> int:
    """Measure, print the results, and return 1 if a target is missed."""
    parser = query_parser(__doc__.splitlines()[0], repeats=5)
    parser.add_argument("--rollouts", type=Path, help="folder of Codex rollouts to search as well")
    parser.add_argument("--word", action="append", help=f"to search for (default: {WORDS})")
    arguments = parser.parse_args()
    words = tuple(arguments.word or WORDS)
    untouched: list[Target] = []
    with query_bench(arguments, untouched) as bench:
        expected = json.loads((bench.archive / "expected-totals.json").read_bytes())["claude"]
        searches = [Search(word, bench.archive) for word in words]
        if arguments.rollouts:
            searches += [Search(word, arguments.rollouts.resolve(), ", rollouts") for word in words]
        rows = run_all(bench, searches, arguments.repeats)
        met = targets({row.name: row for row in rows}, searches)
        agreed = [agreement(bench, word) for word in words]
    header = ["word", "calls and messages", "lines of rg", "matches outside these lines"]
    return print_queries(arguments, expected, rows, [*met, *untouched], table(header, agreed))


if __name__ == "__main__":
    sys.exit(main())
