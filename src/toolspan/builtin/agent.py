"""Agent, which was called Task: work that is given to another agent with a context of its own.

In: what to do, and which agent is to do it. Out: its report, its id and what it has used; or, for
one in the background, where to follow it. Who starts agents comes with the workspace
(`run/children.py`); without a model there is nobody. Read `_run` first.
"""

from collections import Counter
from collections.abc import Mapping

from toolspan.errors import ToolError
from toolspan.model.live import Content
from toolspan.model.toolkind import tool_kind
from toolspan.profile import AgentValues, Profile
from toolspan.run.children import NO_MODEL, ChildEnd, Children, ChildWish, Launched
from toolspan.run.context import ToolContext
from toolspan.run.tool import Failure, Output, Refusal, Tool
from toolspan.schema.check import checker

GENERAL = "general-purpose"
_GRACE = 30.0
"""Seconds in which an agent, and those below it, can end their processes."""
_NO_WORDS = "(The agent ended without a word.)"
_DESCRIPTION = """\
Give a piece of work to another agent. It begins with an empty context and sees only your prompt, so
say everything it needs: what to find out or do, where to look, what to report. It works with its
own tools and comes back with one report, which only you see.

Worth it for searches through much material, for work that would fill your own context, and for
pieces that do not need each other: ask for several agents in one message and they work side by
side. Not worth it for a file or two that you can read yourself. Check what a report claims before
you build on it."""


def agent_tool(profile: Profile) -> Tool:
    """The tool as a client version has it."""
    values = profile.agents
    schema = _schema(values)
    return Tool(
        name=values.name,
        description=_DESCRIPTION,
        input_schema=schema,
        parse=checker(schema, coerce=profile.offer.coerces),
        run=_run,
        validate=_check,
        concurrent=True,
        read_only=True,  # what the agent does is judged call by call
        grace=_GRACE,
    )


def _schema(values: AgentValues) -> dict[str, object]:
    def text(words: str, **more: object) -> dict[str, object]:
        return {"type": "string", **more, "description": words}

    properties: dict[str, object] = {
        "description": text("The work in three to five words"),
        "prompt": text("What the agent is to do, with everything it has to know"),
        "subagent_type": text("Which agent; without it, the general one"),
        "model": text("Another model than your own", enum=list(values.models)),
        "run_in_background": {
            "type": "boolean",
            "description": "Whether to go on at once; you are told when the agent is done",
        },
    }
    if values.resumes:
        properties["resume"] = text("The id of an agent that is to go on where it ended")
    if values.isolates:
        words = "`worktree`: the agent works in a copy of the repository"
        properties["isolation"] = text(words, enum=["worktree", "remote"])
    if values.has_effort:
        levels = ["low", "medium", "high", "xhigh", "max"]
        properties["effort"] = text("How hard the agent is to think", enum=levels)
    return {
        "type": "object",
        "properties": properties,
        "required": ["description", "prompt", *(["subagent_type"] if values.needs_kind else [])],
        "additionalProperties": False,
    }


async def _check(value: Mapping[str, object], _ctx: ToolContext) -> Refusal | None:
    if not str(value["prompt"]).strip():
        return Refusal("The prompt is empty: the agent would not know what to do", "invalid_input")
    return None


async def _run(value: Mapping[str, object], ctx: ToolContext) -> Output | Failure:
    children = ctx.workspace.children
    if children is None:
        raise ToolError(NO_MODEL, kind="internal")
    wish = _wish(value, ctx, children)
    values = ctx.profile.agents
    by_itself = wish.resumes is None and children.sends_off(wish.kind)
    background = value.get("run_in_background", by_itself)
    if background is True:
        return _launched(await children.launch(wish), wish, values)
    return _ended(await children.run(wish), wish, values)


def _wish(value: Mapping[str, object], ctx: ToolContext, children: Children) -> ChildWish:
    kind = _text(value, "subagent_type") or GENERAL
    if kind not in children.kinds:
        there = ", ".join(children.kinds)
        raise ToolError(f"Agent type '{kind}' not found. Available agents: {there}")
    if value.get("isolation") == "remote":
        raise ToolError("isolation: agents are run on this machine only", kind="invalid_input")

    def told(news: Mapping[str, object]) -> None:
        ctx.progress("agent", **news)

    return ChildWish(
        call_id=ctx.call.id,
        kind=kind,
        description=str(value["description"]),
        prompt=str(value["prompt"]),
        cwd=ctx.cwd,
        model=_text(value, "model"),
        isolated=value.get("isolation") == "worktree",
        resumes=_text(value, "resume"),
        told=told,
    )


