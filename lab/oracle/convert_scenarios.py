"""A session that `toolspan convert` wrote is resumed by the real client, which sends all of it to the model."""

from __future__ import annotations

import json
from collections.abc import Iterator

from lab.oracle.installed_client import InstalledClient
from lab.oracle.mcp_scenarios import expect
from toolspan.testing import TranscriptBuilder, claude_results, codex_builder
from toolspan.testing.codex_builder import RolloutBuilder

_PROMPT, _OUTPUT, _ANSWER = "Which beds are dry?", "north 12 %", "The northern one."


def resume_converted(client: InstalledClient) -> Iterator[str]:
    """Convert a session of the other client, resume it, and look for its parts in the request."""
    target = "codex" if client.is_codex else "claude"
    source = client.home / "source.jsonl"
    source.write_bytes(_claude_session() if client.is_codex else _codex_session())
    run = client.run_command(f"toolspan convert {source} --to {target} --cwd {client.cwd} --json")
    yield from expect("`toolspan convert`", run.code, 0)
    session = json.loads(run.output)["session"]
    client.scenario.scripts = {"resumed": [["So far."]]}
    prompt = "go on [[s:resumed]]"
    if client.is_codex:
        code = client.scenario.codex(prompt=prompt, resume=session)
    else:
        code = client.scenario.go(prompt=prompt, args=["--resume", session])
    yield from expect("the client's exit code", code, 0)
    requests = client.requests("resumed")
    sent = json.dumps(requests[0], ensure_ascii=False) if requests else ""
    for part in (_PROMPT, _OUTPUT, _ANSWER, "water --status"):
        yield from expect(f"{part!r} is sent", part in sent, True)


def _codex_session() -> bytes:
    rollout = RolloutBuilder().prompt(_PROMPT)
    ran = rollout.call("exec_command", {"cmd": "water --status"})
    return rollout.output(ran, codex_builder.command_output(_OUTPUT, code=0)).text(_ANSWER).data()


def _claude_session() -> bytes:
    builder = TranscriptBuilder().prompt(_PROMPT)
    builder.result(builder.call("Bash", {"command": "water --status"}), claude_results.ran(_OUTPUT))
    return builder.text(_ANSWER).data()


SCENARIOS = (resume_converted,)
