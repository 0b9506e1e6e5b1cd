"""From a function's signature to a JSON Schema and a check of inputs, by pydantic.

In: a function and the type of the parameter that is filled in by the runner, not by the model.
Out: a `Derived`, made once; checking an input later builds and inspects nothing. Pydantic is
imported when the first function is derived. Knows no tool.
"""

import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, Union, get_args, get_origin, get_type_hints

from toolspan.errors import BadTool
from toolspan.schema.docstring import read_docstring
from toolspan.schema.issue import Invalid, Issue, Parse, Valid

_NAMELESS = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only; a model gives arguments by name",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments; a model gives them by name",
    inspect.Parameter.VAR_KEYWORD: "takes any keyword; a model must be told which there are",
}


@dataclass(frozen=True, slots=True)
class Derived:
    """What a function's signature says."""

    description: str
    """The first paragraph of its docstring."""
    input_schema: Mapping[str, object]
    parse: Parse
    """Its value is the keyword arguments to call the function with, defaults filled in."""
    context: str | None
    """The name of the parameter that is filled in by the runner."""


def derive(
    function: Callable[..., object], *, context: type, names: Mapping[str, object]
) -> Derived:
    """Read a function's signature.

    `names` are those that annotations may use beside the globals of the function's module.

    Raises:
        BadTool: the signature cannot be offered to a model.
    """
    hints = _hints(function, context, names)
    parameters = list(_parameters(function, hints))
    fillable = [one for one in parameters if _takes(hints[one.name], context)]
    if len(fillable) > 1:
        raise BadTool(f"{_name(function)} asks for {context.__name__} more than once")
    given = [one for one in parameters if one not in fillable]
    documented = read_docstring(inspect.getdoc(function))
    schema, validate = _compile(function, given, hints)
    _describe(schema, given, documented.parameters)
    return Derived(
        description=documented.summary,
        input_schema=schema,
        parse=_parse(validate, schema, given),
        context=fillable[0].name if fillable else None,
    )


def _name(function: Callable[..., object]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def _hints(
    function: Callable[..., object], context: type, names: Mapping[str, object]
) -> dict[str, Any]:
    """The annotations; the context is found even where it is imported for type checkers only."""
    inner = inspect.unwrap(function)
    known = {context.__name__: context, **getattr(inner, "__globals__", {}), **names}
    annotations = {**getattr(inner, "__annotations__", {})}
    annotations.pop("return", None)  # nobody asks for it, and it may not be there when it runs
    shown = types.SimpleNamespace(__annotations__=annotations)
    try:
        return get_type_hints(shown, globalns={}, localns=known, include_extras=True)
    except Exception as error:  # annotations are code: they may raise anything
        raise BadTool(f"The annotations of {_name(function)} cannot be read: {error}") from error


def _parameters(
    function: Callable[..., object], hints: Mapping[str, Any]
) -> Iterable[inspect.Parameter]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in _NAMELESS:
            reason = _NAMELESS[parameter.kind]
            raise BadTool(f"{_name(function)}: the parameter {parameter.name} {reason}")
        if parameter.name not in hints:
            hint = "; of a method, `tool(thing.method)` makes one" * (parameter.name == "self")
            raise BadTool(
                f"{_name(function)}: the parameter {parameter.name} has no annotation{hint}"
            )
        yield parameter


def _takes(hint: Any, context: type) -> bool:
    """Whether an annotation asks for the context, alone or as `Context | None`."""
    if get_origin(hint) in (Union, types.UnionType):
        return context in get_args(hint)
    return isinstance(hint, type) and issubclass(hint, context)


def _compile(
    function: Callable[..., object],
    parameters: list[inspect.Parameter],
    hints: Mapping[str, Any],
) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """The schema of an object of these parameters, and pydantic's check of one."""
    from pydantic import ConfigDict, TypeAdapter
    from pydantic.errors import PydanticUserError
    from pydantic.fields import FieldInfo
    from typing_extensions import TypedDict

    fields = {}
    for one in parameters:
        if isinstance(one.default, FieldInfo):
            raise BadTool(
                f"{_name(function)}: write {one.name}: Annotated[..., Field(...)] = default,"
                " so that the function has its default when it is called directly"
            )
        optional = one.default is not inspect.Parameter.empty
        fields[one.name] = NotRequired[hints[one.name]] if optional else hints[one.name]
    make: Any = TypedDict  # its fields are known only now, which type checkers do not allow
    arguments = make("Input", fields)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(arguments)
        schema = adapter.json_schema()
    except (PydanticUserError, TypeError) as error:
        said = str(error).partition("\n")[0]
        raise BadTool(f"{_name(function)} cannot be offered to a model: {said}") from error
    _untitle(schema)
    return schema, adapter.validator.validate_python


def _untitle(schema: dict[str, Any]) -> None:
    """Take out titles, which only repeat the names and cost tokens."""
    if isinstance(schema.get("title"), str):
        del schema["title"]
    for key in ("properties", "$defs"):
        for inner in schema.get(key, {}).values():
            _untitle(inner)
    parts = [schema.get(key) for key in ("items", "additionalProperties")]
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        parts.extend(schema.get(key, ()))
    for part in parts:
        if isinstance(part, dict):
            _untitle(part)


def _describe(
    schema: dict[str, Any], parameters: list[inspect.Parameter], texts: Mapping[str, str]
) -> None:
    """Add what the docstring says of parameters, and their defaults."""
    for one in parameters:
        place = schema["properties"][one.name]
        if one.name in texts:
            place.setdefault("description", texts[one.name])
        if one.default is not inspect.Parameter.empty and one.default is not None:
            _add_default(place, one.default)


def _add_default(place: dict[str, Any], default: object) -> None:
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        place["default"] = to_jsonable_python(default)
    except PydanticSerializationError:
        return  # the model need not know a default that JSON cannot show


def _parse(
    validate: Callable[[Any], Any], schema: Mapping[str, Any], given: list[inspect.Parameter]
) -> Parse:
    from pydantic import ValidationError

    from toolspan.schema.faults import issues_of

    defaults = {
        one.name: one.default for one in given if one.default is not inspect.Parameter.empty
    }

    def parse(arguments: Mapping[str, object]) -> Valid | Invalid:
        try:
            value = validate(arguments)
        except ValidationError as error:
            found = error.errors(include_url=False)
            return Invalid(issues_of(found, arguments, schema))
        except Exception as error:  # noqa: BLE001 - validators in annotations are others' code
            return Invalid((Issue("other", (), f"{type(error).__name__}: {error}"),))
        return Valid({**defaults, **value} if defaults else value, arguments)

    return parse
