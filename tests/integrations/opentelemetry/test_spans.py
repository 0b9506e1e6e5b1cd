"""OpenTelemetry spans of real runs."""

from __future__ import annotations

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from tests.integrations.opentelemetry.exporters import Watch, call, runner, seconds
from tests.runtime.waiting_tools import Held
from toolspan import Permissions
from toolspan.errors import ToolError
from toolspan.integrations.opentelemetry import OtelSink
from toolspan.runtime.context import ToolContext
from toolspan.runtime.hooks import Hooks
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import tool
from toolspan.session import Session
from toolspan.types.decision import Allow, Ask, Deny
from toolspan.types.events import Finished, LiveEvent
from toolspan.types.span import Call

pytestmark = pytest.mark.anyio


@tool(concurrent=True)
async def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}"


@tool
async def fail(why: str) -> str:
    """Fail."""
    raise ToolError(why, kind="not_found")


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


async def test_call_is_a_span_with_its_execution_inside_and_the_times_of_its_events() -> None:
    watch = Watch()
    await runner(watch, [greet]).run([call("greet", name="you")])

    assert [span.name for span in watch.spans] == ["execute_tool greet", "toolspan.execution"]
    whole, inside = watch.spans
    assert whole.parent is None
    assert whole.context is not None
    assert parent_of(inside) == whole.context.span_id
    assert seconds(whole)[0] < seconds(inside)[0] < seconds(inside)[1] == seconds(whole)[1]
    assert whole.status.status_code is StatusCode.UNSET
    assert attributes(whole) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "greet",
        "gen_ai.tool.call.id": "toolu_1",
        "gen_ai.tool.type": "function",
        "toolspan.call.state": "succeeded",
        "toolspan.input.size": len('{"name":"you"}'),
        "toolspan.result.size": len("Hello you"),
    }


async def test_session_names_the_conversation_and_the_message() -> None:
    watch = Watch()
    async with Session(
        permissions=Permissions.allow_all(), tools=[greet], transcript=None, sinks=[watch.sink]
    ) as session:
        session.say("hi")
        reply = {"id": "msg_1", "role": "assistant", "content": [call("greet", name="you")]}
        await session.run(reply)

    output = attributes(watch.span("execute_tool greet"))
    assert output["gen_ai.conversation.id"] == session.session_id
    assert output["toolspan.message.id"] == "msg_1"


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        (call("fail", why="gone"), "not_found"),
        (call("nothing"), "unknown_tool"),
        (call("fail", reason="?"), "invalid_input"),
    ],
)
async def test_failure_has_its_error_kind(block: dict[str, object], kind: str) -> None:
    watch = Watch()
    await runner(watch, [fail]).run([block])

    whole = watch.spans[0]
    assert whole.status.status_code is StatusCode.ERROR
    assert whole.status.description is None
    assert attributes(whole)["error.type"] == kind
    assert attributes(whole)["toolspan.call.state"] == "failed"


async def test_expired_time_limit_is_a_timeout() -> None:
    @tool(timeout=0.01)
    async def forever() -> str:
        """Wait."""
        await anyio.sleep_forever()
        return "never"

    watch = Watch()
    await runner(watch, [forever]).run([call("forever")])

    assert attributes(watch.span("execute_tool forever"))["error.type"] == "timeout"


async def test_ended_calls_state_whether_they_had_started() -> None:
    watch, wait = Watch(), Held("wait")
    async with runner(watch, [wait.tool]) as running, running.batch() as batch:
        batch.add(call("wait", "toolu_1"))
        batch.add(call("wait", "toolu_2"))
        await wait.inside.wait()
        running.cancel()

    output = {str(attributes(s).get("gen_ai.tool.call.id")): attributes(s) for s in watch.spans}
    assert output["toolu_1"]["error.type"] == "interrupted"
    assert output["toolu_2"]["error.type"] == "cancelled"
    assert [span.name for span in watch.spans].count("toolspan.execution") == 1


async def test_denial_without_a_question_is_recorded_on_the_call() -> None:
    watch = Watch()

    async def no(_: PermissionRequest) -> Deny:
        return Deny("not today")

    await runner(watch, [greet], policies=[no]).run([call("greet", name="you")])

    (whole,) = watch.spans
    output = attributes(whole)
    assert output["toolspan.permission.decision"] == "reject"
    assert output["toolspan.permission.source"] == "config"
    assert output["error.type"] == "rule_denied"
    assert whole.status.status_code is StatusCode.ERROR


async def test_approval_time_is_a_span() -> None:
    watch = Watch()

    async def ask(_: PermissionRequest) -> Ask:
        return Ask("sure?")

    async def approve(_: PermissionRequest, __: Ask) -> Allow:
        return Allow(source="user_temporary")

    asking = runner(watch, [greet], policies=[ask], approver=approve)
    await asking.run([call("greet", name="you")])

    waiting, running = watch.span("toolspan.permission_wait"), watch.span("toolspan.execution")
    assert attributes(waiting) == {
        "toolspan.permission.decision": "accept",
        "toolspan.permission.source": "user_temporary",
    }
    assert seconds(waiting)[0] < seconds(waiting)[1] <= seconds(running)[0]


