"""WebFetch: a page of the web, and what a model has to say about it.

In: an address and a prompt. Out: the answer of a model that reads the page, where the session has
one; else the page as Markdown, with the prompt above it. How pages are fetched is in `fetch/`.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from anyio import to_thread

from toolspan.errors import ToolError
from toolspan.fetch.request import Moved, reason_of
from toolspan.fetch.web import Page, Web
from toolspan.profile import Profile
from toolspan.run.context import ToolContext
from toolspan.run.limits import file_name
from toolspan.run.tool import Output, Tool
from toolspan.schema.check import checker

Answer = Callable[[str, str], Awaitable[str]]
"""From a prompt and a page to what a model says; raises `ToolError` when it cannot."""

MOST_TEXT = 100_000
"""Characters of a page that are shown at once."""
_MOVED = """\
REDIRECT DETECTED: The URL redirects to a different host.

Original URL: {url}
Redirect URL: {to}
Status: {status} {reason}

The new address was not visited. To read it, use WebFetch again with:
- url: "{to}"
- prompt: "{prompt}\""""


def webfetch_tool(
    profile: Profile, *, web: Web | None = None, answer: Answer | None = None
) -> Tool:
    """WebFetch as a client version has it; `answer` is the model that reads pages."""
    schema = _schema(offset=profile.fetch.has_offset)
    door = web or Web()

    async def run(value: Mapping[str, object], ctx: ToolContext) -> Output:
        return await _run(value, ctx, door, answer)

    return Tool(
        name="WebFetch",
        description=(
            "Fetch a page of the web and read it with a question in mind. Always by HTTPS; only"
            " from the public internet; a page that moved to another host is not followed there."
        ),
        input_schema=schema,
        parse=checker(schema, coerce=profile.offer.coerces),
        run=run,
        concurrent=True,
        idempotent=True,
        output_limit=None,  # bounded by MOST_TEXT
    )


def _schema(*, offset: bool) -> dict[str, object]:
    properties: dict[str, object] = {
        "url": {"type": "string", "format": "uri", "description": "The page's address"},
        "prompt": {"type": "string", "description": "What you want to know of the page"},
    }
    if offset:
        properties["offset"] = {
            "type": "integer",
            "minimum": 0,
            "description": "The first character to read, for pages that are long",
        }
    return {
        "type": "object",
        "properties": properties,
        "required": ["url", "prompt"],
        "additionalProperties": False,
    }


async def _run(
    value: Mapping[str, object], ctx: ToolContext, web: Web, answer: Answer | None
) -> Output:
    url, prompt = str(value["url"]), str(value["prompt"])
    began = time.monotonic()
    if not web.private:
        _refuse_undotted(url, ctx)
    page = await web.page(url)
    if isinstance(page, Moved):
        text = _MOVED.format(
            url=url, to=page.to, status=page.status, reason=reason_of(page.status), prompt=prompt
        )
        size = len(text.encode())
    else:
        text = await _told(page, value, ctx, answer)
        size = page.size
    record = {
        "bytes": size,
        "code": page.status,
        "codeText": reason_of(page.status),
        "result": text,
        "durationMs": round((time.monotonic() - began) * 1000),
        "url": url,
    }
    return Output(text, record)


def _refuse_undotted(url: str, ctx: ToolContext) -> None:
    host = urlsplit(url).hostname or ""
    if "." not in host and ":" not in host:
        raise ToolError(ctx.profile.fetch.undotted, kind="invalid_input")


async def _told(
    page: Page, value: Mapping[str, object], ctx: ToolContext, answer: Answer | None
) -> str:
    if page.text is None:
        path = await to_thread.run_sync(_saved, page, ctx)
        return f"The page is no text ({page.media_type}, {page.size} bytes). Saved to: {path}"
    given = value.get("offset")
    shown = _part(page.text, given if isinstance(given, int) else 0)
    prompt = str(value["prompt"])
    if answer is not None:
        return await answer(prompt, shown)
    return f"Content of {page.url}, to be read for: {prompt}\n\n{shown}"


def _part(text: str, offset: int) -> str:
    part = text[offset : offset + MOST_TEXT]
    rest = len(text) - offset - len(part)
    if rest <= 0:
        return part
    return f"{part}\n\n[{rest} more characters, from offset {offset + len(part)} on]"


def _saved(page: Page, ctx: ToolContext) -> Path:
    folder = ctx.workspace.results_folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{file_name(ctx.call.id)}{_ending(page)}"
    path.write_bytes(page.body)
    return path


def _ending(page: Page) -> str:
    import mimetypes

    return mimetypes.guess_extension(page.media_type) or ".bin"
