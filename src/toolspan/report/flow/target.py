"""What a call is about, so that one call can be seen to take up another.

In: a span. Out: keys and words to compare: a path, the head of a command, a host, a server. Looks
at the call's target only, never at its whole input. Pure. Read `key_of` first.
"""

import re
from functools import lru_cache
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import urlsplit

from toolspan.model.span import Span

_PREFIXES = re.compile(
    r"\s*(?:cd\s+[^&;|]+(?:&&|;)\s*|(?:\w+=\S*|sudo|time|env|nohup|timeout\s+\S+)\s+)+"
)
"""What may stand before the program: a change of folder, variables, wrappers."""
_WORDS = re.compile(r"[^\s;|&<>()]+(?:\s+[^\s;|&<>()]+){0,2}")
_TWO_WORDS = frozenset({"run", "exec", "compose", "-m"})
"""Words after which the next one says what is done: `npm run build`."""
_TWO_WORD_PROGRAMS = frozenset({"aws", "az", "gcloud", "gh", "kubectl"})
_READERS = frozenset({"cat", "head", "tail", "nl", "bat", "less", "more", "sed"})
_SEARCHERS = frozenset({"grep", "egrep", "fgrep", "rg", "ag"})
_LISTERS = frozenset({"ls", "find", "fd", "tree"})
_OTHERS = frozenset(
    {"wc", "stat", "file", "diff", "awk", "sort", "uniq", "cut", "echo", "pwd", "git diff",
     "git log", "git show", "git status", "git blame"}
)  # fmt: skip
_CUT = 160
"""A target this long may have been cut."""
_PIECES = re.compile(r"&&|\|\||[;|\n]")
_WRITES = re.compile(r"\d?>(?!\s*(?:/dev/null|&\d))|\btee\b|\s-(?:i|delete|exec)\b")


class Key(NamedTuple):
    """What two calls have in common when one takes up the other."""

    sort: str
    name: str


def key_of(span: Span) -> Key:
    """What a call is about."""
    target, tool = span.call.target, span.tool
    if not target:
        return tool_key(tool)
    match span.call.kind:
        case "read" | "edit" | "write":
            return Key("path", normal_path(target))
        case "search" if tool == "LS":
            return Key("path", normal_path(target))
        case "shell":
            return Key("command", head_of(target))
        case "web":
            host = host_of(target)
            return Key("host", host) if host else Key(tool, target)
        case "mcp":
            return Key("server", tool.removeprefix("mcp__").partition("__")[0])
        case "search" | "agent":
            return Key(tool, target)
        case _:
            return tool_key(tool)


def tool_key(tool: str) -> Key:
    """The key of a call that says nothing of what it is about."""
    return Key("tool", tool)


def normal_path(path: str) -> str:
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
def head_of(command: str) -> str:
    """A command's program and what it is told to do: `git push`, `npm run build`, `make test`."""
    start = _PREFIXES.match(command)
    found = _WORDS.search(command, start.end() if start else 0)
    if found is None:
        return command.strip()
    first, *words = found[0].split()
    program = first.rpartition("/")[2]
    if program in _TWO_WORD_PROGRAMS or (words[:1] and words[0] in _TWO_WORDS):
        return " ".join([program, *words])
    return f"{program} {words[0]}" if words and not words[0].startswith("-") else program


def shows_only(command: str) -> bool:
    """Whether a command line only looks at things and, by its own words, changes none."""
    return bool(looks_by(command))


def looks_by(command: str) -> str:
    """How a command line looks at things: read, search, list or other; empty when it may do more.

    Every program of it must be a known one; a separator inside quotes makes it an unknown one.
    """
    if len(command) >= _CUT or writes(command):
        return ""
    ways = [_way(piece) for piece in _PIECES.split(command) if piece.strip()]
    return next((way for way in ways if way != "other"), "other") if all(ways) else ""


def _way(piece: str) -> str:
    head = head_of(piece)
    program = head.partition(" ")[0]
    for way, programs in (("read", _READERS), ("search", _SEARCHERS), ("list", _LISTERS)):
        if program in programs:
            return way
    return "other" if program in _OTHERS or head in _OTHERS or program == "cd" else ""


def writes(command: str) -> bool:
    """Whether a command, by its own words, changes files."""
    return bool(_WRITES.search(command))


def names_in(target: str) -> set[str]:
    """The last parts of the paths that a target, be it a command, names."""
    words = re.split(r"[\s'\"=:;|&()<>]+", target.replace("\\", "/"))
    return {word.rstrip("/").rpartition("/")[2] for word in words if "/" in word or "." in word}


def mentions(command: str, key: Key) -> bool:
    """Whether a command names the file or host that a key is about."""
    if key.sort == "host":
        return key.name in command
    if key.sort != "path":
        return False
    name = key.name.rpartition("/")[2]
    if not name or name not in command:
        return False
    return key.name in command or bool(
        re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", command)
    )
