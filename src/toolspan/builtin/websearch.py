"""WebSearch: pages that fit some words.

In: words, and domains to keep to or to leave out. Out: links and what the pages say. Who searches
is a provider (`fetch/search.py`): one that is given, or the one whose key is in the environment.
"""

import json
import time
from collections.abc import Mapping, Sequence

from toolspan.errors import ToolError
from toolspan.fetch.search import TAVILY_KEY, Hit, Provider, Query, Tavily
from toolspan.profile import Profile
from toolspan.run.context import ToolContext
from toolspan.run.tool import Output, Refusal, Tool
from toolspan.schema.check import checker

_DOMAINS: Mapping[str, object] = {"type": "array", "items": {"type": "string"}}
_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 2, "description": "What to look for"},
        "allowed_domains": {**_DOMAINS, "description": "Look only in these domains"},
        "blocked_domains": {**_DOMAINS, "description": "Leave these domains out"},
    },
    "required": ["query"],
    "additionalProperties": False,
}


def websearch_tool(profile: Profile, *, provider: Provider | None = None) -> Tool:
    """WebSearch as a client version has it."""

    async def run(value: Mapping[str, object], ctx: ToolContext) -> Output:
        return await _run(value, ctx, provider or _from_environment(ctx))

    return Tool(
        name="WebSearch",
        description="Search the web: links to pages that fit the words, with what they say.",
        input_schema=_SCHEMA,
        parse=checker(_SCHEMA, coerce=profile.offer.coerces),
        run=run,
        validate=_validate,
        concurrent=True,
        idempotent=True,
    )


async def _validate(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:  # noqa: ARG001
    if value.get("allowed_domains") and value.get("blocked_domains"):
        return Refusal(
            "Error: Cannot specify both allowed_domains and blocked_domains in the same request",
            "invalid_input",
        )
    return None


def _from_environment(ctx: ToolContext) -> Provider:
    key = ctx.workspace.environment.get(TAVILY_KEY)
    if not key:
        raise ToolError(
            f"There is nobody to search the web: {TAVILY_KEY} is not set, and the session has no"
            " provider of its own.",
            kind="network",
        )
    return Tavily(key)


async def _run(value: Mapping[str, object], ctx: ToolContext, provider: Provider) -> Output:
    words = str(value["query"])
    began = time.monotonic()
    hits = await provider.search(
        Query(words, _texts(value.get("allowed_domains")), _texts(value.get("blocked_domains")))
    )
    links = [{"title": hit.title, "url": hit.url} for hit in hits]
    said = _said(hits)
    found: list[object] = [{"tool_use_id": ctx.call.id, "content": links}]
    record = {
        "query": words,
        "results": [*found, said] if said else found,
        "durationSeconds": time.monotonic() - began,
        "searchCount": 1,
    }
    text = f'Web search results for query: "{words}"\n\n'
    text += f"Links: {json.dumps(links, ensure_ascii=False, separators=(',', ':'))}"
    return Output(f"{text}\n\n{said}" if said else text, record)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list | tuple) else ()


def _said(hits: Sequence[Hit]) -> str:
    return "\n\n".join(f"{hit.title} ({hit.url}):\n{hit.content}" for hit in hits if hit.content)
