"""WebFetch: fetch a web page and answer a question about it.

If the session has a model for this, the result is the model's answer; otherwise it is the page as Markdown. `web.py`
fetches and converts pages.
"""

from __future__ import annotations

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
from toolspan.runtime.tool import Output, Tool, ToolHints, ToolSubject
from toolspan.tools.schemas import object_schema, text
from toolspan.tools.web import CrossHostRedirect, WebClient, WebPage, status_reason

AnswerFunction = Callable[[str, str], Awaitable[str]]
"""A function that answers a prompt about a page with a model; raises `ToolError` if there is no answer."""

MAX_TEXT_CHARS = 100_000
"""The number of characters of a page that are returned at once."""
_REDIRECT_MESSAGE = """\
REDIRECT DETECTED: The URL redirects to a different host.

Original URL: {url}
Redirect URL: {to}
Status: {status} {reason}

The new address was not visited. To read it, use WebFetch again with:
- url: "{to}"
- prompt: "{prompt}\""""


def webfetch_tool(profile: Profile, *, web: WebClient | None = None, answer: AnswerFunction | None = None) -> Tool:
    """Return the WebFetch tool of a client version; `answer` lets a model read the page."""
    properties = {
        "url": text("The page's address", format="uri"),
        "prompt": text("What you want to know of the page"),
    }
    if profile.fetch.has_offset:
        description = "The first character to read, for pages that are long"
        properties["offset"] = {"type": "integer", "minimum": 0, "description": description}
    schema = object_schema(properties, required=["url", "prompt"])
    client = web or WebClient()

    async def run(value: Mapping[str, object], ctx: ToolContext) -> Output:
        return await _fetch_page(value, ctx, client, answer)

    return Tool(
        name="WebFetch",
        description=(
            "Fetch a page of the web and read it with a question in mind. Always by HTTPS; only"
            " from the public internet; a page that moved to another host is not followed there."
        ),
        input_schema=schema,
        parse=compile_checker(schema, coerce=profile.availability.coerces),
        run=run,
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
    url, prompt = str(value["url"]), str(value["prompt"])
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
        content = await _page_answer(page, value, ctx, answer)
        size = page.size
    record = {
        "bytes": size,
        "code": page.status,
        "codeText": status_reason(page.status),
        "result": content,
        "durationMs": round((time.monotonic() - started) * 1000),
        "url": url,
    }
    return Output(content, record)


async def _page_answer(
    page: WebPage, value: Mapping[str, object], ctx: ToolContext, answer: AnswerFunction | None
) -> str:
    if page.text is None:
        path = await to_thread.run_sync(_save_page, page, ctx)
        return f"The page is no text ({page.media_type}, {page.size} bytes). Saved to: {path}"
    raw_offset = value.get("offset")
    part = _slice_page(page.text, raw_offset if isinstance(raw_offset, int) else 0)
    prompt = str(value["prompt"])
    if answer is not None:
        return await answer(prompt, part)
    return f"Content of {page.url}, to be read for: {prompt}\n\n{part}"


def _slice_page(page: str, offset: int) -> str:
    part = page[offset : offset + MAX_TEXT_CHARS]
    rest = len(page) - offset - len(part)
    if rest <= 0:
        return part
    return f"{part}\n\n[{rest} more characters, from offset {offset + len(part)} on]"


def _save_page(page: WebPage, ctx: ToolContext) -> Path:
    folder = ctx.workspace.results_folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{safe_file_name(ctx.call.id)}{mimetypes.guess_extension(page.media_type) or '.bin'}"
    path.write_bytes(page.body)
    return path
