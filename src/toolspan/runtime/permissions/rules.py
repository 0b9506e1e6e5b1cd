"""`Rules`: patterns that allow, ask about or deny calls.

A rule is a tool name (`Bash`), an MCP server (`mcp__db`), a name with a star (`mcp__db__*`), or a name with a pattern:
a command (`Bash(git *)`), a path as in ignore files (`Read(./secret/**)`), a host (`WebFetch(domain:x.org)`), an agent
(`Agent(reviewer)`). Deny takes precedence over ask, and ask over allow, regardless of their sources. A command line is
denied if any of its commands is, and allowed only if all are. Start at `Rules.__call__`.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from toolspan.errors import ToolspanError
from toolspan.runtime.permissions.commands import (
    AllowedActions,
    CommandCheck,
    ForbiddenFiles,
    check_command,
)
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.permissions.paths import PathScope
from toolspan.runtime.permissions.patterns import (
    CommandPrefix,
    cannot_match_prefixes,
    expand_command_line,
    matches_any_command,
    matches_program,
    may_hide_match,
    rule_suffices,
)
from toolspan.runtime.permissions.program_use import has_harmless_variables, has_plain_assignments
from toolspan.runtime.permissions.rule import (
    Rule,
    combined_pattern,
    command_prefix,
    is_home_relative,
    matches_command,
    matches_host,
    matches_wildcard,
    path_matches,
)
from toolspan.runtime.profiles import Refusals
from toolspan.runtime.settings.load import PermissionSettings
from toolspan.shell.program import LinePrograms, Program
from toolspan.shell.programs import find_programs
from toolspan.shell.wrappers import SKIPPABLE_WRAPPERS
from toolspan.types.decision import Allow, Ask, Decision, Deny, MissingPermissions
from toolspan.types.tool_kinds import tool_kind, tools_of_kinds

_READ_RULES = frozenset({"Read", "NotebookRead"})
_EDIT_RULES = frozenset({"Edit", "MultiEdit", "NotebookEdit", "Write"})
_FILE_RULES = _READ_RULES | _EDIT_RULES
_GRANTLESS_TOOLS = frozenset({"Glob", "Grep", "LS", "MultiEdit", "NotebookEdit", "Write"})
"""Tools whose own path rules allow nothing, because the path rules of Read and Edit apply to them."""
_PATH_FIELDS = ("file_path", "notebook_path", "path")
_SHELL_TOOLS = tools_of_kinds("shell")
_MAIN_FIELDS = frozenset({"command", "url", *_PATH_FIELDS})
_MAX_CACHED_TOOLS = 256
_MAX_CACHED_SCOPES = 64
_GLOB_LETTER = re.compile(r"\[[!^]?\]?[^]]*\]|\\.", re.DOTALL)
_COMMENT_AS_TARGET = re.compile(r"([<>][&|]?(?>(?:[ \t]|\\\n)*))#")
_PARAMETER_RULE = re.compile(r"(\w+)\s*:\s*(.*)", re.DOTALL)


class _CandidateRules(Struct, frozen=True):
    """The rules in one list that may match calls to a tool."""

    rules: tuple[Rule, ...]
    prefixes: tuple[CommandPrefix, ...]
    """The prefixes of the commands that the rules match."""
    parameters: frozenset[str]
    """The input fields that the rules may match."""
    matches_always: bool
    """True if one of the rules matches every call."""

    def is_irrelevant(self, request: PermissionRequest, shell: str | None) -> bool:
        """Return True only if none of the rules can match. This is a quick check."""
        if not self.rules:
            return True
        if shell is None or self.matches_always or not self.parameters.isdisjoint(request.input):
            return False
        return cannot_match_prefixes(shell, self.prefixes)


class _ToolRules(Struct, frozen=True):
    """All rules that may match calls to a tool."""

    deny: tuple[Rule, ...]
    ask: tuple[Rule, ...]
    deny_or_ask: _CandidateRules
    """Both lists combined, for a quick check, because most calls match none of these rules."""
    allow: tuple[Rule, ...]
    exact_allow: tuple[Rule, ...]
    """The allow rules without a wildcard, which may allow a whole command line."""


def _reject_strings(**rule_lists: Iterable[str]) -> None:
    # A string would be read as a list of one-letter rules.
    for name, texts in rule_lists.items():
        if isinstance(texts, str):
            raise ToolspanError(f"Rules takes lists: {name}=[{texts!r}], not {name}={texts!r}")


def _file_names(rules: Iterable[Rule]) -> re.Pattern[str]:
    """Return a pattern for the last parts of the paths in rules."""
    names = {_GLOB_LETTER.sub("?", (rule.content or "*").rstrip("/").rpartition("/")[2]) for rule in rules}
    return re.compile("|".join(fnmatch.translate(name) for name in sorted(names)), re.IGNORECASE)


class Rules:
    """A policy that allows, asks about or denies calls according to rules."""

    def __init__(
        self,
        *,
        allow: Iterable[str] = (),
        ask: Iterable[str] = (),
        deny: Iterable[str] = (),
        origin: str | None = None,
        folder: Path | None = None,
    ) -> None:
        """Parse the rules from one source.

        `origin` is the name of the source, and `folder` is the folder to which a leading `/` in its
        paths refers.

        Raises:
            ToolspanError: a string is not a rule, or was passed instead of a list.
        """
        _reject_strings(allow=allow, ask=ask, deny=deny)
        self.allow = tuple(Rule.parse(text, origin, folder) for text in allow)
        self.ask = tuple(rule for text in ask for rule in Rule.parse(text, origin, folder).spellings())
        self.deny = tuple(rule for text in deny for rule in Rule.parse(text, origin, folder).spellings())
        self.extends_reading = True
        """False for old clients, in which a path for Edit does not allow reading, and a path for Read not searching."""
        self._build_indexes()

    def _build_indexes(self) -> None:
        self._is_empty = not (self.allow or self.ask or self.deny)
        self._last_check: tuple[PermissionRequest, tuple[object, ...], CommandCheck] | None = None
        self._rules_by_tool: dict[tuple[str, str], _ToolRules] = {}
        self._allowed_actions_cache: dict[tuple[bool, bool, bool, str, tuple[str, ...], str], AllowedActions] = {}
        self._file_denials = tuple(rule for rule in self.deny if rule.tool in _FILE_RULES and rule.content is not None)
        self._denies_all_reading = self.denies_tool("Read")
        self._denies_files = bool(self._file_denials) or self._denies_all_reading
        self._denies_reading = any(rule.tool in _READ_RULES for rule in self._file_denials)
        self._has_home_rules = any(map(is_home_relative, self._file_denials))
        grants = [rule for rule in self.allow if rule.can_grant]
        self._file_grants = tuple(rule for rule in grants if rule.tool in _FILE_RULES - _GRANTLESS_TOOLS)
        self._bash_grants = tuple(rule for rule in grants if rule.covers_tool("Bash"))
        self._bash_prefixes = tuple(command_prefix(rule.content or "") for rule in self._bash_grants)
        restrictions = (rule for rule in (*self.deny, *self.ask) if rule.covers_tool("Bash"))
        self._bash_restrictions = [rule.content for rule in restrictions if rule.content not in (None, "*")]

    def __add__(self, other: Rules) -> Rules:
        """Return the combined rules."""
        both = Rules()
        both.allow = (*self.allow, *other.allow)
        both.ask = (*self.ask, *other.ask)
        both.deny = (*self.deny, *other.deny)
        both.extends_reading = self.extends_reading and other.extends_reading
        both._build_indexes()
        return both

    def specific_grants(self) -> Rules:
        """Return only the rules that allow a part of a tool."""
        rules = Rules()
        rules.allow = tuple(rule for rule in self.allow if rule.content is not None)
        rules._build_indexes()
        return rules

    def __call__(self, request: PermissionRequest) -> Decision | None:
        """Return the decision for a call, or None if no rule matches."""
        if self._is_empty:
            return None
        shell = command_of(request)
        tool_rules = self._rules_for_tool(request)
        is_irrelevant = tool_rules.deny_or_ask.is_irrelevant(request, shell)
        denial = None if is_irrelevant else _first_matching_rule(tool_rules.deny, request, shell)
        if denial is None and self._file_denials and shell is not None:
            denial = self._find_file_denial(request, shell)
        if denial is not None:
            text, origin = denial.text, denial.origin
            return Deny(None, "config", rule=text, origin=origin, basis="rule" if shell is None else "parts")
        if (
            shell is not None
            and self._denies_files
            and self.check_line(shell, request, edits=False, redirects=False).doubts
        ):  # it may open a denied file under a name that is not known before it runs
            return Ask(None, "config", basis="unclear", needs=MissingPermissions(parts=(shell,), of=1))
        ask_rule = None if is_irrelevant else _first_matching_rule(tool_rules.ask, request, shell)
        if (
            shell is not None
            and (ask_rule is None or _covers_whole_tool(ask_rule))
            and self._bash_restrictions
            and may_hide_match(shell, self._bash_restrictions)
        ):
            needs = MissingPermissions(parts=(shell,), of=1)
            return Ask(None, "config", basis="unclear", needs=needs)
        if ask_rule is not None:
            return Ask(None, "config", ask_rule.text, ask_rule.origin, "rule")
        return self._find_grant(tool_rules, request, shell)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about rules that have less effect than they seem to."""
        return tuple(_rule_warnings(self.allow, self.ask, self.deny))

    def denies_tool(self, tool: str) -> bool:
        """Return whether a tool is denied entirely, so that it is not offered to the model."""
        return any(rule.content is None and rule.covers_tool(tool) for rule in self.deny)

    def allows_tool(self, tool: str) -> bool:
        """Return whether a rule allows every call of a tool."""
        grants = (
            rule for rule in self.allow if rule.content is None and rule.can_grant and not rule.only_session_folders
        )
        return any(rule.covers_tool(tool, granting=True) for rule in grants)

    def allows_text(self, command: str) -> bool:
        """Return whether a rule allows a command as it is written, without regard to wrappers."""
        return any(matches_command(command, rule.content or "*") for rule in self._bash_grants)

    def allowed_actions(
        self, scope: PathScope, *, edits: bool, redirects: bool, parents: bool = False
    ) -> AllowedActions:
        """Return the actions that need no approval in a command line, according to these rules and a mode."""
        home = scope.home if self._has_home_rules else ""
        key = (edits, redirects, parents, scope.cwd, scope.folders, home)
        actions = self._allowed_actions_cache.get(key)
        if actions is None:
            if len(self._allowed_actions_cache) >= _MAX_CACHED_SCOPES:
                self._allowed_actions_cache.clear()
            files = self._file_denials
            actions = self._allowed_actions_cache[key] = AllowedActions(
                find_rule=self._find_program_grant,
                can_write=partial(self._allows_path, _EDIT_RULES),
                can_read=partial(self._allows_path, _READ_RULES),
                forbidden_files=ForbiddenFiles(
                    pattern=combined_pattern(files, scope),
                    names=_file_names(files),
                    find_rule=self._denial_for_path,
                    denies_reading=self._denies_reading,
                    sed_changes=not self.extends_reading,
                )
                if files
                else None,
                denies_reading=self._denies_reading or self._denies_all_reading,
                edits=edits,
                redirects=redirects,
                parents=parents,
            )
        return actions

    def check_line(
        self, line: str, request: PermissionRequest, *, edits: bool, redirects: bool, parents: bool = False
    ) -> CommandCheck:
        """Check a command line against these rules and a mode."""
        last, key = self._last_check, (line, edits, redirects, parents)
        if last is not None and last[1] == key and _is_same_call(last[0], request):
            return last[2]
        scope = request.path_scope()
        actions = self.allowed_actions(scope, edits=edits, redirects=redirects, parents=parents)
        check = check_command(find_programs(line), scope, actions)
        self._last_check = (request, key, check)
        return check

    # Denying and asking

    def _rules_for_tool(self, request: PermissionRequest) -> _ToolRules:
        key = (request.tool, request.call.tool)
        tool_rules = self._rules_by_tool.get(key)
        if tool_rules is None:
            if len(self._rules_by_tool) >= _MAX_CACHED_TOOLS:
                self._rules_by_tool.clear()
            allow = tuple(
                rule
                for rule in self.allow
                if (_may_grant(rule, request) and (self.extends_reading or not _grants_searching(rule, request)))
                or (self.extends_reading and _may_grant_reading(rule, request))
            )
            tool_rules = self._rules_by_tool[key] = _ToolRules(
                deny=_select_candidates(self.deny, request).rules,
                # A rule for the whole tool comes last: it must not hide one that also applies inside a sandbox.
                ask=tuple(sorted((rule for rule in self.ask if _may_ask(rule, request)), key=_covers_whole_tool)),
                deny_or_ask=_select_candidates((*self.deny, *self.ask), request),
                allow=allow,
                exact_allow=tuple(rule for rule in allow if "*" not in (rule.content or "")),
            )
        return tool_rules

    def _find_file_denial(self, request: PermissionRequest, shell: str) -> Rule | None:
        """Return the rule that denies a file accessed by a command line, or None."""
        denial = self._find_file_denial_in(request, shell)
        if denial is None and "#" in shell:  # the client reads `> #x` as a file name instead of a comment
            other = _COMMENT_AS_TARGET.sub(r"\1\\#", shell)
            return self._find_file_denial_in(request, other) if other != shell else None
        return denial

    def _find_file_denial_in(self, request: PermissionRequest, shell: str) -> Rule | None:
        expanded = expand_command_line(shell).programs
        if [entry for entry in expanded if entry.wrappers]:
            scope = request.path_scope()
            actions = self.allowed_actions(scope, edits=False, redirects=False)
            programs = tuple(entry.program for entry in expanded)
            check = check_command(LinePrograms(shell, programs), scope, actions)
            if check.forbidden_by is not None:
                return check.forbidden_by
        denial = self.check_line(shell, request, edits=False, redirects=False).forbidden_by
        if denial is None and "the line cannot be parsed" in find_programs(shell).uncertainties:
            closed = [shell + quote for quote in "'\"" if shell.count(quote) % 2]
            return next(filter(None, (self._find_file_denial(request, line) for line in closed)), None)
        return denial

    def _denial_for_path(self, scope: PathScope, path: str, changes: bool) -> Rule | None:  # noqa: FBT001 - called by position
        tools = _FILE_RULES if changes else _READ_RULES
        for rule in self._file_denials:
            if rule.tool in tools and path_matches(rule, path, scope, granting=False):
                return rule
        return None

    # Allowing

    def _find_grant(self, tool_rules: _ToolRules, request: PermissionRequest, shell: str | None) -> Allow | None:
        for rule in tool_rules.allow if shell is None else tool_rules.exact_allow:
            if _rule_grants(rule, request, shell):
                return Allow(rule.text, "config", None, rule.text, rule.origin, "rule")
        if shell is None or not self._bash_grants:
            return None
        check = self.check_line(shell, request, edits=False, redirects=False)
        if check.needs is not None or not check.used_rules:
            return None
        rule = check.used_rules[0]
        return Allow(rule.text, "config", None, rule.text, rule.origin, "parts")

    def _find_program_grant(self, program: Program) -> Rule | None:
        if not program.words or not self._bash_grants:
            return None
        wrapped = program.words[0].text in SKIPPABLE_WRAPPERS
        if not wrapped and not program.text.startswith(self._bash_prefixes):
            return None
        for rule in self._bash_grants:
            if rule.content is None:
                return rule
            if program.redirected_first:
                continue
            if matches_program(program, rule.content) and rule_suffices(rule.content, program):
                return rule if has_harmless_variables(program) and has_plain_assignments(program) else None
        return None

    def _allows_path(self, tools: frozenset[str], scope: PathScope, path: str) -> bool:
        for rule in self._file_grants:
            if rule.tool not in tools:
                continue
            if rule.content is not None and path_matches(rule, path, scope, granting=True):
                return True
        return False


