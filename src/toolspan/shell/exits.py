"""What the exit code of a command line means.

In: the line and its code. Out: words for a code that is an answer and no error, else None. The last
command of the line gives the code; of a pipe, the last program of it.
"""

from collections.abc import Mapping

from toolspan.shell.line import Simple, parse_line

_NO_MATCH = {1: "No matches found"}
_DIFFERENT = {1: "Files differ"}
_FALSE = {1: "Condition is false"}

_ANSWERS: Mapping[str, Mapping[int, str]] = {
    "grep": _NO_MATCH,
    "egrep": _NO_MATCH,
    "fgrep": _NO_MATCH,
    "rg": _NO_MATCH,
    "git grep": _NO_MATCH,
    "diff": _DIFFERENT,
    "git diff": _DIFFERENT,
    "find": {1: "Some directories were inaccessible"},
    "test": _FALSE,
    "[": _FALSE,
}
"""Programs whose code can be an answer, and what it says."""


def answer(line: str, code: int) -> str | None:
    """What a code other than 0 says, when it says something; None when it is an error."""
    commands = parse_line(line)
    if not commands:
        return None
    return _ANSWERS.get(_program(commands[-1]), {}).get(code)


def _program(command: Simple) -> str:
    """Its name; for git, with what git is to do."""
    name = command.name.rpartition("/")[2]
    if name == "git" and len(command.words) > 1 and not command.words[1].filled:
        return f"git {command.words[1].text}"
    return name
