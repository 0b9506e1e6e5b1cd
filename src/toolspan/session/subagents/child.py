"""One agent below another: what it is made of, and what is seen of its work from above.

In: what its runner emits. Out: the same above, as `Relayed`, and counts of it. Who starts it, and
what becomes of its work, is told in `subagents.py`.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from toolspan.ids import CallId
from toolspan.llm.model import Model
from toolspan.model.live import Finished, LiveEvent, Relayed, Requested
from toolspan.record import Recorder
from toolspan.run.children import Kept, Told
from toolspan.session.around import Aside
from toolspan.session.session import Session
from toolspan.session.subagents.handmade import Handmade
from toolspan.session.subagents.kinds import Kind
from toolspan.session.subagents.worktree import Tree


@dataclass(slots=True, kw_only=True)
class Child:
    """An agent that works, or has worked and can go on."""

    aside: Aside
    kind: Kind
    model: Model
    description: str
    cwd: Path
    recorder: Recorder | None
    about: dict[str, object]
    """What is kept beside its transcript."""
    tree: Tree | Handmade | None = None
    kept: Kept | None = None
    history: list[dict[str, object]] = field(default_factory=list)
    letters: deque[str] = field(default_factory=deque)
    """What it was told meanwhile."""
    listens: bool = False
    """It works, and will read them."""
    over: anyio.Event | None = None
    """There while it works; set when it has left everything in order."""

    def begin(self) -> None:
        """It is about to work."""
        self.listens, self.over = True, anyio.Event()

    def end(self) -> None:
        """It has left everything in order."""
        over, self.over, self.listens = self.over, None, False
        if over is not None:
            over.set()

    @property
    def id(self) -> str:
        """Its name, and that of its transcript."""
        return self.aside.agent_id


@dataclass(slots=True)
class Watch:
    """What is seen of an agent's work from above."""

    above: Session
    aside: Aside
    told: Told
    tools: list[str] = field(default_factory=list)
    added: int = 0
    removed: int = 0

    def take(self, event: LiveEvent) -> None:
        """Pass on what the agent's runner emits, and keep count."""
        match event:
            case Relayed():
                self.above.runner.emit(event)
                return
            case Requested():
                news = {"agent_id": self.aside.agent_id, "tool": event.call.tool}
                self.told({**news, "target": event.call.target, "calls": len(self.tools) + 1})
            case Finished():
                self.tools.append(event.span.tool)
                self._count(event.structured)
            case _:
                pass
        self.above.runner.emit(
            Relayed(
                agent_id=self.aside.agent_id,
                agent_type=self.aside.kind,
                call_id=self.aside.call_id or CallId(""),
                event=event,
            )
        )

    def _count(self, structured: object) -> None:
        hunks = structured.get("structuredPatch") if isinstance(structured, Mapping) else None
        for hunk in hunks if isinstance(hunks, list) else ():
            lines = [str(line) for line in hunk.get("lines", ())]
            self.added += sum(line.startswith("+") for line in lines)
            self.removed += sum(line.startswith("-") for line in lines)
