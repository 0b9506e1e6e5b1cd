"""Web search by a provider with an HTTP interface.

In: a query and which domains to look in. Out: hits. `Provider` is what any search has to look like;
`Tavily` is the one that is here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import msgspec

from toolspan.errors import ToolError

TAVILY_KEY = "TAVILY_API_KEY"
"""The variable of the environment that holds the key."""
_TAVILY = "https://api.tavily.com/search"
_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for."""

    words: str
    allowed: tuple[str, ...] = ()
    """Only these domains, when there are any."""
    blocked: tuple[str, ...] = ()


class Hit(msgspec.Struct, frozen=True):
    """One page that was found."""

    title: str
    url: str
    content: str = ""
    """What it says about the query."""


class Provider(Protocol):
    """Somebody who searches the web."""

    async def search(self, query: Query) -> Sequence[Hit]:
        """The hits, best first.

        Raises:
            ToolError: nothing can be found out; the model reads why.
        """
        ...


class _Answer(msgspec.Struct):
    results: list[Hit] = []


@dataclass(frozen=True, slots=True)
class Tavily:
    """Search by tavily.com."""

    key: str = field(repr=False)
    endpoint: str = _TAVILY
    results: int = 10

    async def search(self, query: Query) -> Sequence[Hit]:
        """The hits, best first.

        Raises:
            ToolError: it does not answer, or refuses the key.
        """
        import httpx

        asked: dict[str, object] = {"query": query.words, "max_results": self.results}
        if query.allowed:
            asked["include_domains"] = list(query.allowed)
        if query.blocked:
            asked["exclude_domains"] = list(query.blocked)
        headers = {"Authorization": f"Bearer {self.key}"}
        try:
            with anyio.fail_after(_SECONDS):
                async with httpx.AsyncClient(timeout=_SECONDS * 0.9) as client:
                    answer = await client.post(self.endpoint, json=asked, headers=headers)
        except (httpx.HTTPError, TimeoutError) as error:
            words = str(error) or type(error).__name__
            raise ToolError(f"Web search failed: {words}", kind="network") from error
        return _hits(answer.status_code, answer.content)


def _hits(status: int, body: bytes) -> Sequence[Hit]:
    if status in (401, 403):
        raise ToolError(
            f"Web search failed: the provider refuses the key in {TAVILY_KEY}", kind="network"
        )
    if status == 429:
        raise ToolError("Web search failed: too many searches", kind="rate_limit")
    if status >= 400:
        raise ToolError(f"Web search failed with status code {status}", kind="network")
    try:
        return msgspec.json.decode(body, type=_Answer).results
    except msgspec.MsgspecError as error:
        raise ToolError(f"Web search gave no usable answer: {error}", kind="network") from error
