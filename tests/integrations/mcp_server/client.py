"""A server process and the official client over a real pipe."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import anyio
from mcp import StdioServerParameters
from mcp.client import Client, ClientRequestContext
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult

import toolspan
from tests.fork_server import TOOLSPAN
from toolspan.reading.transcript import Transcript

ARGUMENTS = ["mcp", "--setting-sources", ""]
ERAS = ("legacy", "2026-07-28")
"""The two ways in which clients speak: with a handshake, and without."""


class Person:
    def __init__(self, **answer: str | int | float | bool) -> None:
        self._answer = answer
        self.asked: list[str] = []
        self.without_answer: Literal["decline", "cancel"] = "decline"

    async def answer(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert context is not None
        self.asked.append(params.message)
        if not self._answer:
            return ElicitResult(action=self.without_answer)
        return ElicitResult(action="accept", content=dict(self._answer))


@asynccontextmanager
async def client(
    folder: Path, *options: str, era: str = "legacy", person: Person | None = None
) -> AsyncIterator[Client]:
    transcript = folder.parent / f"{folder.name}.jsonl"
    place = () if {"--transcript", "--store"} & {*options} else ("--transcript", str(transcript))
    server = StdioServerParameters(
        command=TOOLSPAN[0],
        args=[*TOOLSPAN[1:], *ARGUMENTS, *place, *options],
        cwd=folder,
        env={**os.environ, "HOME": str(folder.parent)},
    )
    answer = person.answer if person is not None else None
    async with Client(server, mode=era, elicitation_callback=answer) as result:
        yield result


def recorded(folder: Path) -> Transcript:
    return toolspan.read(folder.parent / f"{folder.name}.jsonl")


def text(result: CallToolResult) -> str:
    return "\n".join(item.text for item in result.content if item.type == "text")


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    while not holds():
        await anyio.sleep(0.01)


def request(number: int, method: str, **params: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


HELLO = request(
    0, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "test", "version": "1"}
)
READY = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
