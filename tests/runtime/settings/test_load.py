"""One settings file: what it says, and what is said of one that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.requirement import requirement
from toolspan.errors import SourceError
from toolspan.runtime.settings import SettingsError, load_settings
from toolspan.runtime.settings.load import CommandSpec, HandlerGroup, HttpSpec


def written(tmp_path: Path, value: object) -> Path:
    path = tmp_path / "settings.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


@requirement("settings.read")
def test_a_file_is_read_with_what_it_says_and_without_what_it_does_not(tmp_path: Path) -> None:
    found = load_settings(
        written(
            tmp_path,
            {
                "permissions": {"deny": ["Bash(rm *)"], "defaultMode": "plan"},
                "env": {"A": "x", "B": 1, "C": True},
                "hooks": {
                    "PreToolUse": [
                        {"matcher": "Bash", "hooks": [{"type": "command", "command": "guard"}]},
                        {"hooks": [{"type": "http", "url": "http://x.test/"}]},
                    ]
                },
                "disableAllHooks": True,
                "somethingNew": {"a": 1},
            },
        )
    )

    assert found.permissions.deny == ("Bash(rm *)",)
    assert found.permissions.default_mode == "plan"
    assert found.env == {"A": "x", "B": "1", "C": "true"}
    assert found.switches.disable_all_hooks is True
    assert found.hooks["PreToolUse"] == (
        HandlerGroup((CommandSpec(command="guard"),), "Bash"),
        HandlerGroup((HttpSpec(url="http://x.test/"),)),
    )


@requirement("settings.errors")
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"permissions": {"allow": [1]}}, "`permissions.allow[0]`"),
        ({"permissions": 3}, "`permissions`"),
        ({"env": {"A": []}}, "`env"),
        ({"disableAllHooks": "yes"}, "`disableAllHooks`"),
        ({"hooks": []}, "`hooks`"),
        ({"hooks": {"Stop": {}}}, "`hooks.Stop`"),
        ({"hooks": {"Stop": [{"hooks": [{"type": "command"}]}]}}, "`hooks.Stop[0].hooks[0]`"),
        ({"hooks": {"Stop": [{"hooks": [{"type": "magic"}]}]}}, "`hooks.Stop[0].hooks[0].type`"),
        ({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": 1}]}]}}, "`hooks.Stop[0].hooks[0].command`"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_key(tmp_path: Path, value: object, words: str) -> None:
    path = written(tmp_path, value)

    with pytest.raises(SettingsError) as raised:
        load_settings(path)

    assert str(raised.value).startswith(f"{path}: {words}")


@requirement("settings.errors")
@pytest.mark.parametrize("text", ["{", "[]", '"x"', "nul", "\ufeff{,}"])
def test_a_file_that_is_no_json_object_is_named(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)

    with pytest.raises(SourceError, match=r"settings\.json: "):
        load_settings(path)


@requirement("settings.read")
@pytest.mark.parametrize("text", ["", "  \n", "{}", "\ufeff{}"])
def test_an_empty_file_says_nothing(tmp_path: Path, text: str) -> None:
    assert load_settings(written(tmp_path, text)).hooks == {}
