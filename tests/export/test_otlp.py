"""OTLP/JSON as the protocol defines it, read with the classes of its own library."""

from __future__ import annotations

import base64
import json
import re

from google.protobuf import json_format  # type: ignore[import-untyped]
from hypothesis import given
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.export.made import BOTH, claude, exported, transcript
from tests.export.test_formats import ANYTHING, FEW
from toolspan.prices import load_prices
from toolspan.testing import TranscriptBuilder, claude_results
from toolspan.types.session import Tokens

USAGE = {
    "input_tokens": 1_000, "output_tokens": 30, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 50,
}  # fmt: skip


def parsed(text: str) -> list[Span]:
    result = []
    for line in filter(None, text.split("\n")):
        request = json_format.Parse(hex_as_base64(line), ExportTraceServiceRequest())
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                result += scope.spans
    return result


def hex_as_base64(line: str) -> str:
    """OTLP/JSON writes ids in hexadecimal, where JSON of Protocol Buffers has base64."""

    def turned(result: re.Match[str]) -> str:
        digits = base64.b64encode(bytes.fromhex(result[2])).decode()
        return f'"{result[1]}":"{digits}"'

    return re.sub(r'"(traceId|spanId|parentSpanId)":"([0-9a-f]+)"', turned, line)


@FEW
@given(ANYTHING)
def test_otlp_follows_the_protocol(text: str) -> None:
    for make in BOTH:
        spans = parsed(exported(make(text))["otlp"])

        assert {len(span.trace_id) for span in spans} == {16}
        assert {len(span.span_id) for span in spans} == {8}
        ids = [span.span_id for span in spans]
        assert len(set(ids)) == len(ids)
        assert all(span.parent_span_id in ids for span in spans[1:])
        assert spans[0].parent_span_id == b""
        assert all(0 < s.start_time_unix_nano <= s.end_time_unix_nano for s in spans)


def test_otlp_uses_the_attribute_names_of_live_telemetry() -> None:
    root, *spans = parsed(exported(claude("some words"))["otlp"])
    by_name = {span.name: span for span in spans}
    task, grep = by_name["execute_tool Task"], by_name["execute_tool Grep"]
    bash = next(span for span in spans if span.name == "execute_tool Bash")
    output = {item.key: item.value for item in bash.attributes}

    assert grep.parent_span_id == task.span_id
    assert task.parent_span_id == bash.parent_span_id == root.span_id
    assert bash.end_time_unix_nano - bash.start_time_unix_nano == 1_500_000_000
    assert output["gen_ai.operation.name"].string_value == "execute_tool"
    assert output["gen_ai.tool.name"].string_value == "Bash"
    assert output["toolspan.call.state"].string_value == "succeeded"
    assert json.loads(output["gen_ai.tool.call.arguments"].string_value)["command"] == "some words"
    assert by_name["toolspan.permission_wait"].parent_span_id in {span.span_id for span in spans}


def attributes(span: Span) -> dict[str, object]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in span.attributes}


def test_each_model_request_is_a_span_with_its_tokens_model_provider_and_cost() -> None:
    builder = TranscriptBuilder().prompt("go").text("I look.").usage(**USAGE)
    builder.result(builder.call("Bash", {"command": "ls"}), claude_results.ran("a.py"), after_ms=1_500)
    builder.text("Done.").usage(**USAGE)

    root, first, call, *_, last = parsed(exported([transcript(builder.data())])["otlp"])
    values = attributes(first)

    assert first.name == "chat claude-opus-5-5"
    assert (first.kind, first.parent_span_id, last.parent_span_id) == (
        Span.SPAN_KIND_CLIENT,
        root.span_id,
        root.span_id,
    )
    assert values["gen_ai.operation.name"] == "chat"
    assert values["gen_ai.provider.name"] == "anthropic"
    assert values["gen_ai.usage.input_tokens"] == 1_000 + 200 + 50
    assert values["gen_ai.usage.output_tokens"] == 30
    assert values["gen_ai.usage.cache_read.input_tokens"] == 200
    cost = load_prices().cost("claude-opus-5-5", None, Tokens(**USAGE))
    assert values["gen_ai.usage.cost"] == values["operation.cost"] == cost
    assert json.loads(str(values["gen_ai.input.messages"]))[0]["parts"][0]["content"] == "go"
    assert [part["type"] for part in json.loads(str(values["gen_ai.output.messages"]))[0]["parts"]] == [
        "text", "tool_call",
    ]  # fmt: skip
    assert call.start_time_unix_nano >= first.end_time_unix_nano
    assert last.start_time_unix_nano >= call.end_time_unix_nano


@FEW
@given(ANYTHING)
def test_requests_have_the_tokens_of_the_session_and_messages_are_json(text: str) -> None:
    for make in BOTH:
        transcripts = make(text)
        values = [attributes(span) for span in parsed(exported(transcripts)["otlp"]) if span.name.startswith("chat")]

        assert sum(int(str(value["gen_ai.usage.output_tokens"])) for value in values) == sum(
            transcript.tokens.output_tokens for transcript in transcripts
        )
        for value in values:
            json.loads(str(value.get("gen_ai.output.messages", "[]")))
