"""Measure the time and memory that toolspan needs to read an archive, compared with `orjson.loads` and peers.

Needs an archive with its `expected-totals.json`, the peers' prefix (see `peers.py`), and giant files. Prints Markdown
tables, and all numbers with `--json`; with `--enforce`, exits with code 1 if a target is missed. All contestants run
in turns, round by round, so that a busy machine slows all of them. Every run has its own empty HOME and, if `unshare`
is permitted, no network. Start at `main`, then `CONTESTANTS`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from peers import (
    AGENTSVIEW,
    CCUSAGE,
    CCUSAGE_EARLY,
    CLAUDE_CODE_LOG,
    TOKEN_FIELDS,
    Answer,
    Bench,
    Job,
    Peer,
    RunError,
    agentsview_job,
    ccusage_job,
    claude_code_log_job,
    environment,
)
from promises import Target, machine, missed, ratio_target, table, target_table, write_json

MB = 1_000_000
OURS = ("read", "errors", "stats")

# A process inherits the peak memory of the process that starts it, so each contestant is
# started by this small wrapper, which measures it and its children.
MEASURE = """
import json, os, sys, time
report, *command = sys.argv[1:]
begin = time.perf_counter()
pid = os.posix_spawnp(command[0], command, os.environ)
_, status, usage = os.wait4(pid, 0)
wall = time.perf_counter() - begin
unit = 1 if sys.platform == "darwin" else 1024
with open(report, "w", encoding="utf-8") as out:
    json.dump({"wall": wall, "cpu": usage.ru_utime + usage.ru_stime,
               "peak": usage.ru_maxrss * unit, "code": os.waitstatus_to_exitcode(status)}, out)
"""


@dataclass(frozen=True)
class Run:
    """One measured run."""

    wall: float
    cpu: float
    peak: int
    answer: Answer


@dataclass
class Row:
    """All runs of one contestant, or the reason why there are none."""

    name: str
    about: str
    runs: list[Run] = field(default_factory=list)
    failure: str | None = None

    @property
    def ran(self) -> bool:
        """True if there is a run to compare."""
        return self.failure is None and bool(self.runs)

    @property
    def best(self) -> Run:
        """The run with the least wall time."""
        return min(self.runs, key=lambda run: run.wall)

    @property
    def wall(self) -> float:
        """Best wall time, start-up included."""
        return self.best.wall

    @property
    def median(self) -> float:
        """Median wall time."""
        return statistics.median(run.wall for run in self.runs)

    @property
    def loop(self) -> float | None:
        """Best time inside the reading loop."""
        loops = [run.answer.loop for run in self.runs if run.answer.loop is not None]
        return min(loops) if loops else None

    @property
    def peak(self) -> int:
        """Largest peak of all runs, in bytes."""
        return max(run.peak for run in self.runs)


@dataclass(frozen=True)
class Contestant:
    """A program that reads the archive."""

    name: str
    about: str
    job: Callable[[Bench, Path], Job]
    """Called with the bench and the run's own empty folder."""
    peer: Peer | None = None
    slow: bool = False


# Child processes: the two loops that are compared line by line.


def transcripts(path: Path) -> list[Path]:
    """Return the transcripts below a folder, or the one file."""
    return [path] if path.is_file() else sorted(path.rglob("*.jsonl"))


def orjson_loop(paths: Iterable[Path]) -> dict[str, object]:
    """Decode every line and keep nothing."""
    import orjson

    lines = malformed = 0
    for path in paths:
        with path.open("rb") as file:
            for line in file:
                lines += 1
                try:
                    orjson.loads(line)
                except orjson.JSONDecodeError:
                    if line.isspace():
                        lines -= 1
                    else:
                        malformed += 1
    return {"lines": lines, "note": f"{malformed} lines not JSON"}


