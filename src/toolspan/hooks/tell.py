"""What handlers are told: the JSON object on a command's standard input.

In: a moment, a batch or an occasion, and the session. Out: a dict in the client's words and order,
without the fields that this client version does not know yet. Pure.
"""

from collections.abc import Mapping, Sequence

from toolspan.hooks.points import Moment, Occasion, Point
from toolspan.hooks.scene import Scene
from toolspan.model.span import Span
from toolspan.profile import HookValues

Fields = dict[str, object]

_MODELESS = frozenset({
    "SessionStart", "SessionEnd", "PreCompact", "PostCompact", "Notification", "SubagentStart",
    "CwdChanged", "TaskCreated", "TaskCompleted", "StopFailure", "WorktreeCreate",
    "FileChanged",
})  # fmt: skip
"""Points that do not tell the permission mode."""
_EFFORTLESS = (_MODELESS - {"StopFailure"}) | {"UserPromptSubmit"}


def tell_call(point: Point, moment: Moment, scene: Scene, values: HookValues) -> Fields:
    """A call at one of its points."""
    told = _common(point, scene, str(moment.cwd), values)
    told |= {"tool_name": moment.tool, "tool_input": dict(moment.input)}
    if point == "PermissionRequest":
        suggested = [dict(one) for one in moment.suggestions]
        return told | ({"permission_suggestions": suggested} if suggested else {})
    if point == "PostToolUse":
        told["tool_response"] = moment.output
    told["tool_use_id"] = moment.call.id
    if point == "PostToolUseFailure":
        told |= {"error": moment.error or "", "is_interrupt": moment.interrupted}
    if point != "PreToolUse":
        told["duration_ms"] = round(moment.duration_ms or 0)
    server = moment.tool.split("__")[1:2] if moment.tool.startswith("mcp__") else []
    if server:
        told["mcp_server"] = {"name": server[0], "source": "dynamic"}
    return _known(told, values)


def tell_batch(spans: Sequence[Span], scene: Scene, values: HookValues) -> Fields:
    """The calls of a message, all ended."""
    told = _common("PostToolBatch", scene, str(scene.cwd()), values)
    return _known(told | {"tool_calls": [_ended(span) for span in spans]}, values)


def tell_occasion(occasion: Occasion, scene: Scene, values: HookValues) -> Fields:
    """Any other point."""
    told = _common(occasion.point, scene, str(scene.cwd()), values)
    return _known(told | dict(occasion.fields), values)


def _common(point: Point, scene: Scene, cwd: str, values: HookValues) -> Fields:
    told: Fields = {
        "session_id": scene.session_id or "",
        "transcript_path": str(scene.transcript or ""),
        "cwd": cwd,
    }
    if scene.prompt_id is not None:
        told["prompt_id"] = scene.prompt_id
    if point not in _MODELESS:
        told["permission_mode"] = scene.permission_mode()
    if scene.agent_id is not None:
        told |= {"agent_id": scene.agent_id, "agent_type": scene.agent_type or ""}
    effort = scene.effort or values.effort
    if effort is not None and point not in _EFFORTLESS:
        told["effort"] = {"level": effort}
    told["hook_event_name"] = point
    return _known(told, values)


def _known(told: Fields, values: HookValues) -> Fields:
    return {key: value for key, value in told.items() if key not in values.left_out}


def _ended(span: Span) -> Mapping[str, object]:
    return {
        "tool_name": span.tool,
        "tool_input": dict(span.call.arguments),
        "tool_use_id": span.id,
        "tool_response": span.result.content if span.result else None,
    }
