"""Printed call lines and their symbols."""

from __future__ import annotations

import re
from importlib.resources import files
from io import StringIO

import anyio
import pytest

from tests.requirement import requirement
from tests.runtime.waiting_tools import Held, interrupting
from toolspan import Permissions, Session
from toolspan.cli.output import cell_width
from toolspan.session import CallLines
from toolspan.types.state import STATE_SYMBOLS, STATES


@requirement("session.lines")
@pytest.mark.anyio
async def test_printed_calls_have_the_symbols_of_show() -> None:
    out = StringIO()
    hang = Held("hang")
    blocks: list[dict[str, object]] = [{"type": "tool_use", "id": n, "name": "hang", "input": {}} for n in ("a", "b")]
    with anyio.fail_after(30):
        async with Session(
            permissions=Permissions.allow_all(), tools=[hang.tool], transcript=None, direct=[CallLines(out)]
        ) as session:
            session.say("go")
            async with interrupting(session, hang.inside):
                await session.run({"role": "assistant", "content": blocks})

    signs = {line.split()[-1]: line[0] for line in out.getvalue().splitlines()[1:]}
    assert signs == {"cancelled": "○", "interrupted": "■"}


@requirement("session.lines")
def test_every_state_has_a_symbol_of_one_column() -> None:
    page = files("toolspan.export").joinpath("templates/page.js").read_text(encoding="utf-8")
    output = re.findall(r'(\w+): "(.)"', page.partition("const GLYPHS = {")[2].partition("}")[0])

    assert [cell_width(STATE_SYMBOLS[state]) for state in STATES] == [1] * len(STATES)
    assert dict(output) == STATE_SYMBOLS
