"""The steps of an ATIF trajectory. Start at `Parser.parse`.

The format has no fields for states, errors and times of calls. `toolspan export --format atif` writes them under
`extra.toolspan`; without it, a call with a result has succeeded as far as the trajectory shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from toolspan.formats.pairing import StateInference
from toolspan.formats.record_parser import (
    Fields,
    Recorded,
    RecordedAgent,
    RecordedCall,
    RecordedCompaction,
    RecordedEvent,
    RecordedMessage,
    RecordedRequest,
    RecordedResult,
    RecordedSession,
    RecordedStop,
    RecordParser,
    count_of,
    ended,
    int_of,
    number_of,
    object_of,
    objects_of,
    text_of,
    texts_of,
    time_of,
    value_of,
)
from toolspan.types.error_kinds import ADVICE
from toolspan.types.session import MessageAuthor, Tokens
from toolspan.types.span import Evidence
from toolspan.types.state import OPEN_STATES, STATES, State

OWN_KEY = "toolspan"
"""The key below `extra` with what trajectories have no field for."""
RAW_KEY = "_raw"
"""The key of arguments that are not an object."""
_VOICES: dict[str, MessageAuthor] = {"user": "prompt", "agent": "text"}
_ALL_VOICES = frozenset(get_args(MessageAuthor))


class Parser(RecordParser):
    """Parser for the steps of a trajectory, followed by its subagents, each before its own steps."""

    known_types = frozenset({"user", "agent", "system", "trajectory"})

    def __init__(self) -> None:
        self._session: str | None = None
        self._model: str | None = None
        self._agent: str | None = None
        self._starters: dict[str, str] = {}
        """The calls that started subagents, by trajectory."""

    def record_type(self, record: Fields) -> str:
        return "trajectory" if "agent" in record else text_of(record, "source") or ""

    def parse(self, record: Fields) -> Iterator[Recorded]:
        """Yield the content of a step, or the facts about a trajectory."""
        if isinstance(record.get("agent"), dict):
            yield from self._parse_trajectory(record)
        elif "step_id" in record:
            yield from self._parse_step(record)

    def _parse_trajectory(self, record: Fields) -> Iterator[Recorded]:
        name, own = text_of(record, "trajectory_id"), _own_fields(record)
        self._model = text_of(record, "agent", "model_name") or self._model
        if "steps" in record:  # embedded, because the steps of the document itself are other records
            self._agent = agent = text_of(own, "agent") or name or "subagent"
            if starter := self._starters.get(name or ""):
                yield RecordedAgent(call=starter, agent_id=agent, role=text_of(own, "role"))
            return
        self._session = text_of(record, "session_id") or name
        yield RecordedSession(
            id=self._session,
            cwd=text_of(own, "cwd"),
            title=text_of(own, "title"),
            git_branch=text_of(own, "git_branch"),
            version=text_of(record, "agent", "version"),
        )

    def _parse_step(self, step: Fields) -> Iterator[Recorded]:
        own, at = _own_fields(step), time_of(step, "timestamp")
        key = f"{self._session or ''}/{self._agent or ''}/{step.get('step_id')}"
        if own.get("compaction") is True:
            yield RecordedCompaction()
        if thinking := text_of(step, "reasoning_content"):
            yield RecordedMessage(voice="thinking", text=thinking, at=at, agent_id=self._agent)
        if text := texts_of(step, "message"):
            source, voice = text_of(step, "source") or "", text_of(own, "voice")
            default: MessageAuthor = _VOICES.get(source, "system")
            known: Any = voice if voice in _ALL_VOICES else default
            yield RecordedMessage(voice=known, text=text, at=at, agent_id=self._agent)
        for n, call in enumerate(objects_of(step, "tool_calls")):
            yield self._make_call(call, key, n, text_of(own, "batch") or key, at)
        for result in objects_of(step, "observation", "results"):
            yield from self._parse_result(result, step, at)
        if metrics := object_of(step, "metrics"):
            yield self._make_request(metrics, step, key, at)

    def _make_call(self, call: Fields, key: str, number: int, batch: str, at: str | None) -> RecordedCall:
        arguments = value_of(call, "arguments")
        if isinstance(arguments, dict) and set(arguments) == {RAW_KEY}:
            arguments = arguments[RAW_KEY]
        return RecordedCall(
            id=text_of(call, "tool_call_id") or f"{key}-{number}",
            tool=text_of(call, "function_name") or "",
            arguments=arguments,
            at=text_of(_own_fields(call), "requested") or at,
            batch=batch,
            agent_id=self._agent,
        )

    def _parse_result(self, result: Fields, step: Fields, at: str | None) -> Iterator[Recorded]:
        own = _own_fields(result)
        name = text_of(result, "source_call_id") or text_of(own, "id")
        if name is None:  # a note of the environment
            return
        for reference in objects_of(result, "subagent_trajectory_ref"):
            if trajectory := text_of(reference, "trajectory_id"):
                self._starters[trajectory] = name
        if agent := text_of(own, "started_agent"):
            yield RecordedAgent(call=name, agent_id=agent)
        content, outcome = value_of(result, "content"), _infer_outcome(own)
        if content is None and text_of(own, "finished") is None:
            if outcome is not None:
                yield RecordedStop(outcome=outcome, calls=(name,))
            return
        if outcome is None and not content:
            outcome = StateInference(state="succeeded", evidence=(Evidence("empty result"),), ambiguous=True)
        is_error = own.get("is_error")
        yield RecordedResult(
            id=name,
            content=content,
            text=content if isinstance(content, str) else None,
            at=text_of(own, "finished") or (None if own else at),
            is_error=is_error if isinstance(is_error, bool) else None,
            exit_code=int_of(own, "exit_code"),
            outcome=outcome,
            reported_ms=number_of(own, "duration_ms"),
            trusts_reported=True,
            truncated=own.get("truncated") is True,
            background_task=text_of(own, "background_task"),
        )
        if status := text_of(own, "background_outcome"):
            values = {"task_id": text_of(own, "background_task"), "status": status, "summary": None, "at": None}
            yield RecordedEvent(id=name, kind="notification", values=values)

    def _make_request(self, metrics: Fields, step: Fields, key: str, at: str | None) -> RecordedRequest:
        prompt, cached = count_of(metrics, "prompt_tokens"), count_of(metrics, "cached_tokens")
        written = count_of(metrics, "extra", "cache_write_tokens")
        return RecordedRequest(
            id=text_of(_own_fields(metrics), "request") or key,
            at=at,
            model=text_of(step, "model_name") or self._model,
            cost_usd=number_of(metrics, "cost_usd"),
            agent_id=self._agent,
            tokens=Tokens(
                input_tokens=max(prompt - cached - written, 0),
                output_tokens=count_of(metrics, "completion_tokens"),
                cache_read_input_tokens=cached,
                cache_creation_input_tokens=written,
            ),
        )


def _own_fields(holder: Fields) -> Fields:
    return object_of(holder, "extra", OWN_KEY)


def _infer_outcome(own: Fields) -> StateInference | None:
    """Return the state that toolspan has written, or None if there is none."""
    state: Any = text_of(own, "state")
    if state not in STATES or state in OPEN_STATES or state == "orphan_result":
        return None
    kind: Any = text_of(own, "error_kind")
    pairs = own.get("evidence")
    evidence = tuple(
        Evidence(pair[0], pair[1] if isinstance(pair[1], str) else None)
        for pair in (pairs if isinstance(pairs, list) else ())
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)
    )
    known: State = state
    return StateInference(
        state=known,
        kind=kind if kind in ADVICE else None,
        evidence=evidence or ended(known).evidence,
        ambiguous=own.get("ambiguous") is True,
        synthetic=own.get("synthetic") is True,
    )
