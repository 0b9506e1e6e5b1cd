"""Validation errors: the text for the model and the recorded form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.requirement import requirement
from toolspan.runtime.profiles import VERSIONS, Version, profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.schema.issues import (
    Invalid,
    InvalidInputText,
    Issue,
    explain_issues,
    explain_unparsed,
    format_path,
    unparsed_input,
    unparsed_text,
)

TEXT = {"type": "string"}
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "place": TEXT,
        "text": TEXT,
        "count": {"type": "integer", "minimum": 1},
        "mode": {"type": "string", "enum": ["short", "long"]},
        "link": {"type": "string", "format": "uri"},
        "steps": {
            "type": "array",
            "maxItems": 2,
            "items": {"type": "object", "properties": {"name": TEXT}, "required": ["name"]},
        },
        "state": {"anyOf": [{"type": "string", "enum": ["on", "off"]}, {"const": "gone"}]},
    },
    "required": ["place"],
    "additionalProperties": False,
}
LATEST: Version = "2.1.327"
OLDEST: Version = "2.0.65"


def explanation(version: str, **fields: object) -> InvalidInputText:
    result = compile_checker(SCHEMA, coerce=True)(fields)
    assert isinstance(result, Invalid)
    return explain_issues("Plant", result, style=profile(version).issues)


def recorded(version: str, **fields: object) -> Any:
    record = explanation(version, **fields).record
    head, _, body = record.partition(": ")
    assert head == "InputValidationError"
    issues = json.loads(body)
    assert body == json.dumps(issues, indent=2)
    return issues


@requirement("input.sentences")
@pytest.mark.parametrize("version", VERSIONS)
def test_one_issue_is_one_sentence(version: str) -> None:
    assert explanation(version).text == (
        "InputValidationError: Plant failed due to the following issue:\nThe required parameter `place` is missing"
    )
    assert explanation(version, place="a", x=1).text.splitlines()[1:] == ["An unexpected parameter `x` was provided"]
    assert explanation(version, place=["a"]).text.splitlines()[1:] == [
        "The parameter `place` type is expected as `string` but provided as `array`"
    ]


@requirement("input.sentences")
@pytest.mark.parametrize("version", VERSIONS)
def test_several_issues_list_missing_ones_first(version: str) -> None:
    assert explanation(version, count="many", x=1, y=2, steps=[{}]).text == (
        "InputValidationError: Plant failed due to the following issues:\n"
        "The required parameter `place` is missing\n"
        "The required parameter `steps[0].name` is missing\n"
        "An unexpected parameter `x` was provided\n"
        "An unexpected parameter `y` was provided\n"
        "The parameter `count` type is expected as `number` but provided as `string`"
    )


@requirement("input.sentences")
def test_issues_without_a_sentence_are_shown_as_recorded() -> None:
    for version in VERSIONS:
        only = explanation(version, place="a", mode="tall")
        assert only.text == only.record

    beside = {version: explanation(version, mode="tall").text.splitlines()[1:] for version in VERSIONS}
    assert beside["2.0.65"] == ["The required parameter `place` is missing"]
    assert beside[LATEST] == [
        "The required parameter `place` is missing",
        'The parameter `mode` is invalid: Invalid option: expected one of "short"|"long"',
    ]


@requirement("input.issue-json")
def test_issues_are_recorded_as_zod_4_writes_them() -> None:
    assert recorded(LATEST, count="many", x=1) == [
        {
            "expected": "string",
            "code": "invalid_type",
            "path": ["place"],
            "message": "Invalid input: expected string, received undefined",
        },
        {
            "expected": "number",
            "code": "invalid_type",
            "path": ["count"],
            "message": "Invalid input: expected number, received string",
        },
        {"code": "unrecognized_keys", "keys": ["x"], "path": [], "message": 'Unrecognized key: "x"'},
    ]
    (enum,) = recorded(LATEST, place="a", mode="tall")
    assert list(enum.items()) == [
        ("code", "invalid_value"),
        ("values", ["short", "long"]),
        ("path", ["mode"]),
        ("message", 'Invalid option: expected one of "short"|"long"'),
    ]
    assert recorded(LATEST, place="a", link="x") == [
        {"code": "invalid_format", "format": "url", "path": ["link"], "message": "Invalid URL"}
    ]


@requirement("input.issue-json")
def test_issues_are_recorded_as_zod_3_writes_them() -> None:
    assert recorded(OLDEST, count="many", x=1, y=2) == [
        {
            "code": "invalid_type",
            "expected": "string",
            "received": "undefined",
            "path": ["place"],
            "message": "Required",
        },
        {
            "code": "invalid_type",
            "expected": "number",
            "received": "string",
            "path": ["count"],
            "message": "Expected number, received string",
        },
        {
            "code": "unrecognized_keys",
            "keys": ["x", "y"],
            "path": [],
            "message": "Unrecognized key(s) in object: 'x', 'y'",
        },
    ]
    (enum,) = recorded(OLDEST, place="a", mode="tall")
    assert list(enum.items()) == [
        ("received", "tall"),
        ("code", "invalid_enum_value"),
        ("options", ["short", "long"]),
        ("path", ["mode"]),
        ("message", "Invalid enum value. Expected 'short' | 'long', received 'tall'"),
    ]
    assert recorded(OLDEST, place="a", link="x") == [
        {"validation": "url", "code": "invalid_string", "message": "Invalid url", "path": ["link"]}
    ]


@requirement("input.issue-json")
def test_several_unknown_keys_are_one_record() -> None:
    (record,) = recorded(LATEST, place="a", x=1, y=2)

    assert record["keys"] == ["x", "y"]
    assert record["message"] == 'Unrecognized keys: "x", "y"'


@requirement("input.issue-json")
def test_bounds_are_recorded() -> None:
    (small,) = recorded(LATEST, place="a", count=0)
    (too_many,) = recorded(LATEST, place="a", steps=[{"name": "a"}] * 3)
    (old_small,) = recorded(OLDEST, place="a", count=0)
    (old_many,) = recorded(OLDEST, place="a", steps=[{"name": "a"}] * 3)

    assert small["message"] == "Too small: expected number to be >=1"
    assert too_many["message"] == "Too big: expected array to have <=2 items"
    assert old_small["message"] == "Number must be greater than or equal to 1"
    assert old_many["message"] == "Array must contain at most 2 element(s)"


@requirement("input.issue-json")
def test_fractional_count_is_not_an_integer() -> None:
    (new,) = recorded(LATEST, place="a", count=1.5)
    (old,) = recorded(OLDEST, place="a", count=1.5)

    assert (new["expected"], new["format"]) == ("int", "safeint")
    assert old["message"] == "Expected integer, received float"


@requirement("input.issue-json")
def test_alternatives_are_recorded_with_the_issues_of_each() -> None:
    (new,) = recorded(LATEST, place="a", state="maybe")
    (old,) = recorded(OLDEST, place="a", state="maybe")

    assert [branch[0]["message"] for branch in new["errors"]] == [
        'Invalid option: expected one of "on"|"off"',
        'Invalid input: expected "gone"',
    ]
    assert new["errors"][0][0]["path"] == []
    assert [branch["issues"][0]["path"] for branch in old["unionErrors"]] == [["state"]] * 2


@requirement("input.issue-json")
def test_issue_without_a_client_code_is_recorded_as_custom() -> None:
    invalid = Invalid((Issue("other", ("when",), "is in the past"),))

    assert explain_issues("Plan", invalid, style=profile().issues).record == (
        'InputValidationError: [\n  {\n    "code": "custom",\n    "path": [\n      "when"\n    ],\n'
        '    "message": "is in the past"\n  }\n]'
    )


@requirement("input.unparsed")
def test_input_that_is_not_json_is_shown_with_its_first_bytes() -> None:
    carried = unparsed_input('{"place": "gard')

    assert carried == {"__unparsedToolInput": {"raw": '{"place": "gard', "len": 15}}
    assert unparsed_text(carried) == '{"place": "gard'
    assert unparsed_text({"place": "garden"}) is None
    text = explain_unparsed("Plant", '{"place": "gard')
    assert text.text.startswith(
        "InputValidationError: Plant was called with input that could not be parsed as JSON.\n"
        'You sent (first 15 of 15 bytes): {"place": "gard\n'
    )
    assert text.record == "InputValidationError: JSON parse failed (15 bytes)"


@requirement("input.unparsed")
def test_long_input_that_is_not_json_is_cut_between_characters() -> None:
    text = explain_unparsed("Plant", "é" * 10_000 + "x").text

    assert "(first 200 of 20001 bytes): " + "é" * 100 + "\n" in text


@requirement("input.sentences")
def test_path_is_written_as_in_programs() -> None:
    assert format_path(("steps", 0, "name")) == "steps[0].name"
