"""`Permissions`, and the permission modes, which decide if no rule and no hook has an opinion.

`guard_policy` precedes the modes: it asks about calls that rules and modes alone must not allow.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from toolspan.errors import ToolspanError
from toolspan.runtime.permissions.decide import Approver, PermissionRequest, Policy
from toolspan.runtime.permissions.paths import is_ambiguous
from toolspan.runtime.permissions.patterns import expand_command_line
from toolspan.runtime.permissions.program_use import find_changed, has_inner_quote, sets_variables
from toolspan.runtime.permissions.removals import find_dangerous_removal, find_protected_write
from toolspan.runtime.permissions.rule import Rule
from toolspan.runtime.permissions.rules import Rules, command_of, paths_of
from toolspan.runtime.profiles import Refusals
from toolspan.shell.program import Program
from toolspan.shell.programs import BACKGROUND, find_programs
from toolspan.shell.syntax import may_be_misread
from toolspan.shell.wrappers import TRANSPARENT_WRAPPERS, strip_wrappers
from toolspan.types.decision import Allow, Ask, Decision, Deny, MissingPermissions
from toolspan.types.tool_kinds import tool_kind

Mode = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]
MODES: tuple[Mode, ...] = get_args(Mode)
_MODE_ALIASES: dict[str, Mode] = {"manual": "default"}


def parse_default_mode(name: str | None) -> Mode:
    """Return the mode that settings name, or `default` if they name none.

    Raises:
        ToolspanError: there is no such mode.
    """
    for mode in MODES:
        if mode == (name or "default"):
            return mode
    if name in _MODE_ALIASES:
        return _MODE_ALIASES[name]
    raise ToolspanError(f"permissions.defaultMode is {name!r}; use one of {', '.join(MODES)}")


PLAN_REASON = "plan"
"""The reason for a question that is asked only in plan mode."""

_PLAIN_QUOTES = re.compile(r"'[^'\"`]*'|\"(?:[^\"\\$`<>\n]|\\[\w.()|-])*\"")
_UNPLAIN_TEXT = re.compile(
    r"\A\s*\n|\\(?![\w. ()!-])|[$`{}#<\"]|&>|\|&|>\||>&(?![012](?:[\s;|&)]|\Z))|(?:;|&&|\|\|)\s*\n|\0\s*="
    r"|\0[^\s;|&)\w./-]|(?:^|[|;&])\s*\w*\0\w*(?:[\s;|&]|\Z)|(?:^|[|;&\n])\s*(?:\d?>>?\s*[^\s>&]+\s+)*\d?>&|>&\d\s+\d>"
)
_ODD_TEXT = re.compile(r"(?<!\\)(?:\\\\)*#|\\[<>`\n]|&>|\|&|>&\s*[3-9]|(?:\A|&&|\|\||[;\n])[ \t]*\n")
"""Text outside quotes that old clients ask about even if a rule allows the line."""
_ODD_TARGET = re.compile(r"[~%:<(\]]")
_ODD_AFTER_REDIRECT = re.compile(r"[~<({$*?\[]")
"""Characters that, even in quotes, make old clients ask about a command that begins with a redirect."""
_GIT_OPTION = re.compile(r"\s(?:-c|--exec-path|--config-env)[\s=]")
"""Options with which git runs programs. Old clients ask about them in any command whose text contains `git`."""
_CHECKED_OPTIONS = frozenset({"egrep", "fgrep", "git", "grep", "rg", "sort", "uniq"})
"""Programs for which old clients check every option."""
_QUOTES_IN_OPTION = re.compile(r"""(?<!\S)-[^\s='"]*(?:'(?![^\w'-])|"(?![^\w"-]))""")
_VARIABLE_TARGET = re.compile(r">[>&|]?\s*[^\s>]*[$%]")
"""Text that looks like a redirect to a file with a variable. Old clients ask about it, even in quotes."""
_HOME_PATH = re.compile(r"~(?:/[\w./-]*)?", re.ASCII)
_ESCAPED_PARENTHESIS = re.compile(r"\\[()]")
_JOINED_QUOTES = re.compile(r"\0[\w./-]")
_UNJOINED_TEXT = frozenset({"cd", "echo", "jq"})
"""Programs for which old clients ask about a quote that ends inside a word."""
_PARENTHESES = re.compile(r"[()]")
_FIND_GROUP = re.compile(r"(?<!\S)\\[()](?!\S)")
_QUOTED_SUBCOMMAND = re.compile(r"""git [^\s'"\\]*['"\\]""")
_FREE_TEXT = frozenset({"echo", "grep", "jq", "rg", "sort"})
_VALUES_AS_PATHS = frozenset({"column", "cut", "rg"})
"""Programs for which old clients treat the values of options as paths."""
_OUTER_PATH = re.compile(r"[/~]|\.\.")
_FREE_GIT_TEXT = ("log", "diff", "show")
"""Subcommands of git whose quoted arguments may contain operators, even in old clients."""
_FIND_ACTION = re.compile(r"-(?:delete|exec|execdir|ok|okdir|fprint0?|fprintf|fls)\b")
"""An action of `find`. Old clients search all arguments for it, including file names."""
_PIPE = re.compile(r"(?<!\|)\|&?(?!\|)")
_WRITERS = frozenset({"cp", "mkdir", "mv", "rm", "rmdir", "sed", "touch"})
"""Programs that old clients treat as changing files, even without operands or with `sed -n`."""
_FILE_REDIRECT = re.compile(r">(?!&\d)")
_WORKTREES = ".claude/worktrees"
"""A folder that only old clients protect."""
_NOT_PLANNING = "You are not in plan mode, so there is no plan to approve. Continue with the task."
_HARMLESS_KINDS = frozenset({"agent", "plan", "question", "other"})
_EDIT_KINDS = frozenset({"edit", "write"})
_ALLOWED_BY_MODE = Allow(None, "config", basis="mode")
_ALLOWED_BY_PARTS = Allow(None, "config", basis="parts")


@dataclass(frozen=True, slots=True)
class Permissions:
    """The permissions of a session: rules, a mode, and the function that answers questions.

    The first of these that has an opinion decides on a call: the `rules` and `extra_policies` (deny
    takes precedence over ask, and ask over allow), then a hook, then the `mode`. In `default` mode,
    calls that only read inside the session's folders run, and the `approver` decides on all others.
    Without an approver, those calls are denied.

    `Session(permissions=Permissions(Rules(allow=["Bash(git diff:*)"]), approver=ask_me))` is the usual form.
    """

    rules: Rules = field(default_factory=Rules)
    mode: Mode = "default"
    approver: Approver | None = None
    _: KW_ONLY
    extra_policies: tuple[Policy, ...] = ()
    """Your own policy functions, consulted after the rules."""
    folders: tuple[Path, ...] = ()
    """Folders besides the project in which the session may work."""
    refusals: Refusals | None = None
    """The refusal messages of a client version; None for those in the session's profile."""

    def __post_init__(self) -> None:
        if not isinstance(self.rules, Rules):
            raise TypeError(f"rules must be Rules, such as Rules(allow=['Read']), not {type(self.rules).__name__}")
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, not {self.mode!r}")

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The policies that are consulted before a hook's decision is applied."""
        return (
            self._with_folders(self.rules),
            self._with_folders(guard_policy(self.mode, self.refusals, self.rules)),
            *self.extra_policies,
        )

    @property
    def fallback(self) -> Policy:
        """The mode's policy, which decides if no rule and no hook has an opinion."""
        return self._with_folders(mode_policy(self.mode, rules=self.rules, refusals=self.refusals))

    @staticmethod
    def allow_all() -> PolicyStack:
        """Return permissions that run every call without asking, unless a hook denies it."""
        return PolicyStack()

    def resolve(self, refusals: Refusals) -> PolicyStack:
        """Return the policies for a runner. `refusals` are those in the session's profile."""
        permissions = self if self.refusals is not None else replace(self, refusals=refusals)
        return PolicyStack(
            permissions.policies, permissions.fallback, permissions.approver, permissions.mode, self.folders
        )

    def _with_folders(self, policy: Callable[[PermissionRequest], Decision | None]) -> Policy:
        def policy_with_folders(request: PermissionRequest) -> Decision | None:
            if request.folders != self.folders:
                request = replace(request, folders=self.folders)
            return policy(request)

        return policy_with_folders


@dataclass(frozen=True, slots=True)
class PolicyStack:
    """The resolved form of `Permissions`: the functions that decide on each call in a session.

    Create one directly to decide with policies alone, without rules and modes. A call on which no
    policy, no hook and no fallback has an opinion runs.
    """

    policies: tuple[Policy, ...] = ()
    fallback: Policy | None = None
    approver: Approver | None = None
    mode: str = "default"
    """The mode that is reported to hooks and in the transcript."""
    folders: tuple[Path, ...] = ()
    """Folders besides the project that a command may make the current folder of the shell."""

    def resolve(self, refusals: Refusals) -> PolicyStack:  # noqa: ARG002 - the same call as on Permissions
        """Return the stack itself."""
        return self


def mode_policy(
    mode: Mode, *, rules: Rules | None = None, refusals: Refusals | None = None
) -> Callable[[PermissionRequest], Decision]:
    """Return a mode's policy, which has an opinion on every call."""
    mode_decider = _ModeDecider(rules or Rules(), refusals or Refusals())

    def decide_by_mode(request: PermissionRequest) -> Decision:
        now = request.mode or mode
        if now == "bypassPermissions":
            return _ALLOWED_BY_MODE
        decision = mode_decider.decide(request, now)
        if now == "dontAsk" and isinstance(decision, Ask):
            return Deny("dontAsk", "mode", basis="mode")
        return decision

    return decide_by_mode


@dataclass(frozen=True, slots=True)
class _ModeDecider:
    """The decisions of all modes except `bypassPermissions`."""

    rules: Rules
    refusals: Refusals

    def decide(self, request: PermissionRequest, mode: str) -> Decision:
        command = command_of(request)
        if command is not None:
            return self._decide_command(command, request, mode)
        kind = tool_kind(request.tool)
        if kind in _EDIT_KINDS:
            return _decide_edit(request, mode)
        if kind in ("read", "search"):
            free = mode == "plan" and self.refusals.plan_reads
            in_scope = free or _is_in_scope(request, reading=True)
            return _ALLOWED_BY_MODE if in_scope else Ask(None, "config", basis="outside")
        if request.read_only and kind in ("shell", *_HARMLESS_KINDS):
            return Allow(None, "config")
        return Ask(None, "config")

    def _decide_command(self, command: str, request: PermissionRequest, mode: str) -> Decision:
        check = self.rules.check_line(
            command,
            request,
            edits=mode == "acceptEdits",
            redirects=self.refusals.free_redirects,
            parents=self.refusals.plain_lines,
        )
        needs = check.needs
        if needs is None and self.refusals.asks_about:
            needs = self._needs_despite_read_only(command, request, mode)
        if needs is None and mode == "plan" and sets_variables(find_programs(command)):
            needs = MissingPermissions(parts=(command,), of=1)
        if needs is None:
            return _ALLOWED_BY_PARTS
        if mode == "plan" and self.refusals.plan_shell:
            return Deny(self.refusals.plan_shell, "config", basis="classifier")
        return Ask(None, "config", needs=needs)

    def _needs_despite_read_only(
        self, command: str, request: PermissionRequest, mode: str
    ) -> MissingPermissions | None:
        """Return the read-only programs that the client version asks about and no rule allows."""
        parsed = find_programs(command)
        programs = parsed.programs
        if self.refusals.plain_lines and (
            parsed.has_compounds
            or not _is_plain_line(command)
            or any(_ODD_TARGET.search(redirect.target.text) for program in programs for redirect in program.redirects)
        ):
            return MissingPermissions(parts=(command,), of=1)
        return self.needs_without_rule(programs, request, mode)

    def needs_without_rule(
        self, programs: Sequence[Program], request: PermissionRequest, mode: str
    ) -> MissingPermissions | None:
        """Return the programs that no rule allows and that the client version asks about even if they are read-only."""
        find_rule = self.rules.allowed_actions(request.path_scope(), edits=False, redirects=False).find_rule
        matching = [program for program in programs if self._asks_about(program, mode) and find_rule(program) is None]
        parts = tuple(program.text for program in matching)
        return MissingPermissions(parts=parts, of=len(programs)) if parts else None

    def _asks_about(self, program: Program, mode: str) -> bool:
        """Return whether the client version asks about a program that changes nothing."""
        inner = strip_wrappers(program)
        arguments = " ".join(word.text for word in inner.words[1:])
        if {program.name, inner.name} & self.refusals.asks_about:
            return True
        if not self.refusals.plain_lines:
            return False
        if _asks_about_form(program, inner):
            return True
        if re.match(self.refusals.asks_about_text, f"{inner.name} {inner.text.partition(' ')[2]}"):
            return True
        if inner.name == "sed" and mode == "acceptEdits" and not re.search(r"(?<!\S)['\"]?s\W", arguments):
            return True  # in this mode, only substitutions run
        if inner.name == "sed" and any(not re.fullmatch(r"[\w./-]+(?<!\.)", word.text) for word in inner.words[3:]):
            return True
        values = inner.arguments.values if inner.name in _VALUES_AS_PATHS else ()
        if any(word in inner.words and _OUTER_PATH.match(word.text) for word in values):
            return True
        is_free_text = inner.name in _FREE_TEXT or (inner.name == "git" and arguments.startswith(_FREE_GIT_TEXT))
        if inner.name == "find" and _FIND_ACTION.search(arguments):
            return True
        if _is_oddly_quoted(program, inner.name):
            return True
        if inner.name == "find" and len(_FIND_GROUP.findall(inner.text)) == len(_PARENTHESES.findall(arguments)):
            arguments = _PARENTHESES.sub("", arguments)
        return not is_free_text and re.search(r"[;|&<>(){}$`\n]", arguments) is not None


def _is_oddly_quoted(program: Program, name: str) -> bool:
    """Return whether old clients ask about the quotes or the text outside of quotes of a command."""
    unquoted = _PLAIN_QUOTES.sub("\0", program.text)
    if "]" in unquoted and name not in ("[", "[["):
        return True
    if name == "echo" and (has_inner_quote(program) or "!" in unquoted or _ESCAPED_PARENTHESIS.search(program.text)):
        return True
    if name in _UNJOINED_TEXT and _JOINED_QUOTES.search(unquoted):
        return True
    return program.name == "git" and _QUOTED_SUBCOMMAND.match(program.text) is not None


def _asks_about_form(program: Program, inner: Program) -> bool:
    """Return whether old clients ask about the variables, redirects or git options of a command."""
    if program.variables or any(word.has_expansion and not _HOME_PATH.fullmatch(word.text) for word in program.words):
        return True
    if any(item.operator[:1] in "3456789" for item in program.redirects):
        return True
    if program.redirected_first and (program.text[:1] in "'\"\\" or _ODD_AFTER_REDIRECT.search(program.text)):
        return True
    return "git" in program.text and inner.name not in _CHECKED_OPTIONS and _GIT_OPTION.search(program.text) is not None


def _is_plain_line(command: str) -> bool:
    """Return whether a line contains, outside quotes, only characters that old clients understand."""
    return not (_UNPLAIN_TEXT.search(_PLAIN_QUOTES.sub("\0", command)) or _QUOTES_IN_OPTION.search(command))


def _joins_lines(command: str, programs: Sequence[Program]) -> bool:
    """Return whether old clients may join lines: a line break and a redirect before a pipe, or `cd` after one."""
    if "\n" in command and any(program.name == "cd" and program.has_stdin for program in programs):
        return True
    return any("\n" in part and _FILE_REDIRECT.search(part) for part in _PIPE.split(command)[:-1])


def _changes_folder_and_writes(programs: Sequence[Program], cwd: str) -> bool:
    outputs = (redirect for program in programs for redirect in program.redirects if ">" in redirect.operator)
    return any(program.name == "cd" and program.text != f"cd {cwd}" for program in programs) and (
        any(not redirect.target.text.isdigit() for redirect in outputs)
        or any(program.arguments.changed or strip_wrappers(program).name in _WRITERS for program in programs)
    )


def _has_unplain_paths(programs: Sequence[Program]) -> bool:
    """Return whether an argument that old clients treat as a path contains `$`, `%` or, if changed, `:` or `]`."""
    for program in programs:
        arguments = program.arguments
        taken = [item for item in arguments.arguments if item.role in ("read", "stat", "value")]
        if program.name == "find":
            taken = [item for item in taken if item.role != "value" or "%" not in item.word.text]
        words = [item.word for item in taken if item.word in program.words]
        if arguments.spec is not None and arguments.spec.grammar == "unknown":
            words = list(program.words[1:])
        is_reader = arguments.spec is not None and (not words or "read*" in arguments.spec.operands)
        if any(re.search(r"[%:\]]", word.text) for word in find_changed(program, arguments)):
            return True
        operands = [word.text for word in program.words[1:] if word.text[:1] != "-"]
        if program.name == "sed" and any(re.search(r"[%*?{}]", text) for text in operands[1:]):
            return True
        if is_reader and any("$" in word.text or "%" in word.text for word in words if word.text[:1] != "-"):
            return True
    return False


def _has_ambiguous_name(request: PermissionRequest, refusals: Refusals) -> bool:
    """Return whether some file systems treat a path in the call as another file."""
    is_search = tool_kind(request.tool) == "search"
    if refusals.plain_lines and (is_search or tool_kind(request.tool) == "read"):
        name = request.input.get("path")
        if request.tool == "Grep" and isinstance(name, str) and name.endswith("."):
            return True
        return any(re.search(refusals.suspicious_path, path, re.IGNORECASE) for path in paths_of(request))
    # A search below a folder that does not exist fails before the client asks.
    return any(is_ambiguous(path.rstrip()) and (not is_search or os.path.lexists(path)) for path in paths_of(request))


def _decide_edit(request: PermissionRequest, mode: str) -> Decision:
    if mode == "plan":
        return Ask(PLAN_REASON, "mode", basis="plan")
    if not _is_in_scope(request):
        return Ask(None, "config", basis="outside")
    if mode == "acceptEdits" and not _touches_protected_file(request):
        return _ALLOWED_BY_MODE
    return Ask(None, "config")


def _touches_protected_file(request: PermissionRequest, refusals: Refusals | None = None) -> bool:
    scope = request.path_scope()
    if refusals is not None and refusals.plain_lines and any(_WORKTREES in path for path in paths_of(request)):
        return True
    return any(scope.is_protected(path) or scope.leads_outside(path) for path in paths_of(request))


def _is_in_scope(request: PermissionRequest, *, reading: bool = False) -> bool:
    """Return whether all paths in the call, with links resolved, are in the session's folders."""
    scope = request.path_scope()
    return all(scope.contains_path(path, reading=reading) for path in paths_of(request))


def guard_policy(
    mode: Mode, refusals: Refusals | None = None, rules: Rules | None = None
) -> Callable[[PermissionRequest], Decision | None]:
    """Return a policy that asks about protected files and dangerous removals, even if rules and hooks allow them.

    In plan mode, it applies the mode to commands and edits, because rules do not allow them there. New clients also ask
    about subagents, about skills that no rule allows and that do more than add text, and about MCP tools that may
    change something.
    """
    planner = _ModeDecider(Rules(), refusals or Refusals())
    old_decider = _ModeDecider(rules or Rules(), planner.refusals)
    specific_rules = (rules or Rules()).specific_grants()
    is_unguarded = planner.refusals.plain_lines and rules is not None and rules.allows_tool("Bash")

    def check_request(request: PermissionRequest) -> Decision | None:
        command = command_of(request)
        if request.tool == "ExitPlanMode" and (request.mode or mode) != "plan":
            return Deny(_NOT_PLANNING, "policy", basis="plan")
        if (request.mode or mode) == "plan" and (refusal := _check_plan(request, planner, rules)):
            return refusal
        if command is not None:
            if critical := _check_critical(command, request, planner.refusals):
                return critical
            if is_unguarded:
                return None
            now = request.mode or mode
            line_question = _check_line_guards(command, request, now, specific_rules, planner.refusals)
            return line_question or _check_old_guards(command, request, now, old_decider)
        if link_write := _check_link_write(request, planner.refusals):
            return link_write
        now = request.mode or mode
        reading_kinds = ("search",) if planner.refusals.plain_lines else ("search", "read")
        is_granted = tool_kind(request.tool) in reading_kinds and rules is not None and rules.allows_tool(request.tool)
        if now != "bypassPermissions" and not is_granted and _has_ambiguous_name(request, planner.refusals):
            return Ask(None, "config", basis="protected")
        if now == "bypassPermissions" or tool_kind(request.tool) not in _EDIT_KINDS:
            return None
        if now != "plan" and _touches_protected_file(request, refusals):
            if now == "dontAsk":
                return Deny("dontAsk", "mode", basis="mode")
            return Ask(None, "config", basis="protected")
        return None

    return check_request


def _check_plan(request: PermissionRequest, planner: _ModeDecider, rules: Rules | None) -> Decision | None:
    """Return a question or refusal if rules and hooks cannot allow the call in plan mode, or None."""
    kind = tool_kind(request.tool)
    if command_of(request) is not None or kind in _EDIT_KINDS:
        decision = planner.decide(request, "plan")
        return None if isinstance(decision, Allow) else decision
    may_change = kind == "agent" or (kind == "mcp" and not request.read_only)
    if request.tool == "Skill":  # only a rule allows one that does more than add text
        may_change = not request.read_only and (rules is None or not isinstance(rules(request), Allow))
    return Ask(None, "config", basis="plan") if may_change and planner.refusals.plan_shell else None


def _check_line_guards(
    command: str, request: PermissionRequest, mode: str, specific_rules: Rules, refusals: Refusals
) -> Ask | None:
    """Ask about protected files in a line, and about background commands.

    Background commands run only if a rule for the whole tool allows them, and if they would need it in the foreground.
    """
    if mode == "bypassPermissions":
        return None
    parsed = find_programs(command)
    reach = find_protected_write(expand_command_line(command), request.path_scope())
    if reach is None:
        if BACKGROUND not in parsed.unclear or refusals.plain_lines:
            return None
        # The client decides on each part of a pipeline separately.
        # It ignores that another folder may be current.
        for part in (command, *_PIPE.split(command), command.replace("$PWD/", "")):
            check = specific_rules.check_line(part, request, edits=mode == "acceptEdits", redirects=False)
            if BACKGROUND in find_programs(part).unclear and (check.needs is None or check.needs.parts == (part,)):
                break
        else:
            return None
    unclear = BACKGROUND if reach is None else None
    needs = MissingPermissions(parts=(command,), of=1, reach=reach, unclear=unclear)
    return Ask(None, "config", basis="protected" if reach else "unclear", needs=needs)


def _check_old_guards(command: str, request: PermissionRequest, mode: str, decider: _ModeDecider) -> Ask | None:
    """Ask about lines that old clients ask about even if rules allow all their programs."""
    if not decider.refusals.plain_lines or mode == "bypassPermissions":
        return None
    parsed = find_programs(command)
    programs = parsed.programs
    is_wrapped = any(
        program.name in TRANSPARENT_WRAPPERS and not decider.rules.allows_text(program.text) for program in programs
    )
    reads_file = any("<" in item.operator for program in programs for item in program.redirects)
    is_odd = (
        _joins_lines(command, programs)
        or _ODD_TEXT.search(_PLAIN_QUOTES.sub("\0", command))
        or _QUOTES_IN_OPTION.search(command)
        or _VARIABLE_TARGET.search(command)
    )
    find_rule = decider.rules.allowed_actions(request.path_scope(), edits=False, redirects=False).find_rule
    has_variables = any(program.variables for program in programs)
    is_oddly_allowed = any(_is_oddly_allowed(program, find_rule(program), decider.rules) for program in programs)
    is_unplain = (
        is_odd
        or is_oddly_allowed
        or has_variables
        or parsed.has_compounds
        or _has_unplain_paths(programs)
        or _WORKTREES in command
    )
    if is_wrapped or reads_file or is_unplain or _changes_folder_and_writes(programs, request.path_scope().cwd):
        return Ask(None, "config", needs=MissingPermissions(parts=(command,), of=1))
    needs = decider.needs_without_rule(programs, request, mode) if any(map(find_rule, programs)) else None
    return None if needs is None else Ask(None, "config", needs=needs)


def _is_oddly_allowed(program: Program, rule: Rule | None, rules: Rules) -> bool:
    """Return whether old clients ignore the rule for a program, or do not recognise a quoted `cd`."""
    if program.name == "cd":
        return not program.text.startswith(("cd", "\\cd"))
    if rule is None:
        return False
    is_exact = "*" not in (rule.content or "*")
    if is_exact and any(item.operator[:1] in "3456789" for item in program.redirects):
        return True
    return program.name == "xargs" and not rules.allows_text(program.text)


def _check_link_write(request: PermissionRequest, refusals: Refusals) -> Deny | None:
    """Deny a write through a symbolic link, if the client version does so."""
    if not refusals.link_write or tool_kind(request.tool) not in _EDIT_KINDS:
        return None
    link = next(filter(os.path.islink, paths_of(request)), None)
    if link is None:
        return None
    target = request.path_scope().links.resolve(link)
    return Deny(refusals.link_write.format(path=link, target=target), "policy", basis="protected")


def _check_critical(command: str, request: PermissionRequest, refusals: Refusals) -> Ask | None:
    """Ask about a line that could remove a root, home or session folder, or that parsers may read differently."""
    if refusals.open_expansion and may_be_misread(command):
        return Ask(refusals.open_expansion, "config", basis="critical")
    removal = find_dangerous_removal(command, request.path_scope(), reads_scripts=bool(refusals.open_expansion))
    if removal is None:
        return None
    message = f"{removal} could remove far more than is meant, and is always asked about."
    return Ask(message, "config", basis="critical")
