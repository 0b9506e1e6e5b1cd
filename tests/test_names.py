"""Names stay words of the field: the counts below may only fall."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "toolspan"
BANNED = {
    "told", "said", "heard", "asked", "wishes", "desk", "bench", "room", "rooms", "door", "crew", "scene", "shelf",
    "tape", "mind", "ear", "staff", "portrait", "veil", "veiled", "mend", "mended", "telling", "insist",
}  # fmt: skip
VAGUE = {
    "one", "found", "given", "told", "said", "asked", "words", "wanted", "kept", "known", "shown", "heard", "own",
    "left",
}  # fmt: skip
MAX_DUPLICATE_CLASSES = 6
MAX_VAGUE_PERCENT = 1.0
MAX_ONE_WORD_PERCENT = 45
MAX_HEADLESS_PERCENT = 1.0
HEADLESS = re.compile(r"\s*(What|Whether|Which|Who|Whom|Where)\b")


@cache
def nodes() -> list[tuple[Path, ast.AST]]:
    """Return the nodes that have a name or a docstring, with their files."""
    return [
        (path, node)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_bytes(), str(path)))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Name | ast.arg | ast.Expr)
    ]


def percent(part: int, whole: int) -> float:
    return 100 * part / max(1, whole)


def test_no_module_or_class_name_contains_a_banned_word() -> None:
    modules = {
        word for path in PACKAGE.rglob("*.py") for part in path.relative_to(PACKAGE).with_suffix("").parts
        for word in part.split("_")
    }  # fmt: skip
    classes = {
        word.lower() for _, node in nodes() if isinstance(node, ast.ClassDef)
        for word in re.findall(r"[A-Z][a-z]+", node.name)
    }  # fmt: skip

    assert (modules | classes) & BANNED == set()


def test_a_class_name_is_defined_once() -> None:
    classes = Counter(
        node.name
        for path, node in nodes()
        if isinstance(node, ast.ClassDef) and "formats" not in path.parts and not node.name.startswith("_")
    )
    duplicates = sorted(name for name, count in classes.items() if count > 1)

    assert len(duplicates) <= MAX_DUPLICATE_CLASSES, duplicates


def test_variables_are_not_vague() -> None:
    names = [node.id for _, node in nodes() if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    names += [node.arg for _, node in nodes() if isinstance(node, ast.arg)]

    assert percent(sum(name in VAGUE for name in names), len(names)) <= MAX_VAGUE_PERCENT


def test_most_function_names_have_a_verb_and_an_object() -> None:
    functions = [
        node.name.strip("_")
        for _, node in nodes()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__")
    ]

    assert percent(sum("_" not in name for name in functions), len(functions)) <= MAX_ONE_WORD_PERCENT


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    strings = [
        node.value.value
        for _, node in nodes()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]

    assert percent(sum(bool(HEADLESS.match(text)) for text in strings), len(strings)) <= MAX_HEADLESS_PERCENT
