"""From the bytes of an input or a result to the type of its tool.

In: a tool's name and JSON bytes (or a result's text). Out: a struct of `model/inputs.py` or
`wire/claude_results.py`; what does not fit comes back as `UnknownInput` or `UnknownResult` with its
bytes. Nothing here raises, whatever a file contains.

Inputs are read as leniently as clients take them: numbers and booleans may be strings. `drift` and
`input_drift` tell what the types do not know, for `doctor`. Which tool has which type is in the
tables; start there.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct, inspect

from toolspan.model import inputs
from toolspan.model.inputs import (
    McpInput,
    StructuredOutputInput,
    ToolInput,
    UnknownInput,
    decode_anything,
    decode_json,
)
from toolspan.wire import claude_results as results
from toolspan.wire import claude_work_results as work
from toolspan.wire import narrow_text
from toolspan.wire.claude_results import ErrorText, StructuredResult, TextResult, UnknownResult

T = TypeVar("T", bound=Struct)

_UNFIT = (msgspec.MsgspecError, ValueError, RecursionError)

_ALIASES = {
    "AgentOutputTool": "TaskOutput",
    "KillBash": "KillShell",
    "ReadMcpResourceDirTool": "ReadMcpResourceDir",
    "Task": "Agent",
    "exit_plan_mode": "ExitPlanMode",
}

_INPUTS: dict[str, type[ToolInput]] = {
    "Agent": inputs.AgentInput,
    "Artifact": inputs.ArtifactInput,
    "AskUserQuestion": inputs.AskUserQuestionInput,
    "Bash": inputs.BashInput,
    "BashOutput": inputs.BashOutputInput,
    "Batch": inputs.BatchInput,
    "CronCreate": inputs.CronCreateInput,
    "CronDelete": inputs.CronDeleteInput,
    "CronList": inputs.CronListInput,
    "Edit": inputs.EditInput,
    "EnterPlanMode": inputs.EnterPlanModeInput,
    "EnterWorktree": inputs.EnterWorktreeInput,
    "ExitPlanMode": inputs.ExitPlanModeInput,
    "ExitWorktree": inputs.ExitWorktreeInput,
    "Glob": inputs.GlobInput,
    "Grep": inputs.GrepInput,
    "KillShell": inputs.KillShellInput,
    "LS": inputs.LsInput,
    "LSP": inputs.LspInput,
    "ListAgents": inputs.ListAgentsInput,
    "ListMcpResourcesTool": inputs.ListMcpResourcesInput,
    "Monitor": inputs.MonitorInput,
    "MultiEdit": inputs.MultiEditInput,
    "NotebookEdit": inputs.NotebookEditInput,
    "NotebookRead": inputs.NotebookReadInput,
    "PowerShell": inputs.PowerShellInput,
    "PushNotification": inputs.PushNotificationInput,
    "Read": inputs.ReadInput,
    "ReadMcpResourceDir": inputs.ReadMcpResourceInput,
    "ReadMcpResourceTool": inputs.ReadMcpResourceInput,
    "RefreshMcpTools": inputs.RefreshMcpToolsInput,
    "RemoteTrigger": inputs.RemoteTriggerInput,
    "ReportFindings": inputs.ReportFindingsInput,
    "ScheduleWakeup": inputs.ScheduleWakeupInput,
    "SendMessage": inputs.SendMessageInput,
    "Skill": inputs.SkillInput,
    "SlashCommand": inputs.SlashCommandInput,
    "TaskCreate": inputs.TaskCreateInput,
    "TaskGet": inputs.TaskGetInput,
    "TaskList": inputs.TaskListInput,
    "TaskOutput": inputs.TaskOutputInput,
    "TaskStop": inputs.TaskStopInput,
    "TaskUpdate": inputs.TaskUpdateInput,
    "TodoRead": inputs.TodoReadInput,
    "TodoWrite": inputs.TodoWriteInput,
    "ToolSearch": inputs.ToolSearchInput,
    "WebFetch": inputs.WebFetchInput,
    "WebSearch": inputs.WebSearchInput,
    "Workflow": inputs.WorkflowInput,
    "Write": inputs.WriteInput,
}

_OBJECTS: dict[str, tuple[type[StructuredResult], ...]] = {
    "Agent": (work.AgentResult,),
    "AskUserQuestion": (work.QuestionResult,),
    "Bash": (results.BashResult,),
    "BashOutput": (results.BashOutputResult, results.TaskOutputResult),
    "Batch": (work.BatchResult,),
    "CronCreate": (work.CronJob,),
    "CronDelete": (work.CronJob,),
    "CronList": (work.CronListResult,),
    "Edit": (results.EditResult,),
    "EnterPlanMode": (work.MessageResult,),
    "EnterWorktree": (work.EnterWorktreeResult,),
    "ExitPlanMode": (work.PlanResult,),
    "ExitWorktree": (work.ExitWorktreeResult,),
    "Glob": (results.GlobResult,),
    "Grep": (results.GrepResult,),
    "KillShell": (results.KillShellResult, results.TaskStopResult),
    "LSP": (results.LspResult,),
    "Monitor": (work.MonitorResult,),
    "MultiEdit": (results.MultiEditResult,),
    "NotebookEdit": (results.NotebookEditResult,),
    "NotebookRead": (results.ReadNotebook,),
    "PowerShell": (results.BashResult,),
    "PushNotification": (work.PushResult,),
    "Read": (
        results.ReadText,
        results.ReadImage,
        results.ReadNotebook,
        results.ReadPdf,
        results.ReadParts,
        results.ReadUnchanged,
    ),
    "ReadMcpResourceDir": (work.McpResourceList,),
    "ReadMcpResourceTool": (work.McpResourceContents,),
    "RemoteTrigger": (work.RemoteTriggerResult,),
    "ReportFindings": (work.FindingsResult,),
    "ScheduleWakeup": (work.WakeupResult,),
    "Skill": (work.SkillResult,),
    "SlashCommand": (work.SkillResult,),
    "TaskCreate": (work.TaskCreateResult,),
    "TaskGet": (work.TaskGetResult,),
    "TaskList": (work.TaskListResult,),
    "TaskOutput": (results.TaskOutputResult,),
    "TaskStop": (results.TaskStopResult, results.KillShellResult),
    "TaskUpdate": (work.TaskUpdateResult,),
    "TodoWrite": (work.TodoResult,),
    "ToolSearch": (work.ToolSearchResult,),
    "WebFetch": (work.WebFetchResult,),
    "WebSearch": (work.WebSearchResult,),
    "Workflow": (work.WorkflowResult,),
    "Write": (results.WriteResult,),
}
"""The shapes a tool's object may have; the first that fits is taken."""

