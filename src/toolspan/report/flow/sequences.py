"""Which tools follow which: runs of names, and the flows that have a name.

In: spans in the order the model asked. Out: how often which names follow each other, and `Flow`s:
the known ways of working, told by what calls do and whether they succeeded. No sequence crosses
from one agent to another, and no flow from one turn to another. Pure. Read `steps` and `flows`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal

from msgspec import Struct

from toolspan.model.span import Span
from toolspan.report.flow.agents import by_agent
from toolspan.report.flow.target import looks_by, shows_only

FlowName = Literal["file_modification", "error_recovery", "search_and_modify", "parallel_lookup"]

_CANONICAL = {
    "AgentOutputTool": "TaskOutput", "KillBash": "TaskStop", "KillShell": "TaskStop",
    "BashOutput": "TaskOutput", "Task": "Agent", "exit_plan_mode": "ExitPlanMode", "bash": "Bash",
}  # fmt: skip
"""Tools that were renamed, by the name they have now."""
_LETTERS = {"LS": "L", "Glob": "G", "Grep": "g", "Read": "R", "Edit": "E", "MultiEdit": "M"}
_WAYS = {"list": "L", "search": "g", "read": "R"}
"""Commands that do what those tools do."""
_PATTERNS: tuple[tuple[FlowName, re.Pattern[str]], ...] = (
    ("error_recovery", re.compile(r"(?<!e)e+R+[EMW]+P*")),
    ("search_and_modify", re.compile(
        r"(?<![gG])(?:[gG]+R+M[EM]*|G*g[gG]*R+[EM]+|[gG]+R+e+(?=W))e?W?P*"
    )),
    ("file_modification", re.compile(r"(?<![LG])[LG]+R+[EM]+P*")),
)  # fmt: skip
"""Flows as letters: e is an edit that did not succeed, P a todo list or task that was updated."""


def canonical(tool: str) -> str:
    """The name a tool has now."""
    return _CANONICAL.get(tool, tool)


def steps(spans: Iterable[Span], length: int = 3, *, runs: bool = True) -> Counter[tuple[str, ...]]:
    """How often which tools followed each other; `runs` takes one tool used again as one step."""
    found: Counter[tuple[str, ...]] = Counter()
    for thread in by_agent(spans):
        found.update(grams([canonical(span.tool) for span in thread], length, runs=runs))
    return found


def grams(names: Sequence[str], length: int, *, runs: bool) -> Iterator[tuple[str, ...]]:
    """Every so many names that stand one after another."""
    kept = [name for name, _ in groupby(names)] if runs else names
    return zip(*(kept[n:] for n in range(length)), strict=False)


class Flow(Struct, frozen=True, kw_only=True):
    """A known way of working, as it was done once."""

    name: FlowName
    tools: tuple[str, ...]
    calls: tuple[str, ...]
    requested: str | None


def flows(spans: Iterable[Span]) -> list[Flow]:
    """The known flows, agent by agent, in order."""
    return [flow for thread in by_agent(spans) for flow in _in_thread(thread)]


def _in_thread(thread: Sequence[Span]) -> Iterator[Flow]:
    for _, turn in groupby(thread, key=lambda span: span.call.prompt_id):
        yield from _in_turn(list(turn))
    for _, batch in groupby(thread, key=lambda span: span.call.message_id or span.id):
        together = list(batch)
        if len(together) > 1 and all(looks(span) for span in together):
            yield _flow("parallel_lookup", together)


def _in_turn(spans: Sequence[Span]) -> Iterator[Flow]:
    letters = "".join(_letter(span) for span in spans)
    taken = 0
    found = [
        (match.start(), match.end(), name)
        for name, pattern in _PATTERNS
        for match in pattern.finditer(letters)
    ]
    for start, end, name in sorted(found, key=lambda one: one[0]):  # of two at one place the first
        if start >= taken:
            yield _flow(name, spans[start:end])
            taken = end


def _flow(name: FlowName, spans: Sequence[Span]) -> Flow:
    return Flow(
        name=name,
        tools=tuple(canonical(span.tool) for span in spans),
        calls=tuple(span.id for span in spans),
        requested=spans[0].call.requested_at,
    )


def looks(span: Span) -> bool:
    """Whether a call only reads or searches, be it by a command."""
    if span.call.kind == "shell":
        return shows_only(span.call.target or "")
    return span.call.kind in ("read", "search") and span.tool not in ("ToolSearch", "tool_search")


def _letter(span: Span) -> str:
    kind, good = span.call.kind, span.state == "succeeded"
    if kind in ("edit", "write") and not good:
        return "e"
    if kind == "plan" and good:
        return "P"
    if kind == "write":
        return "W"
    if kind == "shell" and good:
        return _WAYS.get(looks_by(span.call.target or ""), ".")
    return _LETTERS.get(span.tool, "E" if kind == "edit" else ".") if good else "."
