"""Write docs/compatibility.md: how many calls toolspan answers as the clients did.

Uses the conformance kit (`score.py` and its cases, beside the checkout) and the runner. The page has a table per
client version, and every call that is answered differently, with the reason if known. Texts of the clients are not
copied, only the calls and fields that differ.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
VERSIONS = ("2.1.325", "2.1.197", "2.1.80", "2.0.65", "seed")
FIELDS = ("is_error", "content", "toolUseResult")
EVERY_CASE = "."
LEFT_BEHIND = Path(tempfile.gettempdir()) / "outside-orc.txt"
"""A file that some cases write and that breaks others."""

REASONS = (
    (r"^parallel_bash \S+ Bash", "git names a mount point that only the recording machine has"),
    (r"^perm_mode_\w+ \S+ Write", "a case before it leaves a file behind, outside of its folder"),
    (r"^perm_allowed_tools_flag", "that client blocks `touch` in spite of its rule"),
    (r"^todo_legacy", "the switch that turns the task tools off is not modelled"),
    (r" Task$", "there are no subagents yet"),
)
"""Patterns over `case call tool`, and the reasons for the difference."""


def score(shared: Path, version: str, only: str) -> dict[str, object]:
    """Return the score of one version."""
    LEFT_BEHIND.unlink(missing_ok=True)
    command = [
        sys.executable, str(shared / "conformance" / "score.py"), "run",
        "--cmd", f"{sys.prefix}/bin/toolspan exec", "--cases", str(shared / "conformance/cases"),
        "--version", version, "--only", only, "--json", "--jobs", "2",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if not done.stdout:
        raise SystemExit(f"score.py failed for {version}: {done.stderr[-500:]}")
    found: dict[str, object] = json.loads(done.stdout)
    return found


def page(scores: dict[str, dict[str, object]]) -> str:
    """Return the whole page."""
    parts = [
        "# Compatibility",
        "",
        "How many of the recorded calls of each client version get the same answer from",
        "`toolspan exec --profile VERSION`: the same `is_error`, text and structured result.",
        "Made by `make compatibility`; do not edit by hand.",
        "",
        "| profile | calls | equal | share |",
        "|---|---|---|---|",
    ]
    for version, found in scores.items():
        total = found["total"]
        assert isinstance(total, dict)
        calls, equal = total.get("calls", 0), total.get("all", 0)
        parts.append(f"| {version} | {calls} | {equal} | {equal / max(1, calls):.1%} |")
    for version, found in scores.items():
        parts += ["", f"## {version}", "", *tools(found), "", *differences(found)]
    return "\n".join(parts) + "\n"


def tools(found: dict[str, object]) -> Iterable[str]:
    """Yield a row per tool."""
    by_tool = found["tools"]
    assert isinstance(by_tool, dict)
    yield "| tool | calls | equal |"
    yield "|---|---|---|"
    for tool, counts in sorted(by_tool.items()):
        yield f"| {tool} | {counts.get('calls', 0)} | {counts.get('all', 0)} |"


def differences(found: dict[str, object]) -> list[str]:
    """Return a line per call that differs."""
    cases = found["cases"]
    assert isinstance(cases, list)
    lines = []
    for case in cases:
        for call in case["calls"]:
            fields = [field for field in FIELDS if call.get(field) is False]
            if fields:
                name = f"{case['case']} {call['id']} {call['tool']}"
                lines.append(f"- `{name}`: {', '.join(fields)}{reason(name)}")
    return lines or ["No differences."]


def reason(name: str) -> str:
    """Return the reason why a call differs; empty if unknown."""
    for pattern, words in REASONS:
        if re.search(pattern, name):
            return f" ({words})"
    return ""


def main() -> None:
    """Score every version and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--only", default=EVERY_CASE)
    wishes = parser.parse_args()
    if not (wishes.shared / "conformance").is_dir():
        raise SystemExit(f"{wishes.shared}: no conformance kit there")
    scores = {version: score(wishes.shared, version, wishes.only) for version in VERSIONS}
    PAGE.write_text(page(scores), encoding="utf-8")


if __name__ == "__main__":
    main()
