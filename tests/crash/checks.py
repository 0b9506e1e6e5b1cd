"""Checks for the files of a session that died."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.crash.killed_session import NEW, OLD, transcript
from toolspan import Permissions, Session
from toolspan.reading.transcript import read
from toolspan.session.recording import CallEvidence, agent_path, collect_evidence
from toolspan.session.resume import load_history
from toolspan.testing import check_history

FILES = {"toolu_write": "made.txt", "toolu_edit": "edited.txt", "toolu_sub": "sub.txt"}
READS = frozenset({"toolu_read", "toolu_again"})


def content(place: Path, name: str) -> str | None:
    path = place / "project" / name
    return path.read_text(encoding="utf-8") if path.exists() else None


def results(path: Path) -> dict[str, str]:
    result: dict[str, str] = {}
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            reply = json.loads(line)["message"]["content"]
        except (ValueError, KeyError):
            continue
        for block in reply if isinstance(reply, list) else ():
            if block["type"] == "tool_result":
                result[block["tool_use_id"]] = block["content"]
    return result


def verdicts(place: Path, boot: str | None) -> dict[str, CallEvidence]:
    path = transcript(place)
    agent = agent_path(path, "helper", "nested")
    spans = [span for file in (path, agent) if file.exists() for span in read(file).spans]
    open_calls = [span.id for span in spans if span.result is None]
    return collect_evidence(path, open_calls, boot=boot)


def check_verdict(place: Path, call: str, verdict: CallEvidence) -> None:
    if call in FILES:
        there = content(place, FILES[call])
        before = OLD if call == "toolu_edit" else None
        expected = {"happened": NEW, "did_not_happen": before, "never_started": before}
        assert verdict.outcome == "unknown" or there == expected[verdict.outcome], (call, verdict)
    elif call == "toolu_bash" and verdict.outcome == "never_started":
        assert content(place, "log") is None
    else:
        assert verdict.outcome == "unknown" or call not in READS, (call, verdict)


def check_history_of(place: Path) -> list[dict[str, object]]:
    messages = load_history(transcript(place))
    assert not messages or check_history(messages) == []
    calls: Counter[str] = Counter()
    output: dict[str, str] = {}
    for message in messages:
        assert isinstance(message["content"], list)
        for block in message["content"]:
            if block["type"] == "tool_use":
                calls[block["id"]] += 1
            elif block["type"] == "tool_result":
                output[block["tool_use_id"]] = block["content"]
    assert set(calls.values()) <= {1}
    assert set(output) == set(calls)
    there = results(transcript(place))
    assert {call: output[call] for call in there} == there
    return messages


async def check_resumed(place: Path) -> None:
    before = {name: content(place, name) for name in (*FILES.values(), "log")}
    history = check_history_of(place)
    async with Session(
        permissions=Permissions.allow_all(),
        cwd=place / "project",
        tools=[],
        transcript=transcript(place),
        history=history,
    ) as session:
        session.say("Where were we?")
        await session.run({"role": "assistant", "content": [{"type": "text", "text": "Here."}]})
        assert check_history(session.messages) == []
        reply = session.messages
    assert before == {name: content(place, name) for name in before}
    assert flat(check_history_of(place)) == flat(reply)


def flat(messages: list[dict[str, object]]) -> list[tuple[object, str]]:
    blocks = [b for m in messages for b in (m["content"] if isinstance(m["content"], list) else ())]
    return sorted((b["type"], str(b.get("text") or b.get("content") or b.get("id"))) for b in blocks)
