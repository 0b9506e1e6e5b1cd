"""A handler behind an address: the input is posted, the answer is the body.

In: `Told`. Out: a 2xx body as output; everything else (another status, no connection, an address
that is not allowed, a body over the limit) is a failure. Redirections are not followed. Variables
in headers are filled in only when their names are allowed, and are never told in a failure.
"""

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from toolspan.hooks.heard import Heard, Told

LIMIT = 1 << 20
"""Bytes of a body that are listened to."""
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_GOOD = range(200, 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpHandler:
    """One address."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, compare=False)
    variables: frozenset[str] = frozenset()
    """The names that may be filled in."""
    allowed: tuple[str, ...] | None = None
    """Addresses that may be posted to, with `*` for any characters; None: all."""

    @property
    def name(self) -> str:
        """The address."""
        return self.url

    @property
    def key(self) -> object:
        """The address and its headers."""
        return (self.url, tuple(sorted(self.headers.items())))

    async def run(self, told: Told) -> Heard:
        """Post the input."""
        if self.allowed is not None and not any(
            fnmatch.fnmatchcase(self.url, one) for one in self.allowed
        ):
            return Heard(end="failed", problem=f"{self.url} is not among the allowed addresses")
        import httpx  # large, and most sessions have no such handler

        try:
            return await self._post(told)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return Heard(end="failed", problem=f"{self.url}: {str(error) or type(error).__name__}")

    async def _post(self, told: Told) -> Heard:
        import httpx

        headers = {"content-type": "application/json", **self._headers(told.scene.environment)}
        async with (
            httpx.AsyncClient(follow_redirects=False, timeout=None) as client,
            client.stream("POST", self.url, content=told.data, headers=headers) as answer,
        ):
            body = b""
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > LIMIT:
                    return Heard(end="failed", problem=f"{self.url}: more than {LIMIT} bytes")
        text = body.decode("utf-8", "replace")
        if answer.status_code not in _GOOD:
            return Heard(end="failed", problem=f"{self.url}: HTTP {answer.status_code}")
        if text.strip() and not text.lstrip().startswith("{"):
            return Heard(end="failed", problem=f"{self.url}: the body is no JSON object")
        return Heard(stdout=text)

    def _headers(self, environment: Mapping[str, str]) -> dict[str, str]:
        def filled(found: re.Match[str]) -> str:
            name = found[1] or found[2]
            return environment.get(name, "") if name in self.variables else ""

        return {key: _VARIABLE.sub(filled, value) for key, value in self.headers.items()}
