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
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from toolspan.errors import ToolspanError
from toolspan.runtime.permissions.commands import CommandCheck, check_command
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.permissions.paths import PathScope
from toolspan.runtime.permissions.program_facts import has_harmless_variables, has_literal_assignments
from toolspan.runtime.permissions.restrictions import (
    FileDenial,
    ForbiddenFiles,
    find_file_denial,
    first_words,
    hides_programs,
    matches_line,
    may_hide_command,
    mentions_any,
)
from toolspan.runtime.permissions.rule import (
    Rule,
    combined_pattern,
    command_prefix,
    matches_command,
    matches_host,
    matches_wildcard,
    path_matches,
)
from toolspan.runtime.profiles import Refusals
from toolspan.runtime.settings.load import PermissionSettings
from toolspan.shell.plans import NotUnderstood, Plan, plan
from toolspan.shell.program import Program, program_basename, runner_table
from toolspan.types.decision import Allow, Ask, Decision, Deny, MissingPermissions
from toolspan.types.tool_kinds import ToolKind

_READ_RULES = frozenset({"Read", "NotebookRead"})
_EDIT_RULES = frozenset({"Edit", "MultiEdit", "NotebookEdit", "Write"})
FILE_RULES = _READ_RULES | _EDIT_RULES
GRANTLESS_TOOLS = frozenset({"Glob", "Grep", "LS", "MultiEdit", "NotebookEdit", "Write"})
"""Tools whose own path rules allow nothing, because the path rules of Read and Edit apply to them."""
_PATH_FIELDS = ("file_path", "notebook_path", "path")
_MAIN_FIELDS = frozenset({"command", "url", *_PATH_FIELDS})
_MAX_CACHED_TOOLS = 256
_GLOB_LETTER = re.compile(r"\[[!^]?\]?[^]]*\]|\\.", re.DOTALL)
_PARAMETER_RULE = re.compile(r"(\w+)\s*:\s*(.*)", re.DOTALL)


