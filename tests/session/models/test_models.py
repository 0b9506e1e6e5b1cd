"""Models behind real servers: the SDK streams of all providers become the same events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from tests.requirement import requirement
from toolspan import Permissions, Session, read, testing
from toolspan.errors import ToolspanError
from toolspan.session import Agent
from toolspan.session.models import base as said
from toolspan.session.models import make_model, parse_model_spec
from toolspan.session.models.anthropic import AnthropicModel
from toolspan.session.models.anthropic import _AnthropicStreamReader as AnthropicReader
from toolspan.session.models.base import BlockDone, Model, ModelEvent, ModelFailed, ModelRequest, ModelStream
from toolspan.session.models.openai import OpenAIModel, to_chat_messages
from toolspan.session.models.openai import _OpenAIStreamReader as OpenAIReader
from toolspan.session.models.retry import RetryingModel, RetryOptions
from toolspan.testing import ModelServer, ScriptedModel, check_history, fail, say, use
from toolspan.testing.model_server import HttpConnection, HttpResponse

if TYPE_CHECKING:
    from anthropic.types import RawMessageStreamEvent
    from openai.types.chat import ChatCompletionChunk


pytestmark = pytest.mark.anyio

ASKED = ModelRequest(messages=[{"role": "user", "content": "Hi"}], system="Be kind.", max_tokens=99)
Make = Callable[[str], Model]


def anthropic(url: str) -> Model:
    pytest.importorskip("anthropic")
    return AnthropicModel("m", base_url=url, api_key="none")


def openai(url: str) -> Model:
    pytest.importorskip("openai")
    return OpenAIModel("m", base_url=f"{url}/v1", api_key="none")


def gemini(url: str) -> Model:
    pytest.importorskip("google.genai")
    from toolspan.session.models.gemini import GeminiModel

    return GeminiModel("m", base_url=url, api_key="none")


def bedrock(url: str) -> Model:
    pytest.importorskip("boto3")
    from toolspan.session.models.bedrock import BedrockModel

    return BedrockModel("m", base_url=url)


ALL = pytest.mark.parametrize("make", [anthropic, openai, gemini, bedrock])
"""The adapters of all APIs, which must behave alike."""
STREAMED_INPUT = pytest.mark.parametrize("make", [anthropic, openai, bedrock])
"""Those whose API streams the input of a call as text, which may be cut off."""


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setenv("AWS_REGION", "us-east-1")


async def collect_events(model: Model, request: ModelRequest = ASKED) -> list[ModelEvent]:
    try:
        async with aclosing(model.stream(request)) as events:
            return [event async for event in events]
    finally:
        await model.close()


async def served(script: ScriptedModel, make: Make, request: ModelRequest = ASKED) -> list[ModelEvent]:
    async with ModelServer(script) as server:
        return await collect_events(make(server.url), request)


def blocks(events: list[ModelEvent]) -> list[dict[str, object]]:
    return [event.block for event in events if isinstance(event, BlockDone)]


def end(events: list[ModelEvent]) -> str:
    assert isinstance(events[-1], said.ReplyStopped)
    return events[-1].reason


@ALL
async def test_text_and_calls_stream_in_deltas_and_end_complete(make: Make) -> None:
    output = [say("I look at both of them."), use("Read", path="a"), use("Bash", command="ls -la")]
    script = ScriptedModel([output])
    events = await served(script, make)

    assert isinstance(events[0], said.ReplyBegan)
    assert "".join(e.text for e in events if isinstance(e, said.TextDelta)) == "I look at both of them."
    assert len([e for e in events if isinstance(e, said.TextDelta)]) > 1
    text, read, bash = blocks(events)
    assert text["text"] == "I look at both of them."
    assert (read["name"], read["input"]) == ("Read", {"path": "a"})
    assert (bash["name"], bash["input"]) == ("Bash", {"command": "ls -la"})
    begun = [e.call_id for e in events if isinstance(e, said.CallBegan)]
    assert begun == [read["id"], bash["id"]]
    pieces = "".join(e.text for e in events if isinstance(e, said.InputDelta) and e.call_id == bash["id"])
    assert pieces == '{"command":"ls -la"}'
    assert end(events) == "tool_use"
    tokens: dict[str, object] = {}
    for usage in (e for e in events if isinstance(e, said.Usage)):
        tokens |= usage.tokens
    assert isinstance(tokens["output_tokens"], int)
    assert tokens["output_tokens"] > 1


@ALL
async def test_request_contains_system_messages_and_tools(make: Make) -> None:
    script = ScriptedModel([say("Done.")])
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    call = {"type": "tool_use", "id": "c1", "name": "Read", "input": {"path": "a"}}
    answer = {"type": "tool_result", "tool_use_id": "c1", "content": "hello"}
    request = ModelRequest(
        system="Be kind.",
        messages=[
            {"role": "user", "content": "Read it."},
            {"role": "assistant", "content": [{"type": "text", "text": "I do."}, call]},
            {"role": "user", "content": [answer, {"type": "text", "text": "And?"}]},
        ],
        tools=[{"name": "Read", "description": "Reads.", "input_schema": schema}],
    )
    await served(script, make, request)

    sent = script.requests[0]
    assert "Be kind." in str(sent["system"])
    assert "hello" in str(sent["messages"])
    assert [tool["name"] for tool in sent["tools"]] == ["Read"]  # type: ignore[attr-defined]
    assert "c1" in str(sent["messages"])


@STREAMED_INPUT
async def test_truncated_call_has_an_object_as_input(make: Make) -> None:
    truncated = testing.cut(use("Write", file_path="a.txt", content="a long text"))
    events = await served(ScriptedModel([truncated]), make)
    (block,) = blocks(events)

    assert end(events) == "max_tokens"
    assert (block["name"], type(block["input"])) == ("Write", dict)


@ALL
async def test_truncated_and_refused_replies_have_their_stop_reason(make: Make) -> None:
    assert end(await served(ScriptedModel([testing.cut(say("A long text."))]), make)) == "max_tokens"
    assert end(await served(ScriptedModel([testing.refuse(say("No."))]), make)) == "refusal"


@requirement("model.malformed-input")
@STREAMED_INPUT
async def test_invalid_json_input_is_kept_unchanged(make: Make) -> None:
    script = ScriptedModel([testing.garble(use("Bash", description="x", command="ls"))])
    (block,) = blocks(await served(script, make))

    assert isinstance(block["input"], dict)
    raw = block["input"]["__unparsedToolInput"]
    assert raw["raw"].startswith('{"description":"x","command":"l')


async def test_malformed_call_of_gemini_is_retried() -> None:
    script = ScriptedModel([testing.garble(use("Bash", command="ls")), say("Done.")])
    async with ModelServer(script) as server:
        events = await collect_events(RetryingModel(gemini(server.url), RetryOptions(sleep=nothing)))

    (failure,) = [event.failure for event in events if isinstance(event, said.Retrying)]
    assert failure.message.startswith("the model ended its reply with MALFORMED_FUNCTION_CALL")
    assert end(events) == "end_turn"


@ALL
async def test_conversation_with_calls_images_and_errors_is_accepted(make: Make) -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    script = ScriptedModel([[say("I look."), use("Read", path="a"), use("Read", path="b")], say("Seen."), say("Bye.")])
    messages: list[dict[str, object]] = [{"role": "user", "content": [{"type": "text", "text": "See"}, picture]}]
    async with ModelServer(script) as server:
        model = make(server.url)
        for _ in range(3):  # one adapter for all requests, as an agent has it
            request = ModelRequest(messages=messages, tools=[{"name": "Read", "input_schema": {"type": "object"}}])
            if len(messages) > 3:
                request = ModelRequest(messages=messages)  # as for a summary
            async with aclosing(model.stream(request)) as stream:
                reply = blocks([event async for event in stream])
            messages.append({"role": "assistant", "content": reply})
            failed = {"content": [{"type": "text", "text": "no such file"}], "is_error": True}
            calls = [block["id"] for block in reply if block["type"] == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": call_id, **failed} for call_id in calls]
            messages.append({"role": "user", "content": [*results, {"type": "text", "text": "And?"}]})
        await model.close()

    assert check_history(messages) == []
    assert check_history(script.requests[-1]["messages"]) == []
    assert str(script.requests[-1]["messages"]).count("no such file") == 2


async def test_thinking_is_recorded_only_with_a_signature() -> None:
    script = [[testing.think("Hm, so."), say("Yes.")]]
    for make, is_signed in ((anthropic, True), (bedrock, True), (openai, False), (gemini, False)):
        events = await served(ScriptedModel(script), make)
        thinking, *_ = recorded = blocks(events)

        assert "".join(e.text for e in events if isinstance(e, said.ThinkingDelta)) == "Hm, so."
        assert [block["type"] for block in recorded] == (["thinking", "text"] if is_signed else ["text"])
        assert bool(thinking.get("signature")) == is_signed


@ALL
async def test_error_response_states_whether_to_retry(make: Make) -> None:
    for step, status, retry, after in (
        (fail(429, retry_after=7), 429, True, 7),
        (fail(529), 529, True, None),
        (fail(500), 500, True, None),
        (fail(400, message="prompt is too long: 9 > 8"), 400, False, None),
        (fail(401), 401, False, None),
    ):
        with pytest.raises(ModelFailed) as caught:
            await served(ScriptedModel([step]), make)
        failed = caught.value
        assert (failed.status, failed.retry, failed.retry_after) == (status, retry, after)
        assert failed.is_too_long == ("too long" in failed.message)


@ALL
async def test_broken_stream_is_not_a_reply(make: Make) -> None:
    for step in (fail(529, after=[say("I was")]), testing.drop(say("I was")), testing.drop()):
        with pytest.raises(ModelFailed) as caught:
            await served(ScriptedModel([step]), make)
        assert caught.value.retry


@ALL
async def test_refused_connection_is_a_connection_error(make: Make) -> None:
    async with ModelServer(ScriptedModel([])) as server:
        url = server.url
    with pytest.raises(ModelFailed, match="no connection") as caught:
        await collect_events(make(url))
    assert caught.value.retry


async def nothing(_seconds: float) -> None:
    await anyio.lowlevel.checkpoint()


@ALL
async def test_failed_request_is_retried_and_its_partial_reply_dropped(make: Make) -> None:
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    script = ScriptedModel([fail(429, retry_after=7), fail(529), testing.drop(say("I was")), say("Here I am.")])
    async with ModelServer(script) as server:
        model = RetryingModel(make(server.url), RetryOptions(sleep=note, jitter=lambda: 1.0))
        events = await collect_events(model)

    retries = [n for n, event in enumerate(events) if isinstance(event, said.Retrying)]
    assert waits == [7, 1.0, 2.0]
    assert [b["text"] for b in blocks(events[retries[-1] :])] == ["Here I am."]
    assert end(events) == "end_turn"


async def test_request_is_not_retried_after_a_complete_call() -> None:
    script = ScriptedModel([testing.drop(use("Read", path="a")), say("never")])
    with pytest.raises(ModelFailed):
        await collect_events(RetryingModel(script, RetryOptions(sleep=nothing)))
    assert script.remaining_steps == 1


async def test_retries_are_limited() -> None:
    script = ScriptedModel([], then=fail(529))
    with pytest.raises(ModelFailed):
        await collect_events(RetryingModel(script, RetryOptions(retries=3, sleep=nothing)))
    assert len(script.requests) == 4

    script = ScriptedModel([fail(429, retry_after=86_400)])
    with pytest.raises(ModelFailed):
        await collect_events(RetryingModel(script, RetryOptions(sleep=nothing)))


async def test_silent_stream_times_out() -> None:
    async def never(_messages: object) -> dict[str, object]:
        await anyio.sleep_forever()
        raise AssertionError

    script = ScriptedModel([never, say("Awake.")])
    patience = RetryOptions(idle_timeout_s=0.01, sleep=nothing)
    events = await collect_events(RetryingModel(script, patience))

    assert any(isinstance(e, said.Retrying) and e.failure.kind == "timeout" for e in events)
    assert [b["text"] for b in blocks(events)] == ["Awake."]


@ALL
async def test_repeated_call_id_is_replaced(make: Make) -> None:
    call = {"type": "tool_use", "id": "same", "name": "Read", "input": {}}
    request = ModelRequest(
        messages=[
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "same", "content": "x"}]},
        ]
    )
    script = ScriptedModel([[dict(call), {**call, "id": "odd:id"}]])
    first, second = blocks(await served(script, make, request))

    assert first["id"] != "same"
    assert second["id"] == "odd_id"


async def collect_stream(chunks: list[dict[str, object]]) -> list[ModelEvent]:
    lines = [f"data: {json.dumps({'id': 'x', 'choices': [], **chunk})}\n\n" for chunk in chunks]

    async def answer(stream: SocketStream) -> None:
        async with stream:
            connection = HttpConnection(stream)
            request = await connection.read_request()
            body = "".join(lines).encode()
            await connection.send_response(
                HttpResponse(status=200, body=body, content_type="text/event-stream"), request
            )

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(SocketAttribute.local_port)
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, answer)
            events = await collect_events(openai(f"http://127.0.0.1:{port}"))
            group.cancel_scope.cancel()
    return events


async def test_nonstandard_server_replies_are_parsed() -> None:
    def part(call_id: str | None, name: str, arguments: object) -> dict[str, object]:
        function = {"name": name, "arguments": arguments}
        called = {"index": 0, "id": call_id, "type": "function", "function": function}
        return {"choices": [{"index": 0, "delta": {"tool_calls": [called]}}]}

    events = await collect_stream(
        [
            part("one", "Read", '{"path":"a"}'),
            part("two", "Read", {"path": "b"}),
            part("one", "no such:name", ""),
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        ]
    )

    first, second, third = blocks(events)
    assert (first["id"], first["input"]) == ("one", {"path": "a"})
    assert (second["id"], second["input"]) == ("two", {"path": "b"})
    assert third["id"] not in ("one", "two")
    assert (third["name"], third["input"]) == ("no_such_name", {})
    assert end(events) == "tool_use"


async def test_call_without_id_gets_one() -> None:
    called = {"index": 0, "function": {"name": "Read", "arguments": "{}"}}
    choice = {"index": 0, "delta": {"tool_calls": [called]}, "finish_reason": "tool_calls"}
    (block,) = blocks(await collect_stream([{"choices": [choice]}]))

    assert str(block["id"]).startswith("call_")


async def test_image_in_a_result_becomes_text_where_images_are_not_supported() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [picture], "is_error": False}
    call = {"type": "tool_use", "id": "c", "name": "Read", "input": {}}
    output = to_chat_messages(
        ModelRequest(
            messages=[
                {"role": "user", "content": [{"type": "text", "text": "See"}, picture]},
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result]},
            ]
        )
    )

    assert output[0]["content"][1]["type"] == "image_url"  # type: ignore[index]
    assert output[2] == {"role": "tool", "tool_call_id": "c", "content": "[image, image/png: not shown to this model]"}


async def test_model_is_resolved_by_name(tmp_path: object) -> None:
    pytest.importorskip("anthropic")
    pytest.importorskip("openai")
    assert (parse_model_spec("claude-sonnet-4-5").provider, parse_model_spec("gpt-5").provider) == (
        "anthropic",
        "openai",
    )
    assert parse_model_spec("openai:qwen3:8b").name == "qwen3:8b"
    assert parse_model_spec("gemini-3-pro") == ("gemini", "gemini-3-pro")
    assert parse_model_spec("bedrock:amazon.nova-pro-v1:0") == ("bedrock", "amazon.nova-pro-v1:0")
    with pytest.raises(ToolspanError, match="unknown model"):
        parse_model_spec("llama")
    with pytest.raises(ToolspanError, match="ANTHROPIC_API_KEY"):
        make_model("anthropic:m", environment={})
    with pytest.raises(ToolspanError, match="GEMINI_API_KEY"):
        make_model("gemini:m", environment={})
    with pytest.raises(ToolspanError, match="No such file"):
        make_model(f"scripted:{tmp_path}/none.json")
    local = make_model("openai:m", base_url="http://127.0.0.1:9/v1", environment={})
    assert local.name == "m"
    await local.close()


@pytest.mark.parametrize("url", ["127.0.0.1:9", "nonsense", "http://", "http://h:x", "ftp://h"])
def test_invalid_url_is_refused_at_once(url: str) -> None:
    pytest.importorskip("anthropic")
    pytest.importorskip("openai")
    for kind in ("anthropic", "openai"):
        with pytest.raises(ToolspanError, match="is not a server address"):
            make_model(f"{kind}:m", base_url=url, environment={})
        with pytest.raises(ToolspanError, match="is not a server address"):
            make_model(f"{kind}:m", environment={f"{kind.upper()}_BASE_URL": url})


async def test_unreachable_server_is_named_without_its_password() -> None:
    pytest.importorskip("anthropic")
    pytest.importorskip("openai")
    patience = RetryOptions(retries=0)
    for word in ("anthropic:m", "openai:m"):
        url = "http://user:secret@127.0.0.1:9/v1"
        model = make_model(word, base_url=url, retry=patience, environment={})
        with pytest.raises(ModelFailed, match=r"at http://127\.0\.0\.1:9:") as output:
            async for _ in model.stream(ModelRequest(messages=[{"role": "user", "content": "x"}])):
                pass
        assert "secret" not in str(output.value)
        await model.close()


class Repeating:
    name = "repeating"

    def __init__(self) -> None:
        self.refused: list[str] = []
        self._turns = 0

    async def stream(self, request: ModelRequest) -> ModelStream:
        self.refused += check_history(list(request.messages))
        self._turns += 1
        yield said.ReplyBegan(f"msg_{self._turns}", self.name)
        for _ in range(2 if self._turns < 3 else 0):
            yield said.CallBegan("call:1/ä", "Bash")
            yield said.InputDelta("call:1/ä", '{"command": "echo hi"}')
            block = {"id": "call:1/ä", "name": "Bash", "input": {"command": "echo hi"}}
            yield BlockDone({"type": "tool_use", **block})
        if self._turns == 3:
            yield BlockDone({"type": "text", "text": "Four times hi."})
        yield said.ReplyStopped("end_turn" if self._turns == 3 else "tool_use")

    async def close(self) -> None:
        """Nothing to let go."""


async def test_invalid_and_repeated_ids_do_not_lose_a_call(tmp_path: Path) -> None:
    model = Repeating()
    transcript = tmp_path / "s.jsonl"
    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, transcript=transcript) as session:
        ended = await Agent(session, model).prompt("Say hi")

    assert (ended.text, ended.turns) == ("Four times hi.", 3)
    assert model.refused == []
    assert [span.state for span in read(transcript).spans] == ["succeeded"] * 4


class Piece(str):
    """A piece of a text that may be put to others once, at the end: adding copies all before."""

    __slots__ = ()

    def __add__(self, other: str) -> str:
        raise AssertionError("copied")

    def __radd__(self, other: str) -> str:
        raise AssertionError("copied")


def deltas(kind: str, field: str, count: int) -> Iterator[object]:
    begin = {"type": kind, "id": "a", "name": "Bash", "input": {}} if kind == "tool_use" else {}
    block = SimpleNamespace(model_dump=lambda **_: begin or {"type": kind, field: ""})
    yield SimpleNamespace(type="content_block_start", content_block=block)
    output = {"text": "text_delta", "thinking": "thinking_delta"}.get(field, "input_json_delta")
    for _ in range(count):
        delta = SimpleNamespace(type=output, **{field: Piece(" ")})
        yield SimpleNamespace(type="content_block_delta", delta=delta)
    yield SimpleNamespace(type="content_block_stop")


@pytest.mark.parametrize(("kind", "field"), [("text", "text"), ("thinking", "thinking"), ("tool_use", "partial_json")])
def test_long_block_is_joined_once(kind: str, field: str) -> None:
    reader = AnthropicReader(set(), None)
    pieces = cast("Iterator[RawMessageStreamEvent]", deltas(kind, field, 1_000))
    (*_, done) = (output for event in pieces for output in reader.read_event(event))

    assert isinstance(done, BlockDone)
    whole = done.block.get(field, done.block.get("input"))
    assert whole == (" " * 1_000 if kind != "tool_use" else {})


def test_long_arguments_are_joined_once() -> None:
    def chunk(**delta: object) -> SimpleNamespace:
        choice = SimpleNamespace(
            delta=SimpleNamespace(**{"model_extra": None, "content": None, "refusal": None, **delta}),
            finish_reason=None,
        )
        return SimpleNamespace(id="c", model="m", usage=None, choices=[choice])

    def part(text: str) -> SimpleNamespace:
        fields = SimpleNamespace(name="Bash", arguments=text)
        return SimpleNamespace(index=0, id="a", function=fields)

    reader = OpenAIReader(set(), None)
    chunks = [chunk(tool_calls=[part(Piece(" "))]) for _ in range(1_000)]
    output = [item for each in chunks for item in reader.read_chunk(cast("ChatCompletionChunk", each))]

    assert len([item for item in output if isinstance(item, said.InputDelta)]) == 1_000
    assert BlockDone({"type": "tool_use", "id": "a", "name": "Bash", "input": {}}) in reader.finish_stream()
