"""Cases of command lines that people and agents wrote: `--lines FILE` or `--lines FOLDER`.

A file has one command line per line, and comments that begin with `#`. A folder has transcripts; the folder in which
a recorded line ran becomes the project. All cases are in default mode without rules, so the report shows how many of
the lines that the client runs without a question toolspan asks about.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.explore.permissions import generate_permission_case

Json = dict[str, Any]
_CALLS = 200
_MAX_LENGTH = 10_000


def read_lines(path: Path) -> list[str]:
    """Return the command lines in a file or in the transcripts of a folder, each once."""
    if path.is_dir():
        found = (line for file in sorted(path.rglob("*.jsonl")) for line in _transcript_lines(file))
        return [line for line in dict.fromkeys(found) if line.strip() and len(line) <= _MAX_LENGTH]
    texts = path.read_text(encoding="utf-8").splitlines()
    return list(dict.fromkeys(text for text in texts if text.strip() and not text.startswith("#")))


def generate_recorded_cases(lines: list[str], version: str) -> list[Json]:
    """Return cases with all lines, some hundred in each."""
    cases = []
    for number, start in enumerate(range(0, len(lines), _CALLS)):
        case = generate_permission_case(0, version, 0)
        case |= {"id": f"l{number:03}-default", "permission_mode": "default", "settings": {"permissions": {}}}
        calls = [
            {"id": f"toolu_01l{number:03}x{at:03}", "name": "Bash", "input": {"command": line}}
            for at, line in enumerate(lines[start : start + _CALLS])
        ]
        case["turns"] = [calls[at : at + 10] for at in range(0, len(calls), 10)]
        cases.append(case)
    return cases


def _transcript_lines(path: Path) -> Iterator[str]:
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(text)
        except ValueError:
            continue
        message = record.get("message") if isinstance(record, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("name") == "Bash" and isinstance(block.get("input"), dict):
                line, folder = block["input"].get("command"), record.get("cwd")
                if isinstance(line, str):
                    yield line.replace(folder, "<cwd>") if isinstance(folder, str) and len(folder) > 1 else line
