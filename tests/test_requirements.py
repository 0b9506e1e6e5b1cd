"""Each observed behaviour has a test, and each requirement that a test names is listed."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent
FIELDS = {"id", "sentence", "source", "divergence"}
ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*(\.[a-z0-9]+(-[a-z0-9]+)*)+")
SOURCE = re.compile(r"observed \d+\.\d+\.\d+|documented|choice")


class Claim(NamedTuple):
    """A test's decorator that names a requirement."""

    id: str | None
    """None when it is not a literal."""
    place: str


def requirements() -> list[dict[str, str]]:
    text = (TESTS / "requirements.toml").read_text(encoding="utf-8")
    listed: list[dict[str, str]] = tomllib.loads(text)["requirement"]
    return listed


def claims_in(path: Path) -> Iterator[Claim]:
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[:5] == "test_":
            for decorator in node.decorator_list:
                place = f"{path.relative_to(TESTS)}:{decorator.lineno}"
                match decorator:
                    case ast.Call(func=ast.Name(id="requirement"), args=[ast.Constant(value=str(named))]):
                        yield Claim(named, place)
                    case ast.Call(func=ast.Name(id="requirement")):
                        yield Claim(None, place)
                    case _:
                        pass


@cache
def claims() -> list[Claim]:
    return [claim for path in sorted(TESTS.rglob("test_*.py")) for claim in claims_in(path)]


def test_every_requirement_has_a_test() -> None:
    claimed = {claim.id for claim in claims()}

    assert [entry["id"] for entry in requirements() if entry["id"] not in claimed] == []


def test_every_requirement_a_test_names_exists() -> None:
    listed = {entry["id"] for entry in requirements()}

    assert [claim for claim in claims() if claim.id not in listed] == []


def test_no_requirement_is_written_twice() -> None:
    counted = Counter(entry["id"] for entry in requirements())

    assert [identifier for identifier, times in counted.items() if times > 1] == []


def test_every_requirement_is_well_formed() -> None:
    malformed = [
        entry
        for entry in requirements()
        if not entry.keys() <= FIELDS
        or not ID.fullmatch(entry.get("id", ""))
        or not entry.get("sentence", "").endswith(".")
        or not SOURCE.fullmatch(entry.get("source", ""))
        or not (entry["source"].startswith("observed") or entry.get("divergence"))
    ]

    assert malformed == []
