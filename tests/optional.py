"""Packages that `make test-all` installs and `make test` does not. Tests that need one are skipped without it."""

from __future__ import annotations

from importlib.util import find_spec

OPTIONAL = (
    "acp", "anthropic", "dbos", "langchain_core", "langgraph", "moto", "nbclient", "openai", "opentelemetry.sdk",
    "polars", "pydantic_ai", "ray", "s3fs",
)  # fmt: skip
MODULES = {
    "export/test_otlp.py": ("opentelemetry.sdk",),
    "integrations/acp": ("acp",),
    "integrations/adapters": ("langgraph", "pydantic_ai"),
    "integrations/opentelemetry": ("opentelemetry.sdk",),
    "tables/test_tables_page.py": ("nbclient", "polars"),
    "testing/test_model_server.py": ("anthropic",),
}
"""Tests whose modules import such packages."""


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even its package
        return False


MISSING = [module for module in OPTIONAL if not _installed(module)]
