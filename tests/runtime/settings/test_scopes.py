"""Settings files: values, errors, precedence, and trust in a project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.runtime.permissions.requests import make_request
from toolspan.errors import SourceError
from toolspan.integrations.host_settings import HostSettings
from toolspan.runtime.profiles import profile
from toolspan.runtime.settings import (
    MergedSettings,
    SettingsError,
    SettingsPaths,
    TrustStore,
    build_trust_request,
    load_layers,
    load_settings,
    merge_settings,
)
from toolspan.runtime.settings.load import CommandSpec, HandlerGroup, HttpSpec, parse_settings
from toolspan.types.decision import Deny


def make_paths(tmp_path: Path) -> SettingsPaths:
    for name in ("project", "user", "managed"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    return SettingsPaths(project=tmp_path / "project", user=tmp_path / "user", managed=tmp_path / "managed")


def write(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def hook(line: str) -> dict[str, object]:
    return {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": line}]}]}}


def write_scopes(tmp_path: Path, **files: object) -> SettingsPaths:
    paths = make_paths(tmp_path)
    files_by_scope = {
        "managed": paths.managed / "managed-settings.json",
        "local": paths.project / ".claude/settings.local.json",
        "project": paths.project / ".claude/settings.json",
        "user": paths.user / "settings.json",
    }
    for name, value in files.items():
        write(files_by_scope[name], value)
    return paths


def commands(merged: MergedSettings) -> list[str]:
    return [str(getattr(handler, "command", None)) for item in merged.hooks for handler in item.group.hooks]


def test_single_values_come_from_the_strongest_file_and_rules_are_joined(tmp_path: Path) -> None:
    paths = write_scopes(
        tmp_path,
        managed={"permissions": {"deny": ["A"]}, "env": {"X": "managed"}},
        local={"permissions": {"deny": ["B"], "defaultMode": "plan"}, "env": {"X": "l", "Y": "l"}},
        project={"permissions": {"allow": ["C"], "defaultMode": "acceptEdits"}},
        user={"permissions": {"allow": ["D"], "ask": ["E"]}, "env": {"Z": "user"}},
    )

    merged = merge_settings(load_layers(paths), trusted=True)

    assert merged.permissions.deny == ("A", "B")
    assert merged.permissions.allow == ("C", "D")
    assert merged.permissions.ask == ("E",)
    assert merged.permissions.default_mode == "plan"
    assert merged.env == {"X": "managed", "Y": "l", "Z": "user"}
    assert [layer.scope for layer in merged.layers] == ["managed", "local", "project", "user"]


@pytest.mark.parametrize("scope", ["project", "local", "user", "named"])
def test_a_project_cannot_make_bypass_permissions_the_default(tmp_path: Path, scope: str) -> None:
    name = "project" if scope == "named" else scope
    paths = write_scopes(tmp_path, **{name: {"permissions": {"defaultMode": "bypassPermissions"}}})
    named = paths.project / ".claude/settings.json" if scope == "named" else None

    merged = merge_settings(load_layers(paths, named=named), trusted=True)

    assert merged.permissions.default_mode == ("bypassPermissions" if scope == "user" else "default")


@pytest.mark.parametrize("mode", ["bypassPermissions", "auto"])
@pytest.mark.parametrize(("scope", "lower"), [("project", "user"), ("local", "user"), ("local", "project")])
def test_a_default_mode_that_a_project_cannot_set_hides_that_of_lower_files(
    tmp_path: Path, scope: str, lower: str, mode: str
) -> None:
    files = {scope: {"permissions": {"defaultMode": mode}}, lower: {"permissions": {"defaultMode": "acceptEdits"}}}

    merged = merge_settings(load_layers(write_scopes(tmp_path, **files)), trusted=True)

    assert merged.permissions.default_mode == "default"


@pytest.mark.parametrize(("scope", "denied"), [("managed", "project"), ("local", "project"), ("user", "user")])
def test_a_leading_slash_in_a_rule_of_an_administrator_means_the_project(
    tmp_path: Path, scope: str, denied: str
) -> None:
    paths = write_scopes(tmp_path, **{scope: {"permissions": {"deny": ["Read(/a.txt)"]}}})
    settings = HostSettings(merge_settings(load_layers(paths), trusted=True), paths, {})

    rules = settings.permission_rules(profile("2.1.327"))

    for folder in ("project", "user", "managed"):
        request = make_request("Read", paths.project, file_path=str(tmp_path / folder / "a.txt"))
        assert isinstance(rules(request), Deny) is (folder == denied)


@pytest.mark.parametrize("mode", ["", None, 5, "Default", "delegate"])
def test_an_unknown_default_mode_is_an_error(mode: object) -> None:
    with pytest.raises(SettingsError, match=r"x: `permissions\.defaultMode` must be one of default, a"):
        parse_settings({"permissions": {"defaultMode": mode}}, "x")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model", 5, "`model` must be a string, not a number"), ("verbose", "x", "`verbose` must be a boolean"),
        ("cleanupPeriodDays", True, "`cleanupPeriodDays` must be a number, not a boolean"),
        ("statusLine", "x", "`statusLine` must be an object"), ("availableModels", "x", "must be a list, not a string"),
        ("statusLine", {"type": "command"}, "`statusLine`: Object missing required field `command`"),
        ("fileSuggestion", {"type": "x", "command": "x"}, r"`fileSuggestion\.type`: Invalid enum value 'x'"),
        ("cleanupPeriodDays", 0, "`cleanupPeriodDays`: Expected"), ("cleanupPeriodDays", 1.5, "multiple of 1"),
        ("forceLoginOrgUUID", 5, "`forceLoginOrgUUID`: Expected"), ("enabledPlugins", {"a": "x"}, "Expected `bool"),
        ("attribution", {"commit": 5}, "Expected `str`, got `int`"), ("availableModels", [5], "Expected `str`"),
        ("autoUpdatesChannel", "beta", "Invalid enum value 'beta'"), ("minimumVersion", 5, "Expected `str`, got `int`"),
        ("skipWebFetchPreflight", "x", "Expected `bool`"), ("strictKnownMarketplaces", "x", "Expected `array`"),
        ("disableAllHooks", None, "`disableAllHooks` must not be null"),
    ],
)  # fmt: skip
def test_a_key_of_the_client_with_another_type_is_an_error(key: str, value: object, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse_settings({"permissions": {"allow": ["Bash"]}, key: value}, "x")


@pytest.mark.parametrize("key", ["disableBypassPermissionsMode", "disableAutoMode"])
@pytest.mark.parametrize("value", ["enable", "DISABLE", None, ""])
def test_a_mode_can_only_be_disabled(key: str, value: object) -> None:
    with pytest.raises(SettingsError, match=f'`permissions.{key}` must be "disable", or missing'):
        parse_settings({"permissions": {key: value}}, "x")


def test_valid_values_of_keys_of_the_client_are_accepted() -> None:
    values = {
        "statusLine": {"type": "command", "command": "x", "padding": 0}, "cleanupPeriodDays": 30.0, "agent": "x",
        "forceLoginOrgUUID": ["x"], "enabledPlugins": {"a": True, "b": ["1"]}, "autoUpdatesChannel": "rc",
        "attribution": {"commit": "", "other": 5}, "availableModels": ["x"], "strictKnownMarketplaces": [],
    }  # fmt: skip

    assert parse_settings(values, "x").permissions.allow == ()


def test_hooks_of_all_files_are_merged_with_their_scope(tmp_path: Path) -> None:
    paths = write_scopes(tmp_path, managed=hook("m"), project=hook("p"), user=hook("u"))

    merged = merge_settings(load_layers(paths), trusted=True)

    assert [(item.scope, item.point) for item in merged.hooks] == [
        ("managed", "Stop"),
        ("project", "Stop"),
        ("user", "Stop"),
    ]


def test_named_project_file_is_loaded_once_and_trusted(tmp_path: Path) -> None:
    paths = write_scopes(tmp_path, project=hook("p"))

    layers = load_layers(paths, named=paths.project / ".claude" / "settings.json")

    assert [layer.scope for layer in layers] == ["command_line"]
    assert commands(merge_settings(layers, trusted=False)) == ["p"]


def test_all_hooks_but_managed_ones_can_be_disabled(tmp_path: Path) -> None:
    off = {"disableAllHooks": True}
    paths = write_scopes(tmp_path, managed=hook("m"), local=off, user=hook("u"))

    assert commands(merge_settings(load_layers(paths), trusted=True)) == ["m"]


def test_managed_settings_can_restrict_hooks_and_rules_to_their_own(tmp_path: Path) -> None:
    only = {"allowManagedHooksOnly": True, "allowManagedPermissionRulesOnly": True}
    rules = {"permissions": {"allow": ["A"]}}
    paths = write_scopes(tmp_path, managed={**hook("m"), **only}, user={**hook("u"), **rules, **only})

    merged = merge_settings(load_layers(paths), trusted=True)

    assert (commands(merged), merged.permissions.allow) == (["m"], ())
    write(paths.managed / "managed-settings.json", hook("m"))
    merged = merge_settings(load_layers(paths), trusted=True)
    assert (commands(merged), merged.permissions.allow) == (["m", "u"], ("A",))


@requirement("settings.trust")
def test_untrusted_project_can_only_deny_and_ask(tmp_path: Path) -> None:
    wishes = {
        **hook("p"),
        "env": {"LD_PRELOAD": "x"},
        "permissions": {
            "allow": ["Bash"],
            "deny": ["Write"],
            "ask": ["Read"],
            "defaultMode": "bypassPermissions",
            "additionalDirectories": ["/"],
        },
        "disableAllHooks": True,
    }
    paths = write_scopes(tmp_path, project=wishes, user=hook("u"))

    merged = merge_settings(load_layers(paths), trusted=False)

    assert commands(merged) == ["u"]
    assert merged.env == {}
    rules = merged.permissions
    assert (rules.allow, rules.deny, rules.ask) == ((), ("Write",), ("Read",))
    assert (rules.default_mode, rules.additional_directories) == (None, ())
    assert {path.name: list(keys) for path, keys in merged.untrusted_keys.items()} == {
        "settings.json": [
            "hooks", "env", "permissions.allow", "permissions.defaultMode", "permissions.additionalDirectories",
            "disableAllHooks",
        ]
    }  # fmt: skip


@requirement("settings.trust")
def test_any_change_of_a_trust_request_revokes_the_trust(tmp_path: Path) -> None:
    paths = write_scopes(tmp_path, project={**hook("p"), "model": "x"})
    store = TrustStore(tmp_path / "state" / "trust.json")

    def trusted() -> bool:
        return store.is_trusted(build_trust_request(paths, load_layers(paths)))

    settings_file = paths.project / ".claude" / "settings.json"
    assert not trusted()
    store.accept(build_trust_request(paths, load_layers(paths)))
    assert trusted()
    write(settings_file, {"model": "another", **hook("p")})
    assert trusted()  # nothing that could run has changed
    write(settings_file, hook("q"))
    assert not trusted()
    write(settings_file, hook("p"))
    assert trusted()
    write(paths.mcp_file, {"mcpServers": {"x": {"command": "evil"}}})
    assert not trusted()
    paths.mcp_file.unlink()
    write(paths.project / ".claude" / "settings.local.json", {"permissions": {"allow": ["Bash"]}})
    assert not trusted()


@requirement("settings.trust")
def test_empty_trust_request_needs_no_trust(tmp_path: Path) -> None:
    paths = write_scopes(tmp_path, project={"permissions": {"deny": ["Bash"]}, "model": "x"})

    assert TrustStore(tmp_path / "none.json").is_trusted(build_trust_request(paths, load_layers(paths)))


@requirement("settings.trust")
@pytest.mark.parametrize("text", ["{", "[]", '{"folders": 3}'])
def test_unreadable_trust_store_trusts_no_folder(tmp_path: Path, text: str) -> None:
    paths = write_scopes(tmp_path, project=hook("p"))
    store = TrustStore(tmp_path / "trust.json")
    store.path.write_text(text, encoding="utf-8")
    request = build_trust_request(paths, load_layers(paths))

    assert not store.is_trusted(request)
    with pytest.raises(SourceError):
        store.accept(request)


@requirement("settings.trust")
def test_trust_in_one_folder_does_not_extend_to_another(tmp_path: Path) -> None:
    first = write_scopes(tmp_path / "one", project=hook("p"))
    other = write_scopes(tmp_path / "other", project=hook("p"))
    store = TrustStore(tmp_path / "trust.json")
    store.accept(build_trust_request(first, load_layers(first)))

    assert not store.is_trusted(build_trust_request(other, load_layers(other)))
    assert store.revoke(first.project)
    assert not store.is_trusted(build_trust_request(first, load_layers(first)))


def write_settings(tmp_path: Path, value: object) -> Path:
    path = tmp_path / "settings.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


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


@pytest.mark.parametrize("text", ["{", "[]", '"x"', "nul", "\ufeff{,}"])
def test_file_that_is_not_a_json_object_is_named(tmp_path: Path, text: str) -> None:
    path = write_settings(tmp_path, text)

    with pytest.raises(SourceError, match=r"settings\.json: "):
        load_settings(path)


@pytest.mark.parametrize("text", ["", "  \n", "{}", "\ufeff{}"])
def test_empty_file_has_no_settings(tmp_path: Path, text: str) -> None:
    assert load_settings(write_settings(tmp_path, text)).hooks == {}
