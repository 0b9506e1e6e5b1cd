"""Parse the arguments and outputs of Codex calls. Nothing here raises.

Arguments are JSON encoded as a string, sometimes invalid, sometimes encoded twice. Outputs may have
a header with exit code and duration. Start at `call_arguments` and `parse_output`.
"""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from toolspan.formats import json_repair
from toolspan.formats.codex.records import ABSENT, RolloutItem
from toolspan.formats.decoding import DECODE_ERRORS, extract_text

_MAX_WRAPPERS = 3
"""The maximum number of string encodings to remove from arguments; two have been observed."""
_PATCHED_FILE = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
_SUMMARY_LENGTH = 160


def call_arguments(item: RolloutItem) -> bytes:
    """Return a call's input as JSON, which is an object unless the model wrote another value."""
    if item.type == "custom_tool_call":
        return json_repair.encode_document({"input": extract_text(item.input)})
    if item.type in ("local_shell_call", "web_search_call"):
        return bytes(item.action) or b"{}"
    if item.type == "image_generation_call":
        return b"{}"
    arguments = bytes(item.arguments)
    for _ in range(_MAX_WRAPPERS):
        if not arguments.startswith(b'"'):
            break
        inner = extract_text(Raw(arguments)).encode("utf-8", "surrogatepass").strip()
        try:
            json_repair.decode_document(inner or b"{}")
        except ValueError:  # a string that is not JSON
            return arguments
        arguments = inner
    return arguments or b"{}"


class CallSubject(NamedTuple):
    """The subject of a call, and the process that it continues."""

    summary: str | None = None
    """A command, path, question or URL, shortened."""
    process_id: str | None = None
    """The process or script that the call continues."""


_SUBJECT_KEYS = (
    "path", "file_path", "input", "query", "q", "url", "pattern", "uri", "message", "question", "chars",
    "explanation", "target", "targets", "objective", "prompt", "name", "queries", "questions", "plan", "session_id",
    "cell_id",
)  # fmt: skip
"""Input keys that identify the subject of a call, most specific first."""


def read_call_subject(item: RolloutItem) -> CallSubject:
    """Return the subject of a call; empty if its arguments cannot be decoded."""
    arguments = json_repair.decode_readable(call_arguments(item))
    if not isinstance(arguments, dict):
        return CallSubject()
    process = arguments.get("session_id")
    if process is None:
        process = arguments.get("cell_id")
    is_id = isinstance(process, int | str) and not isinstance(process, bool)
    process_id = str(process) if is_id else None
    command = arguments.get("cmd") or arguments.get("command")
    text = format_command(command) if command else None
    for value in map(arguments.get, _SUBJECT_KEYS if not command else ()):
        if isinstance(value, list) and value:
            first = value[0]
            if isinstance(first, dict):
                first = first.get("step") or first.get("question")
            text = first if isinstance(first, str) else None
        elif isinstance(value, str):
            patched = _PATCHED_FILE.search(value)
            text = (patched[1].strip() if patched else "") or value.strip()
        if text:
            break
    if not text and not command and process_id is not None:
        text = f"process {process_id}"
    return CallSubject(text[:_SUMMARY_LENGTH] if text else None, process_id)


def format_command(command: object) -> str | None:
    """Return a command as a user would type it, without the shell invocation around it."""
    if isinstance(command, str):
        return command
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        return None
    match command:
        case [_, "-lc" | "-c" | "-Command" | "/c", line]:
            return str(line)
        case _:
            return shlex.join(command)


def event_command(raw: Raw) -> str | None:
    """Return the command in an event as a user would type it."""
    try:
        return format_command(msgspec.json.decode(raw)) if raw else None
    except DECODE_ERRORS:
        return None


class CommandOutput(Struct, frozen=True, kw_only=True, gc=False):
    """The output of a call, parsed with its header."""

    text: str = ""
    """The tool's output, without the client's header."""
    exit_code: int | None = None
    wall_ms: float | None = None
    running: str | None = None
    """The number of the process or script that is still running."""
    script: str | None = None
    has_header: bool = False
    """True if the text was below the client's header, and therefore comes from the tool."""
    truncated: bool = False
    flag: bool | None = None


