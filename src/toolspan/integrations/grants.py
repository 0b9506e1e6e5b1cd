"""The answer "always" to a permission request: the offer, its effect on the session, and where it is saved.

The terminal and the page of `toolspan ui` make the same offers.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from toolspan.errors import ToolspanError
from toolspan.integrations.web_approver import AlwaysOffer, GrantScope
from toolspan.runtime.permissions import Permissions, Policy, Rules, decide
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.permissions.modes import MODES, Mode
from toolspan.runtime.permissions.suggestions import Suggestion, offer_updates
from toolspan.runtime.settings import SettingsPaths, TrustStore, add_permissions, change_local_settings
from toolspan.types.decision import Allow, Ask, Decision

PolicyResult = Decision | Awaitable[Decision | None] | None

_MAX_OFFER_CHARACTERS = 300
_MAX_OFFER_LINES = 5
"""The maximum length of an offer; users would accept a longer one without reading it."""
DECISION_SOURCES: Mapping[GrantScope, str] = {
    "session": "user_session",
    "local": "user_permanent",
    "user": "user_permanent",
}


def abbreviate_home(path: Path) -> str:
    """Return a path with `~` for the home folder."""
    home = os.environ.get("HOME")
    if home and path.is_relative_to(home):
        return str(Path("~") / path.relative_to(home))
    return str(path)


@dataclass(frozen=True, slots=True)
class GrantOffer:
    """Rules, folders or a mode that would allow this request and similar ones."""

    rules: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    mode: Mode | None = None

    @classmethod
    def from_suggestions(cls, updates: Iterable[Suggestion]) -> GrantOffer:
        """Combine the suggested permission updates into one offer."""
        rules: list[str] = []
        folders: list[str] = []
        mode: Mode | None = None
        for update in updates:
            match update:
                case {"type": "addRules", "rules": list(values)}:
                    contents = (f"({rule['ruleContent']})" if "ruleContent" in rule else "" for rule in values)
                    rules += [rule["toolName"] + content for rule, content in zip(values, contents, strict=True)]
                case {"type": "addDirectories", "directories": list(values)}:
                    folders += map(str, values)
                case {"type": "setMode", "mode": mode_name}:
                    mode = next((candidate for candidate in MODES if candidate == mode_name), None)
                case _:
                    pass
        return cls(tuple(rules), tuple(folders), mode)

    def summary_lines(self) -> Sequence[str]:
        """Return lines that describe the offer to the user."""
        lines = [*self.rules, *(f"work in {folder}, too" for folder in self.folders)]
        if self.mode == "acceptEdits":
            lines.append("edits in the session's folders, also by mkdir touch rm rmdir mv cp sed")
        return lines

    @property
    def scopes(self) -> tuple[GrantScope, ...]:
        """The scopes in which the offer can be saved. A mode applies only to the session."""
        return ("session",) if self.mode is not None else ("session", "local", "user")

    def add_to(self, permissions: Permissions) -> Permissions:
        """Return the permissions with the offer added."""
        return replace(
            permissions,
            rules=permissions.rules + Rules(allow=self.rules, origin="session"),
            folders=(*permissions.folders, *map(Path, self.folders)),
            mode=self.mode or permissions.mode,
        )


class SessionPermissions:
    """A session's permissions, to which the user can add grants while it runs."""

    def __init__(self, permissions: Permissions) -> None:
        self.set_mode: Callable[[Mode], None] = lambda _mode: None
        self._has_grants = False
        self.current = permissions

    @property
    def policies(self) -> Sequence[Policy]:
        """Policies that always use the current permissions."""
        return (partial(self._apply_policy, 0), partial(self._apply_policy, 1))

    def _apply_policy(self, index: int, request: PermissionRequest) -> PolicyResult:
        return self.current.policies[index](request)

    def fallback(self, request: PermissionRequest) -> PolicyResult:
        """Decide the request with the current fallback policy."""
        return self.current.fallback(request)

    async def find_offer(self, request: PermissionRequest, ask: Ask) -> GrantOffer | None:
        """Return the offer that would allow this request permanently, or None if there is none."""
        offer = GrantOffer.from_suggestions(offer_updates(request, ask))
        lines = offer.summary_lines()
        if not lines or len(lines) > _MAX_OFFER_LINES or max(map(len, lines)) > _MAX_OFFER_CHARACTERS:
            return None
        request = replace(request, mode=offer.mode or request.mode)
        return offer if await _is_allowed_by(offer.add_to(self.current), request) else None

    def add_grant(self, offer: GrantOffer) -> None:
        """Add an offer to the session's permissions."""
        self.current = offer.add_to(self.current)
        self._has_grants = True
        if offer.mode is not None:
            self.set_mode(offer.mode)

    async def is_allowed(self, request: PermissionRequest, ask: Ask) -> bool:
        """Return whether grants added since the request was decided now allow it."""
        if not self._has_grants or ask.source != "config":
            return False
        mode = self.current.mode if request.mode is None else request.mode
        return await _is_allowed_by(self.current, replace(request, mode=mode))


