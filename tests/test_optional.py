"""A test module that needs a package of `make test-all` is left out where that package is missing."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.optional import MODULES, OPTIONAL

TESTS = Path(__file__).parent
PACKAGES = {name.partition(".")[0] for name in (*OPTIONAL, "nbformat")}
"""nbformat comes with nbclient."""
ELSEWHERE = {"opentelemetry.trace"}  # part of a package that toolspan needs


def imported_at_once(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    return {name for name in names - ELSEWHERE if name.partition(".")[0] in PACKAGES}


def test_modules_that_import_an_optional_package_are_listed() -> None:
    listed = [TESTS / name for name in MODULES]
    found = [path for path in TESTS.rglob("test_*.py") if imported_at_once(path)]

    assert [path for path in listed if not path.exists()] == []
    assert [path for path in found if not any(path.is_relative_to(name) for name in listed)] == []
    assert TESTS / "tables/test_tables_page.py" in found
