"""Whether an input fits a declared schema, and what is wrong with it if not.

In: a JSON Schema of the subset below, compiled once. Out: a `Parse`, which gives the input with
defaults added and, where asked for, numbers and booleans taken out of strings; or its issues in the
order of the schema's properties, unknown keys of each object last. Knows no tool and no wording
(see `explain.py`).

Keywords: type, properties, required, additionalProperties, items, enum, const, anyOf, default,
minimum, exclusiveMinimum, maximum, exclusiveMaximum, minLength, maxLength, minItems, maxItems,
format (uri). Anything else that would narrow the input is refused when the schema is compiled.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from toolspan.errors import BadTool
from toolspan.schema.issue import Invalid, Issue, Parse, Path, Valid

Schema = Mapping[str, Any]
_Check = Callable[[Any, Path, list[Issue]], Any]
"""Gives the value as it is taken, and appends what is wrong with it."""

_ANNOTATIONS = frozenset(
    {"$schema", "default", "deprecated", "description", "examples", "propertyNames", "title"}
)
_BOUNDS = {
    "minimum": ("too_small", True),
    "exclusiveMinimum": ("too_small", False),
    "maximum": ("too_big", True),
    "exclusiveMaximum": ("too_big", False),
    "minLength": ("too_small", True),
    "maxLength": ("too_big", True),
    "minItems": ("too_small", True),
    "maxItems": ("too_big", True),
}
_BOUNDS_OF = {
    "number": ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"),
    "integer": ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"),
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
}
_KEYWORDS = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", *_BOUNDS_OF["array"]}),
    "string": frozenset({"enum", "const", "format", *_BOUNDS_OF["string"]}),
    "number": frozenset({"enum", "const", *_BOUNDS_OF["number"]}),
    "integer": frozenset({"enum", "const", *_BOUNDS_OF["integer"]}),
    "boolean": frozenset({"const"}),
    "null": frozenset[str](),
}
_NUMBER = re.compile(r"-?\d{1,300}(\.\d{1,300})?", re.ASCII)  # no longer: none is a usable number
_BOOLEANS = {"true": True, "false": False}
_ABSENT = object()


def checker(schema: Schema, *, coerce: bool) -> Parse:
    """Compile a schema of an object into a function that checks inputs.

    Raises:
        BadTool: the schema has a keyword that cannot be checked.
    """
    check = _compile(schema, _Way("the schema", coerce))

    def parse(given: Mapping[str, object]) -> Valid | Invalid:
        issues: list[Issue] = []
        value = check(given, (), issues)
        return Invalid(tuple(issues)) if issues else Valid(value, value)

    return parse


def type_name(value: object) -> str:
    """The JSON name of a value's type, as issues tell it."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "NaN" if math.isnan(value) else "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case _:
            return "object"


def is_uri(text: str) -> bool:
    """Whether a text is an absolute address with a scheme, and a host where the scheme has one."""
    try:
        parts = urlsplit(text.strip())
    except ValueError:
        return False
    if not parts.scheme:
        return False
    if parts.scheme in ("http", "https", "ftp", "ws", "wss"):
        return bool(parts.netloc or parts.path.strip("/")) and " " not in parts.netloc
    return True


@dataclass(frozen=True, slots=True)
class _Way:
    """Where in the schema the compiler is, for messages, and how strings are taken."""

    place: str
    coerce: bool

    def into(self, name: str) -> "_Way":
        return _Way(f"{self.place}.{name}", self.coerce)


def _compile(schema: Schema, way: _Way) -> _Check:
    if "anyOf" in schema:
        return _any_of(schema, way)
    kind = schema.get("type")
    if kind is None:
        return _untyped(schema, way)
    if not isinstance(kind, str) or kind not in _KEYWORDS:
        raise BadTool(f"{way.place} has the type {kind!r}, which cannot be checked")
    _refuse_unknown(schema, _KEYWORDS[kind] | {"type"}, way)
    return _COMPILERS[kind](schema, way)


def _refuse_unknown(schema: Schema, known: frozenset[str], way: _Way) -> None:
    unknown = sorted(schema.keys() - known - _ANNOTATIONS)
    if unknown:
        raise BadTool(f"{way.place} has {', '.join(unknown)}, which cannot be checked")


