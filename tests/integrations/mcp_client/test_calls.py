"""Calls of MCP tools and their results, per client version."""

from __future__ import annotations

import base64
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

from tests.integrations.mcp_client import mcp_shapes
from tests.integrations.mcp_client.connect import ToolCaller, talk, text
from tests.requirement import requirement
from tests.tools.test_read import png
from toolspan.integrations.mcp_client.config import MAX_NAME_CHARS, mcp_tool_name
from toolspan.types.events import Finished
from toolspan.types.ids import CallId

pytestmark = pytest.mark.anyio


@requirement("mcp.names")
async def test_tools_are_named_after_server_and_tool(tmp_path: Path) -> None:
    async with talk(tmp_path) as conversation:
        tools = conversation.servers.tools()

        assert "mcp__chaos__odd_letters_" in tools
        result = tools.find("mcp__chaos__echo")
        assert result is not None
        assert result.schema() == {
            "name": "mcp__chaos__echo",
            "description": "does echo",
            "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}, "words": {"type": "string"}}},
        }
        assert text(await conversation.call("mcp__chaos__odd_letters_", n=1)) == '{"n": 1}'


@requirement("mcp.names")
def test_long_names_are_shortened_and_stay_distinct() -> None:
    names = {mcp_tool_name("server", "t" * 100 + letter) for letter in "ab"}

    assert len(names) == 2
    assert {len(name) for name in names} == {MAX_NAME_CHARS}


@requirement("mcp.arguments")
async def test_arguments_are_sent_to_the_server_unchanged(tmp_path: Path) -> None:
    async with talk(tmp_path) as conversation:
        odd = await conversation.call("echo", n="not a number", more=[1.0, {"deep": None}])

        assert json.loads(text(odd)) == {"n": "not a number", "more": [1, {"deep": None}]}
        assert '"more": [1, ' in text(odd)


async def test_strict_mode_validates_arguments_against_the_schema(tmp_path: Path) -> None:
    async with talk(tmp_path, validate="strict") as conversation:
        bad = await conversation.call("echo", n="not a number")
        good = await conversation.call("echo", n=1)

        assert "'not a number' is not of type 'integer'" in text(bad)
        assert bad.span.error_kind == "invalid_input"
        assert text(good) == '{"n": 1}'
        assert conversation.health.calls == 1


@requirement("mcp.meta")
async def test_call_sends_its_id_and_a_progress_token(tmp_path: Path) -> None:
    async with talk(tmp_path) as conversation:
        meta = json.loads(text(await conversation.call("meta")))

    assert meta["claudecode/toolUseId"] == "toolu_0"
    assert meta["progressToken"] is not None


async def test_progress_becomes_events_of_the_call(tmp_path: Path) -> None:
    async with talk(tmp_path) as conversation:
        done = await conversation.call("progress")

        assert text(done) == "done"
        assert conversation.progress[-1] == {
            "server": "chaos",
            "tool": "progress",
            "done": 2.0,
            "total": 2.0,
            "message": "step 2",
        }


@requirement("mcp.concurrent")
async def test_read_only_tools_run_concurrently(tmp_path: Path) -> None:
    async with talk(tmp_path) as conversation:
        met = await conversation.calls(("meet", {}), ("meet", {}))
        others = conversation.servers.tools().find("mcp__chaos__pid")

    assert [text(item) for item in met] == ["met", "met"]
    assert others is not None
    assert others.concurrent is False


async def test_interrupted_call_is_cancelled_at_the_server(tmp_path: Path) -> None:
    async with talk(tmp_path) as conversation, anyio.create_task_group() as group:
        ended: list[Finished] = []

        async def hang() -> None:
            ended.append(await conversation.call("hang"))

        group.start_soon(hang)
        request = await conversation.hears("tools/call")
        conversation.runner.cancel(CallId("toolu_0"))
        output = await conversation.hears("notifications/cancelled")

        assert output["params"] == {"requestId": request["id"], "reason": "caller cancelled"}
    assert ended[0].span.state == "interrupted"


