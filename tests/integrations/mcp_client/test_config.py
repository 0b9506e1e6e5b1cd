"""MCP server configurations and their errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.requirement import requirement
from toolspan.integrations.mcp_client import BadServers, McpServers
from toolspan.integrations.mcp_client.config import LocalServer, RemoteServer, load_servers, read_servers


@requirement("mcp.config")
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


@requirement("mcp.config-variables")
def test_variables_are_expanded_everywhere() -> None:
    entry = {"command": "${BIN}/run", "args": ["${A:-one}", "${B:-two}", "$B ${ }"], "env": {"K": "${A}-${EMPTY}"}}
    result = read_servers({"mcpServers": {"s": entry}}, {"BIN": "/bin", "A": "x", "EMPTY": ""})

    assert result == (LocalServer(name="s", command="/bin/run", args=("x", "two", "$B ${ }"), env={"K": "x-"}),)


@requirement("mcp.config-errors")
@pytest.mark.parametrize(
    ("config", "words"),
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
def test_configuration_error_names_file_server_and_key(config: object, words: str, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")

    with pytest.raises(BadServers) as output:
        load_servers(file, {})

    assert str(output.value).startswith(f"{file}: ")
    assert words in str(output.value)


@requirement("mcp.config-errors")
def test_missing_configuration_file_is_reported() -> None:
    with pytest.raises(BadServers, match=r"none\.json"):
        McpServers("none.json")
