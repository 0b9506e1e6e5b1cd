"""Failures before a call starts: unknown tool, invalid input, check of the tool."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import pytest

from tests.requirement import requirement
from tests.runtime.calls import EventLog, call
from toolspan.errors import ToolError
from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import Refusal, Tool, tool
from toolspan.types.events import Started

pytestmark = pytest.mark.anyio


async def ended(*tools: Tool, name: str, version: str = "2.1.325") -> tuple[str, str, str]:
    log = EventLog()
    runner = Runner(tools, profile=profile(version), direct=[log])
    with anyio.fail_after(10):
        (finished,) = await runner.finish([call("a", name)])
    assert log.of(Started) == []
    return finished.span.state, str(finished.span.error_kind), str(finished.content)


@tool(name="Look")
async def look() -> str:
    """Look."""
    return ""


@requirement("run.switched-off")
@pytest.mark.parametrize(
    ("version", "name", "more"),
    [
        ("2.1.325", "look", ". Tool names are case-sensitive: call Look instead."),
        ("2.1.80", "look", ""),
        ("2.1.325", "Bash", ". Bash exists but is not enabled in this context."),
        ("2.1.325", "Dance", ""),
    ],
)
async def test_unknown_tool_is_reported_with_similar_names(version: str, name: str, more: str) -> None:
    state, kind, text = await ended(look, name=name, version=version)

    assert (state, kind) == ("failed", "unknown_tool")
    assert text == f"<tool_use_error>Error: No such tool available: {name}{more}</tool_use_error>"


def vetoing(outcome: Refusal | Exception | None) -> Tool:
    async def check(given: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @tool(validate_input=check)
    async def act() -> str:
        """Act."""
        return "acted"

    return act


@requirement("tools.validate-input")
@pytest.mark.parametrize(
    ("outcome", "kind", "text"),
    [
        (Refusal("not now"), "invalid_input", "<tool_use_error>not now</tool_use_error>"),
        (Refusal("not now", "stale_file"), "stale_file", "<tool_use_error>not now</tool_use_error>"),
        (Refusal("not now", wrapped=False), "invalid_input", "not now"),
        (ToolError("no disk", kind="internal"), "internal", "no disk"),
    ],
)
async def test_check_of_a_tool_ends_the_call_with_its_message(
    outcome: Refusal | Exception, kind: str, text: str
) -> None:
    state, result, message = await ended(vetoing(outcome), name="act")

    assert (state, result) == ("failed", kind)
    assert text in message


@requirement("tools.validate-input")
async def test_crashing_check_ends_only_its_call() -> None:
    state, _, text = await ended(vetoing(ValueError("oops")), name="act")

    assert state == "failed"
    assert "oops" in text
    with anyio.fail_after(10):
        (result,) = await Runner([vetoing(None)]).run([call("a", "act")])
    assert result.text == "acted"
