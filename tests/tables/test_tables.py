"""`toolspan tables`: the same tables from any order of files, and the same answers as from the transcripts."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import ClassVar

import duckdb
import fsspec
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

import toolspan
from tests.cli.command import one_row, run
from tests.reading.test_lineage import VERSIONS, Archive, Kinds
from tests.tables.datasets import QUESTIONS, listed_bytes, table_bytes, write_archive, write_edits
from toolspan.errors import SourceError, ToolspanError
from toolspan.formats import zstd
from toolspan.formats.source import BytesSource, load_source, source_for_path
from toolspan.reading.rows import CallRow
from toolspan.redaction.redact import SecretRedactor
from toolspan.tables import SCHEMA_VERSION, TABLES, Dataset, write_tables
from toolspan.tables.dataset import ROW_GROUP_SIZE
from toolspan.tables.schema import PARTITION_COLUMNS
from toolspan.testing import TranscriptBuilder, claude_results

Sessions = st.lists(
    st.tuples(
        Kinds,
        st.sampled_from(VERSIONS),
        st.lists(st.sampled_from(["succeeded", "failed", "open"]), max_size=3),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=4,
)


def select(out: Path, query: str) -> list[tuple[object, ...]]:
    for table in TABLES:
        query = query.replace(f"{{{table}}}", f"read_parquet({Dataset(out).files(table)!r}, hive_partitioning = true)")
    return duckdb.connect().execute(query).fetchall()


def answers(*words: str | Path) -> dict[str, str]:
    questions = {name: run(name, *words, "--json").stdout for name in QUESTIONS}
    filters = ("--since", "2026-11-02T10:30:00Z")
    return questions | {f"{name} since": run(name, *words, *filters, "--json").stdout for name in ("errors", "time")}


@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(Sessions, st.integers(0, 2**16))
@example([("fork", "2.1.325", [], 2)], 0)  # removes a file that linked two others
def test_tables_do_not_depend_on_order_or_history_and_answer_as_transcripts_do(
    sessions: list[tuple[str, str, list[str], int]], seed: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, once, grown = (Path(name) / part for part in ("archive", "once", "grown"))
        folder.mkdir()
        archive = Archive(folder)
        for kind, version, fates, agents in sessions:
            archive.add(kind, version, fates, agents)
        files = sorted(str(path) for path in folder.rglob("*.jsonl"))
        assume(files)
        random.Random(seed).shuffle(files)

        write_tables([folder], once, jobs=1)
        for count in (len(files) // 2, len(files)):
            write_tables(files[:count], grown, jobs=1)
        assert table_bytes(once) == table_bytes(grown)
        assert answers("--tables", once) == answers(folder)

        Path(files[0]).unlink()
        write_tables(files[1:], grown, jobs=1)
        write_tables([folder], Path(name) / "fresh", jobs=1)
        assert table_bytes(grown) == table_bytes(Path(name) / "fresh")


def test_number_of_processes_changes_nothing_and_sums_equal_the_commands(tmp_path: Path) -> None:
    folder = write_archive(tmp_path / "archive", sessions=2)
    run("tables", folder, "-o", tmp_path / "one", "--jobs", "1")
    report = one_row(run("tables", folder, "-o", tmp_path / "three", "--jobs", "3", "--json"))

    assert table_bytes(tmp_path / "one") == table_bytes(tmp_path / "three")
    assert report["unreadable"] == 2
    stats = one_row(run("stats", folder, "--json"))
    ((calls, tokens),) = select(
        tmp_path / "one",
        "SELECT (SELECT count(*) FROM {calls} WHERE state <> 'orphan_result'), "
        "(SELECT sum(input_tokens + output_tokens) FROM {requests})",
    )
    assert (calls, tokens) == (stats["calls"], stats["tokens"]["input_tokens"] + stats["tokens"]["output_tokens"])
    usage = [json.loads(line) for line in run("usage", folder, "--json").stdout.splitlines()]
    ((cost, requests),) = select(tmp_path / "one", "SELECT sum(cost_usd), count(*) FROM {requests}")
    assert requests == sum(row["requests"] for row in usage)
    assert cost == pytest.approx(sum(row["cost_usd"] or 0 for row in usage))


def test_large_partition_has_the_same_row_groups_from_one_run_and_from_two(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    for number in (3, 0, 4, 1, 2):
        builder = TranscriptBuilder(session_id=f"{number:08}-3333-4000-8000-000000000000").prompt("go")
        for call in range(ROW_GROUP_SIZE // 3):
            builder.result(
                builder.call("Bash", {"command": "true"}, id=f"toolu_{number}_{call}"), claude_results.failed("boom")
            )
        builder.write(folder / f"{builder.session_id}.jsonl")
    paths = sorted(folder.iterdir())
    write_tables([folder], tmp_path / "one", jobs=2)
    write_tables([paths[0], paths[3]], tmp_path / "two", jobs=1)
    write_tables([folder], tmp_path / "two", jobs=1)

    assert listed_bytes(tmp_path / "one") == listed_bytes(tmp_path / "two")
    (path,) = Dataset(tmp_path / "one").files("calls")
    file = pq.ParquetFile(path)
    lengths = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert lengths == [ROW_GROUP_SIZE // 3 * 3, ROW_GROUP_SIZE // 3 * 2]
    places = file.read(["file", "position"]).to_pylist()
    assert places == sorted(places, key=lambda row: (row["file"], row["position"]))


@pytest.mark.parametrize("name", ["sample", "generated"])
def test_answers_about_sessions_of_all_clients_are_the_same(name: str, tmp_path: Path) -> None:
    folder = toolspan.sample.archive() if name == "sample" else write_archive(tmp_path / "archive")
    write_tables([folder], tmp_path / "out", jobs=1)

    assert answers("--tables", tmp_path / "out") == answers(folder)


def test_answer_of_a_real_process_prints_nothing_else(tmp_path: Path) -> None:
    write_edits(tmp_path / "archive", "00000000-2222-4000-8000-000000000000")
    write_tables([tmp_path / "archive"], tmp_path / "out", jobs=1)

    program = [sys.executable, "-m", "toolspan", "stats", "--tables", str(tmp_path / "out"), "--json"]
    result = subprocess.run(program, capture_output=True, text=True, check=True)

    assert (result.stdout, result.stderr) == (run("stats", tmp_path / "archive", "--json").stdout, "")


def test_unreadable_file_is_a_row_in_findings(tmp_path: Path) -> None:
    folder = write_archive(tmp_path / "archive")
    write_tables([folder], tmp_path / "out", jobs=1)

    findings = select(tmp_path / "out", "SELECT file, code FROM {findings} WHERE severity = 'error' ORDER BY file")

    assert findings == [(f"{folder}/broken.jsonl.zst", "unreadable"), (f"{folder}/other.jsonl", "no_transcript")]
    assert run("stats", "--tables", tmp_path / "out").stderr == run("stats", folder).stderr != ""


def test_place_of_each_call_contains_it(tmp_path: Path) -> None:
    folder = write_archive(tmp_path / "archive")
    (folder / "broken.jsonl.zst").unlink()
    write_tables([folder], tmp_path / "out", jobs=1)

    places = select(tmp_path / "out", "SELECT file, coalesce(request_bytes, result_bytes), id FROM {calls}")

    assert len(places) == sum(1 for _ in toolspan.history(folder).spans)
    for file, place, call in places:
        assert str(call).encode() in source_for_path(Path(str(file))).read(**place)  # type: ignore[arg-type]


def test_second_run_reads_new_files_and_writes_their_partitions(tmp_path: Path) -> None:
    folder, out = write_archive(tmp_path / "archive"), tmp_path / "out"
    write_tables([folder], out, jobs=1)
    before = {path: path.stat().st_ino for path in out.rglob("*.parquet")}

    assert write_tables([folder], out, jobs=1).read == 0
    new = write_edits(folder, "99999999-2222-4000-8000-000000000000")
    new.write_bytes(new.read_bytes().replace(b"2026-11-02", b"2031-11-02"))
    report = write_tables([folder], out, jobs=1)
    unchanged = {path for path in before if path.exists() and path.stat().st_ino == before[path]}

    assert (report.read, report.bytes_read) == (1, new.stat().st_size)
    assert unchanged == before.keys()
    assert report.partitions_written == len(listed_bytes(out)) - len(before) > 0
    assert table_bytes(out) == listed_bytes(out)


def test_equal_ids_of_subagents_link_only_to_files_that_name_them_as_session(tmp_path: Path) -> None:
    folder, out, agent_id = tmp_path / "archive", tmp_path / "out", "a0123456789abcdef"

    def write(session: str, day: str, **replaced: str) -> None:
        builder = TranscriptBuilder(session_id=session).prompt(f"go {session}")
        call = builder.call("Task", {"prompt": "look"}, id=f"task-{session}")
        agent = builder.agent(call).prompt("look")
        agent.result(agent.call("Read", {"file_path": "/w/a"}, id=f"read-{session}"), claude_results.failed("no"))
        builder.until(agent).result(call, claude_results.failed("no"))
        for name, data in builder.files(session).items():
            text = data.decode().replace("2026-11-02", day).replace(agent.agent_id, replaced.get("agent", agent_id))
            is_nested = "nested_in" in replaced
            if is_nested and "agent" not in name:
                continue
            path = folder / name.replace(agent.agent_id, replaced.get("agent", agent_id))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace(f'"{session}"', f'"{replaced["nested_in"]}"') if is_nested else text)

    write("11111111-2222-4000-8000-000000000000", "2026-11-02")
    first = write_tables([folder], out, jobs=1)
    write("22222222-2222-4000-8000-000000000000", "2031-11-02")
    second = write_tables([folder], out, jobs=1)
    assert second.partitions_written == second.partitions - first.partitions

    write("33333333-2222-4000-8000-000000000000", "2032-11-02", agent="afedcba9876543210", nested_in=agent_id)
    third = write_tables([folder], out, jobs=1)
    write_tables([folder], tmp_path / "fresh", jobs=1)
    assert table_bytes(out) == table_bytes(tmp_path / "fresh")
    assert third.partitions_written > third.partitions - second.partitions
    assert answers("--tables", out) == answers(folder)


def run_unprivileged(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command to which permissions apply, even if the tests run as root."""
    drop = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    program = [*drop, sys.executable, "-m", "toolspan", *map(str, words)]
    return subprocess.run(program, capture_output=True, text=True, check=False)


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="permissions do not apply to root")
def test_rows_of_a_folder_that_cannot_be_listed_are_kept(tmp_path: Path) -> None:
    folder, closed, out = tmp_path / "archive", tmp_path / "archive" / "closed", tmp_path / "out"
    write_archive(folder)
    hidden = write_edits(closed / "inner", "88888888-2222-4000-8000-000000000000")
    write_tables([folder], out, jobs=1)
    before = table_bytes(out)
    write_edits(folder, "99999999-2222-4000-8000-000000000000")
    words = ("tables", folder, "-o", out, "--jobs", "1", "--json")
    closed.chmod(0)
    try:
        done = run_unprivileged(*words)
        again = run_unprivileged(*words)
        rebuilt = run_unprivileged(*words, "--content")
    finally:
        closed.chmod(0o700)

    problem = f"{closed}: Permission denied; changes there are not in the tables"
    report = json.loads(done.stdout)
    assert (report["read"], report["removed"], report["unreadable"], report["unlisted"]) == (1, 0, 2, [problem])
    assert problem in done.stderr
    assert json.loads(again.stdout)["partitions_written"] == 0
    assert (rebuilt.returncode, "make the folder readable" in rebuilt.stderr) == (2, True)
    assert select(out, f"SELECT count(*) FROM {{calls}} WHERE file = '{hidden}'") == [(3,)]
    assert select(out, f"SELECT explanation FROM {{findings}} WHERE file = '{closed}'") == [(problem,)]
    assert problem in run("stats", "--tables", out).stderr
    assert write_tables([folder], out, jobs=1).removed == 0
    write_tables([folder], tmp_path / "fresh", jobs=1)
    assert before != table_bytes(out) == table_bytes(tmp_path / "fresh")


