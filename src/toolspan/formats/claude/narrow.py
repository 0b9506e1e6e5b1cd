"""Convert the JSON of an input or result to its tool's type. Nothing here raises.

Values that do not match become `UnknownInput` or `UnknownResult`, which keep the bytes. Inputs are
read as leniently as clients accept them: numbers and booleans may be strings. For `doctor`,
`input_drift` and `result_drift` list everything that the types do not describe.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct, inspect

from toolspan.formats.claude import narrow_text, results
from toolspan.formats.claude import work_results as work
from toolspan.formats.claude.results import ErrorText, StructuredResult, TextResult, UnknownResult
from toolspan.types import inputs
from toolspan.types.inputs import ToolInput, UnknownInput, decode_json, decode_json_or_text

T = TypeVar("T", bound=Struct)

_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)

_ALIASES = {
    "AgentOutputTool": "TaskOutput",
    "KillBash": "KillShell",
    "ReadMcpResourceDirTool": "ReadMcpResourceDir",
    "Task": "Agent",
    "exit_plan_mode": "ExitPlanMode",
}

_INPUT_TYPES: dict[str, type[ToolInput]] = {
    tool: getattr(inputs, f"{tool}Input")
    for tool in (
        "Agent", "Artifact", "AskUserQuestion", "Bash", "BashOutput", "Batch", "CronCreate", "CronDelete", "CronList",
        "Edit", "EnterPlanMode", "EnterWorktree", "ExitPlanMode", "ExitWorktree", "Glob", "Grep", "KillShell",
        "ListAgents", "Monitor", "MultiEdit", "NotebookEdit", "NotebookRead", "PowerShell", "PushNotification",
        "Read", "RefreshMcpTools", "RemoteTrigger", "ReportFindings", "ScheduleWakeup", "SendMessage", "Skill",
        "SlashCommand", "TaskCreate", "TaskGet", "TaskList", "TaskOutput", "TaskStop", "TaskUpdate", "TodoRead",
        "TodoWrite", "ToolSearch", "WebFetch", "WebSearch", "Workflow", "Write",
    )
} | {
    "LS": inputs.LsInput,
    "LSP": inputs.LspInput,
    "ListMcpResourcesTool": inputs.ListMcpResourcesInput,
    "ReadMcpResourceDir": inputs.ReadMcpResourceInput,
    "ReadMcpResourceTool": inputs.ReadMcpResourceInput,
}  # fmt: skip
"""The types of inputs, most of which are named after their tools."""

_OBJECT_TYPES: dict[str, tuple[type[StructuredResult], ...]] = {
    tool: (getattr(results, f"{tool}Result", None) or getattr(work, f"{tool}Result"),)
    for tool in (
        "Agent", "Bash", "Batch", "CronList", "Edit", "EnterWorktree", "ExitWorktree", "Glob", "Grep", "Monitor",
        "MultiEdit", "NotebookEdit", "RemoteTrigger", "Skill", "TaskCreate", "TaskGet", "TaskList", "TaskOutput",
        "TaskUpdate", "ToolSearch", "WebFetch", "WebSearch", "Workflow", "Write",
    )
} | {
    "AskUserQuestion": (work.QuestionResult,),
    "BashOutput": (results.BashOutputResult, results.TaskOutputResult),
    "CronCreate": (work.CronJob,),
    "CronDelete": (work.CronJob,),
    "EnterPlanMode": (work.MessageResult,),
    "ExitPlanMode": (work.PlanResult,),
    "KillShell": (results.KillShellResult, results.TaskStopResult),
    "LSP": (results.LspResult,),
    "NotebookRead": (results.ReadNotebook,),
    "PowerShell": (results.BashResult,),
    "PushNotification": (work.PushResult,),
    "Read": (
        results.ReadText, results.ReadImage, results.ReadNotebook, results.ReadPdf, results.ReadParts,
        results.ReadUnchanged,
    ),
    "ReadMcpResourceDir": (work.McpResourceList,),
    "ReadMcpResourceTool": (work.McpResourceContents,),
    "ReportFindings": (work.FindingsResult,),
    "ScheduleWakeup": (work.WakeupResult,),
    "SlashCommand": (work.SkillResult,),
    "TaskStop": (results.TaskStopResult, results.KillShellResult),
    "TodoWrite": (work.TodoResult,),
}  # fmt: skip
"""Possible types for a tool's result object, in order of preference; many are named after their tools."""

