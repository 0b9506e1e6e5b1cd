"""What was said between the calls, and by whom.

In: the entries of a transcript, in one pass. Out: `Message`s in file order; or a `Script`, which
adds what a timeline needs to tell the main conversation from the subagents inside the same file.
Calls and results are spans, not messages. Nothing a file contains raises. Read `heard` first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct, field

from toolspan.formats.claude.records import Entry, MessageBlock
from toolspan.formats.claude.tree import Branches, RecordTree
from toolspan.formats.decoding import extract_text
from toolspan.formats.source import Source
from toolspan.reading.discovery import AgentMeta, read_agent_meta
from toolspan.types.ids import SourceLocation
from toolspan.types.session import Dialect, Message, MessageAuthor, SessionInfo
from toolspan.types.span import Span
from toolspan.types.tool_kinds import tool_kind

_COMMAND_TAGS = (
    "<command-name>", "<command-message>", "<command-args>", "<local-command-", "<bash-input>",
    "<bash-stdout>", "<bash-stderr>",
)  # fmt: skip
_INJECTED_TAGS = ("<user-prompt-submit-hook>", "<system-reminder>")


def message_author(entry: Entry) -> MessageAuthor | None:
    """The voice of a user line; None when it only carries results."""
    content = entry.message.content if entry.message else None
    if isinstance(content, list) and any(block.type == "tool_result" for block in content):
        return None
    if entry.is_compact_summary:
        return "summary"
    text = user_text(entry)
    if text is None:
        return None
    return _author_by_text(text.lstrip(), entry)


def _author_by_text(text: str, entry: Entry) -> MessageAuthor:
    if text.startswith("[Request interrupted by user"):
        return "interrupt"
    notified = entry.origin is not None and entry.origin.kind == "task-notification"
    if notified or text.startswith("<task-notification>"):
        return "notification"
    if text.startswith(_COMMAND_TAGS):
        return "command"
    if entry.is_meta or text.startswith(_INJECTED_TAGS):
        return "injected"
    return "prompt"


def user_text(entry: Entry) -> str | None:
    """The text of a user line; None when it has neither text nor picture."""
    content = entry.message.content if entry.message else None
    if isinstance(content, str):
        return content
    if not content:
        return None
    texts = [extract_text(block.text) if block.type == "text" else f"[{block.type}]"
             for block in content]  # fmt: skip
    return "\n".join(texts)


_MESSAGE_SUBTYPES = frozenset(
    {
        None,
        "agents_killed",
        "api_error",
        "away_summary",
        "compact_boundary",
        "informational",
        "local_command",
        "microcompact_boundary",
        "model_refusal_fallback",
    }
)
"""System lines that tell a person something; the others are bookkeeping."""
_HOOK_VOICES: dict[str, MessageAuthor] = {
    "hook_additional_context": "injected",
    "hook_stopped_continuation": "system",
    "hook_system_message": "system",
}
_CALL_HOOKS = ("PreToolUse", "PostToolUse", "PermissionRequest")
"""Points whose hooks belong to a call, which tells of them."""


class ReadableTranscript(Protocol):
    """A transcript, as far as its messages need it."""

    @property
    def file(self) -> str:
        """The file's name."""
        ...

    @property
    def source(self) -> Source:
        """Where its bytes come from."""
        ...

    @property
    def info(self) -> SessionInfo:
        """What it says about the conversation as a whole."""
        ...

    @property
    def spans(self) -> list[Span]:
        """Its calls."""
        ...

    @property
    def tree(self) -> RecordTree:
        """The parent links of its lines."""
        ...

    @property
    def dialect(self) -> Dialect:
        """Whose form it has."""
        ...

    @property
    def role(self) -> str | None:
        """What sort of subagent wrote it, if it says."""
        ...

    def branches(self) -> Branches:
        """Which of its lines the model still saw at the end."""
        ...

    def messages(self) -> Iterator[Message]:
        """What was said, in file order."""
        ...

    def entries(self) -> Iterator[tuple[Entry, SourceLocation]]:
        """Its entries and where they stand."""
        ...


def read_messages(transcript: ReadableTranscript) -> Iterator[Message]:
    """What was said, in file order.

    Raises:
        SourceError: the file can no longer be read.
    """
    return transcript.messages()


