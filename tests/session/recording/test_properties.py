"""Any recorded conversation is read back unchanged."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

import toolspan
from tests.session.recording import emitted
from toolspan.runtime.profiles import VERSIONS
from toolspan.session.recording import Recorder
from toolspan.types.events import Finished, HookContext

texts = st.text(max_size=40)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


class Plan(NamedTuple):
    """One call, and how it goes."""

    id: str
    tool: str
    input: dict[str, object]
    text: str
    fails: bool
    context: str | None
    rank: int


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[str, list[Plan]]]:
    number = 0
    items = []
    for _ in range(draw(st.integers(1, 4))):
        plans = []
        for _ in range(draw(st.integers(0, 4))):
            number += 1
            plans.append(
                Plan(
                    id=f"toolu_{number}",
                    tool=draw(st.sampled_from(["Any", "mcp__a__b", "Other"])),
                    input=draw(st.dictionaries(texts, values, max_size=3)),
                    text=draw(texts),
                    fails=draw(st.booleans()),
                    context=draw(st.none() | texts),
                    rank=draw(st.integers(0, 9)),
                )
            )
        items.append(("words " + draw(texts), plans))
    return items


def _finish(plan: Plan, at: float) -> Finished:
    contexts: tuple[HookContext, ...] = ()
    if plan.context is not None:
        contexts = (HookContext(point="PostToolUse", name="PostToolUse", text=plan.context),)
    if plan.fails:
        return emitted.error(plan.id, plan.tool, f"failed: {plan.text}", contexts=contexts, at=at)
    content = f"fine: {plan.text}"
    return emitted.finished(plan.id, plan.tool, content, structured=[plan.text], contexts=contexts, at=at)


def _record(recording: Recorder, story: list[tuple[str, list[Plan]]], streamed: bool) -> list[str]:
    """Record a story; gives the ids of the calls in the order in which they ended."""
    ended: list[str] = []
    recording.record_prompt("words of a person")
    for number, (text, plans) in enumerate(story):
        at = emitted.START + number
        rest = plans
        request = [emitted.use(plan.id, plan.tool, **plan.input) for plan in plans]
        whole = emitted.message(text, *request, id=f"msg_{number}")
        if streamed and plans:
            early = plans[0]
            recording.record_reply(whole, [whole["content"][0]], last=False, at=at)  # type: ignore[index]
            recording.record_reply(whole, [request[0]], last=False, at=at)
            recording.record_hook(emitted.hook(early.id, "PreToolUse", "success", text="x", tool=early.tool))
            recording.record_result(_finish(early, at + 0.1))
            for block in request[1:]:
                recording.record_reply(whole, [block], last=block is request[-1], at=at + 0.2)
            ended.append(early.id)
            rest = plans[1:]
        else:
            recording.record_reply(whole, at=at)
        for plan in sorted(rest, key=lambda plan: plan.rank):
            recording.record_result(_finish(plan, at + 0.5))
            ended.append(plan.id)
    recording.close()
    return ended


@given(story=batches(), version=st.sampled_from(VERSIONS), streamed=st.booleans())
def test_any_conversation_is_read_back_as_recorded(
    story: list[tuple[str, list[Plan]]], version: str, streamed: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.jsonl"
        ended = _record(emitted.recorder(path, version=version), story, streamed)
        transcript = toolspan.read(path)
        plans = [plan for _, batch in story for plan in batch]

        assert [(span.id, span.tool) for span in transcript.spans] == [(p.id, p.tool) for p in plans]
        assert [json.loads(span.call.raw_input) for span in transcript.spans] == [plan.input for plan in plans]
        assert [span.result and span.result.text for span in transcript.spans] == [
            f"failed: {plan.text}" if plan.fails else f"fine: {plan.text}" for plan in plans
        ]
        assert [span.state for span in transcript.spans] == ["failed" if plan.fails else "succeeded" for plan in plans]
        results = sorted(transcript.spans, key=lambda span: span.result.at if span.result else 0)
        assert [span.id for span in results] == ended
        assert [reply.text for reply in transcript.messages() if reply.voice == "text"] == [text for text, _ in story]
        assert transcript.counts.malformed == 0
        assert emitted.wrong(path) == []


@given(story=batches(), version=st.sampled_from(VERSIONS), data=st.data())
def test_conversation_cut_at_any_byte_can_be_resumed(
    story: list[tuple[str, list[Plan]]], version: str, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.jsonl"
        _record(emitted.recorder(path, version=version), story, streamed=False)
        whole = path.read_bytes()
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])

        again = Recorder.resume(path, emitted.origin(path.parent, version=version), emitted.Failures())
        for call_id in sorted(again.open_calls):
            again.record_result(emitted.error(call_id, "Any", "was cut off"))
        again.record_prompt("where were we?")
        again.close()

        transcript = toolspan.read(path)
        assert {span.state for span in transcript.spans} <= {"succeeded", "failed"}
        assert transcript.counts.malformed <= 1
        codes = {finding.code for finding in emitted.wrong(path)}
        assert codes <= {"torn_line", "invalid_utf8"}  # a cut may go through a character
