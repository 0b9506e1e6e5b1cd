"""`toolspan mcp --history` with the official client: read-only tools with schemas, and sessions as resources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError

from tests.cli.command import saved
from tests.integrations.mcp_server.client import ERAS, client, text
from toolspan.testing import TranscriptBuilder, claude_results

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fork_server")]

TOOLS = {"search_history", "list_sessions", "show_session", "show_call", "find_errors", "file_history", "why"}


@pytest.fixture
def archive(folder: Path) -> Path:
    builder = TranscriptBuilder(session_id="5e551011-0000-4000-8000-000000000001").prompt("light the lantern")
    call = builder.call("Bash", {"command": "lantern"}, id="toolu_1")
    builder.result(call, claude_results.exited(2, "lantern: no oil"))
    return saved(builder, folder.parent / "client").parent


@pytest.mark.parametrize("era", ERAS)
async def test_tools_are_read_only_and_their_answers_match_their_schemas(folder: Path, archive: Path, era: str) -> None:
    async with client(folder, "--history", "--archive", str(archive), era=era) as result:
        tools = (await result.list_tools()).tools
        answer = await result.call_tool("find_errors", {"text": "lantern: no oil"})
        wrong = await result.call_tool("show_call", {"call": "toolu_9"})
        invalid = await result.call_tool("show_call", {"cal": "toolu_1"})

    assert {tool.name for tool in tools} == TOOLS
    assert all(tool.annotations and tool.annotations.read_only_hint and tool.output_schema for tool in tools)
    assert answer.structured_content is not None
    assert [error["example"] for error in answer.structured_content["errors"]] == ["toolu_1"]
    assert json.loads(text(answer)) == answer.structured_content
    assert wrong.is_error
    assert "toolu_9" in text(wrong)
    assert invalid.is_error
    assert "`cal`" in text(invalid)


async def test_sessions_are_resources(folder: Path, archive: Path) -> None:
    async with client(folder, "--history", "--archive", str(archive)) as result:
        (listed,) = (await result.list_resources()).resources
        (template,) = (await result.list_resource_templates()).resource_templates
        (content,) = (await result.read_resource(listed.uri)).contents
        with pytest.raises(MCPError, match="no session"):
            await result.read_resource("toolspan://session/ffff")

    assert listed.title == "light the lantern"
    assert template.uri_template == "toolspan://session/{session}"
    assert "toolu_1" in json.loads(content.text)["entries"][1]["call"]  # type: ignore[union-attr]


async def test_history_is_served_beside_named_tools(folder: Path, archive: Path) -> None:
    (folder / "a.txt").write_text("alpha\n", encoding="utf-8")
    options = ("--history", "--archive", str(archive), "--tools", "Read")
    async with client(folder, *options) as result:
        names = {tool.name for tool in (await result.list_tools()).tools}
        read = await result.call_tool("Read", {"file_path": str(folder / "a.txt")})
        seen = await result.call_tool("search_history", {"query": "lantern"})

    assert names == TOOLS | {"Read"}
    assert "alpha" in text(read)
    assert seen.structured_content is not None
    assert seen.structured_content["total"] == 2
