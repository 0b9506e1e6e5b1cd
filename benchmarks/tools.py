"""Measure the cost of the built-in tools compared with the bare operations.

Prints a table, or JSON with `--json`; with `--enforce`, exits with code 1 if a target is missed. Every tool runs in a
`Runner`, as an agent's call would, in turns with its floor: Grep and Glob with bare `rg` and the same flags, Edit
with read, replace, write and fsync, Read with one pass over the file, background commands with bare `Popen`. Files
are made in a scratch folder. Start at `CASES`, then `measured`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

import anyio

from promises import write_json
from toolspan.runtime.process import find_survivors
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner, new_workspace
from toolspan.tools import bash_tool, edit_tool, glob_tool, grep_tool, read_tool
from toolspan.types.events import Finished

SEARCH_RATIO, SEARCH_MS = 1.2, 20.0
MB = 1 << 20
WORDS = ("alpha", "beta", "gamma", "delta", "needle", "zeta", "eta", "theta", "iota", "kappa")
ALWAYS = ("--no-config", "--no-messages", "--color=never", "--hidden", "--null")


@dataclass(frozen=True)
class Bound:
    """The permitted cost of a tool: a multiple of the floor, and some milliseconds."""

    ratio: float
    more_ms: float


@dataclass(frozen=True)
class Measured:
    """The best and median times of one case."""

    name: str
    rounds: int
    ours_ms: float
    ours_p50_ms: float
    floor_ms: float
    floor_p50_ms: float
    ratio: float
    limit_ms: float
    memory_mb: float
    """Growth of this process's peak memory."""
    ok: bool


@dataclass(frozen=True)
class Case:
    """A tool call and the equivalent bare operation."""

    name: str
    ours: Callable[[], Awaitable[None]]
    floor: Callable[[], object]
    bound: Bound
    rounds: int
    most_mb: float = 256.0


class Bench:
    """A runner with the tools."""

    def __init__(self, folder: Path) -> None:
        client = profile("2.1.327")
        makers = (glob_tool, grep_tool, read_tool, edit_tool, bash_tool)
        self.workspace = new_workspace(folder)
        self.runner = Runner([make(client) for make in makers], cwd=folder, profile=client, workspace=self.workspace)
        self._ids = count()

    async def call(self, tool: str, **given: object) -> Finished:
        """Run one call, which must succeed."""
        return (await self.calls(tool, [given]))[0]

    async def calls(self, tool: str, inputs: list[dict[str, object]]) -> list[Finished]:
        blocks = [
            {"type": "tool_use", "id": f"toolu_{next(self._ids)}", "name": tool, "input": tool_input}
            for tool_input in inputs
        ]
        finished = await self.runner.finish(blocks)
        for event in finished:
            if event.span.state != "succeeded":
                raise SystemExit(f"{tool} failed: {event.content}")
        return finished


# The files that are searched, read and changed


def make_tree(folder: Path, files: int) -> None:
    """Create files of some kilobytes in folders of a hundred; every fifth has the needle."""
    for number in range(files):
        path = folder / f"d{number // 1000}" / f"e{number // 100 % 10}"
        if number % 100 == 0:
            path.mkdir(parents=True, exist_ok=True)
        last = [line * number % 10 if number % 5 == 0 else 3 for line in range(100)]
        lines = [f"{WORDS[(number + nth) % 4]} {nth} {WORDS[at]}" for nth, at in enumerate(last)]
        ending = ("py", "md", "txt")[number % 3]
        (path / f"f{number}.{ending}").write_text("\n".join(lines) + "\n", encoding="utf-8")


def make_lines(path: Path, size: int) -> None:
    """Create a file of that many bytes in lines of a hundred."""
    block = b"".join(b"%09d %s\n" % (number, b"x" * 89) for number in range(10_000))
    with path.open("wb") as file:
        for _ in range(size // len(block)):
            file.write(block)


def bare_rg(folder: Path, *arguments: str) -> Callable[[], object]:
    packaged = Path(sys.executable).parent / "rg"
    program = str(packaged) if packaged.is_file() else shutil.which("rg")
    if program is None:
        raise SystemExit("rg is not installed")
    argv = [program, *ALWAYS, *arguments]

    def floor() -> None:
        with subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0) as process:
            assert process.stdout is not None
            while process.stdout.read(1 << 16):
                pass

    return floor


def grep_floor(folder: Path, mode: str, pattern: str) -> Callable[[], object]:
    return bare_rg(folder, mode, "--with-filename", "--line-number", "--regexp", pattern, str(folder))


def search_cases(bench: Bench, tree: Path, rounds: int) -> list[Case]:
    bound = Bound(SEARCH_RATIO, SEARCH_MS)

    def grep(name: str, mode: str, flag: str, pattern: str) -> Case:
        async def ours() -> None:
            await bench.call("Grep", pattern=pattern, output_mode=mode, path=str(tree))

        return Case(f"Grep {name}", ours, grep_floor(tree, flag, pattern), bound, rounds)

    def glob(name: str, pattern: str) -> Case:
        async def ours() -> None:
            await bench.call("Glob", pattern=pattern, path=str(tree))

        flags = ("--files", "--no-ignore", "--sort=modified", f"--glob={pattern}")
        return Case(f"Glob {name}", ours, bare_rg(tree, *flags), bound, rounds)

    return [
        glob("all files", "**/*"),
        glob("a third", "**/*.py"),
        glob("one file", "**/f4242.*"),
        grep("files, a fifth", "files_with_matches", "--files-with-matches", "needle"),
        grep("files, all", "files_with_matches", "--files-with-matches", "delta"),
        grep("files, none", "files_with_matches", "--files-with-matches", "nowhere"),
        grep("lines, every third", "content", "--no-heading", "alpha|beta"),
        grep("lines, few", "content", "--no-heading", "alpha 77 needle"),
        grep("counts", "count", "--count", "needle"),
    ]


