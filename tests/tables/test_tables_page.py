"""The SQL on docs/tables.md runs in DuckDB and in Polars, with equal results, and the notebook runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import nbformat
import polars as pl
import pytest
from nbclient import NotebookClient

from tests.cli.command import CWD
from tests.tables.datasets import write_archive
from toolspan.tables import TABLES, write_tables

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    write_tables([write_archive(folder / "archive")], folder / "out", jobs=1)
    return folder / "out"


def in_duckdb(tables: Path, query: str) -> list[tuple[object, ...]]:
    connection = duckdb.connect()
    (view,) = re.findall(r"```text\n(CREATE VIEW .*?)```", PAGE, re.DOTALL)
    for table in TABLES:
        connection.execute(view.replace("calls", table).replace("'tables/", f"'{tables}/"))
    return connection.execute(query).fetchall()


def in_polars(tables: Path, query: str) -> list[tuple[object, ...]]:
    frames = {
        table: pl.scan_parquet(f"{tables}/{table}/**/*.parquet", hive_partitioning=True, try_parse_hive_dates=False)
        for table in TABLES
    }
    return pl.SQLContext(frames).execute(query, eager=True).rows()


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_question_has_the_same_answer_in_duckdb_and_polars(query: str, tables: Path) -> None:
    answer = in_duckdb(tables, query)

    assert answer
    assert in_polars(tables, query) == answer


def test_page_has_ten_questions() -> None:
    assert len(QUERIES) == 10


def test_notebook_plots_failures_cost_waits_and_servers(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "teams.json").write_text(json.dumps({CWD: "Shop"}), encoding="utf-8")
    monkeypatch.setenv("TABLES", str(tables))
    monkeypatch.setenv("TEAMS", str(tmp_path / "teams.json"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))

    notebook = nbformat.read(ROOT / "examples" / "fleet.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("print(json.dumps([failures, cost, waits, servers], default=str))"))
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()

    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 4
    failures, cost, waits, servers = json.loads(outputs[-1]["text"])
    assert ["2026-11-02", "Bash"] in [row[:2] for row in failures]
    assert {team for _, team, _ in cost} == {"Shop"}
    assert ["Bash", "known"] in [row[:2] for row in waits]
    assert [row[0] for row in servers] == ["shop"]
