"""Read the messages between the calls, each with its author.

Calls and results are spans, not messages. Malformed content never raises. Start at `parse_entry_messages`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct, field

from toolspan.formats.claude.records import ApiMessage, Attachment, Entry
from toolspan.formats.decoding import extract_text
from toolspan.formats.source import Source
from toolspan.types.ids import SourceLocation
from toolspan.types.session import Message, MessageAuthor

_COMMAND_TAGS = (
    "<command-name>", "<command-message>", "<command-args>", "<local-command-", "<bash-input>",
    "<bash-stdout>", "<bash-stderr>",
)  # fmt: skip
_INJECTED_TAGS = ("<user-prompt-submit-hook>", "<system-reminder>")


def message_author(entry: Entry) -> MessageAuthor | None:
    """Return the author of a user line, or None if the line contains only results."""
    content = entry.message.content if entry.message else None
    if isinstance(content, list) and any(block.type == "tool_result" for block in content):
        return None
    if entry.is_compact_summary:
        return "summary"
    text = user_text(entry)
    if text is None:
        return None
    text = text.lstrip()
    if text.startswith("[Request interrupted by user"):
        return "interrupt"
    is_notification = entry.origin is not None and entry.origin.kind == "task-notification"
    if is_notification or text.startswith("<task-notification>"):
        return "notification"
    if text.startswith(_COMMAND_TAGS):
        return "command"
    return "injected" if entry.is_meta or text.startswith(_INJECTED_TAGS) else "prompt"


def user_text(entry: Entry) -> str | None:
    """Return the text of a user line, or None if it has no content."""
    content = entry.message.content if entry.message else None
    if isinstance(content, str):
        return content
    if not content:
        return None
    return "\n".join(extract_text(block.text) if block.type == "text" else f"[{block.type}]" for block in content)


_MESSAGE_SUBTYPES = frozenset({
    None, "agents_killed", "api_error", "away_summary", "compact_boundary", "informational", "local_command",
    "microcompact_boundary", "model_refusal_fallback",
})  # fmt: skip
"""Subtypes of system lines that contain a message for the user; the others are bookkeeping."""
_COMPACTION_SUBTYPES = ("compact_boundary", "microcompact_boundary")
_HOOK_VOICES: dict[str, MessageAuthor] = {
    "hook_additional_context": "injected",
    "hook_stopped_continuation": "system",
    "hook_system_message": "system",
}
_CALL_HOOKS = ("PreToolUse", "PostToolUse", "PermissionRequest")
"""Hook events around a call, whose output becomes an event of the call instead of a message."""


def parse_entry_messages(entry: Entry, place: SourceLocation, source: Source) -> Iterator[Message]:
    """Yield the messages in one entry; details omitted from the typed view are read from `source`."""
    texts: Iterable[tuple[MessageAuthor, str]] = ()
    match entry.type:
        case "assistant" if entry.message is not None:
            texts = _assistant_texts(entry, entry.message)
        case "user":
            texts = _user_texts(entry)
        case "attachment" if entry.attachment is not None:
            texts = _attachment_texts(entry.attachment)
        case "system" if entry.subtype == "api_error":
            texts = [("error", extract_text(entry.content) or _api_error_text(place, source))]
        case "system" if entry.subtype == "local_command":
            texts = [("command", extract_text(entry.content))]
        case "compact_boundary" | "system" if entry.type != "system" or entry.subtype in _COMPACTION_SUBTYPES:
            texts = [("system", _compaction_text(entry, place, source))]
        case "system" if entry.subtype in _MESSAGE_SUBTYPES:
            texts = [("system", extract_text(entry.content))]
    for voice, text in texts:
        if text.strip():
            yield Message(voice=voice, text=text, at=entry.timestamp, agent_id=entry.agent_id, place=place)


def _assistant_texts(entry: Entry, message: ApiMessage) -> Iterator[tuple[MessageAuthor, str]]:
    voice: MessageAuthor = "text"
    if entry.is_api_error:
        voice = "error"
    elif message.model == "<synthetic>":  # written by the client in the model's name
        voice = "injected"
    if isinstance(message.content, str):
        yield voice, message.content
        return
    for block in message.content or ():
        if block.type == "text":
            yield voice, extract_text(block.text)
        elif block.type == "thinking":
            yield "thinking", extract_text(block.thinking)


def _user_texts(entry: Entry) -> Iterator[tuple[MessageAuthor, str]]:
    voice = message_author(entry)
    if voice is not None:
        yield voice, user_text(entry) or ""
        return
    content = entry.message.content if entry.message else None
    for block in content if isinstance(content, list) else ():
        if block.type == "text":  # the line also carries a result
            text = extract_text(block.text)
            start = text.lstrip()
            if start.startswith("[Request interrupted by user"):
                yield "interrupt", text
            elif start.startswith("<task-notification>"):
                yield "notification", text
            else:
                yield "injected" if start.startswith("<") else "prompt", text


def _attachment_texts(note: Attachment) -> Iterator[tuple[MessageAuthor, str]]:
    if note.type == "queued_command":
        is_notification = note.command_mode == "task-notification"
        yield "notification" if is_notification else "prompt", extract_text(note.prompt)
        return
    voice = _HOOK_VOICES.get(note.type)
    point = note.hook_event or note.hook_name or ""
    if voice is not None and not point.startswith(_CALL_HOOKS):
        text = extract_text(note.content) or extract_text(note.message)
        yield voice, f"{point} hook: {text}" if text and point else text


class _Compaction(Struct, gc=False):
    trigger: str | None = None
    tokens: int | None = field(default=None, name="preTokens")


class _ApiError(Struct, gc=False):
    message: str | None = None
    formatted: str | None = None
    status: int | None = None


class _SystemDetails(Struct, gc=False):
    """Fields that only a few system lines have."""

    compaction: _Compaction | None = field(default=None, name="compactMetadata")
    microcompaction: _Compaction | None = field(default=None, name="microcompactMetadata")
    error: _ApiError | str | None = None
    attempt: int | None = field(default=None, name="retryAttempt")
    attempts: int | None = field(default=None, name="maxRetries")


def _read_details(place: SourceLocation, source: Source) -> _SystemDetails:
    """Reread a line for details that occur too rarely to keep in memory."""
    try:
        return msgspec.json.decode(source.read(place.offset, place.length), type=_SystemDetails)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _SystemDetails()


def _compaction_text(entry: Entry, place: SourceLocation, source: Source) -> str:
    details = _read_details(place, source)
    compaction = details.compaction or details.microcompaction or _Compaction()
    notes = [compaction.trigger] if compaction.trigger else []
    if compaction.tokens:
        notes.append(f"{compaction.tokens:,} tokens before")
    text = extract_text(entry.content) or "Conversation compacted"
    return f"{text} ({', '.join(notes)})" if notes else text


def _api_error_text(place: SourceLocation, source: Source) -> str:
    details = _read_details(place, source)
    error = details.error
    if isinstance(error, _ApiError):
        status = f" {error.status}" if error.status else ""
        error = error.formatted or error.message or f"API error{status}"
    message = error or "API error"
    if details.attempt is None:
        return message
    of = f" of {details.attempts}" if details.attempts else ""
    return f"{message} (attempt {details.attempt}{of})"
