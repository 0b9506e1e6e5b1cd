"""Tool results as the client writes them, for `TranscriptBuilder.result`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from toolspan.runtime.profiles import Profile, profile


def version_numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers, for comparison."""
    return tuple(map(int, version.split(".")))


def client_profile(version: str) -> Profile:
    """Return a profile that records like a client version."""
    return next(client for since, client in _CLIENTS if version_numbers(version) >= since)


def _make_clients() -> list[tuple[tuple[int, ...], Profile]]:
    """Return the clients whose records differ, newest first, each with its first version."""
    newest, oldest = profile("2.1.327"), profile("2.0.65")
    in_between = replace(
        newest,
        shape=replace(
            newest.shape,
            turn_position=False,
            rendered=False,
            blocks_numbered=False,
            decisions=False,
            turn_companions=False,
        ),
    )
    older = replace(
        in_between,
        files=replace(oldest.files, snippet=False),
        shape=replace(
            in_between.shape,
            prompt_source=False,
            hooks="progress",
            final_stop=False,
            times_rise=True,
            last_prompt="words",
        ),
    )
    return [((2, 1, 325), newest), ((2, 1, 197), in_between), ((2, 1, 80), older), ((), oldest)]


_CLIENTS = _make_clients()


def project_name(cwd: str) -> str:
    """Return the name of a project's folder: its path with other characters replaced by dashes."""
    return re.sub(r"[^A-Za-z0-9]", "-", cwd)


Denial = Literal["user-rejected", "permission-rule", "interrupted"]
Blocks = Sequence[Mapping[str, object]]

CURRENT = "2.1.327"
REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was"
    " a file edit, the new_string was NOT written to the file)."
)
STOP = " STOP what you are doing and wait for the user to tell you how to proceed."
SESSION_ENDED = (
    "[Tool call interrupted: the session ended before this call's result was recorded, so its"
    " outcome is unknown. Check whether it took effect before relying on it or running it again.]"
)
_CONTEXT_LINES = 3
_SNIPPET_LINES = 4
_INLINE_LIMIT = 30_000
_PREVIEW_LIMIT = 2_000


@dataclass(frozen=True, kw_only=True)
class Body:
    """A result: the content for the model, and the structured result."""

    content: str | Blocks
    structured: object = None
    """The structured result; None omits it, or repeats the message of an error."""
    is_error: bool | None = None
    """The error flag; None omits it, as in most successful results."""
    denial: Denial | None = None
    decision: Mapping[str, object] | None = None
    """The recorded permission decision, if it is not the default."""


def refused(text: str) -> Body:
    """Return a refusal before the tool ran: unknown tool, invalid input, or inapplicable edit."""
    return Body(content=f"<tool_use_error>{text}</tool_use_error>", structured=f"Error: {text}", is_error=True)


def failed(text: str) -> Body:
    """Return an error raised by a running tool."""
    return Body(content=text, structured=f"Error: {text}", is_error=True)


def rejected(message: str | None = None) -> Body:
    """Return a rejection by the user, optionally with a message."""
    end = f" To tell you how to proceed, the user said:\n{message}" if message else STOP
    return Body(
        content=REJECTED + end,
        structured="User rejected tool use",
        is_error=True,
        denial="user-rejected",
        decision={"decision": "reject", "source": "user_reject"},
    )


def denied_by_rule(command: str) -> Body:
    """Return a denial by a permission rule."""
    return _denied_result(
        f"Permission to use Bash with command {command} has been denied.",
        source="config",
        reasonType="rule",
        ruleSource="projectSettings",
        reasonCode="rule:projectSettings",
    )


def blocked_by_hook(tool: str, command: str, reason: str) -> Body:
    """Return a denial by a PreToolUse hook with exit code 2."""
    return _denied_result(
        f"PreToolUse:{tool} hook error: [{command}]: {reason}\n",
        source="hook",
        reasonType="hook",
        reasonCode="hook:PreToolUse",
    )


def _denied_result(text: str, **why: str) -> Body:
    """Return a denial; `why` adds keys that are recorded with it."""
    decision = {"decision": "reject", **why}
    return replace(failed(text), denial="permission-rule", decision=decision)


def ran(output: str = "", *, version: str = CURRENT, **companion: object) -> Body:
    """Return the result of a successful command; `companion` adds keys to the structured result."""
    client = client_profile(version)
    structured: dict[str, object] = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False}
    if client.shell.expects_output:
        structured["noOutputExpected"] = False
    return Body(
        content=output or client.messages.no_output.format(name="Bash"),
        structured=structured | companion,
        is_error=False,
    )


def exited(code: int, output: str = "") -> Body:
    """Return the result of a command with a nonzero exit code."""
    return failed(f"Exit code {code}\n{output}".rstrip("\n"))


def timed_out(limit: str) -> Body:
    """Return the result of a command killed at its time limit, such as `2m 0s`."""
    return exited(143, f"Command timed out after {limit}")


def in_background(task: str, output_file: str) -> Body:
    """Return the result of a command that runs in the background."""
    text = f"Command running in background with ID: {task}."
    message = f"{text} Output is being written to: {output_file}."
    return replace(ran("", backgroundTaskId=task), content=message)