def parse_entry_messages(entry: Entry, place: SourceLocation, source: Source) -> Iterator[Message]:
    """What one entry says; `source` is asked for details that the typed view leaves out."""
    for voice, text in _entry_texts(entry, place, source):
        if text.strip():
            yield Message(voice=voice, text=text, at=entry.timestamp, agent_id=entry.agent_id, place=place)


def _entry_texts(entry: Entry, place: SourceLocation, source: Source) -> Iterator[tuple[MessageAuthor, str]]:
    match entry.type:
        case "assistant":
            yield from _assistant_texts(entry)
        case "user":
            yield from _user_texts(entry)
        case "attachment":
            yield from _attachment_texts(entry)
        case "system" if entry.subtype in _MESSAGE_SUBTYPES:
            yield _system_text(entry, place, source)
        case "compact_boundary":
            yield "system", _compaction_text(entry, place, source)
        case _:
            return


def _assistant_texts(entry: Entry) -> Iterator[tuple[MessageAuthor, str]]:
    message = entry.message
    content = message.content if message else None
    if message is None or content is None:
        return
    voice: MessageAuthor = "text"
    if entry.is_api_error:
        voice = "error"
    elif message.model == "<synthetic>":  # the client put words into the model's mouth
        voice = "injected"
    if isinstance(content, str):
        yield voice, content
        return
    for block in content:
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
        if block.type == "text":  # beside a result
            text = extract_text(block.text)
            yield _voice_beside_result(text), text


def _voice_beside_result(text: str) -> MessageAuthor:
    """The voice of a text that came on the same line as a result."""
    start = text.lstrip()
    if start.startswith("[Request interrupted by user"):
        return "interrupt"
    if start.startswith("<task-notification>"):
        return "notification"
    return "injected" if start.startswith("<") else "prompt"


def _attachment_texts(entry: Entry) -> Iterator[tuple[MessageAuthor, str]]:
    note = entry.attachment
    if note is None:
        return
    if note.type == "queued_command":
        notified = note.command_mode == "task-notification"
        yield "notification" if notified else "prompt", extract_text(note.prompt)
        return
    voice = _HOOK_VOICES.get(note.type)
    point = note.hook_event or note.hook_name or ""
    if voice is not None and not point.startswith(_CALL_HOOKS):
        text = extract_text(note.content) or extract_text(note.message)
        yield voice, f"{point} hook: {text}" if text and point else text


def _system_text(entry: Entry, place: SourceLocation, source: Source) -> tuple[MessageAuthor, str]:
    text = extract_text(entry.content)
    match entry.subtype:
        case "api_error":
            return "error", text or _api_error_text(_read_details(place, source))
        case "local_command":
            return "command", text
        case "compact_boundary" | "microcompact_boundary":
            return "system", _compaction_text(entry, place, source)
        case _:
            return "system", text


class _Compaction(Struct, gc=False):
    trigger: str | None = None
    tokens: int | None = field(default=None, name="preTokens")


class _ApiError(Struct, gc=False):
    message: str | None = None
    formatted: str | None = None
    status: int | None = None


class _SystemDetails(Struct, gc=False):
    """What few system lines tell beside their text."""

    compaction: _Compaction | None = field(default=None, name="compactMetadata")
    microcompaction: _Compaction | None = field(default=None, name="microcompactMetadata")
    error: _ApiError | str | None = None
    attempt: int | None = field(default=None, name="retryAttempt")
    attempts: int | None = field(default=None, name="maxRetries")


def _read_details(place: SourceLocation, source: Source) -> _SystemDetails:
    """The rest of a line; such lines are few, so they are read again instead of kept."""
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


def _api_error_text(details: _SystemDetails) -> str:
    error = details.error
    if isinstance(error, _ApiError):
        status = f" {error.status}" if error.status else ""
        message = error.formatted or error.message or f"API error{status}"
    else:
        message = error or "API error"
    if details.attempt is None:
        return message
    of = f" of {details.attempts}" if details.attempts else ""
    return f"{message} (attempt {details.attempt}{of})"