class _ToolRules(Struct, frozen=True):
    """All rules that may match calls to a tool."""

    deny: tuple[Rule, ...]
    ask: tuple[Rule, ...]
    allow: tuple[Rule, ...]
    exact_allow: tuple[Rule, ...]
    """The allow rules without a wildcard, which may allow a whole command line."""
    first_words: frozenset[str] | None
    """The first words of the commands that rules deny or ask about; None if a rule matches every call."""
    parameters: frozenset[str]
    """The input fields that these rules may match."""

    def is_unrestricted(self, request: PermissionRequest, shell: str | None) -> bool:
        """Return True only if no rule denies the call or asks about it. This is a quick check."""
        if not (self.deny or self.ask):
            return True
        if shell is None or self.first_words is None or not self.parameters.isdisjoint(request.input):
            return False
        return not mentions_any(shell, self.first_words)


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
        for name, texts in (("allow", allow), ("ask", ask), ("deny", deny)):
            if isinstance(texts, str):  # it would be read as a list of one-letter rules
                raise ToolspanError(f"Rules takes lists: {name}=[{texts!r}], not {name}={texts!r}")
        self.allow = tuple(Rule.parse(text, origin, folder) for text in allow)
        self.ask = tuple(rule for text in ask for rule in Rule.parse(text, origin, folder).spellings())
        self.deny = tuple(rule for text in deny for rule in Rule.parse(text, origin, folder).spellings())
        self._build_indexes()

    def _build_indexes(self) -> None:
        self._is_empty = not (self.allow or self.ask or self.deny)
        self._last_check: tuple[tuple[object, ...], CommandCheck] | None = None
        self._rules_by_tool: dict[tuple[str, str, ToolKind, bool], _ToolRules] = {}
        self._file_denials = tuple(rule for rule in self.deny if rule.tool in FILE_RULES and rule.content is not None)
        self._denied_names = _file_names(self._file_denials)
        self._denies_all_reading = self.denies_tool("Read")
        self._denies_files = any(rule.tool in _READ_RULES for rule in self._file_denials)
        self.denies_reading = self._denies_files or self._denies_all_reading
        grants = [rule for rule in self.allow if rule.can_grant]
        self._file_grants = tuple(rule for rule in grants if rule.tool in FILE_RULES - GRANTLESS_TOOLS)
        self._allows_bash = self.allows_tool("Bash")
        self._bash_grants = tuple(rule for rule in grants if rule.covers_tool("Bash"))
        self._bash_prefixes = tuple(command_prefix(rule.content or "") for rule in self._bash_grants)
        restrictions = (rule for rule in (*self.deny, *self.ask) if rule.covers_tool("Bash"))
        self._bash_restrictions = tuple(rule.content for rule in restrictions if rule.content not in (None, "*"))

    def __add__(self, other: Rules) -> Rules:
        """Return the combined rules."""
        both = Rules()
        both.allow = (*self.allow, *other.allow)
        both.ask = (*self.ask, *other.ask)
        both.deny = (*self.deny, *other.deny)
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
        shell = request.command
        tool_rules = self._rules_for_tool(request)
        is_free = tool_rules.is_unrestricted(request, shell)
        denial = None if is_free else _first_matching_rule(tool_rules.deny, request, shell)
        may_exist = False
        if denial is None and shell is not None and (self._file_denials or self._denies_all_reading):
            found = self._find_file_denial(request, shell)
            denial, may_exist = found.rule, found.may_exist
        if denial is not None:
            text, origin = denial.text, denial.origin
            return Deny(None, "config", rule=text, origin=origin, basis="rule" if shell is None else "parts")
        if shell is not None and may_exist:  # it may open a denied file under a name that is not known before it runs
            return _ask_about(shell)
        ask_rule = None if is_free else _first_matching_rule(tool_rules.ask, request, shell)
        if (
            shell is not None
            and (ask_rule is None or _covers_whole_tool(ask_rule))
            and self._bash_restrictions
            and (
                hides_programs(shell)
                or (not is_free and may_hide_command(shell, self._bash_restrictions))
                or (self._allows_bash and isinstance(plan(shell), NotUnderstood))
            )
        ):
            return _ask_about(shell)
        if ask_rule is not None:
            return Ask(None, "config", ask_rule.text, ask_rule.origin, "rule")
        return self._find_grant(tool_rules, request, shell)

    def denies_tool(self, tool: str) -> bool:
        """Return whether a tool is denied entirely, so that it is not offered to the model."""
        return any(rule.content is None and rule.covers_tool(tool) for rule in self.deny)

    def allows_tool(self, tool: str) -> bool:
        """Return whether a rule allows every call of a tool."""
        grants = (
            rule for rule in self.allow if rule.content is None and rule.can_grant and not rule.only_session_folders
        )
        return any(rule.covers_tool(tool, granting=True) for rule in grants)

    def check_line(
        self, line: str, request: PermissionRequest, *, edits: bool, redirects: bool = False
    ) -> CommandCheck:
        """Check a command line against these rules and a mode."""
        key = (line, edits, redirects, request.call.id, request.path_scope())
        if self._last_check is None or self._last_check[0] != key:
            self._last_check = key, self.check_plan(plan(line), request, edits=edits, redirects=redirects)
        return self._last_check[1]

    def check_plan(
        self, line: Plan | NotUnderstood, request: PermissionRequest, *, edits: bool, redirects: bool = False
    ) -> CommandCheck:
        """Check what a line would do against these rules and a mode."""
        return check_command(line, request.path_scope(), self, edits=edits, redirects=redirects)

    # Denying and asking

    def _rules_for_tool(self, request: PermissionRequest) -> _ToolRules:
        key = (request.tool, request.call.tool, request.kind, request.command is not None)
        tool_rules = self._rules_by_tool.get(key)
        if tool_rules is None:
            if len(self._rules_by_tool) >= _MAX_CACHED_TOOLS:
                self._rules_by_tool.clear()
            allow = tuple(rule for rule in self.allow if _may_grant(rule, request))
            named = [rule for rule in (*self.deny, *self.ask) if _rule_covers_tool(rule, request)]
            contents = [rule.content for rule in named if rule.content is not None]
            parameters = map(_PARAMETER_RULE.fullmatch, contents)
            tool_rules = self._rules_by_tool[key] = _ToolRules(
                deny=tuple(rule for rule in self.deny if rule in named or _is_path_rule_for(rule, request)),
                # A rule for the whole tool comes last: it must not hide one that also applies inside a sandbox.
                ask=tuple(sorted((rule for rule in self.ask if _may_ask(rule, request)), key=_covers_whole_tool)),
                allow=allow,
                exact_allow=tuple(rule for rule in allow if "*" not in (rule.content or "")),
                first_words=first_words(tuple(contents)) if len(contents) == len(named) else None,
                parameters=frozenset(match[1] for match in parameters if match is not None),
            )
        return tool_rules

    def _find_file_denial(self, request: PermissionRequest, shell: str) -> FileDenial:
        """Return the rule that denies a file accessed by a command line, if any."""
        scope, files = request.path_scope(), self._file_denials
        forbidden = ForbiddenFiles(
            pattern=combined_pattern(files, scope),
            names=self._denied_names,
            find_rule=self._denial_for_path,
            denies_reading=self._denies_files,
        )
        return find_file_denial(shell, scope, forbidden) if files else FileDenial()

    def _denial_for_path(self, scope: PathScope, path: str, changes: bool) -> Rule | None:  # noqa: FBT001 - called by position
        tools = FILE_RULES if changes else _READ_RULES
        denials = (rule for rule in self._file_denials if rule.tool in tools)
        return next((rule for rule in denials if path_matches(rule, path, scope, granting=False)), None)

    # Allowing

    def _find_grant(self, tool_rules: _ToolRules, request: PermissionRequest, shell: str | None) -> Allow | None:
        for rule in tool_rules.allow if shell is None else tool_rules.exact_allow:
            if _rule_grants(rule, request, shell):
                return Allow(rule.text, "config", None, rule.text, rule.origin, "rule")
        if shell is None or not self._bash_grants:
            return None
        check = self.check_line(shell, request, edits=False)
        if check.needs is not None or not check.used_rules:
            return None
        rule = check.used_rules[0]
        return Allow(rule.text, "config", None, rule.text, rule.origin, "parts")

    def find_program_grant(self, program: Program) -> Rule | None:
        """Return the rule that allows a program as a part of a line."""
        if not program.words or not self._bash_grants:
            return None
        inner = program.inner
        if inner is program and not program.assignments and not program.text.startswith(self._bash_prefixes):
            return None  # perf: most rules are for other programs
        starters = (runner_table().get(program_basename(name)) for name in {program.name, inner.name})
        if any(spec is not None and spec.whole_line for spec in starters):
            return next((rule for rule in self._bash_grants if rule.content is None), None)
        return next((rule for rule in self._bash_grants if _grants_program(rule.content, program, inner)), None)

    def allows_path(self, scope: PathScope, path: str, *, writing: bool) -> bool:
        """Return whether a rule with a pattern allows a command to read or to change a file."""
        tools = _EDIT_RULES if writing else _READ_RULES
        grants = (rule for rule in self._file_grants if rule.tool in tools and rule.content is not None)
        return any(path_matches(rule, path, scope, granting=True) for rule in grants)


