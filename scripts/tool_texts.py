"""Collect the texts that a model reads: what the code of each tool can return or raise.

The texts are found in the source, so that the page made from them cannot miss one. A function of a tool leads to the
functions, classes and constants that it names, also in other modules of `toolspan.tools`.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from toolspan.runtime.profiles import profile

SOURCE = Path(__file__).parent.parent / "src"
_FOLLOWED = "toolspan.tools."
_ERROR_CALLS = frozenset({"McpError", "Refusal", "Deny", "StartError", "ToolError", "ToolFailure", "Invalid", "Issue"})
_SKIPPED_CALLS = frozenset({
    "BadTool", "KeyError", "RuntimeError", "ToolHints", "TypeError", "ValueError", "_failed_outcome",
    "_join_nonempty", "aliases",
    "builtin", "compile", "debug", "emit", "encode", "flag", "fullmatch", "join", "LookupError", "number", "quote",
    "replace", "report_fault", "search", "split", "startswith", "text", "warning",
})  # fmt: skip
"""Calls whose texts are for programmers, patterns, or listed as a description."""
_SKIPPED_FIELDS = frozenset({"description", "evidence", "input_schema", "reason", "stop"})
_SKIPPED_NAMES = re.compile(
    r"_?(\w*description|script|command|print_folder|\w*_?pattern|arguments|[A-Z_]*DESCRIPTION|[A-Z_]*SCHEMA|[A-Z_]*PROGRAM)"
)


_CODE = re.compile(r"\(\?|\\[dws]|>&|^builtin |/dev/null|; ?\w+\(\)|charset=|zod \d|realm=|;q=0|^Bearer |^set ")


class ModelText(NamedTuple):
    """A text with placeholders in braces."""

    text: str
    is_error: bool


def texts_of_tool(module: str, factory: str) -> set[ModelText]:
    """Return the texts that the tool made by a function of this module can return or raise."""
    texts: set[ModelText] = set()
    seen: set[tuple[str, str]] = set()
    remaining = [(module, factory)]
    while remaining:
        place = remaining.pop()
        if place in seen:
            continue
        seen.add(place)
        loaded = load_module(place[0])
        node = loaded.definitions.get(place[1])
        if node is None:
            continue
        texts |= set(loaded.texts_in(node))
        for name in names_in(node):
            origin = loaded.imports.get(name)
            if name in loaded.definitions:
                remaining.append((place[0], name))
            elif origin is not None and origin[0].startswith(_FOLLOWED):
                remaining.append(origin)
    return texts


def texts_of_module(module: str) -> set[ModelText]:
    """Return all texts of a module."""
    loaded = load_module(module)
    return {text for node in loaded.definitions.values() for text in loaded.texts_in(node)}


@cache
def profile_texts() -> dict[str, str]:
    """Return the texts of the newest profile by the name of their field."""
    found: dict[str, str] = {}
    remaining: list[object] = [profile()]
    while remaining:
        value = remaining.pop()
        for field in dataclasses.fields(value):  # type: ignore[arg-type]
            item = getattr(value, field.name)
            if dataclasses.is_dataclass(item):
                remaining.append(item)
            elif isinstance(item, str) and " " in item and not re.search(r"\\[.dwbAZ]|\[\^?[A-Za-z]", item):
                found[field.name] = item
    return found


@cache
def profile_groups() -> frozenset[str]:
    """Return the names under which code knows a part of the profile."""
    return frozenset(field.name for field in dataclasses.fields(profile())) | {"messages", "values"}


def names_in(node: ast.AST) -> Iterator[str]:
    """Yield the names that a definition uses."""
    return (part.id for part in ast.walk(node) if isinstance(part, ast.Name))


@dataclass(frozen=True)
class _Module:
    definitions: dict[str, ast.stmt]
    imports: dict[str, tuple[str, str]]
    """The module and the original name of each imported name."""
    error_names: frozenset[str]
    """The names of constants whose texts are used for errors."""

    def texts_in(self, node: ast.stmt) -> Iterator[ModelText]:
        """Yield the texts in a definition."""
        errors = self.error_names | _error_names(node)
        yield from _find_texts(node, is_error=False, errors=errors)


@cache
def load_module(name: str) -> _Module:
    """Parse a module of this package."""
    path = SOURCE / name.replace(".", "/")
    tree = ast.parse(
        (path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py").read_text()
    )
    definitions: dict[str, ast.stmt] = {}
    imports: dict[str, tuple[str, str]] = {}
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                definitions[node.name] = node
            case ast.Assign(targets=[ast.Name(id=target)]) | ast.AnnAssign(target=ast.Name(id=target)):
                definitions[target] = node
            case ast.ImportFrom(module=str(origin)):
                imports |= {alias.asname or alias.name: (origin, alias.name) for alias in node.names}
            case _:
                pass
    constants = frozenset(name for name in _error_names(tree) if name.isupper())
    return _Module(definitions, imports, constants)


def _error_names(tree: ast.AST) -> frozenset[str]:
    """Return the names that occur inside calls that make errors."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called_name(node) in _ERROR_CALLS]
    return frozenset(name for call in calls for name in names_in(call))


