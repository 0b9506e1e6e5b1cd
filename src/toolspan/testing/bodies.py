"""What tools give back, in the clients' words: results to put into a made transcript.

In: what a tool did (a file's text, a command's output). Out: a `Body`, the text the model reads
with its structured companion, to hand to `TranscriptBuilder.result`. Texts are those the clients
write; where versions differ, `version` chooses. Pure functions; no file is touched.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from toolspan.testing.shape import shape_of

Denial = Literal["user-rejected", "permission-rule", "interrupted"]
"""The denial kinds a client records."""
Blocks = Sequence[Mapping[str, object]]
"""Content blocks, as a message holds them."""

CURRENT = "2.1.325"
"""The version whose words are used when none is named."""
REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was"
    " a file edit, the new_string was NOT written to the file)."
)
STOP = " STOP what you are doing and wait for the user to tell you how to proceed."
SESSION_ENDED = (
    "[Tool call interrupted: the session ended before this call's result was recorded, so its"
    " outcome is unknown. Check whether it took effect before relying on it or running it again.]"
)
_CONTEXT = 3
_SNIPPET = 4
_INLINE_LIMIT = 30_000
_PREVIEW = 2_000


@dataclass(frozen=True, kw_only=True)
class Body:
    """One result: what the model reads, and what stands beside it."""

    content: str | Blocks
    structured: object = None
    """The companion object; None leaves it out, or makes it of the text when it is an error."""
    is_error: bool | None = None
    """None leaves the flag out, as most successes do."""
    denial: Denial | None = None
    decision: Mapping[str, object] | None = None
    """What the client records about consent, when it is not the usual."""


def refused(text: str) -> Body:
    """Refused before it ran: unknown tool, input that does not fit, edit that does not apply."""
    return Body(
        content=f"<tool_use_error>{text}</tool_use_error>",
        structured=f"Error: {text}",
        is_error=True,
    )


def failed(text: str) -> Body:
    """An error that the running tool reported."""
    return Body(content=text, structured=f"Error: {text}", is_error=True)


def rejected(said: str | None = None) -> Body:
    """The person said no, perhaps with a few words on how to go on."""
    end = f" To tell you how to proceed, the user said:\n{said}" if said else STOP
    return Body(
        content=REJECTED + end,
        structured="User rejected tool use",
        is_error=True,
        denial="user-rejected",
        decision={"decision": "reject", "source": "user_reject"},
    )


def denied_by_rule(command: str) -> Body:
    """A permission rule said no to a command."""
    return _denied(
        f"Permission to use Bash with command {command} has been denied.",
        source="config",
        reasonType="rule",
        ruleSource="projectSettings",
        reasonCode="rule:projectSettings",
    )


def blocked_by_hook(tool: str, command: str, reason: str) -> Body:
    """A PreToolUse hook ended with exit code 2; its words are the reason."""
    return _denied(
        f"PreToolUse:{tool} hook error: [{command}]: {reason}\n",
        source="hook",
        reasonType="hook",
        reasonCode="hook:PreToolUse",
    )


def _denied(text: str, **why: str) -> Body:
    """Not allowed by the rules of the project; further keys say why, as the client records it."""
    decision = {"decision": "reject", **why}
    return replace(failed(text), denial="permission-rule", decision=decision)


def ran(output: str = "", *, version: str = CURRENT, **companion: object) -> Body:
    """A command that ended well; further keys go into its companion."""
    quiet = "" if shape_of(version).snippets else "(Bash completed with no output)"
    structured: dict[str, object] = {
        "stdout": output,
        "stderr": "",
        "interrupted": False,
        "isImage": False,
    }
    if not shape_of(version).snippets:
        structured["noOutputExpected"] = False
    return Body(content=output or quiet, structured=structured | companion, is_error=False)


def exited(code: int, output: str = "") -> Body:
    """A command that ended with an exit code other than 0."""
    return failed(f"Exit code {code}\n{output}".rstrip("\n"))


def timed_out(limit: str) -> Body:
    """A command killed at its limit, which is written as the client does: `2m 0s`."""
    return exited(143, f"Command timed out after {limit}")


def in_background(task: str, output_file: str) -> Body:
    """A command that goes on in the background."""
    text = f"Command running in background with ID: {task}."
    words = f"{text} Output is being written to: {output_file}."
    return replace(ran("", backgroundTaskId=task), content=words)


def spilled(output: str, path: str) -> Body:
    """A command that printed more than is shown; `path` is where all of it was saved."""
    size = len(output.encode())
    preview = output[:_PREVIEW].rpartition("\n")[0]
    text = (
        f"Output too large ({size / 1024:.1f}KB). Full output saved to: {path}\n\n"
        f"Preview (first 2KB):\n{preview}\n..."
    )
    shown = ran(output[:_INLINE_LIMIT], persistedOutputPath=path, persistedOutputSize=size)
    return replace(shown, content=f"<persisted-output>\n{text}\n</persisted-output>")


def read(path: str, text: str, *, offset: int = 1, limit: int = 0, version: str = CURRENT) -> Body:
    """The lines of a file, numbered; from `offset` on, at most `limit` of them (0: all)."""
    lines = text.split("\n")
    part = lines[offset - 1 :][: limit or None]
    return Body(
        content=_numbered(part, offset, arrows=shape_of(version).arrows),
        structured={
            "type": "text",
            "file": {
                "filePath": path,
                "content": "\n".join(part),
                "numLines": len(part),
                "startLine": offset,
                "totalLines": len(lines),
            },
        },
    )


def edited(
    path: str, before: str, old: str, new: str, *, every: bool = False, version: str = CURRENT
) -> Body:
    """An edit of a file whose text was `before`.

    Raises:
        ValueError: `old` is not in the file: such an edit would have been refused.
    """
    if old not in before:
        raise ValueError(f"{path} does not contain {old!r}")
    after = before.replace(old, new, -1 if every else 1)
    if every:
        text = f"The file {path} has been updated. All occurrences were successfully replaced."
    else:
        text = _updated(path, before, after, version)
    return Body(
        content=text,
        structured={
            "filePath": path,
            "oldString": old,
            "newString": new,
            "originalFile": before,
            "structuredPatch": hunks(before, after),
            "userModified": False,
            "replaceAll": every,
        },
    )


def written(path: str, text: str, *, before: str | None = None, version: str = CURRENT) -> Body:
    """A file written whole; `before` is what it held, None when it is new."""
    if before is None:
        words = f"File created successfully at: {path}{_state_note(version)}"
    else:
        words = _updated(path, before, text, version)
    return Body(
        content=words,
        structured={
            "type": "create" if before is None else "update",
            "filePath": path,
            "content": text,
            "structuredPatch": [] if before is None else hunks(before, text),
            "originalFile": before,
        },
    )


def found_files(names: Sequence[str]) -> Body:
    """A Grep that lists files."""
    count = f"Found {len(names)} file{'' if len(names) == 1 else 's'}"
    return Body(
        content="\n".join([count, *names]) if names else "No files found",
        structured={
            "mode": "files_with_matches",
            "filenames": list(names),
            "numFiles": len(names),
            "totalFiles": len(names),
        },
    )


def found_lines(lines: Sequence[str]) -> Body:
    """A Grep that shows lines, each as `path:line:text`."""
    return Body(
        content="\n".join(lines) or "No matches found",
        structured={
            "mode": "content",
            "numFiles": 0,
            "filenames": [],
            "content": "\n".join(lines),
            "numLines": len(lines),
        },
    )


def matched_paths(names: Sequence[str], *, took_ms: int) -> Body:
    """A Glob."""
    return Body(
        content="\n".join(names) or "No files found",
        structured={
            "filenames": list(names),
            "durationMs": took_ms,
            "numFiles": len(names),
            "truncated": False,
        },
    )


def mcp_text(*texts: str) -> Body:
    """Text blocks from an MCP server."""
    blocks = [{"type": "text", "text": text} for text in texts]
    return Body(content=blocks, structured=blocks)


def reported(
    agent_id: str, report: str, *, prompt: str, calls: int, took_ms: int, version: str = CURRENT
) -> Body:
    """What a subagent told the one who started it."""
    shape = shape_of(version)
    tokens = 1_500 * (calls + 1)
    usage = f"tool_uses: {calls}\nduration_ms: {took_ms}</usage>"
    trailer = f"agentId: {agent_id}\n<usage>total_tokens: {tokens}\n{usage}"
    blocks = [{"type": "text", "text": report}]
    told: Blocks = blocks
    if shape.blocks_numbered:
        indented = "\n".join(f"  {line}" for line in report.splitlines())
        frame = trailer.replace("total_tokens", "subagent_tokens")
        told = [{"type": "text", "text": f"The report follows:\n{indented}\n{frame}"}]
    elif agent_id:
        told = [*blocks, {"type": "text", "text": trailer}]
    structured: dict[str, object] = {
        "status": "completed",
        "prompt": prompt,
        **({"agentId": agent_id} if agent_id else {}),
        "content": blocks,
        "totalDurationMs": took_ms,
        "totalTokens": tokens,
        "totalToolUseCount": calls,
    }
    return Body(content=told, structured=structured)


def launched(agent_id: str, *, description: str, prompt: str, output_file: str) -> Body:
    """A subagent that works in the background."""
    return Body(
        content=[{"type": "text", "text": "Async agent launched successfully."}],
        structured={
            "isAsync": True,
            "status": "async_launched",
            "agentId": agent_id,
            "description": description,
            "prompt": prompt,
            "outputFile": output_file,
            "canReadOutputFile": True,
        },
    )


def hunks(before: str, after: str) -> list[dict[str, object]]:
    """The structured patch between two texts, with three lines of context."""
    old, new = before.splitlines(), after.splitlines()
    groups = difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_CONTEXT)
    return [_hunk(old, new, group) for group in groups]


def _hunk(
    old: list[str], new: list[str], group: list[tuple[str, int, int, int, int]]
) -> dict[str, object]:
    lines: list[str] = []
    for tag, old_from, old_to, new_from, new_to in group:
        if tag == "equal":
            lines += (f" {line}" for line in old[old_from:old_to])
        else:
            lines += (f"-{line}" for line in old[old_from:old_to])
            lines += (f"+{line}" for line in new[new_from:new_to])
    first, last = group[0], group[-1]
    return {
        "oldStart": first[1] + 1,
        "oldLines": last[2] - first[1],
        "newStart": first[3] + 1,
        "newLines": last[4] - first[3],
        "lines": lines,
    }


def _updated(path: str, before: str, after: str, version: str) -> str:
    if not shape_of(version).snippets:
        return f"The file {path} has been updated successfully.{_state_note(version)}"
    snippet = _snippet(before, after)
    return (
        f"The file {path} has been updated. Here's the result of running `cat -n` on a snippet of"
        f" the edited file:\n{snippet}"
    )


def _state_note(version: str) -> str:
    if shape_of(version).final_stop:
        return " (file state is current in your context — no need to Read it back)"
    return ""


def _snippet(before: str, after: str) -> str:
    """The changed lines of a file with a few around them, numbered."""
    old, new = before.split("\n"), after.split("\n")
    first = next((n for n, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), 0)
    start = max(0, first - _SNIPPET)
    end = first + max(1, len(new) - len(old) + 1) + _SNIPPET
    return _numbered(new[start:end], start + 1, arrows=True)


def _numbered(lines: Sequence[str], first: int, *, arrows: bool) -> str:
    form = "{:6d}→{}" if arrows else "{}\t{}"
    return "\n".join(form.format(first + n, line) for n, line in enumerate(lines))
