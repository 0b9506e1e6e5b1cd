"""Every command agrees on calls, sessions, times and tokens, however files copy from each other."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import toolspan
from tests.cli.command import one_row, rows, run
from toolspan.archive.session import find_copies
from toolspan.reading.rows import CallRow
from toolspan.tables import write_tables
from toolspan.testing import TranscriptBuilder, claude_results
from toolspan.types.session import Tokens
from toolspan.types.span import parse_timestamp
from toolspan.web.timeline import SessionTimeline

NO_CACHE = {"TOOLSPAN_NO_CACHE": "1"}
START = datetime(2026, 11, 2, 9, tzinfo=UTC)
VERSIONS = ("2.1.325", "2.1.80", "2.0.65", "1.0.60")
OTHER_PROGRAM = (
    b'{"event":"begin","version":3,"id":"x","timestamp":"2026-11-02T09:00:00Z","cwd":"/w"}\n'
    b'{"event":"answer","id":"1","parent":null,"body":{"role":"toolResult","content":[]}}\n'
)
TIMESTAMP = re.compile(rb'"timestamp":"[^"]*"')

Kinds = st.sampled_from(["fork", "resume", "compact", "aside", "restamp", "lost_main", "nameless", "twin", "plain"])
FATES = ("succeeded", "failed", "open", "wrote", "nothing", "denied", "timed_out", "orphan")


class Archive:
    """A folder of generated sessions, forks, resumes, subagents and other files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0

    def add(self, kind: str, version: str, fates: list[str], agents: int) -> None:
        """Write a session with calls of these fates, and a second file that copies from it."""
        self._count += 1
        name = f"{self._count:08x}-0000-4000-8000-000000000000"
        builder = self._story(name, version, fates, agents)
        path = builder.write(self.folder / f"{name}.jsonl")
        copy_name = f"{self._count:08x}-1111-4000-8000-000000000000"
        copy = self.folder / f"{copy_name}.jsonl"
        match kind:
            case "fork":
                twin = builder.fork(copy_name)
                self._add_call(twin, f"{self._count}-fork", "succeeded")
                copy.write_bytes(twin.data())
            case "resume":
                later = TranscriptBuilder(session_id=copy_name, version=version, start=builder.now).prompt("more")
                self._add_call(later, f"{self._count}-more", "failed")
                copy.write_bytes(builder.data() + later.data())
            case "compact":
                builder.compact("short")
                self._add_call(builder, f"{self._count}-after", "failed")
                builder.write(path)
            case "aside":
                agent = builder.agent("gone", description="aside").prompt("by the way")
                for n, fate in enumerate(fates):
                    self._add_call(agent, f"{self._count}-{n}", fate)
                self._add_call(agent, f"{self._count}-aside", "failed")
                builder.write(path)
            case "restamp":
                stamped = TIMESTAMP.sub(b'"timestamp":"2026-11-05T00:00:00.000Z"', builder.data())
                copy.write_bytes(stamped.replace(name.encode(), copy_name.encode()))
            case "lost_main":
                path.unlink()
            case "nameless":
                path.write_bytes(b'{"type":"summary","summary":"Title","leafUuid":"x"}\n')
            case "twin":
                (self.folder / "backup").mkdir(exist_ok=True)
                builder.write(self.folder / "backup" / f"{name}.jsonl")
            case _:
                pass

    def _story(self, name: str, version: str, fates: list[str], agents: int) -> TranscriptBuilder:
        begin = START + timedelta(hours=self._count)
        builder = TranscriptBuilder(session_id=name, version=version, start=begin).prompt(f"go {name}")
        for n, fate in enumerate(fates):
            self._add_call(builder, f"{self._count}-{n}", fate)
        for n in range(agents):
            call = builder.call("Task", {"prompt": f"look {n}"}, id=f"{self._count}-task{n}", after_ms=100)
            agent = builder.agent(call).prompt(f"look {n}")
            self._add_call(agent, f"{self._count}-inner{n}", "succeeded")
            report = claude_results.reported(
                agent.agent_id, "r", prompt=f"look {n}", calls=1, took_ms=1, version=version
            )
            builder.until(agent).result(call, report, after_ms=100)
        return builder.text("done", after_ms=1_000)

    @staticmethod
    def _add_call(builder: TranscriptBuilder, name: str, fate: str) -> None:
        if fate == "wrote":
            file = {"file_path": f"/w/{name}.txt", "content": "one\ntwo\n"}
            call = builder.call("Write", file, id=name, after_ms=700)
            builder.result(call, claude_results.written(file["file_path"], file["content"]), after_ms=300)
            return
        call = builder.call("Bash", {"command": f"grep {name} x"}, id=name, after_ms=700)
        if fate == "succeeded":
            builder.result(call, claude_results.ran("x"), after_ms=300)
        elif fate == "failed":
            builder.result(call, claude_results.failed("boom"), after_ms=300)
        elif fate == "nothing":
            builder.result(call, claude_results.exited(1), after_ms=300)
        elif fate == "denied":
            builder.result(call, claude_results.rejected(), after_ms=300)
        elif fate == "timed_out":
            builder.result(call, claude_results.timed_out("2m 0s"), after_ms=300)
        elif fate == "orphan":
            builder.result(call, claude_results.ran("x"), after_ms=300)
            builder.result(f"{name}-gone", claude_results.failed("late"))


