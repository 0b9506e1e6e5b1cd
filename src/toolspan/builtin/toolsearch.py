"""ToolSearch: find tools that are there but were not shown to the model.

In: words, or `select:` and names. Out: references to the tools that fit, which the model's server
turns into their schemas. Which tools are deferred is the profile's to say; a deferred tool can be
called without having been searched for.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from toolspan.profile import Profile
from toolspan.run.context import Listed, ToolContext
from toolspan.run.tool import Output, Tool
from toolspan.schema.check import checker

_SELECT = "select:"
_NOTHING = "No matching deferred tools found"
_WORDS = re.compile(r"[a-z0-9]+")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "description": "Words to look for, +word for one that must be there, or select:A,B",
        },
        "max_results": {
            "type": "number",
            "default": 5,
            "description": "How many tools to give at most",
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}


def tool_search_tool(profile: Profile) -> Tool:
    """ToolSearch as a client version has it."""
    return Tool(
        name="ToolSearch",
        description=(
            "Find tools that are not in your list, by words of their names and descriptions, or"
            " by name with select:Name,Name. What is found can be called from then on."
        ),
        input_schema=_SCHEMA,
        parse=checker(_SCHEMA, coerce=profile.offer.coerces),
        run=_run,
        concurrent=True,
        read_only=True,
    )


async def _run(value: Mapping[str, object], ctx: ToolContext) -> Output:
    offer = ctx.profile.offer
    query = str(value["query"])
    most = value["max_results"]
    there = [tool for tool in ctx.bench.tools if offer.defers(tool.name)]
    found = _found(query, there)[: int(most) if isinstance(most, int | float) else 5]
    record = {
        "matches": found,
        "query": query,
        # As the client counts: what it defers by itself, built here or not, and what came with
        # the session.
        "total_deferred_tools": len(offer.deferred | {tool.name for tool in there}),
    }
    if not found:
        return Output(_NOTHING, record)
    return Output([{"type": "tool_reference", "tool_name": name} for name in found], record)


def _found(query: str, tools: Iterable[Listed]) -> list[str]:
    if query.startswith(_SELECT):
        return _selected(query.removeprefix(_SELECT), tools)
    wanted = _Wanted.parse(query)
    ranked = [(wanted.rank(tool), tool.name) for tool in tools]
    return [name for rank, name in sorted(ranked, key=lambda one: -one[0]) if rank > 0]


def _selected(names: str, tools: Iterable[Listed]) -> list[str]:
    by_name = {tool.name.lower(): tool.name for tool in tools}
    asked = (name.strip().lower() for name in names.split(","))
    return list(dict.fromkeys(by_name[name] for name in asked if name in by_name))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The words of a query."""

    words: frozenset[str]
    musts: frozenset[str]

    @classmethod
    def parse(cls, query: str) -> "_Wanted":
        parts = query.lower().split()
        musts = frozenset(word for part in parts if part[0] == "+" for word in _WORDS.findall(part))
        return cls(frozenset(_WORDS.findall(query.lower())), musts)

    def rank(self, tool: Listed) -> int:
        """How well a tool fits: the name counts most; 0 for not at all."""
        name = set(_WORDS.findall(_HUMPS.sub(" ", tool.name).lower().replace("_", " ")))
        text = set(_WORDS.findall(tool.description.lower()))
        if not self.musts <= name | text:
            return 0
        return sum(_weight(word, name, text) for word in self.words)


def _weight(word: str, name: set[str], text: set[str]) -> int:
    if word in name:
        return 10
    if any(part.startswith(word) for part in name):
        return 5
    return 2 if word in text else 0