_LISTS: dict[str, type[StructuredResult]] = {
    "LS": results.LsEntries,
    "ListMcpResourcesTool": work.McpResourceList,
    "RefreshMcpTools": work.McpToolsRefreshed,
    "TodoRead": work.TodoReadResult,
}
"""For tools that report a list: the struct whose first field it becomes."""

_ERROR_STARTS = (
    "Error: ",
    "Error calling tool",
    "InputValidationError",
    "<tool_use_error>",
    "User rejected tool use",
    "The user doesn't want to",
    "Interrupted by user",
    "[Request interrupted by user",
    "[Tool call interrupted",
    "Sibling tool call errored",
    "Cancelled: parallel tool call",
)
"""How errors begin; it matters for the tools that report plain text when they succeed."""


def narrow_input(tool: str, data: bytes) -> ToolInput:
    """A call's input as its tool's type; `UnknownInput` where that is not possible."""
    try:
        return _input(_canonical(tool), data)
    except _UNFIT:
        return UnknownInput(data=data)


def _input(tool: str, data: bytes) -> ToolInput:
    if b'"__unparsedToolInput"' in data[:64]:
        return _decode(_Unparsed, data).inner
    if tool.startswith("mcp__"):
        server, _, name = tool.removeprefix("mcp__").partition("__")
        return McpInput(server=server, tool=name, arguments=_object(data))
    if tool == "StructuredOutput":
        return StructuredOutputInput(data=_object(data))
    kind = _INPUTS.get(tool)
    return UnknownInput(data=data) if kind is None else _decode(kind, data, strict=False)