@requirement("mcp.timeout")
@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("2.1.327", 'MCP server "chaos" tool "hang" timed out after 1s'),
        ("2.0.65", "MCP error -32001: Request timed out"),
    ],
)
async def test_unanswered_call_times_out(version: str, message: str, tmp_path: Path) -> None:
    async with talk(tmp_path, version=version, env={"MCP_TOOL_TIMEOUT": "1100"}) as conversation:
        late = await conversation.call("hang")
        await conversation.hears("notifications/cancelled")

        assert (text(late), late.structured) == (message, f"Error: {message}")
        assert (late.span.state, late.span.error_kind) == ("timed_out", "mcp_timeout")
        assert conversation.health.timeouts == 1


@requirement("mcp.timeout")
async def test_silence_ends_a_call_and_progress_extends_it(tmp_path: Path) -> None:
    env = {"CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT": "1000"}
    async with talk(tmp_path, env=env) as conversation:
        silent = await conversation.call("hang")
        lively = await conversation.call("progress")

    assert text(silent) == 'MCP server "chaos" tool "hang" timed out after 1s'
    assert text(lively) == "done"


class Words(NamedTuple):
    crashed: str
    afterwards: str
    refused: str
    failed: str


SAID = {
    "2.1.327": Words("Connection closed", "{}", "no such thing", "first\nsecond"),
    "2.0.65": Words(
        "MCP error -32000: Connection closed", "Not connected",
        "MCP error -32602: no such thing", "first",
    ),
}  # fmt: skip


@requirement("mcp.crash")
@pytest.mark.parametrize("version", SAID)
async def test_crash_is_reported_and_the_next_call_restarts_the_server(version: str, tmp_path: Path) -> None:
    reply = SAID[version]
    async with talk(tmp_path, version=version) as conversation:
        died = await conversation.call("die")
        again = await conversation.call("echo")

        assert (text(died), text(again)) == (reply.crashed, reply.afterwards)
        assert died.span.error_kind == "mcp_no_response"
        assert conversation.health.restarts == (1 if reply.afterwards == "{}" else 0)


@requirement("mcp.errors")
@pytest.mark.parametrize("version", SAID)
async def test_protocol_and_tool_errors_are_reported(version: str, tmp_path: Path) -> None:
    reply = SAID[version]
    async with talk(tmp_path, version=version) as conversation:
        refuse, fail = await conversation.call("refuse"), await conversation.call("fail")

        assert [text(refuse), text(fail)] == [reply.refused, reply.failed]
        assert fail.structured == f"Error: {reply.failed}"
        assert conversation.health.errors == {"protocol": 1, "tool": 1}


@requirement("mcp.structured")
async def test_structured_content_replaces_text_and_is_kept(tmp_path: Path) -> None:
    async with talk(tmp_path) as conversation:
        done = await conversation.call("structured")

    assert done.content == '{"n":3,"s":"é"}'
    assert done.structured == done.content
    assert done.beside == {"mcpMeta": {"structuredContent": {"n": 3, "s": "é"}}, "mcpCallNotReadOnly": "no_hint"}


@requirement("mcp.blocks")
async def test_resources_links_and_audio_become_text(tmp_path: Path) -> None:
    async with talk(tmp_path) as conversation:
        mixed, drawing = await conversation.call("mixed"), await conversation.call("picture")

    inside, blob, link, sound = text(mixed).split("\n")
    assert inside == "[Resource from chaos at mem://t] inside"
    assert link == "[Resource link: link] mem://l"
    assert _saved(blob, "[Resource from chaos at mem://b] ", "unknown type, 3") == (b"\0\1\2")
    assert _saved(sound, "[Audio from chaos] ", "audio/wav, 3") == b"\0\1\2"
    assert _saved(text(drawing), "[Image from chaos] ", "image/svg+xml, 6") == b"<svg/>"
    assert mixed.beside["mcpMeta"] == {"resourceLinks": [{"uri": "mem://l", "name": "link"}]}


def _saved(text: str, head: str, about: str) -> bytes:
    start = f"{head}Binary content ({about} bytes) saved to "
    assert text.startswith(start)
    return Path(text.removeprefix(start)).read_bytes()


@requirement("mcp.blocks")
async def test_older_clients_leave_out_unsupported_content(tmp_path: Path) -> None:
    async with talk(tmp_path, version="2.0.65") as conversation:
        drawing = await conversation.call("picture")

    assert (drawing.content, drawing.structured) == ([], [])