def _ask_about(line: str) -> Ask:
    understood = plan(line)
    reason = understood.reason if isinstance(understood, NotUnderstood) else None
    needs = MissingPermissions(parts=(line,), of=1, not_understood=reason)
    return Ask(None, "config", basis="not_understood", needs=needs)


def _grants_program(pattern: str | None, program: Program, inner: Program) -> bool:
    """Return whether a pattern allows a program as written, or inside a wrapper that changes nothing.

    The number of blanks between the words is ignored only if the pattern ends in a separate star. Variables before the
    program are allowed if they are harmless, or if the pattern begins with them.
    """
    if pattern is None:
        return True
    if program.stdin_text is not None and not pattern.endswith("*"):
        return False
    assignments = " ".join(program.assignments)
    if assignments and pattern.startswith(f"{assignments} "):
        return has_literal_assignments(program) and matches_command(
            f"{assignments} {program.text}", pattern, granting=True
        )
    if (program.variables or program.values) and not (
        has_harmless_variables(program) and has_literal_assignments(program)
    ):
        return False
    if program.spelling and not pattern.endswith((":*", " *")):
        spellings = (program.spelling, program.text)
        return all(matches_command(spelling, pattern, granting=True) for spelling in spellings)
    if matches_command(program.text, pattern, granting=True):
        return inner is program or not program.variables
    wrappers = [word.text for word in program.words[: len(program.words) - len(inner.words)]]
    is_literal = not program.variables and program.text == f"{' '.join(wrappers)} {inner.text}"
    if "xargs" in wrappers:  # it adds words
        is_literal = is_literal and wrappers[-1] == "xargs" and pattern.find("*") == len(pattern) - 1
    return inner is not program and is_literal and matches_command(inner.text, pattern, granting=True)


def paths_of(request: PermissionRequest) -> list[str]:
    """Return the absolute paths in a call to a file tool."""
    scope = request.path_scope()
    named = [request.input.get(key) for key in _PATH_FIELDS]
    if request.searched_folder is not None:
        named = [request.searched_folder]
    paths = [scope.absolute_path(name) for name in named if isinstance(name, str)]
    return paths or ([scope.cwd] if request.kind == "search" else [])


def _may_ask(rule: Rule, request: PermissionRequest) -> bool:
    """Return whether an ask rule may match calls to the requested tool. A path in a Read rule does not bind writes."""
    is_reading = rule.tool not in _READ_RULES or request.kind not in ("edit", "write")
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
        return matches_line(shell, rule.content)
    return _matches_main_input(rule, request, granting=False)


