"""Arguments that MCP servers receive, their questions to the client, and the limits of their results."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.integrations.mcp_client.connect import ToolCaller, talk, text
from tests.requirement import requirement

pytestmark = pytest.mark.anyio

_SERVER = Path(__file__).parent / "asking_server.py"
_OBJECT: dict[str, object] = {"type": "object", "properties": {}}


@asynccontextmanager
async def connect(
    folder: Path, schemas: Mapping[str, object], version: str = "2.1.327", env: Mapping[str, str] | None = None
) -> AsyncIterator[ToolCaller]:
    """Connect to the asking server, with these input schemas by tool."""
    (folder / "schemas.json").write_text(json.dumps(schemas))
    command = {"command": sys.executable, "args": [str(_SERVER), str(folder / "schemas.json")]}
    async with talk(folder, version=version, env=env, servers={"mcpServers": {"asking": command}}) as conversation:
        yield conversation


async def send(conversation: ToolCaller, **arguments: object) -> object:
    """Return the arguments of a call as the server received them."""
    return json.loads(text(await conversation.call("mcp__asking__show", **arguments)))


_PARAMETERS: dict[str, object] = {
    "count": {"type": "integer"}, "share": {"type": "number"}, "flag": {"type": "boolean"}, "items": {"type": "array"},
    "options": {"type": "object"}, "words": {"type": "string"}, "maybe": {"type": ["null", "integer"]},
    "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "first": {"oneOf": [{"type": "integer"}, {}]},
    "shared": {"$ref": "#/$defs/count"}, "free": {"title": "Anything"}, "choice": {"enum": [1, 2]},
}  # fmt: skip
_SHOW = {"show": {"type": "object", "properties": _PARAMETERS, "$defs": {"count": {"type": "integer"}}}}


@requirement("mcp.strings-become-values")
async def test_strings_become_values_of_the_declared_type(tmp_path: Path) -> None:
    async with connect(tmp_path, _SHOW) as conversation:
        values = {"count": "5", "share": "-0.25", "flag": "true", "items": "[1, 2]", "options": '{"a": "1"}'}
        expected = {"count": 5, "share": -0.25, "flag": True, "items": [1, 2], "options": {"a": "1"}}

        assert await send(conversation, **values) == expected
        assert await send(conversation, maybe="7", first="7", shared="7") == {"maybe": 7, "first": 7, "shared": 7}
        assert await send(conversation, free="5") == {"free": 5}
        assert await send(conversation, free="[1]") == {"free": [1]}


@requirement("mcp.strings-become-values")
async def test_strings_that_are_not_written_as_the_declared_type_are_sent_unchanged(tmp_path: Path) -> None:
    async with connect(tmp_path, _SHOW) as conversation:
        for value in ("5.0", "007", " 5", "1e3", "-0", "0x1", "9007199254740993", "five", ""):
            assert await send(conversation, count=value, free=value) == {"count": value, "free": value}
        unchanged: dict[str, object] = {
            "words": "5", "either": "5", "choice": "1", "flag": "yes", "items": "1,2", "maybe": "null", "other": "5",
            "options": {"count": "5"},
        }  # fmt: skip

        assert await send(conversation, **unchanged) == unchanged


@requirement("mcp.strings-become-values")
async def test_the_oldest_client_sends_strings_unchanged(tmp_path: Path) -> None:
    async with connect(tmp_path, _SHOW, version="2.0.65") as conversation:
        assert await send(conversation, count="5") == {"count": "5"}


@requirement("mcp.arguments")
async def test_numbers_are_sent_as_the_clients_write_them(tmp_path: Path) -> None:
    async with connect(tmp_path, _SHOW) as conversation:
        shown = await conversation.call("mcp__asking__show", share=1e21, count=5.0)

    assert '"share": 1e+21' in text(shown) or '"share":1e+21' in text(shown)
    assert '"count": 5}' in text(shown) or '"count":5' in text(shown)


async def test_tool_that_models_would_refuse_is_not_offered(tmp_path: Path) -> None:
    schemas = {"show": _OBJECT, "odd": {**_OBJECT, "anyOf": [{"required": ["a"]}]}}
    async with connect(tmp_path, schemas) as conversation:
        assert "mcp__asking__show" in conversation.servers.tools()
        assert "mcp__asking__odd" not in conversation.servers.tools()
        [reason] = conversation.servers.health["asking"].rejected_tools

    assert reason == "odd: its input schema has anyOf at the top, which models do not accept"


@requirement("mcp.elicitation")
async def test_server_that_asks_the_user_is_told_that_the_question_was_cancelled(tmp_path: Path) -> None:
    async with connect(tmp_path, {"elicit": _OBJECT, "elicit_first": _OBJECT}) as conversation:
        form = await conversation.call("mcp__asking__elicit")
        address = await conversation.call("mcp__asking__elicit_first")

    assert json.loads(text(form)) == {"result": {"action": "cancel"}}
    assert text(address).startswith("URL elicitation was canceled by the user.")
    assert address.span.state == "succeeded"


@requirement("mcp.resources")
async def test_binary_resource_is_saved_and_a_missing_one_is_reported(tmp_path: Path) -> None:
    async with connect(tmp_path, {}) as conversation:
        data = await conversation.call("ReadMcpResourceTool", server="asking", uri="mem://data")
        words = await conversation.call("ReadMcpResourceTool", server="asking", uri="mem://text")
        missing = await conversation.call("ReadMcpResourceTool", server="asking", uri="mem://gone")

    [saved] = json.loads(text(data))["contents"]
    assert Path(saved["blobSavedTo"]).read_bytes() == b"\0\1\2"
    head = "[Resource from asking at mem://data] Binary content (unknown type, 3 bytes) saved to "
    assert saved == {"uri": "mem://data", "blobSavedTo": saved["blobSavedTo"], "text": head + saved["blobSavedTo"]}
    assert json.loads(text(words)) == {"contents": [{"uri": "mem://text", "mimeType": "text/plain", "text": "hello"}]}
    assert text(missing).startswith("Resource not found: mem://gone ")
    assert missing.span.state == "succeeded"
    assert missing.structured == {"contents": [], "error": text(missing)}


@requirement("mcp.token-limit")
@pytest.mark.parametrize(
    ("setting", "is_saved"), [("100", True), ("1e2", True), ("100.9", True), ("0", False), ("-5", False), ("x", False)]
)
async def test_environment_sets_the_tokens_that_a_result_may_have(setting: str, is_saved: bool, tmp_path: Path) -> None:
    env = {"MAX_MCP_OUTPUT_TOKENS": setting}
    async with connect(tmp_path, {"big": _OBJECT}, env=env) as conversation:
        short = await conversation.call("mcp__asking__big", texts=[790])
        long = await conversation.call("mcp__asking__big", texts=[810])

    assert text(short) == "\U0001f600" * 790
    assert text(long).startswith("Error: result (1,620 characters across 1 line) exceeds") is is_saved


@requirement("mcp.token-limit")
async def test_long_result_with_an_image_is_cut(tmp_path: Path) -> None:
    env = {"MAX_MCP_OUTPUT_TOKENS": "500"}
    async with connect(tmp_path, {"big": _OBJECT}, env=env) as conversation:
        fitting = await conversation.call("mcp__asking__big", texts=[0, 5_000])
        left_out = await conversation.call("mcp__asking__big", texts=[5_000, 0])

    assert not isinstance(fitting.content, str)
    assert [block["type"] for block in fitting.content] == ["image", "text", "text", "text"]
    assert not isinstance(left_out.content, str)
    words, missing, notice = (str(block["text"]) for block in left_out.content)
    assert words == "\U0001f600" * 1_000
    assert missing == "[Image left out: it did not fit in the tool output limit]"
    assert notice.startswith("\n\n[OUTPUT TRUNCATED - exceeded 500 token limit]")
