"""Requests to models as OpenTelemetry spans, while they run and as in the export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from tests.integrations.opentelemetry.exporters import Watch
from tests.integrations.opentelemetry.test_spans import attributes, parent_of
from toolspan import Agent, Permissions, Session
from toolspan.export.export import export_sessions
from toolspan.session import Subagents
from toolspan.testing import ScriptedModel, fail, say, use

pytestmark = pytest.mark.anyio
EXPORTED = ("gen_ai.operation.name", "gen_ai.request.model", "gen_ai.response.id", "gen_ai.conversation.id")


async def run(watch: Watch, folder: Path, *steps: Any) -> Path:
    async with Session(
        cwd=folder, permissions=Permissions.allow_all(), sinks=[watch.sink], transcript=folder / "session.jsonl"
    ) as session:
        agent = Agent(session, ScriptedModel(list(steps)))
        Subagents(agent)
        await agent.prompt("Go.")
    return folder / "session.jsonl"


async def test_each_request_is_a_span_beside_those_of_the_calls_and_equals_the_export(tmp_path: Path) -> None:
    watch = Watch()
    transcript = await run(watch, tmp_path, use("Bash", command="echo hi"), say("It says hi."))

    chats = [span for span in watch.spans if span.name.startswith("chat ")]
    assert [span.name for span in watch.spans if span.parent is None] == [
        chats[0].name, "execute_tool Bash", chats[1].name,
    ]  # fmt: skip
    assert {span.kind for span in chats} == {SpanKind.CLIENT}
    assert [attributes(span)["gen_ai.response.finish_reasons"] for span in chats] == [("tool_use",), ("end_turn",)]
    assert all(span.start_time <= span.end_time for span in chats if span.start_time and span.end_time)
    exported = [span for span in export_spans(transcript) if str(span["name"]).startswith("chat ")]
    names = [*EXPORTED, "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"]
    live = [{name: attributes(span)[name] for name in names} for span in chats]
    assert live == [{name: span[name] for name in names} for span in exported]


async def test_failed_request_is_a_span_with_its_error(tmp_path: Path) -> None:
    watch = Watch()
    await run(watch, tmp_path, fail(529))

    (chat,) = watch.spans
    assert chat.status.status_code is StatusCode.ERROR
    assert attributes(chat)["error.type"] == "overloaded_error"
    assert "gen_ai.response.id" not in attributes(chat)


async def test_requests_of_a_subagent_are_inside_the_call_that_started_it(tmp_path: Path) -> None:
    watch = Watch()
    call = use("Agent", description="Look", prompt="Look.", run_in_background=False)
    await run(watch, tmp_path, call, say("I see."), say("Done."))

    first, inside, last = (span for span in watch.spans if span.name.startswith("chat "))
    execution = watch.span("toolspan.execution")  # of the one call
    assert execution.context is not None
    assert (parent_of(first), parent_of(inside), parent_of(last)) == (None, execution.context.span_id, None)
    assert "gen_ai.agent.id" in attributes(inside)
    assert "gen_ai.agent.id" not in attributes(first)


def export_spans(transcript: Path) -> list[dict[str, object]]:
    """Return the spans of the OTLP export, with their names and attributes."""
    document = json.loads(b"".join(export_sessions([str(transcript)], form="otlp")))
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return [
        {"name": span["name"]} | {item["key"]: _value(item["value"]) for item in span["attributes"]} for span in spans
    ]


def _value(value: dict[str, object]) -> object:
    ((kind, inner),) = value.items()
    return int(str(inner)) if kind == "intValue" else inner
