"""`Session.resume` continues the newest session of a folder; calls are printed as lines."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest

from tests.runtime.waiting_tools import Held, interrupting
from toolspan import Permissions, Session
from toolspan.cli.output import cell_width
from toolspan.errors import NotFound
from toolspan.session import Agent, CallLines
from toolspan.testing import ScriptedModel, say, use
from toolspan.types.state import STATE_SYMBOLS, STATES

pytestmark = pytest.mark.anyio

STEPS = [use("Bash", command="echo a >> log"), use("Bash", command="echo b >> log")]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


async def test_resume_creates_a_session_and_later_continues_it(project: Path) -> None:
    ids = []
    for steps in (STEPS[:1], STEPS):
        model = ScriptedModel(steps, then=say("Done."), resumes=True)
        async with Session.resume(project, permissions=Permissions.allow_all()) as session:
            # Earlier replies count as steps of the script, including "Done.".
            ended = await Agent(session, model).prompt("Go.")
        ids.append(session.session_id)
        assert ended.text == "Done."

    assert ids[0] == ids[1]
    assert len(Session.resume(project).messages) == len(session.messages)
    assert (project / "log").read_text(encoding="utf-8") == "a\n"


def test_resume_of_an_unknown_session_is_an_error(project: Path) -> None:
    assert Session.resume(project).messages == []
    with pytest.raises(NotFound):
        Session.resume(project, session="0000")


async def test_calls_are_printed_when_they_start_and_when_they_end(project: Path) -> None:
    out = StringIO()
    model = ScriptedModel([use("Bash", command="exit 3 #\u202e\n" + "x" * 500), say("Done.")])
    async with Session(
        permissions=Permissions.allow_all(), cwd=project, transcript=None, direct=[CallLines(out)]
    ) as session:
        await Agent(session, model).prompt("Go.")

    started, ended = out.getvalue().splitlines()
    assert started.startswith("▸ Bash  exit 3 #")
    assert ended.startswith("✗ Bash  exit 3 #")
    assert ended.endswith(" failed")
    assert "\u202e" not in out.getvalue()
    assert len(started) < 100


async def test_printed_calls_have_the_symbols_of_show() -> None:
    out = StringIO()
    hang = Held("hang")
    blocks: list[dict[str, object]] = [{"type": "tool_use", "id": n, "name": "hang", "input": {}} for n in ("a", "b")]
    async with Session(
        permissions=Permissions.allow_all(), tools=[hang.tool], transcript=None, direct=[CallLines(out)]
    ) as session:
        session.say("go")
        async with interrupting(session, hang.inside):
            await session.run({"role": "assistant", "content": blocks})

    signs = {line.split()[-1]: line[0] for line in out.getvalue().splitlines()[1:]}
    assert signs == {"cancelled": "○", "interrupted": "■"}


def test_every_state_has_a_symbol_of_one_column() -> None:
    assert [cell_width(STATE_SYMBOLS[state]) for state in STATES] == [1] * len(STATES)
