"""Check inputs against a declared JSON Schema. Start at `compile_checker`.

Supported keywords: type, properties, required, additionalProperties, items, enum, const, anyOf, default, minimum,
exclusiveMinimum, maximum, exclusiveMaximum, minLength, maxLength, minItems, maxItems, format (uri). A schema with any
other keyword that restricts inputs does not compile.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from toolspan.errors import BadTool
from toolspan.runtime.schema.issues import Invalid, Issue, IssueCode, Parse, Path, Valid

Schema = Mapping[str, Any]
_Check = Callable[[Any, Path, list[Issue]], Any]
"""A function that returns the converted value and appends any issues to the list."""

_ANNOTATIONS = frozenset({
    "$schema", "default", "deprecated", "description", "errorMessage", "examples", "propertyNames", "title",
})  # fmt: skip
_BOUNDS: Mapping[str, tuple[IssueCode, bool]] = {
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
_NUMBER_PATTERN = re.compile(r"-?\d{1,300}(\.\d{1,300})?", re.ASCII)  # longer ones are not usable numbers
_BOOLEAN_TEXTS = {"true": True, "false": False}
_ABSENT = object()


def compile_checker(schema: Schema, *, coerce: bool) -> Parse:
    """Compile an object schema to a function that checks inputs.

    The function returns the input with defaults added and, if `coerce` is set, with strings
    converted to numbers and booleans. Issues are in the order of the properties, with the unknown
    keys of each object last.

    Raises:
        BadTool: the schema has a keyword that cannot be checked.
    """
    check = _compile_schema(schema, _SchemaPosition("the schema", coerce))

    def parse(arguments: Mapping[str, object]) -> Valid | Invalid:
        issues: list[Issue] = []
        value = check(arguments, (), issues)
        return Invalid(tuple(issues)) if issues else Valid(value, value)

    return parse


def type_name(value: object) -> str:
    """Return the JSON name of a value's type."""
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
    """Return whether `text` is an absolute URI, with a host if its scheme needs one."""
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
class _SchemaPosition:
    """A position in the schema for error messages, and whether strings are converted."""

    location: str
    coerce: bool

    def child(self, name: str) -> _SchemaPosition:
        return _SchemaPosition(f"{self.location}.{name}", self.coerce)


def _compile_schema(schema: Schema, position: _SchemaPosition) -> _Check:
    if "anyOf" in schema:
        return _compile_any_of(schema, position)
    kind = schema.get("type")
    if kind is None:
        _reject_unknown_keywords(schema, frozenset({"enum", "const"}), position)
        values = _allowed_values(schema)
        if values is None:
            return lambda value, _path, _issues: value
        return lambda value, path, issues: _check_one_of(value, path, issues, values)
    if not isinstance(kind, str) or kind not in _KEYWORDS:
        raise BadTool(f"{position.location} has the type {kind!r}, which cannot be checked")
    _reject_unknown_keywords(schema, _KEYWORDS[kind] | {"type"}, position)
    return _COMPILERS[kind](schema, position)


def _reject_unknown_keywords(schema: Schema, keywords: frozenset[str], position: _SchemaPosition) -> None:
    unknown = sorted(schema.keys() - keywords - _ANNOTATIONS)
    if unknown:
        raise BadTool(f"{position.location} has {', '.join(unknown)}, which cannot be checked")


def _allowed_values(schema: Schema) -> tuple[Any, ...] | None:
    if "const" in schema:
        return (schema["const"],)
    return tuple(schema["enum"]) if "enum" in schema else None


def _check_one_of(value: Any, path: Path, issues: list[Issue], values: tuple[Any, ...]) -> Any:
    if value not in values:
        issues.append(_not_one_of_issue(path, values, value))
    return value


def _not_one_of_issue(path: Path, values: tuple[Any, ...], value: Any) -> Issue:
    received = "undefined" if value is _ABSENT else type_name(value)
    detail = {"values": values} if value is _ABSENT else {"values": values, "value": value}
    allowed = ", ".join(repr(allowed_value) for allowed_value in values)
    return Issue("value", path, f"must be one of {allowed}", "string", received, detail)


def _wrong_type_issue(path: Path, expected: str, value: Any) -> Issue:
    received = type_name(value)
    return Issue("type", path, f"must be of type {expected}, not {received}", expected, received)


def _compile_bounds(schema: Schema, kind: str) -> Callable[[Any, Path, list[Issue]], None] | None:
    """Return a check of the bounds on values of type `kind`, or None if there are no bounds."""
    limits = [(name, schema[name]) for name in _BOUNDS_OF[kind] if name in schema]
    if not limits:
        return None
    sized = kind in ("string", "array")
    origin = "number" if kind == "integer" else kind
    unit = {"string": " characters", "array": " items"}.get(kind, "")

    def check(value: Any, path: Path, issues: list[Issue]) -> None:
        size = len(value) if sized else value
        for name, bound in limits:
            code, inclusive = _BOUNDS[name]
            small = code == "too_small"
            if (size > bound if small else size < bound) or (inclusive and size == bound):
                continue
            sign = (">" if small else "<") + ("=" if inclusive else "")
            detail = {"bound": bound, "inclusive": inclusive, "origin": origin}
            if "errorMessage" in schema:
                detail["message"] = schema["errorMessage"]
            issues.append(Issue(code, path, f"must be {sign} {bound}{unit}", detail=detail))

    return check


