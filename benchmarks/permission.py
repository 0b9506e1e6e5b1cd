"""Measure the cost of a permission decision, compared with one tree-sitter parse of the same line.

    python benchmarks/permission.py [--archive DIR] [--rounds N] [--json OUT] [--enforce]

The lines are those of the transcripts below DIR, or else everyday ones made here. A decision includes
rules, guard and mode of the default profile; the request is made before the clock starts. Every
decision is cold: the caches of lines are cleared before it, and all other lines are decided in between.
Parse and decision of a line follow each other; the best round of each counts. "Again" is one more
decision for the same line, right after the last one, with warm caches. The target is at most 5 parses.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path

from toolspan.runtime.pending_call import LiveBodyStore
from toolspan.runtime.permissions import Permissions, Rules, restrictions
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.profiles import profile
from toolspan.shell import plans, syntax
from toolspan.shell.words import bash_parser
from toolspan.types.ids import CallId
from toolspan.types.span import Call

TARGET = 5.0
CLASSES = {"short": (0, 80), "medium": (81, 400), "long": (401, 10_000)}
"""Line lengths in bytes."""
COMMANDS = Rules(
    allow=["Bash(npm run:*)", "Bash(git add:*)", "Bash(make:*)", "Read", "Edit(src/**)"],
    ask=["Bash(docker:*)", "WebFetch"],
    deny=["Bash(rm:*)", "Bash(git push:*)"],
)
RULES = {
    "no rules": Rules(),
    "9 rules": COMMANDS,
    "9 rules and a forbidden file": COMMANDS + Rules(deny=["Read(./.env)"]),
}
PERMISSIONS = {name: Permissions(rules, refusals=profile().refusals) for name, rules in RULES.items()}
HERE = Path.cwd()
_IDS = count()
_CACHES = (syntax.parse_line, plans.plan, restrictions._command_forms)

_SHORT = [
    "git status", "git diff {0}", "npm run {0}", "ls -la {0}", "cat src/{0}/main.py | head -20",
    "cd {0} && make test", 'grep -rn "{0} = " src', "git log --oneline -5 -- {0}.md",
    "python -m pytest tests/{0} -q 2>&1 | tail -5", "mkdir -p build/{0}", "wc -l {0}/*.py",
    'find . -name "{0}*.py" -not -path "./x/*"', "docker build -t {0} .", "echo $HOME/{0}",
]  # fmt: skip
_MEDIUM = [
    "cd {0} && npm install 2>&1 | tail -5 && npm run build && npm test -- --filter {0} | head -80",
    'git add {0} && git commit -m "Mend {0}: the parser no longer stumbles over empty lines" && git log -1 --stat',
    'for name in {0} b c; do echo "== $name"; grep -c "def " "src/$name.py" || true; done | sort',
    'find . -type f -name "*.{0}" | xargs grep -l "TODO" | sort | uniq -c | sort -rn | head -50',
]
_LONG = [
    "cat > {0}.md <<'EOF'\n" + "Some text on {0}, with (brackets) and `ticks`.\n" * 20 + "EOF\n",
    "\n".join(f'echo "step {n} {{0}}" && ls -la sub{n} | grep -v "^total" || true'
              for n in range(12)),
    "python3 - <<'EOF'\nimport json\n" + "print(json.dumps({{'{0}': [1, 2, 3]}}))\n" * 15 + "EOF",
]  # fmt: skip


def everyday() -> list[str]:
    """Return lines like those that agents write, without repetitions."""
    names = [f"{area}{number}" for area, number in product(("app", "core", "web", "docs"), range(6))]
    shapes = (*_SHORT, *_MEDIUM, *_LONG)
    return list(dict.fromkeys(shape.format(name) for name in names for shape in shapes))


def archived(folder: Path) -> Iterator[str]:
    """Yield the command lines of all Bash calls in transcripts."""
    for path in sorted(folder.rglob("*.jsonl")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            yield from _commands(line) if '"Bash"' in line else ()


def _commands(line: str) -> Iterator[str]:
    try:
        entry = json.loads(line)
    except ValueError:
        return
    message = entry.get("message") if isinstance(entry, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("name") == "Bash":
            tool_input = block.get("input")
            text = tool_input.get("command") if isinstance(tool_input, dict) else None
            if isinstance(text, str):
                yield text


def permission_request(line: str) -> PermissionRequest:
    """Return the permission request for a line."""
    tool_input = {"command": line}
    call = Call(
        id=CallId(f"c{next(_IDS)}"),
        tool="Bash",
        at=0,
        requested_at=None,
        target=None,
        body_store=LiveBodyStore(tool_input),
    )
    return PermissionRequest(call=call, input=tool_input, cwd=HERE, project=HERE)


@dataclass(slots=True)
class Cost:
    """The best times of one line, in nanoseconds."""

    size: int
    parse: int
    cold: dict[str, int]
    again: int


def measured(lines: Iterable[str], rounds: int) -> list[Cost]:
    """Return the cost of each line."""
    policies = {name: (*permissions.policies, permissions.fallback) for name, permissions in PERMISSIONS.items()}
    never = 10**12
    costs = {line: Cost(len(_bytes(line)), never, dict.fromkeys(policies, never), never) for line in lines}
    for _ in range(rounds):
        for line, cost in costs.items():
            data = _bytes(line)
            begun = time.perf_counter_ns()
            bash_parser().parse(data)
            cost.parse = min(cost.parse, time.perf_counter_ns() - begun)
            for name, policy_list in policies.items():
                for cache in _CACHES:
                    cache.cache_clear()
                cost.cold[name] = min(cost.cold[name], _decided(policy_list, permission_request(line)))
            cost.again = min(cost.again, _decided(policy_list, permission_request(line)))
    return list(costs.values())


def _bytes(line: str) -> bytes:
    return line.encode("utf-8", "surrogatepass")


def _decided(policies: Sequence[Callable[[PermissionRequest], object]], question: PermissionRequest) -> int:
    begun = time.perf_counter_ns()
    for policy in policies:
        if policy(question) is not None:
            break
    return time.perf_counter_ns() - begun


def ratios(costs: Sequence[Cost], rules: str) -> list[float]:
    """Return the decision times in parses, smallest first."""
    return sorted(cost.cold[rules] / cost.parse for cost in costs)


def classes(costs: Sequence[Cost]) -> dict[str, list[Cost]]:
    """Return all lines, and the lines of each length; empty classes are left out."""
    by_class = {name: [cost for cost in costs if low <= cost.size <= high] for name, (low, high) in CLASSES.items()}
    return {"all": list(costs)} | {name: some for name, some in by_class.items() if some}


def summary(rounds: int = 5) -> dict[str, float]:
    """Return the median number of parses per decision with command rules, for each class of everyday lines."""
    by_class = classes(measured(everyday(), rounds))
    return {name: statistics.median(ratios(costs, "9 rules")) for name, costs in by_class.items()}


def table(costs: Sequence[Cost]) -> Iterator[str]:
    """Yield the result as a table."""
    yield "| lines | one parse | rules | decision | in parses | 90 % below | within 5 | again |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, some in classes(costs).items():
        parse = statistics.median(cost.parse for cost in some) / 1e3
        repeated = statistics.median(cost.again / cost.parse for cost in some)
        for rules in PERMISSIONS:
            parses = ratios(some, rules)
            microseconds = statistics.median(cost.cold[rules] for cost in some) / 1e3
            within = sum(ratio <= TARGET for ratio in parses) / len(parses)
            yield (
                f"| {name}, {len(some)} | {parse:.0f} µs | {rules} | {microseconds:.0f} µs "
                f"| {statistics.median(parses):.1f} | {parses[int(0.9 * len(parses))]:.1f} "
                f"| {within:.0%} | {repeated:.1f} |"
            )


def main() -> None:
    """Measure, and print the result."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--archive", type=Path, help="a folder of transcripts")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--json", type=argparse.FileType("w"))
    options.add_argument("--enforce", action="store_true", help="exit 1 when a median is above 5")
    wishes = options.parse_args()
    lines = everyday() if wishes.archive is None else dict.fromkeys(archived(wishes.archive))
    costs = measured((line for line in lines if len(line) <= syntax.MAX_LINE_LENGTH), wishes.rounds)
    print("\n".join(table(costs)))
    medians = {
        f"{name}, {rules}": round(statistics.median(ratios(some, rules)), 2)
        for name, some in classes(costs).items()
        for rules in PERMISSIONS
    }
    if wishes.json:
        json.dump(medians, wishes.json, indent=1)
    if wishes.enforce and max(medians.values()) > TARGET:
        sys.exit(1)


if __name__ == "__main__":
    main()
