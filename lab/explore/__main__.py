"""Compare toolspan with the real client on generated cases.

    python -m lab.explore [--seed 1] [--version 2.1.327] [--cases 20] [--only REGEX] [--permissions] [--forms]
                            [--mutations] [--min 0.97] [--install] [--record]

Each case starts the client once, in namespaces of its own with loopback only, and gives it some 45 calls; `toolspan
exec` gets the same calls in an equal folder. Prints rates per tool and the differences grouped by cause, and writes
every difference as a JSON line to .scratch/explore/. With --record, the counts per tool go to measured.json, from which
docs/compatibility.md is made. Needs the harness in $SHARED/oracle (default ../shared), clients
installed by it into $ORACLE_SCRATCH (default /var/tmp/toolspan-oracle), and root. Exit code: 0, 1 below --min or if no
call was equal, 2 if something is missing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from lab.explore.compare import FILES, Comparer, Comparison, Difference, load_purposes
from lab.explore.generate import generate_case
from lab.explore.hook_forms import generate_hook_case
from lab.explore.mutations import generate_mutation_case
from lab.explore.permissions import generate_permission_case
from lab.explore.recorded_lines import generate_recorded_cases, read_lines
from lab.explore.run import Machine
from lab.explore.settings_forms import generate_settings_case
from lab.explore.tool_forms import generate_tool_case
from lab.oracle.installed_client import ROOT, find_hidden

Json = dict[str, Any]
_SHARED = Path(os.environ.get("SHARED", "../shared")).resolve()
_SCRATCH = Path(os.environ.get("ORACLE_SCRATCH", "/var/tmp/toolspan-oracle")).resolve()
_PURPOSES = Path(__file__).parent / "on_purpose.toml"
_FORMS = (generate_tool_case, generate_settings_case, generate_hook_case)
_MEASURED = Path(__file__).parent / "measured.json"


@click.command()
@click.option(
    "--seed", "seeds", type=int, multiple=True, default=(1,), show_default=True, help="Replays the same cases."
)
@click.option("--version", "versions", multiple=True, default=("2.1.327", "2.0.65"), show_default=True)
@click.option("--cases", "count", type=int, default=23, show_default=True, help="Cases per seed and version.")
@click.option("--only", default="", help="Run only cases whose id matches this regular expression.")
@click.option("--permissions", is_flag=True, help="Compare only permission decisions, on cases made for them.")
@click.option("--forms", is_flag=True, help="Compare decisions on tools without commands, on settings and on hooks.")
@click.option("--mutations", is_flag=True, help="Compare decisions on changes of lines that toolspan runs.")
@click.option("--lines", type=click.Path(exists=True, path_type=Path), help="Compare decisions on recorded lines.")
@click.option("--jobs", type=int, default=2, show_default=True)
@click.option(
    "--minimize", "reduced", type=int, default=0, show_default=True, help="Reduce the first case of so many groups."
)
@click.option("--show", type=int, default=20, show_default=True, help="Print so many groups.")
@click.option("--min", "minimum", type=float, default=0.0, help="Exit with 1 below this rate of equal calls.")
@click.option("--install", is_flag=True, help="Install versions that are missing, with the script of the harness.")
@click.option("--record", is_flag=True, help="Store the counts for docs/compatibility.md.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / ".scratch/explore")
def main(
    seeds: tuple[int, ...], versions: tuple[str, ...], count: int, only: str, jobs: int, reduced: int, show: int,
    minimum: float, out: Path, lines: Path | None, *, permissions: bool, forms: bool, mutations: bool, install: bool,
    record: bool,
) -> None:  # fmt: skip
    """Compare toolspan with the real client on generated cases."""
    if install:
        _require(())
        _install([version for version in versions if not _is_installed(version)])
    _require(versions)
    machine = Machine(_SHARED, _SCRATCH, Comparer(_SHARED, load_purposes(_PURPOSES)))
    out.mkdir(parents=True, exist_ok=True)
    lowest = 1.0
    for seed in seeds:
        for version in versions:
            generate = generate_permission_case if permissions else generate_case
            generate = generate_form_case if forms else generate
            generate = generate_mutation_case if mutations else generate
            if lines is not None:
                cases = generate_recorded_cases(read_lines(lines), version)[:count]
            else:
                cases = [generate(seed, version, number) for number in range(count)]
            cases = [case for case in cases if re.search(only, case["id"])]
            click.echo(f"seed {seed}, version {version}: {len(cases)} cases")
            kind = "mutations" if mutations else "forms" if forms else "permissions" if permissions else "seed"
            kind = kind if lines is None else "lines"
            name = f"{kind}-{seed}-{version}"
            comparisons = list(_watch(machine.compare_all(cases, jobs), out / f"{name}.jsonl"))
            report = Report(comparisons)
            report.print_rates(version)
            report.print_groups(show)
            minimal = {
                group: machine.minimize(report.case(one), one)
                for group, one in report.examples(reduced)
                if one.tool != FILES
            }
            report.write(out / f"{name}.jsonl", minimal)
            (out / f"{name}.md").write_text(report.to_markdown(name, minimal), encoding="utf-8")
            lowest = min(lowest, report.rate)
            if record and kind == "seed":
                record_run(_MEASURED, report.to_counts(seed, version))
    sys.exit(1 if lowest < minimum or not lowest else 0)


def generate_form_case(seed: int, version: str, number: int) -> Json:
    """Return a case about tools without commands, settings or hooks, in turn."""
    return _FORMS[number % len(_FORMS)](seed, version, number)


def _watch(comparisons: Iterator[Comparison], differences: Path) -> Iterator[Comparison]:
    """Print a line for each finished case, and append its differences to a file."""
    differences.unlink(missing_ok=True)
    for comparison in comparisons:
        with differences.open("a", encoding="utf-8") as lines:
            lines.writelines(json.dumps(one.to_row(), ensure_ascii=False) + "\n" for one in comparison.differences)
        equal, total = (sum(count[at] for tool, count in comparison.counts.items() if tool != FILES) for at in (0, 1))
        notes = "".join(f"\n    {problem}" for problem in comparison.problems)
        lost = f", {comparison.unanswered} without an answer of the client" if comparison.unanswered else ""
        click.echo(f"  {comparison.case['id']}: {equal} of {total} equal{lost}{notes}")
        yield comparison


class Report:
    """The outcome of many cases."""

    def __init__(self, comparisons: list[Comparison]) -> None:
        self._comparisons = comparisons
        self._cases = {comparison.case["id"]: comparison.case for comparison in comparisons}
        differences = [one for comparison in comparisons for one in comparison.differences]
        self._intended = [one for one in differences if one.purpose]
        self._differences = [one for one in differences if not one.purpose]

    def case(self, difference: Difference) -> Json:
        """Return the case in which a difference was found."""
        return self._cases[difference.case]

    @property
    def rate(self) -> float:
        """The share of calls that ended equally, intended differences included."""
        totals = self._totals()
        equal, total = (sum(count[at] for tool, count in totals.items() if tool != FILES) for at in (0, 1))
        intended = sum(one.tool != FILES for one in self._intended)
        return (equal + intended) / total if total else 0.0

    def _totals(self) -> dict[str, list[int]]:
        totals: dict[str, list[int]] = {}
        for comparison in self._comparisons:
            for tool, (equal, total) in comparison.counts.items():
                count = totals.setdefault(tool, [0, 0])
                count[0] += equal
                count[1] += total
        return totals

    def to_counts(self, seed: int, version: str) -> Json:
        """Return the counts of the run: equal calls and calls by tool, and how many differ on purpose."""
        totals = self._totals()
        files = totals.pop(FILES, [0, 0])
        intended = sum(one.tool != FILES for one in self._intended)
        return {
            "version": version,
            "seed": seed,
            "calls": sum(count[1] for count in totals.values()),
            "equal": sum(count[0] for count in totals.values()),
            "intended": intended,
            "files": files,
            "tools": dict(sorted(totals.items())),
        }

    def print_rates(self, version: str) -> None:
        """Print the rate of equal calls per tool."""
        for tool, (equal, total) in sorted(self._totals().items(), key=lambda item: -item[1][1]):
            click.echo(f"  {version} {tool:<14} {equal:>5} of {total:<5} {equal / total if total else 1:.3f}")
        kinds = Counter(one.kind for one in self._differences)
        acted = sum(comparison.acted for comparison in self._comparisons)
        click.echo(
            f"  {version} RATE {self.rate:.4f}  laxer {kinds['laxer']}, stricter {kinds['stricter']} of {acted} that"
            f" the client runs ({kinds['stricter'] / max(acted, 1):.1%}), intended {len(self._intended)}"
        )

    def groups(self) -> list[tuple[str, list[Difference]]]:
        """Return the differences by cause, the most frequent first."""
        groups: dict[str, list[Difference]] = {}
        for one in self._differences:
            groups.setdefault(one.group, []).append(one)
        return sorted(groups.items(), key=lambda item: -len(item[1]))

    def examples(self, count: int) -> list[tuple[str, Difference]]:
        """Return one difference of each of the most frequent groups."""
        return [(group, found[0]) for group, found in self.groups()[:count]]

    def print_groups(self, count: int) -> None:
        """Print the most frequent causes with an example each."""
        for group, found in self.groups()[:count]:
            kinds = Counter(one.kind for one in found if one.kind)
            click.echo(f"  {len(found):>4} {group} {dict(kinds) or ''}")
            click.echo(
                f"         {found[0].case} {found[0].call_id} {json.dumps(found[0].input, ensure_ascii=False)[:160]}"
            )

    def write(self, path: Path, minimal: dict[str, Json | None]) -> None:
        """Write all differences as JSON lines."""
        with path.open("w", encoding="utf-8") as lines:
            for one in [*self._differences, *self._intended]:
                row = one.to_row()
                if one.group in minimal and one is dict(self.groups())[one.group][0]:
                    row["minimal"] = minimal[one.group]
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")

    def to_markdown(self, name: str, minimal: dict[str, Json | None]) -> str:
        """Return the groups with an example each, for people who look for causes."""
        parts = [f"# {name}: {self.rate:.4f} equal\n"]
        for number, (group, found) in enumerate(self.groups(), 1):
            one, case = found[0], minimal.get(group) or {}
            parts += [f"## {number}. {len(found)} × {group}\n"]
            if case:
                shown = {key: case[key] for key in ("settings", "permission_mode", "tools") if key in case}
                calls = [[call["name"], call["input"]] for turn in case["turns"][-6:] for call in turn]
                parts += [f"Alone: `{json.dumps(shown)}`\n", *(f"- `{_shorten(call)}`" for call in calls), ""]
            parts += [f"- {other.case} {other.call_id} `{_shorten(other.input)}`" for other in found[:6]]
            names = one.fields or ("content",)
            parts += [f"\nclient: `{_shorten({key: one.client.get(key) for key in names}, 900)}`\n"]
            parts += [f"ours: `{_shorten({key: one.ours.get(key) for key in names}, 900)}`\n"]
        return "\n".join(parts)


def record_run(path: Path, run: Json) -> None:
    """Add the counts of a run to a file, in place of those of the same version and seed."""
    runs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    runs = [one for one in runs if (one["version"], one["seed"]) != (run["version"], run["seed"])]
    runs = sorted([*runs, run], key=lambda one: (one["version"], one["seed"]))
    lines = ",\n".join(json.dumps(one) for one in runs)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def _shorten(value: object, limit: int = 400) -> str:
    return json.dumps(value, ensure_ascii=False)[:limit]


def _is_installed(version: str) -> bool:
    return (_SCRATCH / "clients" / f"cc-{version}").is_dir()


def _install(versions: list[str]) -> None:
    variables = {"ORACLE_SCRATCH": str(_SCRATCH), "CLAUDE_VERSIONS": " ".join(versions), "CODEX_VERSIONS": ""}
    if versions:
        subprocess.run(["sh", f"{_SHARED}/oracle/install.sh"], env={**os.environ, **variables}, check=False)


def _require(versions: tuple[str, ...]) -> None:
    """Exit with code 2 and the reason if the client cannot be run here."""
    hidden = find_hidden(_SHARED, _SCRATCH)
    requirements = {
        f"the harness is not in {_SHARED / 'oracle'}; name another folder with SHARED=...": (
            _SHARED / "oracle"
        ).is_dir(),
        f"its namespaces hide {hidden}; move it out of /home and /tmp": hidden is None,
        "namespaces need root and unshare": os.geteuid() == 0 and bool(shutil.which("unshare")),
    }
    for version in versions:
        requirements[f"version {version} is not installed; run this with --install"] = _is_installed(version)
    for reason, is_fulfilled in requirements.items():
        if not is_fulfilled:
            click.echo(f"Cannot run the client: {reason}", err=True)
            sys.exit(2)


if __name__ == "__main__":
    main()
