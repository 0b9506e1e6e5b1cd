"""The share of each call in the model's context: the size of its result, and the number of requests that contained it.

`CONTEXT` are the results in one file, `join_context` counts each call once across forks and resumes, and
`context_by_tool` returns the sums for each tool. A result stays in the conversation until the next compaction, the end
of an abandoned branch, or the end of the session. Sizes in tokens are estimates.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.reading.facts import FactKind, FileReading
from toolspan.types.session import RequestUsage, SessionInfo
from toolspan.types.span import Span

BYTES_PER_TOKEN = 4
"""The average for English text and code. Other texts have fewer bytes per token."""
TOKENS_PER_IMAGE = 1_500
"""The approximate number of tokens of a large image, which does not depend on its size in bytes."""


class ResultSize(Struct, frozen=True, kw_only=True, array_like=True):
    """The size of one result, as sent to the model."""

    bytes: int
    estimated_tokens: int


class MeasuredCall(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """The size of a call's result, and the requests of its conversation that contained it."""

    id: str
    batch: str | None
    tool: str
    target: str | None
    at: str | None
    size: ResultSize
    first: int
    """The index of the first request that contained the result, in `ConversationContext.requests`."""
    end: int
    """The index after the last request that contained the result."""


class ConversationContext(Struct, frozen=True, kw_only=True):
    """The requests of one conversation in order of time, and the results that its calls put into them."""

    requests: list[str]
    calls: list[MeasuredCall]


class FileContext(Struct, frozen=True, kw_only=True):
    """The conversations in one file: its own, then those of subagents whose lines it contains."""

    file: str
    info: SessionInfo
    conversations: list[ConversationContext]
    problem: str | None = None


class ContextCall(Struct, frozen=True, kw_only=True):
    """The result of one call, merged from all files that contain it."""

    call: str
    tool: str
    target: str | None
    session: str
    agent: str | None
    """The id of the subagent whose conversation contains the call."""
    file: str
    at: str | None
    bytes: int
    estimated_tokens: int
    requests: int
    """The number of requests that contained the result."""
    resent_tokens: int
    """The estimated tokens times the number of requests. Most of these input tokens are read from the cache."""


class ContextTool(Struct, frozen=True, kw_only=True):
    """The results of one tool."""

    tool: str
    calls: int
    bytes: int
    estimated_tokens: int
    requests: float
    """The mean number of requests that contained a result."""
    resent_tokens: int
    largest: int
    """The size of the largest result in bytes."""


def _measure(reading: FileReading) -> FileContext:
    transcript, content = reading.transcript, reading.content
    starters = transcript.message_starters
    requests: dict[str, dict[str, RequestUsage]] = {"": {}}
    for name, usage in transcript.requests.items():
        requests.setdefault(starters.get(name, ""), {})[name] = usage
    spans: dict[str, list[Span]] = {"": []}
    for span in content.spans:
        if span.result is not None and span.state != "orphan_result":
            spans.setdefault(starters.get(span.call.message_id or "", ""), []).append(span)
    compactions = sorted(
        message.at
        for message in content.messages
        if message.voice == "summary" and message.at and message.place.line not in content.inline_agent_keys
    )
    conversations = [
        _measure_conversation(requests.get(key, {}), members, compactions if key == "" else ())
        for key, members in spans.items()
    ]
    return FileContext(file=transcript.file, info=transcript.info, conversations=conversations)


CONTEXT = FactKind(
    name="context",
    measure=_measure,
    facts_type=FileContext,
    unreadable=lambda file, problem: FileContext(file=file, info=SessionInfo(), conversations=[], problem=problem),
)


def _measure_conversation(
    usages: Mapping[str, RequestUsage], spans: Sequence[Span], compactions: Sequence[str]
) -> ConversationContext:
    ordered = sorted(usages, key=lambda name: usages[name].at or "")
    times = [usages[name].at or "" for name in ordered]
    positions = {name: n for n, name in enumerate(ordered)}
    branches = {span.call.message_id: span.branch for span in spans}
    calls = []
    for span in spans:
        result, requested = span.result, span.call.requested_at
        if result is None or (size := _result_size(span)) is None:
            continue
        answered = result.finished_at or requested or ""
        # Codex reports the tokens of a request only after the results of its calls.
        calling = positions.get(span.call.message_id or "", bisect_left(times, requested or ""))
        first = min(max(bisect_right(times, answered), calling + 1), len(times))
        n = bisect_right(compactions, answered)
        end = bisect_left(times, compactions[n]) if n < len(compactions) else len(times)
        if span.branch == "abandoned":
            later = (m for m in range(first, end) if branches.get(ordered[m], "abandoned") != "abandoned")
            end = next(later, end)
        calls.append(
            MeasuredCall(
                id=span.id,
                batch=span.call.message_id,
                tool=span.tool,
                target=span.call.target,
                at=requested,
                size=size,
                first=first,
                end=max(first, end),
            )
        )
    return ConversationContext(requests=ordered, calls=calls)


def _result_size(span: Span) -> ResultSize | None:
    try:
        content = span.result.content if span.result else None
    except SourceError:
        return None
    length = tokens = 0
    for block in content if isinstance(content, list) else [content]:
        match block:
            case str(text) | {"text": str(text)}:
                count = len(text.encode("utf-8", "replace"))
                tokens += -(-count // BYTES_PER_TOKEN)
            case {"source": {"data": str(data)}} | {"data": str(data)} | {"image_url": str(data)}:
                count = len(data)
                tokens += TOKENS_PER_IMAGE
            case _:
                continue
        length += count
    return ResultSize(bytes=length, estimated_tokens=tokens)


def join_context(files: Iterable[FileContext]) -> list[ContextCall]:
    """Return each call once, most resent tokens first. A request that several files contain is counted once."""
    copies: dict[tuple[str, str | None], list[tuple[FileContext, ConversationContext, MeasuredCall]]] = {}
    for file in files:
        for conversation in file.conversations:
            for call in conversation.calls:
                copies.setdefault((call.id, call.batch), []).append((file, conversation, call))
    calls = []
    for members in copies.values():
        file, _, call = min(members, key=lambda member: (member[2].at or "~", member[0].file))
        if len(members) == 1:
            requests = call.end - call.first
        else:
            requests = len({name for _, talk, copy in members for name in talk.requests[copy.first : copy.end]})
        calls.append(
            ContextCall(
                call=call.id,
                tool=call.tool,
                target=call.target,
                session=file.info.session_id or PurePath(file.file).name.partition(".")[0],
                agent=file.info.agent_id,
                file=file.file,
                at=call.at,
                bytes=call.size.bytes,
                estimated_tokens=call.size.estimated_tokens,
                requests=requests,
                resent_tokens=call.size.estimated_tokens * requests,
            )
        )
    return sorted(calls, key=lambda call: (-call.resent_tokens, -call.bytes, call.call))


def context_by_tool(calls: Iterable[ContextCall]) -> list[ContextTool]:
    """Return the sums for each tool, most resent tokens first."""
    by_tool: dict[str, list[ContextCall]] = {}
    for call in calls:
        by_tool.setdefault(call.tool, []).append(call)
    rows = [
        ContextTool(
            tool=tool,
            calls=len(members),
            bytes=sum(call.bytes for call in members),
            estimated_tokens=sum(call.estimated_tokens for call in members),
            requests=round(sum(call.requests for call in members) / len(members), 1),
            resent_tokens=sum(call.resent_tokens for call in members),
            largest=max(call.bytes for call in members),
        )
        for tool, members in by_tool.items()
    ]
    return sorted(rows, key=lambda row: (-row.resent_tokens, -row.bytes, row.tool))
