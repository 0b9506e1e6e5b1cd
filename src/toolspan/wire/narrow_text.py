"""Structured results from the text that the model got.

In: the text of a result, from transcripts that keep no structured companion (subagents of many
client versions). Out: the same structs that `claude_results.py` has for the companion, filled with
what the text states and no more; None when it states nothing a struct could hold.

Knows no bytes and no JSON: that is `narrow.py`, which also picks the parser. Read `PARSERS` first.
"""

import re
from collections.abc import Callable

from toolspan.wire.claude_results import (
    BackgroundTask,
    BashOutputResult,
    BashResult,
    Block,
    ErrorText,
    GlobResult,
    GrepResult,
    ReadText,
    ReadUnchanged,
    TaskOutputResult,
    TextFile,
    ToolResult,
    UnchangedFile,
)
from toolspan.wire.claude_work_results import AgentResult

_NUMBERED = re.compile(r"\s*(-?[0-9]{1,9})(?:→|\t)(.*)")
_LEADING_REMINDER = re.compile(r"\A<system-reminder>.*?</system-reminder>\n*", re.DOTALL)
_PAST_END = re.compile(
    r"shorter than the provided offset \((-?\d{1,9})\)\. The file has (\d{1,9}) line"
)
_EMPTY_FILE = "Warning: the file exists but the contents are empty."
_UNCHANGED = re.compile(r"(?:Wasted call . )?file unchanged since", re.IGNORECASE)

_EXIT_FIRST = re.compile(r"Exit code -?\d{1,9}(?:\n|\Z)")
_EXIT_LAST = re.compile(r"\n?\[Exit code: (-?\d{1,9})\]\s*\Z")
_BACKGROUND = re.compile(r"Command [^:]{1,200}background[^:]{0,200}\bID: ([\w-]+)")
_PERSISTED = re.compile(
    r"<persisted-output>\n.*?saved to: (\S[^\n]*)\n(?:\nPreview[^\n]*\n(.*?))?(?:\n\.\.\.)?\n?"
    r"</persisted-output>",
    re.DOTALL,
)
_ABORTED = "<error>Command was aborted before completion</error>"
_CWD_RESET = "Shell cwd was reset to "
_TIMESTAMP = re.compile(r"<timestamp>([^<]*)</timestamp>\s*\Z")
_NO_OUTPUT = ("(Bash completed with no output)", "(no content)")

_TRUNCATED = "(Results are truncated."
_FOUND = re.compile(
    r"Found (\d{1,9}) files?(?: limit: (\d{1,9}))?(?:,? offset: (\d{1,9}))?(?:\n|\Z)"
)
_COUNTED = re.compile(r"\n\nFound (\d{1,9}) total occurrences? across (\d{1,9}) files?\.[^\n]*\Z")
_PAGED = re.compile(
    r"\n\n\[Showing results with pagination = "
    r"(?:limit: (\d{1,9}))?(?:, )?(?:offset: (\d{1,9}))?\]\s*\Z"
)

_AGENT_ID = re.compile(r"^agentId: ([\w-]+)", re.MULTILINE)
_OUTPUT_FILE = re.compile(r"^output_file: (\S[^\n]*)$", re.MULTILINE)
_USAGE = re.compile(r"<usage>([^<]*)</usage>\s*\Z")
_COUNT = re.compile(r"(\w+): (\d{1,15})")


def without_reminders(text: str) -> str:
    """The text without the notes that clients append to it."""
    while (body := text.rstrip()).endswith("</system-reminder>"):
        start = body.rfind("<system-reminder>")
        if start < 0 or (start and body[start - 1] != "\n"):
            break
        text = body[:start].rstrip("\n")
    return text


def _read(text: str) -> ToolResult | None:
    lines = _LEADING_REMINDER.sub("", without_reminders(text)).split("\n")
    first = _NUMBERED.match(lines[0])
    if first is None:
        return _read_nothing(text)
    start = int(first[1])
    found: list[str] = []
    for line in lines:
        numbered = _NUMBERED.fullmatch(line)
        if numbered is None or int(numbered[1]) != start + len(found):
            break  # a note below the lines
        found.append(numbered[2])
    content = "\n".join(found)
    return ReadText(file=TextFile(content=content, start_line=start, num_lines=len(found)))


def _read_nothing(text: str) -> ToolResult | None:
    if _UNCHANGED.match(text):
        return ReadUnchanged(file=UnchangedFile())
    if past := _PAST_END.search(text):
        offset, total = int(past[1]), int(past[2])
        return ReadText(file=TextFile(start_line=offset, num_lines=0, total_lines=total))
    if _EMPTY_FILE in text:
        return ReadText(file=TextFile(num_lines=0))
    return None


