"""One settings file: its values and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.requirement import requirement
from toolspan.errors import SourceError
from toolspan.runtime.settings import SettingsError, load_settings
from toolspan.runtime.settings.load import CommandSpec, HandlerGroup, HttpSpec


def write_settings(tmp_path: Path, value: object) -> Path:
    path = tmp_path / "settings.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


@requirement("settings.read")
def test_settings_file_is_read_and_unknown_keys_are_ignored(tmp_path: Path) -> None:
    settings = load_settings(
        write_settings(
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

    assert settings.permissions.deny == ("Bash(rm *)",)
    assert settings.permissions.default_mode == "plan"
    assert settings.env == {"A": "x", "B": "1", "C": "true"}
    assert settings.switches.disable_all_hooks is True
    assert settings.hooks["PreToolUse"] == (
        HandlerGroup((CommandSpec(command="guard"),), "Bash"),
        HandlerGroup((HttpSpec(url="http://x.test/"),)),
    )


@requirement("settings.errors")
@pytest.mark.parametrize(
    ("value", "prefix"),
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
def test_invalid_value_is_reported_with_file_and_key(tmp_path: Path, value: object, prefix: str) -> None:
    path = write_settings(tmp_path, value)

    with pytest.raises(SettingsError) as raised:
        load_settings(path)

    assert str(raised.value).startswith(f"{path}: {prefix}")


@requirement("settings.errors")
@pytest.mark.parametrize("text", ["{", "[]", '"x"', "nul", "\ufeff{,}"])
def test_file_that_is_not_a_json_object_is_named(tmp_path: Path, text: str) -> None:
    path = write_settings(tmp_path, text)

    with pytest.raises(SourceError, match=r"settings\.json: "):
        load_settings(path)


@requirement("settings.read")
@pytest.mark.parametrize("text", ["", "  \n", "{}", "\ufeff{}"])
def test_empty_file_has_no_settings(tmp_path: Path, text: str) -> None:
    assert load_settings(write_settings(tmp_path, text)).hooks == {}
