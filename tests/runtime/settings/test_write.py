"""Adding permissions to settings files."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from toolspan.errors import ToolspanError
from toolspan.runtime.settings import (
    SettingsPaths,
    TrustStore,
    add_permissions,
    build_trust_request,
    change_local_settings,
    load_layers,
)


def test_permissions_are_appended_and_nothing_else_changes(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    others = {"z": 123456789012345678901234567890, "a": [1.5, None, "é"], "env": {"K": "v"}}
    before = {**others, "permissions": {"deny": ["X"], "allow": ["Read"], "strange": 1}}
    path.write_text("\ufeff" + json.dumps(before), encoding="utf-8")
    path.chmod(0o640)

    first = add_permissions(path, allow=["Bash(ls:*)", "Read"], folders=["/srv"])
    second = add_permissions(path, allow=["Read"], folders=["/srv"])

    assert (first, second) == (True, False)
    after = json.loads(path.read_text(encoding="utf-8"))
    assert after == {
        **others,
        "permissions": {
            "deny": ["X"],
            "allow": ["Read", "Bash(ls:*)"],
            "strange": 1,
            "additionalDirectories": ["/srv"],
        },
    }
    assert list(after) == [*others, "permissions"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["settings.json"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('{"permissions": ', "not JSON"),
        ("[]", "expected an object"),
        ('{"permissions": []}', "`permissions` must be an object, not a list"),
        ('{"permissions": {"allow": "Read"}}', "`permissions.allow` must be a list, not a string"),
    ],
)
def test_invalid_file_is_left_unchanged(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ToolspanError, match=word.replace(".", r"\.")):
        add_permissions(path, allow=["Read"])

    assert path.read_text(encoding="utf-8") == text


def test_symbolic_link_cannot_lead_a_write_out_of_the_project(tmp_path: Path) -> None:
    outside = tmp_path / "mine.json"
    outside.write_text("{}", encoding="utf-8")
    link = tmp_path / "project/.claude/settings.local.json"
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)

    with pytest.raises(ToolspanError, match="outside the project"):
        add_permissions(link, allow=["Read"], within=tmp_path / "project")
    add_permissions(link, allow=["Edit"])

    assert json.loads(outside.read_text(encoding="utf-8"))["permissions"]["allow"] == ["Edit"]
    assert link.is_symlink()


_WRITER = """
import sys
from pathlib import Path
from toolspan.runtime.settings import add_permissions
for number in range(20):
    add_permissions(Path(sys.argv[1]), allow=[f"Tool{sys.argv[2]}x{number}"])
"""


def test_concurrent_writers_lose_no_rules(tmp_path: Path) -> None:
    path = tmp_path / "new" / "settings.json"
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(path), str(number)]) for number in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]

    rules = json.loads(path.read_text(encoding="utf-8"))["permissions"]["allow"]
    assert sorted(rules) == sorted(f"Tool{w}x{n}" for w in range(3) for n in range(20))


def test_trusted_folder_stays_trusted_after_the_user_adds_a_rule(tmp_path: Path) -> None:
    paths = SettingsPaths(project=tmp_path / "p", user=tmp_path / "u", managed=tmp_path / "m")
    store = TrustStore(tmp_path / "trust.json")

    def add(rule: str, hook: str | None = None) -> bool:
        def change() -> None:
            add_permissions(paths.local_file, allow=[rule])
            if hook is not None:
                (paths.local_file.parent / "settings.json").write_text(hook, encoding="utf-8")

        return change_local_settings(paths, store, change)

    hook = '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "evil"}]}]}}'
    first = add("Read")
    meanwhile = add("Edit", hook)
    later = add("Bash")
    store.accept(build_trust_request(paths, load_layers(paths, scopes=("project", "local"))))
    second = add("Glob")

    assert (first, meanwhile, later, second) == (True, False, False, True)
