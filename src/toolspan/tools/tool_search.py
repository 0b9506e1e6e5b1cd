"""ToolSearch: find deferred tools, which are not listed in the model's request.

The result contains references to the matching tools, which the model's server expands to their
schemas. The profile decides which tools are deferred. A deferred tool can also be called without a
search.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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
        "query": text("Words to search for; `+word` for a word that must occur; or `select:A,B` for tools by name."),
        "max_results": number("The maximum number of tools to return.", default=5),
    },
    required=["query"],
)


def tool_search_tool(profile: Profile) -> Tool:
    """Return the ToolSearch tool for a client version."""
    return Tool(
        name="ToolSearch",
        description=(
            "Find tools that are available but not in your list, by words in their names and descriptions or, with"
            " `select:A,B`, by name. Returns the tools that match best. You can call them from then on."
        ),
        input_schema=_SCHEMA,
        parse=compile_checker(_SCHEMA, coerce=profile.availability.coerces),
        run=_search_tools,
        concurrent=True,
        read_only=True,
        kind="search",
        finds_deferred=True,
    )


async def _search_tools(value: Mapping[str, object], ctx: ToolContext) -> Output:
    offer = ctx.profile.availability
    query = str(value["query"])
    max_results = value["max_results"]
    deferred = [tool for tool in ctx.services.tools if offer.is_deferred(tool.name)]
    if query.startswith(_SELECT_PREFIX):
        by_name = {tool.name.lower(): tool.name for tool in deferred}
        requested = (name.strip().lower() for name in query.removeprefix(_SELECT_PREFIX).split(","))
        matches = list(dict.fromkeys(by_name[name] for name in requested if name in by_name))
    else:
        ranked = [(_rank_tool(tool, query.lower()), tool.name) for tool in deferred]
        matches = [name for rank, name in sorted(ranked, key=lambda pair: -pair[0]) if rank > 0]
    matches = matches[: int(max_results) if isinstance(max_results, int | float) else 5]
    record = {
        "matches": matches,
        "query": query,
        # Clients count the session's tools and all tools they defer, even unavailable ones.
        "total_deferred_tools": len(offer.deferred | {tool.name for tool in deferred}),
    }
    if not matches:
        return Output(_NO_MATCH_TEXT, record)
    return Output([{"type": "tool_reference", "tool_name": name} for name in matches], record)


def _rank_tool(tool: Tool, query: str) -> int:
    """Return a tool's score, or 0 if it does not match. Words in the name count most."""
    required = {word for part in query.split() if part[0] == "+" for word in _WORD_PATTERN.findall(part)}
    name = set(_WORD_PATTERN.findall(_CAMEL_CASE_BOUNDARY.sub(" ", tool.name).lower().replace("_", " ")))
    description = set(_WORD_PATTERN.findall(tool.description.lower()))
    if not required <= name | description:
        return 0
    score = 0
    for word in set(_WORD_PATTERN.findall(query)):
        if word in name:
            score += 10
        elif any(part.startswith(word) for part in name):
            score += 5
        elif word in description:
            score += 2
    return score
