"""The steps of a session: prompts, the model's replies with their calls and tokens, and notes. Start at `read_steps`.

Clients record a reply as several messages and calls, and its tokens apart from them. A step joins them again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from toolspan.analysis.timing import phases_among
from toolspan.export.records import CallRecord, RequestRecord
from toolspan.export.session_export import SessionExport
from toolspan.reading.timeline import AgentTimeline, TimelineBatch, TimelineMessage
from toolspan.types.session import MessageAuthor, RequestUsage, Tokens
from toolspan.types.span import Branch, Span, parse_timestamp, to_epoch_ms

StepSource = Literal["user", "agent", "system"]
_SOURCES: dict[MessageAuthor, StepSource] = {
    "prompt": "user", "command": "user", "text": "agent", "thinking": "agent",
}  # fmt: skip


class SessionStep(Struct, kw_only=True):
    """A prompt, one reply of the model, or a note of the client."""

    source: StepSource
    voice: MessageAuthor
    at: str | None = None
    branch: Branch = "active"
    texts: list[str] = []
    thinking: list[str] = []
    spans: list[Span] = []
    """The calls of the reply, or a result without a request. `AgentSteps.call_records` returns their records."""
    requests: list[RequestRecord] = []
    """The requests that produced the reply, usually one."""
    is_copied: bool = False
    """True if the step was copied from another session."""

    @property
    def text(self) -> str:
        """The message, or what the model said besides its calls."""
        return "\n\n".join(self.texts)

    @property
    def tokens(self) -> Tokens:
        """The tokens of the reply."""
        return sum((request.tokens for request in self.requests), Tokens())

    @property
    def cost_usd(self) -> float | None:
        """The cost of the reply that the client recorded."""
        costs = [request.cost_usd for request in self.requests if request.cost_usd is not None]
        return sum(costs) if costs else None

    @property
    def model(self) -> str | None:
        """The model that replied."""
        return next((request.model for request in self.requests if request.model), None)

    @property
    def start(self) -> int | None:
        """The time of the step in milliseconds since the epoch."""
        return to_epoch_ms(parse_timestamp(self.at))


class AgentSteps:
    """The steps of one agent: the main conversation or a subagent."""

    def __init__(self, session: SessionExport, timeline: AgentTimeline, starter: str | None = None) -> None:
        record = session.agent_record(timeline, starter)
        self.agent, self.role, self.parent_call = record.agent, record.role, record.parent_call
        self.file = timeline.file
        self.steps: list[SessionStep] = []
        self.agents: list[AgentSteps] = []
        """The subagents that it started."""
        self.batches: dict[str, SessionStep] = {}
        """Replies by the id of their batch of calls, which redaction may change in records."""
        self.replies: dict[str, SessionStep] = {}
        """Replies by the time of their first record."""
        self._session = session
        self._timeline = timeline
        self._starter = starter
        transcript = next((item for item in session.transcripts if item.file == timeline.file), None)
        self._request_times = {usage.at for usage in transcript.requests.values()} if transcript else set()
        for turn in timeline.turns:
            for item in turn.items:
                match item:
                    case TimelineMessage():
                        self._add_message(item)
                    case TimelineBatch():
                        self._add_batch(item)
                    case AgentTimeline():
                        self.agents.append(AgentSteps(session, item))

    def iter_agents(self) -> Iterator[AgentSteps]:
        """Yield this agent and all subagents below it."""
        yield self
        for agent in self.agents:
            yield from agent.iter_agents()

    def call_records(self, step: SessionStep) -> Iterator[CallRecord]:
        """Yield the calls of a step with their bodies, which are read on demand."""
        phases_of = phases_among(step.spans, self._session.hook_timings)
        for span in step.spans:
            record = self._session.call_record(span, self._timeline, self._starter, phases_of(span))
            if record is not None:
                yield record

    def _add_message(self, item: TimelineMessage) -> None:
        """Add a message. Text and thinking belong to the reply that they begin."""
        record = self._session.message_record(item, self._timeline)
        if record is None:
            return
        source = _SOURCES.get(record.voice, "system")
        if source != "agent":
            self.steps.append(
                SessionStep(source=source, voice=record.voice, at=record.at, branch=record.branch, texts=[record.text])
            )
            return
        step = self._reply(item.branch, item.message.at)
        (step.thinking if record.voice == "thinking" else step.texts).append(record.text)

    def _add_batch(self, item: TimelineBatch) -> None:
        """Add the calls of a reply, and results without a request."""
        for placed in item.calls:
            span = placed.span
            self.agents += [AgentSteps(self._session, started, span.id) for started in placed.agents]
            if not self._session.includes(span, self._timeline):
                continue
            if span.state == "orphan_result":
                at = span.result.finished_at if span.result else None
                self.steps.append(SessionStep(source="system", voice="system", at=_clean_time(at), spans=[span]))
                continue
            batch = item.message_id or span.id
            step = self.batches.get(batch)
            if step is None:
                step = self.batches[batch] = self._reply(item.branch, span.call.requested_at)
            step.spans.append(span)

    def _reply(self, branch: Branch, at: str | None) -> SessionStep:
        """Return the last reply if it has no calls yet, else a new one. The time of a request begins a reply."""
        last = self.steps[-1] if self.steps else None
        if last is not None and last.source == "agent" and not last.spans and last.branch == branch:
            begins = at in self._request_times and self.replies.get(at or "") is not last
            if not begins:
                return last
        step = SessionStep(source="agent", voice="text", at=_clean_time(at), branch=branch)
        self.steps.append(step)
        self.replies.setdefault(at or "", step)
        return step


def _clean_time(at: str | None) -> str | None:
    """Return a timestamp, or None if it is another text."""
    return at if parse_timestamp(at) is not None else None


def read_steps(session: SessionExport) -> AgentSteps:
    """Return the steps of a session and its subagents, redacted and filtered like the session itself."""
    main = AgentSteps(session, session.timeline)
    agents = list(main.iter_agents())
    for transcript in session.transcripts:
        own = [agent for agent in agents if agent.file == transcript.file]
        includes_cache = transcript.format.input_includes_cache
        for step, name, usage in _join_requests(own, transcript.requests):
            step.requests.append(session.request_record(name, usage, input_includes_cache=includes_cache))
    session_id = session.transcripts[0].session_id
    copied = [
        n
        for n, step in enumerate(main.steps)
        if any(span.call.session_id not in (None, session_id) for span in step.spans)
    ]
    for step in main.steps[: copied[-1] + 1 if copied else 0]:
        step.is_copied = True
    return main


def _join_requests(
    agents: Sequence[AgentSteps], usages: Mapping[str, RequestUsage]
) -> Iterator[tuple[SessionStep, str, RequestUsage]]:
    """Yield each request of a file with its reply: by id, by time, or by order if neither is the same."""
    rest: dict[str, RequestUsage] = {}
    joined: set[int] = set()
    for name, usage in usages.items():
        candidates = [agent.batches.get(name) or agent.replies.get(usage.at or "") for agent in agents]
        step = next((step for step in candidates if step is not None and id(step) not in joined), None)
        if step is None:
            rest[name] = usage
            continue
        joined.add(id(step))
        yield step, name, usage
    for is_side, group in ((False, agents[:1]), (True, agents[1:] or agents[:1])):
        own = {name: usage for name, usage in rest.items() if usage.sidechain == is_side}
        for agent in group:
            replies = [step for step in agent.steps if step.source == "agent" and id(step) not in joined]
            if own and (len(replies) == len(own) or agent is group[-1]):
                yield from _join_in_order(agent, replies, own)
                break


def _join_in_order(
    agent: AgentSteps, replies: Sequence[SessionStep], usages: Mapping[str, RequestUsage]
) -> Iterator[tuple[SessionStep, str, RequestUsage]]:
    """Yield requests with the replies in the same order, or with the nearest reply if there are more or fewer."""
    ordered = sorted(usages.items(), key=lambda item: item[1].at or "")
    if len(replies) == len(ordered):
        yield from ((step, *item) for step, item in zip(replies, ordered, strict=True))
        return
    steps = [step for step in agent.steps if step.source == "agent"]
    if not steps:
        steps = [SessionStep(source="agent", voice="text", at=_clean_time(ordered[0][1].at))]
        agent.steps += steps
    timed = sorted((step.start or 0, n) for n, step in enumerate(steps))
    for name, usage in ordered:
        at = to_epoch_ms(parse_timestamp(usage.at)) or 0
        place = bisect_left(timed, (at, 0))
        _, n = min(timed[max(place - 1, 0) : place + 1], key=lambda item: abs(item[0] - at))
        yield steps[n], name, usage