def _compile_string(schema: Schema, _position: _SchemaPosition) -> _Check:
    values = _allowed_values(schema)
    if values is not None:
        return lambda value, path, issues: _check_one_of(value, path, issues, values)
    bounds = _compile_bounds(schema, "string")
    uri = schema.get("format") == "uri"

    def check(value: Any, path: Path, issues: list[Issue]) -> Any:
        if not isinstance(value, str):
            issues.append(_wrong_type_issue(path, "string", value))
            return value
        if bounds is not None:
            bounds(value, path, issues)
        if uri and not is_uri(value):
            issues.append(Issue("format", path, "must be a URL", detail={"format": "url"}))
        return value

    return check


def _compile_number(schema: Schema, position: _SchemaPosition) -> _Check:
    values = _allowed_values(schema)
    bounds = _compile_bounds(schema, schema["type"])
    whole = schema["type"] == "integer"
    coerce = position.coerce

    def check(value: Any, path: Path, issues: list[Issue]) -> Any:
        number = value
        if coerce and isinstance(value, str) and (match := _NUMBER_PATTERN.fullmatch(value)):
            number = float(value) if match[1] else int(value)
        if isinstance(number, bool) or not isinstance(number, int | float) or math.isnan(number):
            issues.append(_wrong_type_issue(path, "number", value))
            return value
        if whole and isinstance(number, float):
            if not number.is_integer():
                issues.append(Issue("type", path, "must be a whole number", "integer", "number"))
                return value
            number = int(number)
        if bounds is not None:
            bounds(number, path, issues)
        return number if values is None else _check_one_of(number, path, issues, values)

    return check


def _compile_boolean(schema: Schema, position: _SchemaPosition) -> _Check:
    values = _allowed_values(schema)
    coerce = position.coerce

    def check(value: Any, path: Path, issues: list[Issue]) -> Any:
        flag = _BOOLEAN_TEXTS.get(value) if coerce and isinstance(value, str) else value
        if not isinstance(flag, bool):
            issues.append(_wrong_type_issue(path, "boolean", value))
            return value
        return flag if values is None else _check_one_of(flag, path, issues, values)

    return check


def _compile_null(_schema: Schema, _position: _SchemaPosition) -> _Check:
    def check(value: Any, path: Path, issues: list[Issue]) -> Any:
        if value is not None:
            issues.append(_wrong_type_issue(path, "null", value))
        return value

    return check


def _compile_array(schema: Schema, position: _SchemaPosition) -> _Check:
    check_item = _compile_schema(schema.get("items", {}), position.child("items"))
    bounds = _compile_bounds(schema, "array")

    def check(value: Any, path: Path, issues: list[Issue]) -> Any:
        if not isinstance(value, list | tuple):
            issues.append(_wrong_type_issue(path, "array", value))
            return value
        elements = [check_item(element, (*path, at), issues) for at, element in enumerate(value)]
        if bounds is not None:
            bounds(value, path, issues)
        return elements

    return check


def _compile_any_of(schema: Schema, position: _SchemaPosition) -> _Check:
    _reject_unknown_keywords(schema, frozenset({"anyOf", "type"}), position)
    checks = [
        _compile_schema(alternative_schema, position.child(f"anyOf[{at}]"))
        for at, alternative_schema in enumerate(schema["anyOf"])
    ]

    def check(value: Any, path: Path, issues: list[Issue]) -> Any:
        branches = []
        for alternative in checks:
            branch_issues: list[Issue] = []
            converted = alternative(value, (), branch_issues)
            if not branch_issues:
                return converted
            branches.append(tuple(branch_issues))
        detail = {"branches": tuple(branches)}
        issues.append(Issue("union", path, "matches none of the alternatives", detail=detail))
        return value

    return check


def _compile_object(schema: Schema, position: _SchemaPosition) -> _Check:
    required = frozenset(schema.get("required", ()))
    checks: dict[str, _Check] = {}
    defaults: dict[str, object] = {}
    missing_issues: dict[str, Issue] = {}
    """The issue for each required property without a default, without its path."""
    for name, prop in schema.get("properties", {}).items():
        checks[name] = _compile_schema(prop, position.child(name))
        if "default" in prop:
            defaults[name] = prop["default"]
        elif name in required:
            missing_issues[name] = _missing_issue(prop)
    others = schema.get("additionalProperties", True)
    expected_type = "object" if "properties" in schema or others is False else "record"
    check_other: _Check | None = None
    if others is not False:
        other_schema = {} if others is True else others
        check_other = _compile_schema(other_schema, position.child("additionalProperties"))

    def check(value: Any, path: Path, issues: list[Issue]) -> Any:
        if not isinstance(value, Mapping):
            issues.append(_wrong_type_issue(path, expected_type, value))
            return value
        converted = {**defaults, **value}  # properties with a default come first
        for name, check_property in checks.items():
            if name in value:
                converted[name] = check_property(value[name], (*path, name), issues)
            elif name in missing_issues:
                issues.append(replace(missing_issues[name], path=(*path, name)))
        for key in [key for key in converted if key not in checks]:
            if check_other is None:
                issues.append(Issue("unexpected", (*path, key), "is not known"))
            else:
                converted[key] = check_other(converted[key], (*path, key), issues)
        return converted

    return check


def _missing_issue(schema: Schema) -> Issue:
    values = _allowed_values(schema)
    if values is not None:
        return _not_one_of_issue((), values, _ABSENT)
    kind = "number" if schema.get("type") == "integer" else schema.get("type")
    return Issue("missing", (), "is required", kind, "undefined")


_COMPILERS: Mapping[str, Callable[[Schema, _SchemaPosition], _Check]] = {
    "object": _compile_object,
    "array": _compile_array,
    "string": _compile_string,
    "number": _compile_number,
    "integer": _compile_number,
    "boolean": _compile_boolean,
    "null": _compile_null,
}
