"""Parse structured results from the text sent to the model, for transcripts that do not record them.

A parser returns None if the text contains no facts. Start at `TEXT_PARSERS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from toolspan.formats.claude import results
from toolspan.formats.claude.results import BashResult, GrepResult, ReadText, TextFile, ToolResult
from toolspan.formats.claude.work_results import AgentResult

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
        return AgentResult(status="async_launched", agent_id=agent_id, output_file=file[1] if file else None)
    answer = body[: ids[-1].start()].removesuffix("\n") if ids else body
    if not answer and agent_id is None:
        return None
    usage = _USAGE_TAG.search(body)
    counts = {name: int(value) for name, value in _NAMED_COUNT.findall(usage[1])} if usage else {}
    return AgentResult(
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