def _is_same_call(request: PermissionRequest, other: PermissionRequest) -> bool:
    """Return whether two requests are for the same call in the same folders."""
    if request is other:
        return True
    places = (request.cwd, request.project, request.folders, request.session_folder, request.search_path)
    other_places = (other.cwd, other.project, other.folders, other.session_folder, other.search_path)
    return request.call.id == other.call.id and places == other_places and request.repository == other.repository


def command_of(request: PermissionRequest) -> str | None:
    """Return the command line in a call to a shell tool, or None for other tools."""
    command = request.input.get("command")
    return command if request.tool in _SHELL_TOOLS and isinstance(command, str) else None


def paths_of(request: PermissionRequest) -> list[str]:
    """Return the absolute paths in a call to a file tool."""
    scope = request.path_scope()
    named = [request.input.get(key) for key in _PATH_FIELDS]
    if request.searched_folder is not None:
        named = [request.searched_folder]
    paths = [scope.absolute_path(name) for name in named if isinstance(name, str)]
    return paths or ([scope.cwd] if tool_kind(request.tool) == "search" else [])


def _select_candidates(rules: Sequence[Rule], request: PermissionRequest) -> _CandidateRules:
    """Return the rules that may match calls to the requested tool."""
    named = [rule for rule in rules if _rule_covers_tool(rule, request)]
    contents = [rule.content for rule in named if rule.content is not None]
    parameters = [_PARAMETER_RULE.fullmatch(content) for content in contents]
    return _CandidateRules(
        tuple(rule for rule in rules if rule in named or _is_path_rule_for(rule, request)),
        tuple(CommandPrefix.parse(command_prefix(content)) for content in contents),
        frozenset(match[1] for match in parameters if match is not None),
        len(contents) < len(named),
    )


