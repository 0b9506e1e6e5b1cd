"""Ask the user of an MCP client whether a call may run, by elicitation.

The question contains text from the model, which is escaped and shortened. `service.py` sends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mcp_types import ClientCapabilities, ElicitRequestFormParams, ElicitResult

from toolspan.runtime.outcome import approval_message
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.permissions.suggestions import Suggestion, suggest_updates
from toolspan.runtime.profiles import Refusals
from toolspan.types.decision import Allow, Ask, Deny

_MAX_VALUE_CHARS = 2_000
"""The maximum number of characters of one value in the question."""
_LINE_WIDTH = 76
_MAX_HEAD_CHARS = 3 * _LINE_WIDTH - 60
"""The maximum number of characters of the main value in the first lines."""
_MAIN_KEYS = ("command", "file_path", "notebook_path", "path", "url", "pattern", "query")
"""Input keys that describe a call best."""
_REJECTED = Deny(None, "user_reject")
_MIN_ANSWER_SECONDS = 0.25
"""The time below which a refusal is assumed to come from a program, not from a user."""


class ApprovalAnswer(NamedTuple):
    """A decision and its permission updates."""

    decision: Allow | Deny
    updates: tuple[Suggestion, ...] = ()
    unanswered: bool = False
    """True if the client did not ask a user."""


class ApprovalForm(NamedTuple):
    """The question, and the updates for the answer "session"."""

    params: ElicitRequestFormParams
    session_updates: tuple[Suggestion, ...]
    unanswered_denial: Deny

    def parse_answer(self, answer: ElicitResult, seconds: float) -> ApprovalAnswer:
        """Convert the client's answer to a decision; anything but a clear yes is a denial.

        Clients without a user answer `cancel`, or immediately `decline` (`codex exec`).
        """
        if answer.action == "cancel" or (answer.action == "decline" and seconds < _MIN_ANSWER_SECONDS):
            return ApprovalAnswer(self.unanswered_denial, unanswered=True)
        if answer.action == "decline" or answer.content is None:
            return ApprovalAnswer(_REJECTED)
        comment_value = answer.content.get("comment")
        comment = comment_value.strip() if isinstance(comment_value, str) else ""
        match answer.content.get("answer"):
            case "once":
                return ApprovalAnswer(Allow(None, "user_temporary"))
            case "session" if self.session_updates:
                return ApprovalAnswer(Allow(None, "user_session"), self.session_updates)
            case _:
                return ApprovalAnswer(Deny(comment or None, "user_reject"))


def can_show_form(client: ClientCapabilities | None) -> bool:
    """Return whether the client supports forms."""
    if client is None or client.elicitation is None:
        return False
    return client.elicitation.form is not None or client.elicitation.url is None


def make_form(request: PermissionRequest, ask: Ask, refusals: Refusals) -> ApprovalForm:
    """Return the form for a question."""
    session_updates = _session_updates(request, ask)
    reason = approval_message(request, ask, refusals)
    choices = ["once", *(["session"] if session_updates else []), "deny"]
    schema: dict[str, object] = {
        "type": "object",
        "properties": {
            "answer": {"type": "string", "title": "May it run?", "enum": choices},
            "comment": {"type": "string", "title": "If not: what the model is told instead"},
        },
        "required": ["answer"],
    }
    message = "\n".join(_message_lines(request, reason, session_updates))
    params = ElicitRequestFormParams(message=message, requested_schema=schema)
    return ApprovalForm(params, session_updates, Deny(reason, "config", basis=ask.basis))


def _message_lines(request: PermissionRequest, reason: str, session_updates: tuple[Suggestion, ...]) -> Iterator[str]:
    """Yield the lines of the question, the most important first, because clients may show only three."""
    main = next((key for key in _MAIN_KEYS if key in request.input), None)
    value = request.input if main is None else request.input[main]
    value_text = _single_line(value)
    whole = len(request.input) == 1 and main is not None and len(value_text) <= _MAX_HEAD_CHARS
    length = "" if len(value_text) <= _MAX_HEAD_CHARS else f" ({len(str(value))} characters, below)"
    head = f"{_single_line(request.tool)}{length}: {value_text[:_MAX_HEAD_CHARS]}"
    yield from (head[at : at + _LINE_WIDTH] for at in range(0, len(head), _LINE_WIDTH))
    yield f"why: {_single_line(reason)}"
    rule = f" · session: {', '.join(_describe_update(update) for update in session_updates)}" if session_updates else ""
    yield f"folder: {_single_line(request.cwd)}{rule}"
    for key, value in () if whole else request.input.items():
        yield f"{_single_line(key)}:"
        yield from (f"  | {line}" for line in _printable_text(value).split("\n"))


def _session_updates(request: PermissionRequest, ask: Ask) -> tuple[Suggestion, ...]:
    """Return the updates that allow similar calls for the session; empty if no rule can express that."""
    updates = suggest_updates(request, ask)
    if not updates or any(update["type"] == "addDirectories" for update in updates):
        return ()
    return tuple({**update, "destination": "session"} for update in updates)


def _describe_update(update: Suggestion) -> str:
    match update:
        case {"type": "addRules", "rules": list(rules)}:
            return ", ".join(map(_format_rule, rules))
        case _:
            return "edits in the session's folders"


def _format_rule(rule: Mapping[str, object]) -> str:
    content = rule.get("ruleContent")
    return _printable_text(f"{rule['toolName']}({content})" if content else rule["toolName"])


def _single_line(value: object) -> str:
    """Return a value as a single printable line."""
    return _printable_text(value).replace("\n", " ⏎ ")


def _printable_text(value: object) -> str:
    """Return a value as printable text of limited length."""
    text = str(value)
    if len(text) > _MAX_VALUE_CHARS:
        half = _MAX_VALUE_CHARS // 2
        text = f"{text[:half]}\n[{len(text) - _MAX_VALUE_CHARS} characters left out]\n{text[-half:]}"
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)
