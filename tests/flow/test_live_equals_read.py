"""Live events of a session equal the spans read from its transcript."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolspan
from tests.integrations.mcp_client.connect import config
from toolspan import Allow, Ask, Deny, Hooks, Output, Permissions, Rules, Session, ToolContext, ToolError, tool
from toolspan.integrations.mcp_client import McpServers
from toolspan.runtime.hooks.events import HookEffects, PreToolDecision
from toolspan.runtime.permissions import PolicyStack
from toolspan.runtime.profiles import VERSIONS
from toolspan.runtime.profiles import profile as named_profile
from toolspan.runtime.tool import Tool, ToolFailure
from toolspan.testing import check_history
from toolspan.types.span import Call, Hook, Permission, Span
from toolspan.types.state import State

TEXTS = st.text(max_size=40)
FATES = (
    "give", "struct", "blocks", "fail", "crash", "deny", "ask", "block", "bad", "none", "wait",
    "mcp__orc__tell", "mcp__orc__struct",
)  # fmt: skip
SAID_BY_SERVERS = st.sampled_from([
    "no such thing",
    "MCP error -32602: no such thing",
    "MCP error -32603: it broke",
    "MCP error -32000: Connection closed",
    "Connection closed",
    "Not connected",
    'MCP server "orc" is not connected',
    "Cannot connect to the MCP server 'orc': nobody there",
    "MCP error -32001: Request timed out",
    'MCP server "orc" tool "tell" timed out after 1s',
    "fetch failed",
])  # fmt: skip


@tool(concurrent=True)
async def give(text: str) -> str:
    """Give the text back."""
    return text


@tool
async def struct(text: str) -> dict[str, str]:
    """Give an object back."""
    return {"said": text}


@tool(concurrent=True)
async def blocks(text: str) -> Output:
    """Give blocks back."""
    return Output(content=[{"type": "text", "text": text or "-"}, {"type": "text", "text": "b"}])


@tool
async def fail(text: str) -> str:
    """Tell of an error."""
    raise ToolError(f"No luck with {text}")


@tool(concurrent=True)
async def crash(text: str) -> str:
    """Fail by mistake."""
    raise KeyError(text)


@tool(timeout=0.001)
async def wait(text: str, ctx: ToolContext) -> str:
    """Take longer than allowed."""
    ctx.progress("other", text=text)
    await anyio.sleep_forever()
    return text


@tool
async def deny(text: str) -> str:
    """Never run: a rule denies it."""
    return text


@tool
async def ask(text: str) -> str:
    """Never run: nobody can be asked."""
    return text


@tool
async def block(text: str) -> str:
    """Never run: a hook blocks it."""
    return text


async def tell(text: str) -> ToolFailure:
    """Fail as a tool of an MCP server does."""
    return ToolFailure(text)


TOOLS: list[Tool] = [
    give, struct, blocks, fail, crash, wait, deny, ask, block,
    tool(name="mcp__orc__tell")(tell),
    replace(struct, name="mcp__orc__struct"),
]  # fmt: skip


@dataclass(frozen=True)
class PlannedCall:
    """A call of a generated conversation."""

    fate: str
    text: str

    def block(self, name: str) -> dict[str, object]:
        fields: dict[str, object] = {"text": self.text}
        if self.fate == "bad":
            fields = {"txt": self.text}
        named = {"bad": "give", "none": "Nothing"}.get(self.fate, self.fate)
        return {"type": "tool_use", "id": name, "name": named, "input": fields}


conversations = st.lists(
    st.lists(st.builds(PlannedCall, st.sampled_from(FATES), TEXTS | SAID_BY_SERVERS), min_size=1, max_size=5),
    min_size=1,
    max_size=4,
)


def make_hooks() -> Hooks:
    hooks = Hooks()

    @hooks.pre_tool_use("block")
    def never(call: Call) -> Deny:
        return Deny("not here")

    @hooks.pre_tool_use("give")
    def note(call: Call) -> PreToolDecision:
        return PreToolDecision(contexts=("be careful",))

    @hooks.post_tool_use("struct")
    def remark(call: Call, moment: object) -> HookEffects:
        return HookEffects(contexts=("well done",))

    return hooks


def reply(batch: list[PlannedCall], number: int) -> dict[str, object]:
    calls = [request.block(f"toolu_{number}_{place}") for place, request in enumerate(batch)]
    return {"id": f"msg_{number}", "role": "assistant", "model": "m", "content": calls}


def play(conversation: list[list[PlannedCall]], profile: str, path: Path) -> Session:
    async def run() -> Session:
        session = Session(
            cwd=path.parent,
            tools=TOOLS,
            profile=profile,
            hooks=make_hooks(),
            permissions=PolicyStack(
                (
                    Rules(deny=["deny"], ask=["ask"]),
                    lambda question: None if question.tool in ("deny", "ask") else Allow(),
                ),
                fallback=lambda _: Ask(),
            ),
            transcript=path,
        )
        async with session:
            session.say("go")
            for number, batch in enumerate(conversation):
                assert await session.run(reply(batch, number))
        assert session.failures == []
        return session

    return anyio.run(run)


STORED_OTHERWISE: dict[str, dict[str, tuple[State, ...]]] = {
    # A hook's plain refusal leaves only its reason, which may be anybody's.
    version: {"block": ("blocked_by_hook", "denied", "failed")}
    for version in ("seed", "2.0.65")
}
"""The facts that a profile's format does not keep: states that may be read for a tool's calls."""


KEEPS_EVENTS = ("2.1.327",)
"""The profiles whose format keeps decisions and what hooks added."""


def facts(span: Span) -> dict[str, object]:
    assert span.result is not None
    structured = span.result.structured
    return {
        "tool": span.tool,
        "input": msgspec.json.decode(span.call.raw_input),
        "target": span.call.target,
        "content": span.result.content,
        "structured": structured,
        "is_error": span.result.is_error,
        "requested before finished": span.duration is not None,
    }


def happened(span: Span) -> list[tuple[object, ...]]:
    result: list[tuple[object, ...]] = []
    for event in span.events:
        if isinstance(event, Permission):
            result.append(("permission", event.decision, event.source))
        elif isinstance(event, Hook) and event.outcome == "context":
            result.append((event.point, event.name, event.text))
    return sorted(result, key=str)


def compare(live: Span, read: Span, profile: str) -> None:
    assert facts(live) == facts(read)
    loose = STORED_OTHERWISE.get(profile, {}).get(live.tool)
    if loose is not None:
        assert read.state in loose
    else:
        assert (live.state, live.error_kind) == (read.state, read.error_kind)
        assert profile not in KEEPS_EVENTS or happened(live) == happened(read)
        assert (live.message or "")[:60] == (read.message or "")[:60]


@pytest.mark.parametrize("profile", VERSIONS)
def test_live_spans_equal_the_spans_of_the_transcript(profile: str) -> None:
    @given(conversations)
    def check(conversation: list[list[PlannedCall]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "session.jsonl"
            session = play(conversation, profile, path)
            read = toolspan.read(path)
            assert check_history(session.messages) == []
            request = sum(map(len, conversation))
            assert len(session.spans) == len(read.spans) == request
            by_id = {span.id: span for span in read.spans}
            for live in session.spans:
                compare(live, by_id[live.id], profile)
            result = {finding.code for finding in toolspan.check(path).findings}
            assert result <= {"unknown_input", "unknown_result"}  # tools of our own making

    check()


@pytest.mark.anyio
@pytest.mark.parametrize("profile", VERSIONS)
async def test_live_spans_of_an_mcp_server_equal_those_of_the_transcript(profile: str, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    log = tmp_path / "log"
    log.touch()
    # An error of the protocol, one of the tool, a good end, no answer, and a server that is gone.
    names = ("refuse", "fail", "structured", "misfit", "hang", "die", "echo")
    calls = [{"type": "tool_use", "id": f"toolu_{name}", "name": f"mcp__chaos__{name}", "input": {}} for name in names]
    async with McpServers(
        config(log),
        profile=named_profile(profile),
        cwd=tmp_path,
        environment={**os.environ, "MCP_TOOL_TIMEOUT": "500"},
    ) as servers:
        tools = servers.tools()
        async with Session(
            permissions=Permissions.allow_all(), cwd=tmp_path, tools=tools, profile=profile, transcript=path
        ) as item:
            item.say("go")
            for number, block in enumerate(calls):
                message = {"id": f"msg_{number}", "role": "assistant", "model": "m"}
                await item.run({**message, "content": [block]})

    read = {span.id: span for span in toolspan.read(path).spans}
    for live in item.spans:
        compare(live, read[live.id], profile)
    ends = {span.tool.removeprefix("mcp__chaos__"): span.error_kind for span in item.spans}
    assert [ends[name] for name in ("fail", "structured", "hang", "die")] == [
        "unknown", None, "mcp_timeout", "mcp_no_response",
    ]  # fmt: skip
    assert ends["refuse"] == ("unknown" if profile == "2.1.327" else "invalid_input")
