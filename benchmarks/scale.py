"""Measure `toolspan tables` on a large archive: both engines, a second run, sizes, memory, and answers from tables.

Uses `--archive`, or an archive in the scratch folder, which is made once: 500 MB by the corpus generator, then copies
of them with other ids and days (`--prepare` makes it and stops). Every step is one process tree, whose wall time, CPU
time and largest resident process are measured. Targets are about wall times, so run it on a machine that does nothing
else. Prints Markdown, and all numbers with `--json`; with `--enforce`, exits with code 1 if a target is missed.
Start at `main`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import string
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from itertools import repeat
from pathlib import Path
from random import Random

import psutil

from promises import Target, machine, missed, ratio_target, table, target_table, write_json

ROOT = Path(__file__).parent.parent
TOOLSPAN = Path(sys.executable).with_name("toolspan")
SAMPLE_SECONDS = 0.2
RAY_FACTOR, INCREMENTAL_FACTOR, MEMORY_FACTOR = 1.25, 0.03, 1.3
PART_MEGABYTES = 500
DONE = "expected-totals.json"
"""The generator writes this file last."""
UUID_END = re.compile(rb"(-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-)([0-9a-f]{12})(?![0-9a-f])")
NAMES = [  # a lookbehind in front would make the search three times as slow
    re.compile(rb"(%b)(?<![0-9A-Za-z_]%b)([0-9A-Za-z_-]{6,})" % (name, name))
    for name in (b"toolu_", b"call_", b"msg_", b"req_", b"chatcmpl-")
]
DATE = re.compile(rb"20\d\d-\d\d-\d\d(?=T\d\d[:-]\d\d)")


@dataclass(frozen=True)
class Run:
    """One measured command."""

    name: str
    megabytes: float
    wall: float
    cpu: float
    """User and system time of the command and all processes below it, Ray's included."""
    peak_mb: float
    """The resident size of the largest process that worked on transcripts or tables: a worker, if there are any."""
    driver_mb: float
    """The resident size of the command's own process."""

    @property
    def speed(self) -> float:
        """Megabytes of transcripts per second of wall time."""
        return self.megabytes / self.wall


def workers_of(root: psutil.Process) -> Iterator[psutil.Process]:
    """Yield the processes that do the work: the command, its children and Ray's workers below them."""
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.Error):
            name = " ".join(process.cmdline()[:3])
            if "ray/" not in name and "raylet" not in name and "gcs_server" not in name:
                yield process


def measure(name: str, megabytes: float, command: Sequence[str | Path], env: dict[str, str]) -> Run:
    """Run a command and measure it."""
    start = time.monotonic()
    process = subprocess.Popen([str(word) for word in command], env=env, stdout=subprocess.DEVNULL)
    peaks: dict[int, int] = {}
    spent: dict[int, float] = {}
    finished = threading.Event()

    def sample() -> None:
        root = psutil.Process(process.pid)
        while not finished.wait(SAMPLE_SECONDS):
            with suppress(psutil.Error):
                for child in root.children(recursive=True):
                    with suppress(psutil.Error):
                        spent[child.pid] = sum(child.cpu_times()[:2])
                spent[root.pid] = sum(root.cpu_times()[:2])
                for worker in workers_of(root):
                    with suppress(psutil.Error):
                        size = worker.memory_info().rss - worker.memory_info().shared
                        peaks[worker.pid] = max(peaks.get(worker.pid, 0), size)

    sampler = threading.Thread(target=sample)
    sampler.start()
    code = process.wait()
    wall = time.monotonic() - start
    finished.set()
    sampler.join()
    if code:
        raise SystemExit(f"{name}: {' '.join(map(str, command))} exited with {code}")
    driver = peaks.pop(process.pid, 0)
    peak = max(peaks.values(), default=driver)
    run = Run(name, megabytes, wall, sum(spent.values()), peak / 1e6, driver / 1e6)
    print(f"{name}: {wall:.1f} s, {run.speed:.1f} MB/s", file=sys.stderr)
    return run


