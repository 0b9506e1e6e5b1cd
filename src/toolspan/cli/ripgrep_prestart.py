"""What a search starts before its command line is understood.

In: the words after `toolspan search`. Out: ripgrep at work, so that it has found most of what there
is when Python has imported the rest; or nothing, where the words are not plain. It is a guess:
`search.py` compares it with what is really asked for. Of plain words it imports next to nothing.
"""

from __future__ import annotations

import os

from toolspan.analysis.search.query import RipgrepProcess, find_ripgrep, lines_command, start_ripgrep

TYPE_CHECKING = False  # typing's own constant would cost more to import than all the rest

if TYPE_CHECKING:
    from collections.abc import Sequence


_IGNORE_CASE_FLAGS = frozenset({"-i", "--ignore-case"})
_REGEX_FLAGS = frozenset({"--regex"})
_FLAG_OPTIONS = _IGNORE_CASE_FLAGS | _REGEX_FLAGS | {"--json"}
"""Options that take no value; all others of the command take one."""
_LITERAL_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-.:")
"""Words of these are looked for as they are."""


def prestart_ripgrep(arguments: Sequence[str]) -> RipgrepProcess | None:
    """A ripgrep at work on what the arguments seem to ask for."""
    guess = _guess_arguments(arguments)
    if guess is None:
        return None
    terms, locations = split_locations(guess[0])
    folders = [location for location in map(_normalize_path, locations) if os.path.isdir(location)]  # noqa: PTH112
    if not locations:
        folders = _transcript_folders()
    if guess[1] or not all(terms) or not set().union(*terms) <= _LITERAL_CHARACTERS:
        return start_ripgrep(_pattern_command(terms, guess[1], folders))
    longest = max(terms, key=len, default="")
    return start_ripgrep(lines_command(find_ripgrep(), folders, longest.encode() or None))


def _pattern_command(terms: Sequence[str], flags: set[str], folders: Sequence[str]) -> tuple[str, ...] | None:
    """What words come to that are not plain."""
    from toolspan.analysis.search.query import QueryError, query_of

    ignore_case, regex = (not flags.isdisjoint(_IGNORE_CASE_FLAGS), not flags.isdisjoint(_REGEX_FLAGS))
    try:
        return query_of(terms, regex=regex, ignore_case=ignore_case).rarest_filter.ripgrep_command(
            find_ripgrep(), folders
        )
    except QueryError:
        return None


def split_locations(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words, and the names of files and folders that follow them."""
    end = len(arguments)
    while end > 1 and _is_location(arguments[end - 1]):
        end -= 1
    return list(arguments[:end]), list(arguments[end:])


def _is_location(argument: str) -> bool:
    if "/" not in argument and not argument.endswith((".jsonl", ".jsonl.zst")):
        return False
    return os.path.isdir(argument) or (".jsonl" in argument and os.path.isfile(argument))  # noqa: PTH112, PTH113


def _guess_arguments(arguments: Sequence[str]) -> tuple[list[str], set[str]] | None:
    """What seem to be words and places, and the flags that change what is looked for."""
    positional: list[str] = []
    flags: set[str] = set()
    remaining = list(reversed(arguments))
    while remaining:
        argument = remaining.pop()
        if not argument.startswith("-"):
            positional.append(argument)
        elif argument in _FLAG_OPTIONS:
            flags.add(argument)
        elif not argument.startswith("--") or argument in ("--", "--help"):
            return None
        elif "=" not in argument and remaining:
            remaining.pop()
    return positional, flags - {"--json"}


def _normalize_path(name: str) -> str:
    """A name as pathlib writes it."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return ("/" if name.startswith("/") else "") + "/".join(parts) or "."


def _transcript_folders() -> list[str]:
    """Where this user's clients keep transcripts, as far as there are such folders."""
    claude = os.environ.get("CLAUDE_CONFIG_DIR") or "~/.claude"
    codex = os.environ.get("CODEX_HOME") or "~/.codex"
    gemini = os.environ.get("GEMINI_CLI_HOME") or "~"
    names = (f"{claude}/projects", f"{codex}/sessions", f"{codex}/archived_sessions", f"{gemini}/.gemini/tmp")
    paths = (_normalize_path(os.path.expanduser(name)) for name in names)  # noqa: PTH111
    return [path for path in paths if os.path.isdir(path)]  # noqa: PTH112
