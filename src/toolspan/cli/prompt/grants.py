"""What a person's "always" means: which rules, from when on, and where they are kept.

In: the suggestions for a question, and where somebody wants them. Out: a session in which they
hold from now on, and, where that was chosen, a settings file that has them. Nobody is asked here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from toolspan.runtime.permissions import Permissions, Policy, Rules, decide
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.permissions.modes import MODES, Mode
from toolspan.runtime.permissions.suggestions import Suggestion, suggest_updates
from toolspan.runtime.settings import SettingsPaths, TrustStore, add_permissions, change_local_settings
from toolspan.types.decision import Allow, Ask, Decision

MAX_OFFER_CHARACTERS = 300
MAX_OFFER_LINES = 5
"""Characters and lines of what is offered: nobody agrees for good to what they do not read."""
GrantScope = Literal["session", "local", "user"]
PolicyResult = Decision | Awaitable[Decision | None] | None


@dataclass(frozen=True, slots=True)
class GrantOffer:
    """What would answer a question and those like it."""

    rules: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    mode: Mode | None = None

    @classmethod
    def from_suggestions(cls, updates: Iterable[Suggestion]) -> GrantOffer:
        """What suggestions come to together."""
        rules: list[str] = []
        folders: list[str] = []
        mode: Mode | None = None
        for update in updates:
            match update:
                case {"type": "addRules", "rules": list(values)}:
                    rules += [_rule_text(rule) for rule in values]
                case {"type": "addDirectories", "directories": list(values)}:
                    folders += map(str, values)
                case {"type": "setMode", "mode": mode_name}:
                    mode = next((candidate for candidate in MODES if candidate == mode_name), None)
                case _:
                    pass
        return cls(tuple(rules), tuple(folders), mode)

    def summary_lines(self) -> Sequence[str]:
        """What it is, for a person."""
        lines = [*self.rules, *(f"work in {folder}, too" for folder in self.folders)]
        if self.mode == "acceptEdits":
            lines.append("edits in the session's folders, also by mkdir touch rm rmdir mv cp sed")
        return lines

    @property
    def scopes(self) -> tuple[GrantScope, ...]:
        """Where it can be kept: a mode is the session's alone."""
        return ("session",) if self.mode is not None else ("session", "local", "user")

    def add_to(self, permissions: Permissions) -> Permissions:
        """The permissions with this."""
        return replace(
            permissions,
            rules=permissions.rules + Rules(allow=self.rules, origin="session"),
            folders=(*permissions.folders, *map(Path, self.folders)),
            mode=self.mode or permissions.mode,
        )


def _rule_text(rule: dict[str, str]) -> str:
    inside = rule.get("ruleContent")
    return rule["toolName"] if inside is None else f"{rule['toolName']}({inside})"


class SessionPermissions:
    """The permissions of a session, to which a person adds while it lasts."""

    def __init__(self, permissions: Permissions) -> None:
        self.set_mode: Callable[[Mode], None] = lambda _mode: None
        """Tells the session which mode it is in."""
        self._has_grants = False
        self._set_current(permissions)

    def _set_current(self, permissions: Permissions) -> None:
        self.current = permissions
        self._rule_policy, self._guard_policy = permissions.policies
        self._fallback = permissions.fallback

    @property
    def policies(self) -> tuple[Policy, ...]:
        """As those of the permissions, whatever these are by then."""
        return (self._apply_rules, self._apply_guard)

    def _apply_rules(self, question: PermissionRequest) -> PolicyResult:
        return self._rule_policy(question)

    def _apply_guard(self, question: PermissionRequest) -> PolicyResult:
        return self._guard_policy(question)

    def fallback(self, question: PermissionRequest) -> PolicyResult:
        """As that of the permissions."""
        return self._fallback(question)

    async def find_offer(self, question: PermissionRequest, ask: Ask) -> GrantOffer | None:
        """What would answer this question for good; None when nothing would."""
        offer = GrantOffer.from_suggestions(suggest_updates(question, ask))
        lines = offer.summary_lines()
        if not lines or len(lines) > MAX_OFFER_LINES or max(map(len, lines)) > MAX_OFFER_CHARACTERS:
            return None
        request = replace(question, mode=offer.mode or question.mode)
        answer = await _decide_with(offer.add_to(self.current), request)
        return offer if isinstance(answer, Allow) else None

    def add_grant(self, offer: GrantOffer) -> None:
        """It holds from now on."""
        self._set_current(offer.add_to(self.current))
        self._has_grants = True
        if offer.mode is not None:
            self.set_mode(offer.mode)

    async def is_allowed(self, question: PermissionRequest, ask: Ask) -> bool:
        """Whether what was added since the question came up answers it."""
        if not self._has_grants or ask.source != "config":
            return False
        mode = self.current.mode if question.mode is None else question.mode
        answer = await _decide_with(self.current, replace(question, mode=mode))
        return isinstance(answer, Allow)


async def _decide_with(permissions: Permissions, question: PermissionRequest) -> Decision | None:
    decision = await decide(permissions.policies, question)
    return decision or await decide((permissions.fallback,), question)


@dataclass(frozen=True, slots=True)
class GrantWriter:
    """Puts down for good what a person allows."""

    settings_paths: SettingsPaths
    trust_store: TrustStore

    def settings_path(self, scope: GrantScope) -> Path:
        """The file."""
        return self.settings_paths.local_file if scope == "local" else self.settings_paths.user_file

    def save_grant(self, offer: GrantOffer, scope: GrantScope) -> str:
        """Write it down; what to tell the person.

        Raises:
            ToolspanError: the file cannot be changed; it is as it was.
        """
        path = self.settings_path(scope)
        if scope == "user":
            add_permissions(path, allow=offer.rules, folders=offer.folders)
            return f"Written to {path}"

        def write_grant() -> bool:
            within = self.settings_paths.project
            return add_permissions(path, allow=offer.rules, folders=offer.folders, within=within)

        if change_local_settings(self.settings_paths, self.trust_store, write_grant):
            return f"Written to {path}"
        return f"Written to {path}; it counts there once you have run `toolspan trust`"
