"""A session with subagents for the real client to resume, run as `toolspan run` runs it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import anyio

from tests.session.role_models import Play, tools_of
from toolspan import Permissions, Session
from toolspan.runtime.profiles import profile
from toolspan.session import Agent
from toolspan.session.recording import Recorder
from toolspan.session.subagents import Subagents
from toolspan.testing import say, use


def agents_of(version: str) -> Callable[[Recorder], None]:
    """The story in the shape of a client version."""

    def agents(recorder: Recorder) -> None:
        """Two agents at once, one with another below it, one in the background, and its news."""
        with tempfile.TemporaryDirectory() as folder:
            anyio.run(_work, recorder, version, Path(folder))

    return agents


async def _work(recorder: Recorder, version: str, folder: Path) -> None:
    chosen = profile(version)

    def start(prompt: str, *, later: bool) -> dict[str, object]:
        return use(
            chosen.agents.name, description=prompt, prompt=prompt, run_in_background=later,
            subagent_type="general-purpose",
        )  # fmt: skip

    play = Play(
        {
            "Main": [[start("Left", later=False), start("Right", later=True)], say("Both sent.")],
            "Left": [[use("echo", text="l"), start("Deep", later=False)], say("Left is back.")],
            "Right": [[use("echo", text="r")], say("Right is back.")],
        }
    )
    session = Session(
        permissions=Permissions.allow_all(),
        cwd=folder,
        tools=tools_of(chosen),
        profile=chosen,
        transcript=recorder,
        session_id=recorder.session_id,
    )
    agent = Agent(session, play.model)
    Subagents(agent)
    with anyio.fail_after(30):
        async with session:
            await agent.run_to_completion("Main")