def toolspan_loop(paths: Iterable[Path]) -> dict[str, object]:
    """Read every transcript, and get the state, kind and duration of every span."""
    import toolspan

    calls: set[str] = set()
    tokens = dict.fromkeys(TOKEN_FIELDS, 0)
    for path in paths:
        transcript = toolspan.read(path)
        for span in transcript.spans:
            _ = (span.error_kind, span.duration)
            if span.state != "orphan_result":
                calls.add(span.id)
        for name in TOKEN_FIELDS:
            tokens[name] += getattr(transcript.tokens, name)
    total = ", ".join(f"{name} {count}" for name, count in tokens.items())
    return {"calls": len(calls), "note": f"tokens summed per file, forks counted twice: {total}"}


LOOPS = {"orjson": orjson_loop, "read": toolspan_loop}


def child(name: str, path: Path) -> None:
    """Run one loop over the transcripts and print its result and time."""
    paths = transcripts(path)
    __import__({"orjson": "orjson", "read": "toolspan.reading.transcript"}[name])
    begin = time.perf_counter()
    result = LOOPS[name](paths)
    json.dump(result | {"loop": time.perf_counter() - begin}, sys.stdout)


# Contestants: their command lines, and the locations of their answers.


def child_job(name: str, path: Path) -> Job:
    """Return the job that runs one of the loops in a separate process."""
    return Job(
        [sys.executable, __file__, "--child", name, str(path)],
        answer=lambda stdout: Answer(**json.loads(stdout.read_bytes())),
    )


def toolspan_job(command: str, bench: Bench) -> Job:
    """Return the job for a command of toolspan, as installed beside this Python."""
    program = Path(sys.executable).with_name("toolspan")

    def answer(stdout: Path) -> Answer:
        try:
            output = json.loads(stdout.read_bytes())
        except json.JSONDecodeError:  # JSON lines: rows, no totals
            return Answer()
        if not isinstance(output, dict):
            return Answer()
        tokens = output.get("tokens")
        calls = output.get("calls")
        return Answer(
            calls=calls if isinstance(calls, int) else None,
            tokens={name: tokens[name] for name in TOKEN_FIELDS} if tokens else None,
        )

    return Job([program, command, "--json", bench.archive], answer=answer)


CONTESTANTS = (
    Contestant(
        "orjson", "`orjson.loads` on every line, one process", lambda bench, _: child_job("orjson", bench.archive)
    ),
    Contestant(
        "read",
        "`toolspan.read`: every span's state, kind, duration; tokens; one process",
        lambda bench, _: child_job("read", bench.archive),
    ),
    Contestant("errors", "`toolspan errors --json`, all cores", lambda bench, _: toolspan_job("errors", bench)),
    Contestant("stats", "`toolspan stats --json`, all cores", lambda bench, _: toolspan_job("stats", bench)),
    Contestant("ccusage", f"ccusage {CCUSAGE.version}: `claude daily --json --offline`", ccusage_job, peer=CCUSAGE),
    Contestant(
        "ccusage-early",
        f"ccusage {CCUSAGE_EARLY.version}: the same",
        lambda bench, run_dir: ccusage_job(bench, run_dir, CCUSAGE_EARLY),
        peer=CCUSAGE_EARLY,
    ),
    Contestant(
        "agentsview",
        f"agentsview {AGENTSVIEW.version}: cold `sync`, no daemon",
        agentsview_job,
        peer=AGENTSVIEW,
        slow=True,
    ),
    Contestant(
        "claude-code-log",
        f"claude-code-log {CLAUDE_CODE_LOG.version}: all projects to HTML",
        claude_code_log_job,
        peer=CLAUDE_CODE_LOG,
        slow=True,
    ),
)


# Measuring


