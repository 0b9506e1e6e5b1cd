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
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Refusal, Tool, ToolFailure, ToolSubject
from toolspan.tools.schemas import flag, object_schema, text

GENERAL_AGENT_NAME = "general-purpose"
_GRACE_SECONDS = 30.0
_EMPTY_REPORT = "(The agent finished without a report.)"
_AGENT_DESCRIPTION = """\
Delegate a task to a subagent and get its report.

Use it to search through a lot of material, to keep long work out of your own context, and for tasks that are
independent of each other: several Agent calls in one message run at the same time. To read one or two files, use
Read instead.

The subagent has its own tools and an empty context. It sees only your prompt, so include the goal, the relevant
paths, the limits and what to report. The user does not see the report. Verify what it claims before you rely on
it."""
_COUNT_KEYS = {
    "read": "readCount",
    "search": "searchCount",
    "shell": "bashCount",
    "edit": "editFileCount",
    "write": "editFileCount",
}
_MESSAGE_SCHEMA = object_schema(
    {
        "to": text("The id of the agent, as the Agent tool returned it."),
        "summary": text("A summary of the message in a few words, for the user.", maxLength=200),
        "message": text("The message for the agent."),
    },
    required=["to", "message"],
)


def agent_tool(profile: Profile) -> Tool:
    """Return the Agent tool for a client version."""
    values = profile.agents
    properties = {
        "description": text("A summary of the task in three to five words."),
        "prompt": text("The task, with everything that the agent must know to do it."),
        "subagent_type": text("The type of agent, such as `general-purpose`."),
        "model": text("The model to use instead of yours.", enum=list(values.models)),
        "run_in_background": flag(
            "Return at once, and receive the report in a notification when the agent finishes. If false, wait for the"
            f" report. The default is {'true' if values.in_background else 'false'}."
        ),
    }
    if not values.newer_inputs:
        properties["resume"] = text("The id of a finished agent to continue. It keeps its context.")
    if values.newer_inputs:
        description = "`worktree` gives the agent its own copy of the repository. `remote` is not supported."
        properties["isolation"] = text(description, enum=["worktree", "remote"])
    if values.newer_inputs:
        levels = ["low", "medium", "high", "xhigh", "max"]
        properties["effort"] = text("The thinking effort of the agent's model.", enum=levels)
    schema = object_schema(properties, ["description", "prompt", *([] if values.newer_inputs else ["subagent_type"])])
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
            "Send a message to an agent that you started. A running agent receives it with its next tool results. A"
            " finished agent continues in the background with its old context, and you are notified when it finishes."
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
        return Refusal("The prompt is empty. Describe the task that the agent should do.", "invalid_input")
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
        raise ToolError(
            "`remote` isolation is not supported. Use `worktree`, or omit `isolation`.", kind="invalid_input"
        )
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
        return _finished_output(await launcher.run(request), request, ctx)
    launched = await launcher.launch(request)
    message = (
        f"Async agent launched successfully.\nagentId: {launched.agent_id} (use this id to"
        " send it a message)\nThe agent runs in the background, and you will be notified when it finishes. Continue"
        f" with other work, or end your turn.\noutput_file: {launched.path}"
    )
    record: dict[str, object] = {
        "isAsync": True,
        "status": "async_launched",
        "agentId": launched.agent_id,
        "description": request.description,
        **({"resolvedModel": launched.model} if values.framed else {}),
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


def _finished_output(outcome: SubagentOutcome, request: SubagentRequest, ctx: ToolContext) -> Output | ToolFailure:
    values = ctx.profile.agents
    if outcome.error is not None:
        last_message = f"\nIts last message:\n{outcome.text}" if outcome.text else ""
        message = f"The agent failed: {outcome.error}\nagentId: {outcome.agent_id}{last_message}"
        return ToolFailure(message, kind=None, timed_out=outcome.timed_out)
    report = outcome.text.strip() or _EMPTY_REPORT
    if outcome.limit_reason is not None:
        report += f"\n\n[Ended early: {outcome.limit_reason}]"
    used_tools = sorted(set(outcome.tools))
    tools_tag = f"<tools-used-before-summary>{', '.join(used_tools)}</tools-used-before-summary>"
    tail_lines = [f"agentId: {outcome.agent_id} (use this id to continue this agent)"]
    if outcome.worktree is not None:
        tail_lines += outcome.worktree.text_lines()
    if values.framed:
        tail_lines.append(
            f"<usage>subagent_tokens: {outcome.tokens}\ntool_uses: {len(outcome.tools)}\n"
            f"duration_ms: {round(outcome.duration_ms)}</usage>"
        )
    tail = "\n".join(tail_lines)
    content: list[dict[str, object]] = [{"type": "text", "text": report}, {"type": "text", "text": tail}]
    if values.framed:
        head = f"  {tools_tag}\n  \n" if used_tools else ""
        frame = "The report of the agent follows. Verify what it claims before you rely on it."
        indented = "\n".join(f"  {line}" for line in report.split("\n"))
        content = [{"type": "text", "text": f"{head}{frame}\n{indented}\n{tail}"}]
    return Output(content, _agent_record(report, tools_tag, outcome, request, ctx), agent=outcome.agent_id)


def _agent_record(
    report: str, tools_tag: str, outcome: SubagentOutcome, request: SubagentRequest, ctx: ToolContext
) -> dict[str, object]:
    values = ctx.profile.agents
    blocks = [{"type": "text", "text": report}]
    record: dict[str, object] = {"status": "completed", "prompt": request.prompt, "agentId": outcome.agent_id}
    if values.framed:
        record["agentType"] = outcome.kind
    if values.framed and outcome.tools:
        blocks.insert(0, {"type": "text", "text": f"{tools_tag}\n"})
        record |= {"toolsUsed": sorted(set(outcome.tools)), "harnessNoteCount": 1, "harnessTailCount": 0}
    record["content"] = blocks
    if values.framed:
        record["resolvedModel"] = outcome.model
    record |= {
        "totalDurationMs": round(outcome.duration_ms),
        "totalTokens": outcome.tokens,
        "totalToolUseCount": len(outcome.tools),
        "usage": dict(outcome.usage),
    }
    if values.framed and outcome.tools:
        kinds = {tool.name: tool.kind for tool in ctx.services.tools}
        counts = Counter(_COUNT_KEYS.get(kinds.get(name, "other"), "otherToolCount") for name in outcome.tools)
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
        return Refusal("The message is empty. Write what the agent should know or do.", "invalid_input")
    return None


async def _send_message(value: Mapping[str, object], ctx: ToolContext) -> Output:
    launcher = ctx.workspace.subagents
    if launcher is None:
        raise ToolError(NO_MODEL_MESSAGE, kind="internal")
    to = str(value["to"]).removeprefix("agent-")
    delivery = await launcher.send_message(to, str(value["message"]), ctx.call.id)
    message = f"Agent {to} is running. It receives the message with its next tool results."
    if delivery.how == "resumed":
        message = (
            f"Agent {to} had finished. It now continues in the background with the message, and you will be notified"
            f" when it finishes. Output: {delivery.path}"
        )
    record = {"success": True, "message": message}
    return Output(json.dumps(record, ensure_ascii=False, separators=(",", ":")), record)