@requirement("mcp.large")
async def test_large_result_is_saved_to_a_file(tmp_path: Path) -> None:
    async with talk(tmp_path) as conversation:
        large = await conversation.call("huge", n=60_000)

    assert large.span.result is not None
    path = large.span.result.persisted_path
    assert path is not None
    assert path.endswith("toolu_0.json")
    assert text(large).startswith("<persisted-output>\nOutput too large (58.6KB).")
    assert json.loads(Path(path).read_bytes()) == large.structured


async def test_changed_tool_list_is_fetched_and_announced(tmp_path: Path) -> None:
    async with talk(tmp_path) as conversation:
        changed = anyio.Event()
        conversation.servers.on_change = changed.set
        await conversation.call("change")
        await changed.wait()

        assert "mcp__chaos__late" in conversation.servers.tools()


@requirement("mcp.resources")
async def test_resources_are_listed_and_read(tmp_path: Path) -> None:
    async with talk(tmp_path) as conversation:
        listed = await conversation.call("ListMcpResourcesTool")
        read = await conversation.call("ReadMcpResourceTool", server="chaos", uri="mem://x")
        nowhere = await conversation.call("ReadMcpResourceTool", server="nope", uri="mem://x")

    assert listed.content == '[{"name":"ex","uri":"mem://x","size":3,"server":"chaos"}]'
    assert listed.structured == [{"name": "ex", "uri": "mem://x", "size": 3, "server": "chaos"}]
    piece = json.loads(text(read))["contents"][0]
    assert _saved(piece["text"], "[Resource from chaos at mem://x] ", "unknown type, 2") == b"\0\1"
    assert text(nowhere) == 'Server "nope" not found. Available servers: chaos'


@requirement("mcp.resources")
async def test_server_without_tools_and_resources_adds_nothing(tmp_path: Path) -> None:
    async with talk(tmp_path, "bare") as conversation:
        assert conversation.health.state == "connected"
        assert conversation.servers.tools().names == ()


async def test_server_gets_a_minimal_environment(tmp_path: Path) -> None:
    secret = {"OUR_SECRET": "s"}
    async with talk(tmp_path, env=secret) as conversation:
        environment = json.loads(text(await conversation.call("env")))

    assert "OUR_SECRET" not in environment
    assert environment["CLAUDE_PROJECT_DIR"] == str(tmp_path)
    assert "PATH" in environment


async def test_health_counts_calls_and_failures(tmp_path: Path) -> None:
    async with talk(tmp_path) as conversation:
        health = conversation.health
        assert (health.state, health.p95, health.protocol) == ("connected", None, "2025-11-25")
        for _ in range(3):
            await conversation.call("echo")
        await conversation.call("die")

        assert (health.calls, health.errors, len(health.times)) == (4, {"closed": 1}, 3)
        assert health.p95 == max(health.times)
    assert health.state == "closed"


_SERVERS: dict[str, object] = {
    "mcpServers": {"shapes": {"command": sys.executable, "args": [str(Path(mcp_shapes.__file__))]}}
}
_VERSIONS = ("2.1.327", "2.0.65")


async def _give(conversation: ToolCaller, **result: object) -> Finished:
    return await conversation.call("mcp__shapes__give", result=result)


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@pytest.mark.parametrize("version", _VERSIONS)
async def test_metadata_of_a_text_is_recorded_by_the_newest_client_and_never_shown(
    tmp_path: Path, version: str
) -> None:
    metadata = {"_meta": {"k": "v"}} if version == "2.1.327" else {}
    async with talk(tmp_path, version=version, servers=_SERVERS) as conversation:
        given = await _give(conversation, content=[{**_text_block("a"), "_meta": {"k": "v"}}])

    assert given.content == [_text_block("a")]
    assert given.structured == [{**_text_block("a"), **metadata}]


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


async def test_active_trace_is_passed_to_the_server(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import use_span

    span = TracerProvider().get_tracer("test").start_span("request")
    async with talk(tmp_path) as conversation:
        await conversation.call("echo", n=1)
        with use_span(span):
            await conversation.call("echo", n=2)
        metas = [item["params"]["_meta"] for item in conversation.heard() if item.get("method") == "tools/call"]  # type: ignore[index]

    assert "traceparent" not in metas[0]
    assert f"{span.get_span_context().trace_id:032x}" in metas[1]["traceparent"]
