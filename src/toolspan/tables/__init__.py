"""Parquet datasets of transcripts: write them on one machine or on a Ray cluster, and query them."""

from toolspan.tables.dataset import Dataset, Manifest, Partition
from toolspan.tables.pipeline import TablesReport, write_tables
from toolspan.tables.schema import SCHEMA_VERSION, TABLES, Column

__all__ = ["SCHEMA_VERSION", "TABLES", "Column", "Dataset", "Manifest", "Partition", "TablesReport", "write_tables"]
