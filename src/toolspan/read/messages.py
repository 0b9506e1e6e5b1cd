"""What was said between the calls, and by whom.

In: the entries of a transcript, in one pass. Out: `Message`s in file order; or a `Script`, which
adds what a timeline needs to tell the main conversation from the subagents inside the same file.
Calls and results are spans, not messages. Nothing a file contains raises. Read `heard` first.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct, field

from toolspan.model.message import Message, Voice
from toolspan.model.place import Place
from toolspan.model.session import Dialect, SessionInfo
from toolspan.model.span import Span
from toolspan.model.toolkind import tool_kind
from toolspan.read.discover import AgentMeta, read_meta
from toolspan.read.tree import Branches, Tree
from toolspan.read.voice import said, voice_of
from toolspan.wire.claude import Block, Entry, text_of
from toolspan.wire.source import Source

_SPEAKING = frozenset(
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
_HOOK_VOICES: dict[str, Voice] = {
    "hook_additional_context": "injected",
    "hook_stopped_continuation": "system",
    "hook_system_message": "system",
}
_CALL_HOOKS = ("PreToolUse", "PostToolUse", "PermissionRequest")
"""Points whose hooks belong to a call, which tells of them."""


class Readable(Protocol):
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
    def tree(self) -> Tree:
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

    def entries(self) -> Iterator[tuple[Entry, Place]]:
        """Its entries and where they stand."""
        ...


def messages(transcript: Readable) -> Iterator[Message]:
    """What was said, in file order.

    Raises:
        SourceError: the file can no longer be read.
    """
    return transcript.messages()


def heard(entry: Entry, place: Place, source: Source) -> Iterator[Message]:
    """What one entry says; `source` is asked for details that the typed view leaves out."""
    for voice, text in _voices(entry, place, source):
        if text.strip():
            yield Message(
                voice=voice, text=text, at=entry.timestamp, agent_id=entry.agent_id, place=place
            )


def _voices(entry: Entry, place: Place, source: Source) -> Iterator[tuple[Voice, str]]:
    match entry.type:
        case "assistant":
            yield from _model(entry)
        case "user":
            yield from _user(entry)
        case "attachment":
            yield from _attached(entry)
        case "system" if entry.subtype in _SPEAKING:
            yield _client(entry, place, source)
        case "compact_boundary":
            yield "system", _boundary(entry, place, source)
        case _:
            return


def _model(entry: Entry) -> Iterator[tuple[Voice, str]]:
    message = entry.message
    content = message.content if message else None
    if message is None or content is None:
        return
    voice: Voice = "text"
    if entry.is_api_error:
        voice = "error"
    elif message.model == "<synthetic>":  # the client put words into the model's mouth
        voice = "injected"
    if isinstance(content, str):
        yield voice, content
        return
    for block in content:
        if block.type == "text":
            yield voice, text_of(block.text)
        elif block.type == "thinking":
            yield "thinking", text_of(block.thinking)


def _user(entry: Entry) -> Iterator[tuple[Voice, str]]:
    voice = voice_of(entry)
    if voice is not None:
        yield voice, said(entry) or ""
        return
    content = entry.message.content if entry.message else None
    for block in content if isinstance(content, list) else ():
        if block.type == "text":  # beside a result
            text = text_of(block.text)
            yield _beside(text), text


def _beside(text: str) -> Voice:
    """The voice of a text that came on the same line as a result."""
    start = text.lstrip()
    if start.startswith("[Request interrupted by user"):
        return "interrupt"
    if start.startswith("<task-notification>"):
        return "notification"
    return "injected" if start.startswith("<") else "prompt"


def _attached(entry: Entry) -> Iterator[tuple[Voice, str]]:
    note = entry.attachment
    if note is None:
        return
    if note.type == "queued_command":
        notified = note.command_mode == "task-notification"
        yield "notification" if notified else "prompt", text_of(note.prompt)
        return
    voice = _HOOK_VOICES.get(note.type)
    point = note.hook_event or note.hook_name or ""
    if voice is not None and not point.startswith(_CALL_HOOKS):
        words = text_of(note.content) or text_of(note.message)
        yield voice, f"{point} hook: {words}" if words and point else words


def _client(entry: Entry, place: Place, source: Source) -> tuple[Voice, str]:
    text = text_of(entry.content)
    match entry.subtype:
        case "api_error":
            return "error", text or _trouble(_details(place, source))
        case "local_command":
            return "command", text
        case "compact_boundary" | "microcompact_boundary":
            return "system", _boundary(entry, place, source)
        case _:
            return "system", text


class _Compaction(Struct, gc=False):
    trigger: str | None = None
    tokens: int | None = field(default=None, name="preTokens")


class _ApiError(Struct, gc=False):
    message: str | None = None
    formatted: str | None = None
    status: int | None = None


class _Details(Struct, gc=False):
    """What few system lines tell beside their text."""

    compaction: _Compaction | None = field(default=None, name="compactMetadata")
    microcompaction: _Compaction | None = field(default=None, name="microcompactMetadata")
    error: _ApiError | str | None = None
    attempt: int | None = field(default=None, name="retryAttempt")
    attempts: int | None = field(default=None, name="maxRetries")


def _details(place: Place, source: Source) -> _Details:
    """The rest of a line; such lines are few, so they are read again instead of kept."""
    try:
        return msgspec.json.decode(source.read(place.offset, place.length), type=_Details)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Details()


def _boundary(entry: Entry, place: Place, source: Source) -> str:
    found = _details(place, source)
    facts = found.compaction or found.microcompaction or _Compaction()
    told = [facts.trigger] if facts.trigger else []
    if facts.tokens:
        told.append(f"{facts.tokens:,} tokens before")
    text = text_of(entry.content) or "Conversation compacted"
    return f"{text} ({', '.join(told)})" if told else text


def _trouble(details: _Details) -> str:
    error = details.error
    if isinstance(error, _ApiError):
        status = f" {error.status}" if error.status else ""
        words = error.formatted or error.message or f"API error{status}"
    else:
        words = error or "API error"
    if details.attempt is None:
        return words
    of = f" of {details.attempts}" if details.attempts else ""
    return f"{words} (attempt {details.attempt}{of})"


class Script(Struct, frozen=True, kw_only=True):
    """What one file tells: calls, words, and which lines belong to subagents inside it."""

    file: str
    agent_id: str | None
    """The subagent whose file this is; None for a session's own."""
    spans: Sequence[Span]
    messages: Sequence[Message]
    asides: Mapping[int, str] = {}
    """Lines of subagents kept in this file, each with a key of its subagent: an agent's id, the id
    of the call that started it, or the uuid of its first line."""
    branches: Branches
    """Lines that are not on the active branch."""
    errands: Mapping[str, str] = {}
    """What each call that may start a subagent gave it to do, by call id."""
    starter: str | None = None
    """The call that started the subagent, if a side file tells."""
    role: str | None = None
    """What sort of agent it is, if a side file tells."""