def _bash(text: str) -> ToolResult | None:
    body = without_reminders(text)
    if _EXIT_FIRST.match(body):
        return ErrorText(text=body)
    if body in _NO_OUTPUT:
        return BashResult(stdout="")
    if persisted := _PERSISTED.fullmatch(body):
        return BashResult(stdout=persisted[2] or "", persisted_output_path=persisted[1])
    printed, _, notice = body.rpartition("\n")
    if background := _BACKGROUND.match(notice):
        return BashResult(stdout=printed, background_task_id=background[1])
    if notice.startswith(_CWD_RESET):
        return BashResult(stdout=printed, stderr=notice)
    if ended := _EXIT_LAST.search(body):
        return BashResult(stdout=body[: ended.start()], exit_code=int(ended[1]))
    if body.endswith(_ABORTED):
        return BashResult(stdout=body.removesuffix(_ABORTED).rstrip("\n"), interrupted=True)
    return BashResult(stdout=body)


def _bash_output(text: str) -> ToolResult | None:
    if text.startswith("<retrieval_status>"):
        return _task_output(text)
    head = text.partition("<stdout>")[0].partition("<stderr>")[0]
    status = _tag("status", head)
    if status is None:
        return None
    timestamp = _TIMESTAMP.search(text)
    return BashOutputResult(
        status=status,
        exit_code=_number(_tag("exit_code", head)),
        stdout=_tag("stdout", text) or "",
        stderr=_tag("stderr", text) or "",
        timestamp=timestamp[1] if timestamp else None,
    )


def _task_output(text: str) -> ToolResult | None:
    head, mark, output = text.partition("<output>\n")
    retrieval = _tag("retrieval_status", head)
    if retrieval is None:
        return None
    task_id = _tag("task_id", head)
    task = task_id and BackgroundTask(
        task_id=task_id,
        task_type=_tag("task_type", head),
        status=_tag("status", head),
        exit_code=_number(_tag("exit_code", head)),
        output=output.rpartition("</output>")[0] if mark else None,
    )
    return TaskOutputResult(retrieval_status=retrieval, task=task or None)


def _tag(name: str, text: str) -> str | None:
    found = re.search(rf"^<{name}>\n?(.*?)\n?</{name}>$", text, re.DOTALL | re.MULTILINE)
    return found[1] if found else None


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"-?[0-9]{1,9}", text) else None


def _glob(text: str) -> ToolResult | None:
    body = without_reminders(text)
    if body == "No files found":
        return GlobResult(filenames=(), num_files=0)
    if body.startswith("<persisted-output>"):
        return None
    lines = [line for line in body.split("\n") if line]
    names = tuple(line for line in lines if not line.startswith(_TRUNCATED))
    return GlobResult(filenames=names, num_files=len(names), truncated=len(names) < len(lines))


def _grep(text: str) -> ToolResult | None:
    body = without_reminders(text)
    if body == "No files found":
        return GrepResult(mode="files_with_matches", filenames=(), num_files=0)
    if found := _FOUND.match(body):
        names = tuple(name for name in body[found.end() :].split("\n") if name)
        return GrepResult(
            mode="files_with_matches",
            filenames=names,
            num_files=int(found[1]),
            applied_limit=_number(found[2]),
            applied_offset=_number(found[3]),
        )
    if counted := _COUNTED.search(body):
        return GrepResult(
            mode="count",
            filenames=(),
            content=_matches(body[: counted.start()]),
            num_matches=int(counted[1]),
            num_files=int(counted[2]),
        )
    return _grep_content(body)


def _grep_content(body: str) -> GrepResult:
    if persisted := _PERSISTED.fullmatch(body):
        return GrepResult(mode="content", filenames=(), content=persisted[2] or "")
    paged = _PAGED.search(body)
    content = _matches(body[: paged.start()] if paged else body)
    return GrepResult(
        mode="content",
        filenames=(),
        content=content,
        num_lines=content.count("\n") + 1 if content else 0,
        applied_limit=_number(paged[1]) if paged else None,
        applied_offset=_number(paged[2]) if paged else None,
    )


def _matches(body: str) -> str:
    return "" if body == "No matches found" else body


def _agent(text: str) -> ToolResult | None:
    body = without_reminders(text)
    ids = list(_AGENT_ID.finditer(body))
    agent_id = ids[-1][1] if ids else None
    if body.startswith("Async agent launched successfully"):
        file = _OUTPUT_FILE.search(body)
        return AgentResult(
            status="async_launched", agent_id=agent_id, output_file=file[1] if file else None
        )
    answer = body[: ids[-1].start()].removesuffix("\n") if ids else body
    if not answer and agent_id is None:
        return None
    usage = _USAGE.search(body)
    counts = {name: int(value) for name, value in _COUNT.findall(usage[1])} if usage else {}
    return AgentResult(
        agent_id=agent_id,
        content=(Block(type="text", text=answer),),
        total_tokens=counts.get("total_tokens", counts.get("subagent_tokens")),
        total_tool_use_count=counts.get("tool_uses"),
        total_duration_ms=counts.get("duration_ms"),
    )


PARSERS: dict[str, Callable[[str], ToolResult | None]] = {
    "Agent": _agent,
    "Bash": _bash,
    "BashOutput": _bash_output,
    "Glob": _glob,
    "Grep": _grep,
    "PowerShell": _bash,
    "Read": _read,
    "TaskOutput": _task_output,
}
"""What understands a tool's text; none of them raises."""
