"""Sessions of an editor that uses `toolspan acp`, and that the real client continues."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator

from lab.oracle.compare import differences
from lab.oracle.installed_client import ROOT, InstalledClient
from lab.oracle.mcp_scenarios import expect
from toolspan.testing import use

Scenario = Callable[[InstalledClient], Iterator[str]]


def editor_disconnects(client: InstalledClient) -> Iterator[str]:
    """An editor disconnects while a command runs; the client resumes the session with the results of all calls."""
    calls = [use("Bash", command="echo seven lanterns"), use("Bash", command="touch begun; sleep 600; touch ended")]
    client.write_file("script.json", json.dumps([calls]))
    program = f"{sys.executable} -m lab.oracle.editor_client {client.home}/script.json begun"
    run = client.run_command(f"PYTHONPATH={ROOT}/src:{ROOT} {program}")
    yield from expect(f"the editor ({run.output[-600:]})", run.code, 0)
    session, code = run.out.split()
    yield from expect("the exit code of the agent", code, "0")
    yield from expect("the command is gone", client.run_command("pgrep -f 'sleep 600'").out, "")
    (recorded,) = (client.home / ".claude/projects").glob(f"*/{session}.jsonl")
    before = client.write_file("before.jsonl", recorded.read_text(encoding="utf-8"))
    calls_of = [(row["state"], row["paired"]) for row in client.recorded_calls(str(recorded))]
    yield from expect("the calls", calls_of, [("succeeded", True), ("interrupted", True)])

    client.scenario.turn({"tool": "Bash", "input": {"command": "ls", "description": "look"}}, key="again")
    client.scenario.turn("Seven.", key="again")
    code = client.scenario.go("How many? [[s:again]]", args=["--resume", session])
    yield from expect("the client's exit code", code, 0)
    yield from differences(before, client.requests("again")[0], repaired=False)
    answers = client.results_of("again")
    yield from expect("the client's call ran", "begun" in answers[-1] and "ended" not in answers[-1], True)


SCENARIOS: tuple[Scenario, ...] = (editor_disconnects,)
