"""`Permissions`, and the permission modes, which decide if no rule and no hook has an opinion.

`guard_policy` precedes the modes: it asks about calls that rules and modes alone must not allow.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from toolspan.errors import ToolspanError
from toolspan.runtime.permissions.decide import Approver, PermissionRequest, Policy
from toolspan.runtime.permissions.paths import may_be_renamed
from toolspan.runtime.permissions.removals import find_dangerous_removal, find_protected_write
from toolspan.runtime.permissions.rules import Rules, paths_of
from toolspan.runtime.profiles import Refusals
from toolspan.shell.plans import NotUnderstood, Plan, plan
from toolspan.shell.syntax import BACKGROUND
from toolspan.types.decision import Allow, Ask, Decision, Deny, MissingPermissions

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
        if not self.folders:
            return policy

        def policy_with_folders(request: PermissionRequest) -> Decision | None:
            return policy(replace(request, folders=self.folders))

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
    known_rules, limits = rules or Rules(), refusals or Refusals()

    def decide_by_mode(request: PermissionRequest) -> Decision:
        now = request.mode or mode
        if now == "bypassPermissions":
            return _ALLOWED_BY_MODE
        decision = _decide_in_mode(request, now, known_rules, limits)
        if now == "dontAsk" and isinstance(decision, Ask):
            return Deny("dontAsk", "mode", basis="mode")
        return decision

    return decide_by_mode


def _decide_in_mode(request: PermissionRequest, mode: str, rules: Rules, refusals: Refusals) -> Decision:
    """Return the decision of a mode other than `bypassPermissions`."""
    command = request.command
    if command is not None:
        needs = rules.check_line(command, request, edits=mode == "acceptEdits", redirects=refusals.free_redirects).needs
        if needs is None:
            return _ALLOWED_BY_PARTS
        if mode == "plan" and refusals.plan_shell:
            return Deny(refusals.plan_shell, "config", basis="classifier")
        return Ask(None, "config", needs=needs)
    kind = request.kind
    if kind in _EDIT_KINDS:
        return _decide_edit(request, mode)
    if kind in ("read", "search"):
        in_scope = (mode == "plan" and refusals.plan_reads) or _is_in_scope(request, reading=True)
        return _ALLOWED_BY_MODE if in_scope else Ask(None, "config", basis="outside")
    is_harmless = request.read_only and kind in ("shell", *_HARMLESS_KINDS)
    return Allow(None, "config") if is_harmless else Ask(None, "config")


def _names_renamed_file(request: PermissionRequest) -> bool:
    """Return whether some file systems treat a path in the call as another file."""
    is_search = request.kind == "search"
    # A search below a folder that does not exist fails before the client asks.
    return any(may_be_renamed(path.rstrip()) and (not is_search or os.path.lexists(path)) for path in paths_of(request))


def _decide_edit(request: PermissionRequest, mode: str) -> Decision:
    if mode == "plan":
        return Ask(PLAN_REASON, "mode", basis="plan")
    if not _is_in_scope(request):
        return Ask(None, "config", basis="outside")
    if mode == "acceptEdits" and not _touches_protected_file(request):
        return _ALLOWED_BY_MODE
    return Ask(None, "config")


def _touches_protected_file(request: PermissionRequest) -> bool:
    scope = request.path_scope()
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
    limits = refusals or Refusals()
    specific_rules = (rules or Rules()).specific_grants()

    def check_request(request: PermissionRequest) -> Decision | None:
        command, now = request.command, request.mode or mode
        if request.definition is not None and request.definition.only_in_mode not in (None, now):
            return Deny(_NOT_PLANNING, "policy", basis="plan")
        if now == "plan" and (refusal := _check_plan(request, limits, rules)):
            return refusal
        if command is not None:
            return _check_line(command, request, now, specific_rules)
        if link_write := _check_link_write(request, limits):
            return link_write
        kind = request.kind
        is_granted = kind in ("search", "read") and rules is not None and rules.allows_tool(request.tool)
        if now != "bypassPermissions" and not is_granted and _names_renamed_file(request):
            return Ask(None, "config", basis="protected")
        if now in ("bypassPermissions", "plan") or kind not in _EDIT_KINDS or not _touches_protected_file(request):
            return None
        return Deny("dontAsk", "mode", basis="mode") if now == "dontAsk" else Ask(None, "config", basis="protected")

    return check_request


def _check_plan(request: PermissionRequest, refusals: Refusals, rules: Rules | None) -> Decision | None:
    """Return a question or refusal if rules and hooks cannot allow the call in plan mode, or None."""
    kind = request.kind
    if request.command is not None or kind in _EDIT_KINDS:
        decision = _decide_in_mode(request, "plan", Rules(), refusals)
        return None if isinstance(decision, Allow) else decision
    may_change = kind == "agent" or (kind == "mcp" and not request.read_only)
    if request.skill_field is not None:  # only a rule allows one that does more than add text
        may_change = not request.read_only and (rules is None or not isinstance(rules(request), Allow))
    return Ask(None, "config", basis="plan") if may_change and refusals.plan_shell else None


def _check_line(command: str, request: PermissionRequest, mode: str, specific_rules: Rules) -> Ask | None:
    """Ask about a line that rules for whole tools and `bypassPermissions` must not allow.

    Such a line could remove far more than is meant, or shells may split it in another way. Other modes also ask about
    writes to protected files, and about commands in the background that need approval in the foreground.
    """
    line, scope = plan(command), request.path_scope()
    removal = find_dangerous_removal(line, scope)
    if removal is not None:
        message = f"{removal} could remove far more than is meant, and is always asked about."
        return Ask(message, "config", basis="critical")
    if isinstance(line, NotUnderstood) and not line.is_readable:
        return Ask(f"{line.reason} in this command can be read in several ways, and is always asked about.", "config",
                   basis="critical")  # fmt: skip
    if mode == "bypassPermissions":
        return None
    reach = find_protected_write(line, scope)
    if reach is not None:
        needs = MissingPermissions(parts=(command,), of=1, reach=reach)
        return Ask(None, "config", basis="protected", needs=needs)
    if isinstance(line, NotUnderstood) and line.reason == BACKGROUND:
        parts = [Plan(command, (program,)) for program in line.programs if program.name != "cd"]
        checks = (specific_rules.check_plan(part, request, edits=mode == "acceptEdits") for part in parts)
        if not parts or "$" in command or any(check.needs is None for check in checks):
            needs = MissingPermissions(parts=(command,), of=1, not_understood=BACKGROUND)
            return Ask(None, "config", basis="not_understood", needs=needs)
    return None


def _check_link_write(request: PermissionRequest, refusals: Refusals) -> Deny | None:
    """Deny a write through a symbolic link, if the client version does so."""
    if not refusals.link_write or request.kind not in _EDIT_KINDS:
        return None
    link = next(filter(os.path.islink, paths_of(request)), None)
    if link is None:
        return None
    target = request.path_scope().links.resolve(link)
    return Deny(refusals.link_write.format(path=link, target=target), "policy", basis="protected")
