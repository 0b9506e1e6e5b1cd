"""What a search starts before its command line is understood.

In: the words after `toolspan search`. Out: ripgrep at work, so that it has found most of what there
is when Python has imported the rest; or nothing, where the words are not plain. It is a guess:
`search.py` compares it with what is really asked for. Imports as little as can be.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from toolspan.report.search.ripgrep import Ripgrep, lines_command, ripgrep, started
from toolspan.report.search.words import QueryError, query_of
from toolspan.wire.codex_paths import codex_home
from toolspan.wire.paths import config_dir

_IGNORE_CASE = frozenset({"-i", "--ignore-case"})
_REGEX = frozenset({"--regex"})
_FLAGS = _IGNORE_CASE | _REGEX | {"--json"}
"""Options that take no value; all others of the command take one."""


def begin(arguments: Sequence[str]) -> Ripgrep | None:
    """A ripgrep at work on what the arguments seem to ask for."""
    guess = _guess(arguments)
    if guess is None:
        return None
    words, places = apart(guess.words)
    try:
        query = query_of(words, regex=guess.regex, ignore_case=guess.ignore_case)
    except QueryError:
        return None
    folders = [place for place in places or _own_folders() if place.is_dir()]
    return started(lines_command(ripgrep(), folders, query.rarest))


def apart(words: Sequence[str]) -> tuple[list[str], list[Path]]:
    """The words, and the names of files and folders that follow them."""
    end = len(words)
    while end > 1 and _is_name(words[end - 1]):
        end -= 1
    return list(words[:end]), [Path(name) for name in words[end:]]


def _is_name(word: str) -> bool:
    if "/" not in word and not word.endswith((".jsonl", ".jsonl.zst")):
        return False
    return os.path.isdir(word) or (".jsonl" in word and os.path.isfile(word))  # noqa: PTH112, PTH113 - NULs


class _Guess(NamedTuple):
    """What arguments seem to say."""

    words: list[str]
    ignore_case: bool
    regex: bool


def _guess(arguments: Sequence[str]) -> _Guess | None:
    words: list[str] = []
    flags: set[str] = set()
    waiting = list(reversed(arguments))
    while waiting:
        word = waiting.pop()
        if not word.startswith("-"):
            words.append(word)
        elif word in _FLAGS:
            flags.add(word)
        elif not word.startswith("--") or word in ("--", "--help"):
            return None
        elif "=" not in word and waiting:
            waiting.pop()
    return _Guess(words, bool(flags & _IGNORE_CASE), bool(flags & _REGEX))


def _own_folders() -> list[Path]:
    """Where this user's clients keep transcripts."""
    home = codex_home()
    return [config_dir() / "projects", home / "sessions", home / "archived_sessions"]
