"""Adding entries to a settings file changes nothing else in it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolspan.runtime.settings.extend import extend_list

KEYS = ("permissions", "allow")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "permissions": {\n    "allow": [\n      "X"\n    ]\n  }\n}\n'),
        ("{}", '{\n  "permissions": {\n    "allow": [\n      "X"\n    ]\n  }\n}'),
        ('{"permissions": {"allow": ["A"]}}', '{"permissions": {"allow": ["A", "X"]}}'),
        ('{"permissions":{"allow":["A","B"]}}', '{"permissions":{"allow":["A","B", "X"]}}'),
        (
            '{\r\n\t"permissions": {\r\n\t\t"allow": [\r\n\t\t\t"A"\r\n\t\t]\r\n\t}\r\n}\r\n',
            '{\r\n\t"permissions": {\r\n\t\t"allow": [\r\n\t\t\t"A",\r\n\t\t\t"X"\r\n\t\t]\r\n\t}\r\n}\r\n',
        ),
        (
            '{\n    "a":   1.50,\n    "permissions": {\n        "allow": []\n    }\n}',
            '{\n    "a":   1.50,\n    "permissions": {\n        "allow": [\n            "X"\n        ]\n    }\n}',
        ),
        (
            '{"permissions": {"allow": ["lost"]}, "permissions": {"allow": ["A"]}}',
            '{"permissions": {"allow": ["lost"]}, "permissions": {"allow": ["A", "X"]}}',
        ),
    ],
)
def test_an_entry_is_added_in_the_style_of_the_file(before: str, after: str) -> None:
    assert extend_list(before, KEYS, ["X"]) == after


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
blocks = st.dictionaries(st.sampled_from(["deny", "x"]), values, max_size=2)


@given(
    others=st.dictionaries(st.text(max_size=6), values, max_size=3),
    block=st.none() | blocks,
    allow=st.none() | st.lists(st.text(max_size=6), max_size=3),
    indent=st.sampled_from([None, 1, 4, "\t"]),
    entries=st.lists(st.text(max_size=6), min_size=1, max_size=3),
)
def test_only_the_list_changes(
    others: dict[str, object],
    block: dict[str, object] | None,
    allow: list[str] | None,
    indent: int | str | None,
    entries: list[str],
) -> None:
    others.pop("permissions", None)
    settings = dict(others)
    if block is not None:
        settings["permissions"] = block if allow is None else {**block, "allow": allow}
    text = json.dumps(settings, indent=indent)

    extended = extend_list(text, KEYS, entries)

    before = allow if block is not None and allow is not None else []
    assert json.loads(extended) == {**others, "permissions": {**(block or {}), "allow": [*before, *entries]}}
    rest = iter(extended)
    assert all(letter in rest for letter in "".join(text.split()))
