"""WebFetch: fetch a web page and answer a question about it.

If the session has a model for this, the result is the model's answer; otherwise it is the page as Markdown. `web.py`
fetches and converts pages.
"""

from __future__ import annotations

import json
import mimetypes
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from anyio import to_thread

from toolspan.errors import ToolError
from toolspan.runtime.context import ToolContext
from toolspan.runtime.output_limits import safe_file_name
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Refusal, Tool, ToolHints, ToolSubject
from toolspan.tools.schemas import TEXTS, object_schema, text
from toolspan.tools.web import (
    TAVILY_KEY,
    CrossHostRedirect,
    SearchProvider,
    TavilyProvider,
    WebClient,
    WebPage,
    WebSearchQuery,
    status_reason,
)

AnswerFunction = Callable[[str, str], Awaitable[str]]
"""A function that uses a model to answer a prompt about a page. It raises `ToolError` if there is no answer."""

MAX_TEXT_CHARS = 100_000
"""The maximum number of characters of a page that are returned at once."""
_REDIRECT_MESSAGE = """\
REDIRECT DETECTED: The URL redirects to a different host.

Original URL: {url}
Redirect URL: {to}
Status: {status} {reason}

The new address was not visited. To read it, use WebFetch again with:
- url: "{to}"
- prompt: "{prompt}\""""


def webfetch_tool(profile: Profile, *, web: WebClient | None = None, answer: AnswerFunction | None = None) -> Tool:
    """Return the WebFetch tool for a client version. `answer` lets a model answer questions about the page."""
    properties = {
        "url": text("The page's address", format="uri"),
        "prompt": text("What you want to know of the page"),
    }
    if profile.fetch.has_offset:
        description = "The first character to read, for pages that are long"
        properties["offset"] = {"type": "integer", "minimum": 0, "description": description}
    schema = object_schema(properties, required=["url", "prompt"])
    client = web or WebClient()
    return Tool(
        name="WebFetch",
        description=(
            "Fetch a page of the web and read it with a question in mind. Always by HTTPS; only"
            " from the public internet; a page that moved to another host is not followed there."
        ),
        input_schema=schema,
        parse=compile_checker(schema, coerce=profile.availability.coerces),
        run=lambda value, ctx: _fetch_page(value, ctx, client, answer),
        concurrent=True,
        idempotent=True,
        output_limit=None,  # bounded by MAX_TEXT_CHARS
        kind="web",
        subject=ToolSubject("url", "url"),
        slow_after=30.0,
        hints=ToolHints("Fetch a page", read_only=True, open_world=True),
    )


async def _fetch_page(
    value: Mapping[str, object], ctx: ToolContext, web: WebClient, answer: AnswerFunction | None
) -> Output:
    url, prompt, offset = str(value["url"]), str(value["prompt"]), value.get("offset")
    started = time.monotonic()
    host = urlsplit(url).hostname or ""
    if not web.allow_private and "." not in host and ":" not in host:
        raise ToolError(ctx.profile.fetch.undotted_host, kind="invalid_input")
    page = await web.fetch_page(url)
    if isinstance(page, CrossHostRedirect):
        content = _REDIRECT_MESSAGE.format(
            url=url, to=page.target, status=page.status, reason=status_reason(page.status), prompt=prompt
        )
        size = len(content.encode())
    else:
        size = page.size
        if page.text is None:
            path = await to_thread.run_sync(_save_page, page, ctx)
            content = f"The page is no text ({page.media_type}, {page.size} bytes). Saved to: {path}"
        else:
            part = _slice_page(page.text, offset if isinstance(offset, int) else 0)
            if answer is not None:
                content = await answer(prompt, part)
            else:
                content = f"Content of {page.url}, to be read for: {prompt}\n\n{part}"
    record = {
        "bytes": size,
        "code": page.status,
        "codeText": status_reason(page.status),
        "result": content,
        "durationMs": round((time.monotonic() - started) * 1000),
        "url": url,
    }
    return Output(content, record)


def _slice_page(page: str, offset: int) -> str:
    part = page[offset : offset + MAX_TEXT_CHARS]
    rest = len(page) - offset - len(part)
    return part if rest <= 0 else f"{part}\n\n[{rest} more characters, from offset {offset + len(part)} on]"


def _save_page(page: WebPage, ctx: ToolContext) -> Path:
    folder = ctx.workspace.results_folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{safe_file_name(ctx.call.id)}{mimetypes.guess_extension(page.media_type) or '.bin'}"
    path.write_bytes(page.body)
    return path


_SCHEMA = object_schema(
    {
        "query": text("What to look for", minLength=2),
        "allowed_domains": {**TEXTS, "description": "Look only in these domains"},
        "blocked_domains": {**TEXTS, "description": "Leave these domains out"},
    },
    required=["query"],
)


def websearch_tool(profile: Profile, *, provider: SearchProvider | None = None) -> Tool:
    """Return the WebSearch tool for a client version."""
    return Tool(
        name="WebSearch",
        description="Search the web: links to pages that fit the words, with what they say.",
        input_schema=_SCHEMA,
        parse=compile_checker(_SCHEMA, coerce=profile.availability.coerces),
        run=lambda value, ctx: _search_web(value, ctx, provider),
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


async def _search_web(value: Mapping[str, object], ctx: ToolContext, provider: SearchProvider | None) -> Output:
    if provider is None:
        key = ctx.workspace.environment.get(TAVILY_KEY)
        if not key:
            raise ToolError(
                f"There is nobody to search the web: {TAVILY_KEY} is not set,"
                " and the session has no provider of its own.",
                kind="network",
            )
        provider = TavilyProvider(key)
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
