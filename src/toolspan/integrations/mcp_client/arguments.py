"""Convert and check the arguments of MCP tools."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Literal

from toolspan.runtime.output_limits import sanitize_json
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.issues import Invalid, Issue, Parse, Valid, unparsed_text

InputCheck = Literal["none", "strict"]
"""The check of inputs before they are sent: none, or against the server's schema."""
_FIRST_EXPONENT = 1e21
"""The smallest number that clients send with an exponent."""
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d*[1-9])?")
_LARGEST_EXACT = 2**53 - 1
_ANNOTATIONS = frozenset({"title", "description", "default", "examples"})
_JSON_TYPES: Mapping[str, type] = {"array": list, "object": dict}


def prepare_arguments(value: Mapping[str, object]) -> dict[str, object]:
    """Convert an input to plain JSON values for the server, with integral floats as integers."""
    prepared = _floats_to_integers(sanitize_json(value))
    return prepared if isinstance(prepared, dict) else {}


def _floats_to_integers(value: object) -> object:
    match value:
        case float() if value.is_integer() and abs(value) < _FIRST_EXPONENT:
            return int(value)  # clients send `1.0` as `1`, and some servers distinguish them
        case dict():
            return {key: _floats_to_integers(inner) for key, inner in value.items()}
        case list():
            return [_floats_to_integers(inner) for inner in value]
        case _:
            return value


def make_parser(schema: Mapping[str, object], check: InputCheck, profile: Profile) -> Parse:
    """Return a parser that accepts any input or, with `strict`, checks it against the server's schema."""
    properties = schema.get("properties") if profile.availability.coerces else None
    kinds = {
        name: kind
        for name, declared in (properties.items() if isinstance(properties, Mapping) else ())
        if (kind := _wanted_kind(declared, schema)) is not None
    }

    @cache
    def make_validator() -> Any:
        from jsonschema.validators import validator_for  # type: ignore[import-untyped]

        return validator_for(schema)(schema)

    def parse(arguments: Mapping[str, object]) -> Valid | Invalid:
        if unparsed_text(arguments) is not None:
            if profile.issues.validator == "zod 4":
                return Invalid(())
            arguments = {}
        arguments = {
            name: _coerce(value, kinds[name]) if name in kinds and isinstance(value, str) else value
            for name, value in arguments.items()
        }
        if check == "none":
            return Valid(arguments, arguments)
        issues: list[Issue] = []
        try:
            errors = make_validator().iter_errors(dict(arguments))
            issues.extend(Issue("other", tuple(error.absolute_path), str(error.message)) for error in errors)
        except Exception as error:  # noqa: BLE001 - the server's schema, which may be anything
            issues.append(Issue("other", (), f"the server's schema cannot be used: {error}"))
        return Invalid(tuple(issues)) if issues else Valid(arguments, arguments)

    return parse


def _wanted_kind(declared: object, schema: Mapping[str, object]) -> str | None:
    """Return the JSON type into which strings for a parameter are converted: "any" without a declaration.

    Models write numbers, booleans and lists as strings. As in the client, the first declared type decides, and a
    parameter that may be a string keeps its strings.
    """
    if isinstance(declared, Mapping) and not declared.keys() - _ANNOTATIONS:
        return "any"
    kinds = [kind for kind in _declared_kinds(declared, schema) if kind != "null"]
    return None if not kinds or "string" in kinds else str(kinds[0])


def _declared_kinds(declared: object, schema: Mapping[str, object]) -> list[object]:
    match declared:
        case {"$ref": str(reference)}:
            target: object = schema
            for step in reference.removeprefix("#/").split("/"):
                target = target.get(step) if isinstance(target, Mapping) else None
            return _declared_kinds(target, {})  # one step is enough, and a circle is not followed
        case {"type": list(kinds)}:
            return kinds
        case {"type": kind}:
            return [kind]
        case {"anyOf": list(branches)} | {"oneOf": list(branches)}:
            return [kind for branch in branches for kind in _declared_kinds(branch, schema)]
        case _:
            return []


def _coerce(text: str, kind: str) -> object:
    """Convert a string to a JSON type, or return it unchanged if it is not written as a value of this type."""
    if kind in ("boolean", "any") and text in ("true", "false"):
        return text == "true"
    if kind in ("integer", "number", "any") and _NUMBER.fullmatch(text) and text != "-0":
        if "." not in text:
            return int(text) if abs(int(text)) <= _LARGEST_EXACT else text
        return float(text) if kind != "integer" and repr(float(text)) == text else text
    if kind in ("array", "object", "any") and text.strip().startswith(("[", "{")):
        with suppress(ValueError, RecursionError):
            value: object = json.loads(text)
            if isinstance(value, _JSON_TYPES.get(kind, list | dict)):
                return value
    return text
