"""What a permission decision costs, next to one tree-sitter parse of the same line.

    python benchmarks/permission.py [--rounds N]

Every decision is on a line that was not seen before (caches are emptied) by a session with rules,
guard and mode. Times are the best of the rounds; the ratio is what counts.
"""

import argparse
import itertools
import timeit
from pathlib import Path

from toolspan.ids import CallId
from toolspan.model.span import Call
from toolspan.permission import Permissions, Rules, command
from toolspan.permission.decide import Question
from toolspan.run.shelf import LiveShelf
from toolspan.shell import seen
from toolspan.shell.sheet import parser

LINES = [
    "git status",
    "npm run build",
    'cd src && grep -rn "foo bar" . | head -20',
    "for i in 1 2 3; do echo $i; done; git log --oneline | head; cat <<EOF\nabc\nEOF\n",
    'find . -name "*.py" -not -path "./x/*" | xargs grep -l "foo" | sort | uniq -c | head -50',
    "\n".join(f'echo "step {n}" && ls -la sub{n} | grep -v "^total" || true' for n in range(20)),
]
PERMISSIONS = {
    "no rules": Permissions(),
    "10 rules": Permissions(
        Rules(
            allow=["Bash(npm run:*)", "Bash(git add:*)", "Bash(make:*)", "Read", "Edit(src/**)"],
            ask=["Bash(docker:*)", "WebFetch"],
            deny=["Bash(rm:*)", "Bash(git push:*)", "Read(./.env)"],
        )
    ),
}
POLICIES = {id(one): (*one.policies, one.fallback) for one in PERMISSIONS.values()}
HERE = Path.cwd()
_NUMBERS = itertools.count()


def decide(permissions: Permissions, line: str) -> None:
    for cached in (seen.see, command.opened, command._forms):
        cached.cache_clear()
    given = {"command": line}
    call = Call(
        id=CallId(f"c{next(_NUMBERS)}"),
        tool="Bash",
        at=0,
        requested_at=None,
        target=None,
        shelf=LiveShelf(given),
    )
    question = Question(call=call, input=given, cwd=HERE, project=HERE)
    for policy in POLICIES[id(permissions)]:
        if policy(question) is not None:
            return


def best(work: object, rounds: int) -> float:
    return min(timeit.repeat(work, number=100, repeat=rounds)) / 100 * 1e6


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    rounds = options.parse_args().rounds
    print("| line | parse | " + " | ".join(PERMISSIONS) + " |\n|---|---|---|---|")
    for line in LINES:
        data = line.encode()
        parse = best(lambda data=data: parser().parse(data), rounds)
        costs = [
            best(lambda one=one, line=line: decide(one, line), rounds)
            for one in PERMISSIONS.values()
        ]
        told = " | ".join(f"{cost:.0f} µs ({cost / parse:.1f} ×)" for cost in costs)
        print(f"| `{line[:40]!r}` {len(line)} | {parse:.0f} µs | {told} |")


if __name__ == "__main__":
    main()
