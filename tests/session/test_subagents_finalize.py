"""Every call of every subagent has one result, for any schedule and interrupt."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolspan
from tests.session.role_models import Play, troupe
from toolspan.session.subagents.definitions import SubagentConfig, SubagentLimits
from toolspan.testing import fail, say, use
from toolspan.types.events import Finished, LiveEvent, Relayed, Requested

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Job:
    calls: tuple[str, ...]
    below: tuple[Job, ...] = ()
    later: bool = False
    dies: bool = False
    """Its model fails at the end."""


leaves = st.builds(
    Job,
    calls=st.lists(st.sampled_from(["echo", "hang", "Nothing", "bad"]), max_size=2).map(tuple),
    later=st.booleans(),
    dies=st.booleans(),
)
jobs = st.recursive(
    leaves,
    lambda inner: st.builds(
        Job,
        calls=st.lists(st.sampled_from(["echo", "hang"]), max_size=1).map(tuple),
        below=st.lists(inner, min_size=1, max_size=2).map(tuple),
        later=st.booleans(),
    ),
    max_leaves=4,
)


def parts_of(job: Job, name: str) -> dict[str, list[object]]:
    blocks: list[object] = []
    for call in job.calls:
        fields = {"text": "t"} if call == "echo" else {}
        blocks.append(use("echo", txt="t") if call == "bad" else use(call, **fields))
    parts: dict[str, list[object]] = {}
    for number, item in enumerate(job.below):
        prompt = f"{name}.{number}"
        blocks.append(use("Agent", description=prompt, prompt=prompt, run_in_background=item.later))
        parts |= parts_of(item, prompt)
    steps: list[object] = [blocks or say("Nothing to do.")]
    steps += [fail(400, message="gone")] if job.dies else []
    # Longer names first: a part is found by the words it begins with.
    return {**parts, name: steps}


@given(job=jobs, moment=st.integers(0, 60))
def test_every_call_of_every_subagent_is_finalized_once(job: Job, moment: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(_play, Path(folder), job, moment)


async def _play(folder: Path, job: Job, moment: int) -> None:
    play = Play(parts_of(job, "0"))
    events: list[LiveEvent] = []
    staff = SubagentConfig(limits=SubagentLimits(max_depth=4))
    async with troupe(folder, play, staff=staff, events=events) as agent:
        over = anyio.Event()

        async def work() -> None:
            await agent.run_to_completion("0")
            over.set()

        async with anyio.create_task_group() as group:
            group.start_soon(work)
            for _ in range(moment):
                await anyio.lowlevel.checkpoint()
            while not over.is_set():
                agent.interrupt()
                await anyio.lowlevel.checkpoint()

    own = [event.event if isinstance(event, Relayed) else event for event in events]
    request = Counter(event.call.id for event in own if isinstance(event, Requested))
    ended = Counter(event.span.id for event in own if isinstance(event, Finished))
    assert request == ended
    assert set(request.values()) <= {1}
    for path in [folder / "t.jsonl", *folder.rglob("agent-*.jsonl")]:
        if path.is_file():
            assert [span for span in toolspan.read(path).spans if span.result is None] == []
    about = [json.loads(path.read_bytes()) for path in folder.rglob("*.meta.json")]
    assert all(event["spawnDepth"] <= 4 for event in about)
    assert all(task.status != "running" for task in agent.session.runner.runner_context.workspace.tasks)
