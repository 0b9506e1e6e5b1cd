"""A rule: a tool's name, and perhaps what the call must be about.

In: a text such as `Bash(git *)`. Out: a `Rule`, which knows its tool, its pattern, and where it was
written. What a pattern means depends on the tool; `rules.py` knows. Read `Rule.parse` first.
"""

import re
from pathlib import Path

from msgspec import Struct

from toolspan.errors import ToolspanError

_RULE = re.compile(r"(?P<tool>[A-Za-z_*][\w*.-]*)\s*(?:\((?P<inside>.*)\))?", re.DOTALL)
_ALIASES = {"Task": "Agent"}
_NO_WORDS = ("", "*", "**", ":*")


class Rule(Struct, frozen=True, cache_hash=True):
    """One pattern, and where it comes from."""

    text: str
    tool: str
    inside: str | None
    """What stands in the brackets; None for the whole tool."""
    origin: str | None = None
    folder: Path | None = None
    """Where `/x` begins in it; None: where the session began."""

    @classmethod
    def parse(cls, text: str, origin: str | None = None, folder: Path | None = None) -> "Rule":
        """A rule from its text.

        Raises:
            ToolspanError: it is none.
        """
        found = _RULE.fullmatch(text.strip())
        if found is None:
            raise ToolspanError(f"{text!r} is not a permission rule such as Bash or Bash(git *)")
        inside = found["inside"]
        if inside is not None:
            inside = inside.strip().replace("\\(", "(").replace("\\)", ")")
        whole = inside is None or inside in _NO_WORDS
        return cls(text.strip(), found["tool"], None if whole else inside, origin, folder)

    def names(self, tool: str) -> bool:
        """Whether the rule is about this tool, by any of its names."""
        mine, its = _ALIASES.get(self.tool, self.tool), _ALIASES.get(tool, tool)
        if mine == its or ("*" in mine and like(its, mine)):
            return True
        return mine.startswith("mcp__") and its.startswith(mine.removesuffix("__*") + "__")

    @property
    def grants(self) -> bool:
        """Whether its name may stand in a list of what is allowed: stars only behind a server."""
        server, _, rest = self.tool.removeprefix("mcp__").partition("__")
        if "*" not in self.tool:
            return True
        return self.tool.startswith("mcp__") and "*" not in server and bool(rest)


def like(text: str, pattern: str) -> bool:
    """Whether a text fits a pattern in which `*` stands for anything; in linear time."""
    head, *rest = pattern.split("*")
    if not rest:
        return text == pattern
    if not text.startswith(head):
        return False
    *middle, tail = rest
    at = len(head)
    for piece in middle:
        found = text.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return len(text) - at >= len(tail) and text.endswith(tail)


def command_like(text: str, pattern: str) -> bool:
    """Whether a command fits: `git *` and `git:*` also mean `git` alone, and nothing longer."""
    for end in (":*", " *"):
        if pattern.endswith(end):
            head = pattern.removesuffix(end)
            return like(text, head) or like(text, head + " *")
    return like(text, pattern)


def beginning(pattern: str) -> str:
    """What every command begins with that fits a pattern."""
    for end in (":*", " *"):
        if pattern.endswith(end):
            pattern = pattern.removesuffix(end)
            break
    return pattern.partition("*")[0]


def is_prefix(pattern: str) -> bool:
    """Whether a command pattern leaves the arguments open."""
    return "*" in pattern
