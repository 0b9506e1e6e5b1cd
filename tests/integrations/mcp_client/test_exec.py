"""MCP server configurations, and `toolspan exec` with MCP servers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.fork_server import run_toolspan
from tests.integrations.mcp_client.connect import config
from tests.requirement import requirement
from toolspan.integrations.mcp_client import BadServers, McpServers
from toolspan.integrations.mcp_client.config import LocalServer, RemoteServer, load_servers, read_servers

pytestmark = pytest.mark.usefixtures("fork_server")

COMMAND = ["exec", "--permission-mode", "bypassPermissions"]


def run(
    folder: Path, *options: str, calls: list[tuple[str, dict[str, object]]]
) -> tuple[list[dict[str, object]], subprocess.CompletedProcess[str]]:
    lines = [
        {"content": [{"type": "tool_use", "id": f"c{number}", "name": name, "input": fields}]}
        for number, (name, fields) in enumerate(calls)
    ]
    stdin = "".join(json.dumps({"type": "assistant", "message": item}) + "\n" for item in lines)
    done = run_toolspan(*COMMAND, *options, cwd=folder, stdin=stdin)
    return [json.loads(line) for line in done.stdout.splitlines()], done


def servers(folder: Path, *habits: str) -> Path:
    path = folder / "mcp.json"
    path.write_text(json.dumps(config(folder / "log", *habits)), encoding="utf-8")
    return path


@requirement("mcp.exec")
def test_exec_connects_the_servers_of_a_file_and_records_their_calls(tmp_path: Path) -> None:
    transcript = tmp_path / "t.jsonl"
    rows, done = run(
        tmp_path,
        "--mcp-config",
        str(servers(tmp_path)),
        "--transcript",
        str(transcript),
        calls=[("mcp__chaos__structured", {}), ("mcp__chaos__change", {}), ("Bash", {})],
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert rows[0]["content"] == '{"n":3,"s":"é"}'
    assert rows[1]["content"] == [{"type": "text", "text": "changed"}]
    results = [json.loads(line) for line in transcript.read_text(encoding="utf-8").splitlines()]
    assert [result["mcpMeta"] for result in results if "mcpMeta" in result] == [
        {"structuredContent": {"n": 3, "s": "é"}}
    ]


@requirement("mcp.exec")
def test_exec_reports_unreachable_servers_and_continues(tmp_path: Path) -> None:
    rows, done = run(
        tmp_path,
        "--mcp-config",
        str(servers(tmp_path, "dead")),
        "--transcript",
        "none",
        calls=[("mcp__chaos__echo", {})],
    )

    assert done.returncode == 0
    assert "MCP server 'chaos': Connection closed (its last error output: no database)" in done.stderr
    assert rows[0]["error_kind"] == "unknown_tool"


def test_exec_refuses_an_invalid_configuration(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text("[]", encoding="utf-8")
    _, done = run(tmp_path, "--mcp-config", "mcp.json", calls=[])

    assert done.returncode != 0
    assert "mcp.json: expected an object whose key `mcpServers` is an object" in done.stderr


def test_all_kinds_of_servers_are_read() -> None:
    servers = {
        "a": {"command": "run", "args": ["--x"], "env": {"K": "v"}, "timeout": 5_000},
        "b": {"type": "http", "url": "https://b.example/mcp", "headers": {"H": "1"}},
        "c": {"type": "sse", "url": "http://c.example/sse", "timeout": 10},
        "d": {"url": "https://d.example"},
        "e": {"type": "streamable-http", "url": "https://e.example"},
    }

    assert read_servers({"mcpServers": servers}, {}) == (
        LocalServer(name="a", command="run", args=("--x",), env={"K": "v"}, timeout=5.0),
        RemoteServer(name="b", url="https://b.example/mcp", headers={"H": "1"}),
        RemoteServer(name="c", url="http://c.example/sse", transport="sse"),
        RemoteServer(name="d", url="https://d.example"),
        RemoteServer(name="e", url="https://e.example"),
    )


def test_variables_are_expanded_everywhere() -> None:
    entry = {"command": "${BIN}/run", "args": ["${A:-one}", "${B:-two}", "$B ${ }"], "env": {"K": "${A}-${EMPTY}"}}
    result = read_servers({"mcpServers": {"s": entry}}, {"BIN": "/bin", "A": "x", "EMPTY": ""})

    assert result == (LocalServer(name="s", command="/bin/run", args=("x", "two", "$B ${ }"), env={"K": "x-"}),)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("{", "Input data was truncated"),
        ([], "expected an object whose key `mcpServers` is an object"),
        ({"mcpServers": {"s": 1}}, "server 's': expected an object, not a number"),
        ({"mcpServers": {"s": {"type": "stdio"}}}, "server 's': `command` must be a non-empty string"),
        (
            {"mcpServers": {"s": {}}},
            "server 's': `command` is missing; a local server needs `command`, a remote one `url`",
        ),
        ({"mcpServers": {"s": {"type": "ws"}}}, "server 's': `type` must be stdio, http or sse"),
        ({"mcpServers": {"s": {"url": "file:///x"}}}, "server 's': `url` must begin with http://"),
        (
            {"mcpServers": {"s": {"command": "x", "args": ["ok", 2]}}},
            "server 's': `args[1]` must be a string, not a number",
        ),
        (
            {"mcpServers": {"s": {"command": "x", "env": {"K": "${NOT_SET}"}}}},
            "server 's': `env.K` needs the environment variable NOT_SET, which is not set",
        ),
        (
            {"mcpServers": {"s": {"command": "x", "timeout": "5s"}}},
            "server 's': `timeout` must be a number of milliseconds, not a text",
        ),
    ],
)
def test_configuration_error_names_file_server_and_key(config: object, text: str, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")

    with pytest.raises(BadServers) as output:
        load_servers(file, {})

    assert str(output.value).startswith(f"{file}: ")
    assert text in str(output.value)


def test_missing_configuration_file_is_reported() -> None:
    with pytest.raises(BadServers, match=r"none\.json"):
        McpServers("none.json")
