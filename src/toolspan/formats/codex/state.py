"""Infer the final state of a Codex call from its output and its end event.

The client writes no error flag, so exit codes are checked first, followed by messages that only the
client writes. Text below the client's header comes from the tool and is never treated as a marker.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolspan.formats.codex.calls import CommandOutput, event_command
from toolspan.formats.codex.records import RolloutItem, TurnItem
from toolspan.formats.decoding import DECODE_ERRORS, extract_text
from toolspan.formats.pairing import StateInference
from toolspan.types.error_kinds import ErrorKind, kind_of
from toolspan.types.ids import CallId
from toolspan.types.span import Evidence
from toolspan.types.state import State
from toolspan.types.tool_kinds import tool_kind


class EndEvent(Struct, frozen=True, kw_only=True, gc=False):
    """The content of an event that reports the end of a call."""

    event_name: str
    ok: bool | None = None
    declined: bool = False
    timed_out: bool = False
    exit_code: int | None = None
    duration_ms: float | None = None
    text: str | None = None
    """The error message, if the event has one."""


class _OutputMarker(NamedTuple):
    rule: str
    regex: re.Pattern[str]
    state: State
    kind: ErrorKind | None
    """The error kind, or None to infer it from the text."""


def _compile_markers(*rows: tuple[str, str, State, ErrorKind | None]) -> tuple[_OutputMarker, ...]:
    return tuple(_OutputMarker(rule, re.compile(regex), state, kind) for rule, regex, state, kind in rows)


_MARKERS = _compile_markers(
    ("hook refused", r"(?:Command|Tool call) blocked by PreToolUse hook", "blocked_by_hook",
     "hook_blocked"),
    ("aborted by user", r"aborted by user\b", "interrupted", "interrupted"),
    ("user rejected", r"(?:exec command |patch )?rejected by user\b", "denied", "user_denied"),
    ("approval settings", r"(?:exec command|patch) rejected: [^\n]*rejected by user approval"
     r" settings", "denied", "user_denied"),
    ("patch refused", r"patch rejected\b", "failed", "patch_invalid"),
    ("approval policy", r"approval policy is \w+; reject command", "denied", "rule_denied"),
    ("command policy", r"exec_command failed: CreateProcess \{ message: \"Rejected\(\\?\"`(?s:.*)"
     r"` rejected: ", "denied", "rule_denied"),
    ("arguments refused", r"failed to parse (?:function )?arguments", "failed", "invalid_input"),
    ("no such tool", r"unsupported (?:custom tool )?call: ", "failed", "unknown_tool"),
    ("timeout text", r"tool call error: (?s:.){0,400}?timed out awaiting", "timed_out",
     "mcp_timeout"),
    ("connection lost", r"tool call error: (?s:.){0,400}?Transport closed", "failed",
     "mcp_no_response"),
    ("error text", r"(?:tool call error|err): ", "failed", None),
    ("error text", r"(?:execution error|failed in sandbox|sandbox denied"
     r"|Command denied by sandbox)\b", "failed", None),
    ("error text", r"(?:exec_command|write_stdin|apply_patch(?: verification)?|shell|spawn_agent"
     r"|wait_agent|wait|send_input|close_agent|resume_agent) failed\b", "failed", None),
    ("error text", r"unable to (?:locate|process|read) image|image path `", "failed", None),
    ("not offered", r"[\w.]+ is (?:unavailable|not available) in \w+ mode", "failed", None),
    ("error text", r"(?:Invalid patch|Failed to find (?:expected lines|context)"
     r"|No files were modified)", "failed", None),
)  # fmt: skip

_TIMEOUT_TEXT = re.compile(r"(?:Total output lines: \d+\n\s*)?command timed out(?: after \d+ milliseconds|\b)")
_SANDBOX_TIMEOUT_TEXT = re.compile(r"\Afailed in sandbox\b[^\n]*(?:\n[^\n]*)?command timed out")
_MCP_CALL_ERROR = re.compile(
    r"(?:(?:tool call error|err): |MCP error -\d+)(?P<timeout>(?s:.){0,400}?timed out)?|(?P<late>timed out awaiting )"
)
_WITHHELD_PREFIX = "PostToolUse hook blocked the tool result"
SUCCEEDED = StateInference(state="succeeded", evidence=(Evidence("exit code", "0"),))
RETURNED = StateInference(state="succeeded", evidence=(Evidence("output present"),))
_STILL_RUNNING = StateInference(state="succeeded", evidence=(Evidence("still running"),))
_WITHHELD_RESULT = StateInference(state="succeeded", evidence=(Evidence("result withheld by hook"),))
_SYNTHETIC = StateInference(state="never_answered", evidence=(Evidence("synthetic result", "aborted"),), synthetic=True)


def infer_state(tool: str, output: CommandOutput) -> StateInference:
    """Infer the state from the output alone."""
    text, code = output.text, output.exit_code
    if text == "aborted" and not output.has_header:
        return _SYNTHETIC
    if code == 0:
        return SUCCEEDED
    if timeout := _TIMEOUT_TEXT.match(text) or _SANDBOX_TIMEOUT_TEXT.match(text):
        evidence = Evidence("timeout text", timeout[0][:120])
        return StateInference(state="timed_out", kind="command_timeout", evidence=(evidence,))
    if code is not None:
        kind = kind_of("shell", f"Exit code {code}\n{text}")
        return StateInference(state="failed", kind=kind, evidence=(Evidence("exit code", str(code)),))
    if output.running is not None:
        return _STILL_RUNNING
    if output.script == "failed" or output.flag is False:
        rule = "script failed" if output.script else "success flag"
        return StateInference(state="failed", kind=kind_of(tool, text), evidence=(Evidence(rule),))
    if tool_kind(tool) == "mcp":
        return _infer_from_mcp_output(tool, output)
    return RETURNED if output.has_header else _infer_from_text(tool, text)


def _infer_from_mcp_output(tool: str, output: CommandOutput) -> StateInference:
    """Infer the state of an MCP call, whose result can be JSON inside the text: a string, blocks, or an object."""
    text, flagged = output.text, False
    try:
        reply = msgspec.json.decode(text) if text[:1] in '"[{' else None
    except (*DECODE_ERRORS, UnicodeEncodeError):
        reply = None
    if isinstance(reply, dict):
        flagged = bool(reply.get("isError") or reply.get("is_error"))
        reply = reply.get("content")
    if isinstance(reply, list):
        reply = "\n".join(str(block["text"]) for block in reply if isinstance(block, dict) and "text" in block)
    if isinstance(reply, str):
        text = reply
    if flagged:
        return StateInference(state="failed", kind=kind_of(tool, text), evidence=(Evidence("error flag", text[:120]),))
    if text != output.text or output.has_header:
        marker_match = _MCP_CALL_ERROR.match(text)
        if marker_match is None:
            return RETURNED
        if not marker_match["timeout"] and not marker_match["late"]:
            inference = _infer_from_text(tool, text)
            if inference.state == "failed":
                return inference
            evidence = Evidence("error text", marker_match[0][:120])
            return StateInference(state="failed", kind=kind_of(tool, text), evidence=(evidence,))
        evidence = Evidence("timeout text", marker_match[0][:120])
        return StateInference(state="timed_out", kind="mcp_timeout", evidence=(evidence,))
    return _infer_from_text(tool, text)


def _infer_from_text(tool: str, text: str) -> StateInference:
    """Infer the state from a message that the client writes in place of an output."""
    if text.startswith(_WITHHELD_PREFIX):
        return _WITHHELD_RESULT
    for marker in _MARKERS:
        if marker_match := marker.regex.match(text):
            return StateInference(
                state=marker.state,
                kind=marker.kind or kind_of(tool, text),
                evidence=(Evidence(marker.rule, marker_match[0][:120]),),
            )
    if text.startswith("error: ") and tool_kind(tool) in ("shell", "edit"):
        return StateInference(  # a patch that did not apply, from versions that applied patches in the shell
            state="failed", kind=kind_of("apply_patch", text), evidence=(Evidence("error text", text[:120]),)
        )
    return RETURNED


def apply_end_event(tool: str, inference: StateInference, end_event: EndEvent, text: str) -> StateInference:
    """Refine an inference with the end event, which has more information than the output."""
    evidence = (Evidence(end_event.event_name, end_event.text[:120] if end_event.text else None),)
    if end_event.declined and inference.state in ("succeeded", "failed"):
        return StateInference(state="denied", kind="user_denied", evidence=evidence + inference.evidence)
    if end_event.ok is True and inference.state == "failed":
        return StateInference(state="succeeded", evidence=evidence)
    if end_event.ok is not False or inference.state != "succeeded":
        return inference
    text = text or end_event.text or ""
    text_inference = _infer_from_text(tool, text)
    if text_inference.state != "succeeded":
        return replace(text_inference, evidence=evidence + text_inference.evidence)
    if end_event.exit_code and tool_kind(tool) == "shell":
        text = f"Exit code {end_event.exit_code}\n{text}"
    return StateInference(state="failed", kind=kind_of(tool, text), evidence=evidence + inference.evidence)


def infer_unanswered(end_event: EndEvent | None, abort_reason: str | None) -> StateInference:
    """Infer the state of a call without output."""
    nothing = Evidence("no output")
    if end_event is not None and end_event.declined:
        evidence = (nothing, Evidence(end_event.event_name, "declined"))
        return StateInference(state="denied", kind="user_denied", evidence=evidence)
    if end_event is not None and end_event.timed_out:
        evidence = (nothing, Evidence(end_event.event_name))
        return StateInference(state="timed_out", kind="permission_timeout", evidence=evidence)
    if abort_reason is None:
        return StateInference(state="never_answered", evidence=(nothing,))
    evidence = (nothing, Evidence("turn aborted", abort_reason))
    if abort_reason == "replaced":
        return StateInference(state="cancelled", kind="cancelled", evidence=evidence)
    return StateInference(state="interrupted", kind="interrupted", evidence=evidence)


_END_EVENTS = frozenset({
    "exec_command_end", "patch_apply_end", "mcp_tool_call_end", "view_image_tool_call",
    "dynamic_tool_call_response", "web_search_end", "image_generation_end",
})  # fmt: skip
_CALL_ITEMS = frozenset({
    "CommandExecution", "FileChange", "McpToolCall", "DynamicToolCall", "CollabAgentToolCall",
    "ImageView", "WebSearch", "ImageGeneration",
})  # fmt: skip
_SUCCESS_BY_STATUS = {"completed": True, "failed": False, "declined": False}
_AGENT_ID = re.compile(r'"agent_id"\s*:\s*"([^"]+)"')


def parse_end_event(item: RolloutItem) -> tuple[CallId, EndEvent] | None:
    """Return the call id and end event if `item` reports the end of a call, otherwise None."""
    done = item.done
    if item.type == "item_completed" and done is not None:
        if done.id is None or done.type not in _CALL_ITEMS:
            return None
        error = _decode_or_none(done.error)
        message = error.get("message") if isinstance(error, dict) else error
        return CallId(done.id), EndEvent(
            event_name=done.type,
            ok=_SUCCESS_BY_STATUS.get(done.status or ""),
            declined=done.status == "declined",
            exit_code=done.exit_code,
            duration_ms=parse_duration_ms(done.duration),
            text=message if isinstance(message, str) else None,
        )
    collab = item.type.startswith("collab_") and item.type.endswith("_end")
    if item.call_id is None or not (item.type in _END_EVENTS or collab):
        return None
    name, text = item.type, extract_text(item.error) or None
    ok = item.success if item.success is not None else _SUCCESS_BY_STATUS.get(item.status or "")
    if ok is None and item.exit_code is not None:
        ok = item.exit_code == 0
    if item.type == "mcp_tool_call_end":  # the result is either the server's reply or a connection error
        reply = _decode_or_none(item.result)
        answer, failure = (reply.get("Ok"), reply.get("Err")) if isinstance(reply, dict) else (None, None)
        flagged = isinstance(answer, dict) and bool(answer.get("isError") or answer.get("is_error"))
        name = "mcp_tool_call_end Err" if failure is not None else "mcp_tool_call_end Ok"
        ok = None if answer is None and failure is None else failure is None and not flagged
        text = str(failure) if failure is not None else None
        return item.call_id, EndEvent(event_name=name, ok=ok, duration_ms=parse_duration_ms(item.duration), text=text)
    return item.call_id, EndEvent(
        event_name=name,
        ok=ok,
        declined=item.status == "declined",
        exit_code=item.exit_code,
        duration_ms=parse_duration_ms(item.duration),
        text=text,
    )


class _Duration(Struct, gc=False):
    secs: float = 0
    nanos: float = 0


_DURATION_DECODER = msgspec.json.Decoder(_Duration | float | str | None)


def parse_duration_ms(raw: Raw) -> float | None:
    """Parse a duration given as an object, a number of seconds, or a string such as `1.234s`."""
    try:
        duration = _DURATION_DECODER.decode(raw) if raw else None
    except DECODE_ERRORS:
        return None
    if isinstance(duration, _Duration):
        return duration.secs * 1000 + duration.nanos / 1_000_000
    if isinstance(duration, str):
        number = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|µs)", duration.strip())
        return float(number[1]) * {"ms": 1.0, "s": 1000.0, "µs": 0.001}[number[2]] if number else None
    return duration * 1000 if duration is not None else None


def _decode_or_none(raw: Raw) -> Any:
    try:
        return msgspec.json.decode(raw) if raw else None
    except DECODE_ERRORS:
        return None


def describe_inner_call(item: RolloutItem) -> str:
    """Return a one-line description of a call made by a script: tool, subject and outcome."""
    inner = item.done or TurnItem(type=item.type, command=item.command, status=item.status, exit_code=item.exit_code)
    names = [name for name in (inner.server, inner.tool) if name]
    what = "__".join(["mcp", *names]) if inner.type == "McpToolCall" else inner.type
    changes = _decode_or_none(inner.changes)
    changed_paths = ", ".join(changes) if isinstance(changes, dict) else None
    target = event_command(inner.command) or inner.query or inner.path or changed_paths
    how = inner.status or ""
    if inner.exit_code:
        how = f"{how}, exit code {inner.exit_code}"
    return f"{what}: {target} ({how})" if target else f"{what} ({how})"


def spawned_agent_id(text: str) -> str | None:
    """Return the subagent id in an output."""
    agent_match = _AGENT_ID.search(text)
    return agent_match[1] if agent_match else None
