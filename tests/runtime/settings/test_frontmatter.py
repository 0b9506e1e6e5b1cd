"""The YAML heads of agents and skills."""

from __future__ import annotations

import pytest

from tests.requirement import requirement
from toolspan.runtime.settings.load import SettingsError, parse_frontmatter_fields, parse_frontmatter_hooks


@requirement("hooks.front-matter")
def test_hooks_block_is_read_as_in_a_settings_file() -> None:
    head = """\
name: doit
hooks:
  # what guards it
  PreToolUse:
    - matcher: "Bash|Edit"
      hooks:
        - type: command
          command: "./guard --x 'y'"   # why
          timeout: 2.5
        - type: command
          once: true
          args: []
          command: 'it''s'
  Stop:
  - hooks:
    -
      type: command
      command: |
        echo one
          echo a: b

        echo two
      async: false
    - { "type": "http", "url": "http://x/#y" }
tools: Read
"""
    assert parse_frontmatter_hooks(head) == {
        "PreToolUse": [
            {
                "matcher": "Bash|Edit",
                "hooks": [
                    {"type": "command", "command": "./guard --x 'y'", "timeout": 2.5},
                    {"type": "command", "once": True, "args": [], "command": "it's"},
                ],
            }
        ],
        "Stop": [
            {
                "hooks": [
                    {"type": "command", "command": "echo one\n  echo a: b\n\necho two", "async": False},
                    {"type": "http", "url": "http://x/#y"},
                ]
            }
        ],
    }


@requirement("hooks.front-matter")
@pytest.mark.parametrize(
    ("head", "block"),
    [
        ("name: x\n", None),
        ("", None),
        ("hooks:\n", None),
        ('hooks: {"Stop": []}\n', {"Stop": []}),
        ('"hooks":\n  Stop: []\n', {"Stop": []}),
        ("hooks:\n  Stop: ~\n", {"Stop": None}),
        ("hooks:\n  Stop: {a: b}\n", {"Stop": {"a": "b"}}),
        ("hooks:\n  3: 2024-01-01\n", {"3": "2024-01-01"}),
        ("description: Use when: asked\nhooks: {}\n", {}),
        ("hooks:\n  Stop: >\n    a\n    b\n", {"Stop": "a b"}),
        ("hooks:\n- a # b\n- 3\n", ["a", 3]),
    ],
)
def test_short_forms_of_a_hooks_block_are_read(head: str, block: object) -> None:
    assert parse_frontmatter_hooks(head) == block


@requirement("hooks.front-matter")
@pytest.mark.parametrize(
    "head",
    [
        'hooks:\n  Stop: "x\n',
        "hooks:\n  Stop: 'x\n",
        'hooks:\n  Stop: "x" y\n',
        "hooks:\n  Stop: *x\n",
        "hooks: &x\n  Stop: [*x]\n",
        "hooks:x\n",
        "hooks:\n  - a\n   b: c\n",
        "hooks:\n  words without a key\n",
        "hooks:\n    a: 1\n  b: 2\n",
    ],
)
def test_malformed_hooks_block_is_an_error(head: str) -> None:
    with pytest.raises(SettingsError, match="hooks: cannot be parsed"):
        parse_frontmatter_hooks(head)


@requirement("hooks.front-matter")
def test_values_that_need_quotes_in_yaml_are_read_without_them() -> None:
    head = """\
name: on
hooks:
  Stop: "not closed
description: Use when: asked
  or: needed
tools: *   # all of them
maxTurns: 7
"""

    assert parse_frontmatter_fields(head) == {
        "name": "on",
        "description": "Use when: asked or: needed",
        "tools": "*",
        "maxTurns": "7",
    }


@requirement("hooks.front-matter")
def test_error_names_the_line_of_the_file() -> None:
    with pytest.raises(ValueError, match="line 5 cannot be parsed: 'no key'"):
        parse_frontmatter_fields("name: a\nhooks:\n  Stop: []\nno key\n")


@requirement("hooks.front-matter")
@pytest.mark.parametrize("head", ["hooks: {}\nname: a\nhooks: {}\n", "{name: a, hooks: {}}\n", "? hooks\n: {}\n"])
def test_hooks_that_would_be_overlooked_are_an_error(head: str) -> None:
    with pytest.raises(ValueError, match="`hooks` cannot be parsed"):
        parse_frontmatter_fields(head)
