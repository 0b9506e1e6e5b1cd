"""Events that tell how a call ended, whatever the client of the time calls them.

In: an event's payload. Out: the call's id and an `Ended`; a line of text for what a script did; the
subagent that an output names. Nothing here raises. Read `ended_by` first.
"""

import re
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolspan.ids import CallId
from toolspan.read.codex.verdict import Ended
from toolspan.wire.codex import NOTHING, Item, TurnItem
from toolspan.wire.codex_calls import command_of
from toolspan.wire.views import UNFIT, text_of

_ENDS = frozenset({
    "exec_command_end", "patch_apply_end", "mcp_tool_call_end", "view_image_tool_call",
    "dynamic_tool_call_response", "web_search_end", "image_generation_end",
})  # fmt: skip
_ITEMS = frozenset({
    "CommandExecution", "FileChange", "McpToolCall", "DynamicToolCall", "CollabAgentToolCall",
    "ImageView", "WebSearch", "ImageGeneration",
})  # fmt: skip
_GOOD = {"completed": True, "failed": False, "declined": False}
_AGENT = re.compile(r'"agent_id"\s*:\s*"([^"]+)"')


class _Took(Struct, gc=False):
    secs: float = 0
    nanos: float = 0


class _Told(Struct, gc=False):
    """What an MCP server gave back, or the failure to ask it."""

    ok: Any = msgspec.field(default=None, name="Ok")
    err: Any = msgspec.field(default=None, name="Err")


_DURATION = msgspec.json.Decoder(_Took | float | str | None)
_TOLD = msgspec.json.Decoder(_Told)


def ended_by(item: Item) -> tuple[CallId, Ended] | None:
    """The call whose end an event tells of, and how it ended."""
    if item.type == "item_completed" and item.done is not None:
        return _completed(item.done)
    collab = item.type.startswith("collab_") and item.type.endswith("_end")
    if item.call_id is None or not (item.type in _ENDS or collab):
        return None
    if item.type == "mcp_tool_call_end":
        return item.call_id, _mcp(item)
    ok = item.success if item.success is not None else _GOOD.get(item.status or "")
    if ok is None and item.exit_code is not None:
        ok = item.exit_code == 0
    return item.call_id, Ended(
        what=item.type,
        ok=ok,
        declined=item.status == "declined",
        exit_code=item.exit_code,
        duration_ms=milliseconds(item.duration),
        text=text_of(item.error) or None,
    )


def _completed(item: TurnItem) -> tuple[CallId, Ended] | None:
    if item.id is None or item.type not in _ITEMS:
        return None
    return CallId(item.id), Ended(
        what=item.type,
        ok=_GOOD.get(item.status or ""),
        declined=item.status == "declined",
        exit_code=item.exit_code,
        duration_ms=milliseconds(item.duration),
        text=_message(item.error),
    )


def _mcp(item: Item) -> Ended:
    try:
        told = _TOLD.decode(item.result) if item.result else _Told()
    except UNFIT:
        told = _Told()
    flagged = isinstance(told.ok, dict) and bool(told.ok.get("isError") or told.ok.get("is_error"))
    ok = None if told.ok is None and told.err is None else told.err is None and not flagged
    return Ended(
        what="mcp_tool_call_end Err" if told.err is not None else "mcp_tool_call_end Ok",
        ok=ok,
        duration_ms=milliseconds(item.duration),
        text=str(told.err) if told.err is not None else None,
    )


def _message(raw: Raw) -> str | None:
    if raw == NOTHING:
        return None
    try:
        found = msgspec.json.decode(raw)
    except UNFIT:
        return None
    words = found.get("message") if isinstance(found, dict) else found
    return words if isinstance(words, str) else None


def milliseconds(raw: Raw) -> float | None:
    """A duration in any of its forms: an object, a number of seconds, a text like `1.234s`."""
    if raw == NOTHING:
        return None
    try:
        found = _DURATION.decode(raw)
    except UNFIT:
        return None
    match found:
        case _Took():
            return found.secs * 1000 + found.nanos / 1_000_000
        case float():
            return found * 1000
        case str():
            return _spelled(found)
        case _:
            return None


def _spelled(text: str) -> float | None:
    number = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|µs)", text.strip())
    scale = {"ms": 1.0, "s": 1000.0, "µs": 0.001}
    return float(number[1]) * scale[number[2]] if number else None


def inner_call(item: Item) -> str:
    """What a script did, in a line: the tool, what it was about, how it ended."""
    inner = item.done or TurnItem(
        type=item.type, command=item.command, status=item.status, exit_code=item.exit_code
    )
    names = [name for name in (inner.server, inner.tool) if name]
    what = "__".join(["mcp", *names]) if inner.type == "McpToolCall" else inner.type
    about = command_of(inner.command) or inner.query or inner.path or _changed(inner.changes)
    how = inner.status or ""
    if inner.exit_code:
        how = f"{how}, exit code {inner.exit_code}"
    return f"{what}: {about or ''} ({how})" if about else f"{what} ({how})"


def _changed(raw: Raw) -> str | None:
    try:
        found = msgspec.json.decode(raw) if raw else None
    except UNFIT:
        return None
    return ", ".join(found) if isinstance(found, dict) else None


def spawned(text: str) -> str | None:
    """The subagent that an output names."""
    found = _AGENT.search(text)
    return found[1] if found else None
