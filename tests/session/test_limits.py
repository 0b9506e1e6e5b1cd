"""Limits of cost, tokens, time and calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolspan
from toolspan import Permissions, Session, tool
from toolspan.runtime.tool import Tool
from toolspan.session import Agent, AgentLimits, SpendingLimits, SubagentConfig, Subagents
from toolspan.session.limits import SpendingMeter
from toolspan.session.models.scripted import ScriptStep
from toolspan.session.resume import load_history
from toolspan.testing import ScriptedModel, check_history, say, use
from toolspan.types.events import Finished, LimitReached, LiveEvent

pytestmark = pytest.mark.anyio
PRICED = "claude-sonnet-4-5"


class Notebook:
    """A tool that changes something, one that reads, and a clock that the first one moves."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now = 0.0

    def tools(self) -> list[Tool]:
        @tool()
        def write_line(text: str) -> str:
            """Write a line."""
            self.lines.append(text)
            self.now += 10
            return "written"

        @tool(read_only=True, concurrent=True)
        def read_lines() -> str:
            """Return the lines."""
            return "\n".join(self.lines)

        return [write_line, read_lines]


def make_agent(
    folder: Path,
    notebook: Notebook,
    script: list[ScriptStep],
    limits: AgentLimits,
    *,
    events: Callable[[LiveEvent], None] = lambda _: None,
    transcript: Path | str = "home",
    name: str = PRICED,
) -> Agent:
    session = Session(
        cwd=folder,
        tools=notebook.tools(),
        permissions=Permissions.allow_all(),
        transcript=transcript,
        direct=[events],
    )
    model = ScriptedModel(script, then=say("Done."), name=name)
    return Agent(session, model, limits=limits, clock=lambda: notebook.now)


async def test_a_turn_ends_before_the_next_request_once_its_cost_is_reached(tmp_path: Path) -> None:
    notebook, events = Notebook(), list[LiveEvent]()
    limits = AgentLimits(session=SpendingLimits(cost=0.000001))
    agent = make_agent(tmp_path, notebook, [use("read_lines"), say("Never asked for.")], limits, events=events.append)
    async with agent.session:
        ended = await agent.prompt("Read.")
        history = agent.session.messages

    assert ended.reason == "max_budget_usd"
    assert ended.error is not None
    assert "the session has reached its limit of $0.0000" in ended.error
    assert ended.turns == 1
    assert ended.cost is not None
    assert ended.cost > 0
    assert [(event.scope, event.name) for event in events if isinstance(event, LimitReached)] == [("session", "cost")]
    check_history(history)


async def test_calls_with_side_effects_do_not_run_in_the_middle_of_a_batch_but_get_results(tmp_path: Path) -> None:
    notebook = Notebook()
    calls = [
        use("write_line", text="one"),
        use("write_line", text="two"),
        use("read_lines"),
        use("write_line", text="x"),
    ]
    agent = make_agent(tmp_path, notebook, [calls], AgentLimits(turn=SpendingLimits(calls=2)))
    async with agent.session:
        ended = await agent.prompt("Write.")
        spans, history = agent.session.spans, agent.session.messages

    assert notebook.lines == ["one", "two"]
    assert ended.reason == "max_calls"
    assert ended.error == "the turn has reached its limit of 2 calls (3 calls used)"
    assert [span.state for span in spans] == ["succeeded", "succeeded", "succeeded", "denied"]
    assert "limit of 2 calls" in spans[-1].result.text  # type: ignore[union-attr]
    check_history(history)


@pytest.mark.parametrize("profile", ["2.0.65", None])
async def test_a_call_that_a_limit_has_prevented_is_read_as_such(tmp_path: Path, profile: str | None) -> None:
    notebook, path = Notebook(), tmp_path / "session.jsonl"
    calls = [use("write_line", text="one"), use("write_line", text="two")]
    session = Session(
        cwd=tmp_path, tools=notebook.tools(), permissions=Permissions.allow_all(), transcript=path, profile=profile
    )
    agent = Agent(session, ScriptedModel([calls]), limits=AgentLimits(turn=SpendingLimits(calls=1)))
    async with session:
        await agent.prompt("Write.")
    recorded = toolspan.read(path).spans

    assert [(span.state, span.error_kind) for span in session.spans] == [
        ("succeeded", None), ("denied", "limit_reached")
    ]  # fmt: skip
    assert [(span.state, span.error_kind) for span in recorded] == [("succeeded", None), ("denied", "limit_reached")]
    (denial,) = toolspan.Archive(path).denials(every=True)
    assert denial.by == "limit"


async def test_calls_that_run_when_a_limit_is_reached_come_to_their_end(tmp_path: Path) -> None:
    denied = asyncio.Event()

    @tool(concurrent=True)
    async def wait_for_limit() -> str:
        await denied.wait()
        for _ in range(100):  # turns of the event loop in which a cancellation would arrive
            await asyncio.sleep(0)
        return "done"

    def see(event: LiveEvent) -> None:
        if isinstance(event, Finished):  # at first, only the denied call can
            denied.set()

    calls = [use("wait_for_limit"), use("wait_for_limit"), use("wait_for_limit")]
    session = Session(
        cwd=tmp_path, tools=[wait_for_limit], permissions=Permissions.allow_all(), transcript=None, direct=[see]
    )
    model = ScriptedModel([calls], then=say("Done."))
    async with session:
        ended = await Agent(session, model, limits=AgentLimits(turn=SpendingLimits(calls=2))).prompt("Wait.")

    assert sorted(span.state for span in session.spans) == ["denied", "succeeded", "succeeded"]
    assert ended.reason == "max_calls"
    check_history(session.messages)


