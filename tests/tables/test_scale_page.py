"""The SQL on docs/scale.md runs in DuckDB and in Polars, with equal results, and the notebook runs."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import polars as pl
import pytest

from tests.requirement import requirement
from tests.tables.datasets import write_archive
from toolspan.tables import TABLES, write_tables

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
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
    options = {"hive_partitioning": True, "try_parse_hive_dates": False}
    frames = {table: pl.scan_parquet(f"{tables}/{table}/**/*.parquet", **options) for table in TABLES}
    return pl.SQLContext(frames).execute(query, eager=True).rows()


@requirement("tables.sql")
@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_question_has_the_same_answer_in_duckdb_and_polars(query: str, tables: Path) -> None:
    answer = in_duckdb(tables, query)

    assert answer
    assert in_polars(tables, query) == answer


def test_page_has_ten_questions() -> None:
    assert len(QUERIES) == 10
