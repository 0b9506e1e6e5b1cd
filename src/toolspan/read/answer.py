"""One result, read as far as its call's state needs.

In: a result block and the line it stands on. Out: a `Result` and a `Verdict`. Bodies of successes,
which are most of the bytes, stay undecoded; only their first and last bytes are looked at. Read
`answer` first.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from toolspan.model.kind import exit_code, unwrap
from toolspan.model.span import Call, Result
from toolspan.model.toolkind import tool_kind, tools_of
from toolspan.read.verdict import Answer, Verdict, judge
from toolspan.wire.claude import Block, Entry, text_of
from toolspan.wire.claude_parts import (
    LAUNCHED,
    StructuredFacts,
    agent_in_text,
    permission_decision,
)

_SUSPECT = re.compile(rb'"(?:<tool_use_error|\[|Error|result \()|\[\{"type":"text","text":"Error')
"""How the content of a result without error flag begins when it deserves a closer look."""
_BACKGROUND = re.compile(
    rb'"(?:Async agent launched|Command (?:running in background|was manually backgrounded'
    rb'|exceeded the assistant-mode))|\[\{"type":"text","text":"Async agent launched'
)
_SPILLED = re.compile(rb'"<persisted-output>')
_TAIL = 400
_KEPT_TEXT = 4_000
_SHOWN_TEXT = 300
_NO_FACTS = StructuredFacts()
_TELLING = re.compile(b"|".join(part.pattern for part in (_SUSPECT, _BACKGROUND, _SPILLED)))
"""All these beginnings: they say more than that the call returned."""
_TALKATIVE = tools_of("shell", "agent") | {""}
"""Tools whose last line may state an exit code or an agent's id; an unknown one may be such."""
SUCCEEDED = judge(Answer(tool="", text="", is_error=None))
"""What a result says that has nothing more to tell."""


class Answered(NamedTuple):
    """A result and what it says."""

    result: Result
    verdict: Verdict
    words: str
    """The beginning of the text when something went wrong, tags removed."""
    agent: str | None
    """The subagent the call started."""


def plain_success(call: Call, block: Block, entry: Entry, at: int) -> Result | None:
    """The result of a call that returned and has nothing more to tell; None when it may have.

    Most results are such, so this looks at no more than it must. What it gives is what `answer`
    would give.
    """
    if block.is_error or entry.tool_denial_kind or _TELLING.match(block.content):
        return None
    tool = call.tool
    if tool in _TALKATIVE and _ends_telling(block):
        return None
    facts, reported = entry.structured, None
    if type(facts) is StructuredFacts:
        if facts.telling:
            return None
        reported = facts.reported_ms
    return Result(
        id=call.id,
        tool=tool,
        at=at,
        finished_at=entry.timestamp,
        is_error=block.is_error,
        reported_ms=reported,
        shelf=call.shelf,
    )


def answer(call: Call, block: Block, entry: Entry, at: int) -> Answered:
    """What one result block says."""
    tool = call.tool
    content = block.content
    structured = entry.structured
    facts = structured if type(structured) is StructuredFacts else _NO_FACTS
    text = _text(tool, block)
    background = "task" if _BACKGROUND.match(content) else None
    if facts is not _NO_FACTS:
        background = _background(facts) or background
    verdict, words, code = SUCCEEDED, "", None
    if text or block.is_error or entry.tool_denial_kind or facts.decisive:
        said = _said(tool, text, block, entry, facts, background)
        verdict, words, code = judge(said), said.text, said.exit_code
    persisted = facts.persisted_output_path
    if persisted is None and (text or _SPILLED.match(content)):
        persisted = _persisted(text or text_of(content)[:_KEPT_TEXT])
    result = Result(
        id=call.id,
        tool=tool,
        at=at,
        finished_at=entry.timestamp,
        is_error=block.is_error,
        exit_code=code,
        denial_kind=entry.tool_denial_kind,
        truncated=verdict.truncated or persisted is not None,
        persisted_path=persisted,
        background_task=background,
        reported_ms=facts.reported_ms,
        shelf=call.shelf,
    )
    agent = facts.agent_id or (agent_in_text(text) if text and tool_kind(tool) == "agent" else None)
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


def _text(tool: str, block: Block) -> str:
    """The text of a result, if it can matter for the state: success bodies stay undecoded."""
    if block.is_error or _SUSPECT.match(block.content):
        return text_of(block.content)
    if tool in _TALKATIVE and _ends_telling(block):
        return text_of(block.content)
    return ""


def _ends_telling(block: Block) -> bool:
    """The last line may state an exit code or an agent's id."""
    data = bytes(block.content)
    return data.find(b"[Exit code: ", -_TAIL) >= 0 or data.find(b"agentId: ", -_TAIL) >= 0


def _background(facts: StructuredFacts) -> str | None:
    """The task that goes on after the call returned."""
    if facts.background_task_id:
        return facts.background_task_id
    if facts.status in LAUNCHED or facts.is_async:
        return facts.agent_id or facts.task_id or "agent"
    return None


def _persisted(text: str) -> str | None:
    """Where the client says it saved what was too long to show."""
    before, found, after = text.partition("saved to")
    if not found or len(before) > _SHOWN_TEXT:
        return None
    return after.lstrip(": ").split("\n", 1)[0].strip().rstrip(".") or None
