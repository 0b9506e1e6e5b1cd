"""Invented trajectories of Harbor's agents, which know nothing of toolspan."""

from __future__ import annotations

import json
from typing import Any

Fields = dict[str, Any]


def result(call: str | None, content: object, **extra: object) -> Fields:
    return {"source_call_id": call, "content": content, **({"extra": {"toolspan": extra}} if extra else {})}


def call(name: str, tool: str, **arguments: object) -> Fields:
    return {"tool_call_id": name, "function_name": tool, "arguments": arguments}


def trajectory(*steps: Fields, session: str | None = "run-1", **fields: object) -> Fields:
    """Return a trajectory whose steps are numbered and timed."""
    numbered = [
        {"step_id": n, "timestamp": f"2026-11-18T12:00:{n:02}Z", "message": "", **step}
        for n, step in enumerate(steps, start=1)
    ]
    named = {} if session is None else {"session_id": session}
    agent = {"name": "terminus-2", "version": "1.0", "model_name": "m1"}
    return {"schema_version": "ATIF-v1.8", **named, "agent": agent, "steps": numbered, **fields}


def reply(*calls: Fields, results: list[Fields], **fields: object) -> Fields:
    return {"source": "agent", "tool_calls": list(calls), "observation": {"results": results}, **fields}


def document() -> bytes:
    """Return a trajectory with calls that succeeded, failed and were never answered, and a subagent."""
    ran = reply(
        call("c1", "bash", command="ls"),
        call("c2", "read", path="/none"),
        results=[
            result("c1", "a.py"),
            result("c2", "File not found", state="failed", error_kind="not_found", is_error=True),
        ],
        message="I look.",
        reasoning_content="Where is it?",
        metrics={"prompt_tokens": 100, "cached_tokens": 40, "completion_tokens": 7, "cost_usd": 0.25},
    )
    asked = reply(
        call("c3", "task", prompt="count"),
        results=[{**result("c3", "3"), "subagent_trajectory_ref": [{"trajectory_id": "run-1/sub"}]}],
    )
    open_call = reply(call("c4", "bash", command="sleep 60"), results=[result("c4", None, state="never_answered")])
    inner = reply(call("c5", "bash", command="wc -l"), results=[result("c5", "3")], metrics={"completion_tokens": 2})
    below = trajectory({"source": "user", "message": "count"}, inner, session=None, trajectory_id="run-1/sub")
    whole = trajectory(
        {"source": "user", "message": "Fix the test."}, ran, asked, open_call, subagent_trajectories=[below]
    )
    return json.dumps(whole, indent=1).encode()
