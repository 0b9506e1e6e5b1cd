"""A sink that raises is reported once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.requirement import requirement
from toolspan import Permissions, Session, tool
from toolspan.runtime.sinks import Sink
from toolspan.types.events import Faulted, LiveEvent

pytestmark = pytest.mark.anyio


@tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


def breaks(event: LiveEvent) -> None:
    raise ValueError(f"cannot take {type(event).__name__}")


async def breaks_later(event: LiveEvent) -> None:
    raise ValueError(f"cannot take {type(event).__name__}")


@requirement("sinks.reported")
@pytest.mark.parametrize("way", ["direct", "thread", "task"])
async def test_raising_sink_is_reported_once(way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    choices: dict[str, list[Sink]] = {"direct": [], "thread": [breaks], "task": [breaks_later]}
    sinks = choices[way]
    session = Session(
        permissions=Permissions.allow_all(),
        cwd=tmp_path,
        tools=[echo],
        transcript=None,
        direct=[breaks] if way == "direct" else [],
        sinks=sinks,
    )
    with caplog.at_level(logging.WARNING, logger="toolspan"):
        async with session:
            session.say("Go.")
            for name in "abcd":
                call = {"type": "tool_use", "id": name, "name": "echo", "input": {"text": "hi"}}
                assert await session.run({"role": "assistant", "content": [call]})

    (failure,) = session.failures
    assert isinstance(failure, Faulted)
    assert failure.where == ("breaks_later" if way == "task" else "breaks")
    assert failure.reason.startswith("ValueError: cannot take ")
    (record,) = caplog.records
    assert failure.where in record.getMessage()