async def test_the_next_turn_begins_with_nothing_spent(tmp_path: Path) -> None:
    notebook = Notebook()
    script: list[ScriptStep] = [use("write_line", text="one"), use("write_line", text="two")]
    agent = make_agent(tmp_path, notebook, script, AgentLimits(turn=SpendingLimits(calls=1)))
    async with agent.session:
        first = await agent.prompt("Write.")
        second = await agent.prompt("Again.")

    assert [first.reason, second.reason] == ["max_calls", "max_calls"]
    assert notebook.lines == ["one", "two"]


async def test_time_counts_while_a_turn_runs(tmp_path: Path) -> None:
    notebook = Notebook()
    calls = [use("write_line", text=str(number)) for number in range(5)]
    agent = make_agent(tmp_path, notebook, [calls], AgentLimits(turn=SpendingLimits(seconds=15)))
    async with agent.session:
        ended = await agent.prompt("Write.")

    assert notebook.lines == ["0", "1"]
    assert ended.reason == "max_seconds"


async def test_a_resumed_session_counts_what_it_spent_before_and_continues_with_a_higher_limit(tmp_path: Path) -> None:
    notebook, path, high = Notebook(), tmp_path / "session.jsonl", AgentLimits(session=SpendingLimits(cost=100))
    first = make_agent(tmp_path, notebook, [use("write_line", text="one")], high, transcript=path)
    async with first.session:
        await first.prompt("Write.")
    spent = first.meter.session

    same = AgentLimits(session=SpendingLimits(tokens=spent.tokens))
    again = make_agent(tmp_path, notebook, [use("write_line", text="two")], same, transcript=path)
    async with again.session:
        refused = await again.prompt("Continue.")
    assert (refused.reason, refused.turns) == ("max_budget_tokens", 0)
    assert again.meter.session.tokens == spent.tokens
    assert again.meter.session.calls == spent.calls
    assert again.meter.session.cost == pytest.approx(spent.cost)

    higher = AgentLimits(session=SpendingLimits(tokens=spent.tokens * 100))
    last = make_agent(tmp_path, notebook, [use("write_line", text="two")], higher, transcript=path)
    async with last.session:
        ended = await last.prompt("Continue.")
    assert ended.reason == "completed"
    assert notebook.lines == ["one", "two"]
    check_history(load_history(path))


async def test_a_call_that_a_limit_has_prevented_does_not_count_when_the_session_is_resumed(tmp_path: Path) -> None:
    notebook, path = Notebook(), tmp_path / "session.jsonl"
    calls = [use("write_line", text="one"), use("write_line", text="two")]
    first = make_agent(tmp_path, notebook, [calls], AgentLimits(session=SpendingLimits(calls=1)), transcript=path)
    async with first.session:
        await first.prompt("Write.")
    higher = AgentLimits(session=SpendingLimits(calls=2))
    again = make_agent(tmp_path, notebook, [use("write_line", text="two"), say("Done.")], higher, transcript=path)
    async with again.session:
        ended = await again.prompt("Continue.")

    assert notebook.lines == ["one", "two"]
    assert (ended.reason, again.meter.session.calls) == ("max_calls", 2)


async def test_a_subagent_spends_what_its_parent_has(tmp_path: Path) -> None:
    notebook = Notebook()
    session = Session(
        cwd=tmp_path,
        tools=[*notebook.tools(), *(each for each in toolspan.coding_tools() if each.name in ("Agent", "Task"))],
        permissions=Permissions.allow_all(),
    )
    starter = next(each.name for each in session.runner.runner_context.tools if each.name in ("Agent", "Task"))
    child = [use("write_line", text=str(number)) for number in range(4)]
    start = use(starter, description="Write", prompt="Write four lines.", subagent_type="general-purpose")
    model = ScriptedModel([start, child], then=say("Done."))
    agent = Agent(session, model, limits=AgentLimits(session=SpendingLimits(calls=3)))
    Subagents(agent, SubagentConfig())
    async with session:
        ended = await agent.run_to_completion("Have lines written.")

    assert notebook.lines == ["0", "1"]  # the call of the agent tool is the first of three
    assert ended.reason == "max_calls"


async def test_a_model_without_a_price_is_counted_in_tokens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    notebook = Notebook()
    agent = make_agent(tmp_path, notebook, [], AgentLimits(session=SpendingLimits(cost=1)), name="home-made")
    async with agent.session:
        ended = await agent.prompt("Hello.")

    assert ended.reason == "completed"
    assert ended.cost is None
    assert agent.meter.session.unpriced_tokens == {"home-made": agent.meter.session.tokens}
    assert agent.meter.session.tokens > 0
    assert "the price of home-made is unknown" in caplog.text


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_limit_that_is_not_positive_is_refused(limit: float) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        SpendingLimits(cost=limit)


@given(st.lists(st.integers(0, 50_000), max_size=20), st.integers(1, 100_000))
def test_a_limit_is_reached_exactly_if_the_sum_reaches_it(requests: list[int], limit: int) -> None:
    meter = SpendingMeter(turn_limits=SpendingLimits(), session_limits=SpendingLimits(tokens=limit), clock=lambda: 0.0)
    for number in requests:
        meter.start_turn()
        meter.add_request(PRICED, {"input_tokens": number // 2, "output_tokens": number - number // 2})
        meter.end_turn()

    assert (meter.find_reached() is not None) == (sum(requests) >= limit)
    assert meter.session.tokens == sum(requests)