def sums(archive: toolspan.Archive, **period: Any) -> dict[str, dict[str, Any]]:
    """Return the totals that files and tables can give, by the question that answers with them."""
    sessions, stats, time = archive.sessions(**period), archive.stats(**period), archive.time(**period)
    errors, tools = archive.errors(**period), stats.tools or ()
    usage = {f"usage by {by}": archive.usage(by=by, **period) for by in ("day", "model", "session", "agent", "client")}
    timed = {row.id: row.calls + sum(agent.calls for agent in row.agents) for row in time.by_session}
    return {
        "calls": {
            "stats": stats.calls, "tools": sum(row.calls for row in tools), "time": time.calls,
            "sessions": sum(row.calls for row in sessions), "errors": errors.calls,
        },
        "unsuccessful": {
            "stats": stats.unsuccessful, "tools": sum(row.unsuccessful for row in tools),
            "sessions": sum(row.unsuccessful for row in sessions),
            "errors": sum(
                row.count - row.background for row in errors if row.kind not in ("orphan_result", "nothing_found")
            ),
        },
        "failed": {
            "stats": stats.states.get("failed", 0), "sessions": sum(row.states.get("failed", 0) for row in sessions),
            "errors": sum(row.states.get("failed", 0) for row in errors),
        },
        "found nothing": {
            "stats": stats.nothing_found, "errors": sum(row.count for row in errors if row.kind == "nothing_found"),
        },
        "sessions": {
            "sessions": len(sessions), "ids": len({row.id for row in sessions}), "stats": stats.sessions,
            "time": time.sessions,
        },
        "calls of each session": {
            "sessions": sorted((row.id, row.calls) for row in sessions if row.calls),
            "time": sorted((name, count) for name, count in timed.items() if count),
        },
        "duration": {"time": time.calls_ms, "stats": sum(row.total_ms for row in tools)},
        "tokens": {
            **{name: sum_fields(rows) for name, rows in usage.items()},
            "stats": sum_fields([stats.tokens]), "sessions": sum_fields(row.tokens for row in sessions),
        },
        "cost": {name: round(sum(row.cost_usd or 0 for row in rows), 8) for name, rows in usage.items()},
    }  # fmt: skip


def sum_fields(rows: Iterable[Any]) -> int:
    return sum(getattr(row, field) for row in rows for field in Tokens.__struct_fields__)


def sums_of_files(folder: Path, **period: Any) -> dict[str, dict[str, Any]]:
    """Return the totals of all questions."""
    archive = toolspan.Archive(folder)
    calls = [row for row in archive.calls(**period) if row.state != "orphan_result"]
    side = archive.compare(str(folder), str(folder), **period).a
    others: dict[str, dict[str, Any]] = {
        "calls": {"calls": len(calls), "compare": side.calls},
        "unsuccessful": {"calls": sum(row.is_unsuccessful for row in calls), "compare": side.unsuccessful},
        "failed": {"calls": sum(row.state == "failed" for row in calls)},
        "found nothing": {"calls": sum(row.error_kind == "nothing_found" for row in calls)},
        "sessions": {"compare": side.sessions},
        "calls of each session": {"calls": sorted(Counter(row.session for row in calls).items())},
        "duration": {"calls": sum(row.duration_ms or 0 for row in calls)},
        "tokens": {"compare": sum_fields([side.tokens])},
        "cost": {"compare": round(side.cost_usd or 0, 8)},
    }
    result = sums(archive, **period)
    return {name: {**result[name], **numbers} for name, numbers in others.items()}


