"""Agent, which was called Task: work that is given to another agent with a context of its own.

In: what to do, and which agent is to do it. Out: its report, its id and what it has used; or, for
one in the background, where to follow it. Who starts agents comes with the workspace
(`run/children.py`); without a model there is nobody. Read `_run` first.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

from toolspan.errors import ToolError
from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import AgentValues, Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.subagents import (
    NO_MODEL_MESSAGE,
    LaunchedSubagent,
    SubagentLauncher,
    SubagentOutcome,
    SubagentRequest,
)
from toolspan.runtime.tool import Output, Refusal, Tool, ToolFailure
from toolspan.types.events import Content
from toolspan.types.tool_kinds import tool_kind

GENERAL_AGENT_NAME = "general-purpose"
_GRACE_SECONDS = 30.0
"""Seconds in which an agent, and those below it, can end their processes."""
_EMPTY_REPORT = "(The agent ended without a word.)"
_AGENT_DESCRIPTION = """\
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
    schema = _agent_schema(values)
    return Tool(
        name=values.name,
        description=_AGENT_DESCRIPTION,
        input_schema=schema,
        parse=compile_checker(schema, coerce=profile.availability.coerces),
        run=_run_agent,
        validate=_validate_prompt,
        concurrent=True,
        read_only=True,  # what the agent does is judged call by call
        grace=_GRACE_SECONDS,
    )


def _agent_schema(values: AgentValues) -> dict[str, object]:
    def text_property(description: str, **options: object) -> dict[str, object]:
        return {"type": "string", **options, "description": description}

    properties: dict[str, object] = {
        "description": text_property("The work in three to five words"),
        "prompt": text_property("What the agent is to do, with everything it has to know"),
        "subagent_type": text_property("Which agent; without it, the general one"),
        "model": text_property("Another model than your own", enum=list(values.models)),
        "run_in_background": {
            "type": "boolean",
            "description": "Whether to go on at once; you are told when the agent is done",
        },
    }
    if values.resumes:
        properties["resume"] = text_property("The id of an agent that is to go on where it ended")
    if values.isolates:
        description = "`worktree`: the agent works in a copy of the repository"
        properties["isolation"] = text_property(description, enum=["worktree", "remote"])
    if values.has_effort:
        levels = ["low", "medium", "high", "xhigh", "max"]
        properties["effort"] = text_property("How hard the agent is to think", enum=levels)
    return {
        "type": "object",
        "properties": properties,
        "required": ["description", "prompt", *(["subagent_type"] if values.needs_kind else [])],
        "additionalProperties": False,
    }


async def _validate_prompt(value: Mapping[str, object], _ctx: ToolContext) -> Refusal | None:
    if not str(value["prompt"]).strip():
        return Refusal("The prompt is empty: the agent would not know what to do", "invalid_input")
    return None


async def _run_agent(value: Mapping[str, object], ctx: ToolContext) -> Output | ToolFailure:
    children = ctx.workspace.subagents
    if children is None:
        raise ToolError(NO_MODEL_MESSAGE, kind="internal")
    request = _child_request(value, ctx, children)
    values = ctx.profile.agents
    default_background = request.resumes is None and children.runs_in_background(request.kind)
    background = value.get("run_in_background", default_background)
    if background is True:
        return _launched_output(await children.launch(request), request, values)
    return _finished_output(await children.run(request), request, values)


def _child_request(value: Mapping[str, object], ctx: ToolContext, children: SubagentLauncher) -> SubagentRequest:
    kind = _optional_text(value, "subagent_type") or GENERAL_AGENT_NAME
    if kind not in children.kinds:
        available = ", ".join(children.kinds)
        raise ToolError(f"Agent type '{kind}' not found. Available agents: {available}")
    if value.get("isolation") == "remote":
        raise ToolError("isolation: agents are run on this machine only", kind="invalid_input")

    def report_progress(progress: Mapping[str, object]) -> None:
        ctx.progress("agent", **progress)

    return SubagentRequest(
        call_id=ctx.call.id,
        kind=kind,
        description=str(value["description"]),
        prompt=str(value["prompt"]),
        cwd=ctx.cwd,
        model=_optional_text(value, "model"),
        isolated=value.get("isolation") == "worktree",
        resumes=_optional_text(value, "resume"),
        on_progress=report_progress,
    )


def _optional_text(value: Mapping[str, object], key: str) -> str | None:
    text = value.get(key)
    return text if isinstance(text, str) and text else None


# Sent off


