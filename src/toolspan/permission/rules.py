"""Rules: patterns that allow, ask for, or deny calls.

A rule is a tool's name (`Bash`), an MCP server (`mcp__db`), a name with a star (`mcp__db__*`), or a
name with something in brackets (`Bash(git *)`). What stands in brackets is compared with the call's
main value (command, path, address) by shell patterns; `:*` at the end means "begins with".
A bracketed allow rule is never enough for a command line that may run more than one program.
"""

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass

from toolspan.errors import ToolspanError
from toolspan.model.decision import Allow, Ask, Decision, Deny
from toolspan.permission.decide import Question

_RULE = re.compile(r"(?P<tool>[A-Za-z_][\w*-]*)(?:\((?P<inside>.*)\))?", re.DOTALL)
_TARGETS = ("command", "file_path", "notebook_path", "path", "pattern", "url", "query")
_SEVERAL = re.compile(r"[;&|`\n\r$<>()\\]")


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern."""

    text: str
    tool: str
    inside: str | None

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """A rule from its text.

        Raises:
            ToolspanError: it is none.
        """
        found = _RULE.fullmatch(text.strip())
        if found is None:
            raise ToolspanError(f"{text!r} is not a permission rule such as Bash or Bash(git *)")
        return cls(text.strip(), found["tool"], found["inside"])

    def names(self, tool: str) -> bool:
        """Whether the rule is about this tool."""
        if self.tool == tool or ("*" in self.tool and fnmatch.fnmatchcase(tool, self.tool)):
            return True
        return self.tool.startswith("mcp__") and tool.startswith(self.tool + "__")

    def fits(self, question: Question, *, granting: bool) -> bool:
        """Whether the rule speaks of this call; when `granting`, only if nothing can hide in it."""
        if not (self.names(question.tool) or self.names(question.call.tool)):
            return False
        if self.inside is None or self.inside in ("", "*"):
            return True
        target = _target(question)
        if granting and question.tool == "Bash" and _SEVERAL.search(target):
            return False
        return _like(target, self.inside)


def _target(question: Question) -> str:
    for key in _TARGETS:
        value = question.input.get(key)
        if isinstance(value, str):
            return value
    return ""


def _like(target: str, pattern: str) -> bool:
    if pattern.endswith(":*"):
        head = pattern[:-2]
        return target == head or target.startswith(head + " ")
    return fnmatch.fnmatchcase(target, pattern)


class Rules:
    """A policy made of rules: deny before ask before allow."""

    def __init__(
        self, *, allow: Iterable[str] = (), ask: Iterable[str] = (), deny: Iterable[str] = ()
    ) -> None:
        self.allow = tuple(Rule.parse(text) for text in allow)
        self.ask = tuple(Rule.parse(text) for text in ask)
        self.deny = tuple(Rule.parse(text) for text in deny)

    def __call__(self, question: Question) -> Decision | None:
        """The opinion of the rules on a call."""
        for rule in self.deny:
            if rule.fits(question, granting=False):
                return Deny(None, "config")
        for rule in self.ask:
            if rule.fits(question, granting=False):
                return Ask(None, "config")
        for rule in self.allow:
            if rule.fits(question, granting=True):
                return Allow(rule.text, "config")
        return None
