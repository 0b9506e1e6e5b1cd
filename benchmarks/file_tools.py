"""Measure the cost of a sandbox for Read and Grep, and compare with another checkout.

Each checkout runs in its own process, which stays open; rounds alternate between processes and cases. The CPU time
includes that of ripgrep. Prints the lowest and the median time of a call. `--beside FOLDER` adds an older checkout, and
`--enforce` exits with code 1 if a case takes more than 5 % longer than there.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from itertools import cycle, islice
from pathlib import Path

import anyio

from promises import Target, missed, ratio_target, table, target_table, write_json

LIMIT = 1.05
FILE_COUNT, FOLDER_COUNT = 3000, 60
CALLS: Mapping[str, tuple[int, str, Mapping[str, str]]] = {
    "Read, 200 lines": (40, "Read", {"file_path": "package_{folder}/module_{number}.py"}),
    "Grep, one file": (
        8,
        "Grep",
        {"pattern": "needle", "path": "package_{folder}/module_{number}.py", "output_mode": "content"},
    ),
    "Grep, 3,000 files": (3, "Grep", {"pattern": "needle", "path": "", "output_mode": "count"}),
}
"""The calls of a round: how often, the tool, and its input. Each call takes another file."""


async def serve() -> None:
    """Run the cases named on stdin in the current folder, and print the CPU and wall milliseconds of a call."""
    from toolspan import Permissions, Sandbox, Session
    from toolspan.runtime.profiles import profile
    from toolspan.session import SingleCallRunner
    from toolspan.tools import coding_tools

    tools = coding_tools(profile(), only=("Read", "Grep"))
    numbers = cycle(range(FILE_COUNT))
    async with AsyncExitStack() as stack:
        runners = {}
        for name, sandbox in (("bare", None), ("sandbox", Sandbox(strict=True))):
            permissions = Permissions.allow_all()
            session = Session(cwd=Path.cwd(), tools=tools, sandbox=sandbox, permissions=permissions, transcript=None)
            runners[name] = SingleCallRunner(await stack.enter_async_context(session))
        for line in sys.stdin:
            case, kind = line.rstrip("\n").split("\t")
            count, tool, arguments = CALLS[case]
            before, begin = _cpu_seconds(), time.perf_counter()
            for number in islice(numbers, count):
                result = await runners[kind].run_call(tool, _fill_in(arguments, number))
                if result.is_error:
                    raise SystemExit(f"{case}: {result.finished.content}")
            wall, cpu = time.perf_counter() - begin, _cpu_seconds() - before
            print(json.dumps([cpu * 1e3 / count, wall * 1e3 / count]), flush=True)


def _fill_in(arguments: Mapping[str, str], number: int) -> dict[str, str]:
    place = {"folder": number % FOLDER_COUNT, "number": number}
    paths = {key: f"{Path.cwd()}/{arguments[key].format(**place)}" for key in ("path", "file_path") if key in arguments}
    return {**arguments, **paths}


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def write_files(folder: Path) -> None:
    lines = "".join(f"def function_{number}(value): return value + {number}\n" for number in range(200))
    for number in range(FILE_COUNT):
        inner = folder / f"package_{number % FOLDER_COUNT}"
        inner.mkdir(exist_ok=True)
        (inner / f"module_{number}.py").write_text(lines + ("needle = 1\n" if number % 10 == 0 else ""))


def measure(checkouts: Mapping[str, Path], rounds: int) -> dict[tuple[str, str, str], list[list[float]]]:
    """Return the times of each checkout, case and kind of session, round by round."""
    times: dict[tuple[str, str, str], list[list[float]]] = {}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name, ExitStack() as stack:
        write_files(Path(name))
        workers = {
            label: stack.enter_context(
                subprocess.Popen(
                    [sys.executable, str(Path(__file__).resolve()), "--serve"],
                    cwd=name,
                    env={**os.environ, "PYTHONPATH": str(checkout / "src")},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for label, checkout in checkouts.items()
        }
        for number in range(-1, rounds):
            for case in CALLS:
                for kind in ("bare", "sandbox"):
                    order = list(workers)[:: 1 if number % 2 else -1]
                    for label in order:
                        worker = workers[label]
                        assert worker.stdin is not None
                        assert worker.stdout is not None
                        print(case, kind, sep="\t", file=worker.stdin, flush=True)
                        result = json.loads(worker.stdout.readline())
                        if number >= 0:  # the first round warms up
                            times.setdefault((label, case, kind), []).append(result)
    return times


def find_targets(
    times: Mapping[tuple[str, str, str], list[list[float]]], labels: Sequence[str]
) -> tuple[list[list[object]], list[Target]]:
    """Return the rows of the table, and a target for each case if there are two checkouts."""
    rows: list[list[object]] = []
    targets = []
    for case in CALLS:
        for kind in ("bare", "sandbox"):
            cells: list[object] = [case, kind]
            for label in labels:
                cpu, wall = zip(*times[label, case, kind], strict=True)
                cells += [f"{min(cpu):.2f} ({statistics.median(cpu):.2f})"]
                cells += [f"{min(wall):.2f} ({statistics.median(wall):.2f})"]
            rows.append(cells)
            if len(labels) > 1:
                lowest = [min(cpu for cpu, _ in times[label, case, kind]) for label in labels]
                targets.append(ratio_target(f"{case}, {kind}, CPU", LIMIT, (lowest[0], lowest[1]), at_most=True))
    return rows, targets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--beside", type=Path, metavar="FOLDER")
    parser.add_argument("--json", type=Path, help="write all numbers here; - for stdout")
    parser.add_argument("--enforce", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        anyio.run(serve)
        return
    checkouts = {"this": Path(__file__).resolve().parents[1]}
    if arguments.beside is not None:
        checkouts["other"] = arguments.beside.resolve()
    times = measure(checkouts, arguments.rounds)
    rows, targets = find_targets(times, list(checkouts))
    columns = [f"{label}, {unit} ms" for label in checkouts for unit in ("CPU", "wall")]
    print(*table(["lowest (median)", "session", *columns], rows), *target_table(targets), sep="\n")
    write_json({" ".join(key): value for key, value in times.items()}, arguments.json)
    if arguments.enforce and missed(targets):
        sys.exit("a target is missed")


if __name__ == "__main__":
    main()
