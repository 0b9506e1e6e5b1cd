"""Every statement of the documents that toolspan started from has a verdict and a proof.

The documents are not part of this repository. If they are in $SHARED/seeds, the rows of `statements.md` are compared
with their list of statements.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import os
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from toolspan.cli.app import COMMANDS

ROOT = Path(__file__).parents[2]
PAGE = Path(__file__).parent / "statements.md"
SEEDS = Path(os.environ.get("SHARED", ROOT.parent / "shared")) / "seeds"
VERDICTS = {"works", "reader accepts", "only under seed", "differs"}
SKIPPING_MARKS = {"skip", "slow", "xfail"}
"""Marks of tests that are not run every time, or expected to fail."""


class Statement(NamedTuple):
    """A row of the page about a statement of the documents."""

    id: str
    says: str
    verdict: str
    reason: str
    shown_by: str
    proofs: list[str]
    """Paths and names of tests, as pytest writes them."""


class Counterpart(NamedTuple):
    """A row of the page about names in the documents' code."""

    theirs: list[str]
    line: str


def read_rows(page: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the tables, without those of the headings."""
    lines = page.splitlines()
    for previous, line in pairwise(lines):
        if line.startswith("| ") and previous.startswith("|"):
            yield [cell.strip() for cell in line[1:-1].split(" | ")]


def read_statements(page: str) -> Iterator[Statement]:
    """Yield the statements of the page, wrong ones included."""
    for number, says, verdict, shown_by, proofs in (row for row in read_rows(page) if len(row) == 5):
        kind, _, reason = verdict.partition(": ")
        tests = [
            f"{os.path.relpath(PAGE.parent / path, ROOT)}::test_{name.replace(' ', '_')}"
            for name, path in re.findall(r"\[(.+?)\]\((.+?)\)", proofs)
        ]
        yield Statement(number, says, kind, reason, shown_by.strip("`"), tests)


TEXT = PAGE.read_text(encoding="utf-8")
STATEMENTS = list(read_statements(TEXT))
COUNTERPARTS = [
    Counterpart(re.findall("`(.+?)`", theirs), line.strip("`"))
    for theirs, _ours, line in (row for row in read_rows(TEXT) if len(row) == 3)
]

has_documents = pytest.mark.skipif(not SEEDS.is_dir(), reason="needs the documents in $SHARED/seeds")


def test_every_statement_has_its_row_and_every_row_its_statement() -> None:
    lines = (SEEDS / "statements.tsv").read_text(encoding="utf-8").splitlines()[1:]
    stated = [line.partition("\t")[0] for line in lines]

    assert [statement.id for statement in STATEMENTS] == stated


def test_every_row_is_complete() -> None:
    rows = [line for line in TEXT.splitlines() if re.match(r"\| S\d", line)]
    broken = [
        statement
        for statement in STATEMENTS
        if not all((statement.id, statement.says, statement.shown_by, statement.proofs))
        or statement.verdict not in VERDICTS
        or bool(statement.reason) == (statement.verdict == "works")
    ]

    assert broken == []
    assert len(rows) == len(STATEMENTS) > 300


def test_no_statement_has_two_rows() -> None:
    counts = Counter(statement.id for statement in STATEMENTS)

    assert [id for id, count in counts.items() if count > 1] == []


def run_every_time(path: Path) -> Counter[str]:
    """Return the tests of a file that are run every time."""
    result: Counter[str] = Counter()
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = {
                inner.attr
                for decorator in node.decorator_list
                for inner in ast.walk(decorator)
                if isinstance(inner, ast.Attribute)
            }
            result[node.name] += not marks & SKIPPING_MARKS
    return result


def test_every_proof_is_a_test_that_is_run(request: pytest.FixtureRequest) -> None:
    proofs = {proof for statement in STATEMENTS for proof in statement.proofs}
    files = {proof.partition("::")[0] for proof in proofs}
    known = {file: run_every_time(ROOT / file) for file in files if (ROOT / file).is_file()}
    collected = {item.nodeid.partition("[")[0] for item in request.session.items}
    chosen = request.config.getoption("keyword") or any("::" in a for a in request.config.args)
    whole = set() if chosen else {node.partition("::")[0] for node in collected}

    wrong = []
    for proof in sorted(proofs):
        file, _, name = proof.partition("::")
        exists = re.fullmatch(r"(tests|lab)/.*test_\w+\.py", file) and file in known
        if not exists or not name.startswith("test_") or known[file][name] != 1:
            wrong.append(proof)
        elif file in whole and proof not in collected:
            wrong.append(f"{proof} (not collected)")

    assert wrong == []


def resolved(name: str) -> object:
    """Return the object with a dotted name.

    Raises:
        AttributeError: there is no such object.
    """
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            result: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            result = getattr(result, part)
        return result
    raise AttributeError(name)


def is_shown(show: str) -> bool:
    """Return whether a command or function of that name exists and takes these options."""
    if show.startswith("toolspan."):
        try:
            return resolved(show.partition("(")[0]) is not None
        except AttributeError:
            return False
    program, command, *text = show.split()
    if program != "toolspan" or command not in COMMANDS:
        return False
    shown = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    section = shown.partition(f"\n## {command}\n")[2].partition("\n## ")[0]
    return all(word in section for word in text if word.startswith("--"))


def test_command_or_function_of_every_row_exists() -> None:
    assert [item[:5] for item in STATEMENTS if not is_shown(item.shown_by)] == []


@has_documents
def test_every_function_of_the_documents_has_a_counterpart() -> None:
    third, fourth = (next(SEEDS.glob(f"{number}_*.txt")).read_text(encoding="utf-8") for number in ("003", "004"))
    code = "".join(re.findall(r"```javascript\n(.*?)```", third, re.DOTALL))
    named = set(re.findall(r"(?:class|function) (\w+)", code))
    named |= set(re.findall(r"^  (\w+)\(.*\) \{$", code, re.MULTILINE))
    named |= set(re.findall(r"await (\w+)\(", code))
    quoted = " ".join(re.findall(r"`([^`]+)`", fourth))
    named |= set(re.findall(r"\b(?:[a-z]{3,}[A-Z]\w+|hook_\w+)", quoted))
    with_counterpart = {name for item in COUNTERPARTS for name in item.theirs}

    assert len(named) > 30
    assert sorted(named - with_counterpart - {"toolName", "context"}) == []


def test_counterpart_of_every_name_runs() -> None:
    space: dict[str, Any] = {}

    async def run(source: str) -> None:
        code = compile(source, "statements.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        done = eval(code, space)
        if inspect.isawaitable(done):
            await done

    async def every() -> list[str]:
        await run(TEXT.partition("```python\n")[2].partition("```")[0])
        wrong = []
        for item in COUNTERPARTS:
            try:
                await asyncio.wait_for(run(item.line), 20)
            except Exception as error:  # noqa: BLE001 - reported with its line
                wrong.append(f"{item.theirs}: {item.line}: {error!r}")
        return wrong

    assert len(COUNTERPARTS) > 40
    assert asyncio.run(every()) == []
