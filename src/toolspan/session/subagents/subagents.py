"""Agents below an agent: sessions below a session.

    agent = Agent(session, model)
    Subagents(agent, Staff(kinds))

From then on the tool for subagents (`builtin/agent.py`) finds somebody who starts them. A child has
its own context and its own view of files, some of the tools, perhaps another model, and a
transcript beside the session's. Rules, hooks and whoever is asked for consent are those of the
agent above; what its runner emits comes out above as `Relayed`. Read `Subagents.run` first.
"""

import json
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio

from toolspan.errors import ToolError, ToolspanError
from toolspan.hooks.joined import joined
from toolspan.hooks.points import Occasion
from toolspan.ids import CallId
from toolspan.record import agent_path
from toolspan.run.children import ChildEnd, ChildWish, Delivered, Kept, Launched, Told
from toolspan.run.tasks import AgentTask, Report
from toolspan.run.tool import Tool
from toolspan.session.agent import Agent, Ended, Limits, Schema
from toolspan.session.around import Aside
from toolspan.session.past import past
from toolspan.session.session import Session
from toolspan.session.subagents.child import Child, Watch
from toolspan.session.subagents.handmade import Handmade, handmade
from toolspan.session.subagents.kinds import GENERAL_KIND, Kind
from toolspan.session.subagents.staff import Staff, mode_below, new_agent_id, words_for
from toolspan.session.subagents.worktree import Git, Tree, open_tree
from toolspan.wire.paths import meta_path

_CUT = ("max_turns", "max_tokens")
"""Ends at which an agent may have had more to say."""
_LETTER = "A message from the agent that started you:\n"


