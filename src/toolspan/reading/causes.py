"""The cause of a failed call: the program that failed, the line of its output that best explains it, and a stable id.

Calls with the same cause form a group in `toolspan errors`. The id is a hash of the program and of the line with
paths, numbers, ids, quoted names and dates replaced, so that it depends neither on other calls nor on their order.
Start at `find_cause`.
"""

from __future__ import annotations

import hashlib
import re

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.formats.pairing import PROCESS_RULE, command_line
from toolspan.formats.registry import get_format
from toolspan.reading.key_lines import (
    FIRST_EXIT_LINE,
    LAST_EXIT_LINE,
    MAX_CAUSE_TEXT,
    KeyLine,
    find_key_line,
    normalize_line,
)
from toolspan.types.error_kinds import ErrorKind, find_sandbox_note, unwrap_error_text
from toolspan.types.span import Notification, Span
from toolspan.types.state import OPEN_STATES


class Cause(Struct, frozen=True, kw_only=True, gc=False):
    """The program and message behind a failed call. Calls with the same cause form a group."""

    group: str
    """The id of the group: the same for all calls with this cause."""
    program: str | None
    """The program that failed, for commands."""
    text: str | None
    """The line of the output that best explains the failure, as written."""


def find_cause(span: Span) -> Cause | None:
    """Return the cause of a call that did not succeed, or of a background command that failed later."""
    if span.state in OPEN_STATES:
        return None
    if span.state == "succeeded":
        failure = background_failure(span)
        if failure is None:
            return None
        text = failure.output or failure.summary or ""
        return _sandbox_cause(span, note) if (note := find_sandbox_note(text)) else _command_cause(span, text)
    if span.state == "orphan_result" or span.error_kind is None:
        return Cause(group=_group_id(span.state, span.tool), program=None, text=None)
    if span.error_kind == "nothing_found":
        return Cause(group=_group_id("nothing_found"), program=_command_program(span), text=None)
    if span.error_kind in _COMMAND_KINDS and span.call.kind == "shell":
        return _command_cause(span, _result_text(span))
    text = unwrap_error_text(span.message or "")
    if note := find_sandbox_note(text):
        return _sandbox_cause(span, note)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    if span.error_kind == "user_denied":  # each reason is different
        return Cause(group=_group_id(span.error_kind, span.tool), program=None, text=lines[0][:MAX_CAUSE_TEXT] or None)
    group = _group_id(span.error_kind, span.tool, normalize_line(lines[0]))
    if len(lines) > 1 and FIRST_EXIT_LINE.match(lines[0]):  # the client's note about a timeout or interrupt follows it
        del lines[0]
    line = lines[0]
    if span.state == "timed_out":
        line = next((line for line in lines if "timed out" in line), line)
    return Cause(group=group, program=None, text=line[:MAX_CAUSE_TEXT] or None)


def _sandbox_cause(span: Span, note: str) -> Cause:
    line = note.partition(". ")[0]
    group = _group_id("sandbox_denied", span.tool, normalize_line(line))
    return Cause(group=group, program=None, text=line[:MAX_CAUSE_TEXT])


_COMMAND_KINDS: frozenset[ErrorKind] = frozenset(
    {"command_failed", "command_not_found", "not_found", "permission_os", "network", "rate_limit", "unknown",
     "too_large", "is_directory", "internal", "schema_output"}
)  # fmt: skip
_FAILED_STATUSES = frozenset({"failed", "error", "errored", "timed_out"})


def background_failure(span: Span) -> Notification | None:
    """Return the notification about a failed background command, or None if the command did not fail."""
    if span.state != "succeeded" or span.call.kind != "shell":
        return None
    last = next((event for event in reversed(span.events) if isinstance(event, Notification)), None)
    return last if last is not None and last.status in _FAILED_STATUSES else None


