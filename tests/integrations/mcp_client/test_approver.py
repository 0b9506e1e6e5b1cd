"""Permission decisions by an MCP tool."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.integrations.mcp_client.connect import text
from tests.requirement import requirement
from toolspan.errors import NotFound
from toolspan.integrations.mcp_client import McpServers, prompt_tool_approver
from toolspan.runtime.permissions import mode_policy
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.tools import coding_tools
from toolspan.types.events import Finished

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parent / "prompt_server.py"


def failed(words: str) -> str:
    return f"<tool_use_error>Error calling tool (Bash): {words}</tool_use_error>"


async def ask(folder: Path, manner: str, version: str = "2.1.327", timeout: float | None = None) -> Finished:
    client = profile(version)
    entry = {"command": sys.executable, "args": [str(SERVER), manner]}
    servers = McpServers({"mcpServers": {"p": entry}}, profile=client, cwd=folder)
    async with servers:
        approver = prompt_tool_approver(servers, "mcp__p__ask", client, timeout=timeout)
        runner = Runner(
            coding_tools(client), cwd=folder, profile=client, fallback=mode_policy("default"), approver=approver
        )
        call = {"type": "tool_use", "id": "toolu_1", "name": "Bash"}
        fields = {"command": "touch x; echo made"}
        return (await runner.finish([{**call, "input": fields}]))[0]


@requirement("mcp.prompt-tool")
async def test_approver_tool_receives_call_and_input(tmp_path: Path) -> None:
    done = await ask(tmp_path, "allow")

    assert text(done) == "made"
    assert json.loads((tmp_path / "asked").read_bytes()) == {
        "tool_name": "Bash",
        "input": {"command": "touch x; echo made"},
        "tool_use_id": "toolu_1",
    }
    assert done.decision is not None
    assert done.decision.source == "user_temporary"


@requirement("mcp.prompt-tool")
@pytest.mark.parametrize(
    ("manner", "version", "message"),
    [
        ("bare", "2.1.327", "made"),
        ("change", "2.1.327", "changed"),
        ("deny", "2.1.327", "not today"),
        ("stop", "2.0.65", "not today"),
        ("garbage", "2.1.327", "The permission prompt tool returned an invalid permission result."),
        ("broken", "2.1.327", failed("broken")),
        ("die", "2.1.327", failed("Connection closed")),
        ("die", "seed", failed("MCP error -32603: failed to evaluate permission: no response received")),
    ],
)
async def test_approver_answer_decides(manner: str, version: str, message: str, tmp_path: Path) -> None:
    assert text(await ask(tmp_path, manner, version)) == message
    assert (tmp_path / "x").exists() == (message == "made")


@requirement("mcp.prompt-tool")
async def test_interrupting_denial_counts_as_the_users(tmp_path: Path) -> None:
    done = await ask(tmp_path, "stop")

    assert done.structured == "User rejected tool use"
    assert done.stop is not None


@requirement("mcp.prompt-tool")
@pytest.mark.parametrize(("version", "code"), [("seed", "invalid_literal"), ("2.0.65", "invalid_literal")])
async def test_older_clients_explain_an_invalid_answer(version: str, code: str, tmp_path: Path) -> None:
    done = await ask(tmp_path, "bare", version)

    assert text(done).startswith("<tool_use_error>Error calling tool (Bash): [\n")
    assert code in text(done)
    assert not (tmp_path / "x").exists()


async def test_missing_answer_is_a_denial(tmp_path: Path) -> None:
    done = await ask(tmp_path, "silent", "seed", timeout=1.0)

    message = "MCP error -32603: failed to evaluate permission: request timed out after 1s"
    assert text(done) == failed(message)
    assert done.span.error_kind == "permission_timeout"
    assert profile("seed").mcp.approval_timeout == 120.0
    assert not (tmp_path / "x").exists()


@requirement("mcp.prompt-tool")
async def test_unknown_approver_tool_is_an_error(tmp_path: Path) -> None:
    async with McpServers({"mcpServers": {}}, cwd=tmp_path) as servers:
        with pytest.raises(NotFound, match="mcp__p__ask"):
            prompt_tool_approver(servers, "mcp__p__ask", servers.profile)
