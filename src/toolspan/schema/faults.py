"""The faults that pydantic finds, as issues.

In: pydantic's list of errors, the input they are about and its JSON Schema. Out: the same issues
that `check.py` gives for a declared schema, so that a model reads one language for all tools.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from toolspan.schema.check import type_name
from toolspan.schema.issue import Issue, Path

Error = Mapping[str, Any]
"""One of pydantic's error details: type, loc, msg, input, ctx."""
Schema = Mapping[str, Any]

_TYPES = {
    "string_type": "string",
    "string_sub_type": "string",
    "int_type": "number",
    "int_parsing": "number",
    "int_parsing_size": "number",
    "float_type": "number",
    "float_parsing": "number",
    "decimal_type": "number",
    "decimal_parsing": "number",
    "finite_number": "number",
    "bool_type": "boolean",
    "bool_parsing": "boolean",
    "list_type": "array",
    "tuple_type": "array",
    "set_type": "array",
    "frozen_set_type": "array",
    "iterable_type": "array",
    "dict_type": "object",
    "mapping_type": "object",
    "model_type": "object",
    "model_attributes_type": "object",
    "dataclass_type": "object",
    "none_required": "null",
}
_LIMITS = {
    "greater_than": ("too_small", "gt", False),
    "greater_than_equal": ("too_small", "ge", True),
    "less_than": ("too_big", "lt", False),
    "less_than_equal": ("too_big", "le", True),
    "string_too_short": ("too_small", "min_length", True),
    "string_too_long": ("too_big", "max_length", True),
    "too_short": ("too_small", "min_length", True),
    "too_long": ("too_big", "max_length", True),
}


class _Fault(NamedTuple):
    """An error with its place in the input; a choice between types is no place."""

    path: Path
    branch: str | None
    """The alternative of a union the error is about."""
    error: Error


def issues_of(errors: Iterable[Error], given: object, schema: Schema) -> tuple[Issue, ...]:
    """Pydantic's errors as issues: alternatives of one union as one, unknown keys last."""
    faults = [_placed(one, given) for one in errors]
    found: list[Issue] = []
    for path, group in groupby(faults, key=lambda one: (one.path, one.branch is not None)):
        members = list(group)
        if path[1]:
            found.append(_union(members, schema))
        else:
            found.extend(_issue(one.error, one.path, schema) for one in members)
    return tuple(sorted(found, key=lambda one: one.code == "unexpected"))


def _placed(error: Error, given: object) -> _Fault:
    steps: Sequence[str | int] = error["loc"]
    here = given
    for at, step in enumerate(steps):
        inside, there = _step(here, step)
        if inside:
            here = there
        elif at == len(steps) - 1 and isinstance(here, Mapping) and error["type"] == "missing":
            break
        else:
            return _Fault(tuple(steps[:at]), str(step), error)
    return _Fault(tuple(steps), None, error)


def _step(here: object, step: str | int) -> tuple[bool, object]:
    if isinstance(here, Mapping):
        return step in here, here.get(step)
    if isinstance(here, list | tuple) and isinstance(step, int):
        return step < len(here), here[step] if step < len(here) else None
    return False, None


def _union(faults: list[_Fault], schema: Schema) -> Issue:
    """One issue for a value that fits no alternative; a plain one when only types are in play."""
    path = faults[0].path
    branches = {}
    for branch, group in groupby(faults, key=lambda one: one.branch):
        branches[branch] = tuple(_issue(one.error, (), schema) for one in group)
    found = [one for branch in branches.values() for one in branch]
    if all(one.code == "type" for one in found):
        wanted = " | ".join(dict.fromkeys(str(one.expected) for one in found))
        return Issue("type", path, f"must be {wanted}", wanted, found[0].received)
    told = "; ".join(f"as {name}: {branch[0].message}" for name, branch in branches.items())
    return Issue(
        "union", path, f"fits no alternative ({told})",
        detail={"branches": tuple(branches.values())},
    )  # fmt: skip


def _issue(error: Error, path: Path, schema: Schema) -> Issue:
    kind = error["type"]
    if kind == "missing":
        return Issue("missing", path, "is required", _expected(path, schema), "undefined")
    if kind == "extra_forbidden":
        return Issue("unexpected", path, "is not known")
    if kind in _TYPES:
        return Issue("type", path, error["msg"], _TYPES[kind], type_name(error["input"]))
    if kind in _LIMITS:
        return _out_of_bounds(error, path)
    return _TELLERS.get(kind, _other)(error, path, schema)


def _whole(error: Error, path: Path, _schema: Schema) -> Issue:
    return Issue("type", path, error["msg"], "integer", "number")


def _choice(error: Error, path: Path, schema: Schema) -> Issue:
    here = _schema_at(path, schema)
    values = tuple(here["enum"]) if "enum" in here else (here.get("const"),)
    detail = {"values": values, "value": error["input"]}
    return Issue("value", path, error["msg"], "string", type_name(error["input"]), detail)


def _address(error: Error, path: Path, _schema: Schema) -> Issue:
    return Issue("format", path, error["msg"], detail={"format": "url"})


def _other(error: Error, path: Path, _schema: Schema) -> Issue:
    return Issue("other", path, str(error["msg"]).removeprefix("Value error, "))


def _out_of_bounds(error: Error, path: Path) -> Issue:
    code, key, inclusive = _LIMITS[error["type"]]
    value = error["input"]
    sized = {"min_length", "max_length"} & {key}
    origin = ("string" if isinstance(value, str) else "array") if sized else "number"
    return Issue(
        "too_small" if code == "too_small" else "too_big",
        path,
        error["msg"],
        detail={"bound": error["ctx"][key], "inclusive": inclusive, "origin": origin},
    )


def _expected(path: Path, schema: Schema) -> str | None:
    kind = _schema_at(path, schema).get("type")
    if not isinstance(kind, str):
        return None
    return "number" if kind == "integer" else kind


def _schema_at(path: Path, schema: Schema) -> Schema:
    """The part of a schema that is about a place; empty where alternatives leave it open."""
    here = schema
    for step in path:
        here = _resolved(here, schema)
        if isinstance(step, int):
            here = here.get("items", {})
        else:
            here = here.get("properties", {}).get(step, {})
    return _resolved(here, schema)


def _resolved(here: Schema, schema: Schema) -> Schema:
    """A part of a schema with its reference followed, and `or null` taken off."""
    if "$ref" in here:
        name = str(here["$ref"]).rpartition("/")[2]
        here = schema.get("$defs", {}).get(name, {})
    filled = [one for one in here.get("anyOf", ()) if one.get("type") != "null"]
    return _resolved(filled[0], schema) if len(filled) == 1 else here


_TELLERS: Mapping[str, Callable[[Error, Path, Schema], Issue]] = {
    "int_from_float": _whole,
    "literal_error": _choice,
    "enum": _choice,
    "url_parsing": _address,
    "url_scheme": _address,
    "url_syntax_violation": _address,
    "url_type": _address,
}
