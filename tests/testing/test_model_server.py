"""The scripted model over HTTP, used by the official client."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anthropic
import anyio
import pytest
from anthropic.types import MessageParam, ToolParam
from hypothesis import given
from hypothesis import strategies as st

from toolspan import testing
from toolspan.session.models.scripted import ScriptStep
from toolspan.testing import ModelServer, ScriptedModel, say, use

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
HELLO: MessageParam = {"role": "user", "content": "Hello"}
READ: ToolParam = {"name": "Read", "input_schema": {"type": "object"}}
HEADERS = {"x-api-key": "none", "anthropic-version": "2023-06-01"}
BODY = json.dumps({"model": "m", "max_tokens": 9, "messages": [HELLO]}).encode()
TEXT = "Grüße, 世界: a text that comes in several pieces."
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
SCRIPTS: dict[str, ScriptStep] = {
    "text": say(TEXT),
    "calls": [say(TEXT), use("Read", file_path="a.txt", lines=[1, 2]), use("Bash"), say("So.")],
    "thinking": [testing.think(TEXT), use("Write", content='{"quoted": "\\"\\n"}')],
    "hidden": [{"type": "redacted_thinking", "data": "c2VjcmV0"}, say("Hm.")],
    "search": [SEARCH, FOUND, say("Found.")],
    "cut-call": testing.cut(say("I write."), use("Write", file_path="a.txt", content="a long content")),
    "cut-number": testing.cut(use("Read", file_path="a", limit=1_000)),
    "cut-empty": testing.cut(use("Bash")),
    "cut-text": testing.cut(say(TEXT)),
    "refusal": testing.refuse(say("I would rather"), explanation="No."),
    "pause": testing.ScriptedReply([say("Searching.")], "pause_turn"),
}


@asynccontextmanager
async def talking(*script: ScriptStep, retries: int = 0) -> AsyncIterator[tuple[anthropic.AsyncAnthropic, ModelServer]]:
    async with (
        ModelServer(ScriptedModel(script, seed="same")) as server,
        anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=retries) as client,
    ):
        yield client, server


async def asked(client: anthropic.AsyncAnthropic, messages: Iterable[object] = (HELLO,)) -> Json:
    output = cast("list[MessageParam]", [*messages])
    message = await client.messages.create(model="claude-x", max_tokens=99, messages=output, tools=[READ])
    return message.to_dict()


async def streamed(client: anthropic.AsyncAnthropic) -> Json:
    async with client.messages.stream(model="claude-x", max_tokens=99, messages=[HELLO], tools=[READ]) as stream:
        return (await stream.get_final_message()).to_dict()


def without_nulls(message: Json) -> Json:
    return {key: value for key, value in message.items() if value is not None}


@pytest.mark.parametrize("name", SCRIPTS)
async def test_client_gets_the_script_complete_and_streamed(name: str) -> None:
    expected = await ScriptedModel([SCRIPTS[name]], seed="same").create(
        messages=[HELLO], model="claude-x", max_tokens=99, tools=[READ]
    )

    async with talking(SCRIPTS[name]) as (client, _):
        whole = await asked(client)
    async with talking(SCRIPTS[name]) as (client, _):
        pieces = await streamed(client)

    assert without_nulls(whole) == without_nulls(expected)
    assert without_nulls(pieces) == without_nulls(expected)


async def test_stream_has_the_events_of_the_api_in_order() -> None:
    async with talking([say("Hm."), use("Bash", command="git status")]) as (client, _):
        stream = await client.messages.create(model="m", max_tokens=9, messages=[HELLO], stream=True)
        seen = [event async for event in stream]

    kinds = [event.type for event in seen]
    inputs = [
        event.delta.partial_json
        for event in seen
        if event.type == "content_block_delta" and event.delta.type == "input_json_delta"
    ]
    assert kinds[:4] == ["message_start", "content_block_start", "content_block_delta", "content_block_stop"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert (inputs[0], "".join(inputs)) == ("", '{"command":"git status"}')
    assert len(inputs) > 2


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
_blocks = st.one_of(
    st.text(min_size=1).map(say),
    st.text(min_size=1).map(testing.think),
    st.dictionaries(st.text(max_size=8), _values, max_size=4).map(lambda given: use("Any", **given)),
)


def test_any_reply_is_the_same_complete_and_streamed() -> None:
    reply: list[ScriptStep] = []
    model = ScriptedModel([], then=lambda _: cast("testing.ScriptedReply", reply[-1]))

    with (
        ModelServer(model) as server,
        anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client,
    ):

        @given(st.lists(_blocks, min_size=1, max_size=4), st.booleans())
        def is_the_same(blocks: list[Json], is_cut: bool) -> None:
            reply.append(testing.cut(*blocks) if is_cut else testing.ScriptedReply(blocks))
            whole = client.messages.create(model="m", max_tokens=9, messages=[HELLO])
            with client.messages.stream(model="m", max_tokens=9, messages=[HELLO]) as stream:
                pieces = stream.get_final_message()
            assert anonymous(pieces.to_dict()) == anonymous(whole.to_dict())

        is_the_same()


def anonymous(message: Json) -> Json:
    unlike = {"id", "signature"}
    blocks = [{k: block[k] for k in block.keys() - unlike} for block in message["content"]]
    return {**without_nulls(message), "id": None, "content": blocks}


async def test_agent_loop_runs_through_the_official_client() -> None:
    def conclude(messages: list[Json]) -> Json:
        return say(f"It says {testing.last_result_texts(messages)[0]}.")

    async with talking(use("Read", file_path="a.txt"), conclude) as (client, server):
        first = await asked(client)
        result = {"type": "tool_result", "tool_use_id": first["content"][0]["id"], "content": "boo"}
        second = await asked(
            client, [HELLO, {"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
        )

    assert second["content"] == [say("It says boo.")]
    assert [len(request["messages"]) for request in cast("Any", server.model.requests)] == [1, 3]


async def test_invalid_history_is_answered_with_the_error_body_of_the_api() -> None:
    open_call = [HELLO, {"role": "assistant", "content": [{"id": "toolu_a", **use("Bash")}]}]

    async with talking(say("Never said.")) as (client, server):
        with pytest.raises(anthropic.BadRequestError) as refused:
            await asked(client, open_call)

    body = cast("Json", refused.value.body)
    assert body["error"]["type"] == "invalid_request_error"
    assert body["error"]["message"].startswith("messages.1: `tool_use` ids were found without")
    assert body["request_id"] == refused.value.request_id
    assert server.model.remaining_steps == 1


async def test_overload_is_an_error_without_retries_and_a_pause_with_them() -> None:
    script = (
        testing.fail(529),
        testing.fail(429, retry_after=0.001),
        testing.fail(529, retry_after=0.001),
        say("Done."),
    )

    async with talking(*script) as (client, _):
        with pytest.raises(anthropic.APIStatusError) as overloaded:
            await asked(client)
    async with talking(*script[1:], retries=2) as (client, server):
        done = await streamed(client)

    assert (overloaded.value.status_code, overloaded.value.type) == (529, "overloaded_error")
    assert done["content"] == [say("Done.")]
    assert len(server.model.requests) == 3


async def test_stream_may_break_off_with_an_error() -> None:
    broken = testing.fail(529, after=[say("I was about to")])

    async with talking(broken, broken) as (client, _):
        reply = ""
        with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
            async with client.messages.stream(model="m", max_tokens=9, messages=[HELLO]) as stream:
                async for text in stream.text_stream:
                    reply += text
        with pytest.raises(anthropic.APIStatusError) as whole:
            await asked(client)

    assert reply == "I was about to"
    assert whole.value.status_code == 529


async def test_exception_of_a_step_is_raised_at_the_end_even_if_the_client_swallows_it() -> None:
    def check(messages: list[Json]) -> Json:
        raise AssertionError("expected a result")

    with pytest.raises(AssertionError, match="expected a result"):
        async with talking(check, retries=3) as (client, server):
            with pytest.raises(anthropic.BadRequestError, match="expected a result"):
                await asked(client)
    assert len(server.model.requests) == 1

    with pytest.raises(testing.ScriptExhausted):
        async with talking(retries=3) as (client, _):
            with pytest.raises(anthropic.BadRequestError, match="at most 0 requests"):
                await asked(client)


async def test_error_of_the_test_is_raised_unchanged() -> None:
    with pytest.raises(anthropic.BadRequestError) as refused:
        async with talking() as (client, _):
            await asked(client)

    assert "ScriptExhausted" in "".join(refused.value.__notes__)


async def test_tokens_are_counted_and_models_listed() -> None:
    async with talking(say("Hi.")) as (client, _):
        counted = await client.messages.count_tokens(model="m", messages=[HELLO])
        replied = await client.messages.create(model="m", max_tokens=9, messages=[HELLO])
        models = [model.id async for model in client.models.list()]

    assert counted.input_tokens == replied.usage.input_tokens > 0
    assert models == ["claude-scripted"]


async def test_step_may_wait_while_another_client_is_served() -> None:
    asked_first, released = anyio.Event(), anyio.Event()

    async def wait(messages: list[Json]) -> Json:
        asked_first.set()
        await released.wait()
        return say("slow")

    reply: list[str] = []
    async with talking(wait, say("fast")) as (client, _), anyio.create_task_group() as tasks:

        async def first() -> None:
            reply.append((await asked(client))["content"][0]["text"])

        tasks.start_soon(first)
        await asked_first.wait()
        reply.append((await asked(client))["content"][0]["text"])
        released.set()

    assert reply == ["fast", "slow"]


async def exchange(server: ModelServer, *sent: bytes, until: bytes) -> bytes:
    """Send bytes over one connection and read until some come back."""
    port = int(server.url.rpartition(":")[2])
    received = b""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        for piece in sent:
            await stream.send(piece)
        while until not in received:
            received += await stream.receive()
    return received


def head(method: str, path: str, *headers: str) -> bytes:
    own = [f"{name}: {value}" for name, value in HEADERS.items()]
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *own, *headers, "", ""]).encode()


async def test_body_may_be_chunked_with_expect_continue_and_keep_alive() -> None:
    expecting = head("POST", "/v1/messages", f"Content-Length: {len(BODY)}", "Expect: 100-continue")
    chunked = head("POST", "/v1/messages?beta=true", "Transfer-Encoding: chunked")
    chunks = b"5;x=y\r\n%b\r\n%x\r\n%b\r\n0\r\nTrailer: t\r\n\r\n" % (BODY[:5], len(BODY) - 5, BODY[5:])

    async with talking(say("first"), say("second")) as (_, server):
        go_ahead = await exchange(server, expecting, until=b"\r\n\r\n")
        received = await exchange(server, expecting, BODY, chunked, chunks, until=b'"second"')

    assert go_ahead.startswith(b"HTTP/1.1 100 ")
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert received.index(b'"first"') < received.index(b'"second"')


async def test_head_request_gets_only_headers_and_http_1_0_a_closed_connection() -> None:
    old = head("POST", "/v1/messages", f"Content-Length: {len(BODY)}").replace(b"1.1", b"1.0", 1)
    streaming = json.dumps({**json.loads(BODY), "stream": True}).encode()
    old_stream = head("POST", "/v1/messages", f"Content-Length: {len(streaming)}")

    async with talking(say("old"), say("old stream")) as (_, server):
        listed = await exchange(server, head("HEAD", "/v1/models"), head("HEAD", "/"), until=b"404 Not Found")
        closed = await exchange(server, old, BODY, until=b'"old"')
        flowing = await exchange(server, old_stream.replace(b"1.1", b"1.0", 1), streaming, until=b"message_stop")

    assert b"request-id: req_011" in listed
    assert b"{" not in listed
    assert b"connection: close" in closed.lower()
    assert b"transfer-encoding" not in flowing


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"400 Bad Request"),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400 Bad Request"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", b"413 "),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400 Bad Request"),
        (b"x" * 70_000, b"431 "),
        (head("GET", "/v1/nothing"), b"404 Not Found"),
        (head("DELETE", "/v1/messages"), b"405 Method Not Allowed"),
        (b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", b"401 Unauthorized"),
        (b"GET /v1/models HTTP/1.1\r\nHost: x\r\nx-api-key: k\r\n\r\n", b"anthropic-version: header is"),
        (head("POST", "/v1/messages", "Content-Length: 1") + b"{", b"not valid JSON"),
        (head("POST", "/v1/messages", "Content-Length: 2") + b"{}", b"model: Field required"),
        (head("POST", "/v1/messages", "Content-Length: 11") + b'{"model":1}', b"model: Input should be a valid str"),
    ],
)
async def test_invalid_request_is_reported_and_the_server_continues(sent: bytes, answer: bytes) -> None:
    async with talking(say("Still here.")) as (client, server):
        received = await exchange(server, sent, until=b'"request_id"')
        after = await asked(client)

    assert answer in received
    assert b'"type":"error"' in received
    assert after["content"] == [say("Still here.")]


async def test_clients_that_disconnect_early_do_not_affect_others() -> None:
    long = say("word " * 200_000)

    async with talking(long, say("Still here.")) as (client, server):
        await exchange(server, head("POST", "/v1/messages", "Content-Length: 50"), b"{", until=b"")
        stream = await client.messages.create(model="m", max_tokens=9, messages=[HELLO], stream=True)
        await stream.close()
        after = await asked(client)

    assert after["content"] == [say("Still here.")]


def test_server_can_be_used_in_a_synchronous_test() -> None:
    with ModelServer(ScriptedModel([say("Hello."), say("Bye.")])) as server:
        client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
        with client:
            reply = client.messages.create(model="m", max_tokens=9, messages=[HELLO])
            with client.messages.stream(model="m", max_tokens=9, messages=[HELLO]) as stream:
                streamed_text = stream.get_final_text()

    assert (cast("Any", reply.content[0]).text, streamed_text) == ("Hello.", "Bye.")


def test_script_error_is_raised_by_a_synchronous_with() -> None:
    with pytest.raises(testing.ScriptExhausted), ModelServer(ScriptedModel([])) as server:
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
        connection.request("POST", "/v1/messages", BODY, HEADERS)
        assert connection.getresponse().status == 400
        connection.close()


def test_command_line_serves_a_script_and_prints_its_url(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([[say("Hello.")]]), encoding="utf-8")
    command = [sys.executable, "-W", "error", "-m", "toolspan.testing.model_server", str(script)]

    with subprocess.Popen([*command, "--port", "0", "--then", "Bye."], stdout=subprocess.PIPE, text=True) as served:
        try:
            assert served.stdout is not None
            url = served.stdout.readline().strip()
            with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
                reply = [client.messages.create(model="m", max_tokens=9, messages=[HELLO]).content for _ in range(3)]
        finally:
            served.send_signal(signal.SIGTERM)
        assert served.wait() == 0

    assert [cast("Any", content[0]).text for content in reply] == ["Hello.", "Bye.", "Bye."]


def test_command_line_reports_an_invalid_script(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('["hi"]', encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "toolspan.testing.model_server", script],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert "Expected a list of content blocks as step 0" in done.stderr
