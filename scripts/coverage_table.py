"""Which share of the branches of each package do the tests take?

    coverage json -o - | python scripts/coverage_table.py [--min 90] [--missing]

In: the report of coverage.py as JSON. Out: one row per package below `toolspan`, and exit code 1
when the tests take less of a package than the least share. With --missing, the branches that no
test takes, file by file. `make coverage` runs it; pyproject.toml names the packages.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import TypedDict


class Summary(TypedDict):
    """What coverage.py counted in one file."""

    num_branches: int
    covered_branches: int
    num_statements: int
    covered_lines: int


class File(TypedDict):
    """What coverage.py says of one file."""

    summary: Summary
    missing_branches: list[tuple[int, int]]


@dataclass(frozen=True)
class Share:
    """How many of so many."""

    taken: int
    of: int

    @property
    def percent(self) -> float:
        """Of nothing, everything is taken."""
        return 100 * self.taken / self.of if self.of else 100.0

    def __add__(self, other: "Share") -> "Share":
        """Both together."""
        return Share(self.taken + other.taken, self.of + other.of)


@dataclass(frozen=True)
class Package:
    """What the tests take of one package."""

    branches: Share
    lines: Share


def package_of(path: str) -> str:
    """The folder right below toolspan that a file lies in."""
    parts = PurePath(path).parts
    return parts[parts.index("toolspan") + 1]


def packages(files: Mapping[str, File]) -> dict[str, Package]:
    """The shares of each package, by name."""
    found: dict[str, Package] = {}
    for path, file in files.items():
        counted = file["summary"]
        branches = Share(counted["covered_branches"], counted["num_branches"])
        lines = Share(counted["covered_lines"], counted["num_statements"])
        before = found.get(name := package_of(path), Package(Share(0, 0), Share(0, 0)))
        found[name] = Package(before.branches + branches, before.lines + lines)
    return dict(sorted(found.items()))


def missing(files: Mapping[str, File]) -> list[str]:
    """Each branch no test takes, as `file:from -> to`; below zero is the way out of a function."""
    return [
        f"{path}:{source} -> {target if target > 0 else 'out'}"
        for path, file in sorted(files.items())
        for source, target in file["missing_branches"]
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--min", type=float, default=90.0, help="least percent of each package")
    parser.add_argument("--missing", action="store_true", help="also the branches not taken")
    options = parser.parse_args()
    files: dict[str, File] = json.load(sys.stdin)["files"]
    if options.missing:
        print(*missing(files), sep="\n")  # noqa: T201
    print(f"{'package':<12}{'branches':>17}{'lines':>16}")  # noqa: T201
    found = packages(files)
    for name, package in found.items():
        few = "  too few" if package.branches.percent < options.min else ""
        print(f"{name:<12}{cell(package.branches)}{cell(package.lines)}{few}")  # noqa: T201
    if not found or any(package.branches.percent < options.min for package in found.values()):
        sys.exit(1)


def cell(share: Share) -> str:
    """A share as it stands in the table."""
    return f"{share.taken:>7}/{share.of:<5}{share.percent:>4.0f} %"


if __name__ == "__main__":
    main()
