"""Derive a JSON Schema and an input check from a function's signature, using pydantic.

Start at `derive_schema`. Pydantic is imported when the first schema is derived.
"""

from __future__ import annotations

import inspect
import itertools
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, NotRequired, Union, get_args, get_origin, get_type_hints

from toolspan.errors import BadTool
from toolspan.extras import missing_extra
from toolspan.runtime.schema.check import Schema, type_name
from toolspan.runtime.schema.issues import Invalid, Issue, IssueCode, Parse, Path, Valid

_PARAMETER_ENTRY = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)", re.DOTALL)
_ARGS_HEADINGS = ("Args:", "Arguments:", "Parameters:")


_UNNAMED_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, but models pass arguments by name",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments, but models pass arguments by name",
    inspect.Parameter.VAR_KEYWORD: "takes any keyword, but a schema has to name all arguments",
}


@dataclass(frozen=True, slots=True)
class DerivedSchema:
    """The schema of a function's parameters, and the check for its inputs."""

    description: str  # the first paragraph of the docstring
    input_schema: Mapping[str, object]
    parse: Parse  # a function that checks an input and returns the keyword arguments as `value`, with defaults added
    context: str | None  # the name of the parameter that receives the context, if any


def derive_schema(function: Callable[..., object], *, context: type, names: Mapping[str, object]) -> DerivedSchema:
    """Derive the schema of a function.

    The runner supplies any parameter of type `context`. Annotations may use `names` in addition to
    the globals of the function's module.

    Raises:
        BadTool: the parameters cannot be described by a schema.
        MissingExtra: pydantic is not installed.
    """
    try:
        from pydantic_core import PydanticSerializationError, to_jsonable_python
    except ImportError as error:
        raise missing_extra(error, "@tool") or error from error

    hints = _resolve_hints(function, context, names)
    parameters = list(_check_parameters(function, hints))
    fillable = [parameter for parameter in parameters if _is_context_hint(hints[parameter.name], context)]
    if len(fillable) > 1:
        raise BadTool(f"{_function_name(function)} has more than one parameter of type {context.__name__}")
    model_parameters = [parameter for parameter in parameters if parameter not in fillable]
    description, texts = _parse_docstring(function)
    schema, validate = _compile_parameters(function, model_parameters, hints)
    for parameter in model_parameters:
        property_schema = schema["properties"][parameter.name]
        if parameter.name in texts:
            property_schema.setdefault("description", texts[parameter.name])
        if parameter.default is not inspect.Parameter.empty and parameter.default is not None:
            with suppress(PydanticSerializationError):  # the model does not need a default that JSON cannot represent
                property_schema["default"] = to_jsonable_python(parameter.default)
    return DerivedSchema(
        description=description,
        input_schema=schema,
        parse=_make_parse(validate, schema, model_parameters),
        context=fillable[0].name if fillable else None,
    )