def spilled(output: str, path: str) -> Body:
    """Return the result of a command whose output was saved to `path`."""
    size = len(output.encode())
    preview = output[:_PREVIEW_LIMIT].rpartition("\n")[0]
    text = (
        f"Output too large ({size / 1024:.1f}KB). Full output saved to: {path}\n\nPreview (first 2KB):\n{preview}\n..."
    )
    inline = ran(output[:_INLINE_LIMIT], persistedOutputPath=path, persistedOutputSize=size)
    return replace(inline, content=f"<persisted-output>\n{text}\n</persisted-output>")


def read(path: str, text: str, *, offset: int = 1, limit: int = 0, version: str = CURRENT) -> Body:
    """Return numbered lines of a file from `offset`, at most `limit` (0 means all)."""
    lines = text.split("\n")
    part = lines[offset - 1 :][: limit or None]
    return Body(
        content=_number_lines(part, offset, arrows=client_profile(version).files.numbering == "arrow"),
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


def edited(path: str, before: str, old: str, new: str, *, every: bool = False, version: str = CURRENT) -> Body:
    """Return the result of an edit to a file whose content is `before`."""
    if old not in before:
        raise ValueError(f"{path} does not contain {old!r}")
    after = before.replace(old, new, -1 if every else 1)
    if every:
        text = f"The file {path} has been updated. All occurrences were successfully replaced."
    else:
        text = _updated_message(path, before, after, version)
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
    """Return the result of a Write; `before` is None for a new file."""
    if before is None:
        message = f"File created successfully at: {path}{_state_note(version)}"
    else:
        message = _updated_message(path, before, text, version)
    return Body(
        content=message,
        structured={
            "type": "create" if before is None else "update",
            "filePath": path,
            "content": text,
            "structuredPatch": [] if before is None else hunks(before, text),
            "originalFile": before,
        },
    )


def found_files(names: Sequence[str]) -> Body:
    """Return the result of a Grep that lists files."""
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
    """Return the result of a Grep that shows lines, each as `path:line:text`."""
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
    """Return the result of a Glob."""
    return Body(
        content="\n".join(names) or "No files found",
        structured={"filenames": list(names), "durationMs": took_ms, "numFiles": len(names), "truncated": False},
    )


def mcp_text(*texts: str) -> Body:
    """Return text blocks from an MCP tool."""
    blocks = [{"type": "text", "text": text} for text in texts]
    return Body(content=blocks, structured=blocks)


def reported(agent_id: str, report: str, *, prompt: str, calls: int, took_ms: int, version: str = CURRENT) -> Body:
    """Return the report of a subagent."""
    tokens = 1_500 * (calls + 1)
    usage = f"tool_uses: {calls}\nduration_ms: {took_ms}</usage>"
    trailer = f"agentId: {agent_id}\n<usage>total_tokens: {tokens}\n{usage}"
    blocks = [{"type": "text", "text": report}]
    content: Blocks = blocks
    if client_profile(version).shape.blocks_numbered:
        indented = "\n".join(f"  {line}" for line in report.splitlines())
        frame = trailer.replace("total_tokens", "subagent_tokens")
        content = [{"type": "text", "text": f"The report follows:\n{indented}\n{frame}"}]
    elif agent_id:
        content = [*blocks, {"type": "text", "text": trailer}]
    structured: dict[str, object] = {
        "status": "completed",
        "prompt": prompt,
        **({"agentId": agent_id} if agent_id else {}),
        "content": blocks,
        "totalDurationMs": took_ms,
        "totalTokens": tokens,
        "totalToolUseCount": calls,
    }
    return Body(content=content, structured=structured)


def launched(agent_id: str, *, description: str, prompt: str, output_file: str) -> Body:
    """Return the result of starting a background subagent."""
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
    """Return the structured patch between two strings, with three lines of context."""
    old, new = before.splitlines(), after.splitlines()
    patch: list[dict[str, object]] = []
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_CONTEXT_LINES):
        lines: list[str] = []
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                lines += (f" {line}" for line in old[old_from:old_to])
            else:
                lines += (f"-{line}" for line in old[old_from:old_to])
                lines += (f"+{line}" for line in new[new_from:new_to])
        (_, old_start, _, new_start, _), (_, _, old_end, _, new_end) = group[0], group[-1]
        patch.append({
            "oldStart": old_start + 1,
            "oldLines": old_end - old_start,
            "newStart": new_start + 1,
            "newLines": new_end - new_start,
            "lines": lines,
        })  # fmt: skip
    return patch


def _updated_message(path: str, before: str, after: str, version: str) -> str:
    if not client_profile(version).files.snippet:
        return f"The file {path} has been updated successfully.{_state_note(version)}"
    old, new = before.split("\n"), after.split("\n")
    first = next((n for n, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), 0)
    start = max(0, first - _SNIPPET_LINES)
    end = first + max(1, len(new) - len(old) + 1) + _SNIPPET_LINES
    return (
        f"The file {path} has been updated. Here's the result of running `cat -n` on a snippet of"
        f" the edited file:\n{_number_lines(new[start:end], start + 1, arrows=True)}"
    )


def _state_note(version: str) -> str:
    if version_numbers(version) >= (2, 1, 197):
        return " (file state is current in your context — no need to Read it back)"
    return ""


def _number_lines(lines: Sequence[str], first: int, *, arrows: bool) -> str:
    form = "{:6d}→{}" if arrows else "{}\t{}"
    return "\n".join(form.format(first + n, line) for n, line in enumerate(lines))
