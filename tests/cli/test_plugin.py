"""`toolspan plugin`: the MCP server and the skill of a client, and back."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import rows, run

FILES = {"claude": ".claude.json", "codex": ".codex/config.toml", "gemini": ".gemini/settings.json",
         "opencode": ".config/opencode/opencode.json"}  # fmt: skip
BEFORE = {
    "claude": [None, b"", b'{"mcpServers":{"a":{"command":"x"}},"n":1}', b'{\n\t"theme": "dark"\n}'],
    "codex": [None, b"", b'model = "m"', b'model = "m"\n[mcp_servers.a]\ncommand = "x"\n', b"\xef\xbb\xbfa = 1\r\n"],
    "gemini": [None, b'{"ui": {"theme": "x"}}\n'],
    "opencode": [None, b'{"$schema": "s", "mcp": {}}\n'],
}
CASES = [(client, before) for client, contents in BEFORE.items() for before in contents]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def servers(client: str, data: bytes) -> dict[str, Any]:
    if client == "codex":
        return dict(tomllib.loads(data.decode("utf-8-sig"))["mcp_servers"])
    return dict(json.loads(data)["mcp" if client == "opencode" else "mcpServers"])


def tree(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*")
            if path.is_file() and ".local" not in path.parts}  # fmt: skip


@pytest.mark.parametrize(("client", "before"), CASES)
def test_uninstall_restores_every_file_byte_for_byte(home: Path, client: str, before: bytes | None) -> None:
    file = home / FILES[client]
    if before is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(before)
    start = tree(home)

    run("plugin", "install", "--client", client, "--yes")
    server = servers(client, file.read_bytes())["toolspan-history"]
    assert "--history" in json.dumps(server)
    assert "toolspan-history" in next(iter(home.rglob("SKILL.md"))).read_text(encoding="utf-8")
    installed = tree(home)
    assert "already" in run("plugin", "install", "--client", client, "--yes").output
    assert tree(home) == installed

    run("plugin", "uninstall", "--client", client, "--yes")
    assert tree(home) == start


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_changes_since_the_installation_are_kept(home: Path, client: str) -> None:
    run("plugin", "install", "--client", client, "--yes")
    file = home / FILES[client]
    data = file.read_bytes()
    changed = data + b'[mcp_servers.b]\ncommand = "b"\n' if client == "codex" else data.replace(b"{", b'{"n": 1, ', 1)
    file.write_bytes(changed)

    assert "kept" in run("plugin", "uninstall", "--client", client, "--yes").output
    rest = file.read_bytes()
    assert b"toolspan" not in rest
    assert (b'"n": 1' if client == "claude" else b'command = "b"') in rest


def test_nothing_changes_without_confirmation(home: Path) -> None:
    (home / ".claude").mkdir()

    shown = run("plugin", "install", code=1)
    assert "+description: Look into" in shown.output
    assert [row["changed"] for row in rows(run("plugin", "install", "--json", code=1))] == [False, False]
    assert tree(home) == {}


def test_a_file_that_is_not_valid_is_left_alone(home: Path) -> None:
    (home / ".claude.json").write_bytes(b"{nonsense")

    assert "left unchanged" in run("plugin", "install", "--client", "claude", "--yes", code=2).output
    assert tree(home) == {".claude.json": b"{nonsense"}


def test_a_failure_undoes_the_changes_before_it(home: Path) -> None:
    (home / ".claude").mkdir()
    (home / ".claude/skills").write_bytes(b"a file in the way")
    start = tree(home)

    run("plugin", "install", "--client", "claude", "--yes", code=2)
    assert tree(home) == start


def test_a_project_has_its_own_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = home / "project"
    project.mkdir()
    monkeypatch.chdir(project)

    run("plugin", "install", "--client", "claude", "--project", "--yes")
    assert set(tree(project)) == {".mcp.json", ".claude/skills/toolspan-history/SKILL.md"}


def test_the_folder_is_a_plug_in_with_a_server_and_a_skill(home: Path) -> None:
    run("plugin", "write", home / "plugin")
    names = set(tree(home / "plugin"))
    assert names == {
        ".claude-plugin/plugin.json", ".claude-plugin/marketplace.json", ".mcp.json", "skills/toolspan-history/SKILL.md"
    }  # fmt: skip
    assert "not empty" in run("plugin", "write", home / "plugin", code=2).output


def test_status_says_which_clients_have_it(home: Path) -> None:
    run("plugin", "install", "--client", "gemini", "--yes")

    states = {row["client"]: row["installed"] for row in rows(run("plugin", "status", "--json"))}
    assert states == {"claude": False, "codex": False, "gemini": True, "opencode": False}
