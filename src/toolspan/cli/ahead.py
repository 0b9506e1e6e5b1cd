"""What a search starts before its command line is understood.

In: the words after `toolspan search`. Out: ripgrep at work, so that it has found most of what there
is when Python has imported the rest; or nothing, where the words are not plain. It is a guess:
`search.py` compares it with what is really asked for. Of plain words it imports next to nothing.
"""

import os

from toolspan.report.search.ripgrep import Ripgrep, lines_command, ripgrep, started

TYPE_CHECKING = False  # typing's own constant would cost more to import than all the rest

if TYPE_CHECKING:
    from collections.abc import Sequence

_IGNORE_CASE = frozenset({"-i", "--ignore-case"})
_REGEX = frozenset({"--regex"})
_FLAGS = _IGNORE_CASE | _REGEX | {"--json"}
"""Options that take no value; all others of the command take one."""
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-.:")
"""Words of these are looked for as they are."""


def begin(arguments: "Sequence[str]") -> Ripgrep | None:
    """A ripgrep at work on what the arguments seem to ask for."""
    guess = _guess(arguments)
    if guess is None:
        return None
    words, places = apart(guess[0])
    folders = [place for place in map(_path, places) if os.path.isdir(place)]  # noqa: PTH112
    if not places:
        folders = _own_folders()
    if guess[1] or not all(words) or not set().union(*words) <= _PLAIN:
        return started(_command(words, guess[1], folders))
    longest = max(words, key=len, default="")
    return started(lines_command(ripgrep(), folders, longest.encode() or None))


def _command(
    words: "Sequence[str]", flags: set[str], folders: "Sequence[str]"
) -> tuple[str, ...] | None:
    """What words come to that are not plain."""
    from toolspan.report.search.words import QueryError, query_of

    ignore_case, regex = not flags.isdisjoint(_IGNORE_CASE), not flags.isdisjoint(_REGEX)
    try:
        return query_of(words, regex=regex, ignore_case=ignore_case).rarest.asked(
            ripgrep(), folders
        )
    except QueryError:
        return None


def apart(words: "Sequence[str]") -> tuple[list[str], list[str]]:
    """The words, and the names of files and folders that follow them."""
    end = len(words)
    while end > 1 and _is_name(words[end - 1]):
        end -= 1
    return list(words[:end]), list(words[end:])


def _is_name(word: str) -> bool:
    if "/" not in word and not word.endswith((".jsonl", ".jsonl.zst")):
        return False
    return os.path.isdir(word) or (".jsonl" in word and os.path.isfile(word))  # noqa: PTH112, PTH113


def _guess(arguments: "Sequence[str]") -> tuple[list[str], set[str]] | None:
    """What seem to be words and places, and the flags that change what is looked for."""
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
    return words, flags - {"--json"}


def _path(name: str) -> str:
    """A name as pathlib writes it."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return ("/" if name.startswith("/") else "") + "/".join(parts) or "."


def _own_folders() -> list[str]:
    """Where this user's clients keep transcripts, as far as there are such folders."""
    claude = os.environ.get("CLAUDE_CONFIG_DIR") or "~/.claude"
    codex = os.environ.get("CODEX_HOME") or "~/.codex"
    names = (f"{claude}/projects", f"{codex}/sessions", f"{codex}/archived_sessions")
    paths = (_path(os.path.expanduser(name)) for name in names)  # noqa: PTH111
    return [path for path in paths if os.path.isdir(path)]  # noqa: PTH112