def _may_ask(rule: Rule, request: PermissionRequest) -> bool:
    """Return whether an ask rule may match calls to the requested tool. A path in a Read rule does not bind writes."""
    is_reading = rule.tool not in _READ_RULES or tool_kind(request.tool) not in ("edit", "write")
    return _rule_covers_tool(rule, request) or (is_reading and _is_path_rule_for(rule, request))


def _covers_whole_tool(rule: Rule) -> bool:
    return rule.content in (None, "*")


def _first_matching_rule(rules: Sequence[Rule], request: PermissionRequest, shell: str | None) -> Rule | None:
    return next((rule for rule in rules if _rule_matches(rule, request, shell)), None)


def _rule_matches(rule: Rule, request: PermissionRequest, shell: str | None) -> bool:
    """Return whether a deny or ask rule matches a call. The rule must be a candidate for the requested tool."""
    if shell is None and not _rule_covers_tool(rule, request):
        return _is_path_rule_for(rule, request) and _matches_paths(rule, request, granting=False)
    if rule.content is None or _matches_parameter(rule.content, request):
        return True
    if shell is not None:
        return matches_any_command(shell, rule.content)
    return _matches_main_input(rule, request, granting=False)


def _may_grant(rule: Rule, request: PermissionRequest) -> bool:
    """Return whether an allow rule may match calls to the requested tool."""
    if not rule.can_grant:
        return False
    if not _rule_covers_tool(rule, request, granting=True):
        return _is_path_rule_for(rule, request) and rule.tool not in _GRANTLESS_TOOLS
    return True


