"""Recognise error kinds in a tool's error message, and give advice for each kind.

The runner and the readers share this module. Start at `kind_of`.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, get_args

from toolspan.types.tool_kinds import ToolKind, tool_kind

ErrorKind = Literal[
    "unknown_tool", "invalid_input", "read_required", "stale_file", "no_match", "ambiguous_match",
    "no_change", "not_found", "is_directory", "too_large", "permission_os", "user_denied",
    "rule_denied", "classifier_denied", "not_granted", "limit_reached", "hook_blocked", "sandbox_denied",
    "interrupted", "cancelled", "sibling_error", "stream_discarded", "command_failed",
    "command_not_found", "nothing_found", "command_timeout", "mcp_timeout", "permission_timeout",
    "mcp_no_response", "mcp_error", "network", "rate_limit", "patch_invalid", "schema_output",
    "internal", "unknown",
]  # fmt: skip

ERROR_KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)

Retry = Literal["read_first", "fallback", "retry", "fix", "ask", "stop", "none"]


KIND_WORDS: dict[str, str] = {
    "unknown_tool": "unknown tool",
    "invalid_input": "invalid input",
    "read_required": "file not read yet",
    "stale_file": "file changed since it was read",
    "no_match": "text to replace not found",
    "ambiguous_match": "text to replace found several times",
    "no_change": "nothing to change",
    "not_found": "not found",
    "is_directory": "is a folder",
    "too_large": "too large",
    "permission_os": "no access to the file",
    "user_denied": "denied by the user",
    "rule_denied": "denied by a rule",
    "classifier_denied": "denied by auto mode",
    "not_granted": "permission not granted",
    "limit_reached": "limit reached",
    "hook_blocked": "blocked by a hook",
    "sandbox_denied": "denied by the sandbox",
    "interrupted": "interrupted",
    "cancelled": "cancelled",
    "sibling_error": "cancelled with a parallel call",
    "stream_discarded": "reply was streamed again",
    "command_failed": "command failed",
    "command_not_found": "program not installed",
    "nothing_found": "nothing found",
    "command_timeout": "command timed out",
    "mcp_timeout": "MCP server timed out",
    "permission_timeout": "permission question timed out",
    "mcp_no_response": "MCP server did not answer",
    "mcp_error": "MCP server error",
    "network": "network error",
    "rate_limit": "too many requests",
    "patch_invalid": "invalid patch",
    "schema_output": "answer does not fit the schema",
    "internal": "error of the client",
    "unknown": "other error",
    "never_answered": "never answered",
    "orphan_result": "result without a request",
}
"""Labels for error kinds, and for states that form their own groups."""


class Advice(NamedTuple):
    """The cause of an error kind and its usual solution, which is empty if there is nothing that the user can do."""

    cause: str
    solution: str
    retry: Retry


ADVICE: dict[ErrorKind, Advice] = {
    "unknown_tool": Advice(
        "The model called a tool that the session does not have",
        "Add the tool or its MCP server, if you expected it to be there",
        "fix",
    ),
    "invalid_input": Advice(
        "The model called a tool with input that does not match its schema",
        "If the model repeats it, describe the parameters more clearly",
        "fix",
    ),
    "read_required": Advice(
        "The model tried to change a file that it had not read",
        "If it does not try again, tell it to read the file first",
        "read_first",
    ),
    "stale_file": Advice(
        "The file changed after the model had read it",
        "Check for formatters, watchers or editors that change files during the session",
        "read_first",
    ),
    "no_match": Advice(
        "The text that the model wanted to replace is not in the file",
        "If it does not try again, let it verify the content with a Read, or use Write",
        "read_first",
    ),
    "ambiguous_match": Advice(
        "The text that the model wanted to replace occurs several times",
        "",
        "fix",
    ),
    "no_change": Advice("The model wanted to replace a text with itself: the file already has it", "", "stop"),
    "not_found": Advice(
        "A file or folder does not exist", "Check the working folder, and tell the model where the files are", "fix"
    ),
    "is_directory": Advice("The model tried to read a folder as a file", "", "fix"),
    "too_large": Advice(
        "The file or result is larger than the tool allows",
        "If the model does not read it in parts, raise the limit",
        "fix",
    ),
    "permission_os": Advice(
        "The operating system refused access",
        "Check the owner and mode of the file, and the user the agent runs as",
        "ask",
    ),
    "user_denied": Advice("You, or another user, refused the call", "Tell the model what to do instead", "stop"),
    "rule_denied": Advice(
        "A permission rule or the permission mode refused the call",
        "Change the rule if the call should be allowed (toolspan policy check)",
        "ask",
    ),
    "classifier_denied": Advice("Auto mode considered the call unsafe", "Allow it with a rule if it is safe", "ask"),
    "not_granted": Advice(
        "The call needed approval, and there was no user to ask",
        "Add an allow rule, or run the session where you can answer",
        "ask",
    ),
    "limit_reached": Advice(
        "The turn or the session had reached its limit of cost, tokens, time or calls",
        "Continue the session with a higher limit",
        "stop",
    ),
    "hook_blocked": Advice(
        "One of your hooks refused the call",
        "Read the hook's message; change the hook if it should not block this",
        "fix",
    ),
    "sandbox_denied": Advice(
        "The sandbox refused the call", "Allow the path or host in the sandbox settings, or run it outside", "ask"
    ),
    "interrupted": Advice(
        "You, or the program that ran the session, stopped the call",
        "Check whether it left something half done",
        "stop",
    ),
    "cancelled": Advice(
        "The call never started, because the turn ended first", "Ask for it again if it is still needed", "retry"
    ),
    "sibling_error": Advice(
        "The call was cancelled because a parallel call failed", "Look at the call that failed first", "retry"
    ),
    "stream_discarded": Advice(
        "The model's reply was streamed again, so its calls were dropped and requested again",
        "",
        "none",
    ),
    "command_failed": Advice("The command ended with an error", "", "fix"),
    "command_not_found": Advice(
        "The program is not installed, or not on the PATH of the session",
        "Install it, or tell the model what to use instead",
        "fix",
    ),
    "nothing_found": Advice(
        "The search found nothing, or the condition was false: an answer, not an error", "", "none"
    ),
    "command_timeout": Advice(
        "The command ran longer than its timeout",
        "Raise the timeout, or let the model run it in the background",
        "fallback",
    ),
    "mcp_timeout": Advice(
        "An MCP server, or a tool with a time limit, took too long",
        "Check the server's log, and raise its timeout if it needs the time",
        "fallback",
    ),
    "permission_timeout": Advice(
        "The permission question was not answered in time",
        "Add an allow rule, answer sooner, or let the model use a simpler tool or Write",
        "fallback",
    ),
    "mcp_no_response": Advice(
        "An MCP server did not answer, or its connection was lost",
        "Check that the server runs; then retry, or fall back to another tool",
        "retry",
    ),
    "mcp_error": Advice("An MCP server reported an error", "Read the server's message and log", "fix"),
    "network": Advice(
        "The network or the remote side failed",
        "Check connectivity, retry, and look at the address and the proxy settings",
        "retry",
    ),
    "rate_limit": Advice(
        "A service refused the call because of too many requests", "Wait, or raise your limit with the service", "retry"
    ),
    "patch_invalid": Advice("The model wrote a patch that cannot be parsed", "", "fix"),
    "schema_output": Advice(
        "The answer does not match the requested schema", "Simplify the schema, or ask again", "fix"
    ),
    "internal": Advice("The client itself failed", "Update the client; report the error if it persists", "retry"),
    "unknown": Advice("The message was not recognised", "", "none"),
}
"""Advice by kind, for the reader of the report, not for the model."""


class _ErrorSign(NamedTuple):
    """Lower-case phrases, or a pattern, that identify a kind.

    perf: patterns are compiled when they are first needed, because every command imports this module.
    """

    kind: ErrorKind
    phrases: tuple[str, ...]
    pattern: str = ""
    hint: str = ""
    """A literal part of every match, tested first because that is faster."""

    def matches(self, text: str) -> bool:
        for phrase in self.phrases:
            if phrase in text:
                return True
        return bool(self.pattern) and self.hint in text and re.search(self.pattern, text) is not None


_REFUSAL_SIGNS = (
    _ErrorSign("unknown_tool", ("no such tool available", "unsupported call")),
    _ErrorSign(
        "invalid_input",
        ("inputvalidationerror", "failed schema validation", "failed to parse function arguments", "-32602",
         "could not be parsed as json"),
    ),
)  # fmt: skip
_EDIT_SIGNS = (
    _ErrorSign("read_required", ("has not been read yet",)),
    _ErrorSign("stale_file", ("has been modified since read", "unexpectedly modified")),
    _ErrorSign(
        "no_match",
        ("string to replace not found", "old_string not found", "not found in file",
         "failed to find expected lines", "failed to find context"),
    ),
    _ErrorSign("ambiguous_match", (), r"found \d+ matches of the string to replace",
          "matches of the string"),
    _ErrorSign("no_change", ("no changes to make",)),
)  # fmt: skip
_FILE_SIGNS = (
    _ErrorSign(
        "not_found",
        ("file does not exist", "directory does not exist", "no such file or directory", "enoent",
         "file not found", "no files were modified", "unknown process id", "no task found with id",
         "no shell found with id"),
        r"\Apath does not exist: |\Apath \"[^\"\n]*\" does not exist"
        r"|path does not exist.*note: your current working directory",
    ),
    _ErrorSign("is_directory", ("eisdir",)),
    _ErrorSign("too_large", ("exceeds maximum allowed tokens", "exceeds maximum allowed size")),
    _ErrorSign("permission_os", ("eacces", "permission denied", "operation not permitted")),
)  # fmt: skip
_SHELL_SIGNS = (
    _ErrorSign("command_timeout", ("command timed out after",)),
    _ErrorSign("command_not_found", ("command not found",), r"(?m)^exit code 127\b", "exit code 127"),
    _ErrorSign(
        "command_failed",
        ("process exited with code",),
        r"\Aexit code -?\d+|\[exit code: -?[1-9]\d*\]",
        "exit code",
    ),
)
_GENERAL_SIGNS = (
    _ErrorSign("hook_blocked", ("hook error:", "blocked by pretooluse hook", "execution stopped by")),
    _ErrorSign("sandbox_denied", ("command denied by sandbox", "sandbox denied", "failed in sandbox")),
    _ErrorSign("permission_timeout", ("failed to evaluate permission: request timed out",)),
    _ErrorSign("mcp_no_response", ("no response received", "mcp error -32000", "connection closed")),
    _ErrorSign("mcp_timeout", ("mcp error -32001", "request timed out")),
    _ErrorSign(
        "network",
        (),
        r"mcp error -32603: (?:failed to evaluate permission: )?fetch failed",
        "mcp error -32603",
    ),
    _ErrorSign("mcp_error", (), r"mcp error -\d+", "mcp error -"),
    _ErrorSign(
        "network",
        ("fetch failed", "econnrefused", "econnreset", "enotfound", "etimedout"),
        r"status code [45]\d\d",
        "status code",
    ),
    _ErrorSign(
        "rate_limit",
        ("rate limit", "limit reached", "too many requests"),
        # Not a bare 429, which is also a line or column number in stack traces.
        r"(?:\bhttp(?:/[\d.]+)?|status|\bcode|\berror)\W{0,4}(?:code\W{0,3})?429\b|(?:\A|[\n(])429\b",
        "429",
    ),
    _ErrorSign("patch_invalid", ("invalid patch", "invalid hunk")),
    _ErrorSign("schema_output", ("output does not match required schema",)),
    _ErrorSign("internal", ("tool result missing due to internal error", "execution error")),
)
_MCP_SIGNS = (
    _ErrorSign("mcp_timeout", ("timed out after",)),
    _ErrorSign(
        "mcp_no_response",
        ("cannot connect to the mcp server",),
        r"\Anot connected|\bis not connected\b",
        "not connected",
    ),
)

_EDITOR_TABLES = (_REFUSAL_SIGNS, _EDIT_SIGNS, _FILE_SIGNS, _SHELL_SIGNS, _GENERAL_SIGNS)
_OTHER_TABLES = (_REFUSAL_SIGNS, _FILE_SIGNS, _GENERAL_SIGNS, _SHELL_SIGNS)
_SIGN_TABLES: dict[ToolKind, tuple[tuple[_ErrorSign, ...], ...]] = {
    "shell": (_REFUSAL_SIGNS, _SHELL_SIGNS, _FILE_SIGNS, _GENERAL_SIGNS),
    "edit": _EDITOR_TABLES,
    "write": _EDITOR_TABLES,
    "mcp": (_REFUSAL_SIGNS, _FILE_SIGNS, _GENERAL_SIGNS, _MCP_SIGNS, _SHELL_SIGNS),
}
_HEAD_LENGTH = 2_000


def kind_of(tool: str, text: str) -> ErrorKind:
    """Return the kind of an error message (without its tags) that `tool` returned."""
    return find_error_kind(tool_kind(tool) if tool else None, text)


def find_error_kind(kind: ToolKind | None, text: str) -> ErrorKind:
    """Return the kind of an error message (without its tags) from a tool of this kind, or from any tool."""
    if find_sandbox_note(text) is not None:
        return "sandbox_denied"
    head = text[:_HEAD_LENGTH].lower()
    tables = (*_OTHER_TABLES, _EDIT_SIGNS) if kind is None else _SIGN_TABLES.get(kind, _OTHER_TABLES)
    for table in tables:
        for sign in table:
            if sign.matches(head):
                return sign.kind
    return "unknown"


SANDBOX_NOTE = "The sandbox denied "
"""The prefix of the note about sandbox violations, which is the last line of a result."""


def find_sandbox_note(text: str) -> str | None:
    """Return the note about sandbox violations, if a result ends with one."""
    last_line = text[text.rfind("\n") + 1 :]
    return last_line if last_line.startswith(SANDBOX_NOTE) else None


_COMMAND_TIMEOUT = "Command timed out after"
_CALL_TIMEOUT = re.compile(r"\bMCP error -32001\b|timed out after|(?i:request timed out)")
_SERVER_TIMEOUT = re.compile(r"\bMCP error -32001\b|\bMCP [^\n]{0,200}timed out after|(?i:request timed out)")
_TIMEOUT_HEAD_LENGTH = 400


def find_timeout_text(kind: ToolKind, text: str) -> str | None:
    """Return the part of an error message that reports a timeout, if a tool of this kind can time out."""
    if kind == "shell":
        return _COMMAND_TIMEOUT if _COMMAND_TIMEOUT in text else None
    head = text[:_TIMEOUT_HEAD_LENGTH]
    if "timed out" not in head and "-32001" not in head:
        return None
    matched = (_CALL_TIMEOUT if kind == "mcp" else _SERVER_TIMEOUT).search(head)
    return matched[0] if matched else None


_ERROR_TAGS = re.compile(r"</?tool_use_error>")
_FIRST_EXIT = re.compile(r"\A\s*(?:Error: )?Exit code (-?\d{1,9})\b")
_LAST_EXIT = re.compile(r"\[Exit code: (-?\d{1,9})\]\s*\Z")


def unwrap_error_text(text: str) -> str:
    """Remove error tags and the notes that the client appended."""
    if "tool_use_error>" in text:
        text = _ERROR_TAGS.sub("", text)
    text = text.strip()
    while text.endswith("</system-reminder>") and "<system-reminder>" in text:
        text = text[: text.rindex("<system-reminder>")].rstrip()
    return text


_REJECTION_START = "The user doesn't want to proceed with this tool use"
_USER_REASON = re.compile(
    rf"\A{_REJECTION_START}.{{,400}}?\b(?:the user said|The user provided the following reason for the \w+):\s*(?=\S)",
    re.DOTALL,
)
_BARE_REJECTION = re.compile(r"(?:exec command |patch )?rejected by user\.?")
_CLIENT_NOTE = re.compile(r"\s*^Note: The user's next message may contain .*\Z", re.DOTALL | re.MULTILINE)


def denial_reason(text: str) -> str | None:
    """Return the reason that the user gave for a denial, without the client's sentences around it, or None."""
    matched = _USER_REASON.match(text)
    return (_CLIENT_NOTE.sub("", text[matched.end() :]).strip() or None) if matched else None


def denial_message(text: str) -> str | None:
    """Return a denial as the user worded it: None if the user gave no reason, because the client's text says nothing.

    Other texts are returned as they are.
    """
    if text.startswith(_REJECTION_START):
        return denial_reason(text)
    return None if _BARE_REJECTION.fullmatch(text) else text or None


def parse_exit_code(text: str) -> int | None:
    """Return the exit code from the first or last line of a shell result."""
    matched = _FIRST_EXIT.match(text)
    if matched is None and "[Exit code: " in text:
        matched = _LAST_EXIT.search(text)
    return int(matched[1]) if matched else None
