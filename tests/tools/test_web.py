"""WebFetch and WebSearch in a conversation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.tools.files import kind, record, refusal
from tests.tools.toolbox import Box
from tests.tools.web.site import html, site, to
from toolspan.runtime.profiles import profile
from toolspan.runtime.tool import Tool
from toolspan.testing.model_server import HttpRequest, HttpResponse
from toolspan.tools import webfetch_tool, websearch_tool
from toolspan.tools.web import TavilyProvider, WebClient, WebSearchHit, WebSearchQuery

pytestmark = pytest.mark.anyio


def local() -> Tool:
    return webfetch_tool(profile(), web=WebClient(allow_private=True, upgrade_to_https=False))


@requirement("webfetch-tool.page")
async def test_without_a_model_the_page_is_returned_with_the_prompt(tmp_path: Path) -> None:
    body = "<title>Shop</title><p>Open till <b>nine</b>.</p>"
    async with site({"/": html(body)}) as here:
        done = await Box(tmp_path, [local()]).call("WebFetch", url=here.url + "/", prompt="When?")

    assert done.content == (f"Content of {here.url}/, to be read for: When?\n\n# Shop\n\nOpen till **nine**.")
    output = record(done)
    assert output.pop("durationMs") >= 0
    assert output == {"bytes": len(body), "code": 200, "codeText": "OK", "result": done.content, "url": f"{here.url}/"}


@requirement("webfetch-tool.page")
async def test_with_a_model_its_answer_is_returned(tmp_path: Path) -> None:
    async def answer(prompt: str, page: str) -> str:
        return f"{prompt} {page.upper()}"

    web = WebClient(allow_private=True, upgrade_to_https=False)
    tool = webfetch_tool(profile(), web=web, answer=answer)
    async with site({"/": html("<p>nine</p>")}) as here:
        done = await Box(tmp_path, [tool]).call("WebFetch", url=here.url + "/", prompt="When?")

    assert done.content == "When? NINE"


@requirement("webfetch-tool.page")
async def test_a_long_page_is_read_on_from_an_offset(tmp_path: Path) -> None:
    text = "x" * 100_000 + "end"
    page = HttpResponse(status=200, body=text.encode(), content_type="text/plain")
    async with site({"/": page}) as here:
        box = Box(tmp_path, [local()])
        first = await box.call("WebFetch", url=here.url, prompt="?")
        rest = await box.call("WebFetch", url=here.url, prompt="?", offset=100_000)

    assert str(first.content).endswith("x\n\n[3 more characters, from offset 100000 on]")
    assert str(rest.content).endswith("\n\nend")


@requirement("webfetch-tool.page")
async def test_a_page_that_is_not_text_is_saved(tmp_path: Path) -> None:
    picture = HttpResponse(status=200, body=b"\x89PNG", content_type="image/png")
    async with site({"/": picture}) as here:
        box = Box(tmp_path, [local()])
        done = await box.call("WebFetch", url=here.url, prompt="?")

    saved = tmp_path / "session/tool-results/toolu_0.png"
    assert done.content == f"The page is no text (image/png, 4 bytes). Saved to: {saved}"
    assert saved.read_bytes() == b"\x89PNG"


@requirement("webfetch-tool.moved")
async def test_a_redirect_to_another_host_is_reported_and_not_followed(tmp_path: Path) -> None:
    async with site({"/": to("https://other.test/new", 301)}) as here:
        done = await Box(tmp_path, [local()]).call("WebFetch", url=here.url + "/", prompt="Read")

    assert str(done.content).startswith(
        "REDIRECT DETECTED: The URL redirects to a different host.\n\n"
        f"Original URL: {here.url}/\nRedirect URL: https://other.test/new\n"
        "Status: 301 Moved Permanently\n"
    )
    assert record(done)["code"] == 301
    assert len(here.asked) == 1


@requirement("webfetch-tool.refusals")
async def test_local_and_malformed_addresses_are_refused(tmp_path: Path) -> None:
    new = Box(tmp_path, [webfetch_tool(profile())])
    old = Box(tmp_path, [webfetch_tool(profile("2.1.197"))], version="2.1.197")

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


class Found:
    """A provider that remembers what it was asked."""

    def __init__(self, *hits: WebSearchHit) -> None:
        self.hits = hits
        self.asked: list[WebSearchQuery] = []

    async def search(self, query: WebSearchQuery) -> Sequence[WebSearchHit]:
        self.asked.append(query)
        return self.hits


@requirement("websearch-tool.results")
async def test_hits_are_returned_as_links_and_excerpts(tmp_path: Path) -> None:
    provider = Found(WebSearchHit("One", "https://one.test", "First words."), WebSearchHit("Two", "https://two.test"))
    box = Box(tmp_path, [websearch_tool(profile(), provider=provider)])

    done = await box.call("WebSearch", query="words", allowed_domains=["one.test"])

    assert provider.asked == [WebSearchQuery("words", ("one.test",), ())]
    links = [{"title": "One", "url": "https://one.test"}, {"title": "Two", "url": "https://two.test"}]
    assert done.content == (
        'Web search results for query: "words"\n\n'
        'Links: [{"title":"One","url":"https://one.test"},{"title":"Two","url":"https://two.test"}]'
        "\n\nOne (https://one.test):\nFirst words."
    )
    output = record(done)
    assert output.pop("durationSeconds") >= 0
    assert output == {
        "query": "words",
        "results": [{"tool_use_id": "toolu_0", "content": links}, "One (https://one.test):\nFirst words."],
        "searchCount": 1,
    }


@requirement("websearch-tool.results")
async def test_domains_are_either_allowed_or_blocked(tmp_path: Path) -> None:
    box = Box(tmp_path, [websearch_tool(profile(), provider=Found())])

    done = await box.call("WebSearch", query="words", allowed_domains=["a.test"], blocked_domains=["b.test"])

    assert done.content == refusal("Error: Cannot specify both allowed_domains and blocked_domains in the same request")
    assert kind(await box.call("WebSearch", query="x")) == "invalid_input"


@requirement("websearch-tool.provider")
async def test_without_a_key_the_search_reports_the_missing_variable(tmp_path: Path) -> None:
    done = await Box(tmp_path, [websearch_tool(profile())]).call("WebSearch", query="words")

    assert "TAVILY_API_KEY is not set" in str(done.content)
    assert done.span.state == "failed"


@requirement("websearch-tool.provider")
async def test_the_provider_gets_the_key_and_the_domains() -> None:
    def found(request: HttpRequest) -> HttpResponse:
        asked = json.loads(request.body)
        assert asked == {"query": "words", "max_results": 10, "exclude_domains": ["b.test"]}
        assert request.headers["authorization"] == "Bearer k-1"
        hits = [{"title": "One", "url": "https://one.test", "content": "Words.", "score": 0.9}]
        return HttpResponse(status=200, body=json.dumps({"results": hits}).encode())

    async with site({"/search": found}) as here:
        provider = TavilyProvider("k-1", endpoint=f"{here.url}/search")
        hits = await provider.search(WebSearchQuery("words", (), ("b.test",)))

    assert list(hits) == [WebSearchHit("One", "https://one.test", "Words.")]
    assert "k-1" not in repr(provider)


@requirement("websearch-tool.provider")
@pytest.mark.parametrize(
    ("status", "body", "output"),
    [
        (401, b"", "refuses the key in TAVILY_API_KEY"),
        (429, b"", "too many searches"),
        (500, b"", "status code 500"),
        (200, b"<html>", "no usable answer"),
    ],
)
async def test_errors_of_the_provider_are_reported(tmp_path: Path, status: int, body: bytes, output: str) -> None:
    async with site({"/search": HttpResponse(status=status, body=body)}) as here:
        provider = TavilyProvider("k-1", endpoint=f"{here.url}/search")
        box = Box(tmp_path, [websearch_tool(profile(), provider=provider)])
        done = await box.call("WebSearch", query="words")

    assert output in str(done.content)