def _grants_searching(rule: Rule, request: PermissionRequest) -> bool:
    return rule.tool in _READ_RULES and rule.content is not None and tool_kind(request.tool) == "search"


def _may_grant_reading(rule: Rule, request: PermissionRequest) -> bool:
    """Return whether a rule that allows changing files also allows the call to read them."""
    return rule.tool == "Edit" and rule.content is not None and tool_kind(request.tool) in ("read", "search")


def _rule_grants(rule: Rule, request: PermissionRequest, shell: str | None) -> bool:
    """Return whether a rule allows the call by itself."""
    if shell is not None:
        return rule.content is None or shell.strip() == rule.content
    if not _rule_covers_tool(rule, request, granting=True):
        return _matches_paths(rule, request, granting=True)
    if rule.content is None:
        return not rule.only_session_folders or all(map(request.path_scope().contains_path, paths_of(request)))
    return rule.tool not in _GRANTLESS_TOOLS and _matches_main_input(rule, request, granting=True)


def _rule_covers_tool(rule: Rule, request: PermissionRequest, *, granting: bool = False) -> bool:
    if any(rule.covers_tool(name, granting=granting) for name in (request.tool, request.call.tool)):
        return True
    return rule.tool == "Bash" and request.tool == "Monitor"


def _is_path_rule_for(rule: Rule, request: PermissionRequest) -> bool:
    """Return whether a path rule for Read or Edit also applies to the requested tool."""
    if rule.content is None:
        return False
    kind = tool_kind(request.tool)
    if rule.tool in _READ_RULES:
        return kind in ("read", "search", "edit", "write")
    return rule.tool in _EDIT_RULES and kind in ("edit", "write")


