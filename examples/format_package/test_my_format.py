"""Run toolspan's checks for formats on this one."""

import json
from pathlib import Path

from toolspan.testing.format_contract import FormatContract

RECORDS = [
    {"step": "ask", "text": "Fix the test."},
    {"step": "call", "call": "c1", "tool": "open", "input": {"name": "a.py"}},
    {"step": "return", "call": "c1", "text": "print(1)"},
    {"step": "call", "call": "c2", "tool": "run", "input": {"line": "make test"}},
    {"step": "return", "call": "c2", "text": "bad", "exit": 2},
]


class TestNotebookAgent(FormatContract):
    name = "notebook-agent"
    file_name = "notebook-1.jsonl"

    def sample(self) -> bytes:
        times = [{"notebook": "1", "at": f"2026-11-02T09:00:0{n}Z"} for n in range(len(RECORDS))]
        return b"".join(json.dumps(time | record).encode() + b"\n" for time, record in zip(times, RECORDS, strict=True))

    def write(self, home: Path, data: bytes) -> Path:
        path = home / "sessions" / self.file_name
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        return path
