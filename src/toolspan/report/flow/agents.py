"""Which calls are one agent's own."""

from collections.abc import Iterable

from toolspan.model.span import Span


def by_agent(spans: Iterable[Span]) -> list[list[Span]]:
    """The spans of each agent by themselves, without results that nobody asked for."""
    threads: dict[str, list[Span]] = {}
    for span in spans:
        if span.state != "orphan_result":
            threads.setdefault(_agent(span), []).append(span)
    return list(threads.values())


def _agent(span: Span) -> str:
    """Who asked; old files of Claude name a subagent by the call that started it."""
    call = span.call
    inside = call.parent_call if call.dialect == "claude" else None
    return call.agent_id or inside or ""