def _matches_paths(rule: Rule, request: PermissionRequest, *, granting: bool) -> bool:
    if granting and rule.tool in _READ_RULES and tool_kind(request.tool) in ("edit", "write"):
        return False
    scope = request.path_scope()
    paths = paths_of(request)
    if not granting:
        paths = [place for path in paths for place in scope.possible_paths(path)]
    matches = [path_matches(rule, path, scope, granting=granting) for path in paths]
    return bool(matches) and (all(matches) if granting else any(matches))


def _matches_main_input(rule: Rule, request: PermissionRequest, *, granting: bool) -> bool:
    """Return whether a rule's pattern matches the main input of the call."""
    content = rule.content or ""
    match tool_kind(request.tool):
        case "read" | "search" | "edit" | "write":
            return _matches_paths(rule, request, granting=granting)
        case "web":
            return matches_host(content, request.input.get("url"), granting=granting)
        case "agent":
            return matches_wildcard(str(request.input.get("subagent_type", "")), content)
        case _ if request.tool == "Skill":
            return _matches_skill(content, request.input.get("skill"), granting=granting)
        case _:
            values = (request.input.get(key) for key in ("command", "query", "pattern"))
            texts = [value for value in values if isinstance(value, str)]
            return any(matches_wildcard(text, content) for text in texts)


