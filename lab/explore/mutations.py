"""Generate cases of command lines that toolspan runs without a question, each changed a little.

A client that refuses one of them shows where toolspan understands too much. The lines depend on the seed and on the
decisions of this version of toolspan, so another version replays a seed only in part.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.explore.command_lines import Lines
from lab.explore.permissions import generate_permission_case
from lab.oracle.recording_scenarios import nearest_profile
from toolspan.runtime.pending_call import LiveBodyStore
from toolspan.runtime.permissions import Permissions
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.permissions.rules import rules_from_settings
from toolspan.runtime.profiles import profile
from toolspan.runtime.settings.load import PermissionSettings
from toolspan.types.decision import Allow
from toolspan.types.ids import CallId
from toolspan.types.span import Call

Json = dict[str, Any]
_MODES = ("default", "acceptEdits", "default", "dontAsk", "bypassPermissions")
_ATTEMPTS = 40_000
_LINES = 200
_DENIED = (
    "foo bar", "foo:*", "foo bar:*", "foo * baz", "git push:*", "git push *", "curl:*", "rm:*", "npm run *", "*bar*",
    "X=1 foo:*", "timeout:*", "xargs:*", "make", "docker * x", "env:*", "cd:*", "* --force", "bash -c:*", "sudo *",
)  # fmt: skip
"""Patterns of rules that deny or ask about commands."""
_PIECES = (
    "'", '"', "\\", "\n", " ", "\t", "  ", "~", "~/", "*", "?", "[", "]", "[a]", "{", "}", "{a,b}", "(", ")", "$", "!",
    "#", " #", "=", "==", ":", "@", "%", "^", "+", "-", "--", " -- ", "&", ";", "|", "&&", "||", "|&", ";;", "<", ">",
    ">>", "<<<", "2>&1", ">&2", "2>/dev/null", "< a.txt", "> /dev/null", "/", "//", "/..", "../", "./", ".", "..", ",",
    "\\\n", " \\\n ", "\\ ", "''", '""', "'x'", '"x"', "$'x'", '$"x"', "0", "1", "10", "a", "x", "e", "w", "i", "-e",
    "-i", "-f", "-o", "-r", "-n", "-c", "-x", "-exec", "--output=x", "--help", "-5", "+5", "time ", "command ", "env ",
    "nice ", "timeout 5 ", "xargs ", "cd src", "cd ..", "cd .", "\ncd src\n", "pwd", "rm", "ls", "cat a.txt", "true",
    "| cat", "| sort", "| xargs", "&& pwd", "; pwd", "\npwd", "|| true", "! ", "X=1 ", "LANG=C ", "TZ=x ", "\u00fc",
    "\u00a0", "\u2003", "\u00e9", "\r", "$X", "$HOME", "$(", "`", "${", "$((1))", "a=b", "=ls", "%1", "-rf", "@{u}",
    "\u0663", "\u00b2", "..\\", "%G", "signature", "((", "))", "\\\\", "A=1 ", "LC_MESSAGES=C ",
    "$'x'", " $'x' ", "a\\ ", ".exe", "((a))", " ((", "else ", "} ", "watch ", "sudo ", "ionice - ", "<<<x",
    "> x ", "-ni", "-Ei", "cd .. && ", " <<< x ", "0< a.txt ", "-f/etc/passwd", "-x/../y", "-x..", " -- -x", "\ufeff",
    "cd /home/dev/proj; ", "cd  /home/dev/proj && ",
    "HEAD", "HEAD~1", ".git", ".env", "/etc/passwd", "/dev/null", "~root", "ln-out", "*.txt", "src/*", "s/a/b/", "1p",
)  # fmt: skip


def generate_mutation_case(seed: int, version: str, number: int) -> Json:
    """Return a case of changed lines that toolspan runs, in one mode, with one set of rules."""
    rng = random.Random(f"mutations/{seed}/{version}/{number}")
    case = generate_permission_case(seed + 1_000_000, version, number)
    mode = _MODES[number % len(_MODES)]
    case |= {"id": f"m{seed}-{number:03}-{mode}", "permission_mode": mode}
    permissions = case["settings"]["permissions"]
    for key, chance in (("allow", 0.4), ("deny", 0.6), ("ask", 0.6)):
        rules = [rule for rule in permissions.pop(key, []) if rule != "Bash"]
        if rules and (rng.random() >= chance or mode == "bypassPermissions"):
            permissions[key] = rules
    denied = [text for text in _DENIED if rng.random() < 0.2] if rng.random() < 0.3 else []
    if denied:
        permissions |= {"allow": ["Bash"], rng.choice(("deny", "ask")): [f"Bash({text})" for text in denied]}
    with _decider(case) as runs:
        lines = list(_draw_lines(rng, runs, denied))
    calls = [
        {"id": f"toolu_01{case['id'].replace('-', '')}x{index:03}", "name": "Bash", "input": {"command": line}}
        for index, line in enumerate(lines)
    ]
    case["turns"] = [calls[at : at + 10] for at in range(0, len(calls), 10)]
    return case


def _draw_lines(rng: random.Random, runs: Any, denied: Sequence[str]) -> Iterator[str]:
    """Yield changed lines that run, each once. If rules deny commands, the lines are changed from denied ones."""
    commands = [text.replace("*", "x").replace(":x", " x") for text in denied]
    lines, seen, sources = Lines(rng, commands), set[str](), list[str]()
    for _ in range(_ATTEMPTS):
        if len(sources) < 60 or rng.random() < 0.3:
            source = lines.line()
            if runs(source) is not bool(denied):
                sources.append(source)
            continue
        line = rng.choice(sources)
        for _ in range(rng.choice((1, 1, 2, 3))):
            line = _mutate(rng, line, rng.choice(sources))
        if line in seen or not line.strip() or not runs(line):
            continue
        seen.add(line)
        if rng.random() < 0.3 and not denied:
            sources.append(line)
        yield line
        if len(seen) >= _LINES:
            return


def _mutate(rng: random.Random, line: str, other: str) -> str:
    """Change a line at one place."""
    at = rng.randrange(len(line) + 1)
    if rng.random() < 0.4:  # between two words
        blanks = [index for index, letter in enumerate(line) if letter in " \n\t"] or [len(line)]
        at = rng.choice([*blanks, len(line), 0])
    end = min(len(line), at + rng.choice((1, 1, 2, 4)))
    piece = rng.choice(_PIECES)
    words = line.split(" ")
    match rng.randrange(10):
        case 0:
            return line[:at] + line[end:]
        case 1:
            return line[:at] + line[at:end] * 2 + line[end:]
        case 2:
            return line[:at] + piece + line[end:]
        case 3:
            return line + rng.choice((" | ", "\n", " && ", "; ", " || ", " & ")) + other
        case 4:
            word = rng.randrange(len(words))
            quote = rng.choice(("'", '"'))
            words[word] = f"{quote}{words[word]}{quote}"
            return " ".join(words)
        case 5:
            rng.shuffle(words)
            return " ".join(words)
        case 6:
            words.insert(rng.randrange(len(words) + 1), piece)
            return " ".join(words)
        case 7:
            words.insert(rng.randrange(len(words) + 1), rng.choice(other.split(" ")))
            return " ".join(words)
        case _:
            return line[:at] + piece + line[at:]


@contextmanager
def _decider(case: Json) -> Iterator[Any]:
    """Yield a function that tells if toolspan runs a line of a case without a question."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        project = home / "proj"
        for root, files in ((project, case["files"]), (home, case["home_files"])):
            for name, entry in files.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if "symlink" in entry:
                    path.symlink_to(entry["symlink"].replace("<home>", folder))
                elif "dir" in entry:
                    path.mkdir(exist_ok=True)
                else:
                    path.write_text(entry["text"], encoding="utf-8")
        block = dict(case["settings"]["permissions"])
        folders = [Path(name.replace("<home>", folder)) for name in block.pop("additionalDirectories", ())]
        refusals = profile(nearest_profile(case["version"])).refusals
        rules = rules_from_settings(PermissionSettings(**block), "settings", None, refusals)
        stack = Permissions(rules, case["permission_mode"], folders=tuple(folders), refusals=refusals)
        policies = (*stack.policies, stack.fallback)
        before, os.environ["HOME"] = os.environ.get("HOME", ""), folder

        def runs(line: str) -> bool:
            tool_input = {"command": line}
            call = Call(
                id=CallId(line), tool="Bash", at=0, requested_at=None, target=None, body_store=LiveBodyStore(tool_input)
            )
            request = PermissionRequest(call=call, input=tool_input, cwd=project, project=project)
            opinions = [policy(request) for policy in policies[:-1]]
            decision = max(opinions, key=_rank, default=None) or policies[-1](request)
            return isinstance(decision, Allow)

        try:
            yield runs
        finally:
            os.environ["HOME"] = before


def _rank(decision: object) -> int:
    return 0 if decision is None else 1 if isinstance(decision, Allow) else 2
