"""Helpers for writing the JSON Schemas of the built-in tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Schema = dict[str, object]


def object_schema(properties: Mapping[str, object], required: Sequence[str] = ()) -> Schema:
    """Return the schema for an object with these properties and no others."""
    schema: Schema = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    return {**schema, "additionalProperties": False}


def result_schema(required: Mapping[str, object], **optional: object) -> Schema:
    """Return the schema for a structured result, which may have additional keys."""
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


def text(description: str, **options: object) -> Schema:
    """Return the schema for a string property."""
    return {"type": "string", **options, "description": description}


def number(description: str, **options: object) -> Schema:
    """Return the schema for a number property."""
    return {"type": "number", **options, "description": description}


def flag(description: str, **options: object) -> Schema:
    """Return the schema for a boolean property."""
    return {"type": "boolean", **options, "description": description}


TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
TEXTS: Schema = {"type": "array", "items": TEXT}
