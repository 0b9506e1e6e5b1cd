"""ToolSearch: find deferred tools, which are not listed in the model's request.

The result contains references to the matching tools, which the model's server expands to their
schemas. The profile decides which tools are deferred. A deferred tool can also be called without a
search.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Tool
from toolspan.tools.schemas import number, object_schema, text

_SELECT_PREFIX = "select:"
_NO_MATCH_TEXT = "No matching deferred tools found"
_WORD_PATTERN = re.compile(r"[a-z0-9]+")
_CAMEL_CASE_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SCHEMA = object_schema(
    {
        "query": text("Words to look for, +word for one that must be there, or select:A,B"),
        "max_results": number("How many tools to give at most", default=5),
    },
    required=["query"],
)


def tool_search_tool(profile: Profile) -> Tool:
    """Return the ToolSearch tool for a client version."""
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
        kind="search",
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
        # Clients count the session's tools and all tools they defer, even unavailable ones.
        "total_deferred_tools": len(offer.deferred | {tool.name for tool in deferred}),
    }
    if not matches:
        return Output(_NO_MATCH_TEXT, record)
    return Output([{"type": "tool_reference", "tool_name": name} for name in matches], record)


def _match_tools(query: str, tools: Iterable[Tool]) -> list[str]:
    if query.startswith(_SELECT_PREFIX):
        return _select_by_name(query.removeprefix(_SELECT_PREFIX), tools)
    terms = _SearchTerms.parse(query)
    ranked = [(terms.rank(tool), tool.name) for tool in tools]
    return [name for rank, name in sorted(ranked, key=lambda pair: -pair[0]) if rank > 0]


def _select_by_name(names: str, tools: Iterable[Tool]) -> list[str]:
    by_name = {tool.name.lower(): tool.name for tool in tools}
    requested = (name.strip().lower() for name in names.split(","))
    return list(dict.fromkeys(by_name[name] for name in requested if name in by_name))


@dataclass(frozen=True, slots=True)
class _SearchTerms:
    """The search terms parsed from a query."""

    terms: frozenset[str]
    required: frozenset[str]

    @classmethod
    def parse(cls, query: str) -> _SearchTerms:
        parts = query.lower().split()
        required = frozenset(word for part in parts if part[0] == "+" for word in _WORD_PATTERN.findall(part))
        return cls(frozenset(_WORD_PATTERN.findall(query.lower())), required)

    def rank(self, tool: Tool) -> int:
        """Return a tool's score, or 0 if it does not match. Words in the name count most."""
        name = set(_WORD_PATTERN.findall(_CAMEL_CASE_BOUNDARY.sub(" ", tool.name).lower().replace("_", " ")))
        description = set(_WORD_PATTERN.findall(tool.description.lower()))
        if not self.required <= name | description:
            return 0
        return sum(_term_weight(word, name, description) for word in self.terms)


def _term_weight(word: str, name: set[str], description: set[str]) -> int:
    if word in name:
        return 10
    if any(part.startswith(word) for part in name):
        return 5
    return 2 if word in description else 0
