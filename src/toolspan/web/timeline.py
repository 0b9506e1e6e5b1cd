"""`/api/session/ID/timeline`: a session as columns of equal length, small enough for 50,000 calls.

`order` lists the rows as `3 * index + kind`, where kind 0 is a call, 1 a message and 2 a subagent. Times are
milliseconds after `base`. Names that repeat are indexes of `names`. Bodies are not included: `/api/call/ID` has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from msgspec import UNSET, UnsetType

from toolspan.analysis.timing import CallPhases, HookTimings, TimeSlice, read_all_hook_timings, slice_agent
from toolspan.cli.show import SessionDetail, read_session, resolve_names, session_facts
from toolspan.errors import NotFound
from toolspan.export.html import TextBudget
from toolspan.export.json import encode_json, escape_control_chars, one_line
from toolspan.export.session_export import LaneAllocator
from toolspan.formats.registry import get_format, relative_to_folder
from toolspan.formats.source import to_path
from toolspan.reading.cache import Cache, cached_answer, default_folder
from toolspan.reading.discovery import TranscriptFile
from toolspan.reading.timeline import (
    AgentTimeline,
    TimelineBatch,
    TimelineCall,
    TimelineMessage,
    build_timeline,
    display_text,
    starts_turn,
)
from toolspan.reading.transcript import Transcript, read_content
from toolspan.types.span import Hook, Notification, Span, parse_timestamp, to_epoch_ms
from toolspan.types.state import OPEN_STATES, STATE_MEANINGS
from toolspan.web.worker import Question

_CALL, _MESSAGE, _AGENT = range(3)
_BRANCHES = ("active", "compacted", "abandoned")
_FLAGS = ("background", "deferred", "synthetic", "ambiguous", "truncated")
_MAX_LINE_CHARS = 200
_MAX_LANES = 16
_MAX_TEXT_CHARS = 6_000
_MAX_TEXTS_CHARS = 5_000_000
_MIN_CACHED_BYTES = 1 << 20
_CALL_COLUMNS = (
    "id", "tool", "state", "agent", "at", "start", "end", "took", "lane", "target", "error", "message", "batch",
    "branch", "flags", "exit", "file", "request_line", "result_line", "until", "hooks", "session",
)  # fmt: skip
_MESSAGE_COLUMNS = ("agent", "voice", "at", "branch", "opens", "file", "line", "chars")
_REQUEST_COLUMNS = ("id", "at", "agent", "model", "input", "output", "cache_read", "cache_write", "context")

Columns = dict[str, list[Any]]


def answer(question: Question) -> list[bytes]:
    """Return the timeline of the session that the arguments name. `message=N` returns a whole message instead."""
    options = dict(argument.removeprefix("--").split("=", 1) for argument in question.arguments)
    files = resolve_names(question.names, session=options.get("session"))
    if not isinstance(files, list):
        raise NotFound("this is a call, not a session")
    if "message" in options:
        return [encode_json(_whole_message(files, int(options["message"])))]
    folder = default_folder()
    if folder is None or sum(file.size for file in files) < _MIN_CACHED_BYTES:
        return [_encode_timeline(files)[0]]
    uncached: list[bytes] = []

    def compute() -> bytes | None:
        data, is_running = _encode_timeline(files)
        uncached.append(data)
        return None if is_running else data

    # perf: a session with 50,000 calls takes 0.1 s from the cache instead of 8 s
    cached = cached_answer([file.path for file in files], "web.timeline", bytes, compute, Cache(folder))
    return [uncached[0] if cached is None else cached]


def _encode_timeline(files: list[TranscriptFile]) -> tuple[bytes, bool]:
    """Return a session's timeline as JSON, and whether a call is still running."""
    transcripts = read_session(files)
    builder = _TimelineColumns(transcripts)
    return encode_json(builder.page_data()), builder.is_running


def _whole_message(files: list[TranscriptFile], number: int) -> dict[str, object]:
    builder = _TimelineColumns(read_session(files), wanted_message=number)
    if builder.wanted_text is UNSET:
        raise NotFound(f"there is no message {number}")
    return {"text": builder.wanted_text}