def _called_name(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _find_texts(node: ast.AST, *, is_error: bool, errors: frozenset[str]) -> Iterator[ModelText]:
    if _is_skipped(node):
        return
    match node:
        case ast.JoinedStr() | ast.Constant(value=str()):
            if _is_prose(text := _render(node)):
                yield ModelText(text, is_error)
            return
        case ast.Attribute(attr=field, value=ast.Name(id=group) | ast.Attribute(attr=group)) if (
            field in profile_texts() and group in profile_groups()
        ):
            yield ModelText(profile_texts()[field], is_error)
        case ast.Call():
            is_error = is_error or _called_name(node) in _ERROR_CALLS
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AugAssign(target=ast.Name(id=name)):
            is_error = is_error or name in errors
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            errors |= _error_names(node)
        case _:
            pass
    for child in ast.iter_child_nodes(node):
        yield from _find_texts(child, is_error=is_error, errors=errors)


def _is_skipped(node: ast.AST) -> bool:
    """Return whether a part of the source contains no texts for models, or only descriptions."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Compare():  # a docstring, a condition
            return True
        case ast.Call():
            return _called_name(node) in _SKIPPED_CALLS
        case ast.Assign(targets=[ast.Name(id=name)]):
            return _SKIPPED_NAMES.fullmatch(name) is not None
        case ast.Dict(keys=keys):  # a part of a schema
            return any(isinstance(key, ast.Constant) and key.value == "description" for key in keys)
        case ast.keyword(arg=name):
            return name in _SKIPPED_FIELDS
        case _:
            return False


def _is_prose(text: str) -> bool:
    words = re.findall(r"[A-Za-z]{2,}", re.sub(r"\{[^}]*\}", "", text))
    return (
        len(words) > ("{" not in text)
        and " " in text.strip()
        and not re.search(
            r"\(\?|\\[dws]|>&|^builtin |/dev/null|; ?\w+\(\)|charset=|zod \d|realm=|;q=0|^Bearer |^set ", text
        )
    )


def _render(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "".join(
        part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else f"{{{_placeholder(part)}}}"
        for part in node.values
    )


def _placeholder(node: ast.AST) -> str:
    """Return a short name for the value of an expression."""
    match node:
        case ast.FormattedValue(value=value):
            return _placeholder(value)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_").lower()
        case ast.Call(args=[first, *_]):
            return _placeholder(first)
        case ast.Call(func=ast.Attribute(value=value)) | ast.BoolOp(values=[value, *_]) | ast.BinOp(left=value):
            return _placeholder(value)
        case ast.Subscript(value=value) | ast.IfExp(body=value):
            return _placeholder(value)
        case _:
            return "…"


def sort_texts(texts: Iterable[ModelText], *, by_error: bool = True) -> list[ModelText]:
    """Return the texts in alphabetical order, or results before errors."""
    return sorted(texts, key=lambda item: (by_error and item.is_error, item.text.strip().lower(), item))
