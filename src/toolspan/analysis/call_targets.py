"""What a call is about, so that one call can be seen to take up another.

In: a span. Out: keys and words to compare: a path, the head of a command, a host, a server. Looks
at the call's target only, never at its whole input. Pure. Read `key_of` first.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import urlsplit

from toolspan.types.span import Span

_PREFIXES = re.compile(r"\s*(?:cd\s+[^&;|]+(?:&&|;)\s*|(?:\w+=\S*|sudo|time|env|nohup|timeout\s+\S+)\s+)+")
"""What may stand before the program: a change of folder, variables, wrappers."""
_COMMAND_START = re.compile(r"[^\s;|&<>()]+(?:\s+[^\s;|&<>()]+){0,2}")
_TWO_PART_SUBCOMMANDS = frozenset({"run", "exec", "compose", "-m"})
"""Words after which the next one says what is done: `npm run build`."""
_TWO_PART_PROGRAMS = frozenset({"aws", "az", "gcloud", "gh", "kubectl"})
_READERS = frozenset({"cat", "head", "tail", "nl", "bat", "less", "more", "sed"})
_SEARCHERS = frozenset({"grep", "egrep", "fgrep", "rg", "ag"})
_LISTERS = frozenset({"ls", "find", "fd", "tree"})
_OTHER_LOOKUPS = frozenset(
    {"wc", "stat", "file", "diff", "awk", "sort", "uniq", "cut", "echo", "pwd", "git diff",
     "git log", "git show", "git status", "git blame"}
)  # fmt: skip
_MAX_TARGET_CHARS = 160
"""A target this long may have been cut."""
_COMMAND_SEPARATOR = re.compile(r"&&|\|\||[;|\n]")
_WRITE_PATTERN = re.compile(r"\d?>(?!\s*(?:/dev/null|&\d))|\btee\b|\s-(?:i|delete|exec)\b")


class CallKey(NamedTuple):
    """What two calls have in common when one takes up the other."""

    kind: str
    name: str


def call_key(span: Span) -> CallKey:
    """What a call is about."""
    target, tool = span.call.target, span.tool
    if not target:
        return tool_key(tool)
    match span.call.kind:
        case "read" | "edit" | "write":
            return CallKey("path", normalize_path(target))
        case "search" if tool == "LS":
            return CallKey("path", normalize_path(target))
        case "shell":
            return CallKey("command", command_head(target))
        case "web":
            host = host_of(target)
            return CallKey("host", host) if host else CallKey(tool, target)
        case "mcp":
            return CallKey("server", tool.removeprefix("mcp__").partition("__")[0])
        case "search" | "agent":
            return CallKey(tool, target)
        case _:
            return tool_key(tool)


def tool_key(tool: str) -> CallKey:
    """The key of a call that says nothing of what it is about."""
    return CallKey("tool", tool)


def normalize_path(path: str) -> str:
    """A path without dots that lead nowhere."""
    path = path.replace("\\", "/")
    plain = "/./" not in path and "//" not in path and not path.endswith("/")
    return path if plain else str(PurePosixPath(path))


def host_of(address: str) -> str:
    """The host of an address; empty when there is none."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


@lru_cache(maxsize=1_024)
def command_head(command: str) -> str:
    """A command's program and what it is told to do: `git push`, `npm run build`, `make test`."""
    start = _PREFIXES.match(command)
    match = _COMMAND_START.search(command, start.end() if start else 0)
    if match is None:
        return command.strip()
    first, *arguments = match[0].split()
    program = first.rpartition("/")[2]
    if program in _TWO_PART_PROGRAMS or (arguments[:1] and arguments[0] in _TWO_PART_SUBCOMMANDS):
        return " ".join([program, *arguments])
    return f"{program} {arguments[0]}" if arguments and not arguments[0].startswith("-") else program


def is_lookup_command(command: str) -> bool:
    """Whether a command line only looks at things and, by its own words, changes none."""
    return bool(lookup_kind(command))


def lookup_kind(command: str) -> str:
    """How a command line looks at things: read, search, list or other; empty when it may do more.

    Every program of it must be a known one; a separator inside quotes makes it an unknown one.
    """
    if len(command) >= _MAX_TARGET_CHARS or may_write_files(command):
        return ""
    kinds = [_program_lookup_kind(piece) for piece in _COMMAND_SEPARATOR.split(command) if piece.strip()]
    return next((kind for kind in kinds if kind != "other"), "other") if all(kinds) else ""


def _program_lookup_kind(piece: str) -> str:
    head = command_head(piece)
    program = head.partition(" ")[0]
    for kind, programs in (("read", _READERS), ("search", _SEARCHERS), ("list", _LISTERS)):
        if program in programs:
            return kind
    return "other" if program in _OTHER_LOOKUPS or head in _OTHER_LOOKUPS or program == "cd" else ""


def may_write_files(command: str) -> bool:
    """Whether a command, by its own words, changes files."""
    return bool(_WRITE_PATTERN.search(command))


def path_names_in(target: str) -> set[str]:
    """The last parts of the paths that a target, be it a command, names."""
    tokens = re.split(r"[\s'\"=:;|&()<>]+", target.replace("\\", "/"))
    return {word.rstrip("/").rpartition("/")[2] for word in tokens if "/" in word or "." in word}


def command_mentions(command: str, key: CallKey) -> bool:
    """Whether a command names the file or host that a key is about."""
    if key.kind == "host":
        return key.name in command
    if key.kind != "path":
        return False
    name = key.name.rpartition("/")[2]
    if not name or name not in command:
        return False
    return key.name in command or bool(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", command))
