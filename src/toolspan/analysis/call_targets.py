"""The target of a call in a comparable form: a path, the head of a command, a host, a server.

`call_key` is used to find calls that retry or replace others. Only the target is considered, never the
whole input.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import urlsplit

from toolspan.types.span import Span

_PREFIXES = re.compile(r"\s*(?:cd\s+[^&;|]+(?:&&|;)\s*|(?:\w+=\S*|sudo|time|env|nohup|timeout\s+\S+)\s+)+")
"""A change of folder, variables and wrappers before the program."""
_COMMAND_START = re.compile(r"[^\s;|&<>()]+(?:\s+[^\s;|&<>()]+){0,2}")
_TWO_PART_SUBCOMMANDS = frozenset({"run", "exec", "compose", "-m"})
"""Words whose next word is part of the subcommand: `npm run build`."""
_TWO_PART_PROGRAMS = frozenset({"aws", "az", "gcloud", "gh", "kubectl"})
_READERS = frozenset({"cat", "head", "tail", "nl", "bat", "less", "more", "sed"})
_SEARCHERS = frozenset({"grep", "egrep", "fgrep", "rg", "ag"})
_LISTERS = frozenset({"ls", "find", "fd", "tree"})
_OTHER_LOOKUPS = frozenset(
    {"wc", "stat", "file", "diff", "awk", "sort", "uniq", "cut", "echo", "pwd", "git diff",
     "git log", "git show", "git status", "git blame"}
)  # fmt: skip
_MAX_TARGET_CHARS = 160
"""Longer targets may have been truncated."""
_COMMAND_SEPARATOR = re.compile(r"&&|\|\||[;|\n]")
_WRITE_PATTERN = re.compile(r"\d?>(?!\s*(?:/dev/null|&\d))|\btee\b|\s-(?:i|delete|exec)\b")


class CallKey(NamedTuple):
    """A normalised target; two calls with the same key have the same target."""

    kind: str
    name: str


def call_key(span: Span) -> CallKey:
    """Return the key of a call."""
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
    """Return the key of calls whose target is unknown."""
    return CallKey("tool", tool)


def normalize_path(path: str) -> str:
    """Return a path without redundant dots and slashes."""
    path = path.replace("\\", "/")
    plain = "/./" not in path and "//" not in path and not path.endswith("/")
    return path if plain else str(PurePosixPath(path))


def host_of(address: str) -> str:
    """Return the host of a URL; empty if there is none."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


@lru_cache(maxsize=1_024)
def command_head(command: str) -> str:
    """Return the program of a command with its subcommand: `git push`, `npm run build`, `make test`."""
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
    """Return whether a command line only reads, searches or lists."""
    return bool(lookup_kind(command))


def lookup_kind(command: str) -> str:
    """Return `read`, `search`, `list` or `other`; empty if the command may do anything else.

    All its programs must be known ones. A separator inside quotes makes a program unknown.
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
    """Return whether a command contains a redirection or option that changes files."""
    return bool(_WRITE_PATTERN.search(command))


def path_names_in(target: str) -> set[str]:
    """Return the last components of the paths in a target or command."""
    tokens = re.split(r"[\s'\"=:;|&()<>]+", target.replace("\\", "/"))
    return {word.rstrip("/").rpartition("/")[2] for word in tokens if "/" in word or "." in word}


def command_mentions(command: str, key: CallKey) -> bool:
    """Return whether a command names the file or host of a key."""
    if key.kind == "host":
        return key.name in command
    if key.kind != "path":
        return False
    name = key.name.rpartition("/")[2]
    if not name or name not in command:
        return False
    return key.name in command or bool(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", command))
