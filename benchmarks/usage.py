"""Measure `toolspan usage` beside ccusage: cold and warm time, and the totals of each.

Needs an archive with its `expected-totals.json` and the peers' prefix (see `peers.py`). Cold runs start with an empty
cache, warm runs with the cache of an earlier one; ccusage keeps nothing between runs. Prints Markdown tables, and all
numbers with `--json`; with `--enforce`, exits with code 1 if a target is missed. Start at `main`.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from peers import CCUSAGE, TOKEN_FIELDS, Answer, Bench, Job, ccusage_job
from promises import Target, ratio_target, table
from read import Row, print_queries, query_bench, query_parser, run_into, toolspan

COLD_FACTOR, WARM_FACTOR = 1, 4


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

    result = [
        ratio_target(
            f"ccusage / {name}, {measure}", factor, (best("ccusage", measure), best(name, measure)), at_most=False
        )
        for name, factor in (("usage, cold", COLD_FACTOR), ("usage, warm", WARM_FACTOR))
        for measure in ("wall", "cpu")
    ]
    for name, row in rows.items():
        if row.failure is not None:
            result.append(Target(f"{name} runs", "exit 0", row.failure, met=False))
        elif name != "ccusage":
            sums = [run.answer.tokens for run in row.runs]
            met = all(tokens == {field: expected[field] for field in TOKEN_FIELDS} for tokens in sums)
            result.append(Target(f"totals of {name}", "as expected", "equal" if met else "differ", met))
    return result


def totals_table(rows: Mapping[str, Row], expected: Mapping[str, int]) -> list[str]:
    """Return the token totals of all contestants as a table."""
    lines = [["expected", *(f"{expected[name]:,}" for name in TOKEN_FIELDS)]]
    for name, row in rows.items():
        tokens = row.runs[0].answer.tokens if row.ran else None
        if tokens is not None:
            lines.append([name, *(f"{tokens[field]:,}" for field in TOKEN_FIELDS)])
    return list(table(["who", "input", "output", "cache write", "cache read"], lines))


def main() -> int:
    """Measure, print the results, and return 1 if a target is missed."""
    arguments = query_parser(__doc__.splitlines()[0], repeats=7).parse_args()
    rows = {name: Row(name, about) for name, (about, _) in JOBS.items()}
    untouched: list[Target] = []
    with query_bench(arguments, untouched) as bench:
        expected = json.loads((bench.archive / "expected-totals.json").read_bytes())["claude"]
        run_into(Row("prepared", ""), bench, warm_job)
        for _ in range(arguments.repeats):
            for name, row in rows.items():
                if row.failure is None:
                    run_into(row, bench, JOBS[name][1])
    met = [*targets(rows, expected["tokens"]), *untouched]
    return print_queries(arguments, expected, list(rows.values()), met, totals_table(rows, expected["tokens"]))


if __name__ == "__main__":
    sys.exit(main())