async def _is_allowed_by(permissions: Permissions, request: PermissionRequest) -> bool:
    decision = await decide(permissions.policies, request) or await decide((permissions.fallback,), request)
    return isinstance(decision, Allow)


@dataclass(frozen=True, slots=True)
class GrantWriter:
    """Writer that saves grants to settings files."""

    settings_paths: SettingsPaths
    trust_store: TrustStore

    def settings_path(self, scope: GrantScope) -> Path:
        """Return the settings file for a scope."""
        return self.settings_paths.local_file if scope == "local" else self.settings_paths.user_file

    def scope_labels(self) -> Mapping[GrantScope, str]:
        """Return the label of each scope."""
        return {
            "session": "for this session",
            "local": f"in this project: {abbreviate_home(self.settings_path('local'))}",
            "user": f"in all your projects: {abbreviate_home(self.settings_path('user'))}",
        }

    def save_grant(self, offer: GrantOffer, scope: GrantScope) -> str:
        """Save a grant and return the message for the user."""
        path = self.settings_path(scope)
        write_grant = partial(add_permissions, path, allow=offer.rules, folders=offer.folders)
        if scope == "user":
            write_grant()
            return f"Saved to {path}"
        write_grant = partial(write_grant, within=self.settings_paths.project)
        if change_local_settings(self.settings_paths, self.trust_store, write_grant):
            return f"Saved to {path}"
        return f"Saved to {path}; takes effect there once you run `toolspan trust`"


@dataclass(frozen=True, slots=True)
class PageGrants:
    """The answer "always" on the page of `toolspan ui`, with the same offers as at the terminal."""

    permissions: SessionPermissions
    grant_writer: GrantWriter

    async def is_allowed(self, request: PermissionRequest, ask: Ask) -> bool:
        """Return whether an earlier answer allows a request."""
        return await self.permissions.is_allowed(request, ask)

    async def describe_offer(self, request: PermissionRequest, ask: Ask) -> AlwaysOffer | None:
        """Return the offer for the answer "always", or None if it cannot be offered."""
        offer = await self.permissions.find_offer(request, ask)
        if offer is None:
            return None
        labels = self.grant_writer.scope_labels()
        return AlwaysOffer(allows=tuple(offer.summary_lines()), scopes={scope: labels[scope] for scope in offer.scopes})

    async def grant(self, request: PermissionRequest, ask: Ask, scope: GrantScope) -> Allow:
        """Save the offered rules and folders. Raise ToolspanError if they cannot be saved."""
        offer = await self.permissions.find_offer(request, ask)
        if offer is None or scope not in offer.scopes:
            raise ToolspanError("this cannot be allowed permanently")
        if scope != "session":
            self.grant_writer.save_grant(offer, scope)
        self.permissions.add_grant(offer)
        return Allow("; ".join(offer.summary_lines()), DECISION_SOURCES[scope])
