"""Short builders of the events that a runner emits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import toolspan
from toolspan.runtime.pending_call import LiveBodyStore
from toolspan.runtime.profiles import profile
from toolspan.session.recording import Fsync, Recorder, RecorderConfig
from toolspan.types.events import Content, Decided, Finished, HookContext, HookRan, WriteFailed
from toolspan.types.ids import CallId, SessionId
from toolspan.types.session import Finding
from toolspan.types.span import Call, HookOutcome, Result, Span
from toolspan.types.state import State

SESSION = SessionId("0d6a1a0e-7f5e-4f0b-9a54-0d9f5a1c2b3d")
MODEL = "claude-opus-5-5"
START = 1_790_000_000.0


@dataclass
class Clock:
    now: float = START

    def __call__(self) -> float:
        self.now += 0.01
        return self.now


@dataclass
class Failures:
    told: list[WriteFailed] = field(default_factory=list)

    def __call__(self, failed: WriteFailed) -> None:
        self.told.append(failed)

    @property
    def reasons(self) -> list[str]:
        return [failed.reason for failed in self.told]


def origin(
    cwd: Path, *, version: str = "2.1.327", agent_id: str | None = None, fsync: Fsync = "never"
) -> RecorderConfig:
    return RecorderConfig(
        profile=profile(version), session_id=SESSION, cwd=cwd, agent_id=agent_id, fsync=fsync, clock=Clock()
    )


def recorder(path: Path, *, version: str = "2.1.327", failures: Failures | None = None) -> Recorder:
    return Recorder(path, origin(path.parent, version=version), failures or no_failure)


def no_failure(failed: WriteFailed) -> None:
    raise AssertionError(failed)


def wrong(path: Path) -> list[Finding]:
    return [finding for finding in toolspan.check(path).findings if finding.severity != "info"]


def use(call_id: str, tool: str, **input: object) -> dict[str, object]:
    return {"type": "tool_use", "id": call_id, "name": tool, "input": input}


def message(*blocks: Mapping[str, object] | str, id: str = "msg_01") -> dict[str, object]:
    content = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
    called = any(block["type"] == "tool_use" for block in content)
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": content,
        "stop_reason": "tool_use" if called else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 100, "output_tokens": 7},
    }


def finished(
    call_id: str,
    tool: str,
    content: Content,
    *,
    state: State = "succeeded",
    is_error: bool | None = None,
    structured: object = None,
    denial_kind: str | None = None,
    decision: Decided | None = None,
    contexts: tuple[HookContext, ...] = (),
    companions: tuple[Content, ...] = (),
    at: float = START + 60,
) -> Finished:
    shelf = LiveBodyStore({})
    name = CallId(call_id)
    call = Call(id=name, tool=tool, at=0, requested_at=None, target=None, body_store=shelf)
    result = Result(
        id=name, tool=tool, at=0, finished_at=None, is_error=is_error, denial_kind=denial_kind, body_store=shelf
    )
    return Finished(
        span=Span(call=call, result=result, state=state, evidence=()),
        content=content,
        structured=structured,
        decision=decision,
        contexts=contexts,
        companions=companions,
        duration_ms=5.0,
        at=at,
    )


def error(
    call_id: str,
    tool: str,
    text: str,
    *,
    denial_kind: str | None = None,
    decision: Decided | None = None,
    contexts: tuple[HookContext, ...] = (),
    at: float = START + 60,
) -> Finished:
    return finished(
        call_id,
        tool,
        text,
        state="failed",
        is_error=True,
        structured=f"Error: {text}",
        denial_kind=denial_kind,
        decision=decision,
        contexts=contexts,
        at=at,
    )


def decided(call_id: str, *, allowed: bool, source: str = "config") -> Decided:
    return Decided(call_id=CallId(call_id), allowed=allowed, source=source, at=START)


def hook(call_id: str, point: str, outcome: HookOutcome, *, tool: str = "Bash", **output: Any) -> HookRan:
    return HookRan(
        call_id=CallId(call_id),
        point=point,
        name=f"{point}:{tool}",
        outcome=outcome,
        command="check.sh",
        at=START + 50,
        **output,
    )
