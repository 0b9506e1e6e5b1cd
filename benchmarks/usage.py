"""Measure `toolspan usage` beside ccusage: cold and warm time, and the totals of each.

Needs an archive with its `expected-totals.json` and the peers' prefix (see `peers.py`). Cold runs start with an empty
cache, warm runs with the cache of an earlier one; ccusage keeps nothing between runs. Prints Markdown tables, and all
numbers with `--json`; with `--enforce`, exits with code 1 if a target is missed. Start at `main`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from peers import CCUSAGE, TOKEN_FIELDS, Answer, Bench, Job, ccusage_job
from promises import Target, machine, missed, ratio_target, table, target_table, write_json
from read import Row, fingerprint, measured_table, network_cutter, run_into, told, warm

SETTLING = 3
"""Seconds after which a newly written file is cached."""
COLD_FACTOR, WARM_FACTOR = 1, 4


def toolspan() -> Path:
    """Return the command installed beside this Python."""
    return Path(sys.executable).with_name("toolspan")


def sum_rows(stdout: Path) -> Answer:
    """Return the sum over all days that `toolspan usage --json` printed."""
    totals: Counter[str] = Counter()
    for line in stdout.read_bytes().splitlines():
        row = json.loads(line)
        totals.update({name: row[name] for name in TOKEN_FIELDS})
    return Answer(tokens=dict(totals))


def cold_job(bench: Bench, run_dir: Path) -> Job:
    """Run `toolspan usage` with an empty cache."""
    return usage_job(bench, run_dir / "cache")


def warm_job(bench: Bench, _: Path) -> Job:
    """Run `toolspan usage` with the cache of an earlier run."""
    return usage_job(bench, bench.scratch / "cache")


def changed_job(bench: Bench, run_dir: Path) -> Job:
    """Run `toolspan usage` by month, an answer that is not cached, with all files cached."""
    shutil.copytree(bench.scratch / "cache", run_dir / "cache")
    job = usage_job(bench, run_dir / "cache")
    return replace(job, command=[*job.command, "--by", "month"])


def usage_job(bench: Bench, cache: Path) -> Job:
    """Run `toolspan usage` with a cache folder."""
    return Job(
        [toolspan(), "usage", bench.config, "--json"], env={"XDG_CACHE_HOME": str(cache), "TZ": "UTC"}, answer=sum_rows
    )


JOBS = {
    "usage, cold": ("`toolspan usage --json`, empty cache", cold_job),
    "ccusage": (f"ccusage {CCUSAGE.version}: `claude daily --json --offline`", ccusage_job),
    "usage, warm": ("`toolspan usage --json` again, archive unchanged", warm_job),
    "usage, other question": ("`toolspan usage --by month --json`, files cached, answer not", changed_job),
}


def targets(rows: Mapping[str, Row], expected: Mapping[str, int]) -> list[Target]:
    """Return the targets of wall time, CPU time and totals."""

    def best(name: str, measure: str) -> float | None:
        return min((getattr(run, measure) for run in rows[name].runs), default=None)

    found = [
        ratio_target(
            f"ccusage / {name}, {measure}", factor, (best("ccusage", measure), best(name, measure)), at_most=False
        )
        for name, factor in (("usage, cold", COLD_FACTOR), ("usage, warm", WARM_FACTOR))
        for measure in ("wall", "cpu")
    ]
    for name, row in rows.items():
        if row.failure is not None:
            found.append(Target(f"{name} runs", "exit 0", row.failure, met=False))
        elif name != "ccusage":
            sums = [run.answer.tokens for run in row.runs]
            met = all(tokens == {field: expected[field] for field in TOKEN_FIELDS} for tokens in sums)
            found.append(Target(f"totals of {name}", "as expected", "equal" if met else "differ", met))
    return found


def totals_table(rows: Mapping[str, Row], expected: Mapping[str, int]) -> list[str]:
    """Return the token totals of all contestants as a table."""
    lines = [["expected", *(f"{expected[name]:,}" for name in TOKEN_FIELDS)]]
    for name, row in rows.items():
        tokens = row.runs[0].answer.tokens if row.ran else None
        if tokens is not None:
            lines.append([name, *(f"{tokens[field]:,}" for field in TOKEN_FIELDS)])
    return list(table(["who", "input", "output", "cache write", "cache read"], lines))


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--archive", type=Path, required=True, help="has expected-totals.json")
    parser.add_argument("--peers", type=Path, required=True, help="prefix given to peers.py")
    parser.add_argument("--repeats", type=int, default=7, help="rounds (default 7)")
    parser.add_argument("--scratch", type=Path, help="scratch folder (default: a temporary one)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds per run")
    parser.add_argument("--json", type=Path, help="write all numbers there")
    parser.add_argument("--enforce", action="store_true", help="exit 1 when a target is missed")
    return parser.parse_args()


def main() -> int:
    """Measure, print the results, and return 1 if a target is missed."""
    arguments = parse_arguments()
    scratch = Path(tempfile.mkdtemp(dir=arguments.scratch, prefix="usage-"))
    bench = Bench(
        archive=arguments.archive.resolve(),
        peers=arguments.peers.resolve(),
        scratch=scratch,
        offline=network_cutter(),
        timeout=arguments.timeout,
    )
    expected = json.loads((bench.archive / "expected-totals.json").read_bytes())["claude"]
    here = f"{machine()}, load {os.getloadavg()[0]:.1f}"
    rows = {name: Row(name, about) for name, (about, _) in JOBS.items()}
    try:
        time.sleep(SETTLING)
        before = fingerprint(bench.archive)
        warm(bench.archive)
        run_into(Row("prepared", ""), bench, warm_job)
        for _ in range(arguments.repeats):
            for name, row in rows.items():
                if row.failure is None:
                    run_into(row, bench, JOBS[name][1])
        met = targets(rows, expected["tokens"])
        same = fingerprint(bench.archive) == before
        met.append(Target("archive untouched", "same files", "same" if same else "changed", same))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"{here}\n\nArchive: {expected['files']} files, {expected['bytes'] / 1e6:.0f} MB, warm\n")
    print("\n".join([*measured_table(list(rows.values())), "", *totals_table(rows, expected["tokens"]), ""]))
    print("\n".join(target_table(met)))
    write_json({"machine": here, **told(list(rows.values()), met)}, arguments.json)
    return int(arguments.enforce and missed(met))


if __name__ == "__main__":
    sys.exit(main())