class ClosedPrefixStore(MemoryFileSystem):  # type: ignore[misc]
    """A store that refuses to list a prefix."""

    protocol = "closedprefix"
    store: ClassVar[dict[str, object]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    is_closed = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(MemoryFileSystem._strip_protocol(path.replace("closedprefix://", "memory://")))

    def ls(self, path: str, *, detail: bool = True, **options: object) -> list[object]:
        if self.is_closed and path.endswith("closed"):
            raise PermissionError("Forbidden")
        return list(super().ls(path, detail=detail, **options))


def test_prefix_that_a_store_does_not_list_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.register_implementation("closedprefix", ClosedPrefixStore, clobber=True)
    write_edits(tmp_path / "archive" / "closed", "88888888-2222-4000-8000-000000000000")
    write_edits(tmp_path / "archive", "99999999-2222-4000-8000-000000000000")
    ClosedPrefixStore().put(str(tmp_path / "archive"), "/bucket", recursive=True)
    write_tables(["closedprefix://bucket"], tmp_path / "out", jobs=1)
    before = listed_bytes(tmp_path / "out")
    monkeypatch.setattr(ClosedPrefixStore, "is_closed", True)

    with pytest.raises(SourceError, match="closedprefix://bucket/closed: access denied"):
        write_tables(["closedprefix://bucket"], tmp_path / "out", jobs=1)

    assert listed_bytes(tmp_path / "out") == before


def test_content_and_redaction_are_off_unless_asked_for(tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "aB3dE5fG7h" * 9
    write_edits(tmp_path / "archive", "00000000-2222-4000-8000-000000000000", key=key)
    query = "SELECT input, result FROM {calls} WHERE input IS NOT NULL OR result IS NOT NULL ORDER BY position"
    out = tmp_path / "out"

    run("tables", tmp_path / "archive", "-o", out)
    assert select(out, query) == []
    assert "--content" in run("prompts", "--tables", out, code=2).output
    run("tables", tmp_path / "archive", "-o", out, "--content")
    first, *_, last = select(out, query)
    assert json.loads(str(first[0]))["file_path"] == "/w/a.py"
    assert key in str(last[0])
    run("tables", tmp_path / "archive", "-o", out, "--content", "--redact")
    redacted = str(select(out, query)) + str(select(out, "SELECT target, message FROM {calls}"))
    assert "/w/a.py" in redacted
    assert not any(key.encode() in path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert key not in redacted
    prompts = run("prompts", "--tables", out, "--json").stdout + run("denials", "--tables", out, "--json").stdout
    assert "Fix it" in prompts
    assert key not in prompts


def test_files_have_the_documented_columns_and_version(tmp_path: Path) -> None:
    folder = write_archive(tmp_path / "archive")
    write_tables([folder], tmp_path / "out", jobs=1)

    for table, columns in TABLES.items():
        schema = pq.read_schema(Dataset(tmp_path / "out").files(table)[0])
        assert schema.names == [column.name for column in columns]
        assert schema.metadata[b"toolspan.schema_version"] == str(SCHEMA_VERSION).encode()
    assert {*CallRow.__struct_fields__} <= {column.name for column in (*TABLES["calls"], *PARTITION_COLUMNS)}
    days = {part.name for part in (tmp_path / "out" / "findings").glob("*/*")}
    assert "day=unknown" in days


def test_wrong_folders_and_names_are_explained(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").touch()
    write_edits(tmp_path / "archive", "00000000-2222-4000-8000-000000000000")

    assert "no tables there" in run("errors", "--tables", tmp_path / "none", code=2).output
    assert "is not empty" in run("tables", tmp_path / "archive", "-o", tmp_path / "full", code=2).output
    assert "to a folder" in run("tables", tmp_path / "archive", "-o", "s3://bucket/tables", code=2).output
    assert "no such file" in run("tables", tmp_path / "gone", "-o", tmp_path / "out", code=2).output
    run("tables", tmp_path / "archive", "-o", tmp_path / "out")
    assert "use filters" in run("errors", tmp_path / "archive", "--tables", tmp_path / "out", code=2).output
    with pytest.raises(ToolspanError, match="needs the transcripts"):
        toolspan.Archive.from_tables(tmp_path / "out").search("a.py")
    with pytest.raises(ToolspanError, match="no table"):
        Dataset(tmp_path / "out").files("call")


def test_texts_outside_the_content_are_redacted_too(tmp_path: Path) -> None:
    key = "ghp_" + "aB3dE5fG7h1K" * 3
    write_edits(tmp_path / "archive", "00000000-2222-4000-8000-000000000000", key=key)

    write_tables([tmp_path / "archive"], tmp_path / "out", jobs=1, redactor=SecretRedactor)

    assert all(key not in run(name, "--tables", tmp_path / "out", "--json").stdout for name in QUESTIONS)
    assert key in run("errors", tmp_path / "archive", "--json").stdout


def test_tables_of_objects_answer_as_the_objects_do(tmp_path: Path) -> None:
    store = MemoryFileSystem()
    store.put(str(write_archive(tmp_path / "archive")), "/tables-test", recursive=True)
    try:
        report = write_tables(["memory://tables-test"], tmp_path / "out", jobs=1)
        assert write_tables(["memory://tables-test"], tmp_path / "out", jobs=1).read == 0
        assert answers("--tables", tmp_path / "out") == answers("memory://tables-test")
        store.rm("/tables-test/broken.jsonl.zst")
        assert write_tables(["memory://tables-test"], tmp_path / "out", jobs=1).removed == 1
    finally:
        store.rm("/tables-test", recursive=True)
    assert report.unreadable == 2


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("pyarrow", ("tables", "ARCHIVE", "-o", "new"), "[tables]'"),
        ("ray", ("tables", "ARCHIVE", "-o", "new", "--engine", "ray"), "[ray]'"),
        ("duckdb", ("errors", "--tables", "OUT"), "[tables]'"),
    ],
)
def test_missing_library_is_reported_with_its_extra(
    module: str, arguments: tuple[str, ...], extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_edits(tmp_path / "archive", "00000000-2222-4000-8000-000000000000")
    write_tables([tmp_path / "archive"], tmp_path / "out", jobs=1)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)

    assert (
        extra in run(*(argument.lower() if argument.isupper() else argument for argument in arguments), code=2).output
    )


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_small_source_is_read_once_and_a_large_or_damaged_one_when_needed(tmp_path: Path, suffix: str) -> None:
    lines = b"".join(b'{"line": %d}\n' % number for number in range(5_000))
    data = {"": lines, ".gz": gzip.compress(lines), ".zst": zstd.compress(lines)}[suffix]
    path, damaged = tmp_path / f"a.jsonl{suffix}", tmp_path / f"b.jsonl{suffix}"
    path.write_bytes(data)
    damaged.write_bytes(data[:-20])

    loaded = load_source(path, len(lines))
    assert isinstance(loaded, BytesSource)
    assert (loaded.name, loaded.data) == (str(path), lines)
    assert not isinstance(load_source(path, len(lines) - 1), BytesSource)
    assert isinstance(load_source(damaged, len(lines)), BytesSource) is (suffix == "")
