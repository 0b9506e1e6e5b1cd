"""WebFetch and WebSearch in a conversation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.tools.files import kind, record, refusal
from tests.tools.toolbox import Toolbox
from tests.tools.web.site import html, site, to
from toolspan.runtime.profiles import profile
from toolspan.runtime.tool import Tool
from toolspan.testing.model_server import HttpRequest, HttpResponse
from toolspan.tools import webfetch_tool, websearch_tool
from toolspan.tools.web import TavilyProvider, WebClient, WebSearchHit, WebSearchQuery

pytestmark = pytest.mark.anyio


def local() -> Tool:
    return webfetch_tool(profile(), web=WebClient(allow_private=True, upgrade_to_https=False))


async def test_without_a_model_the_page_is_returned_with_the_prompt(tmp_path: Path) -> None:
    body = "<title>Shop</title><p>Open till <b>nine</b>.</p>"
    async with site({"/": html(body)}) as server:
        result = await Toolbox(tmp_path, [local()]).call("WebFetch", url=server.url + "/", prompt="When?")

    assert result.content == (f"Content of {server.url}/\nPrompt: When?\n\n# Shop\n\nOpen till **nine**.")
    output = record(result)
    assert output.pop("durationMs") >= 0
    assert output == {
        "bytes": len(body),
        "code": 200,
        "codeText": "OK",
        "result": result.content,
        "url": f"{server.url}/",
    }


async def test_with_a_model_its_answer_is_returned(tmp_path: Path) -> None:
    async def answer(prompt: str, page: str) -> str:
        return f"{prompt} {page.upper()}"

    web = WebClient(allow_private=True, upgrade_to_https=False)
    tool = webfetch_tool(profile(), web=web, answer=answer)
    async with site({"/": html("<p>nine</p>")}) as server:
        result = await Toolbox(tmp_path, [tool]).call("WebFetch", url=server.url + "/", prompt="When?")

    assert result.content == "When? NINE"


async def test_a_long_page_is_read_on_from_an_offset(tmp_path: Path) -> None:
    text = "x" * 100_000 + "end"
    page = HttpResponse(status=200, body=text.encode(), content_type="text/plain")
    async with site({"/": page}) as server:
        toolbox = Toolbox(tmp_path, [local()])
        first = await toolbox.call("WebFetch", url=server.url, prompt="?")
        rest = await toolbox.call("WebFetch", url=server.url, prompt="?", offset=100_000)

    assert str(first.content).endswith("x\n\n[3 more characters. To read on, use offset 100000.]")
    assert str(rest.content).endswith("\n\nend")


async def test_a_page_that_is_not_text_is_saved(tmp_path: Path) -> None:
    picture = HttpResponse(status=200, body=b"\x89PNG", content_type="image/png")
    async with site({"/": picture}) as server:
        toolbox = Toolbox(tmp_path, [local()])
        result = await toolbox.call("WebFetch", url=server.url, prompt="?")

    saved = tmp_path / "session/tool-results/toolu_0.png"
    assert result.content == f"The page is not text (image/png, 4 bytes). It was saved to {saved}"
    assert saved.read_bytes() == b"\x89PNG"


async def test_a_redirect_to_another_host_is_reported_and_not_followed(tmp_path: Path) -> None:
    async with site({"/": to("https://other.test/new", 301)}) as server:
        result = await Toolbox(tmp_path, [local()]).call("WebFetch", url=server.url + "/", prompt="Read")

    assert str(result.content).startswith(
        "REDIRECT DETECTED: The URL redirects to a different host.\n\n"
        f"Original URL: {server.url}/\nRedirect URL: https://other.test/new\n"
        "Status: 301 Moved Permanently\n"
    )
    assert record(result)["code"] == 301
    assert len(server.requests) == 1


@requirement("webfetch-tool.refusals")
async def test_local_and_malformed_addresses_are_refused(tmp_path: Path) -> None:
    new = Toolbox(tmp_path, [webfetch_tool(profile())])
    old = Toolbox(tmp_path, [webfetch_tool(profile("2.0.65"))], version="2.0.65")

    undotted = await new.call("WebFetch", url="http://localhost:1/page", prompt="x")
    private = await new.call("WebFetch", url="http://127.0.0.1:1/page", prompt="x")
    malformed = await new.call("WebFetch", url="not a url", prompt="x")

    assert undotted.content == (
        "WebFetch cannot fetch localhost or other hostnames without a dot."
        " To reach a local server, use Bash with curl instead."
    )
    assert str(private.content).startswith("Unable to verify if domain 127.0.0.1 is safe to fetch.")
    assert kind(malformed) == "invalid_input"
    assert (await old.call("WebFetch", url="http://localhost/", prompt="x")).content == "Invalid URL"


class FixedHits:
    """A search provider with fixed hits that remembers its queries."""

    def __init__(self, *hits: WebSearchHit) -> None:
        self.hits = hits
        self.queries: list[WebSearchQuery] = []

    async def search(self, query: WebSearchQuery) -> Sequence[WebSearchHit]:
        self.queries.append(query)
        return self.hits


async def test_hits_are_returned_as_links_and_excerpts(tmp_path: Path) -> None:
    provider = FixedHits(
        WebSearchHit("One", "https://one.test", "First words."), WebSearchHit("Two", "https://two.test")
    )
    toolbox = Toolbox(tmp_path, [websearch_tool(profile(), provider=provider)])

    result = await toolbox.call("WebSearch", query="words", allowed_domains=["one.test"])

    assert provider.queries == [WebSearchQuery("words", ("one.test",), ())]
    links = [{"title": "One", "url": "https://one.test"}, {"title": "Two", "url": "https://two.test"}]
    assert result.content == (
        'Web search results for query: "words"\n\n'
        'Links: [{"title":"One","url":"https://one.test"},{"title":"Two","url":"https://two.test"}]'
        "\n\nOne (https://one.test):\nFirst words."
    )
    output = record(result)
    assert output.pop("durationSeconds") >= 0
    assert output == {
        "query": "words",
        "results": [{"tool_use_id": "toolu_0", "content": links}, "One (https://one.test):\nFirst words."],
        "searchCount": 1,
    }


async def test_domains_are_either_allowed_or_blocked(tmp_path: Path) -> None:
    toolbox = Toolbox(tmp_path, [websearch_tool(profile(), provider=FixedHits())])

    result = await toolbox.call("WebSearch", query="words", allowed_domains=["a.test"], blocked_domains=["b.test"])

    assert result.content == refusal(
        "Error: Cannot specify both allowed_domains and blocked_domains in the same request"
    )
    assert kind(await toolbox.call("WebSearch", query="x")) == "invalid_input"


async def test_without_a_key_the_search_reports_the_missing_variable(tmp_path: Path) -> None:
    result = await Toolbox(tmp_path, [websearch_tool(profile())]).call("WebSearch", query="words")

    assert "TAVILY_API_KEY is not set" in str(result.content)
    assert result.span.state == "failed"


async def test_the_provider_gets_the_key_and_the_domains() -> None:
    def found(request: HttpRequest) -> HttpResponse:
        request_body = json.loads(request.body)
        assert request_body == {"query": "words", "max_results": 10, "exclude_domains": ["b.test"]}
        assert request.headers["authorization"] == "Bearer k-1"
        hits = [{"title": "One", "url": "https://one.test", "content": "Words.", "score": 0.9}]
        return HttpResponse(status=200, body=json.dumps({"results": hits}).encode())

    async with site({"/search": found}) as server:
        provider = TavilyProvider("k-1", endpoint=f"{server.url}/search")
        hits = await provider.search(WebSearchQuery("words", (), ("b.test",)))

    assert list(hits) == [WebSearchHit("One", "https://one.test", "Words.")]
    assert "k-1" not in repr(provider)


@pytest.mark.parametrize(
    ("status", "body", "output"),
    [
        (401, b"", "rejected the key in TAVILY_API_KEY"),
        (429, b"", "rate limit is reached"),
        (500, b"", "status code 500"),
        (200, b"<html>", "answer is invalid"),
    ],
)
async def test_errors_of_the_provider_are_reported(tmp_path: Path, status: int, body: bytes, output: str) -> None:
    async with site({"/search": HttpResponse(status=status, body=body)}) as server:
        provider = TavilyProvider("k-1", endpoint=f"{server.url}/search")
        toolbox = Toolbox(tmp_path, [websearch_tool(profile(), provider=provider)])
        result = await toolbox.call("WebSearch", query="words")

    assert output in str(result.content)
