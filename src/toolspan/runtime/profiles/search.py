"""Glob, Grep and LS: what differs between client versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchValues:
    """Texts and policies of the search tools of one client version; `{path}` is filled."""

    no_folder: str = "Directory does not exist: {path}. Note: your current working directory is {cwd}."
    no_path: str = "Path does not exist: {path}. Note: your current working directory is {cwd}."
    checks_early: bool = False
    """A missing path is refused before the search runs, not by it."""
    reports_rejection: bool = True
    """What ripgrep does not take is an error; otherwise nothing was found."""
    reports_unreadable: bool = True
    """A folder that cannot be opened is an error; otherwise nothing was found in it."""

    relative_names: bool = True
    """Glob names files from the current folder, not from the root."""
    absolute_patterns: bool = True
    """A Glob pattern may begin at the root; otherwise it matches nothing."""
    counts_matches: bool = True
    """Glob tells how many files match beside those it lists."""

    default_limit: int | None = 250
    """How many lines or files Grep gives when it is not told."""
    zero_is_all: bool = True
    """A limit of zero is none; otherwise nothing is given."""
    checks_range: bool = True
    """Limit and offset have to be whole numbers of zero or more."""
    reports_whole_range: bool = False
    """Limit and offset are told whenever one was given, not only what was left out."""
    reports_totals: bool = True
    """Grep tells how much there is beside what it gives."""
    relative_context: bool = True
    """Names before context lines are from the current folder, like those before matches."""
    grep_inputs: frozenset[str] = frozenset({"context", "-o"})
    """What Grep takes beside what it always took."""
    cuts_content: int | None = None
    """Characters of lines that Grep gives; the rest is counted. None: they go to a file."""


_V2_1_325 = SearchValues()
_V2_1_197 = replace(
    _V2_1_325,
    checks_early=True,
    reports_rejection=False,
    reports_unreadable=False,
    checks_range=False,
    reports_totals=False,
    relative_context=False,
)
_V2_1_80 = replace(
    _V2_1_197,
    relative_names=False,
    counts_matches=False,
    default_limit=None,
    zero_is_all=False,
    reports_whole_range=True,
    grep_inputs=frozenset({"context"}),
)
_V2_0_65 = replace(
    _V2_1_80,
    no_folder="Directory does not exist: {path}",
    no_path="Path does not exist: {path}",
    absolute_patterns=False,
    grep_inputs=frozenset(),
    cuts_content=20_000,
)

SEARCHES: Mapping[str, SearchValues] = {
    "seed": _V2_0_65,
    "2.0.65": _V2_0_65,
    "2.1.80": _V2_1_80,
    "2.1.197": _V2_1_197,
    "2.1.325": _V2_1_325,
}