class Subagents:
    """The agents below one agent."""

    def __init__(self, agent: Agent, staff: Staff | None = None) -> None:
        """Make agents available to an agent; those below it have the same staff."""
        self.staff = staff or Staff()
        self._agent = agent
        self._session = agent.session
        self._values = agent.session.profile.agents
        self._depth = agent.session.runner.desk.workspace.tracking.depth
        self._children: dict[str, Child] = {}
        self._session.runner.desk.workspace.children = self
        agent.offer = self.offered

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of the agents that there are."""
        return tuple(self.staff.kinds)

    def sends_off(self, kind: str) -> bool:
        """Whether agents of this kind work in the background unless told otherwise."""
        return self._values.in_background or self.staff.kinds[kind].in_background

    def offered(self, schemas: list[Schema]) -> list[Schema]:
        """What the model is told of the tools: the one for agents says which there are."""
        listing = self.staff.listing()
        return [
            {**one, "description": f"{one['description']}\n\n{listing}"}
            if one["name"] == self._values.name
            else one
            for one in schemas
        ]

    async def run(self, wish: ChildWish) -> ChildEnd:
        """Let an agent work to the end of its turn; what goes wrong in it does not raise.

        Raises:
            ToolError: it cannot be started.
        """
        self.staff.take_place()
        try:
            child = await self._made(wish, in_background=False)
            return await self._work(child, wish.prompt, wish.told)
        finally:
            self.staff.give_place()

    async def launch(self, wish: ChildWish) -> Launched:
        """Send an agent off: it is a task of the session from now on.

        Raises:
            ToolError: it cannot be started.
        """
        self.staff.take_place()
        try:
            child = await self._made(wish, in_background=True)
            task = self._send_off(child, wish.prompt, wish.call_id)
        except BaseException:
            self.staff.give_place()
            raise
        return Launched(agent_id=child.id, path=task.path, model=child.model.name)

    async def say(self, agent_id: str, words: str, call_id: CallId) -> Delivered:
        """Tell an agent something; one that is done goes on in the background.

        Raises:
            ToolError: there is no such agent.
        """
        child = self._known(agent_id)
        if child.listens:
            child.letters.append(_LETTER + words)
            return Delivered(how="queued", agent_id=child.id, path=self._output(child))
        while child.over is not None:
            await child.over.wait()
        self.staff.take_place()
        try:
            child.begin()
            await self._reopen(child)
            task = self._send_off(child, words, call_id)
        except BaseException:
            child.end()
            self.staff.give_place()
            raise
        return Delivered(how="resumed", agent_id=child.id, path=task.path)

    # Making one

    async def _made(self, wish: ChildWish, *, in_background: bool) -> Child:
        if wish.resumes is not None:
            child = self._known(wish.resumes)
            if child.over is not None:
                raise ToolError(f"Agent {child.id} still works", kind="invalid_input")
            child.begin()
            try:
                await self._reopen(child)
            except BaseException:
                child.end()
                raise
            return child
        kind = self.staff.kinds[wish.kind]
        model = self.staff.model(wish.model or kind.model, self._agent.model)
        if not any(self._keeps(kind, tool) for tool in self._session.runner.desk.tools):
            raise ToolError(f"Agent type '{kind.name}' would have no tools", kind="invalid_input")
        aside = self._aside(new_agent_id(self._session.profile.shape.agent_digits), kind, wish)
        about = self._about(aside, wish, in_background=in_background)
        child = Child(
            aside=aside,
            kind=kind,
            model=model,
            description=wish.description,
            cwd=wish.cwd,
            recorder=None,
            about=about,
        )
        if wish.isolated or kind.isolated:
            await self._isolate(child)
        child.recorder = self._session.child_recorder(child.id, child.about)
        self._children[child.id] = child
        child.begin()
        return child

    def _aside(self, agent_id: str, kind: Kind, wish: ChildWish) -> Aside:
        space = self._session.runner.desk.workspace
        return Aside(
            agent_id,
            kind.name,
            call_id=wish.call_id,
            depth=self._depth + 1,
            prompt_id=self._session.prompt_id,
            folder=space.folder,
            environment=space.environment,
            transcript=self._session.main_transcript,
        )

    def _about(self, aside: Aside, wish: ChildWish, *, in_background: bool) -> dict[str, object]:
        values, above = self._values, self._session.runner.desk.workspace.agent_id
        about: dict[str, object] = {"agentType": aside.kind}
        if values.names_request and self.staff.kinds[aside.kind].path is None:
            about["isBuiltIn"] = True
        about["description"] = wish.description
        if values.names_call:
            about |= {"toolUseId": wish.call_id, "spawnDepth": aside.depth}
            about |= {"parentAgentId": above} if above is not None else {}
        if values.names_request:
            about["requestShape"] = "background" if in_background else "foreground"
            about["requestNonInteractive"] = True
        return about

    def _keeps(self, kind: Kind, tool: Tool) -> bool:
        """Whether an agent of this kind has a tool; at the bottom, none starts others."""
        most = self.staff.care.depth or self._values.depth
        starts = tool.name in (self._values.name, "SendMessage")
        return kind.keeps(tool) and not (starts and self._depth + 1 >= most)

    async def _isolate(self, child: Child) -> None:
        child.tree = await self._tree(child, f"agent-{child.id}")
        child.kept = None
        child.about |= Kept(path=child.tree.path, branch=child.tree.branch).record()

    async def _tree(self, child: Child, name: str) -> Tree | Handmade:
        """A copy of the project: one that hooks make, where there are some for that."""
        space = self._session.runner.desk.workspace
        if self._session.hooks.listens("WorktreeCreate"):
            occasion = Occasion(point="WorktreeCreate", fields={"name": name})
            return handmade(await self._session.fire(occasion))
        git = Git(space.custody, dict(space.environment), child.aside.call_id or child.id)
        return await open_tree(git, child.cwd, name)

    # Going on with one

    def _known(self, agent_id: str) -> Child:
        child = self._children.get(agent_id) or self._remembered(agent_id)
        if child is None:
            there = ", ".join(self._children) or "none"
            raise ToolError(
                f"No agent has the id {agent_id}; those of this conversation: {there}",
                kind="not_found",
            )
        self._children[child.id] = child
        return child

    def _remembered(self, agent_id: str) -> Child | None:
        """An agent of the same session, in a process before this one."""
        main, profile = self._session.main_transcript, self._session.profile
        if main is None or not agent_id.isalnum():
            return None
        path = agent_path(main, agent_id, profile.shape.agents)
        try:
            history = past(path) if path.is_file() else []
        except ToolspanError:
            return None
        if not history:
            return None
        about = _told_about(meta_path(path))
        kind = self.staff.kinds.get(str(about.get("agentType")), GENERAL_KIND)
        described = str(about.get("description") or agent_id)
        called = CallId(str(about.get("toolUseId") or ""))
        wish = ChildWish(
            call_id=called, kind=kind.name, description=described, prompt="", cwd=self._session.cwd
        )
        return Child(
            aside=self._aside(agent_id, kind, wish),
            kind=kind,
            model=self.staff.model(kind.model, self._agent.model),
            description=described,
            cwd=self._session.cwd,
            recorder=self._session.child_recorder(agent_id, about),
            about=about,
            history=history,
        )

    async def _reopen(self, child: Child) -> None:
        """Its copy of the repository, should it have been removed, is made anew."""
        if child.tree is not None and child.kept is None:
            await self._isolate(child)

    # Its work

    def _send_off(self, child: Child, prompt: str, call_id: CallId) -> AgentTask:
        task = AgentTask(
            id=child.id,
            call_id=call_id,
            description=child.description,
            path=self._output(child),
        )
        self._session.runner.start_soon(partial(self._in_background, child, prompt, task))
        self._session.runner.desk.workspace.tasks.add(task)
        return task

    async def _in_background(self, child: Child, prompt: str, task: AgentTask) -> None:
        try:
            with task.scope:
                end = await self._work(child, prompt)
                task.report = _report(end)
        except Exception as error:  # noqa: BLE001 - nobody waits who could be told but the model
            task.report = Report(text="", error=f"{type(error).__name__}: {error}")
        finally:
            self.staff.give_place()
            task.over.set()

    async def _work(self, child: Child, prompt: str, told: Told | None = None) -> ChildEnd:
        """One turn of an agent, in a session of its own."""
        watch = Watch(self._session, child.aside, told or (lambda _news: None))
        clock = self._session.runner.desk.clock
        since = clock()
        ended: Ended | None = None
        session: Session | None = None
        try:
            session = self._below(child, watch)
            agent = Agent(
                session,
                child.model,
                system=words_for(child.kind, session.cwd),
                limits=self._limits(child.kind),
            )
            Subagents(agent, self.staff)
            with anyio.move_on_after(self.staff.care.seconds):
                async with session:
                    ended = await self._turns(child, agent, prompt)
        finally:
            child.history = child.history if session is None else session.messages
            await self._tidy(child)
            child.end()
        self._agent.below.update(ended.tokens if ended else {})
        return self._end(child, agent, watch, ended, (clock() - since) * 1000)

    async def _turns(self, child: Child, agent: Agent, prompt: str) -> Ended:
        """What it was asked, and what it was told too late to read it on the way."""
        agent.session.news.mail = child.letters
        try:
            ended = await agent.finish(prompt)
            while child.letters and not ended.is_error:
                more = await agent.hear_news()
                ended = ended if more is None else ended.and_then(more)
        finally:
            child.listens = False
        return ended

    def _below(self, child: Child, watch: Watch) -> Session:
        above, desk = self._session, self._session.runner.desk
        kind = child.kind
        mode = mode_below(kind, above.permission_mode)
        session = Session(
            cwd=child.tree.cwd if child.tree else child.cwd,
            tools=desk.tools.filtered(lambda tool: self._keeps(kind, tool)),
            profile=above.profile,
            model=child.model.name,
            hooks=joined(above.hooks, kind.hooks),
            policies=desk.policies,
            fallback=desk.fallback,
            approver=desk.approver,
            direct=[watch.take],
            transcript=child.recorder,
            session_id=above.session_id,
            history=child.history,
            aside=child.aside,
            permission_mode=mode,
            clock=desk.clock,
        )
        session.skills.make = above.skills.make
        own = session.runner.desk
        if mode != above.permission_mode or "permission_mode" in desk.context.values:
            values = {**own.context.values, "permission_mode": mode}
            own.context = replace(own.context, values=values)
        return session

    def _limits(self, kind: Kind) -> Limits:
        return replace(self._agent.limits, turns=kind.max_turns)

    async def _tidy(self, child: Child) -> None:
        if child.tree is not None:
            child.kept = await child.tree.close()
            if child.kept is None:
                child.about.pop("worktreePath", None)
                child.about.pop("worktreeBranch", None)
        if self._values.names_request:
            child.about["finished"] = True
        if child.recorder is not None:
            child.recorder.tell_about(child.about)

    def _end(
        self, child: Child, agent: Agent, watch: Watch, ended: Ended | None, took: float
    ) -> ChildEnd:
        seconds = self.staff.care.seconds
        late = f"it was given {seconds:g} seconds, and they are over" if seconds else None
        cut = ended.error if ended and ended.reason in _CUT else None
        return ChildEnd(
            agent_id=child.id,
            kind=child.kind.name,
            text=ended.text if ended else "",
            error=late if ended is None else _trouble(ended),
            cut=cut,
            timed_out=ended is None,
            model=child.model.name,
            tools=tuple(watch.tools),
            lines=(watch.added, watch.removed),
            tokens=agent.context_tokens,
            usage=agent.usage,
            duration_ms=took,
            kept=child.kept,
        )

    def _output(self, child: Child) -> Path:
        """The file to follow an agent by: its transcript, under the name of a task."""
        folder = self._session.runner.desk.workspace.tasks_folder
        path = folder / f"{child.id}.output"
        if child.recorder is None:
            return path
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.unlink(missing_ok=True)
            path.symlink_to(child.recorder.path.absolute())
            return path
        return child.recorder.path


def _trouble(ended: Ended) -> str | None:
    """Why an agent's turn is of no use to whoever waits for it."""
    match ended.reason:
        case "completed" | "max_turns" | "max_tokens":
            return None
        case "tool_deferred":
            return "a hook put one of its calls off, and nobody comes back to it"
        case "aborted_tools" | "aborted_streaming":
            return "it was interrupted"
        case _:
            return ended.error or ended.reason


def _report(end: ChildEnd) -> Report:
    cut = f"\n\n[Ended early: {end.cut}]" if end.cut else ""
    kept = "\n".join(["", "", *end.kept.lines()]) if end.kept else ""
    return Report(
        text=f"{end.text.strip()}{cut}{kept}",
        error=end.error,
        tokens=end.tokens,
        calls=len(end.tools),
        duration_ms=end.duration_ms,
    )


def _told_about(path: Path) -> dict[str, object]:
    """What is kept beside a transcript; nothing when that cannot be read."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