def network_cutter() -> tuple[str, ...]:
    """Return the command prefix that starts a program without network; empty if the system does not permit it."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return ()
    command = (unshare, "--map-root-user", "--net")
    works = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    return command if works else ()


def measure(job: Job, bench: Bench, run_dir: Path) -> Run:
    """Run one job to its end.

    Raises:
        RunError: it failed, took too long, or gave no readable answer.
    """
    for name in ("home", "tmp"):
        (run_dir / name).mkdir()
    report, stdout, stderr = (run_dir / name for name in ("report", "stdout", "stderr"))
    command = [*bench.offline, *map(str, job.command)]
    wrapper = [sys.executable, "-I", "-S", "-c", MEASURE, str(report), *command]
    with stdout.open("wb") as out, stderr.open("wb") as err:
        process = subprocess.Popen(
            wrapper,
            env={**environment(run_dir), **job.env},
            cwd=run_dir,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            process.wait(bench.timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise RunError(f"longer than {bench.timeout:.0f} s") from None
    if not report.exists():
        raise RunError(last_line(stderr) or "did not start")
    measured = json.loads(report.read_bytes())
    if measured["code"] != 0:
        raise RunError(f"exit {measured['code']}: {last_line(stderr)}")
    return Run(measured["wall"], measured["cpu"], measured["peak"], answered(job, stdout))


def answered(job: Job, stdout: Path) -> Answer:
    """Return the job's answer.

    Raises:
        RunError: it cannot be read.
    """
    try:
        return job.answer(stdout)
    except (KeyError, TypeError, ValueError, sqlite3.Error, subprocess.SubprocessError) as problem:
        raise RunError(f"no readable answer: {problem!r}") from problem


def last_line(path: Path) -> str:
    """Return the last line of a small log."""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")


def run_into(row: Row, bench: Bench, job: Callable[[Bench, Path], Job]) -> None:
    """Add one run to a row, in a temporary folder."""
    print(f"{row.name} ...", file=sys.stderr)
    run_dir = Path(tempfile.mkdtemp(dir=bench.scratch, prefix=f"{row.name}-"))
    try:
        row.runs.append(measure(job(bench, run_dir), bench, run_dir))
    except RunError as problem:
        row.failure = str(problem)
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)


def run_all(chosen: Sequence[Contestant], bench: Bench, repeats: int) -> list[Row]:
    """Run all contestants once per round; slow ones only in the first round."""
    rows = [Row(contestant.name, contestant.about) for contestant in chosen]
    for number in range(repeats):
        for contestant, row in zip(chosen, rows, strict=True):
            if row.failure is None and not (contestant.slow and number > 0):
                run_into(row, bench, contestant.job)
    return rows


# Comparing


def verdict(actual: object, expected: object) -> str:
    """Return whether a number is the expected one, as text."""
    if actual is None:
        return "not reported"
    return "equal" if actual == expected else f"differs: {actual} vs {expected}"


def token_verdict(actual: Mapping[str, int] | None, expected: Mapping[str, int]) -> str:
    """Compare all four token counts with the expected ones; only differences are shown."""
    if actual is None:
        return "not reported"
    wrong = [name for name in TOKEN_FIELDS if actual[name] != expected[name]]
    if not wrong:
        return "equal"
    return "differs: " + ", ".join(
        f"{name.removesuffix('_tokens')} {actual[name]} vs {expected[name]}" for name in wrong
    )


def verdicts(answer: Answer, expected: Mapping[str, object]) -> dict[str, str]:
    """Compare an answer with the expected totals, kind by kind."""
    tokens = expected["tokens"]
    assert isinstance(tokens, Mapping)
    return {
        "calls": verdict(answer.calls, expected["calls"]),
        "tokens": token_verdict(answer.tokens, tokens),
        "lines": verdict(answer.lines, expected["lines"]),
        "messages": "not reported" if answer.messages is None else f"{answer.messages}",
        "note": answer.note,
    }


def archive_targets(rows: Mapping[str, Row], expected: Mapping[str, object]) -> list[Target]:
    """Return the targets of one archive run. A selected contestant that failed misses its targets."""

    def wall(name: str) -> float | None:
        return rows[name].wall if name in rows and rows[name].ran else None

    def loop(name: str) -> float | None:
        return rows[name].loop if name in rows and rows[name].ran else None

    targets = [
        ratio_target("read / orjson, inside the loop", 1.2, (loop("read"), loop("orjson")),
                     at_most=True),
        ratio_target("ccusage / errors, wall", 1, (wall("ccusage"), wall("errors")),
                     at_most=False),
        ratio_target("agentsview / errors, wall", 15, (wall("agentsview"), wall("errors")),
                     at_most=False),
    ]  # fmt: skip
    if "stats" in rows and rows["stats"].ran:
        comparison = verdicts(rows["stats"].best.answer, expected)
        for kind in ("calls", "tokens"):
            right = comparison[kind] == "equal"
            targets.append(Target(f"stats: right {kind}", "equal", comparison[kind], right))
    targets += [
        Target(f"{row.name} runs", "exit 0", row.failure, met=False) for row in rows.values() if row.failure is not None
    ]
    return targets


# Giant files


@dataclass(frozen=True)
class Giant:
    """A file with its size and the length of its longest line."""

    path: Path
    size: int
    longest: int


def giant(path: Path) -> Giant:
    """Measure a file without holding one of its lines in memory."""
    longest = current = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            head, *rest = chunk.split(b"\n")
            current += len(head)
            for piece in rest:
                longest = max(longest, current)
                current = len(piece)
    return Giant(path, path.stat().st_size, max(longest, current))


def run_giant(kind: str, path: Path, bench: Bench) -> tuple[list[Row], Target]:
    """Run both loops over one giant file; return the rows and the memory target."""
    file = giant(path)
    limit = 150 * MB if kind == "file" else 3 * file.longest
    size = f"{file.size / MB:.0f} MB, longest line {file.longest / MB:.1f} MB"
    rows = []
    for name in LOOPS:
        row = Row(f"{name}, giant {kind}", size)
        job = child_job(name, path.resolve())
        run_into(row, bench, lambda *_, job=job: job)
        rows.append(row)
    ours = rows[-1]
    what = f"peak memory, giant {kind} ({size})"
    if not ours.ran:
        return rows, Target(what, f"≤ {limit / MB:.0f} MB", ours.failure or "", met=False)
    measured = f"{ours.peak / MB:.0f} MB = {ours.peak / file.longest:.2f} × longest line"
    return rows, Target(what, f"≤ {limit / MB:.0f} MB", measured, ours.peak <= limit)


# Output


def seconds(value: float | None) -> str:
    """Format seconds; a dash for None."""
    return "–" if value is None else f"{value:.2f}"


def row_cells(row: Row, baseline: float | None) -> list[str]:
    """Return the cells of one contestant."""
    if not row.ran:
        return [row.name, row.about, "0", *["–"] * 5, f"did not run: {row.failure}"]
    return [
        row.name,
        row.about,
        str(len(row.runs)),
        seconds(row.wall),
        seconds(row.median),
        seconds(row.loop),
        seconds(row.best.cpu),
        f"{row.peak / MB:.0f}",
        "–" if baseline is None else f"{row.wall / baseline:.2f}",
    ]


def measured_table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of times and memory."""
    header = ["who", "what", "runs", "best wall s", "median wall s", "loop s", "CPU s",
              "peak MB", "wall / orjson"]  # fmt: skip
    base = next((row.wall for row in rows if row.name.startswith("orjson") and row.ran), None)
    return table(header, (row_cells(row, base) for row in rows))


