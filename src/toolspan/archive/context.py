"""The results that fill the model's context: `Archive.context` and `toolspan usage --context`."""

from __future__ import annotations

from msgspec import Struct, to_builtins

from toolspan.analysis.context_size import CONTEXT, ContextCall, ContextTool, context_by_tool, join_context
from toolspan.archive.engine import Engine
from toolspan.archive.filters import Filter
from toolspan.archive.selection import read_filtered_files
from toolspan.errors import InvalidFilter
from toolspan.reading.facts import single_job
from toolspan.types.tool_kinds import tool_kind

_JOB = single_job(CONTEXT)


class Context(Struct, frozen=True, kw_only=True):
    """The results that fill the context, by tool and by call, largest first."""

    tools: tuple[ContextTool, ...]
    calls: tuple[ContextCall, ...]
    total: int
    """Number of calls, including those that a limit left out."""

    def to_rows(self) -> list[dict[str, object]]:
        """Return the tools and then the calls as one list, each row with its kind."""
        rows = [{"row": "tool", **to_builtins(tool)} for tool in self.tools]
        return rows + [{"row": "call", **to_builtins(call)} for call in self.calls]


def measure_context(engine: Engine, call_filter: Filter, *, limit: int | None = None) -> Context:
    """Return how many bytes the results of calls put into the conversation, and how many requests contained them."""
    if call_filter.state or call_filter.error:
        raise InvalidFilter("states and errors do not apply to the context; filter by tool, agent, session or time")
    files = read_filtered_files(engine, _JOB, call_filter)
    calls = [call for call in join_context(files) if _accepts_context(call, call_filter)]
    return Context(tools=tuple(context_by_tool(calls)), calls=tuple(calls[: limit or None]), total=len(calls))


def _accepts_context(call: ContextCall, call_filter: Filter) -> bool:
    if call_filter.calls is not None and call.call not in call_filter.calls:
        return False
    if call_filter.tool and not call_filter.accepts_tool(call.tool):
        return False
    if call_filter.kind and tool_kind(call.tool) not in call_filter.kind:
        return False
    if call_filter.agent is not None and not (call.agent or "").startswith(call_filter.agent):
        return False
    return call_filter.accepts_time(call.at)