class _Unparsed(Struct, frozen=True):
    """How clients wrap an input that was not JSON."""

    inner: inputs.UnparsedInput = msgspec.field(name="__unparsedToolInput")


def narrow_result(tool: str, data: bytes | None) -> StructuredResult | None:
    """A result's structured companion as its tool's type; None when there is none."""
    if data is None:
        return None
    try:
        return _result(_canonical(tool), data)
    except _UNFIT:
        return UnknownResult(data=data)


def _result(tool: str, data: bytes) -> StructuredResult | None:
    match data.lstrip()[:1]:
        case b'"':
            return _text(tool, data)
        case b"[":
            kind = _list_kind(tool)
            return UnknownResult(data=data) if kind is None else _decode_list(kind, data)
        case b"{" if tool.startswith("mcp__"):
            return results.McpObject(data=_object(data))
        case b"{":
            return _first_fit(_OBJECTS.get(tool, ()), data)
        case b"n" if data.strip() == b"null":
            return None
        case _:
            return UnknownResult(data=data)


def _text(tool: str, data: bytes) -> StructuredResult:
    text = msgspec.convert(decode_json(data), str)
    # Where a success is an object or nothing, a string is always an error.
    if tool in _OBJECTS or text.startswith(_ERROR_STARTS):
        return ErrorText(text=text)
    return TextResult(text=text)


def _list_kind(tool: str) -> type[StructuredResult] | None:
    # Content blocks are what MCP tools give, whatever name an old transcript has for them.
    return _LISTS.get(tool) if tool in _INPUTS else results.McpResult


def _first_fit(kinds: Sequence[type[StructuredResult]], data: bytes) -> StructuredResult:
    for kind in kinds:
        try:
            found = _decode(kind, data)
        except _UNFIT:
            continue
        if not _says_nothing(found):
            return found
    return UnknownResult(data=data)


def _says_nothing(found: StructuredResult) -> bool:
    """Whether a struct without required fields is as empty as if made from `{}`."""
    return isinstance(found, work.AgentResult) and found == work.AgentResult()


def narrow_text_result(tool: str, text: str) -> StructuredResult | None:
    """The structured result that a result's text states, where the companion is missing.

    For results that are no errors; None for tools whose text states nothing of the kind.
    """
    tool = _canonical(tool)
    body = text.strip()
    if body.startswith("<tool_use_error>") and body.endswith("</tool_use_error>"):
        return ErrorText(text=body[len("<tool_use_error>") : -len("</tool_use_error>")])
    if tool in ("KillShell", "TaskStop"):
        body = narrow_text.without_reminders(text)
        return _first_fit_or_none(_OBJECTS[tool], body.encode("utf-8", "surrogatepass"))
    parse = narrow_text.PARSERS.get(tool)
    return parse(text) if parse else None


def _first_fit_or_none(
    kinds: Sequence[type[StructuredResult]], data: bytes
) -> StructuredResult | None:
    found = _first_fit(kinds, data)
    return None if isinstance(found, UnknownResult) else found


def input_drift(tool: str, data: bytes) -> tuple[str, ...]:
    """What the type of a tool's input does not know of this one.

    Dotted paths of unknown keys, or one note (`Type: reason`) when the input does not fit at all.
    """
    tool = _canonical(tool)
    found = narrow_input(tool, data)
    kind = _INPUTS.get(tool)
    if not isinstance(found, UnknownInput):
        return _unknown_keys(kind, decode_anything(data)) if type(found) is kind else ()
    if kind is None:
        return ("no type for this tool's input",)
    return (_misfit(kind, data, strict=False),)