def _text(value: Mapping[str, object], key: str) -> str | None:
    found = value.get(key)
    return found if isinstance(found, str) and found else None


# Sent off


def _launched(launched: Launched, wish: ChildWish, values: AgentValues) -> Output:
    words = (
        f"Async agent launched successfully.\nagentId: {launched.agent_id} (name it to speak to"
        " the agent)\nIt works in the background, and you are told when it is done. Do something"
        f" else meanwhile, or end your turn.\noutput_file: {launched.path}"
    )
    record: dict[str, object] = {
        "isAsync": True,
        "status": "async_launched",
        "agentId": launched.agent_id,
        "description": wish.description,
        **({"resolvedModel": launched.model} if values.tells_kind else {}),
        "prompt": wish.prompt,
        "outputFile": str(launched.path),
        "canReadOutputFile": True,
        **({"canContinueAgent": True} if values.framed else {}),
    }
    return Output(
        [{"type": "text", "text": words}],
        record,
        background_task=launched.agent_id,
        agent=launched.agent_id,
    )


# Waited for


def _ended(end: ChildEnd, wish: ChildWish, values: AgentValues) -> Output | Failure:
    if end.error is not None:
        said = f"\nWhat it said last:\n{end.text}" if end.text else ""
        text = f"The agent did not come to its end: {end.error}\nagentId: {end.agent_id}{said}"
        return Failure(text, kind=None, timed_out=end.timed_out)
    report = end.text.strip() or _NO_WORDS
    if end.cut is not None:
        report += f"\n\n[Ended early: {end.cut}]"
    return Output(_content(report, end, values), _record(report, end, wish, values),
                  agent=end.agent_id)  # fmt: skip


def _content(report: str, end: ChildEnd, values: AgentValues) -> Content:
    tail = _tail(end, values)
    if not values.framed:
        return [{"type": "text", "text": report}, {"type": "text", "text": tail}]
    head = f"{_indented(_used(end))}\n  \n" if end.tools else ""
    frame = "What an agent found and did, in its own words, to be checked. The report follows:"
    return [{"type": "text", "text": f"{head}{frame}\n{_indented(report)}\n{tail}"}]


def _used(end: ChildEnd) -> str:
    names = ", ".join(sorted(set(end.tools)))
    return f"<tools-used-before-summary>{names}</tools-used-before-summary>"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def _tail(end: ChildEnd, values: AgentValues) -> str:
    lines = [f"agentId: {end.agent_id} (name it to go on with this agent)"]
    if end.kept is not None:
        lines += end.kept.lines()
    if values.token_word is not None:
        lines.append(
            f"<usage>{values.token_word}: {end.tokens}\ntool_uses: {len(end.tools)}\n"
            f"duration_ms: {round(end.duration_ms)}</usage>"
        )
    return "\n".join(lines)


def _record(report: str, end: ChildEnd, wish: ChildWish, values: AgentValues) -> dict[str, object]:
    blocks = [{"type": "text", "text": report}]
    record: dict[str, object] = {
        "status": "completed",
        "prompt": wish.prompt,
        "agentId": end.agent_id,
    }
    if values.tells_kind:
        record["agentType"] = end.kind
    if values.framed and end.tools:
        blocks.insert(0, {"type": "text", "text": f"{_used(end)}\n"})
        used = sorted(set(end.tools))
        record |= {"toolsUsed": used, "harnessNoteCount": 1, "harnessTailCount": 0}
    record["content"] = blocks
    if values.tells_kind:
        record["resolvedModel"] = end.model
    record |= {
        "totalDurationMs": round(end.duration_ms),
        "totalTokens": end.tokens,
        "totalToolUseCount": len(end.tools),
        "usage": dict(end.usage),
    }
    if values.tells_kind and end.tools:
        record["toolStats"] = _stats(end)
    if end.kept is not None:
        record |= end.kept.record()
    if values.framed:
        record["canContinueAgent"] = True
    return record


_COUNTED = {"read": "readCount", "search": "searchCount", "shell": "bashCount",
            "edit": "editFileCount", "write": "editFileCount"}  # fmt: skip


def _stats(end: ChildEnd) -> dict[str, int]:
    counts = Counter(_COUNTED.get(tool_kind(name), "otherToolCount") for name in end.tools)
    added, removed = end.lines
    return {
        "readCount": counts["readCount"],
        "searchCount": counts["searchCount"],
        "bashCount": counts["bashCount"],
        "editFileCount": counts["editFileCount"],
        "linesAdded": added,
        "linesRemoved": removed,
        "otherToolCount": counts["otherToolCount"],
    }
