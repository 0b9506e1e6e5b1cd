"""Convert the JSON of an input or result to its tool's type. Nothing here raises.

Values that do not match become `UnknownInput` or `UnknownResult`, which keep the bytes. Inputs are
read as leniently as clients accept them: numbers and booleans may be strings. For `doctor`,
`input_drift` and `result_drift` list everything that the types do not describe. For transcripts without structured
results, `narrow_text_result` parses the text sent to the model.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct, inspect

from toolspan.types import inputs, results
from toolspan.types import work_results as work
from toolspan.types.inputs import ToolInput, UnknownInput, decode_json, decode_json_or_text
from toolspan.types.results import (
    BashResult,
    ErrorText,
    GrepResult,
    ReadText,
    StructuredResult,
    TextFile,
    TextResult,
    ToolResult,
    UnknownResult,
)

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
    if tool not in _INPUT_TYPES:  # only MCP tools return lists of content blocks, under any name
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

    Return None if no type matches the text.
    """
    tool = _ALIASES.get(tool, tool)
    body = text.strip()
    if body.startswith("<tool_use_error>") and body.endswith("</tool_use_error>"):
        return ErrorText(text=body[len("<tool_use_error>") : -len("</tool_use_error>")])
    if tool in ("KillShell", "TaskStop"):
        data = strip_reminders(text).encode("utf-8", "surrogatepass")
        result = _decode_first_fit(_OBJECT_TYPES[tool], data)
        return None if isinstance(result, UnknownResult) else result
    parse = TEXT_PARSERS.get(tool)
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


_NUMBERED_LINE = re.compile(r"\s*(-?[0-9]{1,9})(?:→|\t)(.*)")
_LEADING_REMINDER = re.compile(r"\A<system-reminder>.*?</system-reminder>\n*", re.DOTALL)
_PAST_END = re.compile(r"shorter than the provided offset \((-?\d{1,9})\)\. The file has (\d{1,9}) line")
_EMPTY_FILE = "Warning: the file exists but the contents are empty."
_UNCHANGED_NOTE = re.compile(r"(?:Wasted call . )?file unchanged since", re.IGNORECASE)

_EXIT_FIRST = re.compile(r"Exit code -?\d{1,9}(?:\n|\Z)")
_EXIT_LAST = re.compile(r"\n?\[Exit code: (-?\d{1,9})\]\s*\Z")
_BACKGROUND_NOTE = re.compile(r"Command [^:]{1,200}background[^:]{0,200}\bID: ([\w-]+)")
_PERSISTED_OUTPUT = re.compile(
    r"<persisted-output>\n.*?saved to: (\S[^\n]*)\n(?:\nPreview[^\n]*\n(.*?))?(?:\n\.\.\.)?\n?"
    r"</persisted-output>",
    re.DOTALL,
)
_ABORTED_NOTE = "<error>Command was aborted before completion</error>"
_CWD_RESET_NOTE = "Shell cwd was reset to "
_TIMESTAMP = re.compile(r"<timestamp>([^<]*)</timestamp>\s*\Z")
_NO_OUTPUT_NOTES = ("(Bash completed with no output)", "(no content)")

_TRUNCATION_NOTE = "(Results are truncated."
_FILES_HEADER = re.compile(r"Found (\d{1,9}) files?(?: limit: (\d{1,9}))?(?:,? offset: (\d{1,9}))?(?:\n|\Z)")
_COUNT_FOOTER = re.compile(r"\n\nFound (\d{1,9}) total occurrences? across (\d{1,9}) files?\.[^\n]*\Z")
_PAGE_FOOTER = re.compile(
    r"\n\n\[Showing results with pagination = "
    r"(?:limit: (\d{1,9}))?(?:, )?(?:offset: (\d{1,9}))?\]\s*\Z"
)

_AGENT_ID = re.compile(r"^agentId: ([\w-]+)", re.MULTILINE)
_OUTPUT_FILE = re.compile(r"^output_file: (\S[^\n]*)$", re.MULTILINE)
_USAGE_TAG = re.compile(r"<usage>([^<]*)</usage>\s*\Z")
_NAMED_COUNT = re.compile(r"(\w+): (\d{1,15})")


def strip_reminders(text: str) -> str:
    """Return `text` without the reminders that clients append to it."""
    while (body := text.rstrip()).endswith("</system-reminder>"):
        start = body.rfind("<system-reminder>")
        if start < 0 or (start and body[start - 1] != "\n"):
            break
        text = body[:start].rstrip("\n")
    return text


def _parse_read(text: str) -> ToolResult | None:
    lines = _LEADING_REMINDER.sub("", strip_reminders(text)).split("\n")
    first = _NUMBERED_LINE.match(lines[0])
    if first is None:
        if _UNCHANGED_NOTE.match(text):
            return results.ReadUnchanged(file=results.UnchangedFile())
        if past := _PAST_END.search(text):
            return ReadText(file=TextFile(start_line=int(past[1]), num_lines=0, total_lines=int(past[2])))
        return ReadText(file=TextFile(num_lines=0)) if _EMPTY_FILE in text else None
    start = int(first[1])
    content_lines: list[str] = []
    for line in lines:
        numbered = _NUMBERED_LINE.fullmatch(line)
        if numbered is None or int(numbered[1]) != start + len(content_lines):
            break  # a note after the file's lines
        content_lines.append(numbered[2])
    content = "\n".join(content_lines)
    return ReadText(file=TextFile(content=content, start_line=start, num_lines=len(content_lines)))