_LIST_TYPES: dict[str, type[StructuredResult]] = {
    "LS": results.LsEntries,
    "ListMcpResourcesTool": work.McpResourceList,
    "RefreshMcpTools": work.McpToolsRefreshed,
    "TodoRead": work.TodoReadResult,
}
"""Types for results that are lists, which become the first field."""

_ERROR_PREFIXES = (
    "Error: ", "Error calling tool", "InputValidationError", "<tool_use_error>", "User rejected tool use",
    "The user doesn't want to", "Interrupted by user", "[Request interrupted by user", "[Tool call interrupted",
    "Sibling tool call errored", "Cancelled: parallel tool call",
)  # fmt: skip
"""Beginnings of error messages, for tools whose successful results are also plain text."""


def narrow_input(tool: str, data: bytes) -> ToolInput:
    """Return a call's input as its tool's type, or `UnknownInput`."""
    tool = _ALIASES.get(tool, tool)
    try:
        if b'"__unparsedToolInput"' in data[:64]:
            return _decode_struct(_UnparsedWrapper, data).inner
        if tool.startswith("mcp__"):
            server, _, name = tool.removeprefix("mcp__").partition("__")
            return inputs.McpInput(server=server, tool=name, arguments=_decode_mapping(data))
        if tool == "StructuredOutput":
            return inputs.StructuredOutputInput(data=_decode_mapping(data))
        if tool in _INPUT_TYPES:
            return _decode_struct(_INPUT_TYPES[tool], data, strict=False)
    except _DECODE_ERRORS:
        pass
    return UnknownInput(data=data)


class _UnparsedWrapper(Struct, frozen=True):
    """The wrapper in which clients put an input that is not JSON."""

    inner: inputs.UnparsedInput = msgspec.field(name="__unparsedToolInput")


def narrow_result(tool: str, data: bytes | None) -> StructuredResult | None:
    """Return a structured result as its tool's type, or None if there is none."""
    tool = _ALIASES.get(tool, tool)
    if data is None or data.strip() == b"null":
        return None
    kinds = _result_types(tool, data)
    try:
        match data.lstrip()[:1]:
            case b'"':
                text = msgspec.convert(decode_json(data), str)
                # If the tool's successful results are objects, a string is always an error.
                is_error = tool in _OBJECT_TYPES or text.startswith(_ERROR_PREFIXES)
                return ErrorText(text=text) if is_error else TextResult(text=text)
            case b"[" if kinds:
                return msgspec.convert(_as_first_field(kinds[0], data), kinds[0])
            case b"{" if tool.startswith("mcp__"):
                return results.McpObject(data=_decode_mapping(data))
            case b"{":
                return _decode_first_fit(kinds, data)
            case _:
                pass
    except _DECODE_ERRORS:
        pass
    return UnknownResult(data=data)


def _result_types(tool: str, data: bytes) -> Sequence[type[StructuredResult]]:
    if not data.lstrip().startswith(b"["):
        return _OBJECT_TYPES.get(tool, ())
    if tool not in _INPUT_TYPES:  # lists of content blocks come from MCP tools, whatever old transcripts call them
        return (results.McpResult,)
    return (_LIST_TYPES[tool],) if tool in _LIST_TYPES else ()


def _decode_first_fit(kinds: Sequence[type[StructuredResult]], data: bytes) -> StructuredResult:
    for kind in kinds:
        try:
            result = _decode_struct(kind, data)
        except _DECODE_ERRORS:
            continue
        if result != work.AgentResult():  # which has no required field, so that any object matches
            return result
    return UnknownResult(data=data)


def narrow_text_result(tool: str, text: str) -> StructuredResult | None:
    """Return the structured result parsed from `text`, for results recorded without one.

    None if the text contains nothing that a type can hold.
    """
    tool = _ALIASES.get(tool, tool)
    body = text.strip()
    if body.startswith("<tool_use_error>") and body.endswith("</tool_use_error>"):
        return ErrorText(text=body[len("<tool_use_error>") : -len("</tool_use_error>")])
    if tool in ("KillShell", "TaskStop"):
        data = narrow_text.strip_reminders(text).encode("utf-8", "surrogatepass")
        result = _decode_first_fit(_OBJECT_TYPES[tool], data)
        return None if isinstance(result, UnknownResult) else result
    parse = narrow_text.TEXT_PARSERS.get(tool)
    return parse(text) if parse else None