class TranscriptContent(Struct, frozen=True, kw_only=True):
    """What one file tells: calls, words, and which lines belong to subagents inside it."""

    file: str
    agent_id: str | None
    """The subagent whose file this is; None for a session's own."""
    spans: Sequence[Span]
    messages: Sequence[Message]
    inline_agent_keys: Mapping[int, str] = {}
    """Lines of subagents kept in this file, each with a key of its subagent: an agent's id, the id
    of the call that started it, or the uuid of its first line."""
    branches: Branches
    """Lines that are not on the active branch."""
    agent_prompts: Mapping[str, str] = {}
    """What each call that may start a subagent gave it to do, by call id."""
    starter_call: str | None = None
    """The call that started the subagent, if a side file tells."""
    role: str | None = None
    """What sort of agent it is, if a side file tells."""


def read_content(transcript: ReadableTranscript) -> TranscriptContent:
    """What a transcript tells, in one more pass over its file.

    Raises:
        SourceError: the file can no longer be read.
    """
    if transcript.dialect == "codex":
        return _read_rollout_content(transcript)
    agent_id = transcript.info.agent_id
    inline_lines = _InlineAgentLines(agent_id)
    repeated = set(transcript.tree.duplicate_lines())
    messages: list[Message] = []
    agent_prompts: dict[str, str] = {}
    for entry, place in transcript.entries():
        inline_lines.add(entry, place.line)
        if place.line not in repeated:
            messages.extend(parse_entry_messages(entry, place, transcript.source))
        if entry.type == "assistant":
            agent_prompts.update(_agent_prompts(entry))
    meta = _read_meta_or_default(transcript.file) if agent_id else AgentMeta()
    return TranscriptContent(
        file=transcript.file,
        agent_id=agent_id,
        spans=transcript.spans,
        messages=messages,
        inline_agent_keys=inline_lines.keys_by_line,
        branches=transcript.tree.branches(),
        agent_prompts=agent_prompts,
        starter_call=meta.tool_use_id,
        role=meta.agent_type,
    )


def _read_rollout_content(transcript: ReadableTranscript) -> TranscriptContent:
    """What a rollout tells; of a subagent's, without the history that it was given."""
    agent_id = transcript.info.agent_id
    return TranscriptContent(
        file=transcript.file,
        agent_id=agent_id,
        spans=[span for span in transcript.spans if agent_id is None or span.call.agent_id == agent_id],
        messages=[message for message in transcript.messages() if agent_id is None or message.agent_id == agent_id],
        branches=transcript.branches(),
        role=transcript.role,
    )


def _read_meta_or_default(file: str) -> AgentMeta:
    return read_agent_meta(Path(file)) or AgentMeta()


class _InlineAgentLines:
    """Tells the lines of subagents from those of the conversation that holds them."""

    def __init__(self, agent_id: str | None) -> None:
        self._agent_id = agent_id
        self._keys_by_uuid: dict[str, str] = {}
        self.keys_by_line: dict[int, str] = {}

    def add(self, entry: Entry, line: int) -> None:
        """One entry, in file order."""
        key = self._agent_key(entry)
        if key is None:
            return
        self.keys_by_line[line] = key
        if entry.uuid is not None:
            self._keys_by_uuid[entry.uuid] = key

    def _agent_key(self, entry: Entry) -> str | None:
        if entry.parent_tool_use_id_snake is not None:
            return entry.parent_tool_use_id_snake
        if not entry.is_sidechain or (self._agent_id is not None and entry.agent_id == self._agent_id):
            return None
        if entry.agent_id is not None:
            return entry.agent_id
        return self._keys_by_uuid.get(entry.parent_uuid or "", entry.uuid)


def _agent_prompts(entry: Entry) -> Iterator[tuple[str, str]]:
    """What the calls of an entry gave to subagents to do."""
    content = entry.message.content if entry.message else None
    for block in content if isinstance(content, list) else ():
        if block.id is not None and _is_agent_call(block) and block.input is not None:
            prompt = block.input.prompt
            if isinstance(prompt, str) and prompt:
                yield block.id, prompt


def _is_agent_call(block: MessageBlock) -> bool:
    return tool_kind(block.name or "") == "agent"
