"""A structured result in a few words, and what an edit changed.

In: a span or its structured result. Out: text; empty or None where there is nothing short to say.
"""

from toolspan.cli.output import count
from toolspan.errors import SourceError
from toolspan.model.span import Span
from toolspan.patch import Change, added_removed, problems, unified
from toolspan.wire import claude_results as results
from toolspan.wire import claude_work_results as work

_EDITS = (results.EditResult, results.MultiEditResult, results.WriteResult)


def summary(span: Span) -> str:
    """The structured result in a few words; empty where it has nothing short to say."""
    if span.result is None or span.result.is_error:
        return ""
    try:
        return summary_of(span.result.structured)
    except SourceError:
        return ""


def summary_of(structured: object) -> str:
    """A structured result in a few words."""
    return _files_summary(structured) or _work_summary(structured)


def _files_summary(structured: object) -> str:
    match structured:
        case (
            results.EditResult(structured_patch=hunks)
            | results.MultiEditResult(structured_patch=hunks)
            | results.WriteResult(structured_patch=(_, *_) as hunks)
        ):
            added, removed = added_removed(hunks)
            return f"+{added} −{removed}"
        case results.WriteResult(content=str(content)):
            return f"new, {count(len(content.splitlines()), 'line')}"
        case results.ReadText(file=results.TextFile(num_lines=int(some), total_lines=int(every))):
            lines = count(every, "line")
            return f"{some:,} of {lines}" if some < every else lines
        case results.GrepResult(mode="content", num_lines=int(lines)):
            return count(lines, "line")
        case results.GlobResult() | results.GrepResult():
            return count(structured.num_files or len(structured.filenames), "file")
        case _:
            return ""


def _work_summary(structured: object) -> str:
    match structured:
        case results.BashResult(stdout=stdout, stderr=stderr):
            lines = len(stdout.splitlines()) + len(stderr.splitlines())
            said = structured.return_code_interpretation
            return said or (count(lines, "line") if lines else "no output")
        case work.AgentResult():
            calls, tokens = structured.total_tool_use_count, structured.total_tokens
            told = [count(n, noun) for n, noun in ((calls, "call"), (tokens, "token")) if n]
            return "sent off" if structured.launched else ", ".join(told)
        case work.TodoResult(new_todos=todos):
            return f"{sum(item.status == 'completed' for item in todos)}/{len(todos)} done"
        case work.WebFetchResult(code=int(code)):
            return f"HTTP {code}"
        case results.TaskOutputResult(task=results.BackgroundTask(status=str(status))):
            return status
        case _:
            return ""


def diff_of(structured: object) -> str | None:
    """What an edit changed, as a diff or the reason why there is none; None for other results."""
    if not isinstance(structured, _EDITS):
        return None
    hunks = structured.structured_patch
    unsound = problems(hunks)
    if unsound:
        return "The recorded patch is not sound: " + " ".join(unsound[:3])
    change: Change = "create" if getattr(structured, "type", "") == "create" else "update"
    return unified(hunks, structured.file_path, change=change) or None
