"""Mutation testing of the scheduler.

Each mutant changes one node of one module's syntax tree: a condition is negated, a comparison is shifted, a call whose
value is not used is dropped, or `and` becomes `or`. The quick tests of the runtime run against a copy of the package
with that change; a mutant that they do not notice has survived.

    make mutants                          a random twentieth of all mutants
    make mutants ARGS="--only queue --every 1"
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = ("queue", "batch", "pipeline", "isolation", "outcome")
TESTS = (
    "test_batch", "test_pipeline", "test_cancel", "test_denials", "test_runner", "test_queue",
    "test_exceptions", "test_recovery", "test_settlement", "test_isolation",
)  # fmt: skip
TIMEOUT = 180
"""Seconds after which a mutant counts as noticed, because some test waits forever."""
_SHIFTED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


def mutants(tree: ast.Module) -> Iterator[tuple[str, ast.Module]]:
    """Yield every mutant of a module with a description of the change."""
    for position, node in enumerate(ast.walk(tree)):
        if not _is_mutable(node):
            continue
        mutated = copy.deepcopy(tree)
        target = list(ast.walk(mutated))[position]
        before = ast.unparse(target)
        _mutate(target)
        line = getattr(node, "lineno", 0)
        yield f"line {line}: {before.splitlines()[0]}", ast.fix_missing_locations(mutated)


def _is_mutable(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1 and type(node.ops[0]) in _SHIFTED
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        return not isinstance(node.test, ast.Compare) and "TYPE_CHECKING" not in ast.unparse(node.test)
    return isinstance(node, ast.BoolOp)


def _mutate(node: ast.AST) -> None:
    match node:
        case ast.Compare():
            node.ops = [_SHIFTED[type(node.ops[0])]()]
        case ast.Expr():
            node.value = ast.Constant(None)
        case ast.If() | ast.While() | ast.IfExp():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case _:
            raise TypeError(f"cannot mutate {type(node).__name__}")


def is_noticed(module: str, mutant: ast.Module) -> bool:
    """Return whether a test fails, or hangs, with the mutant in place of the module."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        package = Path(folder) / "toolspan"
        shutil.copytree(ROOT / "src" / "toolspan", package)  # with the compiled modules, which take long to make
        (package / "runtime" / f"{module}.py").write_text(ast.unparse(mutant), encoding="utf-8")
        tests = [f"tests/runtime/{name}.py" for name in TESTS]
        command = [sys.executable, "-m", "pytest", "-qx", "-m", "not slow", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, "PYTHONPATH": folder, "HYPOTHESIS_PROFILE": "mutants"}
        try:
            tested = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, timeout=TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            return True
        return tested.returncode != 0


def main() -> int:
    """Run a sample of the mutants; return 1 if more than a fifth of them survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MODULES, action="append", help="the modules to mutate")
    parser.add_argument("--every", type=int, default=20, help="run one of so many mutants")
    parser.add_argument("--seed", type=int, default=0, help="choose another sample")
    options = parser.parse_args()
    sample: list[tuple[str, str, ast.Module]] = []
    for module in options.only or MODULES:
        source = (ROOT / "src/toolspan/runtime" / f"{module}.py").read_text(encoding="utf-8")
        sample += [(module, change, mutant) for change, mutant in mutants(ast.parse(source))]
    sample = random.Random(options.seed).sample(sample, max(1, len(sample) // options.every))
    survivors = 0
    for module, change, mutant in sample:
        if not is_noticed(module, mutant):
            survivors += 1
            print(f"survived: {module}.py {change}", flush=True)  # noqa: T201 - a script
    print(f"{len(sample) - survivors} of {len(sample)} mutants were noticed")  # noqa: T201
    return int(survivors * 5 > len(sample))


if __name__ == "__main__":
    sys.exit(main())
