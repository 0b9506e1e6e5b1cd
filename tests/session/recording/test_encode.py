from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType

import toolspan
from tests.session.recording.emitted import finished, message, recorder, use


class Awkward:
    def __str__(self) -> str:
        raise RuntimeError("no words")


def endless() -> list[object]:
    loop: list[object] = []
    loop.append(loop)
    return loop


def test_any_tool_output_is_written_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    values: list[object] = [
        {"half": "\ud83d", "\udc00": 1, "whole": "\ud83d\ude00"},
        {"nul": "a\0b", "bytes": b"\xff", "path": Path("/x"), "set": {1}},
        MappingProxyType({"a": (1, 2)}),
        {1: "one", None: "none", (1, 2): "pair"},
        {"float": float("nan"), "big": 10**40},
        endless(),
        Awkward(),
        (n for n in range(2)),
    ]
    recording = recorder(path)
    recording.record_reply(message(*(use(f"toolu_{n}", "Any") for n in range(len(values)))))
    for n, value in enumerate(values):
        recording.record_result(finished(f"toolu_{n}", "Any", "x", structured=value))

    transcript = toolspan.read(path)

    assert {span.state for span in transcript.spans} == {"succeeded"}
    assert transcript.counts.malformed == 0
    written = [json.loads(line).get("toolUseResult") for line in path.read_bytes().split(b"\n")[:-1]]
    assert written[8] == {"half": "\ufffd", "\ufffd": 1, "whole": "\U0001f600"}
    assert written[9] == {"nul": "a\0b", "bytes": "/w==", "path": "/x", "set": [1]}
    assert written[11] == {"1": "one", "None": "none", "(1, 2)": "pair"}
    assert written[15] == [0, 1]


def test_lone_surrogate_does_not_damage_the_transcript(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    recording = recorder(path)
    recording.record_prompt("half \ud83d of one")
    recording.record_reply(message("say \udc00", use("toolu_a", "Bash", command="\ud800")))
    recording.record_result(finished("toolu_a", "Bash", [{"type": "text", "text": "\udfff"}]))

    data = path.read_bytes()

    assert data.count("\ufffd".encode()) == 4
    assert b"\\ud" not in data


def test_huge_result_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    recording = recorder(path)
    recording.record_reply(message(use("toolu_a", "Read")))
    recording.record_result(finished("toolu_a", "Read", "x" * (8 << 20)))

    (span,) = toolspan.read(path).spans

    assert span.result is not None
    assert len(span.result.text) == 8 << 20