def sums_of_sessions(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the numbers of each session, as it is listed and as it is shown."""
    archive = toolspan.Archive(folder)
    result = {}
    for row in archive.sessions():
        shown = archive.session(row.id)
        states = dict(Counter(call.state for call in shown.calls))
        result[row.id] = {
            "sessions": (sorted(row.states.items()), row.unsuccessful, row.tokens),
            "show": (sorted(states.items()), sum(row.is_unsuccessful for row in shown.calls), shown.tokens),
        }
    return result


def sums_of_overview(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the numbers of the overview, which covers all generated sessions, beside those of `stats`."""
    archive = toolspan.Archive(folder)
    stats, recent = archive.stats(), archive.overview().overview
    return {
        name: {"stats": getattr(stats, name), "overview": getattr(recent, name)}
        for name in ("calls", "unsuccessful", "nothing_found")
    }


def sums_of_tables(folder: Path, out: Path) -> dict[str, dict[str, Any]]:
    """Return the totals of tables beside those of the files."""
    write_tables([folder], out, jobs=1)
    files, tables = sums(toolspan.Archive(folder)), sums(toolspan.Archive.from_tables(out))
    return {name: {**files[name], **{f"{key} (tables)": n for key, n in tables[name].items()}} for name in files}


def sums_in_filter(folder: Path, *text: str) -> dict[str, dict[str, Any]]:
    """Return what the commands that take a filter on calls count in it."""

    def ask(*command: str | Path) -> list[dict[str, Any]]:
        return rows(run(*command, *text, "--json", env=NO_CACHE))

    if "--tool" in text and not any(
        row["tool"] == "Bash" for row in rows(run("calls", folder, "--json", env=NO_CACHE))
    ):
        return {}
    calls = [row for row in ask("calls", folder) if row["state"] != "orphan_result"]
    if not calls:
        return {}
    (stats,), (time,), (compared,) = ask("stats", folder), ask("time", folder), ask("compare", folder, folder)
    errors, changes = ask("errors", folder), ask("files", folder)
    side = compared["a"]
    failed = sum(row["state"] != "succeeded" and row["error_kind"] != "nothing_found" for row in calls)
    largest = max(errors, key=lambda row: row["count"], default=None)
    written = [row for row in calls if row["tool"] == "Write" and row["state"] == "succeeded"]
    usage = (
        [] if "--tool" in text else [ask("usage", folder, "--by", by) for by in ("day", "session", "model", "agent")]
    )
    return {
        "calls": {
            "calls": len(calls), "stats": stats["calls"], "time": time["calls"], "compare": side["calls"],
            "tools": sum(row["calls"] for row in stats["tools"]), "compared tools": sum(side["tools"].values()),
            "timed tools": sum(row["calls"] for row in time["tools"]),
        },
        "failed": {
            "calls": failed, "stats": stats["unsuccessful"], "compare": side["unsuccessful"],
            "errors": sum(row["count"] for row in errors if row["kind"] not in ("orphan_result", "nothing_found")),
            "kinds": sum(side["error_kinds"].values()),
        },
        "found nothing": {
            "stats": stats["nothing_found"], "calls": sum(row["error_kind"] == "nothing_found" for row in calls),
            "errors": sum(row["count"] for row in errors if row["kind"] == "nothing_found"),
        },
        "group": {} if largest is None else {
            "errors": largest["count"], "calls": len(ask("calls", folder, "--group", largest["id"])),
        },
        "changes": {
            "calls": len(written), "compare": sum(side["files"].values()),
            "files": sum(row["changes"] for row in changes),
        },
        "tokens": {
            "stats": sum(stats["tokens"].values()), "compare": sum(side["tokens"].values()),
            **{f"usage {n}": sum(row[field] for row in by for field in stats["tokens"]) for n, by in enumerate(usage)},
        } if usage else {},
        "requests": {
            "compare": side["requests"],
            **{f"usage {n}": sum(row["requests"] for row in by) for n, by in enumerate(usage)},
        } if usage else {},
    }  # fmt: skip


def sums_of_pages(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the numbers of each session in the list beside those of its page.

    A page also shows calls that a fork or a subagent copied, which the list counts once, and says so.
    """
    archive = toolspan.Archive(folder)
    costs = {row.session: row.cost_usd for row in archive.usage(by="session")}
    listed: defaultdict[str | None, list[CallRow]] = defaultdict(list)
    for call in archive.calls():
        if call.state != "orphan_result":
            listed[call.session].append(call)
    numbers: dict[str, dict[str, Any]] = {}
    for row in archive.sessions():
        timeline = json.loads(SessionTimeline((str(folder),), row.id).encode_changes(""))
        page, ids = timeline["session"], {*timeline["calls"]["id"]}
        start, end = (parse_timestamp(page[name] or "") for name in ("started_at", "ended_at"))
        calls = listed[row.id]
        shown = sum(count for state, count in page["calls"].items() if state != "orphan_result")
        numbers |= {
            f"{row.id} duration": {
                "list": row.duration_ms,
                "page": round((end - start).total_seconds() * 1000) if start and end else None,
            },
            f"{row.id} cost": {"list": row.cost_usd, "page": costs.get(row.id)},
            f"{row.id} calls": {
                "list": row.calls,
                "calls": len(calls),
                "page": sum(call.id in ids for call in calls),
                "chips": shown if shown == row.calls else shown - count_copies(archive, row.id),
            },
            f"{row.id} unsuccessful": {"list": row.unsuccessful, "calls": sum(row.is_unsuccessful for row in calls)},
        }
    return numbers


def count_copies(archive: toolspan.Archive, session: str) -> int:
    """Return the number of calls of a session that the list counts in others, as its page says."""
    return sum(copy.calls for copy in find_copies(archive.engine, session))


def disagreements(result: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: numbers for name, numbers in result.items() if len({str(n) for n in numbers.values()}) > 1}


FILTERS = (
    (), ("--since", "2026-11-02T10:00:02Z"), ("--until", "2026-11-02T11:00:01Z"), ("--tool", "Bash"),
    ("--since", "2026-11-02T10:00:01Z", "--until", "2026-11-02T11:00:02Z"), ("--tool", "Task", "--tool", "b*"),
    ("--tool", "bash", "--since", "2026-11-02T10:00:01Z"), ("--until", "2026-11-02T10:00:01.850Z"),
)  # fmt: skip
"""Some of the periods begin or end within a session, the last one within a call."""


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(Kinds, st.sampled_from(VERSIONS), st.lists(st.sampled_from(FATES), max_size=3), st.integers(0, 2)),
        min_size=1, max_size=4,
    ),
    st.booleans(), st.sampled_from(FILTERS),
)  # fmt: skip
@example([("plain", "2.1.325", ["wrote", "wrote"], 0)], False, FILTERS[-1])
@example([("aside", "2.1.80", ["succeeded", "failed"], 0)], False, ())
@example([("lost_main", "2.1.325", [], 2)], False, ())
def test_totals_of_all_questions_agree(
    sessions: list[tuple[str, str, list[str], int]], others: bool, text: tuple[str, ...]
) -> None:
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as out:
        archive = Archive(Path(name))
        for kind, version, fates, agents in sessions:
            archive.add(kind, version, fates, agents)
        if others:
            (archive.folder / "empty.jsonl").touch()
            (archive.folder / "other.jsonl").write_bytes(OTHER_PROGRAM)

        folder = archive.folder
        assert disagreements(sums_of_files(folder)) == {}
        if text:
            assert disagreements(sums_in_filter(folder, *text)) == {}
        else:  # between two sessions
            assert disagreements(sums_of_files(folder, since="2026-11-02T10:30:00Z")) == {}
        assert disagreements(sums_of_sessions(folder)) == {}
        assert disagreements(sums_of_pages(folder)) == {}
        if any(folder.rglob("*.jsonl")):
            assert disagreements(sums_of_overview(folder)) == {}
        assert disagreements(sums_of_tables(folder, Path(out))) == {}


def test_commands_agree_on_the_requests_of_a_subagent(tmp_path: Path) -> None:
    Archive(tmp_path).add("plain", "2.1.325", ["succeeded"], 1)
    (agent,) = {row["agent"] for row in rows(run("calls", tmp_path, "--json")) if row["agent"]}

    def ask(*command: str | Path) -> dict[str, Any]:
        return one_row(run(*command, "--agent", agent, "--json", env=NO_CACHE))

    usage, stats, compared = ask("usage", tmp_path), ask("stats", tmp_path), ask("compare", tmp_path, tmp_path)["a"]

    assert usage["requests"] == compared["requests"] > 0
    assert compared["tokens"] == stats["tokens"] == {name: usage[name] for name in stats["tokens"]}
    assert compared["calls"] == stats["calls"] == 1


def test_overview_and_sessions_count_the_same_sessions(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = home / "projects" / "-work"
    folder.mkdir(parents=True)
    archive = Archive(folder)
    archive.add("plain", "2.1.325", ["succeeded"], 0)
    archive.add("plain", "2.1.325", [], 0)  # a session without calls
    env = {"CLAUDE_CONFIG_DIR": str(home), "CODEX_HOME": str(tmp_path), "GEMINI_CLI_HOME": str(tmp_path), **NO_CACHE}

    overview = one_row(run("--json", env=env))
    listed = rows(run("sessions", "--since", overview["since"], "--json", env=env))

    assert overview["sessions"] == len(listed) == 2


@pytest.mark.parametrize("version", ["1.0.60", "2.1.325"])
def test_copy_with_equal_times_has_the_reported_duration_or_none(version: str, tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="a", version=version).prompt("go")
    builder.result(builder.call("Bash", {"command": "make"}, after_ms=700), claude_results.ran("x"), after_ms=9_000)
    result = claude_results.Body(content="a.py", structured={"filenames": ["a.py"], "durationMs": 12, "numFiles": 1})
    builder.result(builder.call("Glob", {"pattern": "*"}, after_ms=700), result, after_ms=300).text(
        "done", after_ms=700
    )
    path = tmp_path / "a.jsonl"
    path.write_bytes(TIMESTAMP.sub(b'"timestamp":"2026-11-05T00:00:00.000Z"', builder.data()))

    calls = {row["tool"]: row["duration_ms"] for row in rows(run("calls", path, "--json"))}
    time = one_row(run("time", tmp_path, "--json"))

    assert calls == {"Bash": None, "Glob": 12}
    assert (time["calls"], time["calls_ms"]) == (2, 12)


def test_session_with_only_subagents_spans_all_of_them(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.add("lost_main", "2.0.65", [], 2)

    (row,) = rows(run("sessions", tmp_path, "--json"))

    assert row["calls"] == 2
    files = [path.read_text(encoding="utf-8").splitlines() for path in tmp_path.glob("agent-*.jsonl")]
    stamps = sorted(json.loads(line)["timestamp"] for lines in files for line in lines)
    assert (row["started"], row["ended"]) == (stamps[0], stamps[-1])


@pytest.mark.parametrize("version", ["2.1.325", "2.0.65"])
def test_session_whose_main_file_does_not_name_it_is_listed_once(version: str, tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.add("nameless", version, [], 2)

    (row,) = rows(run("sessions", tmp_path, "--json"))
    exported = rows(run("export", tmp_path, "--format", "otlp"))
    spans = [span for request in exported for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]]

    assert (row["calls"], row["agents"]) == (2, 2)
    assert len({span["spanId"] for span in spans}) == len(spans)


def test_file_with_only_records_of_another_session_is_part_of_that_session(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.add("plain", "2.1.325", ["succeeded"], 0)
    (path,) = tmp_path.glob("*.jsonl")
    (tmp_path / "copy.jsonl").write_bytes(path.read_bytes())

    (row,) = rows(run("sessions", tmp_path, "--json"))

    assert (row["id"], row["calls"], len(row["files"])) == (path.stem, 1, 2)


@pytest.mark.parametrize("command", ["sessions", "stats", "calls", "time", "errors", "usage", "flows", "doctor"])
def test_files_of_other_programs_are_skipped_with_one_line(command: str, tmp_path: Path) -> None:
    Archive(tmp_path).add("plain", "2.1.325", ["succeeded"], 0)
    expected = run(command, tmp_path, "--json", env=NO_CACHE)
    for name in ("one", "two"):
        (tmp_path / f"{name}.jsonl").write_bytes(OTHER_PROGRAM)

    done = run(command, tmp_path, "--json", env=NO_CACHE)

    assert done.stdout == expected.stdout
    assert done.stderr.count("2 files skipped: they are not transcripts") == len(done.stderr.splitlines()) == 1


def test_doctor_reports_a_file_that_is_not_a_transcript(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_bytes(OTHER_PROGRAM)

    assert "not a transcript of a known client" in run("doctor", path, code=1).stdout


def test_last_session_has_the_latest_record_whatever_its_file_time(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.add("plain", "2.1.325", ["succeeded"], 0)
    archive.add("plain", "2.1.325", ["failed"], 0)
    old, new = sorted(tmp_path.glob("*.jsonl"))
    os.utime(new, (0, 0))

    (row,) = rows(run("calls", tmp_path, "--last", "--json"))

    assert (row["session"], row["state"]) == (new.stem, "failed")
    assert old.stem != new.stem