def _command_cause(span: Span, text: str) -> Cause:
    output = unwrap_error_text(text)
    if first := FIRST_EXIT_LINE.match(output):
        output = output[first.end() :]
    if last := LAST_EXIT_LINE.search(output):
        output = output[: last.start()].rstrip()
    output = get_format(span.call.client).command_output(output)
    key_line = find_key_line(output)
    text = key_line.text if key_line else ""
    if key_line is None:
        code = span.result.exit_code if span.result else None
        line, program = f"exit code {code}", _command_program(span)
    elif missing := _MISSING_PROGRAM.match(text):
        line, program = "command not found", next(filter(None, missing.groups()))
    elif not_executable := _NOT_EXECUTABLE.match(text):
        line, program = not_executable[1] or "Permission denied", "bash"
    else:
        line, program = normalize_line(text), _named_program(key_line, span)
    # The error kind is left out: clients word the same failure in different ways.
    group = _group_id("command", program, line)
    return Cause(group=group, program=program or None, text=text[:MAX_CAUSE_TEXT] or None)


_SHELL_PREFIX = r"(?:\S*/)?(?:ba|z|da|k|c|fi)?sh: (?:\S+: )?(?:(?:line )?\d+: )?"
_MISSING_PROGRAM = re.compile(
    rf"(?:{_SHELL_PREFIX})?(?:[\w.-]+: )?(?:\S*/)?([\w.+-]+): (?:command )?not found\Z"
    rf"|(?:{_SHELL_PREFIX})?command not found: (?:\S*/)?([\w.+-]+)"
    r"|(?:timeout|env|nice|nohup|xargs): (?:failed to run command )?[‘'\"]?([\w.+-]+)[’'\"]?: No such file or directory"
    r"|([\w.+-]+) ?: The term '[^']*' is not recognized"
    r"|.*exec: \"([\w.+-]+)\": executable file not found"
    r"|.*\bspawn ([\w.+-]+) ENOENT"
)
_NOT_EXECUTABLE = re.compile(
    rf"{_SHELL_PREFIX}[^:]+: (?:Permission denied\Z|(Is a directory|Exec format error|cannot execute\b[^:]*(?:: [^:]+)?)\Z)"  # noqa: E501
    r"|(?:timeout|env): failed to run command .*: Permission denied\Z"
)
_WRAPPERS = frozenset({"strace", "ltrace", "time", "xargs", "sudo", "nice", "env", "timeout", "setsid", "stdbuf"})
"""Programs that run another program, and whose messages begin with their own name."""
_MISSING_MODULE = re.compile(r"(?:\S*/)?(python[\d.]*): (?:No module named|can't open file|can't find '__main__')")
_PROGRAM_PREFIX = re.compile(r"(?:\S*/)?([A-Za-z][\w.+-]*): ")


def _named_program(key_line: KeyLine, span: Span) -> str:
    """Return the program that a line of output names, or else the one that probably failed in the command."""
    if key_line.program not in (None, "git"):
        return key_line.program
    if interpreter := _MISSING_MODULE.match(key_line.text):
        return interpreter[1].rstrip(".0123456789")
    candidates = _command_programs(span)
    if key_line.program and (key_line.program in candidates or not candidates):
        return key_line.program
    prefix = _PROGRAM_PREFIX.match(key_line.text)
    is_named = prefix and (prefix[1] in candidates or prefix[1] in _WRAPPERS)
    return prefix[1] if prefix and is_named else next(iter(candidates), "")


def _command_program(span: Span) -> str:
    return next(iter(_command_programs(span)), "")


def _command_programs(span: Span) -> tuple[str, ...]:
    from toolspan.shell.exit_status import failing_programs

    starter = next((item.text for item in span.evidence if item.rule == PROCESS_RULE), None)
    return failing_programs(starter or _own_command(span))


def _own_command(span: Span) -> str:
    """Return the command line in a call's input; empty for tools that name a running shell or process instead."""
    try:
        named = any(getattr(span.input, name, None) for name in ("command", "cmd"))
    except SourceError:
        named = True
    return command_line(span.call) if named else ""


def _result_text(span: Span) -> str:
    """Return the whole result, or the part in the span if the file has changed since it was read."""
    try:
        return span.result.text if span.result else span.message or ""
    except SourceError:
        return span.message or ""


def _group_id(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:10]