def _function_name(function: Callable[..., object]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def _resolve_hints(function: Callable[..., object], context: type, names: Mapping[str, object]) -> dict[str, Any]:
    """Return the resolved annotations, even if the context type is imported only for type checkers."""
    inner = inspect.unwrap(function)
    namespace = {context.__name__: context, **getattr(inner, "__globals__", {}), **names}
    annotations = {**getattr(inner, "__annotations__", {})}
    annotations.pop("return", None)  # not needed, and its name may exist only for type checkers
    holder = types.SimpleNamespace(__annotations__=annotations)
    try:
        return get_type_hints(holder, globalns={}, localns=namespace, include_extras=True)
    except Exception as error:  # annotations are code and may raise anything
        raise BadTool(f"The annotations of {_function_name(function)} cannot be read: {error}") from error


def _check_parameters(function: Callable[..., object], hints: Mapping[str, Any]) -> Iterable[inspect.Parameter]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in _UNNAMED_KINDS:
            reason = _UNNAMED_KINDS[parameter.kind]
            raise BadTool(f"{_function_name(function)}: the parameter {parameter.name} {reason}")
        if parameter.name not in hints:
            hint = "; for a method, use `tool(instance.method)`" * (parameter.name == "self")
            raise BadTool(f"{_function_name(function)}: the parameter {parameter.name} has no annotation{hint}")
        yield parameter


def _is_context_hint(hint: Any, context: type) -> bool:
    """Return whether an annotation is the context type, alone or as `Context | None`."""
    if get_origin(hint) in (Union, types.UnionType):
        return context in get_args(hint)
    return isinstance(hint, type) and issubclass(hint, context)


def _compile_parameters(
    function: Callable[..., object], parameters: list[inspect.Parameter], hints: Mapping[str, Any]
) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """Return the schema of an object with these parameters, and pydantic's validator for it."""
    from pydantic import ConfigDict, TypeAdapter
    from pydantic.errors import PydanticUserError
    from pydantic.fields import FieldInfo
    from typing_extensions import TypedDict

    fields = {}
    for parameter in parameters:
        if isinstance(parameter.default, FieldInfo):
            raise BadTool(
                f"{_function_name(function)}: write {parameter.name}: Annotated[..., Field(...)] = default,"
                " so that the default also works when the function is called directly"
            )
        optional = parameter.default is not inspect.Parameter.empty
        fields[parameter.name] = NotRequired[hints[parameter.name]] if optional else hints[parameter.name]
    make: Any = TypedDict  # type checkers do not allow computed fields
    arguments = make("Input", fields)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(arguments)
        schema = adapter.json_schema()
    except (PydanticUserError, TypeError) as error:
        message = str(error).partition("\n")[0]
        raise BadTool(f"{_function_name(function)} has no JSON Schema: {message}") from error
    _remove_titles(schema)
    return schema, adapter.validator.validate_python


def _remove_titles(schema: dict[str, Any]) -> None:
    """Remove titles, which only repeat names and cost tokens."""
    if isinstance(schema.get("title"), str):
        del schema["title"]
    for key in ("properties", "$defs"):
        for inner in schema.get(key, {}).values():
            _remove_titles(inner)
    parts = [schema.get(key) for key in ("items", "additionalProperties")]
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        parts.extend(schema.get(key, ()))
    for part in parts:
        if isinstance(part, dict):
            _remove_titles(part)


def _make_parse(
    validate: Callable[[Any], Any], schema: Mapping[str, Any], parameters: list[inspect.Parameter]
) -> Parse:
    from pydantic import ValidationError

    defaults = {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.default is not inspect.Parameter.empty
    }

    def parse(arguments: Mapping[str, object]) -> Valid | Invalid:
        try:
            value = validate(arguments)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            return Invalid(_convert_errors(errors, arguments, schema))
        except Exception as error:  # noqa: BLE001 - validators in annotations are user code
            return Invalid((Issue("other", (), f"{type(error).__name__}: {error}"),))
        return Valid({**defaults, **value} if defaults else value, arguments)

    return parse


def _parse_docstring(function: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """Return the first paragraph, and the texts of the parameters by name."""
    lines = (inspect.getdoc(function) or "").splitlines()
    ends_summary = (at for at, line in enumerate(lines) if not line.strip() or line in _ARGS_HEADINGS)
    summary = " ".join(line.strip() for line in lines[: next(ends_summary, len(lines))])
    heading = next((at for at, line in enumerate(lines) if line in _ARGS_HEADINGS), len(lines))
    section = itertools.takewhile(lambda line: not line or line[0].isspace(), lines[heading + 1 :])
    entries: list[str] = []
    indent = 0
    for line in filter(str.strip, section):  # a line with the section's own indentation starts the next entry
        line_indent = len(line) - len(line.lstrip())
        if entries and line_indent > indent:
            entries[-1] += "\n" + line.strip()
            continue
        indent = indent if entries else line_indent
        entries.append(line.strip())
    matches = filter(None, map(_PARAMETER_ENTRY.fullmatch, entries))
    return summary, {match["name"]: " ".join(match["text"].split()) for match in matches}


PydanticError = Mapping[str, Any]
"""One of pydantic's error details: type, loc, msg, input, ctx."""

_TYPE_NAMES = {
    **dict.fromkeys(("string_type", "string_sub_type"), "string"),
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "float_type", "float_parsing"), "number"),
    **dict.fromkeys(("decimal_type", "decimal_parsing", "finite_number"), "number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "boolean"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"), "array"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type"), "object"),
    "none_required": "null",
}
_LIMITS: Mapping[str, tuple[IssueCode, str, bool]] = {
    "greater_than": ("too_small", "gt", False),
    "greater_than_equal": ("too_small", "ge", True),
    "less_than": ("too_big", "lt", False),
    "less_than_equal": ("too_big", "le", True),
    "string_too_short": ("too_small", "min_length", True),
    "string_too_long": ("too_big", "max_length", True),
    "too_short": ("too_small", "min_length", True),
    "too_long": ("too_big", "max_length", True),
}


class _PlacedError(NamedTuple):
    """An error with its path in the input, without the path segments that identify union alternatives."""

    path: Path
    branch: str | None  # the union alternative that the error belongs to, if any
    error: PydanticError


