"""Inputs against declared schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.requirement import requirement
from toolspan.errors import BadTool
from toolspan.runtime.schema.check import compile_checker, is_uri
from toolspan.runtime.schema.issues import Invalid, Valid

EDIT: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "file": {"type": "string"},
        "old": {"type": "string"},
        "everywhere": {"type": "boolean", "default": False},
        "limit": {"type": "integer", "exclusiveMinimum": 0},
    },
    "required": ["file", "old"],
    "additionalProperties": False,
}


def taken(schema: Mapping[str, Any], value: Mapping[str, object], *, coerce: bool = False) -> Any:
    match compile_checker(schema, coerce=coerce)(value):
        case Valid(value=out, recorded=recorded):
            assert out == recorded
            return out
        case Invalid(issues):
            return [(issue.code, issue.path) for issue in issues]


def field(schema: Mapping[str, Any], value: object, *, coerce: bool = False) -> Any:
    shape = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    out = taken(shape, {"x": value}, coerce=coerce)
    return out["x"] if isinstance(out, dict) else out


@requirement("input.defaults-first")
def test_values_with_a_default_come_first_whether_given_or_not() -> None:
    absent = taken(EDIT, {"file": "a", "old": "b"})
    given_last = taken(EDIT, {"file": "a", "old": "b", "everywhere": True})

    assert list(absent.items()) == [("everywhere", False), ("file", "a"), ("old", "b")]
    assert list(given_last.items()) == [("everywhere", True), ("file", "a"), ("old", "b")]


def test_issues_come_in_schema_order_and_unknown_keys_last() -> None:
    result = taken(EDIT, {"nope": 1, "limit": 0, "file": 5, "also": 2})

    assert result == [
        ("type", ("file",)),
        ("missing", ("old",)),
        ("too_small", ("limit",)),
        ("unexpected", ("nope",)),
        ("unexpected", ("also",)),
    ]


@requirement("input.coerced")
@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "number"}, "2000", 2000),
        ({"type": "number"}, "-1.5", -1.5),
        ({"type": "integer"}, "7", 7),
        ({"type": "integer"}, "7.0", 7),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "false", False),
    ],
)
def test_numbers_and_booleans_are_parsed_from_strings_where_the_client_does(
    schema: Mapping[str, Any], text: str, value: object
) -> None:
    assert field(schema, text, coerce=True) == value
    assert field(schema, text, coerce=False) == [("type", ("x",))]


@requirement("input.coerced")
@pytest.mark.parametrize("text", ["", "abc", "yes", "True", "1e5", " 1", "٣", "9" * 5_000])
def test_other_strings_are_neither_numbers_nor_booleans(text: str) -> None:
    assert field({"type": "number"}, text, coerce=True) == [("type", ("x",))]
    assert field({"type": "boolean"}, text, coerce=True) == [("type", ("x",))]


@pytest.mark.parametrize(
    ("schema", "value", "code"),
    [
        ({"type": "string"}, None, "type"),
        ({"type": "number"}, True, "type"),
        ({"type": "number"}, float("nan"), "type"),
        ({"type": "integer"}, 1.5, "type"),
        ({"type": "integer"}, float("inf"), "type"),
        ({"type": "boolean"}, 1, "type"),
        ({"type": "array"}, "a", "type"),
        ({"type": "object"}, [], "type"),
        ({"type": "null"}, 0, "type"),
        ({"type": "string", "enum": ["a", "b"]}, "c", "value"),
        ({"type": "string", "const": "a"}, "b", "value"),
        ({"enum": [1, "b"]}, "c", "value"),
        ({"type": "number", "minimum": 1}, 0, "too_small"),
        ({"type": "number", "exclusiveMinimum": 1}, 1, "too_small"),
        ({"type": "number", "maximum": 1}, 2, "too_big"),
        ({"type": "number", "exclusiveMaximum": 1}, 1, "too_big"),
        ({"type": "string", "minLength": 1}, "", "too_small"),
        ({"type": "string", "maxLength": 1}, "ab", "too_big"),
        ({"type": "array", "minItems": 1}, [], "too_small"),
        ({"type": "array", "maxItems": 1}, [1, 2], "too_big"),
        ({"type": "string", "format": "uri"}, "not a url", "format"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, "union"),
    ],
)
def test_each_keyword_refuses_invalid_values(schema: Mapping[str, Any], value: object, code: str) -> None:
    assert field(schema, value) == [(code, ("x",))]


def test_undeclared_keys_are_kept_or_checked() -> None:
    assert taken({"type": "object"}, {"any": [1]}) == {"any": [1]}
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    assert taken(texts, {"a": "b", "c": 1}) == [("type", ("c",))]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "a+"},
        {"type": "array", "uniqueItems": True},
        {"type": ["string", "null"]},
        {"type": "date"},
        {"oneOf": []},
        {"type": "string", "minimum": 1},
    ],
)
def test_unsupported_schema_is_refused_when_it_is_compiled(schema: Mapping[str, Any]) -> None:
    with pytest.raises(BadTool, match=r"the schema\.x has .* cannot be checked"):
        compile_checker({"type": "object", "properties": {"x": schema}}, coerce=True)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("https://example.com/a?b=c", True),
        ("http://127.0.0.1:8000", True),
        ("mailto:dev@example.com", True),
        ("example.com", False),
        ("https://", False),
        ("http://[", False),
        ("", False),
    ],
)
def test_url_needs_a_scheme_and_a_host(text: str, fits: bool) -> None:
    assert is_uri(text) is fits


# Schemas with inputs that fit them, and faults planted at a known place

NAMES = st.text("abcdefgh_", min_size=1, max_size=6)
Case = tuple[dict[str, Any], Any]


def leaves() -> st.SearchStrategy[Case]:
    return st.one_of(
        st.tuples(st.just({"type": "string"}), st.text(max_size=5)),
        st.tuples(st.just({"type": "number"}), st.floats(allow_nan=False, allow_infinity=False)),
        st.tuples(st.just({"type": "integer"}), st.integers()),
        st.tuples(st.just({"type": "boolean"}), st.booleans()),
        st.tuples(st.just({"type": "string", "enum": ["a", "b"]}), st.sampled_from("ab")),
        st.integers(-5, 5).flatmap(
            lambda low: st.tuples(
                st.just({"type": "integer", "minimum": low, "maximum": low + 3}), st.integers(low, low + 3)
            )
        ),
    )


def arrays(items: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    return items.map(lambda item: ({"type": "array", "items": item[0]}, [item[1], item[1]]))


def objects(fields: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    return st.dictionaries(NAMES, fields, min_size=1, max_size=4).map(
        lambda result: (
            {
                "type": "object",
                "properties": {name: item[0] for name, item in result.items()},
                "required": list(result),
                "additionalProperties": False,
            },
            {name: item[1] for name, item in result.items()},
        )
    )


CASES = objects(st.recursive(leaves(), lambda inner: arrays(inner) | objects(inner), max_leaves=6))


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    result = [] if path == () else [path]
    for step, item in inner:
        result += places(item, (*path, step))
    return result


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def changed(value: Any, path: tuple[str | int, ...], fault: Any) -> Any:
    if not path:
        return fault
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    if fault is ... and len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(value[path[0]], path[1:], fault)
    return copy


@given(CASES, st.booleans())
def test_valid_input_is_accepted_unchanged(case: Case, coerce: bool) -> None:
    schema, value = case

    assert taken(schema, value, coerce=coerce) == value


@given(CASES, st.data())
def test_planted_fault_is_found_at_its_path_and_nothing_else(case: Case, data: st.DataObject) -> None:
    schema, value = case
    path = data.draw(st.sampled_from(places(value)))

    wrong = taken(schema, changed(value, path, None))
    assert wrong in ([("type", path)], [("value", path)])


@given(CASES, st.data())
def test_removed_key_is_missing_and_added_key_is_unknown(case: Case, data: st.DataObject) -> None:
    schema, value = case
    path = data.draw(st.sampled_from([candidate for candidate in places(value) if isinstance(candidate[-1], str)]))
    beside = (*path[:-1], "ZZ")

    (missed,) = taken(schema, changed(value, path, ...))
    assert missed[0] in ("missing", "value")
    assert missed[1] == path
    more = {**at(value, path[:-1]), "ZZ": 1}
    assert taken(schema, changed(value, path[:-1], more)) == [("unexpected", beside)]


@given(
    CASES,
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
)
def test_no_input_makes_the_check_raise(case: Case, anything: Any) -> None:
    assert isinstance(compile_checker(case[0], coerce=True)(anything), Valid | Invalid)
