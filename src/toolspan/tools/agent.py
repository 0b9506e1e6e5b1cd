"""Agent (called Task in older clients) and SendMessage: delegate work to another agent, and send messages to it.

Start at `_run_agent`. The workspace contains the launcher that starts agents
(`session/subagents/subagents.py`). Without a model there is no launcher, and the call fails.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

from toolspan.errors import ToolError
from toolspan.runtime.background import NO_MODEL_MESSAGE, SubagentOutcome, SubagentRequest
from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import AgentValues, Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Refusal, Tool, ToolFailure, ToolSubject
from toolspan.tools.schemas import flag, object_schema, text
from toolspan.types.tool_kinds import tool_kind

GENERAL_AGENT_NAME = "general-purpose"
_GRACE_SECONDS = 30.0
_EMPTY_REPORT = "(The agent ended without a word.)"
_AGENT_DESCRIPTION = """\
Give a piece of work to another agent. It begins with an empty context and sees only your prompt, so
say everything it needs: what to find out or do, where to look, what to report. It works with its
own tools and comes back with one report, which only you see.

Worth it for searches through much material, for work that would fill your own context, and for
pieces that do not need each other: ask for several agents in one message and they work side by
side. Not worth it for a file or two that you can read yourself. Check what a report claims before
you build on it."""
_COUNT_KEYS = {
    "read": "readCount",
    "search": "searchCount",
    "shell": "bashCount",
    "edit": "editFileCount",
    "write": "editFileCount",
}
_MESSAGE_SCHEMA = object_schema(
    {
        "to": text("The agent's id"),
        "summary": text("The message in a few words, for people", maxLength=200),
        "message": text("What the agent is to read"),
    },
    required=["to", "message"],
)


def agent_tool(profile: Profile) -> Tool:
    """Return the Agent tool for a client version."""
    values = profile.agents
    properties = {
        "description": text("The work in three to five words"),
        "prompt": text("What the agent is to do, with everything it has to know"),
        "subagent_type": text("Which agent; without it, the general one"),
        "model": text("Another model than your own", enum=list(values.models)),
        "run_in_background": flag("Whether to go on at once; you are told when the agent is done"),
    }
    if values.resumes:
        properties["resume"] = text("The id of an agent that is to go on where it ended")
    if values.isolates:
        description = "`worktree`: the agent works in a copy of the repository"
        properties["isolation"] = text(description, enum=["worktree", "remote"])
    if values.has_effort:
        levels = ["low", "medium", "high", "xhigh", "max"]
        properties["effort"] = text("How hard the agent is to think", enum=levels)
    schema = object_schema(properties, ["description", "prompt", *(["subagent_type"] if values.needs_kind else [])])
    return Tool(
        name=values.name,
        description=_AGENT_DESCRIPTION,
        input_schema=schema,
        parse=compile_checker(schema, coerce=profile.availability.coerces),
        run=_run_agent,
        validate=_validate_prompt,
        concurrent=True,
        read_only=True,  # each of the agent's calls is authorized separately
        grace=_GRACE_SECONDS,
        kind="agent",
        subject=ToolSubject("agent", "subagent_type"),
    )


def send_message_tool(profile: Profile) -> Tool:
    """Return the SendMessage tool for a client version."""
    return Tool(
        name="SendMessage",
        description=(
            "Say something to an agent you started. One that works reads it with its next results;"
            " one that is done goes on from where it ended, in the background."
        ),
        input_schema=_MESSAGE_SCHEMA,
        parse=compile_checker(_MESSAGE_SCHEMA, coerce=profile.availability.coerces),
        run=_send_message,
        validate=_validate_message,
        read_only=True,  # each of the agent's calls is authorized separately
        kind="agent",
    )


async def _validate_prompt(value: Mapping[str, object], _ctx: ToolContext) -> Refusal | None:
    if not str(value["prompt"]).strip():
        return Refusal("The prompt is empty: the agent would not know what to do", "invalid_input")
    return None


async def _run_agent(value: Mapping[str, object], ctx: ToolContext) -> Output | ToolFailure:
    launcher = ctx.workspace.subagents
    if launcher is None:
        raise ToolError(NO_MODEL_MESSAGE, kind="internal")
    kind = _optional_text(value, "subagent_type") or GENERAL_AGENT_NAME
    if kind not in launcher.kinds:
        available = ", ".join(launcher.kinds)
        raise ToolError(f"Agent type '{kind}' not found. Available agents: {available}")
    if value.get("isolation") == "remote":
        raise ToolError("isolation: agents are run on this machine only", kind="invalid_input")
    request = SubagentRequest(
        call_id=ctx.call.id,
        kind=kind,
        description=str(value["description"]),
        prompt=str(value["prompt"]),
        cwd=ctx.cwd,
        model=_optional_text(value, "model"),
        isolated=value.get("isolation") == "worktree",
        resumes=_optional_text(value, "resume"),
        on_progress=lambda progress: ctx.progress("agent", **progress),
    )
    values = ctx.profile.agents
    default_background = request.resumes is None and launcher.runs_in_background(request.kind)
    if value.get("run_in_background", default_background) is not True:
        return _finished_output(await launcher.run(request), request, values)
    launched = await launcher.launch(request)
    message = (
        f"Async agent launched successfully.\nagentId: {launched.agent_id} (name it to speak to"
        " the agent)\nIt works in the background, and you are told when it is done. Do something"
        f" else meanwhile, or end your turn.\noutput_file: {launched.path}"
    )
    record: dict[str, object] = {
        "isAsync": True,
        "status": "async_launched",
        "agentId": launched.agent_id,
        "description": request.description,
        **({"resolvedModel": launched.model} if values.reports_kind else {}),
        "prompt": request.prompt,
        "outputFile": str(launched.path),
        "canReadOutputFile": True,
        **({"canContinueAgent": True} if values.framed else {}),
    }
    blocks: list[dict[str, object]] = [{"type": "text", "text": message}]
    return Output(blocks, record, background_task=launched.agent_id, agent=launched.agent_id)


def _optional_text(value: Mapping[str, object], key: str) -> str | None:
    item = value.get(key)
    return item if isinstance(item, str) and item else None


def _finished_output(outcome: SubagentOutcome, request: SubagentRequest, values: AgentValues) -> Output | ToolFailure:
    if outcome.error is not None:
        last_message = f"\nWhat it said last:\n{outcome.text}" if outcome.text else ""
        message = f"The agent did not come to its end: {outcome.error}\nagentId: {outcome.agent_id}{last_message}"
        return ToolFailure(message, kind=None, timed_out=outcome.timed_out)
    report = outcome.text.strip() or _EMPTY_REPORT
    if outcome.limit_reason is not None:
        report += f"\n\n[Ended early: {outcome.limit_reason}]"
    used_tools = sorted(set(outcome.tools))
    tools_tag = f"<tools-used-before-summary>{', '.join(used_tools)}</tools-used-before-summary>"
    tail_lines = [f"agentId: {outcome.agent_id} (name it to go on with this agent)"]
    if outcome.worktree is not None:
        tail_lines += outcome.worktree.text_lines()
    if values.token_word is not None:
        tail_lines.append(
            f"<usage>{values.token_word}: {outcome.tokens}\ntool_uses: {len(outcome.tools)}\n"
            f"duration_ms: {round(outcome.duration_ms)}</usage>"
        )
    tail = "\n".join(tail_lines)
    content: list[dict[str, object]] = [{"type": "text", "text": report}, {"type": "text", "text": tail}]
    if values.framed:
        head = f"  {tools_tag}\n  \n" if used_tools else ""
        frame = "What an agent found and did, in its own words, to be checked. The report follows:"
        indented = "\n".join(f"  {line}" for line in report.split("\n"))
        content = [{"type": "text", "text": f"{head}{frame}\n{indented}\n{tail}"}]
    return Output(content, _agent_record(report, tools_tag, outcome, request, values), agent=outcome.agent_id)


def _agent_record(
    report: str, tools_tag: str, outcome: SubagentOutcome, request: SubagentRequest, values: AgentValues
) -> dict[str, object]:
    blocks = [{"type": "text", "text": report}]
    record: dict[str, object] = {"status": "completed", "prompt": request.prompt, "agentId": outcome.agent_id}
    if values.reports_kind:
        record["agentType"] = outcome.kind
    if values.framed and outcome.tools:
        blocks.insert(0, {"type": "text", "text": f"{tools_tag}\n"})
        record |= {"toolsUsed": sorted(set(outcome.tools)), "harnessNoteCount": 1, "harnessTailCount": 0}
    record["content"] = blocks
    if values.reports_kind:
        record["resolvedModel"] = outcome.model
    record |= {
        "totalDurationMs": round(outcome.duration_ms),
        "totalTokens": outcome.tokens,
        "totalToolUseCount": len(outcome.tools),
        "usage": dict(outcome.usage),
    }
    if values.reports_kind and outcome.tools:
        counts = Counter(_COUNT_KEYS.get(tool_kind(name), "otherToolCount") for name in outcome.tools)
        added, removed = outcome.changed_lines
        record["toolStats"] = {
            **{key: counts[key] for key in _COUNT_KEYS.values()},
            "linesAdded": added,
            "linesRemoved": removed,
            "otherToolCount": counts["otherToolCount"],
        }
    if outcome.worktree is not None:
        record |= outcome.worktree.to_record()
    if values.framed:
        record["canContinueAgent"] = True
    return record


async def _validate_message(value: Mapping[str, object], _ctx: ToolContext) -> Refusal | None:
    if not str(value["message"]).strip():
        return Refusal("The message is empty", "invalid_input")
    return None


async def _send_message(value: Mapping[str, object], ctx: ToolContext) -> Output:
    launcher = ctx.workspace.subagents
    if launcher is None:
        raise ToolError(NO_MODEL_MESSAGE, kind="internal")
    to = str(value["to"]).removeprefix("agent-")
    delivery = await launcher.send_message(to, str(value["message"]), ctx.call.id)
    message = f"Agent {to} works, and reads the message with its next results."
    if delivery.how == "resumed":
        message = (
            f"Agent {to} was done, and goes on with the message in the background. You are told"
            f" when it is done again. Output: {delivery.path}"
        )
    record = {"success": True, "message": message}
    return Output(json.dumps(record, ensure_ascii=False, separators=(",", ":")), record)
