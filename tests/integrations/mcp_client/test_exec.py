"""`toolspan exec` with MCP servers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.integrations.mcp_client.connect import config
from tests.requirement import requirement

COMMAND = [sys.executable, "-m", "toolspan", "exec", "--permission-mode", "bypassPermissions"]


def run(
    folder: Path, *options: str, calls: list[tuple[str, dict[str, object]]]
) -> tuple[list[dict[str, object]], subprocess.CompletedProcess[str]]:
    lines = [
        {"content": [{"type": "tool_use", "id": f"c{number}", "name": name, "input": fields}]}
        for number, (name, fields) in enumerate(calls)
    ]
    done = subprocess.run(
        [*COMMAND, *options],
        cwd=folder,
        input="".join(json.dumps({"type": "assistant", "message": item}) + "\n" for item in lines),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
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
    assert "MCP server 'chaos': Connection closed (it said: no database)" in done.stderr
    assert rows[0]["error_kind"] == "unknown_tool"


@requirement("mcp.config-errors")
def test_exec_refuses_an_invalid_configuration(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text("[]", encoding="utf-8")
    _, done = run(tmp_path, "--mcp-config", "mcp.json", calls=[])

    assert done.returncode != 0
    assert "mcp.json: expected an object whose key `mcpServers` is an object" in done.stderr
