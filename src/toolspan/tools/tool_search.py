"""ToolSearch: find tools that are there but were not shown to the model.

In: words, or `select:` and names. Out: references to the tools that fit, which the model's server
turns into their schemas. Which tools are deferred is the profile's to say; a deferred tool can be
called without having been searched for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from toolspan.runtime.context import ListedTool, ToolContext
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Tool

_SELECT_PREFIX = "select:"
_NO_MATCH_TEXT = "No matching deferred tools found"
_WORD_PATTERN = re.compile(r"[a-z0-9]+")
_CAMEL_CASE_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "description": "Words to look for, +word for one that must be there, or select:A,B",
        },
        "max_results": {"type": "number", "default": 5, "description": "How many tools to give at most"},
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
        parse=compile_checker(_SCHEMA, coerce=profile.availability.coerces),
        run=_search_tools,
        concurrent=True,
        read_only=True,
    )


async def _search_tools(value: Mapping[str, object], ctx: ToolContext) -> Output:
    offer = ctx.profile.availability
    query = str(value["query"])
    max_results = value["max_results"]
    deferred = [tool for tool in ctx.services.tools if offer.is_deferred(tool.name)]
    matches = _match_tools(query, deferred)[: int(max_results) if isinstance(max_results, int | float) else 5]
    record = {
        "matches": matches,
        "query": query,
        # As the client counts: what it defers by itself, built here or not, and what came with
        # the session.
        "total_deferred_tools": len(offer.deferred | {tool.name for tool in deferred}),
    }
    if not matches:
        return Output(_NO_MATCH_TEXT, record)
    return Output([{"type": "tool_reference", "tool_name": name} for name in matches], record)


def _match_tools(query: str, tools: Iterable[ListedTool]) -> list[str]:
    if query.startswith(_SELECT_PREFIX):
        return _select_by_name(query.removeprefix(_SELECT_PREFIX), tools)
    terms = _SearchTerms.parse(query)
    ranked = [(terms.rank(tool), tool.name) for tool in tools]
    return [name for rank, name in sorted(ranked, key=lambda pair: -pair[0]) if rank > 0]


def _select_by_name(names: str, tools: Iterable[ListedTool]) -> list[str]:
    by_name = {tool.name.lower(): tool.name for tool in tools}
    requested = (name.strip().lower() for name in names.split(","))
    return list(dict.fromkeys(by_name[name] for name in requested if name in by_name))


@dataclass(frozen=True, slots=True)
class _SearchTerms:
    """The words of a query."""

    terms: frozenset[str]
    required: frozenset[str]

    @classmethod
    def parse(cls, query: str) -> _SearchTerms:
        parts = query.lower().split()
        required = frozenset(word for part in parts if part[0] == "+" for word in _WORD_PATTERN.findall(part))
        return cls(frozenset(_WORD_PATTERN.findall(query.lower())), required)

    def rank(self, tool: ListedTool) -> int:
        """How well a tool fits: the name counts most; 0 for not at all."""
        name = set(_WORD_PATTERN.findall(_CAMEL_CASE_BOUNDARY.sub(" ", tool.name).lower().replace("_", " ")))
        text = set(_WORD_PATTERN.findall(tool.description.lower()))
        if not self.required <= name | text:
            return 0
        return sum(_term_weight(word, name, text) for word in self.terms)


def _term_weight(word: str, name: set[str], text: set[str]) -> int:
    if word in name:
        return 10
    if any(part.startswith(word) for part in name):
        return 5
    return 2 if word in text else 0
