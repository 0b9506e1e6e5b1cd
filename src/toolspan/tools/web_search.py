"""WebSearch: search the web for pages.

The provider is the one passed to `websearch_tool`, or the one whose key is in the environment (see `web.py`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from toolspan.errors import ToolError
from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Refusal, Tool, ToolHints, ToolSubject
from toolspan.tools.schemas import TEXTS, object_schema, text
from toolspan.tools.web import TAVILY_KEY, SearchProvider, TavilyProvider, WebSearchQuery

_SCHEMA = object_schema(
    {
        "query": text("What to look for", minLength=2),
        "allowed_domains": {**TEXTS, "description": "Look only in these domains"},
        "blocked_domains": {**TEXTS, "description": "Leave these domains out"},
    },
    required=["query"],
)


def websearch_tool(profile: Profile, *, provider: SearchProvider | None = None) -> Tool:
    """Return the WebSearch tool of a client version."""

    async def run(value: Mapping[str, object], ctx: ToolContext) -> Output:
        return await _search_web(value, ctx, provider or _provider_from_environment(ctx))

    return Tool(
        name="WebSearch",
        description="Search the web: links to pages that fit the words, with what they say.",
        input_schema=_SCHEMA,
        parse=compile_checker(_SCHEMA, coerce=profile.availability.coerces),
        run=run,
        validate=_validate_domains,
        concurrent=True,
        idempotent=True,
        kind="web",
        subject=ToolSubject("text", "query"),
        slow_after=30.0,
        hints=ToolHints("Search the web", read_only=True, open_world=True),
    )


async def _validate_domains(value: Mapping[str, object], _ctx: ToolContext) -> Refusal | None:
    if value.get("allowed_domains") and value.get("blocked_domains"):
        return Refusal(
            "Error: Cannot specify both allowed_domains and blocked_domains in the same request", "invalid_input"
        )
    return None


def _provider_from_environment(ctx: ToolContext) -> SearchProvider:
    key = ctx.workspace.environment.get(TAVILY_KEY)
    if not key:
        raise ToolError(
            f"There is nobody to search the web: {TAVILY_KEY} is not set, and the session has no provider of its own.",
            kind="network",
        )
    return TavilyProvider(key)


async def _search_web(value: Mapping[str, object], ctx: ToolContext, provider: SearchProvider) -> Output:
    query = str(value["query"])
    started = time.monotonic()
    hits = await provider.search(
        WebSearchQuery(query, _text_tuple(value.get("allowed_domains")), _text_tuple(value.get("blocked_domains")))
    )
    links = [{"title": hit.title, "url": hit.url} for hit in hits]
    summary = "\n\n".join(f"{hit.title} ({hit.url}):\n{hit.content}" for hit in hits if hit.content)
    results: list[object] = [{"tool_use_id": ctx.call.id, "content": links}]
    record = {
        "query": query,
        "results": [*results, summary] if summary else results,
        "durationSeconds": time.monotonic() - started,
        "searchCount": 1,
    }
    content = f'Web search results for query: "{query}"\n\n'
    content += f"Links: {json.dumps(links, ensure_ascii=False, separators=(',', ':'))}"
    return Output(f"{content}\n\n{summary}" if summary else content, record)


def _text_tuple(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list | tuple) else ()
