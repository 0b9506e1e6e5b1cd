"""`--format atif`: sessions as trajectories in the Agent Trajectory Interchange Format 1.8 of Harbor.

Each line is the document of one session, with its subagents embedded. The format refuses unknown fields, so states,
times and evidence are under `extra.toolspan`, from where `toolspan.formats.atif` reads them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from toolspan.export.json import encode_json
from toolspan.export.records import CallRecord
from toolspan.export.session_export import SessionExport
from toolspan.export.steps import AgentSteps, SessionStep, read_steps
from toolspan.formats.registry import get_format
from toolspan.types.session import Tokens

SCHEMA_VERSION = "ATIF-v1.8"
_OWN_KEY = "toolspan"
_RESULT_FIELDS = (
    "state", "error_kind", "finished", "message", "evidence", "ambiguous", "synthetic", "deferred", "truncated",
    "background", "background_task", "background_outcome", "started_agent", "copies", "redacted",
)  # fmt: skip

Json = dict[str, object]


def write(sessions: Iterable[SessionExport]) -> Iterator[bytes]:
    """Yield one document per session, each on its own line. Steps are written as they are created."""
    for session in sessions:
        yield from _SessionWriter(session).pieces()
        yield b"\n"


class _SessionWriter:
    def __init__(self, session: SessionExport) -> None:
        self._session = session
        self._header = header = session.header
        self._main = read_steps(session)
        self._agents = list(self._main.iter_agents())
        self._ids: dict[int, str] = {}
        for agent in self._agents:
            name = header.id if agent is self._main else f"{header.id}/{agent.agent or 'subagent'}"
            self._ids[id(agent)] = name if name not in self._ids.values() else f"{name}-{len(self._ids)}"

    def pieces(self) -> Iterator[bytes]:
        """Yield the document of the session."""
        yield from self._trajectory(self._main)
        comma = b',"subagent_trajectories":['
        for agent in self._agents[1:]:
            yield comma
            yield from self._trajectory(agent)
            yield b"}"
            comma = b","
        yield b"]}" if self._agents[1:] else b"}"

    def _trajectory(self, agent: AgentSteps) -> Iterator[bytes]:
        """Yield the trajectory of one agent, without those of its subagents and the closing brace."""
        header, name = self._header, self._ids[id(agent)]
        shown = [step for step in agent.steps if step.branch != "abandoned"]
        models = [step.model for step in shown if step.model] or list(header.models)
        described: Json = {
            "name": get_format(header.client).agent_name or header.client,
            "version": header.versions[-1] if header.versions else "unknown",
            "model_name": models[-1] if models else None,
        }
        head = {"schema_version": SCHEMA_VERSION, "session_id": header.id, "trajectory_id": name}
        yield encode_json({**head, "agent": _present(described)})[:-1] + b',"steps":['
        started: dict[str, list[str]] = {}
        for below in agent.agents:
            if below.parent_call is not None:
                started.setdefault(below.parent_call, []).append(self._ids[id(below)])
        for number, step in enumerate(shown, start=1):
            calls = list(agent.call_records(step))
            yield (b"," if number > 1 else b"") + encode_json(self._encode_step(number, step, calls, started))
        if not shown:
            yield encode_json({"step_id": 1, "source": "system", "message": ""})
        is_main = agent is self._main
        own: Json = {
            "client": header.client,
            "agent": None if is_main else agent.agent,
            "role": agent.role,
            "cwd": header.cwd if is_main else None,
            "title": header.title if is_main else None,
            "git_branch": header.git_branch if is_main else None,
            "abandoned_steps": len(agent.steps) - len(shown) or None,
        }
        metrics = _sum_metrics(shown)
        if is_main:
            costs = [step.cost_usd for each in self._agents for step in each.steps if step.cost_usd is not None]
            metrics["total_cost_usd"] = sum(costs) if costs else None
        last: Json = {"final_metrics": _present(metrics), "extra": {_OWN_KEY: _present(own)}}
        if is_main and self._session.redaction_notice:
            last["notes"] = self._session.redaction_notice
        yield b"]," + encode_json(last)[1:-1]

    def _encode_step(
        self, number: int, step: SessionStep, calls: Sequence[CallRecord], started: Mapping[str, Sequence[str]]
    ) -> Json:
        is_agent = step.source == "agent"
        own: Json = {
            "voice": step.voice if step.voice not in ("prompt", "text") else None,
            "compaction": True if step.voice == "summary" else None,
            "branch": step.branch if step.branch != "active" else None,
            "batch": next((call.batch for call in calls if call.batch), None) if is_agent else None,
        }
        encoded: Json = {
            "step_id": number,
            "timestamp": step.at,
            "source": step.source,
            "message": step.text,
            "model_name": step.model,
            "reasoning_content": "\n\n".join(step.thinking) or None,
            "tool_calls": [_encode_call(call) for call in calls] if is_agent and calls else None,
            "observation": {"results": [self._encode_result(call, started) for call in calls]} if calls else None,
            "metrics": None if step.is_copied or not step.requests else _encode_metrics(step),
            "llm_call_count": len(step.requests) or None,
            "is_copied_context": step.is_copied or None,
            "extra": {_OWN_KEY: _present(own)} if any(own.values()) else None,
        }
        return _present(encoded)

    def _encode_result(self, call: CallRecord, started: Mapping[str, Sequence[str]]) -> Json:
        is_orphan = call.state == "orphan_result"
        own: Json = {name: getattr(call, name) or None for name in _RESULT_FIELDS}
        own |= {"is_error": call.is_error, "exit_code": call.exit_code, "duration_ms": call.duration_ms}
        own |= {"orphan": True, "id": call.id} if is_orphan else {}
        references = [{"trajectory_id": name, "session_id": self._header.id} for name in started.get(call.id, ())]
        return {
            "source_call_id": None if is_orphan else call.id,
            "content": call.result,
            **({"subagent_trajectory_ref": references} if references else {}),
            "extra": {_OWN_KEY: _present(own)},
        }


def _encode_call(call: CallRecord) -> Json:
    arguments = call.input if isinstance(call.input, dict) else {"_raw": call.input}
    own: Json = {
        "requested": call.requested,
        "permission": call.permission,
        "hooks": call.hooks or None,
        "id_made": call.id.startswith("#") or None,
    }
    return {
        "tool_call_id": call.id,
        "function_name": call.tool or "",
        "arguments": arguments,
        "extra": {_OWN_KEY: _present(own)},
    }


def _encode_metrics(step: SessionStep) -> Json:
    tokens = step.tokens
    written = tokens.cache_creation_input_tokens
    extra: Json = {"cache_write_tokens": written or None, _OWN_KEY: {"request": step.requests[0].id}}
    return _present({
        "prompt_tokens": tokens.input_tokens + tokens.cache_read_input_tokens + written,
        "completion_tokens": tokens.output_tokens,
        "cached_tokens": tokens.cache_read_input_tokens,
        "cost_usd": step.cost_usd,
        "extra": _present(extra),
    })  # fmt: skip


def _sum_metrics(steps: Sequence[SessionStep]) -> Json:
    """Return the totals of the steps that are not copied."""
    own = [step for step in steps if step.requests and not step.is_copied]
    tokens = sum((step.tokens for step in own), Tokens())
    cached, written = tokens.cache_read_input_tokens, tokens.cache_creation_input_tokens
    costs = [step.cost_usd for step in own if step.cost_usd is not None]
    return {
        "total_prompt_tokens": tokens.input_tokens + cached + written,
        "total_completion_tokens": tokens.output_tokens,
        "total_cached_tokens": cached,
        "total_cost_usd": sum(costs) if costs else None,
        "total_steps": len(steps) or 1,
    }


def _present(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value is not None}