def _matches_skill(content: str, skill: object, *, granting: bool) -> bool:
    """Return whether a pattern matches the name of a skill. A slash before a denied name is ignored.

    In a rule that allows, `*` may only be the end of a pattern such as `review:*` or `review *`. It matches all skills
    whose names begin with `review`.
    """
    if not isinstance(skill, str):
        return False
    pattern = content.removeprefix("/")
    is_prefix, prefix = pattern.endswith((":*", " *")), pattern[:-2]
    if granting:  # old clients do not allow /name
        return bool(prefix) and skill.startswith(prefix) if is_prefix else skill == pattern
    name = _skill_name(skill)
    return matches_wildcard(name, pattern) or (is_prefix and matches_wildcard(name, f"{prefix}*"))


def _skill_name(skill: str) -> str:
    """Return the name under which the tool looks for a skill."""
    return skill.strip().removeprefix("/")


def _matches_parameter(content: str, request: PermissionRequest) -> bool:
    """Return whether a rule `Tool(param:value)` matches an input field other than the main one."""
    match = _PARAMETER_RULE.fullmatch(content)
    if match is None or match[1] in _MAIN_FIELDS or match[1] not in request.input:
        return False
    value = request.input[match[1]]
    if isinstance(value, bool):
        return matches_wildcard(str(value).lower(), match[2])
    if match[1] == "skill" and request.tool == "Skill" and matches_wildcard(_skill_name(str(value)), match[2]):
        return True
    return isinstance(value, str | int | float) and matches_wildcard(str(value), match[2])