def ratio_table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of ratios between each contestant and toolspan."""
    ours = [row for row in rows if row.name in OURS and row.ran]
    others = [row for row in rows if row.name not in OURS and row.ran]
    header = ["wall of … / wall of", *(f"toolspan {row.name}" for row in ours)]
    return table(header, ([other.name, *(f"{other.wall / row.wall:.2f}" for row in ours)] for other in others))


def answer_table(rows: Sequence[Row], expected: Mapping[str, object]) -> Iterator[str]:
    """Yield the table of answers compared with the expected ones."""
    kinds = ("calls", "tokens", "lines", "messages", "note")
    comparisons = [(row.name, verdicts(row.best.answer, expected)) for row in rows if row.ran]
    return table(["who", *kinds], ([name, *(comparison[kind] for kind in kinds)] for name, comparison in comparisons))


def row_json(row: Row) -> dict[str, object]:
    """Return one contestant as JSON."""
    return {"name": row.name, "about": row.about, "failure": row.failure, "runs": [asdict(run) for run in row.runs]}


def numbers_json(rows: Sequence[Row], targets: Sequence[Target]) -> dict[str, object]:
    """Return all numbers as JSON."""
    return {"rows": [row_json(row) for row in rows], "targets": [asdict(target) for target in targets]}


# The whole benchmark


def fingerprint(archive: Path) -> frozenset[tuple[str, int, int]]:
    """Return every file with size and time, to detect writes to the archive."""
    files = ((path, path.stat()) for path in archive.rglob("*") if path.is_file())
    return frozenset((str(path), stat.st_size, stat.st_mtime_ns) for path, stat in files)


def warm(archive: Path) -> None:
    """Read everything once, so that no contestant has to read from a cold disk."""
    for path in transcripts(archive):
        with path.open("rb") as file:
            while file.read(1 << 20):
                pass


# Queries: `questions.py` and `usage.py`

SETTLING = 3
"""Seconds after which a newly written file is cached."""


def toolspan() -> Path:
    """Return the command installed beside this Python."""
    return Path(sys.executable).with_name("toolspan")


def query_parser(description: str, repeats: int) -> argparse.ArgumentParser:
    """Return a parser with the options that the benchmarks of queries share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--archive", type=Path, required=True, help="has expected-totals.json")
    parser.add_argument("--peers", type=Path, help="prefix given to peers.py; without it, no peers")
    parser.add_argument("--repeats", type=int, default=repeats, help=f"rounds (default {repeats})")
    parser.add_argument("--scratch", type=Path, help="scratch folder (default: a temporary one)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds per run")
    parser.add_argument("--json", type=Path, help="write all numbers there")
    parser.add_argument("--enforce", action="store_true", help="exit 1 when a target is missed")
    return parser


