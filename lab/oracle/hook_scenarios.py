"""`toolspan hook install` with the real client: it measures waits and records decisions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from lab.oracle.installed_client import InstalledClient
from lab.oracle.mcp_scenarios import expect

_SETTINGS = '{ "cleanupPeriodDays":30,\n\n    "env" : {"A": "b"}}'
"""Formatted as no program would write it, so that a rewrite is noticed."""
_ANSWER_SECONDS = 2.0
_SLACK = 1500
"""Milliseconds that starting a hook and continuing may add to a wait."""
_COMMANDS = ("mkdir made && sleep 1", "mkdir no", "mkdir two; exit 3")
_REPORTS_QUESTIONS = (2, 1, 80)
_REPORTS_DURATIONS = (2, 1, 197)
_RECORDS_DECISIONS = (2, 1, 325)
"""First versions whose hooks see questions that a program answers and how long a tool ran, and
which record decisions."""


def hook_install(client: InstalledClient) -> Iterator[str]:
    """Install the hooks, measure how long permission questions took, and uninstall the hooks."""
    settings = client.write_file(".claude/settings.json", _SETTINGS)
    declined = client.run_command("toolspan hook install", stdin="n\n")
    yield from expect("`n` changes nothing", (declined.code, settings.read_text()), (1, _SETTINGS))
    yield from expect("the diff is shown", "+" in declined.out and "hook record" in declined.out, True)
    install = client.run_command("toolspan hook install", stdin="y\n")
    yield from expect(f"install ({install.output[-200:]})", install.code, 0)
    installed_settings = settings.read_text(encoding="utf-8")
    client.scenario.settings = {"permissions": {"allow": ["Read"]}}
    client.write_file("proj/a.txt", "x\n")
    client.add_reply({"tool": "Read", "input": {"file_path": str(client.cwd / "a.txt")}})
    for command in _COMMANDS:
        client.add_reply({"tool": "Bash", "input": {"command": command, "description": "try"}})
    client.add_reply("That was all.")
    approver = _SlowApprover(client)
    prompt = {"type": "user", "message": {"role": "user", "content": "Go [[s:main]]"}}
    code = client.scenario.sdk(json.dumps(prompt) + "\n", approver.run, args=["--permission-prompt-tool", "stdio"])
    yield from expect("the client's exit code", code, 0)
    yield from expect("the questions", approver.commands, list(_COMMANDS))
    yield from expect("the settings after the session", settings.read_text(), installed_settings)
    yield from _check_waits(client)
    uninstall = client.run_command("toolspan hook uninstall --yes")
    yield from expect("uninstall", (uninstall.code, settings.read_text()), (0, _SETTINGS))


class _SlowApprover:
    """Answers each permission request of the client after `_ANSWER_SECONDS`."""

    def __init__(self, client: InstalledClient) -> None:
        self._client = client
        self.commands: list[str] = []

    def run(self, process: Any) -> None:
        """Answer until the client prints its result."""
        while not any(event["type"] == "result" for event in self._client.stream()):
            requests = [event for event in self._client.stream() if event["type"] == "control_request"]
            for request in requests[len(self.commands) :]:
                tool_input = request["request"]["input"]
                self.commands.append(tool_input["command"])
                time.sleep(_ANSWER_SECONDS)
                self._answer(process, request["request_id"], tool_input)
            time.sleep(0.05)
        process.stdin.close()

    def _answer(self, process: Any, request_id: str, tool_input: dict[str, Any]) -> None:
        decision = {"behavior": "allow", "updatedInput": tool_input}
        if tool_input["command"] == "mkdir no":
            decision = {"behavior": "deny", "message": "not today"}
        response = {"subtype": "success", "request_id": request_id, "response": decision}
        process.stdin.write(json.dumps({"type": "control_response", "response": response}).encode() + b"\n")
        process.stdin.flush()


def _check_waits(client: InstalledClient) -> Iterator[str]:
    """Compare the waits that toolspan reports with the approver's delay."""
    report = json.loads(client.run_command("toolspan time --last --limit 0 --json").out)
    rows = {row["call"]["target"]: row for row in report["slowest"]}
    for command in (*_COMMANDS, str(client.cwd / "a.txt")):
        row = rows[command]
        denied = row["call"]["state"] == "denied"
        if client.version < (_REPORTS_QUESTIONS if denied else _REPORTS_DURATIONS):
            continue
        delay = _ANSWER_SECONDS * 1000 if command in _COMMANDS else 0
        close = -_SLACK / 3 <= (row["wait_ms"] or 0) - delay < _SLACK
        yield from expect(f"{command}: waited {row['wait_ms']} ms", close, True)
        yield from expect(f"{command}: certainty of the wait", row["certainty"], "known")
    for command in _COMMANDS if client.version >= _RECORDS_DECISIONS else ():
        call = rows[command]["call"]["id"]
        why = " ".join(client.run_command(f"toolspan why {call}").out.split())
        yield from expect(f"{command}: {why}", "by the user" in why and "waited" in why, True)
        details = " ".join(client.run_command(f"toolspan show {call}").out.split())
        yield from expect(f"{command}: {details}", "waiting for permission" in details, True)
