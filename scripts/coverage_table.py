"""Print the share of branches that the tests cover in each package.

    coverage json -o - | python scripts/coverage_table.py [--min 90] [--missing]

Reads the JSON report of coverage.py, and prints one row per package that pyproject.toml names. Exits
with code 1 if a package is below the minimum or was not measured. With --missing, also lists the
branches that no test covers, file by file. `make coverage` runs this script.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TypedDict

ROOT = Path(__file__).parent.parent


class Summary(TypedDict):
    """The counts of one file in the report."""

    num_branches: int
    covered_branches: int
    num_statements: int
    covered_lines: int


class File(TypedDict):
    """One file in the report."""

    summary: Summary
    missing_branches: list[tuple[int, int]]


@dataclass(frozen=True)
class Share:
    """A number of covered branches out of a total."""

    taken: int
    of: int

    @property
    def percent(self) -> float:
        """The percentage; 100 if there are no branches."""
        return 100 * self.taken / self.of if self.of else 100.0

    def __add__(self, other: Share) -> Share:
        """Return the sum of two shares."""
        return Share(self.taken + other.taken, self.of + other.of)


@dataclass(frozen=True)
class Package:
    """The coverage of one package."""

    branches: Share
    lines: Share


def is_in_package(path: str, name: str) -> bool:
    """Return whether a file belongs to a package, such as `runtime` or `session.recording`."""
    return f"/toolspan/{name.replace('.', '/')}/" in PurePath(path).as_posix()


def wanted() -> list[str]:
    """Return the packages to be measured."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    names: list[str] = project["tool"]["coverage"]["run"]["source_pkgs"]
    return sorted(name.partition(".")[2] for name in names)


def measured(name: str, files: Mapping[str, File]) -> Package | None:
    """Return the coverage of a package; None if it was not measured."""
    counted = [file["summary"] for path, file in files.items() if is_in_package(path, name)]
    if not counted:
        return None
    branches = (Share(summary["covered_branches"], summary["num_branches"]) for summary in counted)
    lines = (Share(summary["covered_lines"], summary["num_statements"]) for summary in counted)
    return Package(sum(branches, Share(0, 0)), sum(lines, Share(0, 0)))


def missing(files: Mapping[str, File]) -> list[str]:
    """Return each uncovered branch as `file:from -> to`; a negative target is the exit of a function."""
    return [
        f"{path}:{source} -> {target if target > 0 else 'out'}"
        for path, file in sorted(files.items())
        for source, target in file["missing_branches"]
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--min", type=float, default=90.0, help="minimum percentage of each package")
    parser.add_argument("--missing", action="store_true", help="also list uncovered branches")
    options = parser.parse_args()
    files: dict[str, File] = json.load(sys.stdin)["files"]
    if options.missing:
        print(*missing(files), sep="\n")  # noqa: T201
    print(f"{'package':<20}{'branches':>17}{'lines':>16}")  # noqa: T201
    rows = {name: measured(name, files) for name in wanted()}
    for name, package in rows.items():
        print(row(name, package, options.min))  # noqa: T201
    if any(package is None or package.branches.percent < options.min for package in rows.values()):
        sys.exit(1)


def row(name: str, package: Package | None, least: float) -> str:
    """Return a line of the table."""
    if package is None:
        return f"{name:<20}{'not measured':>18}"
    few = "  too few" if package.branches.percent < least else ""
    return f"{name:<20}{_cell(package.branches)}{_cell(package.lines)}{few}"


def _cell(share: Share) -> str:
    return f"{share.taken:>7}/{share.of:<5}{share.percent:>4.0f} %"


if __name__ == "__main__":
    main()
