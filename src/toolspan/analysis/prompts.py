"""The prompts of a person in one file, and what followed each of them.

`PROMPTS` are the facts of one file, and `join_prompts` returns each prompt once across forks and resumes. The tasks of
subagents, which a model wrote, are left out, and so are commands that only the client handles, such as `/exit`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from msgspec import Struct

from toolspan.reading.facts import FactKind, FileReading
from toolspan.reading.lineage import CopyTracker, FileFacts, Lineages, SessionFiles
from toolspan.reading.timeline import AgentTimeline, TimelineBatch, TimelineMessage, Turn, display_text
from toolspan.types.ids import CallId
from toolspan.types.session import SessionInfo
from toolspan.types.span import Branch, Span

MAX_PROMPT_CHARS = 10_000
"""The number of characters of a prompt that are kept. A longer one usually contains a pasted file."""


class RecordedPrompt(Struct, frozen=True, array_like=True, gc=False):
    """One prompt in a file, and the calls up to the next one."""

    line: int
    at: str | None
    ended: str | None
    """The time of the last record before the next prompt."""
    text: str
    characters: int
    """The length of the whole text."""
    is_command: bool
    branch: Branch
    calls: tuple[CallId, ...]
    """The calls of the main agent."""


class FilePrompts(Struct, frozen=True, kw_only=True):
    """The prompts in one file, in its order."""

    file: str
    info: SessionInfo
    prompts: list[RecordedPrompt]
    has_content: bool = False
    """True if the file contains calls or prompts."""
    problem: str | None = None


def _measure(reading: FileReading) -> FilePrompts:
    transcript, content = reading.transcript, reading.content
    prompts = [] if content.agent_id is not None else [*filter(None, map(_record_prompt, reading.timeline.turns))]
    has_content = bool(prompts or content.spans)
    return FilePrompts(file=transcript.file, info=transcript.info, prompts=prompts, has_content=has_content)


PROMPTS = FactKind(
    name="prompts",
    measure=_measure,
    facts_type=FilePrompts,
    unreadable=lambda file, problem: FilePrompts(file=file, info=SessionInfo(), prompts=[], problem=problem),
    finds_causes=False,
)


def _record_prompt(turn: Turn) -> RecordedPrompt | None:
    message = turn.prompt
    if message is None or (message.voice == "command" and not _is_answered(turn)):
        return None
    text = display_text(message).strip()
    if not text:
        return None
    first, ended = turn.items[0], turn.end_time
    return RecordedPrompt(
        line=message.place.line,
        at=message.at,
        ended=ended.isoformat() if ended is not None else None,
        text=text[:MAX_PROMPT_CHARS],
        characters=len(text),
        is_command=message.voice == "command",
        branch=first.branch if isinstance(first, TimelineMessage) else "active",
        calls=tuple(span.id for span in _own_calls(turn)),
    )


def _own_calls(turn: Turn) -> Iterable[Span]:
    return (call.span for call in turn.calls if call.span.state != "orphan_result")


def _is_answered(turn: Turn) -> bool:
    return any(
        isinstance(item, TimelineBatch | AgentTimeline) or item.message.voice in ("text", "thinking")
        for item in turn.items
    )


class _PromptFile(FileFacts, Protocol):
    @property
    def prompts(self) -> FilePrompts: ...


F = TypeVar("F", bound=_PromptFile)


def join_prompts(
    sessions: Iterable[SessionFiles[F]], files: Iterable[F]
) -> list[tuple[SessionFiles[F], F, RecordedPrompt]]:
    """Return each prompt once with its session and file, in order of time.

    A prompt that a fork or resume copied belongs to the original file. `files` are all files.
    """
    lineages = Lineages()
    for file in files:
        lineages.add(file.file, file.info)
    copies = CopyTracker(lineages)
    owned = [(session, file) for session in sessions if session.has_main for file in (session.file, *session.continued)]
    owned.sort(key=lambda pair: lineages.rank(pair[1].file))
    joined = [
        (session, file, prompt)
        for session, file in owned
        for prompt in copies.take_new(file.file, file.prompts.prompts, key=_copy_key)
    ]
    return sorted(joined, key=lambda item: (item[2].at or item[1].info.started_at or "", item[1].file, item[2].line))


def _copy_key(prompt: RecordedPrompt) -> tuple[object, ...]:
    return (prompt.at, prompt.text) if prompt.at else (prompt.line, prompt.text)