def _convert_errors(errors: Iterable[PydanticError], arguments: object, schema: Schema) -> tuple[Issue, ...]:
    """Convert pydantic's errors to issues, with one issue per union and unknown keys last."""
    placed_errors = [_place_error(item, arguments) for item in errors]
    issues: list[Issue] = []
    for path, group in itertools.groupby(placed_errors, key=lambda item: (item.path, item.branch is not None)):
        members = list(group)
        if path[1]:
            issues.append(_union_issue(members, schema))
        else:
            issues.extend(_make_issue(item.error, item.path, schema) for item in members)
    return tuple(sorted(issues, key=lambda item: item.code == "unexpected"))


def _place_error(error: PydanticError, arguments: object) -> _PlacedError:
    steps: Sequence[str | int] = error["loc"]
    here = arguments
    for at, step in enumerate(steps):
        if isinstance(here, Mapping) and step in here:  # noqa: SIM114
            here = here[step]
        elif isinstance(here, list | tuple) and isinstance(step, int) and step < len(here):
            here = here[step]
        elif at == len(steps) - 1 and isinstance(here, Mapping) and error["type"] == "missing":
            break
        else:
            return _PlacedError(tuple(steps[:at]), str(step), error)
    return _PlacedError(tuple(steps), None, error)


def _union_issue(placed_errors: list[_PlacedError], schema: Schema) -> Issue:
    """Return one issue for a value that matches no alternative, or a type issue if all errors are about types."""
    path = placed_errors[0].path
    branches = {}
    for branch, group in itertools.groupby(placed_errors, key=lambda item: item.branch):
        branches[branch] = tuple(_make_issue(item.error, (), schema) for item in group)
    issues = [item for branch in branches.values() for item in branch]
    if all(item.code == "type" for item in issues):
        expected_types = " | ".join(dict.fromkeys(str(item.expected) for item in issues))
        return Issue("type", path, f"must be {expected_types}", expected_types, issues[0].received)
    alternatives = "; ".join(f"as {name}: {branch[0].message}" for name, branch in branches.items())
    return Issue(
        "union", path, f"fits no alternative ({alternatives})",
        detail={"branches": tuple(branches.values())},
    )  # fmt: skip


def _make_issue(error: PydanticError, path: Path, schema: Schema) -> Issue:
    kind, message, value = error["type"], error["msg"], error["input"]
    if kind in _TYPE_NAMES:
        return Issue("type", path, message, _TYPE_NAMES[kind], type_name(value))
    if kind in _LIMITS:
        code, key, inclusive = _LIMITS[kind]
        sized_origin = "string" if isinstance(value, str) else "array"
        origin = sized_origin if key in ("min_length", "max_length") else "number"
        detail = {"bound": error["ctx"][key], "inclusive": inclusive, "origin": origin}
        return Issue(code, path, message, detail=detail)
    match kind:
        case "missing":
            name = _schema_at(path, schema).get("type")
            expected = "number" if name == "integer" else name
            return Issue("missing", path, "is required", expected if isinstance(name, str) else None, "undefined")
        case "extra_forbidden":
            return Issue("unexpected", path, "is not known")
        case "int_from_float":
            return Issue("type", path, message, "integer", "number")
        case "literal_error" | "enum":
            here = _schema_at(path, schema)
            values = tuple(here["enum"]) if "enum" in here else (here.get("const"),)
            return Issue("value", path, message, "string", type_name(value), {"values": values, "value": value})
        case "url_parsing" | "url_scheme" | "url_syntax_violation" | "url_type":
            return Issue("format", path, message, detail={"format": "url"})
        case _:
            return Issue("other", path, str(message).removeprefix("Value error, "))


def _schema_at(path: Path, schema: Schema) -> Schema:
    """Return the part of a schema that describes a path, or an empty schema if it depends on alternatives."""
    here = schema
    for step in path:
        here = _resolve_schema(here, schema)
        here = here.get("items", {}) if isinstance(step, int) else here.get("properties", {}).get(step, {})
    return _resolve_schema(here, schema)


def _resolve_schema(here: Schema, schema: Schema) -> Schema:
    """Resolve a reference, and drop the null alternative."""
    if "$ref" in here:
        name = str(here["$ref"]).rpartition("/")[2]
        here = schema.get("$defs", {}).get(name, {})
    filled = [alternative for alternative in here.get("anyOf", ()) if alternative.get("type") != "null"]
    return _resolve_schema(filled[0], schema) if len(filled) == 1 else here