class _TimelineColumns:
    """The columns of one session."""

    def __init__(self, transcripts: list[Transcript], wanted_message: int | None = None) -> None:
        self._wanted_message = wanted_message
        self.wanted_text: str | UnsetType = UNSET
        timeline = build_timeline([read_content(transcript) for transcript in transcripts])
        self._detail = SessionDetail(main=transcripts[0], files=transcripts, timeline=timeline)
        self._cwd = self._detail.cwd
        self._base = to_epoch_ms(timeline.start_time) or 0
        self._names: dict[str | None, int] = {}
        self._calls: Columns = {name: [] for name in _CALL_COLUMNS}
        self._messages: Columns = {name: [] for name in _MESSAGE_COLUMNS}
        self._texts = TextBudget(_MAX_TEXTS_CHARS, _MAX_TEXT_CHARS)
        self._agents: list[dict[str, object]] = []
        self._agent_of_file: dict[str, int] = {}
        self._agent_of_batch: dict[str, int] = {}
        self._order: list[int] = []
        self._phases: list[tuple[int, int, int, str]] = []
        self._slices: list[tuple[int, int, int]] = []
        timings = read_all_hook_timings(to_path(transcript.file) for transcript in transcripts)
        self._add_agent(timeline, None, 0, timings)

    @property
    def is_running(self) -> bool:
        """True if a call has not finished and its client runs."""
        return any(span.state in OPEN_STATES for span in self._detail.spans)

    def page_data(self) -> dict[str, object]:
        """Return all columns as one JSON object."""
        return {
            "session": {
                **session_facts(self._detail),
                "findings": sum(len(transcript.findings) for transcript in self._detail.files),
            },
            "base": self._base,
            "meanings": STATE_MEANINGS,
            "requests": self._request_columns(),  # before `names`, to which it adds
            "names": list(self._names),
            "agents": self._agents,
            "order": self._order,
            "calls": self._calls,
            "messages": {**self._messages, "text": self._texts.truncated_texts()},
            "phases": self._phases,
            "slices": self._slices,
        }

    def _name(self, text: str | None) -> int:
        return self._names.setdefault(text, len(self._names))

    def _time(self, at: int | None) -> int | None:
        return None if at is None else at - self._base

    def _add_agent(
        self, timeline: AgentTimeline, parent: int | None, depth: int, timings: Mapping[str, HookTimings]
    ) -> None:
        """Add an agent and all of its rows, which include those of its subagents."""
        number = len(self._agents)
        self._agent_of_file.setdefault(timeline.file, number)
        lanes = LaneAllocator()
        slices, phases = slice_agent(timeline, timings)
        phases_by_call = dict(zip((placed.span.id for placed in timeline.calls), phases, strict=True))
        facts: dict[str, object] = {
            "id": timeline.agent_id,
            "role": timeline.role,
            "depth": depth,
            "parent": parent,
            "linked": timeline.linked,
            "calls": len(timeline.calls),
            "start": self._time(to_epoch_ms(timeline.start_time)),
            "end": self._time(to_epoch_ms(timeline.end_time)),
        }
        self._agents.append(facts)
        if number:
            self._order.append(3 * number + _AGENT)
        else:
            self._add_slices(slices)
        for item in chain.from_iterable(turn.items for turn in timeline.turns):
            match item:
                case TimelineMessage():
                    self._add_message(item, number, timeline.file)
                case AgentTimeline():
                    self._add_agent(item, None, depth + 1, timings)
                case TimelineBatch():
                    for placed in item.calls:
                        call = self._add_call(placed, number, timeline.file, lanes, phases_by_call[placed.span.id])
                        for agent in placed.agents:
                            self._add_agent(agent, call, depth + 1, timings)
        facts["lanes"] = min(lanes.count, _MAX_LANES)

    def _add_slices(self, slices: Iterable[TimeSlice]) -> None:
        for part in slices:
            start, end, name = part.start - self._base, part.end - self._base, self._name(part.part)
            if self._slices and self._slices[-1][1:] == (start, name):
                start = self._slices.pop()[0]
            self._slices.append((start, end, name))

    def _add_message(self, item: TimelineMessage, agent: int, file: str) -> None:
        message, text = item.message, display_text(item.message)
        if not text.strip():
            return
        number = len(self._messages["at"])
        if number == self._wanted_message:
            self.wanted_text = escape_control_chars(text)
        self._order.append(3 * number + _MESSAGE)
        self._texts.add_text(escape_control_chars(text[: 2 * _MAX_TEXT_CHARS]), len(text))
        self._append(
            self._messages,
            agent=agent,
            voice=self._name(message.voice),
            at=self._time(to_epoch_ms(item.start_time)),
            branch=_BRANCHES.index(item.branch),
            opens=int(starts_turn(message)),
            file=self._name(file),
            line=message.place.line,
            chars=len(text),
        )

    def _add_call(self, placed: TimelineCall, agent: int, file: str, lanes: LaneAllocator, phases: CallPhases) -> int:
        span = placed.span
        number = len(self._calls["id"])
        self._order.append(3 * number + _CALL)
        at, end = to_epoch_ms(span.requested), to_epoch_ms(span.finished)
        if at is not None and end is not None and (phases.took is None or end < at):
            end = None
        start = to_epoch_ms(placed.start)
        begin = start if start is not None else end
        lane = None
        if begin is not None:
            lane = min(lanes.assign_lane(begin, end if end is not None else begin), _MAX_LANES - 1)
        if span.call.message_id:
            self._agent_of_batch.setdefault(span.call.message_id, agent)
        self._phases += [
            (number, part.start - self._base, part.end - self._base, part.phase)
            for part in phases.intervals
            if part.phase != "run"
        ]
        result = span.result
        self._append(
            self._calls,
            id=escape_control_chars(span.id),
            tool=self._name(one_line(span.tool, 80) if span.tool else None),
            state=self._name(span.state),
            agent=agent,
            at=self._time(at),
            start=self._time(begin),
            end=self._time(end),
            took=phases.took,
            lane=lane,
            target=self._target(span),
            error=self._name(span.error_kind),
            message=one_line(span.message, _MAX_LINE_CHARS) if span.message else None,
            batch=self._name(span.call.message_id),
            branch=_BRANCHES.index(span.branch),
            flags=sum(bool(_flag(span, name)) << n for n, name in enumerate(_FLAGS)),
            exit=result.exit_code if result else None,
            file=self._name(file),
            request_line=span.call.place.line if span.call.place else None,
            result_line=result.place.line if result else None,
            until=self._time(_background_end(span)),
            hooks=sum(isinstance(event, Hook) and event.outcome != "started" for event in span.events),
            session=self._name(span.call.session_id),
        )
        return number

    def _target(self, span: Span) -> str:
        text = relative_to_folder(span.call.target or "", self._cwd)
        if not text and span.call.kind in ("mcp", "question", "other") and span.call.place:
            text = span.call.raw_input[: 4 * _MAX_LINE_CHARS].decode("utf-8", "replace").strip("{}")
        return one_line(text, _MAX_LINE_CHARS)

    def _request_columns(self) -> Columns:
        """Return the requests to models in order of time. `context` is what a request sent: input and cached tokens."""
        columns: Columns = {name: [] for name in _REQUEST_COLUMNS}
        rows = []
        for transcript in self._detail.files:
            includes_cache = get_format(transcript.info.dialect).input_includes_cache
            own = self._agent_of_file.get(transcript.file, 0)
            for name, usage in transcript.requests.items():
                tokens, at = usage.tokens, self._time(to_epoch_ms(parse_timestamp(usage.at)))
                cached = tokens.cache_read_input_tokens + tokens.cache_creation_input_tokens
                context = tokens.input_tokens + (0 if includes_cache else cached)
                agent = self._agent_of_batch.get(name, own)
                if at is not None and (context or tokens.output_tokens):
                    rows.append((at, agent, name, usage.model, tokens, context))
        for at, agent, name, model, tokens, context in sorted(rows, key=lambda row: row[:3]):
            self._append(
                columns,
                id=self._name(name),
                at=at,
                agent=agent,
                model=self._name(model),
                input=tokens.input_tokens,
                output=tokens.output_tokens,
                cache_read=tokens.cache_read_input_tokens,
                cache_write=tokens.cache_creation_input_tokens,
                context=context,
            )
        return columns

    @staticmethod
    def _append(columns: Columns, **values: object) -> None:
        for name, value in values.items():
            columns[name].append(value)


def _flag(span: Span, name: str) -> bool:
    if name == "truncated":
        return span.result is not None and span.result.truncated
    return bool(getattr(span, name))


def _background_end(span: Span) -> int | None:
    """Return the time of the last notification about the background task that a call started."""
    if not span.background:
        return None
    notices = (event for event in span.events if isinstance(event, Notification))
    return max((at for event in notices if (at := to_epoch_ms(parse_timestamp(event.at))) is not None), default=None)