def script(transcript: Readable) -> Script:
    """What a transcript tells, in one more pass over its file.

    Raises:
        SourceError: the file can no longer be read.
    """
    if transcript.dialect == "codex":
        return _rollout(transcript)
    own = transcript.info.agent_id
    asides = _Asides(own)
    repeated = set(transcript.tree.duplicates())
    words: list[Message] = []
    errands: dict[str, str] = {}
    for entry, place in transcript.entries():
        asides.add(entry, place.line)
        if place.line not in repeated:
            words.extend(heard(entry, place, transcript.source))
        if entry.type == "assistant":
            errands.update(_errands(entry))
    meta = _meta(transcript.file) if own else AgentMeta()
    return Script(
        file=transcript.file,
        agent_id=own,
        spans=transcript.spans,
        messages=words,
        asides=asides.lines,
        branches=transcript.tree.branches(),
        errands=errands,
        starter=meta.tool_use_id,
        role=meta.agent_type,
    )


def _rollout(transcript: Readable) -> Script:
    """What a rollout tells; of a subagent's, without the history that it was given."""
    own = transcript.info.agent_id
    return Script(
        file=transcript.file,
        agent_id=own,
        spans=[span for span in transcript.spans if own is None or span.call.agent_id == own],
        messages=[one for one in transcript.messages() if own is None or one.agent_id == own],
        branches=transcript.branches(),
        role=transcript.role,
    )


def _meta(file: str) -> AgentMeta:
    return read_meta(Path(file)) or AgentMeta()


class _Asides:
    """Tells the lines of subagents from those of the conversation that holds them."""

    def __init__(self, own: str | None) -> None:
        self._own = own
        self._keys: dict[str, str] = {}
        self.lines: dict[int, str] = {}

    def add(self, entry: Entry, line: int) -> None:
        """One entry, in file order."""
        key = self._key(entry)
        if key is None:
            return
        self.lines[line] = key
        if entry.uuid is not None:
            self._keys[entry.uuid] = key

    def _key(self, entry: Entry) -> str | None:
        if entry.parent_tool_use_id_snake is not None:
            return entry.parent_tool_use_id_snake
        if not entry.is_sidechain or (self._own is not None and entry.agent_id == self._own):
            return None
        if entry.agent_id is not None:
            return entry.agent_id
        return self._keys.get(entry.parent_uuid or "", entry.uuid)


def _errands(entry: Entry) -> Iterator[tuple[str, str]]:
    """What the calls of an entry gave to subagents to do."""
    content = entry.message.content if entry.message else None
    for block in content if isinstance(content, list) else ():
        if block.id is not None and _starts_agents(block) and block.input is not None:
            prompt = block.input.prompt
            if isinstance(prompt, str) and prompt:
                yield block.id, prompt


def _starts_agents(block: Block) -> bool:
    return tool_kind(block.name or "") == "agent"
