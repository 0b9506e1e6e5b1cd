"""A real conversation to test a statement of a document."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

import toolspan
from toolspan import Session, Transcript
from toolspan.runtime.batch import Recovery
from toolspan.runtime.hooks.events import HookRunner
from toolspan.runtime.hooks.load import load_hooks
from toolspan.runtime.permissions import PolicyStack
from toolspan.runtime.permissions.decide import Approver, Policy
from toolspan.runtime.profiles import profile
from toolspan.runtime.settings import SettingsLayer, merge_settings
from toolspan.runtime.settings.load import parse_settings
from toolspan.runtime.tool import Tool
from toolspan.types.events import LiveEvent
from toolspan.types.span import Span

Object = dict[str, Any]
SEED = "seed"
LATEST = "2.1.327"


def call(name: str, id: str = "toolu_1", /, **fields: object) -> Object:
    return {"type": "tool_use", "id": id, "name": name, "input": fields}


def text(words: str) -> Object:
    return {"type": "text", "text": words}


def settings_hooks(folder: Path, version: str, block: Mapping[str, object]) -> HookRunner:
    layer = SettingsLayer("user", folder / "s.json", parse_settings({"hooks": block}, "s.json"), {})
    return load_hooks(merge_settings([layer], trusted=True), profile(version)).hooks


@dataclass
class Played:
    """A finished conversation: live, recorded and read."""

    session: Session
    events: list[LiveEvent]
    lines: list[Object]
    transcript: Transcript

    @property
    def results(self) -> list[Object]:
        return [
            block
            for message in self.session.messages
            if message["role"] == "user" and isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "tool_result"
        ]

    @property
    def texts(self) -> list[str]:
        return [
            block["text"]
            for message in self.session.messages[1:]
            if message["role"] == "user" and isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "text"
        ]

    @property
    def records(self) -> list[Object]:
        return [line for line in self.lines if "toolUseResult" in line]

    def span(self, id: str = "toolu_1") -> Span:
        (result,) = (span for span in self.session.spans if span.id == id)
        return result

    def read_span(self, id: str = "toolu_1") -> Span:
        (result,) = (span for span in self.transcript.spans if span.id == id)
        return result

    def events_of(self, kind: type[LiveEvent]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


async def play(
    folder: Path,
    *replies: Sequence[Mapping[str, object]],
    version: str = SEED,
    hooks: HookRunner | Mapping[str, object] | None = None,
    tools: Iterable[Tool] | None = None,
    policies: Sequence[Policy] = (),
    fallback: Policy | None = None,
    approver: Approver | None = None,
    recoveries: Sequence[Recovery] = (),
    model: str | None = None,
) -> Played:
    events: list[LiveEvent] = []
    fired = settings_hooks(folder, version, hooks) if isinstance(hooks, Mapping) else hooks
    session = Session(
        cwd=folder,
        tools=tools,
        profile=version,
        model=model,
        hooks=fired,
        permissions=PolicyStack(tuple(policies), fallback, approver),
        recoveries=recoveries,
        direct=[events.append],
        transcript=folder / "t.jsonl",
    )
    with anyio.fail_after(30):
        async with session:
            session.say("Go on.")
            for blocks in replies:
                asks = any(block["type"] == "tool_use" for block in blocks)
                reason = "tool_use" if asks else "end_turn"
                reply = {"role": "assistant", "content": list(blocks), "stop_reason": reason}
                await session.run(reply)
    lines = (folder / "t.jsonl").read_text(encoding="utf-8").splitlines()
    return Played(session, events, [json.loads(line) for line in lines], toolspan.read(folder / "t.jsonl"))