def _launched_output(launched: LaunchedSubagent, request: SubagentRequest, values: AgentValues) -> Output:
    text = (
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
    return Output([{"type": "text", "text": text}], record, background_task=launched.agent_id, agent=launched.agent_id)


# Waited for


def _finished_output(end: SubagentOutcome, request: SubagentRequest, values: AgentValues) -> Output | ToolFailure:
    if end.error is not None:
        last_message = f"\nWhat it said last:\n{end.text}" if end.text else ""
        text = f"The agent did not come to its end: {end.error}\nagentId: {end.agent_id}{last_message}"
        return ToolFailure(text, kind=None, timed_out=end.timed_out)
    report = end.text.strip() or _EMPTY_REPORT
    if end.limit_reason is not None:
        report += f"\n\n[Ended early: {end.limit_reason}]"
    return Output(_report_content(report, end, values), _agent_record(report, end, request, values),
                  agent=end.agent_id)  # fmt: skip


def _report_content(report: str, end: SubagentOutcome, values: AgentValues) -> Content:
    tail = _report_tail(end, values)
    if not values.framed:
        return [{"type": "text", "text": report}, {"type": "text", "text": tail}]
    head = f"{_indent_lines(_tools_used_tag(end))}\n  \n" if end.tools else ""
    frame = "What an agent found and did, in its own words, to be checked. The report follows:"
    return [{"type": "text", "text": f"{head}{frame}\n{_indent_lines(report)}\n{tail}"}]


def _tools_used_tag(end: SubagentOutcome) -> str:
    names = ", ".join(sorted(set(end.tools)))
    return f"<tools-used-before-summary>{names}</tools-used-before-summary>"


def _indent_lines(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def _report_tail(end: SubagentOutcome, values: AgentValues) -> str:
    lines = [f"agentId: {end.agent_id} (name it to go on with this agent)"]
    if end.worktree is not None:
        lines += end.worktree.text_lines()
    if values.token_word is not None:
        lines.append(
            f"<usage>{values.token_word}: {end.tokens}\ntool_uses: {len(end.tools)}\n"
            f"duration_ms: {round(end.duration_ms)}</usage>"
        )
    return "\n".join(lines)


def _agent_record(
    report: str, end: SubagentOutcome, request: SubagentRequest, values: AgentValues
) -> dict[str, object]:
    blocks = [{"type": "text", "text": report}]
    record: dict[str, object] = {"status": "completed", "prompt": request.prompt, "agentId": end.agent_id}
    if values.reports_kind:
        record["agentType"] = end.kind
    if values.framed and end.tools:
        blocks.insert(0, {"type": "text", "text": f"{_tools_used_tag(end)}\n"})
        used = sorted(set(end.tools))
        record |= {"toolsUsed": used, "harnessNoteCount": 1, "harnessTailCount": 0}
    record["content"] = blocks
    if values.reports_kind:
        record["resolvedModel"] = end.model
    record |= {
        "totalDurationMs": round(end.duration_ms),
        "totalTokens": end.tokens,
        "totalToolUseCount": len(end.tools),
        "usage": dict(end.usage),
    }
    if values.reports_kind and end.tools:
        record["toolStats"] = _tool_stats(end)
    if end.worktree is not None:
        record |= end.worktree.to_record()
    if values.framed:
        record["canContinueAgent"] = True
    return record


_COUNT_KEYS = {"read": "readCount", "search": "searchCount", "shell": "bashCount",
            "edit": "editFileCount", "write": "editFileCount"}  # fmt: skip


def _tool_stats(end: SubagentOutcome) -> dict[str, int]:
    counts = Counter(_COUNT_KEYS.get(tool_kind(name), "otherToolCount") for name in end.tools)
    added, removed = end.changed_lines
    return {
        "readCount": counts["readCount"],
        "searchCount": counts["searchCount"],
        "bashCount": counts["bashCount"],
        "editFileCount": counts["editFileCount"],
        "linesAdded": added,
        "linesRemoved": removed,
        "otherToolCount": counts["otherToolCount"],
    }


_MESSAGE_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "description": "The agent's id"},
        "summary": {"type": "string", "maxLength": 200, "description": "The message in a few words, for people"},
        "message": {"type": "string", "description": "What the agent is to read"},
    },
    "required": ["to", "message"],
    "additionalProperties": False,
}


def send_message_tool(profile: Profile) -> Tool:
    """SendMessage as a client version has it."""
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
        read_only=True,  # what the agent then does is judged call by call
    )


async def _validate_message(value: Mapping[str, object], _ctx: ToolContext) -> Refusal | None:
    if not str(value["message"]).strip():
        return Refusal("The message is empty", "invalid_input")
    return None


async def _send_message(value: Mapping[str, object], ctx: ToolContext) -> Output:
    children = ctx.workspace.subagents
    if children is None:
        raise ToolError(NO_MODEL_MESSAGE, kind="internal")
    to = str(value["to"]).removeprefix("agent-")
    delivery = await children.send_message(to, str(value["message"]), ctx.call.id)
    text = f"Agent {to} works, and reads the message with its next results."
    if delivery.how == "resumed":
        text = (
            f"Agent {to} was done, and goes on with the message in the background. You are told"
            f" when it is done again. Output: {delivery.path}"
        )
    record = {"success": True, "message": text}
    return Output(json.dumps(record, ensure_ascii=False, separators=(",", ":")), record)
