"""MCP results of every shape, per client version."""

from __future__ import annotations

import base64
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.explore import mcp_shapes
from tests.explore.contents import png
from tests.integrations.mcp_client.connect import Talk, talk, text
from toolspan.types.events import Finished

pytestmark = pytest.mark.anyio
_SERVERS: dict[str, object] = {
    "mcpServers": {"shapes": {"command": sys.executable, "args": [str(Path(mcp_shapes.__file__))]}}
}
_VERSIONS = ("2.1.325", "2.0.65")


async def _give(conversation: Talk, **result: object) -> Finished:
    return await conversation.call("mcp__shapes__give", result=result)


def _text_block(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


@pytest.mark.parametrize("version", _VERSIONS)
async def test_errors_are_stripped_and_never_empty(tmp_path: Path, version: str) -> None:
    async with talk(tmp_path, version=version, servers=_SERVERS) as conversation:
        blank = await _give(conversation, content=[_text_block("  bad \n")], isError=True)
        empty = await _give(conversation, content=[_text_block("")], isError=True)
        without = await _give(conversation, content=[], isError=True)
        named = await _give(conversation, isError=True, error="oops")
        long = await _give(conversation, content=[_text_block("x" * 12_000)], isError=True)

    assert text(blank) == "bad"
    assert text(empty) == "Command failed with no output"
    assert (text(without), text(named)) == ("Unknown error", "oops")
    assert "\n\n... [2000 characters truncated] ...\n\n" in text(long)
    assert {item.span.state for item in (blank, empty, without, named, long)} == {"failed"}


async def test_older_clients_show_only_the_first_block_of_an_error(tmp_path: Path) -> None:
    picture = {"type": "image", "data": base64.b64encode(png(2, 2)).decode(), "mimeType": "image/png"}
    async with talk(tmp_path, version="2.0.65", servers=_SERVERS) as conversation:
        failed = await _give(conversation, content=[picture, _text_block("why")], isError=True)
        refused = await conversation.call("mcp__shapes__fail", code=5, message=" no \n")

    assert text(failed) == "Unknown error"
    assert text(refused) == "MCP error 5:  no"


@pytest.mark.parametrize("version", _VERSIONS)
async def test_result_may_lack_its_content(tmp_path: Path, version: str) -> None:
    async with talk(tmp_path, version=version, servers=_SERVERS) as conversation:
        empty = await _give(conversation)
        structured = await _give(conversation, structuredContent={"n": 1})
        old = await _give(conversation, toolResult="old")

    assert (empty.span.state, empty.structured) == ("succeeded", [])
    assert (text(structured), text(old)) == ('{"n":1}', "old")


async def test_structured_content_replaces_only_the_text_beside_it(tmp_path: Path) -> None:
    link = {"type": "resource_link", "uri": "mem://y", "name": "why"}
    async with talk(tmp_path, servers=_SERVERS) as conversation:
        done = await _give(conversation, content=[_text_block("a"), link], structuredContent={"n": 1})
    async with talk(tmp_path, version="2.0.65", servers=_SERVERS) as conversation:
        old = await _give(conversation, content=[_text_block("a"), link], structuredContent={"n": 1})

    assert done.content == [_text_block("[Resource link: why] mem://y"), _text_block('{"n":1}')]
    assert old.content == '{"n":1}'


async def test_binary_resources_stay_encoded_with_older_clients(tmp_path: Path) -> None:
    blob = {"type": "resource", "resource": {"uri": "mem://b", "blob": "AAEC"}}
    async with talk(tmp_path, version="2.0.65", servers=_SERVERS) as conversation:
        done = await _give(conversation, content=[blob])

    assert text(done) == "[Resource from shapes at mem://b] Base64 data (unknown type) AAEC"


async def test_unreadable_image_is_not_sent(tmp_path: Path) -> None:
    broken = {"type": "image", "data": base64.b64encode(b"not an image").decode(), "mimeType": "image/png"}
    async with talk(tmp_path, servers=_SERVERS) as conversation:
        done = await _give(conversation, content=[broken])

    problem, source = text(done).split("\n")
    assert problem.startswith("[Image could not be processed: ")
    assert source.startswith("[Image source: ")


async def test_oversized_result_is_replaced_by_a_notice(tmp_path: Path) -> None:
    async with talk(tmp_path, servers=_SERVERS) as conversation:
        plain = await _give(conversation, content=[_text_block("line\n" * 90_000)])
        shaped = await _give(conversation, structuredContent={"t": "x" * 500_000, "a": [{"b": {"c": 1}}], "n": None})
        short = await _give(conversation, content=[_text_block("x" * 400_000)])

    assert text(plain).startswith(
        "Error: result (450,000 characters across 90,000 lines) exceeds maximum allowed tokens."
    )
    assert plain.structured == plain.content
    assert "\nFormat: JSON with schema: {t: string, a: [{...}], n: null}\n" in text(shaped)
    path = re.search(r"saved to (\S+)\.\n", text(shaped))
    assert path
    assert len(json.loads(Path(path[1]).read_text())["t"]) == 500_000
    assert text(short).startswith("<persisted-output>")
