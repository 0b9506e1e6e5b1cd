"""Permission rules that cannot have the effect that they seem to have: unknown tools, wrong case, impossible patterns.

Start at `find_rule_problems`. Sessions log the problems, the command line prints them, and `toolspan run` refuses to
start with a rule that denies nothing.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from toolspan.runtime.permissions import Rules
from toolspan.runtime.permissions.rule import Rule, matches_wildcard
from toolspan.runtime.permissions.rules import FILE_RULES, GRANTLESS_TOOLS
from toolspan.runtime.profiles import VERSIONS, profile
from toolspan.runtime.tool import Tool
from toolspan.types.tool_kinds import ToolKind, tool_kind, tools_of_kinds

_TOOL_KINDS: tuple[ToolKind, ...] = (
    "shell", "read", "edit", "write", "search", "web", "agent", "plan", "question",
)  # fmt: skip
_RULE_ONLY_NAMES = frozenset({"Cd", "EndConversation"})
"""Names that are allowed in rules although they are not tools."""
_MCP_PREFIX = "mcp__"
_HOST = re.compile(r"[^/:@?#\s]+|\[[0-9a-fA-F:.*]+\]")
_PARAMETER = re.compile(r"(\w+)\s*:")
_MATCHED_FIELDS = frozenset({"command", "query", "pattern"})
"""The input fields that a pattern of any tool is compared with."""


@dataclass(frozen=True, slots=True)
class RuleNames:
    """The names that rules may use."""

    tools: frozenset[str] = frozenset()
    """The names of the session's tools, besides those of clients."""
    fields: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The input fields of the tools whose schema is known."""
    servers: frozenset[str] = frozenset()
    """The names of the configured MCP servers, as in the names of their tools."""

    @classmethod
    def from_tools(cls, tools: Iterable[Tool], *, servers: Iterable[str] = ()) -> RuleNames:
        """Return the names of tools and servers."""
        fields: dict[str, frozenset[str]] = {}
        for tool in tools:
            properties = tool.input_schema.get("properties")
            fields |= dict.fromkeys(
                (tool.name, *tool.aliases), frozenset(properties) if isinstance(properties, Mapping) else frozenset()
            )
        connected = {name.split("__")[1] for name in fields if name.startswith(_MCP_PREFIX)}
        return cls(frozenset(fields), fields, frozenset(servers) | connected)


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """A problem of one rule."""

    text: str
    """A sentence for the user."""
    is_useless_denial: bool = False
    """True if the rule should deny something, but certainly matches no call: its tool is misspelled or its pattern is
    impossible.
    """


def find_rule_problems(rules: Rules, names: RuleNames) -> Iterator[RuleProblem]:
    """Yield the problems of rules, those of rules that deny first."""
    for behavior, group in (("deny", rules.deny), ("ask", rules.ask), ("allow", rules.allow)):
        for rule in dict.fromkeys(group):
            where = f" ({rule.origin})" if rule.origin else ""
            for problem, is_certain in _find_problems(rule, names):
                text = f"the rule {rule.text}{where}: {problem}"
                yield RuleProblem(text, is_useless_denial=behavior == "deny" and is_certain)
    yield from (RuleProblem(f"the rule {line}") for line in find_weak_rules(rules))


def find_weak_rules(rules: Rules) -> Iterator[str]:
    """Yield the rules that have less effect than they seem to, each with the reason."""
    for rule in rules.allow:
        if rule.is_malformed:
            yield f"{rule.text}: allows nothing; write {rule.tool} or {rule.tool}(pattern), without extra spaces"
        elif rule.tool in FILE_RULES and (rule.content or "").startswith("../"):
            yield f"{rule.text}: allows nothing; use a path that begins with ~/ or //"
        elif not rule.can_grant:
            yield f"{rule.text}: allows nothing, because `*` must come after the name of an MCP server"
        elif rule.content is not None and rule.tool in GRANTLESS_TOOLS:
            yield f"{rule.text}: allows nothing; use a rule for Read or Edit, which also applies to {rule.tool}"
    for rule in (*rules.ask, *rules.deny):
        if rule.text.endswith("()"):
            yield f"{rule.text}: empty parentheses mean the whole tool"


def _find_problems(rule: Rule, names: RuleNames) -> Iterator[tuple[str, bool]]:
    """Yield each problem of a rule, and whether the rule certainly matches no call because of it."""
    problem = _find_name_problem(rule.tool, names)
    if problem is not None:
        # A tool of which toolspan has never heard may be one of a newer client, so that the rule denies nothing here.
        yield problem, "did you mean" in problem or "no tool has" in problem
    elif (reason := _find_impossible_pattern(rule, names)) is not None:
        yield reason, True


def _find_name_problem(name: str, names: RuleNames) -> str | None:
    known = names.tools | _known_tool_names()
    if name.startswith(_MCP_PREFIX):
        server = name.removeprefix(_MCP_PREFIX).partition("__")[0]
        if server in names.servers or "*" in server:
            return None
        close = _find_similar(server, names.servers)
        return f"there is no MCP server {server!r}; did you mean {close}?" if close else None
    if name in known:
        return None
    if "*" in name:
        may_be_mcp = _MCP_PREFIX.startswith(name.partition("*")[0])
        is_used = may_be_mcp or any(matches_wildcard(other, name) for other in known)
        return None if is_used else f"no tool has a name like {name!r}"
    if re.match(r"mcp_+\w", name, re.IGNORECASE) and names.servers:
        return f"there is no tool {name!r}; did you mean mcp__SERVER__TOOL, with two underscores?"
    close = _find_similar(name, known)
    return f"there is no tool {name!r}{f'; did you mean {close}?' if close else ''}"


def _find_similar(name: str, known: Iterable[str]) -> str | None:
    # If names differ only in case, the capitalized one is suggested.
    by_case = {other.lower(): other for other in sorted(known, reverse=True)}
    close = difflib.get_close_matches(name.lower(), by_case, n=1)
    return by_case[close[0]] if close else None


def _find_impossible_pattern(rule: Rule, names: RuleNames) -> str | None:
    """Return the reason why no call can match the pattern of a rule, or None."""
    content, fields = rule.content, names.fields.get(rule.tool, frozenset())
    if content is None:
        return None
    parameter = _PARAMETER.match(content)
    if parameter is not None and parameter[1] in fields - {"command", "url", "file_path", "notebook_path", "path"}:
        return None
    match tool_kind(rule.tool):
        case "shell" if rule.tool == "Bash" and ":*" in content.removesuffix(":*").split(" ")[0]:
            return f"`:*` has a meaning only at the end of a pattern; write Bash({content.replace(':*', ' *')})"
        case "shell" if rule.tool == "Bash" and re.fullmatch(r"\w[\w.-]*:(?:[\w-][^\s*]*)?", content):
            return f"it matches only the command {content!r}; write Bash({content.replace(':', ' ', 1).rstrip()}:*)"
        case "web" if rule.tool == "WebFetch" and not content.startswith("domain:"):
            return "a pattern for WebFetch is a host; write WebFetch(domain:example.com)"
        case "web" if rule.tool == "WebFetch" and not _HOST.fullmatch(content.removeprefix("domain:").strip()):
            return "after domain: there is only the name of a host, without scheme, port or path"
        case "plan" | "question" | "other" if rule.tool in names.fields and rule.tool != "Skill":
            if not fields & _MATCHED_FIELDS:
                return f"{rule.tool} has nothing that a pattern is compared with; write {rule.tool}"
    return None


def unknown_tool_warnings(names: Iterable[str], more: Iterable[str] = ()) -> Iterator[str]:
    """Yield a warning for each name that is neither a client tool nor in `more`."""
    available = frozenset(more)
    for name in dict.fromkeys(names):
        if not set(name) & set("*_") and (problem := _find_name_problem(name, RuleNames(available))):
            yield problem


@cache
def _known_tool_names() -> frozenset[str]:
    names = _RULE_ONLY_NAMES | {
        name for name in tools_of_kinds(*_TOOL_KINDS) if name[0].isupper()
    }  # not those of Codex
    for version in VERSIONS:
        offer = profile(version).availability
        names |= offer.tools | offer.optional_tools | frozenset(offer.aliases)
    return names