def drift(tool: str, data: bytes | None) -> tuple[str, ...]:
    """What the types of a tool's results do not know of this one.

    Dotted paths of unknown keys, or one note (`Type: reason`) when the result does not fit at all.
    """
    if data is None:
        return ()
    tool = _canonical(tool)
    found = narrow_result(tool, data)
    if found is None or isinstance(found, TextResult | ErrorText | results.McpObject):
        return ()
    if isinstance(found, UnknownResult):
        return (_result_misfit(tool, data),)
    if _is_list(data):
        return _unknown_keys(type(found), _as_first_field(type(found), data))
    return _unknown_keys(type(found), decode_anything(data))


def _result_misfit(tool: str, data: bytes) -> str:
    if _is_list(data):
        kind = _list_kind(tool)
        return _misfit(kind, data) if kind else "no type for a list"
    notes = [_misfit(kind, data) for kind in _OBJECTS.get(tool, ())]
    if not notes:
        return "no type for this tool's result"
    # Another tag is no news: the note of the shape that was meant tells more.
    return next((note for note in notes if "Invalid value" not in note), notes[0])


def _misfit(kind: type[Struct], data: bytes, *, strict: bool = True) -> str:
    try:
        if _is_list(data) and issubclass(kind, StructuredResult):
            _decode_list(kind, data)
        else:
            _decode(kind, data, strict=strict)
    except _UNFIT as error:
        return f"{kind.__name__}: {error}"
    return f"{kind.__name__}: none of its keys"


def _unknown_keys(kind: type[Struct], value: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_walk(_shape(kind), value, "")))


@functools.cache
def _shape(kind: type[Struct]) -> inspect.Type:
    return inspect.type_info(kind)


def _walk(shape: inspect.Type, value: object, path: str) -> Iterator[str]:
    """The keys in a value that a shape has no field for; `path` is empty or ends with a dot."""
    match shape, value:
        case inspect.StructType(), dict():
            yield from _walk_struct(shape, value, path)
        case inspect.DictType(value_type=inner), dict():
            yield from _walk_all(inner, value.values(), f"{path}*.")
        case inspect.VarTupleType(item_type=inner), list():
            yield from _walk_all(inner, value, f"{path[:-1]}[].")
        case inspect.UnionType(types=arms), _:
            for arm in arms:
                yield from _walk(arm, value, path)
        case _:
            return


def _walk_struct(shape: inspect.StructType, value: dict[str, object], path: str) -> Iterator[str]:
    known = {field.encode_name: field.type for field in shape.fields}
    for key, item in value.items():
        if key in known:
            yield from _walk(known[key], item, f"{path}{key}.")
        elif key != shape.tag_field:
            yield f"{path}{key}"


def _walk_all(shape: inspect.Type, values: Iterable[object], path: str) -> Iterator[str]:
    for value in values:
        yield from _walk(shape, value, path)


def _canonical(tool: str) -> str:
    return _ALIASES.get(tool, tool)


def _is_list(data: bytes) -> bool:
    return data.lstrip()[:1] == b"["


def _object(data: bytes) -> dict[str, object]:
    return msgspec.convert(decode_json(data), dict[str, object])


def _decode(kind: type[T], data: bytes, *, strict: bool = True) -> T:
    try:
        found: T = _decoder(kind, strict=strict).decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # Clients cut texts between the halves of a surrogate pair, and msgspec takes no halves.
        found = msgspec.convert(decode_json(data), kind, strict=strict)
    return found


@functools.cache
def _decoder(kind: type[T], *, strict: bool) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind, strict=strict)


def _decode_list(kind: type[StructuredResult], data: bytes) -> StructuredResult:
    return msgspec.convert(_as_first_field(kind, data), kind)


def _as_first_field(kind: type[Struct], data: bytes) -> dict[str, object]:
    return {msgspec.structs.fields(kind)[0].encode_name: decode_json(data)}