async def test_each_handler_is_a_span_and_execution_ends_before_post_hooks() -> None:
    watch, hooks = Watch(), Hooks()

    @hooks.pre_tool_use()
    def look(_: Call) -> None:
        return None

    @hooks.post_tool_use()
    def stumble(*_: object) -> None:
        raise RuntimeError("oh")

    await runner(watch, [greet], hooks=hooks).run([call("greet", name="you")])

    before, after = (span for span in watch.spans if span.name == "toolspan.hook")
    assert attributes(before)["toolspan.hook.point"] == "PreToolUse"
    assert attributes(before)["toolspan.hook.outcome"] == "success"
    assert str(attributes(before)["toolspan.hook.name"]).endswith("look")
    assert attributes(after)["toolspan.hook.outcome"] == "error"
    assert after.status.status_code is StatusCode.ERROR
    running, whole = watch.span("toolspan.execution"), watch.span("execute_tool greet")
    assert seconds(before)[1] <= seconds(running)[0]
    assert seconds(running)[1] <= seconds(after)[0]
    assert seconds(after)[1] < seconds(whole)[1]
    assert whole.status.status_code is StatusCode.UNSET


async def test_denying_hook_is_reported_as_blocked() -> None:
    watch, hooks = Watch(), Hooks()
    hooks.pre_tool_use()(lambda _: Deny("no"))
    await runner(watch, [greet], hooks=hooks).run([call("greet", name="you")])

    assert attributes(watch.span("toolspan.hook"))["toolspan.hook.outcome"] == "blocked"
    output = attributes(watch.span("execute_tool greet"))
    assert output["toolspan.call.state"] == "blocked_by_hook"
    assert output["error.type"] == "hook_blocked"


async def test_progress_is_an_event_of_the_execution() -> None:
    @tool
    async def work(ctx: ToolContext) -> str:
        """Work."""
        ctx.progress("step", done=1)
        return "done"

    watch = Watch()
    await runner(watch, [work]).run([call("work")])

    (event,) = watch.span("toolspan.execution").events
    assert event.name == "toolspan.progress"
    assert dict(event.attributes or {}) == {"toolspan.progress.kind": "step"}


async def test_running_calls_end_as_unfinished_at_shutdown() -> None:
    watch, wait = Watch(), Held("wait")
    async with runner(watch, [wait.tool]) as running, running.batch() as batch:
        batch.add(call("wait"))
        await wait.inside.wait()
        watch.sink.close()
        names = [span.name for span in watch.spans]
        whole = watch.span("execute_tool wait")
        wait.go_on.set()

    assert sorted(names) == ["execute_tool wait", "toolspan.execution"]
    assert whole.status.status_code is StatusCode.ERROR
    assert attributes(whole)["error.type"] == "unfinished"
    assert attributes(whole)["toolspan.call.state"] == "never_answered"


async def test_call_whose_start_event_was_dropped_is_still_reported() -> None:
    watch = Watch()

    def late(event: LiveEvent) -> None:
        if isinstance(event, Finished):
            watch.sink(event)

    (finished,) = await Runner([greet], direct=[late]).finish([call("greet", name="you")])

    (whole,) = watch.spans
    began, ended = seconds(whole)
    assert attributes(whole)["toolspan.call.state"] == "succeeded"
    assert ended - began == pytest.approx(finished.duration_ms / 1e3, abs=1e-5)


async def test_calls_are_children_of_the_span_around_a_batch() -> None:
    watch = Watch()
    with watch.tracers.get_tracer("host").start_as_current_span("turn") as turn:
        sink = OtelSink(watch.tracers)
        async with Runner([greet], sinks=[sink]) as running:
            await running.run([call("greet", "a", name="A"), call("greet", "b", name="B")])

    calls = [span for span in watch.spans if span.name == "execute_tool greet"]
    assert [parent_of(span) for span in calls] == [turn.get_span_context().span_id] * 2
    (event,) = watch.span("turn").events
    assert event.name == "toolspan.batch.finished"
    assert dict(event.attributes or {}) == {"toolspan.batch.calls": 2, "toolspan.turn.stopped": False}


async def test_direct_sink_makes_calls_children_of_the_current_span() -> None:
    watch = Watch()
    async with runner(watch, [greet]) as running:
        with watch.tracers.get_tracer("host").start_as_current_span("turn") as turn:
            await running.run([call("greet", name="you")])

    assert parent_of(watch.span("execute_tool greet")) == turn.get_span_context().span_id


async def test_child_process_can_continue_the_trace() -> None:
    watch = Watch()

    @tool
    async def spawn(ctx: ToolContext) -> str:
        """Say what a child sees."""
        command = ["sh", "-c", "echo $TRACEPARENT"]
        env = {"PATH": "/usr/bin:/bin", **watch.sink.environment(ctx.call.id)}
        return (await anyio.run_process(command, env=env)).stdout.decode().strip()

    (result,) = await runner(watch, [spawn]).run([call("spawn")])

    context = watch.span("toolspan.execution").context
    assert context is not None
    trace_id = trace.format_trace_id(context.trace_id)
    assert result.text.startswith(f"00-{trace_id}-{trace.format_span_id(context.span_id)}-")
    assert watch.sink.environment() == {}


async def test_durations_are_counted_by_tool_and_outcome() -> None:
    watch = Watch()
    await runner(watch, [greet, fail]).run(
        [
            call("greet", "a", name="A"),
            call("greet", "b", name="B"),
            call("fail", "c", why="gone"),
            call("invented_by_the_model", "d"),
        ]
    )

    output = {
        (a["gen_ai.tool.name"], a["toolspan.call.state"], a.get("error.type")): point.count
        for point in watch.points
        if (a := dict(point.attributes or {}))
    }
    assert output == {
        ("greet", "succeeded", None): 2,
        ("fail", "failed", "not_found"): 1,
        ("_OTHER", "failed", "unknown_tool"): 1,
    }