def _rule_warnings(allow: Sequence[Rule], ask: Sequence[Rule], deny: Sequence[Rule]) -> Iterator[str]:
    for rule in allow:
        if rule.is_malformed:
            yield f"{rule.text}: allows nothing; write {rule.tool} or {rule.tool}(pattern), without extra spaces"
        elif rule.tool in _FILE_RULES and (rule.content or "").startswith("../"):
            yield f"{rule.text}: allows nothing; use a path that begins with ~/ or //"
        elif not rule.can_grant:
            yield f"{rule.text}: allows nothing, because `*` must come after the name of an MCP server"
        elif rule.content is not None and rule.tool in _GRANTLESS_TOOLS:
            yield f"{rule.text}: allows nothing; use a rule for Read or Edit, which also applies to {rule.tool}"
    for rule in (*ask, *deny):
        if rule.text.endswith("()"):
            yield f"{rule.text}: empty parentheses mean the whole tool"


_INVALID_RULE = re.compile(
    r"(?!mcp__)[a-z]|mcp__[^(]*\(|[^(]*\((?::\*)?\)$"  # a small letter, a pattern for MCP, an empty pattern
    r"|Bash\((?:(?!:\*\)$).)*\*(?!\)$)|Bash\((?:.*[^:])?\*\)$|Bash\([^\"]*(?:\"[^\"]*\"[^\"]*)*\"[^\"]*$"
    r"|(?!Bash|WebFetch)[^(]*\(.*(?::\*|\w\*\w)|WebFetch\((?!domain:)|WebSearch\(.*\*",
    re.DOTALL,
)


_USELESS_RULE = re.compile(
    r"mcp__.*\*.*|\w+\(~/\*\*\)"
    r"|(?!Bash|Edit|Read)\w+\(\*\)|Skill\((?:/.*|.* \*)\)|WebFetch\(.*(?:[*A-Z].*|\.)\)",
    re.DOTALL,
)
"""A valid rule with which an old client allows nothing."""


def ignores_permissions(block: PermissionSettings, refusals: Refusals) -> bool:
    """Return whether an old client ignores the permissions of a settings file because of an invalid rule in it.

    toolspan ignores only those that widen: a rule that denies or asks is never lost.
    """
    texts = (*block.allow, *block.ask, *block.deny)
    return not refusals.star_rules and any(map(_INVALID_RULE.match, texts))


def added_folders(block: PermissionSettings, cwd: Path, refusals: Refusals) -> tuple[Path, ...]:
    """Return the folders that settings add to the project.

    As in the client, a folder inside the project adds nothing, because commands could replace it by a link. Old clients
    do not follow links.
    """
    if ignores_permissions(block, refusals):
        return ()
    names = [os.path.normpath(cwd / os.path.expanduser(text)) for text in block.additional_directories]  # noqa: PTH111 - Path raises if a user is unknown
    folders = [Path(name) for name in names if not refusals.plain_lines or os.path.realpath(name) == name]
    return tuple(folder for folder in folders if os.path.isdir(folder) and not folder.is_relative_to(cwd))  # noqa: PTH112 - never raises


def rules_from_settings(
    block: PermissionSettings, origin: str, folder: Path | None = None, refusals: Refusals | None = None
) -> Rules:
    """Return the rules in a settings file.

    With an old client, no rule of a file allows anything if one of the file's rules is invalid, such as a Bash rule
    with a `*` other than in a final `:*`.
    """
    is_old = refusals is not None and refusals.plain_lines
    is_ignored = refusals is not None and ignores_permissions(block, refusals)
    allow = [text for text in block.allow if not is_ignored and not (is_old and _USELESS_RULE.fullmatch(text))]
    ask, deny = list(block.ask), list(block.deny)
    if is_old:  # with a star, a rule for Edit or Read means the files of the project for all tools
        for texts in (allow, ask, deny):
            texts += [f"{text[:4]}(**)" for text in texts if text in ("Edit(*)", "Read(*)")]
    rules = Rules(allow=allow, ask=ask, deny=deny, origin=origin, folder=folder)
    rules.extends_reading = not is_old
    return rules
