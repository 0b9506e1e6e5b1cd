"""One result, read as far as its call's state needs.

In: a result block and the line it stands on. Out: a `Result` and a `Verdict`. Bodies of successes,
which are most of the bytes, stay undecoded; only their first and last bytes are looked at. Read
`answer` first.
"""

from functools import lru_cache
from typing import NamedTuple

from toolspan.ids import CallId
from toolspan.model.kind import exit_code, unwrap
from toolspan.model.place import Place
from toolspan.model.span import Result, Shelf
from toolspan.model.toolkind import ToolKind, tool_kind
from toolspan.read.verdict import Answer, Verdict, judge
from toolspan.wire.claude import Block, Entry, text_of
from toolspan.wire.claude_parts import StructuredFacts, agent_in_text, permission_decision

_SUSPECT = (b'"<tool_use_error', b'"[', b'"Error', b'"result (', b'[{"type":"text","text":"Error')
"""How the content of a result without error flag begins when it deserves a closer look."""
_BACKGROUND = (
    b'"Command running in background', b'"Command was manually backgrounded',
    b'"Command exceeded the assistant-mode', b'"Async agent launched',
    b'[{"type":"text","text":"Async agent launched',
)  # fmt: skip
_SPILL_MARK = b'"<persisted-output>'
_KEPT_TEXT = 4_000
_SHOWN_TEXT = 300
_ASYNC = ("async_launched", "remote_launched", "teammate_spawned")
_NO_FACTS = StructuredFacts()
_SUCCEEDED = judge(Answer(tool="", text="", is_error=None))


class Answered(NamedTuple):
    """A result and what it says."""

    result: Result
    verdict: Verdict
    words: str
    """The beginning of the text when something went wrong, tags removed."""
    agent: str | None
    """The subagent the call started."""


def answer(
    call_id: CallId, tool: str, block: Block, entry: Entry, place: Place, shelf: Shelf
) -> Answered:
    """What one result block says."""
    kind = tool_kind(tool)
    head = memoryview(block.content)[:80].tobytes()
    structured = entry.structured
    facts = structured if type(structured) is StructuredFacts else _NO_FACTS
    text = _text(tool, kind, head, block)
    background = "task" if head.startswith(_BACKGROUND) else None
    if facts is not _NO_FACTS:
        background = _background(facts) or background
    verdict, words, code = _SUCCEEDED, "", None
    if text or block.is_error or entry.tool_denial_kind or facts.decisive:
        said = _said(tool, text, block, entry, facts, background)
        verdict, words, code = judge(said), said.text, said.exit_code
    persisted = facts.persisted_output_path
    if persisted is None and (text or head.startswith(_SPILL_MARK)):
        persisted = _persisted(text or text_of(block.content)[:_KEPT_TEXT])
    result = Result(
        id=call_id,
        tool=tool,
        at=place.packed,
        finished_at=entry.timestamp,
        is_error=block.is_error,
        exit_code=code,
        denial_kind=entry.tool_denial_kind,
        truncated=verdict.truncated or persisted is not None,
        persisted_path=persisted,
        background_task=background,
        reported_ms=None if facts is _NO_FACTS else _reported(facts),
        shelf=shelf,
    )
    agent = facts.agent_id or (agent_in_text(text) if text and kind == "agent" else None)
    return Answered(result, verdict, words[:_SHOWN_TEXT] if verdict.kind else "", agent)


def _said(
    tool: str,
    text: str,
    block: Block,
    entry: Entry,
    facts: StructuredFacts,
    background: str | None,
) -> Answer:
    words = unwrap(text)
    return Answer(
        tool=tool,
        text=words[:_KEPT_TEXT],
        is_error=block.is_error,
        exit_code=exit_code(words),
        wrapped=text.lstrip().startswith("<tool_use_error>"),
        denial=entry.tool_denial_kind,
        denier=_denier(entry) if entry.tool_denial_kind else None,
        structured=type(entry.structured) in (StructuredFacts, list),
        version=_numbers(entry.version),
        interrupted=bool(facts.interrupted or facts.was_interrupted),
        timed_out=facts.timed_out_after_ms is not None,
        background=background is not None,
    )


def _denier(entry: Entry) -> str | None:
    found = permission_decision(entry.permission_decision)
    return found.source if found and found.decision == "reject" else None


@lru_cache(maxsize=64)
def _numbers(version: str | None) -> tuple[int, ...]:
    """A version as numbers that compare; empty when there is none."""
    parts = (version or "").split(".")
    return tuple(int(part[:9]) for part in parts if part.isdecimal() and part.isascii())


def _reported(facts: StructuredFacts) -> float | None:
    if facts.duration_seconds is not None:
        return facts.duration_seconds * 1000
    return facts.duration_ms if facts.duration_ms is not None else facts.total_duration_ms


def _text(tool: str, kind: ToolKind, head: bytes, block: Block) -> str:
    """The text of a result, if it can matter for the state: success bodies stay undecoded."""
    if block.is_error or head.startswith(_SUSPECT):
        return text_of(block.content)
    if (
        kind in ("shell", "agent") or not tool
    ):  # the last line may state an exit code or an agent's id
        tail = memoryview(block.content)[-400:].tobytes()
        if b"[Exit code: " in tail or b"agentId: " in tail:
            return text_of(block.content)
    return ""


def _background(facts: StructuredFacts) -> str | None:
    """The task that goes on after the call returned."""
    if facts.background_task_id:
        return facts.background_task_id
    if facts.status in _ASYNC or facts.is_async:
        return facts.agent_id or facts.task_id or "agent"
    return None


def _persisted(text: str) -> str | None:
    """Where the client says it saved what was too long to show."""
    before, found, after = text.partition("saved to")
    if not found or len(before) > _SHOWN_TEXT:
        return None
    return after.lstrip(": ").split("\n", 1)[0].strip().rstrip(".") or None