@contextmanager
def query_bench(arguments: argparse.Namespace, targets: list[Target]) -> Iterator[Bench]:
    """Yield a bench on a warm archive; afterwards, add the target that the archive was not changed."""
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        bench = Bench(
            archive=arguments.archive.resolve(),
            peers=arguments.peers.resolve() if arguments.peers else None,
            scratch=Path(scratch),
            offline=network_cutter(),
            timeout=arguments.timeout,
        )
        time.sleep(SETTLING)
        before = fingerprint(bench.archive)
        warm(bench.archive)
        yield bench
        same = fingerprint(bench.archive) == before
        targets.append(Target("archive untouched", "same files", "same" if same else "changed", same))


def print_queries(
    arguments: argparse.Namespace, archive: Mapping[str, int], rows: Sequence[Row], targets: Sequence[Target],
    more: Iterable[str] = (),
) -> int:  # fmt: skip
    """Print all tables, write the numbers, and return 1 with --enforce if a target is missed."""
    here = f"{machine()}, load {os.getloadavg()[0]:.1f}"
    print(f"{here}\n\nArchive: {archive['files']} files, {archive['bytes'] / 1e6:.0f} MB, warm\n")
    print("\n".join([*measured_table(rows), "", *target_table(targets), "", *more]))
    write_json({"machine": here, **numbers_json(rows, targets)}, arguments.json)
    return int(arguments.enforce and missed(targets))


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ", ".join(contestant.name for contestant in CONTESTANTS)
    parser.add_argument("--archive", type=Path, help="directory with expected-totals.json")
    parser.add_argument("--peers", type=Path, help="prefix given to peers.py; without it, no peers")
    parser.add_argument("--only", help=f"names, separated by commas: {names}")
    parser.add_argument("--skip-slow", action="store_true", help="leave out claude-code-log")
    parser.add_argument("--repeats", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--giant-file", type=Path, help="a transcript of 1 GB")
    parser.add_argument("--giant-line", type=Path, help="a transcript with one huge line")
    parser.add_argument("--scratch", type=Path, help="scratch folder (default: a temporary one)")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds per run")
    parser.add_argument("--json", type=Path, help="write all numbers there")
    parser.add_argument("--enforce", action="store_true", help="exit 1 when a target is missed")
    arguments = parser.parse_args()
    if not (arguments.archive or arguments.giant_file or arguments.giant_line):
        parser.error("nothing to do; use --archive, --giant-file or --giant-line")
    if arguments.only:
        unknown = set(arguments.only.split(",")) - {contestant.name for contestant in CONTESTANTS}
        if unknown:
            parser.error(f"--only: unknown contestants ({names} are available): {', '.join(sorted(unknown))}")
    return arguments


def choose(arguments: argparse.Namespace) -> list[Contestant]:
    """Return the selected contestants."""
    only = set(arguments.only.split(",")) if arguments.only else None
    return [
        contestant
        for contestant in CONTESTANTS
        if (only is None or contestant.name in only)
        and not (contestant.peer and arguments.peers is None and only is None)
        and not (arguments.skip_slow and contestant.peer is CLAUDE_CODE_LOG)
    ]


def run_archive(arguments: argparse.Namespace, bench: Bench) -> tuple[list[Row], list[Target], Mapping[str, object]]:
    """Run everything about the archive."""
    totals = json.loads((bench.archive / "expected-totals.json").read_bytes())
    expected = totals["claude"]
    before = fingerprint(bench.archive)
    warm(bench.archive)
    rows = run_all(choose(arguments), bench, arguments.repeats)
    targets = archive_targets({row.name: row for row in rows}, expected)
    if fingerprint(bench.archive) != before:
        targets.append(Target("archive untouched", "same files", "changed", met=False))
    return rows, targets, expected


def main() -> int:
    """Measure, print the results, and return 1 if a target is missed."""
    arguments = parse_arguments()
    targets: list[Target] = []
    rows: list[Row] = []
    lines: list[str] = []
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        bench = Bench(
            archive=(arguments.archive or Path()).resolve(),
            peers=arguments.peers.resolve() if arguments.peers else None,
            scratch=Path(scratch),
            offline=network_cutter(),
            timeout=arguments.timeout,
        )
        network = "disabled for all" if bench.offline else "NOT disabled (unshare is not permitted)"
        lines += [f"{machine()}; network {network}", ""]
        if arguments.archive:
            rows, targets, expected = run_archive(arguments, bench)
            size, files = expected["bytes"], expected["files"]
            lines += [f"Archive: {files} files, {int(str(size)) / MB:.0f} MB, warm cache", ""]
            lines += [*measured_table(rows), ""]
            if any(row.ran for row in rows if row.name in OURS):
                lines += [*ratio_table(rows), ""]
            lines += [*answer_table(rows, expected), ""]
            if (bench.archive / "claude" / "stream-json").exists():
                lines += ["The peers do not read `stream-json/`, so their totals lack it.", ""]
        for kind, path in (("file", arguments.giant_file), ("line", arguments.giant_line)):
            if path:
                giants, target = run_giant(kind, path, bench)
                lines += [*measured_table(giants), ""]
                rows += giants
                targets.append(target)
    lines += target_table(targets)
    print("\n".join(lines))
    numbers = {"machine": machine(), "network": network, **numbers_json(rows, targets)}
    write_json(numbers, arguments.json)
    return int(arguments.enforce and missed(targets))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], Path(sys.argv[3]))
    else:
        sys.exit(main())