def _untyped(schema: Schema, way: _Way) -> _Check:
    _refuse_unknown(schema, frozenset({"enum", "const"}), way)
    values = _values(schema)
    if values is None:
        return lambda value, _path, _issues: value
    return lambda value, path, issues: _one_of(value, path, issues, values)


def _values(schema: Schema) -> tuple[Any, ...] | None:
    if "const" in schema:
        return (schema["const"],)
    return tuple(schema["enum"]) if "enum" in schema else None


def _one_of(value: Any, path: Path, issues: list[Issue], values: tuple[Any, ...]) -> Any:
    if value not in values:
        issues.append(_not_one_of(path, values, value))
    return value


def _not_one_of(path: Path, values: tuple[Any, ...], value: Any) -> Issue:
    received = "undefined" if value is _ABSENT else type_name(value)
    detail = {"values": values} if value is _ABSENT else {"values": values, "value": value}
    allowed = ", ".join(repr(one) for one in values)
    return Issue("value", path, f"must be one of {allowed}", "string", received, detail)


def _wrong_type(path: Path, expected: str, value: Any) -> Issue:
    received = type_name(value)
    return Issue("type", path, f"must be of type {expected}, not {received}", expected, received)


def _bounds(schema: Schema, kind: str) -> Callable[[Any, Path, list[Issue]], None] | None:
    """A check of a value of the right type against its bounds; None when there are none."""
    given = [(name, schema[name]) for name in _BOUNDS_OF[kind] if name in schema]
    if not given:
        return None
    sized = kind in ("string", "array")
    origin = "number" if kind == "integer" else kind

    def check(value: Any, path: Path, issues: list[Issue]) -> None:
        size = len(value) if sized else value
        for name, bound in given:
            if not _within(size, name, bound):
                issues.append(_out_of_bounds(path, name, bound, origin))

    return check


def _within(size: float, name: str, bound: float) -> bool:
    code, inclusive = _BOUNDS[name]
    if size == bound:
        return inclusive
    return size > bound if code == "too_small" else size < bound


def _out_of_bounds(path: Path, name: str, bound: float, origin: str) -> Issue:
    code, inclusive = _BOUNDS[name]
    sign = (">" if code == "too_small" else "<") + ("=" if inclusive else "")
    unit = {"string": " characters", "array": " items"}.get(origin, "")
    return Issue(
        "too_small" if code == "too_small" else "too_big",
        path,
        f"must be {sign} {bound}{unit}",
        detail={"bound": bound, "inclusive": inclusive, "origin": origin},
    )


def _string(schema: Schema, _way: _Way) -> _Check:
    values = _values(schema)
    if values is not None:
        return lambda value, path, issues: _one_of(value, path, issues, values)
    bounds = _bounds(schema, "string")
    uri = schema.get("format") == "uri"

    def check(value: Any, path: Path, issues: list[Issue]) -> Any:
        if not isinstance(value, str):
            issues.append(_wrong_type(path, "string", value))
            return value
        if bounds is not None:
            bounds(value, path, issues)
        if uri and not is_uri(value):
            issues.append(Issue("format", path, "must be a URL", detail={"format": "url"}))
        return value

    return check


def _number(schema: Schema, way: _Way) -> _Check:
    values = _values(schema)
    bounds = _bounds(schema, schema["type"])
    whole = schema["type"] == "integer"
    coerce = way.coerce

    def check(value: Any, path: Path, issues: list[Issue]) -> Any:
        taken = _as_number(value) if coerce and isinstance(value, str) else value
        if isinstance(taken, bool) or not isinstance(taken, int | float) or math.isnan(taken):
            issues.append(_wrong_type(path, "number", value))
            return value
        if whole and isinstance(taken, float):
            if not taken.is_integer():
                issues.append(Issue("type", path, "must be a whole number", "integer", "number"))
                return value
            taken = int(taken)
        if bounds is not None:
            bounds(taken, path, issues)
        return taken if values is None else _one_of(taken, path, issues, values)

    return check


def _as_number(text: str) -> int | float | None:
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    return float(text) if found[1] else int(text)


def _boolean(schema: Schema, way: _Way) -> _Check:
    values = _values(schema)
    coerce = way.coerce

    def check(value: Any, path: Path, issues: list[Issue]) -> Any:
        taken = _BOOLEANS.get(value) if coerce and isinstance(value, str) else value
        if not isinstance(taken, bool):
            issues.append(_wrong_type(path, "boolean", value))
            return value
        return taken if values is None else _one_of(taken, path, issues, values)

    return check


