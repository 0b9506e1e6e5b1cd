"""A single rule such as `Bash(git *)`, and how its pattern is matched against commands and paths.

Start at `Rule.parse`. `rules.py` decides which kind of pattern a tool has.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct, structs

from toolspan.errors import ToolspanError
from toolspan.runtime.permissions.paths import LinkResolver, PathScope

_RULE_SYNTAX = re.compile(r"(?P<tool>[A-Za-z_*][\w*.-]*)\s*(?:\((?P<inside>.*)\))?", re.DOTALL)
_TOOL_ALIASES = {"Task": "Agent"}
_WHOLE_TOOL_CONTENTS = ("", "*", "**", ":*")
_EMPTY_CONTENTS = ("", ":*")
"""Patterns with which a rule allows nothing, although it denies a whole tool."""
_PATH_TOOLS = frozenset({"Edit", "Read"})
"""Tools whose path rules also apply to other tools and to commands. `**` is a path."""
_FILE_TOOLS = _PATH_TOOLS | {"Glob", "Grep", "MultiEdit", "NotebookEdit", "Write"}
_BLANKS = re.compile(r"[ \t]+")
_SLASHES = re.compile(r"/{2,}")
_IGNORED_BRACKET = re.compile(r"(?<!\\)\[(?=\*\*[^]]*\Z)")
"""An open bracket before `**`, which does not count in the client."""

_GLOBS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_GLOB_PIECE = re.compile(r"\*\*/?|\[.[^]]*\]|\\.|.", re.DOTALL)


class Rule(Struct, frozen=True, cache_hash=True):
    """A tool name with an optional pattern."""

    text: str
    tool: str
    content: str | None
    """The pattern in parentheses; None if the rule covers the whole tool."""
    origin: str | None = None
    folder: Path | None = None
    """The folder to which a leading `/` in a path refers; None for the project."""
    is_malformed: bool = False
    """True if the rule allows nothing, because of an empty pattern, spaces around a part, or a pattern such as that in
    `Write(**)` or `mcp__db(*)`, which the tool does not have.
    """
    only_session_folders: bool = False
    """True if the rule allows a tool only for files in the session's folders, as `Write(*)` does."""

    @classmethod
    def parse(cls, text: str, origin: str | None = None, folder: Path | None = None) -> Rule:
        """Parse a rule. Spaces around its parts are ignored, so that a restriction applies in spite of them.

        Raises:
            ToolspanError: `text` is not a rule.
        """
        match = _RULE_SYNTAX.fullmatch(text.strip())
        if match is None:
            raise ToolspanError(f"{text!r} is not a permission rule such as Bash or Bash(git *)")
        tool, content = match["tool"], match["inside"]
        if content is None:
            return cls(text.strip(), tool, None, origin, folder, is_malformed=text != tool)
        is_malformed = text != f"{tool}({content.strip()})" or tool.startswith("mcp__")
        content = content.strip().replace("\\(", "(").replace("\\)", ")")
        only_session_folders = content == "*" and tool in _FILE_TOOLS
        is_pattern = content == "**" and (tool == "Bash" or tool in _PATH_TOOLS)
        if content in _EMPTY_CONTENTS or (content == "**" and not is_pattern):
            is_malformed = True
        if content in _WHOLE_TOOL_CONTENTS and not is_pattern:
            content = None
        return cls(text.strip(), tool, content, origin, folder, is_malformed, only_session_folders)

    def spellings(self) -> tuple[Rule, ...]:
        """Return the rule, and the same with single spaces between the words of a command that has more of them."""
        if self.content is None or self.tool != "Bash" or not {"'", '"', "\\"}.isdisjoint(self.content):
            return (self,)
        content = _BLANKS.sub(" ", self.content)
        return (self,) if content == self.content else (self, structs.replace(self, content=content))

    def covers_tool(self, tool: str, *, granting: bool = False) -> bool:
        """Return whether the rule applies to a tool under any of its names.

        The name of an MCP server covers its tools. A rule that allows `mcp__db` or `mcp__db__query` does not cover
        `mcp__db__query__drop`, while one that denies does, because the server may be called `db__query`.
        """
        mine, its = _TOOL_ALIASES.get(self.tool, self.tool), _TOOL_ALIASES.get(tool, tool)
        server = mine.removesuffix("__*")
        if mine == its or ("*" in server and matches_wildcard(its, mine)):
            return True
        if not mine.startswith("mcp__") or not its.startswith(f"{server}__"):
            return False
        names = (server.removeprefix("mcp__"), its.removeprefix(f"{server}__"))
        return not (granting and any("__" in name for name in names))

    @property
    def can_grant(self) -> bool:
        """Return whether the rule may allow calls. In the name of the tool, `*` may only follow an MCP server."""
        server, _, rest = self.tool.removeprefix("mcp__").partition("__")
        if self.is_malformed:
            return False
        if "*" not in self.tool:
            return True
        return self.tool.startswith("mcp__") and "*" not in server and bool(rest)