def _parse_bash(text: str) -> ToolResult | None:
    body = strip_reminders(text)
    if _EXIT_FIRST.match(body):
        return results.ErrorText(text=body)
    if body in _NO_OUTPUT_NOTES:
        return BashResult(stdout="")
    if persisted := _PERSISTED_OUTPUT.fullmatch(body):
        return BashResult(stdout=persisted[2] or "", persisted_output_path=persisted[1])
    printed, _, notice = body.rpartition("\n")
    if background := _BACKGROUND_NOTE.match(notice):
        return BashResult(stdout=printed, background_task_id=background[1])
    if notice.startswith(_CWD_RESET_NOTE):
        return BashResult(stdout=printed, stderr=notice)
    if ended := _EXIT_LAST.search(body):
        return BashResult(stdout=body[: ended.start()], exit_code=int(ended[1]))
    if body.endswith(_ABORTED_NOTE):
        return BashResult(stdout=body.removesuffix(_ABORTED_NOTE).rstrip("\n"), interrupted=True)
    return BashResult(stdout=body)


def _parse_bash_output(text: str) -> ToolResult | None:
    if text.startswith("<retrieval_status>"):
        return _parse_task_output(text)
    head = text.partition("<stdout>")[0].partition("<stderr>")[0]
    status = _find_tag("status", head)
    if status is None:
        return None
    timestamp = _TIMESTAMP.search(text)
    return results.BashOutputResult(
        status=status,
        exit_code=_parse_number(_find_tag("exit_code", head)),
        stdout=_find_tag("stdout", text) or "",
        stderr=_find_tag("stderr", text) or "",
        timestamp=timestamp[1] if timestamp else None,
    )


def _parse_task_output(text: str) -> ToolResult | None:
    head, mark, output = text.partition("<output>\n")
    retrieval = _find_tag("retrieval_status", head)
    if retrieval is None:
        return None
    task_id = _find_tag("task_id", head)
    task = task_id and results.BackgroundTask(
        task_id=task_id,
        task_type=_find_tag("task_type", head),
        status=_find_tag("status", head),
        exit_code=_parse_number(_find_tag("exit_code", head)),
        output=output.rpartition("</output>")[0] if mark else None,
    )
    return results.TaskOutputResult(retrieval_status=retrieval, task=task or None)


def _find_tag(name: str, text: str) -> str | None:
    matched = re.search(rf"^<{name}>\n?(.*?)\n?</{name}>$", text, re.DOTALL | re.MULTILINE)
    return matched[1] if matched else None


def _parse_number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"-?[0-9]{1,9}", text) else None


def _parse_glob(text: str) -> ToolResult | None:
    body = strip_reminders(text)
    if body == "No files found":
        return results.GlobResult(filenames=(), num_files=0)
    if body.startswith("<persisted-output>"):
        return None
    lines = [line for line in body.split("\n") if line]
    names = tuple(line for line in lines if not line.startswith(_TRUNCATION_NOTE))
    return results.GlobResult(filenames=names, num_files=len(names), truncated=len(names) < len(lines))


def _parse_grep(text: str) -> ToolResult | None:
    body = strip_reminders(text)
    if body == "No files found":
        return GrepResult(mode="files_with_matches", filenames=(), num_files=0)
    if matched := _FILES_HEADER.match(body):
        names = tuple(name for name in body[matched.end() :].split("\n") if name)
        return GrepResult(
            mode="files_with_matches",
            filenames=names,
            num_files=int(matched[1]),
            applied_limit=_parse_number(matched[2]),
            applied_offset=_parse_number(matched[3]),
        )
    if persisted := _PERSISTED_OUTPUT.fullmatch(body):
        return GrepResult(mode="content", filenames=(), content=persisted[2] or "")
    footer = _COUNT_FOOTER.search(body) or _PAGE_FOOTER.search(body)
    content = body[: footer.start()] if footer else body
    content = "" if content == "No matches found" else content
    if footer and footer.re is _COUNT_FOOTER:
        matches, files = int(footer[1]), int(footer[2])
        return GrepResult(mode="count", filenames=(), content=content, num_matches=matches, num_files=files)
    return GrepResult(
        mode="content",
        filenames=(),
        content=content,
        num_lines=content.count("\n") + 1 if content else 0,
        applied_limit=_parse_number(footer[1]) if footer else None,
        applied_offset=_parse_number(footer[2]) if footer else None,
    )


def _parse_agent(text: str) -> ToolResult | None:
    body = strip_reminders(text)
    ids = list(_AGENT_ID.finditer(body))
    agent_id = ids[-1][1] if ids else None
    if body.startswith("Async agent launched successfully"):
        file = _OUTPUT_FILE.search(body)
        return work.AgentResult(status="async_launched", agent_id=agent_id, output_file=file[1] if file else None)
    answer = body[: ids[-1].start()].removesuffix("\n") if ids else body
    if not answer and agent_id is None:
        return None
    usage = _USAGE_TAG.search(body)
    counts = {name: int(value) for name, value in _NAMED_COUNT.findall(usage[1])} if usage else {}
    return work.AgentResult(
        agent_id=agent_id,
        content=(results.ContentBlock(type="text", text=answer),),
        total_tokens=counts.get("total_tokens", counts.get("subagent_tokens")),
        total_tool_use_count=counts.get("tool_uses"),
        total_duration_ms=counts.get("duration_ms"),
    )


TEXT_PARSERS: dict[str, Callable[[str], ToolResult | None]] = {
    "Agent": _parse_agent,
    "Bash": _parse_bash,
    "BashOutput": _parse_bash_output,
    "Glob": _parse_glob,
    "Grep": _parse_grep,
    "PowerShell": _parse_bash,
    "Read": _parse_read,
    "TaskOutput": _parse_task_output,
}
"""The parsers by tool, none of which raises."""
