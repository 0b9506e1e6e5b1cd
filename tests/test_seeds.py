"""Every statement of the documents that toolspan started from has a verdict and a proof.

The documents are not part of this repository; where the folder with them lies beside it, the rows
are held against its list of statements.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from toolspan.cli.app import COMMANDS

TESTS = Path(__file__).parent
ROOT = TESTS.parent
DATA: dict[str, Any] = tomllib.loads((TESTS / "seeds.toml").read_text(encoding="utf-8"))
ROWS: list[dict[str, Any]] = DATA["statement"]
SEEDS = ROOT.parent / "shared" / "seeds"
VERDICTS = {"works", "reader accepts", "only under seed", "differs"}
LEFT_OUT = {"skip", "slow", "xfail"}
"""Marks of tests that `make test` skips or expects to fail."""


beside = pytest.mark.skipif(not SEEDS.is_dir(), reason="needs the documents in ../shared/seeds")


@beside
def test_every_statement_has_its_row_and_every_row_its_statement() -> None:
    lines = (SEEDS / "statements.tsv").read_text(encoding="utf-8").splitlines()[1:]
    stated = [line.partition("\t")[0] for line in lines]

    assert [row["id"] for row in ROWS] == stated


def test_every_row_is_complete() -> None:
    broken = [
        row
        for row in ROWS
        if not {"id", "says", "verdict", "show", "proof"} <= row.keys()
        or row.keys() - {"id", "says", "verdict", "why", "show", "proof"}
        or row["verdict"] not in VERDICTS
        or ("why" in row) == (row["verdict"] == "works")
        or not row["proof"]
    ]

    assert broken == []


def test_no_statement_has_two_rows() -> None:
    counted = Counter(row["id"] for row in ROWS)

    assert [id for id, times in counted.items() if times > 1] == []


def run_every_time(path: Path) -> Counter[str]:
    """Return the tests of a file that `make test` runs."""
    result: Counter[str] = Counter()
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = {
                inner.attr
                for decorator in node.decorator_list
                for inner in ast.walk(decorator)
                if isinstance(inner, ast.Attribute)
            }
            result[node.name] += not marks & LEFT_OUT
    return result


def test_every_proof_is_a_test_that_is_run(request: pytest.FixtureRequest) -> None:
    proofs = {proof for row in ROWS for proof in row["proof"]}
    files = {proof.partition("::")[0] for proof in proofs}
    known = {file: run_every_time(ROOT / file) for file in files if (ROOT / file).is_file()}
    collected = {item.nodeid.partition("[")[0] for item in request.session.items}
    chosen = request.config.getoption("keyword") or any("::" in a for a in request.config.args)
    whole = set() if chosen else {node.partition("::")[0] for node in collected}

    wrong = []
    for proof in sorted(proofs):
        file, _, name = proof.partition("::")
        exists = re.fullmatch(r"tests/.*test_\w+\.py", file) and file in known
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
    assert [(row["id"], row["show"]) for row in ROWS if not is_shown(row["show"])] == []


@beside
def test_every_function_of_the_documents_has_a_counterpart() -> None:
    third, fourth = (next(SEEDS.glob(f"{number}_*.txt")).read_text(encoding="utf-8") for number in ("003", "004"))
    code = "".join(re.findall(r"```javascript\n(.*?)```", third, re.DOTALL))
    named = set(re.findall(r"(?:class|function) (\w+)", code))
    named |= set(re.findall(r"^  (\w+)\(.*\) \{$", code, re.MULTILINE))
    named |= set(re.findall(r"await (\w+)\(", code))
    quoted = " ".join(re.findall(r"`([^`]+)`", fourth))
    named |= set(re.findall(r"\b(?:[a-z]{3,}[A-Z]\w+|hook_\w+)", quoted))
    beside_ours = {word for noun in DATA["noun"] for word in noun["theirs"]}

    assert len(named) > 30
    assert sorted(named - beside_ours - {"toolName", "context"}) == []


def test_counterpart_of_every_noun_runs() -> None:
    space: dict[str, Any] = {}

    async def run(source: str) -> None:
        code = compile(source, "<seeds.toml>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        done = eval(code, space)
        if inspect.isawaitable(done):
            await done

    async def every() -> list[str]:
        await run(DATA["setup"])
        wrong = []
        for noun in DATA["noun"]:
            try:
                await asyncio.wait_for(run(noun["line"]), 20)
            except Exception as error:  # noqa: BLE001 - reported with its line
                wrong.append(f"{noun['theirs']}: {noun['line']}: {error!r}")
        return wrong

    assert asyncio.run(every()) == []