def file_cases(bench: Bench, folder: Path, sizes: tuple[int, int], rounds: int) -> list[Case]:
    small, large = folder / "edited.txt", folder / "read.txt"
    make_lines(small, sizes[0] // 2)
    half = small.read_bytes()
    small.write_bytes(half + b"marked 0\n" + half)
    make_lines(large, sizes[1])
    turn = count(1)

    async def edit() -> None:
        number = next(turn)
        old, new = f"marked {number - 1}\n", f"marked {number}\n"
        await bench.call("Edit", file_path=str(small), old_string=old, new_string=new)

    def edit_floor() -> None:
        data = small.read_bytes()
        text = data.decode().replace("nowhere to be found", "")
        hashlib.blake2b(data).digest()
        target = small.with_suffix(".new")
        with target.open("wb") as file:
            file.write(text.encode())
            os.fsync(file.fileno())
        target.replace(small.with_suffix(".floor"))

    async def read() -> None:
        await bench.call("Read", file_path=str(large), offset=sizes[1] // 200, limit=20)

    def read_floor() -> int:
        digest, lines = hashlib.blake2b(digest_size=16), 0
        with large.open("rb", buffering=0) as file:
            while piece := file.read(MB):
                digest.update(piece)
                lines += piece.decode().count("\n")
        return lines

    return [
        Case(f"Edit in {sizes[0] // MB} MB", edit, edit_floor, Bound(8.0, 20.0), rounds),
        Case(f"Read 20 lines of {sizes[1] // MB} MB", read, read_floor, Bound(2.0, 20.0), 3, 64.0),
    ]


def background_case(bench: Bench, number: int) -> Case:
    async def ours() -> None:
        inputs = [{"command": f"echo {nth}; exec sleep 600", "run_in_background": True} for nth in range(number)]
        await bench.calls("Bash", inputs)
        running = [task for task in bench.workspace.tasks if task.status == "running"]
        if len(running) < number:
            raise SystemExit(f"{number - len(running)} background commands ended by themselves")
        await bench.workspace.tasks.end()
        remaining = [task for task in running if find_survivors(task.call_id)]
        if remaining:
            raise SystemExit(f"{len(remaining)} background commands were not stopped")

    def floor() -> None:
        commands = [
            subprocess.Popen(
                ["/bin/bash", "-c", f"echo {nth}; exec sleep 600"], stdout=subprocess.DEVNULL, start_new_session=True
            )
            for nth in range(number)
        ]
        for command in commands:
            command.kill()
        for command in commands:
            command.wait()

    return Case(f"{number} background commands", ours, floor, Bound(12.0, 1_000.0), 1)


# Measuring


async def measured(case: Case) -> Measured:
    """Run tool and floor in turns after a warm-up; compare the best of each."""
    ours: list[float] = []
    floor: list[float] = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(case.rounds + 1):
        start = time.perf_counter()
        await case.ours()
        ours.append((time.perf_counter() - start) * 1e3)
        start = time.perf_counter()
        case.floor()
        floor.append((time.perf_counter() - start) * 1e3)
    if case.rounds > 1:
        ours, floor = ours[1:], floor[1:]
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    limit = case.bound.ratio * min(floor) + case.bound.more_ms
    return Measured(
        name=case.name,
        rounds=case.rounds,
        ours_ms=round(min(ours), 2),
        ours_p50_ms=round(statistics.median(ours), 2),
        floor_ms=round(min(floor), 2),
        floor_p50_ms=round(statistics.median(floor), 2),
        ratio=round(min(ours) / min(floor), 3),
        limit_ms=round(limit, 2),
        memory_mb=round(grown, 1),
        ok=min(ours) <= limit and grown <= case.most_mb,
    )


async def run(options: argparse.Namespace, scratch: Path) -> list[Measured]:
    tree = scratch / "tree"
    tree.mkdir()
    bench = Bench(scratch)
    cases: list[Case] = []
    async with bench.runner:
        if "search" in options.only:
            make_tree(tree, options.files)
            cases += search_cases(bench, tree, options.rounds)
        if "files" in options.only:
            cases += file_cases(bench, scratch, (10 * MB, options.read_mb * MB), 5)
        if "background" in options.only:
            cases.append(background_case(bench, options.commands))
        return [await measured(case) for case in cases]


def show(cases: list[Measured]) -> None:
    print(f"{'case':32} {'ours ms':>9} {'floor ms':>9} {'ratio':>6} {'limit ms':>9} {'MB':>6}")
    for case in cases:
        mark = "" if case.ok else "  MISSED"
        print(
            f"{case.name:32} {case.ours_ms:9.1f} {case.floor_ms:9.1f} {case.ratio:6.2f}"
            f" {case.limit_ms:9.1f} {case.memory_mb:6.1f}{mark}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=["search", "files", "background"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--files", type=int, default=20_000, help="files in the searched tree")
    parser.add_argument("--read-mb", type=int, default=1_000, help="of the file that is read")
    parser.add_argument("--commands", type=int, default=200, help="in the background")
    parser.add_argument("--scratch", type=Path, help="scratch folder")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--enforce", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        cases = anyio.run(run, options, Path(scratch).resolve())
    show(cases)
    facts = {"python": platform.python_version(), "cases": [asdict(case) for case in cases]}
    write_json(facts, options.json)
    return 1 if options.enforce and not all(case.ok for case in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