def _null(_schema: Schema, _way: _Way) -> _Check:
    def check(value: Any, path: Path, issues: list[Issue]) -> Any:
        if value is not None:
            issues.append(_wrong_type(path, "null", value))
        return value

    return check


def _array(schema: Schema, way: _Way) -> _Check:
    item = _compile(schema.get("items", {}), way.into("items"))
    bounds = _bounds(schema, "array")

    def check(value: Any, path: Path, issues: list[Issue]) -> Any:
        if not isinstance(value, list | tuple):
            issues.append(_wrong_type(path, "array", value))
            return value
        taken = [item(one, (*path, at), issues) for at, one in enumerate(value)]
        if bounds is not None:
            bounds(value, path, issues)
        return taken

    return check


def _any_of(schema: Schema, way: _Way) -> _Check:
    _refuse_unknown(schema, frozenset({"anyOf", "type"}), way)
    checks = [_compile(one, way.into(f"anyOf[{at}]")) for at, one in enumerate(schema["anyOf"])]

    def check(value: Any, path: Path, issues: list[Issue]) -> Any:
        branches = []
        for alternative in checks:
            wrong: list[Issue] = []
            taken = alternative(value, (), wrong)
            if not wrong:
                return taken
            branches.append(tuple(wrong))
        detail = {"branches": tuple(branches)}
        issues.append(Issue("union", path, "fits none of the alternatives", detail=detail))
        return value

    return check


@dataclass(frozen=True, slots=True)
class _Property:
    name: str
    check: _Check
    absent: Issue | None
    """What is wrong when it is not there, but for the path."""


def _object(schema: Schema, way: _Way) -> _Check:
    properties = tuple(_properties(schema, way))
    names = frozenset(one.name for one in properties)
    defaults = {
        name: one["default"]
        for name, one in schema.get("properties", {}).items()
        if "default" in one
    }
    rest = _additional(schema, way)

    def check(value: Any, path: Path, issues: list[Issue]) -> Any:
        if not isinstance(value, Mapping):
            issues.append(_wrong_type(path, "object", value))
            return value
        taken = {**defaults, **value}  # what has a default comes first, given or not
        for one in properties:
            if one.name in value:
                taken[one.name] = one.check(value[one.name], (*path, one.name), issues)
            elif one.absent is not None:
                issues.append(_at(one.absent, (*path, one.name)))
        if not taken.keys() <= names:
            _check_rest(rest, (taken, names), path, issues)
        return taken

    return check


def _properties(schema: Schema, way: _Way) -> Iterator[_Property]:
    required = frozenset(schema.get("required", ()))
    for name, one in schema.get("properties", {}).items():
        must = name in required and "default" not in one
        yield _Property(name, _compile(one, way.into(name)), _missing(one) if must else None)


def _missing(schema: Schema) -> Issue:
    values = _values(schema)
    if values is not None:
        return _not_one_of((), values, _ABSENT)
    kind = "number" if schema.get("type") == "integer" else schema.get("type")
    return Issue("missing", (), "is required", kind, "undefined")


def _at(issue: Issue, path: Path) -> Issue:
    return Issue(issue.code, path, issue.message, issue.expected, issue.received, issue.detail)


def _additional(schema: Schema, way: _Way) -> _Check | None:
    """The check of keys the schema does not name; None refuses them."""
    allowed = schema.get("additionalProperties", True)
    if allowed is False:
        return None
    return _compile({} if allowed is True else allowed, way.into("additionalProperties"))


def _check_rest(
    rest: _Check | None, given: tuple[dict[str, Any], frozenset[str]], path: Path,
    issues: list[Issue],
) -> None:  # fmt: skip
    taken, names = given
    for key in [one for one in taken if one not in names]:
        if rest is None:
            issues.append(Issue("unexpected", (*path, key), "is not known"))
        else:
            taken[key] = rest(taken[key], (*path, key), issues)


_COMPILERS: Mapping[str, Callable[[Schema, _Way], _Check]] = {
    "object": _object,
    "array": _array,
    "string": _string,
    "number": _number,
    "integer": _number,
    "boolean": _boolean,
    "null": _null,
}
