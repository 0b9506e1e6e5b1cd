"""The subagents that the calls of a file started: `AGENTS` are the facts of one file."""

from __future__ import annotations

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.reading.facts import FactKind, FileReading
from toolspan.types.span import Span

_MAX_PROMPT = 300


class StartedAgent(Struct, frozen=True, kw_only=True):
    """A subagent as the call that started it describes it."""

    name: str | None
    """The description in the call."""
    type: str | None
    prompt: str | None
    """The beginning of the prompt."""


class FileAgents(Struct, frozen=True, kw_only=True):
    """The subagents that the calls of a file started, and the requests of those without an own file."""

    started: dict[str, StartedAgent]
    """Subagents by the call that started them."""
    requests: dict[str, str] = {}
    """The starting call by request, for subagents whose messages are in this file."""
    prompt: str | None = None
    """The beginning of the prompt of the subagent that wrote the file."""
    problem: str | None = None


def measure_agents(reading: FileReading) -> FileAgents:
    """Return the subagents that the calls of a file started."""
    transcript = reading.transcript
    types = transcript.agent_types
    started: dict[str, StartedAgent] = {
        span.id: _describe_agent(span, types.get(span.id))
        for span in transcript.spans
        if span.call.kind == "agent" and span.call.at
    }
    prompt = None
    if transcript.info.agent_id:
        prompts = (turn.prompt.text for turn in reading.timeline.turns if turn.prompt is not None)
        prompt = next(prompts, "")[:_MAX_PROMPT].strip() or None
    return FileAgents(
        started=started,
        prompt=prompt,
        requests={name: call for name, call in transcript.message_starters.items() if call in started},
    )


def _describe_agent(span: Span, agent_type: str | None) -> StartedAgent:
    try:
        arguments = span.call.arguments
    except SourceError:
        arguments = {}
    texts = {name: value for name, value in arguments.items() if isinstance(value, str)}
    prompt = texts.get("prompt") or texts.get("message")
    return StartedAgent(
        name=texts.get("description") or texts.get("name") or span.call.target,
        type=agent_type or texts.get("subagent_type") or texts.get("agent_type"),
        prompt=prompt[:_MAX_PROMPT] if prompt else None,
    )


AGENTS = FactKind(
    name="agents",
    measure=measure_agents,
    facts_type=FileAgents,
    unreadable=lambda _, problem: FileAgents(started={}, problem=problem),
    finds_causes=False,
)
