"""Count commands that toolspan would ask about although the real client ran them without asking.

    python scripts/needless.py CORPUS [--show N]

Counts Bash calls of real transcripts that (1) succeeded, (2) in a session whose recorded permission
modes are modes that ask, (3) with a result within 0.7 seconds of the request, too fast for a user's
answer, (4) made only of programs that the client documents as read-only, found by a plain split of the
text that shares nothing with toolspan's parser, without redirects other than to /dev/null, and (5)
were run on a system with POSIX paths (sessions on Windows are left out). Rules of the users are not
recorded, so other programs cannot be counted.

A question is needless if the default mode without any rule would ask. Commands that name paths outside
the session's folder are counted separately: the client asks about those as well, unless the user has
added the folder, which is not recorded either. With --unknown-modes, sessions of clients that did not
record modes are counted as well; some of those may have been started in a mode that never asks.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from toolspan.runtime.pending_call import LiveBodyStore
from toolspan.runtime.permissions import mode_policy
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.types.decision import Allow, Ask
from toolspan.types.ids import CallId
from toolspan.types.span import Call

_PROGRAMS = frozenset(
    ["ls", "cat", "echo", "pwd", "head", "tail", "grep", "find", "wc", "which", "diff", "stat", "du", "cd"]
)
_GIT = frozenset(["status", "log", "diff", "show", "branch", "rev-parse", "ls-files", "blame"])
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_HARMLESS = re.compile(r"\d?>>?\s*/dev/null|\d?>&\d")
_WRITES = frozenset(["-exec", "-execdir", "-delete", "-ok", "-okdir", "-fprint", "-fls", "-o", "--output"])
_FASTEST_ANSWER = 0.7


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that the client ran."""

    command: str
    cwd: Path
    project: Path


def documented(command: str) -> bool:
    """Return whether a line consists only of documented read-only programs, by a simple split."""
    bare = _HARMLESS.sub(" ", _QUOTED.sub("Q", command))
    if re.search(r"[<>`]|\$\(|\bsudo\b", bare):
        return False
    for part in re.split(r"&&|\|\||[;|&\n]", bare):
        arguments = part.split()
        if not arguments or arguments[0].startswith("#"):
            continue
        git = arguments[0] == "git" and arguments[1:2] and arguments[1] in _GIT
        if not (git or arguments[0] in _PROGRAMS) or _WRITES & set(arguments):
            return False
        if git and arguments[1] == "branch" and not all(w[0] == "-" for w in arguments[2:]):
            return False
    return True


def ran_unasked(path: Path, *, unknown_modes: bool) -> Iterator[Ran]:
    """Yield the commands of one transcript that the client cannot have asked about."""
    modes: set[str] = set()
    calls: dict[str, tuple[str, str, datetime]] = {}
    project: str | None = None
    commands: list[Ran] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if not isinstance(entry, dict):
            continue
        modes.update([entry["permissionMode"]] if entry.get("permissionMode") else [])
        project = project or entry.get("cwd")
        content = (entry.get("message") or {}).get("content") if entry.get("message") else None
        for block in content if isinstance(content, list) else []:
            if not isinstance(block, dict) or not entry.get("timestamp"):
                continue
            at = datetime.fromisoformat(entry["timestamp"].replace("Z", "+00:00"))
            if block.get("type") == "tool_use" and block.get("name") == "Bash":
                command = (block.get("input") or {}).get("command")
                if isinstance(command, str):
                    calls[block["id"]] = (command, entry.get("cwd") or "/", at)
            call = calls.get(block.get("tool_use_id", ""))
            succeeded = block.get("type") == "tool_result" and not block.get("is_error")
            if call and succeeded and (at - call[2]).total_seconds() < _FASTEST_ANSWER:
                commands.append(Ran(call[0], Path(call[1]), Path(project or call[1])))
    mode_known = bool(modes) or unknown_modes
    if mode_known and "bypassPermissions" not in modes and (project or "/").startswith("/"):
        yield from commands


def classify(ran: Ran) -> str:
    """Return `free`, `outside` or `needless`."""
    tool_input = {"command": ran.command}
    call = Call(id=CallId("x"), tool="Bash", at=0, requested_at=None, target=None, body_store=LiveBodyStore(tool_input))
    question = PermissionRequest(call=call, input=tool_input, cwd=ran.cwd, project=ran.project)
    decision = mode_policy("default")(question)
    if isinstance(decision, Allow):
        return "free"
    needs = decision.needs if isinstance(decision, Ask) else None
    reach = needs.reach if needs else None
    return "outside" if reach is not None and not reach.inside else "needless"


def main() -> None:
    """Count, and list the commands that would be asked about."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--show", type=int, default=0)
    parser.add_argument("--unknown-modes", action="store_true", help="also sessions that do not tell their mode")
    parser.add_argument("--most", type=float, default=0.03)
    wishes = parser.parse_args()
    counts: Counter[str] = Counter()
    needless_counts: Counter[str] = Counter()
    for path in sorted(wishes.corpus.rglob("*.jsonl")):
        for ran in ran_unasked(path, unknown_modes=wishes.unknown_modes):
            if documented(ran.command):
                verdict = classify(ran)
                counts[verdict] += 1
                needless_counts.update([f"{verdict}: {ran.command}"] if verdict != "free" else [])
    for text, count in needless_counts.most_common(wishes.show):
        print(f"{count:5} {text[:200]!r}")  # noqa: T201
    total = counts["free"] + counts["needless"]
    rate = counts["needless"] / total if total else 0.0
    print(f"{dict(counts)}: {rate:.1%} needless of {total}")  # noqa: T201
    sys.exit(rate > wishes.most)


if __name__ == "__main__":
    main()
