"""`toolspan hook install` with the real client: waits and decisions that are measured."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from tests.oracle.house import House
from tests.oracle.served import differ

_SETTINGS = '{ "cleanupPeriodDays":30,\n\n    "env" : {"A": "b"}}'
"""As a person writes: no program would write it like this."""
_THINKS = 2.0
"""Seconds that the person takes for each answer."""
_SLACK = 1500
"""Milliseconds that a hook may take to start, and the client to go on."""
_COMMANDS = ("mkdir made && sleep 1", "mkdir no", "mkdir two; exit 3")
_TELLS_QUESTIONS = (2, 1, 80)
_TELLS_DURATIONS = (2, 1, 197)
_TELLS_DECISIONS = (2, 1, 325)
"""Clients before these do not tell their hooks of questions that a program answers, nor how long a
tool ran, and record no decisions."""


def hook_noted(house: House) -> Iterator[str]:
    """Hooks are added and tell how long a person was asked; then all is as it was before."""
    settings = house.writes(".claude/settings.json", _SETTINGS)
    refused = house.types("toolspan hook install", answers="n\n")
    yield from differ("a no changes nothing", (refused.code, settings.read_text()), (1, _SETTINGS))
    yield from differ("what would change is shown", "+" in refused.out and "hook record" in refused.out, True)
    added = house.types("toolspan hook install", answers="y\n")
    yield from differ(f"install ({added.all[-200:]})", added.code, 0)
    changed = settings.read_text(encoding="utf-8")
    house.world.settings = {"permissions": {"allow": ["Read"]}}
    house.writes("proj/a.txt", "x\n")
    house.turn({"tool": "Read", "input": {"file_path": str(house.cwd / "a.txt")}})
    for command in _COMMANDS:
        house.turn({"tool": "Bash", "input": {"command": command, "description": "try"}})
    house.turn("That was all.")
    person = _Person(house)
    prompt = {"type": "user", "message": {"role": "user", "content": "Go [[s:main]]"}}
    code = house.world.sdk(json.dumps(prompt) + "\n", person.sits, args=["--permission-prompt-tool", "stdio"])
    yield from differ("the client's exit code", code, 0)
    yield from differ("the questions", person.asked, list(_COMMANDS))
    yield from differ("the client leaves the settings alone", settings.read_text(), changed)
    yield from _measured(house)
    out = house.types("toolspan hook uninstall --yes")
    yield from differ("uninstall", (out.code, settings.read_text()), (0, _SETTINGS))


class _Person:
    """Somebody before the client, who thinks about each question."""

    def __init__(self, house: House) -> None:
        self._house = house
        self.asked: list[str] = []

    def sits(self, client: Any) -> None:
        """Answer until the client has done its work."""
        while not any(one["type"] == "result" for one in self._house.stream()):
            asked = [one for one in self._house.stream() if one["type"] == "control_request"]
            for question in asked[len(self.asked) :]:
                given = question["request"]["input"]
                self.asked.append(given["command"])
                time.sleep(_THINKS)
                self._answer(client, question["request_id"], given)
            time.sleep(0.05)
        client.stdin.close()

    def _answer(self, client: Any, request: str, given: dict[str, Any]) -> None:
        decision = {"behavior": "allow", "updatedInput": given}
        if given["command"] == "mkdir no":
            decision = {"behavior": "deny", "message": "not today"}
        told = {"subtype": "success", "request_id": request, "response": decision}
        client.stdin.write(json.dumps({"type": "control_response", "response": told}).encode() + b"\n")
        client.stdin.flush()


def _measured(house: House) -> Iterator[str]:
    """Waits are as long as the person thought, and are told to be known where they can be."""
    told = json.loads(house.types("toolspan time --last --limit 0 --json").out)
    calls = {one["call"]["target"]: one for one in told["slowest"]}
    for command in (*_COMMANDS, str(house.cwd / "a.txt")):
        found = calls[command]
        denied = found["call"]["state"] == "denied"
        if house.version < (_TELLS_QUESTIONS if denied else _TELLS_DURATIONS):
            continue
        wanted = _THINKS * 1000 if command in _COMMANDS else 0
        close = -_SLACK / 3 <= (found["wait_ms"] or 0) - wanted < _SLACK
        yield from differ(f"{command}: waited {found['wait_ms']} ms", close, True)
        yield from differ(f"{command}: the wait is", found["certainty"], "known")
    for command in _COMMANDS if house.version >= _TELLS_DECISIONS else ():
        call = calls[command]["call"]["id"]
        why = " ".join(house.types(f"toolspan why {call}").out.split())
        yield from differ(f"{command}: {why}", "by a person" in why and "asked" in why, True)
        shown = " ".join(house.types(f"toolspan show {call}").out.split())
        yield from differ(f"{command}: {shown}", "waiting for permission" in shown, True)
