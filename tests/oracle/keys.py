"""Do our lines have the keys of the clients' own, in their order?

    python -m tests.oracle.keys [--transcripts ../shared/conformance/transcripts]

Records the oracle's stories in the shape of each client version and compares them, kind by kind,
with transcripts the clients wrote. A key that no client writes, one that all its lines of the kind
have and ours do not, and two keys in an order never seen are told. Exit code: 0 alike, 1 not, 2 no
transcripts.
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

from tests.oracle.stories import STORIES, record

VERSIONS = ("2.0.65", "2.1.80", "2.1.197", "2.1.325")
LEFT_OUT = frozenset({
    "requestId",  # told when the model's server gave one
    "requestRef",  # names a line with the whole request, which we do not write
    "requestedModel", "promptCacheRequested", "effort", "perTurnEffort", "toolInputStreamMs",
    "thinkingDisplay", "thinkingDurationMs", "slug",
    "message.stop_details", "message.diagnostics",  # what a server adds, kept when it comes
    "attachment.timedOut", "attachment.timeoutMs",
})  # fmt: skip
"""Keys that every such line of some client has and ours may lack."""

Shapes = dict[str, list[list[str]]]
"""By kind of line: the keys of each, nested ones with a dot."""


@click.command()
@click.option("--transcripts", type=click.Path(path_type=Path), help="The clients' transcripts.")
def main(transcripts: Path | None) -> None:
    """Compare the keys of our lines with those of the clients' own."""
    shared = Path(os.environ.get("SHARED", "../shared"))
    folder = transcripts or shared / "conformance" / "transcripts"
    if not folder.is_dir():
        click.echo(f"There are no transcripts in {folder}; name a folder with --transcripts")
        sys.exit(2)
    failed = False
    for version in VERSIONS:
        theirs = _shapes(folder.glob(f"claude-{version}/*.jsonl"))
        ours = _ours(version)
        problems = [p for kind in ours for p in _compare(ours[kind], theirs.get(kind, []), kind)]
        click.echo(f"{version}: {sum(map(len, ours.values()))} lines, {len(problems)} differences")
        for problem in problems:
            click.echo(f"  {problem}")
        failed = failed or bool(problems)
    sys.exit(1 if failed else 0)


def _ours(version: str) -> Shapes:
    with tempfile.TemporaryDirectory() as folder:
        paths = [record(story, Path(folder) / story.__name__, version) for story in STORIES]
        return _shapes(iter(paths))


def _compare(ours: list[list[str]], theirs: list[list[str]], kind: str) -> Iterator[str]:
    if not theirs:
        yield f"{kind}: no client writes such a line"
        return
    known = {key for line in theirs for key in line}
    always = set.intersection(*map(set, theirs))
    orders = {pair for line in theirs for pair in combinations(line, 2)}
    for line in sorted({tuple(line) for line in ours}):
        for key in set(line) - known:
            yield f"{kind}: no client writes {key}"
        for key in always - set(line) - LEFT_OUT:
            yield f"{kind}: every client's has {key}"
        for one, two in combinations(line, 2):
            swapped = (two, one) in orders and (one, two) not in orders
            if swapped and (one, two) != ("uuid", "timestamp"):  # one old kind has them so
                yield f"{kind}: {one} stands before {two}"


def _shapes(paths: Iterator[Path]) -> Shapes:
    found: Shapes = defaultdict(list)
    for path in paths:
        for data in path.read_bytes().split(b"\n"):
            try:
                line = json.loads(data)
            except ValueError:
                continue
            kind = _kind(line)
            if kind:
                found[kind].append(list(_keys(line)))
    return found


def _kind(line: dict[str, Any]) -> str | None:
    """What a line is, for those kinds that we write too."""
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