def generate(out: Path, size: int, seed: int, generator: Path) -> Path:
    """Generate an archive of a number of megabytes unless it is there.

    The generator makes the first part. The others repeat it with other ids, in other sessions, on other days, so that
    nothing in them is a copy of a call.
    """
    first = out / "part-0"
    if not (first / DONE).exists():
        shutil.rmtree(first, ignore_errors=True)
        command = [sys.executable, generator, "--out", first, "--size", f"{min(PART_MEGABYTES, size)}MB"]
        subprocess.run([*map(str, command), "--seed", str(seed)], check=True, stdout=subprocess.DEVNULL)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(vary_part, repeat(first), [out / f"part-{n}" for n in range(1, -(-size // PART_MEGABYTES))]))
    return out


def vary_part(first: Path, part: Path) -> None:
    """Write the transcripts of a part with other ids and dates, unless they are there."""
    if (part / DONE).exists():
        return
    shutil.rmtree(part, ignore_errors=True)
    random = Random(part.name)
    mask, days = random.getrandbits(48), timedelta(days=7 * int(part.name.rpartition("-")[2]))
    alphabets = [string.digits, string.ascii_lowercase, string.ascii_uppercase]
    shuffled = "".join("".join(random.sample(letters, len(letters))) for letters in alphabets)
    letters = bytes.maketrans("".join(alphabets).encode(), shuffled.encode())
    dates: dict[bytes, bytes] = {}

    def vary_date(match: re.Match[bytes]) -> bytes:
        if match[0] not in dates:
            dates[match[0]] = str(date.fromisoformat(match[0].decode()) + days).encode()
        return dates[match[0]]

    def vary(data: bytes) -> bytes:
        data = UUID_END.sub(lambda match: match[1] + b"%012x" % (int(match[2], 16) ^ mask), data)
        for pattern in NAMES:
            data = pattern.sub(lambda match: match[1] + match[2].translate(letters), data)
        return DATE.sub(vary_date, data)

    for path in sorted(first.rglob("*")):
        if path.is_file() and path.name != DONE:
            target = part / vary(str(path.relative_to(first)).encode()).decode()
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(vary(path.read_bytes()))
    (part / DONE).write_bytes((first / DONE).read_bytes())


def megabytes(folder: Path) -> float:
    """Return the size of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def digest(out: Path) -> str:
    """Return a digest of the tables below a folder."""
    total = hashlib.sha256()
    for path in sorted(out.rglob("*.parquet")):
        total.update(str(path.relative_to(out)).encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def main() -> int:
    """Measure everything once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=5_000, metavar="MB", help="size of the archive (5000)")
    parser.add_argument("--archive", type=Path, help="an archive to read instead of generating one")
    parser.add_argument("--new", type=Path, help="an archive of about 1 %% of its size, for the second run")
    parser.add_argument("--generator", type=Path, default=ROOT.parent / "shared" / "corpus" / "generate.py")
    parser.add_argument("--scratch", type=Path, default=ROOT / ".scratch" / "scale")
    parser.add_argument("--prepare", action="store_true", help="only make the archive")
    parser.add_argument("--no-ray", action="store_true", help="leave Ray out")
    parser.add_argument("--json", type=Path, metavar="OUT")
    parser.add_argument("--enforce", action="store_true")
    options = parser.parse_args()
    scratch: Path = options.scratch
    archive = options.archive or generate(scratch / f"archive-{options.size}", options.size, 7, options.generator)
    percent = max(1, round(megabytes(archive) / 100))
    new = options.new or generate(scratch / f"new-{percent}", percent, 999, options.generator)
    if options.prepare:
        return 0
    runs, targets, facts = measure_all(archive, new, scratch, with_ray=not options.no_ray)
    print(f"\n{megabytes(archive):,.0f} MB of transcripts, {machine()}\n")
    rows = (
        [
            r.name,
            f"{r.wall:.1f}",
            f"{r.cpu:.1f}",
            f"{r.megabytes / r.cpu:.1f}",
            f"{r.peak_mb:.0f}",
            f"{r.driver_mb:.0f}",
        ]
        for r in runs
    )
    head = ["step", "seconds", "CPU seconds", "MB/s per core", "peak MB per worker", "of the command itself"]
    print("\n".join(table(head, rows)), "\n")
    print("\n".join(table(["fact", "value"], facts.items())), "\n")
    print("\n".join(target_table(targets)))
    write_json(
        {"runs": [asdict(run) for run in runs], "facts": facts, "targets": [asdict(t) for t in targets]}, options.json
    )
    return 1 if options.enforce and missed(targets) else 0


def measure_all(
    archive: Path, new: Path, scratch: Path, *, with_ray: bool
) -> tuple[list[Run], list[Target], dict[str, str]]:
    """Run each step once."""
    env = {**os.environ, "TOOLSPAN_NO_CACHE": "1", "HOME": str(scratch), "RAY_USAGE_STATS_ENABLED": "0"}
    env["RAY_raylet_start_wait_time_s"] = "120"  # a busy machine takes longer than Ray waits
    size = megabytes(archive)
    for path in archive.rglob("*.jsonl*"):  # the disk cache is warm for all
        path.read_bytes()
    runs: dict[str, Run] = {}

    def step(name: str, *words: str | Path, of: float = size, more: Mapping[str, str] | None = None) -> Run:
        runs[name] = measure(name, of, [TOOLSPAN, *words], {**env, **(more or {})})
        return runs[name]

    def tables(name: str, source: Path, out: str, *words: str, of: float = size) -> Run:
        shutil.rmtree(scratch / out, ignore_errors=True)
        return step(name, "tables", source, "-o", scratch / out, *words, of=of)

    step("errors, all cores", "errors", archive, "--json")
    local = tables("tables, local, 1 process", archive, "local", "--jobs", "1")
    part = next(iter(sorted(archive.glob("part-*"))), new)
    both = tables("tables, local, 2 processes", archive, "local2", "--jobs", "2")
    small = tables("tables of one part, local, 2 processes", part, "small", "--jobs", "2", of=megabytes(part))
    digests = {digest(scratch / "local"), digest(scratch / "local2")}
    if with_ray:
        tables("tables, Ray, 1 worker", archive, "ray", "--engine", "ray", "--jobs", "1")
        both = tables("tables, Ray, 2 workers", archive, "ray2", "--engine", "ray", "--jobs", "2")
        words = ("--engine", "ray", "--jobs", "2")
        small = tables("tables of one part, Ray, 2 workers", part, "small", *words, of=megabytes(part))
        digests |= {digest(scratch / "ray"), digest(scratch / "ray2")}
    written = scratch / "local"
    table_size = sum(path.stat().st_size for path in written.rglob("*.parquet")) / 1e6
    facts = {
        "tables": f"{table_size:.1f} MB, {table_size / size:.2%} of the transcripts",
        "state for the next run": f"{megabytes(written / '_state'):.1f} MB",
        "Parquet files": f"{sum(1 for _ in written.rglob('*.parquet')):,}",
    }
    added = archive / "new"
    shutil.copytree(new, added)
    try:
        second_run = step(
            "second run, 1 % new", "tables", archive, "-o", scratch / "local", "--jobs", "1", of=megabytes(new)
        )
    finally:
        shutil.rmtree(added)
    cache = {"TOOLSPAN_NO_CACHE": "", "XDG_CACHE_HOME": str(scratch / "cache")}
    shutil.rmtree(scratch / "cache", ignore_errors=True)
    step("usage, cold", "usage", archive, "--json", more=cache)
    step("usage, warm", "usage", archive, "--json", more=cache)
    step("usage --tables", "usage", "--tables", written, "--json")
    step("stats --tables", "stats", "--tables", written, "--json")
    ray = runs.get("tables, Ray, 1 worker")
    ray_wall = ray.wall if ray else None
    targets = [
        ratio_target("Ray with 1 worker to 1 process", RAY_FACTOR, (ray_wall, local.wall), at_most=True),
        ratio_target("second run to the first", INCREMENTAL_FACTOR, (second_run.wall, local.wall), at_most=True),
        ratio_target("memory of a worker, all to one part", MEMORY_FACTOR, (both.peak_mb, small.peak_mb), at_most=True),
        Target("equal tables from every engine", "1", str(len(digests)), len(digests) == 1),
    ]
    facts |= {
        "CPU time of Ray with 1 worker": f"{ray.cpu / local.cpu:.2f} × of 1 process" if ray else "not measured",
        "CPU time of the second run": f"{second_run.cpu / local.cpu:.2%} of the first",
    }
    return [*runs.values()], targets, facts


if __name__ == "__main__":
    sys.exit(main())