def split_rules(text: str) -> list[str]:
    """Split an option's value at spaces and commas outside parentheses."""
    rules: list[str] = []
    depth, word = 0, ""
    for letter in text + " ":
        depth += (letter == "(") - (letter == ")")
        if letter in ", " and depth <= 0:
            rules += [word] if word else []
            word = ""
        else:
            word += letter
    return [*rules, word.rstrip()] if word else rules  # an unclosed rule is kept, so that parsing it fails


def matches_wildcard(text: str, pattern: str) -> bool:
    """Return whether `text` matches a pattern in which `*` matches any characters. Runs in linear time."""
    head, *rest = pattern.split("*")
    if not rest:
        return text == pattern
    if not text.startswith(head):
        return False
    *middle, tail = rest
    at = len(head)
    for piece in middle:
        position = text.find(piece, at)
        if position < 0:
            return False
        at = position + len(piece)
    return len(text) - at >= len(tail) and text.endswith(tail)


def matches_command(text: str, pattern: str, *, granting: bool = False) -> bool:
    """Return whether a command matches a pattern. `git *` and `git:*` also match `git`, but not `github`.

    In a rule that allows, `g* *` does not match `git`, and a `*` before `:*` is literal.
    """
    if not pattern.endswith((":*", " *")):
        return matches_wildcard(text, pattern)
    head = pattern[:-2]
    if "*" not in head or (granting and pattern[-2] == ":"):
        return text.startswith(head) and text[len(head) : len(head) + 1] in ("", " ")
    return matches_wildcard(text, head + " *") or (not granting and matches_wildcard(text, head))


def command_prefix(pattern: str) -> str:
    """Return the prefix shared by all commands that match a pattern."""
    for end in (":*", " *"):
        if pattern.endswith(end):
            pattern = pattern.removesuffix(end)
            break
    return pattern.partition("*")[0]


def combined_pattern(rules: tuple[Rule, ...], scope: PathScope) -> re.Pattern[str]:
    """Return one pattern that matches the paths that rules deny."""
    return _combine(tuple(rule_pattern(rule, scope, scope.folders, granting=False) for rule in rules))


@lru_cache(maxsize=64)
def _combine(patterns: tuple[re.Pattern[str], ...]) -> re.Pattern[str]:
    return re.compile("|".join([f"(?:{pattern.pattern})" for pattern in patterns]), re.DOTALL | re.IGNORECASE)


def path_matches(rule: Rule, path: str, scope: PathScope, *, granting: bool) -> bool:
    """Return whether a rule covers a file. A rule that allows must cover both a link and its target, and a rule that
    denies only one of them.
    """
    if not _covers(rule, path, scope, scope.folders, granting=granting):
        return False
    has_anchor = rule.content is None or rule.content.startswith(("/", "~/"))
    if not granting or has_anchor or scope.cwd == scope.folders[0]:
        return True
    # The client starts the pattern at the current folder, but it is written for the project folder: both must match.
    return _covers(rule, path, scope, (scope.cwd,), granting=True)


def _covers(rule: Rule, path: str, scope: PathScope, folders: tuple[str, ...], *, granting: bool) -> bool:
    pattern = rule_pattern(rule, scope, folders, granting=granting)
    if granting:
        end = scope.links.resolve(path)
        return pattern.match(path) is not None and (end == path or pattern.match(end) is not None)
    return scope.matches_any_name(path, pattern)


def rule_pattern(rule: Rule, scope: PathScope, folders: tuple[str, ...], *, granting: bool) -> re.Pattern[str]:
    """Return a pattern for the paths that a rule covers, for each folder at which its own pattern may start."""
    home = scope.home if rule.content is not None and rule.content.startswith("~/") else ""
    return _compile_rule(rule, folders, scope.cwd, home, granting)


