"""Who speaks in a user line: a person, a tool, a command, the client itself.

Pure; the order of the tests is the order in which the marks override each other.
"""

from toolspan.model.message import Voice
from toolspan.wire.claude import Entry, text_of

_COMMANDS = (
    "<command-name>", "<command-message>", "<command-args>", "<local-command-", "<bash-input>",
    "<bash-stdout>", "<bash-stderr>",
)  # fmt: skip
_INJECTED = ("<user-prompt-submit-hook>", "<system-reminder>")


def voice_of(entry: Entry) -> Voice | None:
    """The voice of a user line; None when it only carries results."""
    content = entry.message.content if entry.message else None
    if isinstance(content, list) and any(block.type == "tool_result" for block in content):
        return None
    if entry.is_compact_summary:
        return "summary"
    text = said(entry)
    if text is None:
        return None
    return _by_text(text.lstrip(), entry)


def _by_text(text: str, entry: Entry) -> Voice:
    if text.startswith("[Request interrupted by user"):
        return "interrupt"
    notified = entry.origin is not None and entry.origin.kind == "task-notification"
    if notified or text.startswith("<task-notification>"):
        return "notification"
    if text.startswith(_COMMANDS):
        return "command"
    if entry.is_meta or text.startswith(_INJECTED):
        return "injected"
    return "prompt"


def said(entry: Entry) -> str | None:
    """The text of a user line; None when it has neither text nor picture."""
    content = entry.message.content if entry.message else None
    if isinstance(content, str):
        return content
    if not content:
        return None
    texts = [text_of(block.text) if block.type == "text" else f"[{block.type}]"
             for block in content]  # fmt: skip
    return "\n".join(texts)