def input_drift(tool: str, data: bytes) -> tuple[str, ...]:
    """Return the parts of an input that its tool's type does not describe.

    These are dotted paths of unknown keys, or one note (`Type: reason`) if the input does not match at all.
    """
    tool = _ALIASES.get(tool, tool)
    narrowed = narrow_input(tool, data)
    kind = _INPUT_TYPES.get(tool)
    if not isinstance(narrowed, UnknownInput):
        return _unknown_keys(kind, decode_json_or_text(data)) if type(narrowed) is kind else ()
    if kind is None:
        return ("no type for this tool's input",)
    return (_describe_mismatch(kind, data, strict=False),)


def result_drift(tool: str, data: bytes | None) -> tuple[str, ...]:
    """Return the parts of a result that its tool's types do not describe.

    These are dotted paths of unknown keys, or one note (`Type: reason`) if the result does not match at all.
    """
    if data is None:
        return ()
    tool = _ALIASES.get(tool, tool)
    narrowed = narrow_result(tool, data)
    is_list = data.lstrip().startswith(b"[")
    if narrowed is None or isinstance(narrowed, TextResult | ErrorText | results.McpObject):
        return ()
    if not isinstance(narrowed, UnknownResult):
        kind = type(narrowed)
        return _unknown_keys(kind, _as_first_field(kind, data) if is_list else decode_json_or_text(data))
    notes = [_describe_mismatch(kind, data) for kind in _result_types(tool, data)]
    if not notes:
        return ("no type for a list" if is_list else "no type for this tool's result",)
    # Prefer a mismatch inside the intended type to one that only reports another tag.
    return (next((note for note in notes if "Invalid value" not in note), notes[0]),)


def _describe_mismatch(kind: type[Struct], data: bytes, *, strict: bool = True) -> str:
    try:
        if data.lstrip().startswith(b"[") and issubclass(kind, StructuredResult):
            msgspec.convert(_as_first_field(kind, data), kind)
        else:
            _decode_struct(kind, data, strict=strict)
    except _DECODE_ERRORS as error:
        return f"{kind.__name__}: {error}"
    return f"{kind.__name__}: none of its keys"


_type_info = functools.cache(inspect.type_info)


def _unknown_keys(kind: type[Struct], value: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_walk_value(_type_info(kind), value, "")))


def _walk_value(shape: inspect.Type, value: object, path: str) -> Iterator[str]:
    """Yield the paths of keys without a field in the type; `path` is empty or ends with a dot."""
    match shape, value:
        case inspect.StructType(), dict():
            field_types = {field.encode_name: field.type for field in shape.fields}
            for key, item in value.items():
                if key in field_types:
                    yield from _walk_value(field_types[key], item, f"{path}{key}.")
                elif key != shape.tag_field:
                    yield f"{path}{key}"
        case inspect.DictType(value_type=inner), dict():
            for item in value.values():
                yield from _walk_value(inner, item, f"{path}*.")
        case inspect.VarTupleType(item_type=inner), list():
            for item in value:
                yield from _walk_value(inner, item, f"{path[:-1]}[].")
        case inspect.UnionType(types=arms), _:
            for arm in arms:
                yield from _walk_value(arm, value, path)
        case _:
            return


def _decode_mapping(data: bytes) -> dict[str, object]:
    return msgspec.convert(decode_json(data), dict[str, object])


def _decode_struct(kind: type[T], data: bytes, *, strict: bool = True) -> T:
    try:
        decoded: T = _cached_decoder(kind, strict=strict).decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # Clients truncate strings inside surrogate pairs, and msgspec does not accept lone surrogates.
        decoded = msgspec.convert(decode_json(data), kind, strict=strict)
    return decoded


@functools.cache
def _cached_decoder(kind: type[T], *, strict: bool) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind, strict=strict)


def _as_first_field(kind: type[Struct], data: bytes) -> dict[str, object]:
    return {msgspec.structs.fields(kind)[0].encode_name: decode_json(data)}