_HEADER_LINE = re.compile(
    r"(?:Command: [^\n]*"
    r"|Chunk ID: \S*"
    r"|Exit code: (?P<exit>-?\d{1,9})"
    r"|Wall time:? (?P<wall>\d[\d.]*) seconds?"
    r"|Process exited with code (?P<exited>-?\d{1,9})"
    r"|Process running with session ID (?P<running>\S+)"
    r"|Script (?P<script>completed|failed|terminated)"
    r"|Script running with cell ID (?P<cell>\S+)"
    r"|Original token count: \d+"
    r"|Total output lines: (?P<lines>\d+)"
    r"|(?P<output>Output:))[ \t]*(?:\n|\Z)"
)
_MAX_HEADER_LINES = 9
_MAX_EXIT_CODE = 1 << 32
"""Larger numbers are not exit codes on any system."""
_TRUNCATION_NOTE = re.compile(
    r"\A(?:Warning: truncated output \(original token count|Total output lines: \d+\n)"
    r"|\[\.\.\. omitted \d+ of \d+ lines \.\.\.\]|…\d+ tokens truncated…|…\d+ chars truncated…"
    r"|\[Output truncated after \d+ lines: too many lines or bytes\.\]\s*\Z"
)
_PLAIN_SUCCESS = re.compile(
    rb'"(?:Chunk ID: \w*\\nWall time: (\d[\d.]*) seconds\\nProcess exited with code 0\\n'
    rb"(?:Original token count: \d+\\n)?|Exit code: 0\\nWall time: (\d[\d.]*) seconds\\n)Output:\\n"
)
"""The beginning of a successful command's output, as encoded in the line."""


class _OutputMetadata(Struct, gc=False):
    exit_code: int | None = None
    duration_seconds: float | None = None


class _OutputDocument(Struct, gc=False):
    output: str | None = None
    metadata: _OutputMetadata | None = None


class _FlaggedOutput(Struct, gc=False):
    content: Raw = ABSENT
    success: bool | None = None
    body: Raw = ABSENT


_DOCUMENT_DECODER = msgspec.json.Decoder(_OutputDocument)
_FLAGGED_DECODER = msgspec.json.Decoder(_FlaggedOutput)


def parse_output(raw: Raw) -> CommandOutput:
    """Parse the output of a call. For a plain success, only the header is parsed, because the text is rarely needed."""
    quiet = _PLAIN_SUCCESS.match(raw)
    if quiet is not None:
        data = bytes(raw)
        if b" truncated" not in data and b"[... omitted " not in data:
            seconds = (quiet[1] or quiet[2]).decode("ascii")
            return CommandOutput(exit_code=0, wall_ms=_to_milliseconds(seconds), has_header=True)
    flag = None
    if memoryview(raw)[:1].tobytes() == b"{":
        with suppress(*DECODE_ERRORS):
            decoded = _FLAGGED_DECODER.decode(raw)
            raw, flag = decoded.content if decoded.content != ABSENT else decoded.body, decoded.success
    text = extract_text(raw)
    output = _from_document(text) if text.startswith("{") else None
    output = output or _from_header(text)
    return output if flag is None else msgspec.structs.replace(output, flag=flag)


def _from_document(text: str) -> CommandOutput | None:
    """Parse an output of the form `{"output": …, "metadata": {"exit_code": …}}`."""
    try:
        decoded = _DOCUMENT_DECODER.decode(text)
    except (*DECODE_ERRORS, UnicodeEncodeError):
        return None
    facts = decoded.metadata
    if decoded.output is None or facts is None:
        return None
    seconds = facts.duration_seconds
    return CommandOutput(
        text=decoded.output,
        exit_code=facts.exit_code if abs(facts.exit_code or 0) <= _MAX_EXIT_CODE else None,
        wall_ms=seconds * 1000 if seconds is not None else None,
        has_header=True,
        truncated=bool(_TRUNCATION_NOTE.search(decoded.output)),
    )


def _from_header(text: str) -> CommandOutput:
    facts: dict[str, str] = {}
    at = 0
    for _ in range(2 * _MAX_HEADER_LINES):
        matched = _HEADER_LINE.match(text, at)
        if matched is None:
            break
        at = matched.end()
        groups = {key: value for key, value in matched.groupdict().items() if value is not None}
        facts.update(groups)
        ended = "exit" in facts or "exited" in facts or "running" in facts or "cell" in facts
        if "output" in groups and (ended or not text.startswith("Exit code: ", at)):
            break
    body = text[at:] if facts else text
    code = facts.get("exit", facts.get("exited"))
    return CommandOutput(
        text=body,
        exit_code=int(code) if code is not None else None,
        wall_ms=_to_milliseconds(facts.get("wall")),
        running=facts.get("running", facts.get("cell")),
        script=facts.get("script"),
        has_header="output" in facts,
        truncated="lines" in facts or bool(_TRUNCATION_NOTE.search(body)),
    )


def _to_milliseconds(seconds: str | None) -> float | None:
    try:
        return float(seconds) * 1000 if seconds is not None else None
    except ValueError:
        return None