@lru_cache(maxsize=512)
def _compile_rule(
    rule: Rule,
    folders: tuple[str, ...],
    cwd: str,
    home: str,
    granting: bool,  # noqa: FBT001 - for the cache
) -> re.Pattern[str]:
    starts, pattern, deep = _anchors(rule, folders, cwd, home, granting=granting)
    if not granting:
        pattern = _IGNORED_BRACKET.sub("", _SLASHES.sub("/", pattern).lstrip("/"))
    # A pattern that allows `folder/` allows the files in the folder, but neither the folder itself nor a file.
    end = r"/.+\Z" if granting and pattern.endswith("/") else r"(?:/.*)?\Z"
    links = LinkResolver()
    both = dict.fromkeys(path.rstrip("/") for folder in starts for path in (folder, links.resolve(folder)))
    start = f"(?:{'|'.join(map(re.escape, both)) if both else '(?!)'})/{'(?:.*/)?' if deep else ''}"
    inside = pattern.rstrip("/").removesuffix("/**")
    # A denied file is denied in any case, because some file systems ignore the case of names.
    flags = re.DOTALL if granting else re.DOTALL | re.IGNORECASE
    try:
        return re.compile(start + _translate_glob(inside) + end, flags)
    except re.error:  # for example [z-a], which is then matched literally
        return re.compile(start + re.escape(inside) + end, flags)


def _anchors(
    rule: Rule, folders: tuple[str, ...], cwd: str, home: str, *, granting: bool
) -> tuple[list[str], str, bool]:
    """Return the folders at which a rule's pattern starts, the pattern below them, and if it matches at any depth."""
    pattern, project = rule.content or "**", folders[0]
    if granting and ("[!" in pattern or "[^" in pattern):
        return [], pattern, False  # in the client, the letters are not negated
    for start, folder in (("//", "/"), ("~/", home), ("/", str(rule.folder or project))):
        if pattern.startswith(start):
            return [folder], pattern.removeprefix(start), False
    if pattern.startswith("../"):
        return ([] if granting else ["/"]), os.path.normpath(f"{project}/{pattern}")[1:], False
    body = pattern.removeprefix("./").rstrip("/")
    if granting:
        return [project], pattern.removeprefix("./"), "/" not in body and not pattern.startswith("./")
    # A denied folder is denied at any depth, also in the added folders.
    return [*folders, cwd], body, "/" not in body.removesuffix("/**")


def _translate_glob(pattern: str) -> str:
    return _GLOB_PIECE.sub(_translate_piece, pattern)


def _translate_piece(match: re.Match[str]) -> str:
    piece = match[0]
    if piece in _GLOBS:
        return _GLOBS[piece]
    if piece[0] == "\\":
        return re.escape(piece[-1])
    if piece[0] != "[" or len(piece) == 1:
        return re.escape(piece)
    # In `[!x]`, the client matches the letters themselves, and ignore files match all others. Only rules that deny or
    # ask get here with one.
    inner = re.escape(piece[1:-1]).replace("\\-", "-")
    return "[^/]" if piece[1] in "!^" else f"[{inner}]"


def matches_host(content: str, url: object, *, granting: bool) -> bool:
    """Return whether a rule `domain:pattern` matches the host of a URL.

    A rule that allows must match the host under all readings of the URL, and a rule that denies only one of them.
    """
    if not isinstance(url, str) or not content.startswith("domain:"):
        return False
    pattern = content.removeprefix("domain:").lower()
    hosts = [standardized_host(url)]
    with suppress(ValueError):
        simple_host = urlsplit(url.strip()).hostname or ""
        bracketed_host = f"[{simple_host}]" if ":" in simple_host else simple_host
        hosts.append(standardized_host(f"http://{bracketed_host}/") if granting else simple_host)
    if granting:
        return all(_grants_host(host, pattern) for host in hosts)
    return any(_matches_host_pattern(host.rstrip("."), pattern.strip().rstrip(".")) for host in hosts)


def _grants_host(host: str, pattern: str) -> bool:
    if "*" in pattern and pattern != "*" and (pattern[-1] == "." or host[:1] == "[" or "" in host.split(".")):
        return False  # the client matches only ordinary names with a star
    return _matches_host_pattern(host, pattern.rstrip("."))


def _matches_host_pattern(host: str, pattern: str) -> bool:
    if pattern in ("*", host):
        return bool(host)
    parts, pattern_parts = host.split("."), pattern.split(".")
    if pattern_parts[0] == "*":  # a first `*` matches one or more parts
        del pattern_parts[0]
        parts = parts[-len(pattern_parts) :] if len(parts) > len(pattern_parts) else []
    return len(parts) == len(pattern_parts) and all(map(matches_wildcard, parts, pattern_parts))


def standardized_host(url: str) -> str:
    r"""Return the host that browsers and the client find in a URL, or an empty string if there is none.

    In `http:\\x.org`, `http://%78.org` and `http://x.org\@y.org`, it is `x.org`; in `http://2130706433`, an address.
    """
    from pydantic_core import Url, ValidationError

    try:
        return Url(url).host or ""
    except ValidationError:
        return ""