def _may_grant(rule: Rule, request: PermissionRequest) -> bool:
    """Return whether an allow rule may match calls to the requested tool. To allow changes is to allow reading."""
    if rule.tool == "Edit" and rule.content is not None and request.kind in ("read", "search"):
        return True
    if not rule.can_grant or _rule_covers_tool(rule, request, granting=True):
        return rule.can_grant
    return _is_path_rule_for(rule, request) and rule.tool not in GRANTLESS_TOOLS


def _rule_grants(rule: Rule, request: PermissionRequest, shell: str | None) -> bool:
    """Return whether a rule allows the call by itself."""
    if shell is not None:
        return rule.content is None or shell.strip() == rule.content
    if not _rule_covers_tool(rule, request, granting=True):
        return _matches_paths(rule, request, granting=True)
    if rule.content is None:
        return not rule.only_session_folders or all(map(request.path_scope().contains_path, paths_of(request)))
    return rule.tool not in GRANTLESS_TOOLS and _matches_main_input(rule, request, granting=True)


def _rule_covers_tool(rule: Rule, request: PermissionRequest, *, granting: bool = False) -> bool:
    if any(rule.covers_tool(name, granting=granting) for name in (request.tool, request.call.tool)):
        return True
    # Rules for Bash also restrict other tools that run command lines. What they allow is found by the line's programs.
    return rule.tool == "Bash" and not granting and request.command is not None


def _is_path_rule_for(rule: Rule, request: PermissionRequest) -> bool:
    """Return whether a path rule for Read or Edit also applies to the requested tool."""
    if rule.content is None:
        return False
    kind = request.kind
    if rule.tool in _READ_RULES:
        return kind in ("read", "search", "edit", "write")
    return rule.tool in _EDIT_RULES and kind in ("edit", "write")


def _matches_paths(rule: Rule, request: PermissionRequest, *, granting: bool) -> bool:
    if granting and rule.tool in _READ_RULES and request.kind in ("edit", "write"):
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
    match request.kind:
        case "read" | "search" | "edit" | "write":
            return _matches_paths(rule, request, granting=granting)
        case "web":
            return matches_host(content, request.input.get("url"), granting=granting)
        case "agent":
            return matches_wildcard(str(request.input.get("subagent_type", "")), content)
        case _ if request.skill_field is not None:
            return _matches_skill(content, request.input.get(request.skill_field), granting=granting)
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
    if match[1] == request.skill_field and matches_wildcard(_skill_name(str(value)), match[2]):
        return True
    return isinstance(value, str | int | float) and matches_wildcard(str(value), match[2])


_INVALID_RULE = re.compile(
    r"(?!mcp__)[a-z]|mcp__[^(]*\(|[^(]*\((?::\*)?\)$"  # a small letter, a pattern for MCP, an empty pattern
    r"|Bash\((?:(?!:\*\)$).)*\*(?!\)$)|Bash\((?:.*[^:])?\*\)$|Bash\([^\"]*(?:\"[^\"]*\"[^\"]*)*\"[^\"]*$"
    r"|(?!Bash|WebFetch)[^(]*\(.*(?::\*|\w\*\w)|WebFetch\((?!domain:)|WebSearch\(.*\*",
    re.DOTALL,
)


def ignores_permissions(block: PermissionSettings, refusals: Refusals) -> bool:
    """Return whether an old client ignores the permissions of a settings file because of an invalid rule in it.

    toolspan ignores only those that widen: a rule that denies or asks is never lost.
    """
    texts = (*block.allow, *block.ask, *block.deny)
    return not refusals.star_rules and any(map(_INVALID_RULE.match, texts))


def added_folders(block: PermissionSettings, cwd: Path, refusals: Refusals) -> tuple[Path, ...]:
    """Return the folders that settings add to the project.

    As in the client, a folder inside the project adds nothing, because commands could replace it by a link.
    """
    if ignores_permissions(block, refusals):
        return ()
    names = [os.path.normpath(cwd / os.path.expanduser(text)) for text in block.additional_directories]  # noqa: PTH111 - Path raises if a user is unknown
    folders = map(Path, names)
    return tuple(folder for folder in folders if os.path.isdir(folder) and not folder.is_relative_to(cwd))  # noqa: PTH112 - never raises


def rules_from_settings(
    block: PermissionSettings, origin: str, folder: Path | None = None, refusals: Refusals | None = None
) -> Rules:
    """Return the rules in a settings file.

    With an old client, no rule of a file allows anything if one of the file's rules is invalid, such as a Bash rule
    with a `*` other than in a final `:*`.
    """
    is_ignored = refusals is not None and ignores_permissions(block, refusals)
    allow = () if is_ignored else block.allow
    return Rules(allow=allow, ask=block.ask, deny=block.deny, origin=origin, folder=folder)
