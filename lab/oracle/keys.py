"""Compare the keys of recorded lines, and their order, with those of the clients.

    python -m lab.oracle.keys [--transcripts ../shared/conformance/transcripts]

Records the oracle's scenarios with the profile of each client version and compares them, kind by
kind, with transcripts that the clients wrote. Reports keys that no client writes, keys that we lack
and all lines of the client have, and pairs of keys in the wrong order. Exit code: 0 no differences,
1 differences, 2 no transcripts.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import click

from lab.oracle.recording_scenarios import SCENARIOS, record

VERSIONS = ("2.0.65", "2.1.327")
_FOLDERS = ("transcripts", "transcripts-new")
OPTIONAL_KEYS = frozenset({
    "requestId",  # present when the model's server sent one
    "requestRef",  # names a line with the whole request, which we do not write
    "requestedModel", "promptCacheRequested", "effort", "perTurnEffort", "toolInputStreamMs",
    "thinkingDisplay", "thinkingDurationMs", "slug",
    "message.stop_details", "message.diagnostics",  # recorded when a server sends them
    "attachment.timedOut", "attachment.timeoutMs",
})  # fmt: skip
"""Keys that our lines may lack although every line of some client has them."""

Shapes = dict[str, list[list[str]]]
"""Keys of each line by its kind; nested keys have a dot."""


@click.command()
@click.option("--transcripts", type=click.Path(path_type=Path), help="The clients' transcripts.")
def main(transcripts: Path | None) -> None:
    """Compare the keys of recorded lines with those of the clients."""
    shared = Path(os.environ.get("SHARED", "../shared"))
    folders = [transcripts] if transcripts else [shared / "conformance" / name for name in _FOLDERS]
    if not any(folder.is_dir() for folder in folders):
        click.echo(f"No transcripts in {folders[0]}; name a folder with --transcripts")
        sys.exit(2)
    failed = False
    for version in VERSIONS:
        theirs = _read_shapes(path for folder in folders for path in folder.glob(f"claude-{version}/*.jsonl"))
        ours = _record_shapes(version)
        problems = [p for kind in ours for p in _compare(ours[kind], theirs.get(kind, []), kind)]
        click.echo(f"{version}: {sum(map(len, ours.values()))} lines, {len(problems)} differences")
        for problem in problems:
            click.echo(f"  {problem}")
        failed = failed or bool(problems)
    sys.exit(1 if failed else 0)


def _record_shapes(version: str) -> Shapes:
    with tempfile.TemporaryDirectory() as folder:
        paths = [record(scenario, Path(folder) / scenario.__name__, version) for scenario in SCENARIOS]
        return _read_shapes(iter(paths))


def _compare(ours: list[list[str]], theirs: list[list[str]], kind: str) -> Iterator[str]:
    if not theirs:
        yield f"{kind}: no client writes such a line"
        return
    client_keys = {key for line in theirs for key in line}
    always = set.intersection(*map(set, theirs))
    orders = {pair for line in theirs for pair in combinations(line, 2)}
    for line in sorted({tuple(line) for line in ours}):
        for key in set(line) - client_keys:
            yield f"{kind}: no client writes {key}"
        for key in always - set(line) - OPTIONAL_KEYS:
            yield f"{kind}: {key} is missing"
        for first, second in combinations(line, 2):
            swapped = (second, first) in orders and (first, second) not in orders
            if swapped and (first, second) != ("uuid", "timestamp"):  # one old kind of line has this order
                yield f"{kind}: {first} precedes {second}"


def _read_shapes(paths: Iterator[Path]) -> Shapes:
    shapes: Shapes = defaultdict(list)
    for path in paths:
        for data in path.read_bytes().split(b"\n"):
            try:
                line = json.loads(data)
            except ValueError:
                continue
            kind = _kind(line)
            if kind:
                shapes[kind].append(list(_keys(line)))
    return shapes


def _kind(line: dict[str, Any]) -> str | None:
    """Return the kind of a line; None if we do not write that kind."""
    match line:
        case {"type": "assistant", "message": {"content": [{"type": str(block)}, *_]}}:
            synthetic = line["message"]["model"] == "<synthetic>"
            return None if synthetic else f"assistant {block}"
        case {"type": "user"}:
            return _user_kind(line)
        case {"type": "attachment", "attachment": {"type": str(name)}}:
            return f"attachment {name}"
        case {"type": "progress", "data": {"type": str(name)}}:
            return f"progress {name}"
        case {"type": "last-prompt"}:
            return "last-prompt"
        case _:
            return None


def _user_kind(line: dict[str, Any]) -> str | None:
    match line["message"]["content"]:
        case [{"type": "tool_result"} as block]:
            return f"result {'error' if block.get('is_error') else 'success'}"
        case _ if "isMeta" in line:
            return "note"
        case str() if "origin" not in line and "isCompactSummary" not in line:
            return "prompt"
        case [{"type": "text"}]:
            return "interrupt"
        case _:
            return None


def _keys(line: dict[str, Any]) -> Iterator[str]:
    for key, value in line.items():
        yield key
        if key in ("message", "attachment", "data"):
            yield from (f"{key}.{inner}" for inner in value)
        if key == "message" and isinstance(value.get("content"), list):
            block = value["content"][0]
            yield from (f"block.{inner}" for inner in block)


if __name__ == "__main__":
    main()
