"""The approver that asks the user at the terminal, and the grants made by the answer "always".

Only one question is asked at a time. If the process is not in the foreground of a terminal, requests are decided as
if there were no user. All model output is escaped before it is printed.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import anyio

from toolspan.cli.prompt.terminal import (
    ASK_USER_QUESTION,
    Terminal,
    ask_questions,
    cut_middle,
    style_pieces,
)
from toolspan.errors import ToolspanError
from toolspan.integrations.web_approver import AlwaysOffer, GrantScope
from toolspan.runtime.hooks.events import SessionHookEvent
from toolspan.runtime.outcome import approval_message
from toolspan.runtime.permissions import Permissions, Policy, Rules, decide
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.permissions.modes import MODES, Mode
from toolspan.runtime.permissions.suggestions import Suggestion, offer_updates
from toolspan.runtime.profiles import Profile
from toolspan.runtime.settings import SettingsPaths, TrustStore, add_permissions, change_local_settings
from toolspan.session import Session
from toolspan.tools.request_preview import RequestPreview, explain_request, preview_request
from toolspan.types.decision import Allow, Ask, Decision, Deny
from toolspan.types.visible_text import TextRow, escape_invisible, split_invisible, text_width, wrap_pieces, wrap_text

PolicyResult = Decision | Awaitable[Decision | None] | None

_MAX_OFFER_CHARACTERS = 300
_MAX_OFFER_LINES = 5
"""The maximum length of an offer; users would accept a longer one without reading it."""
_INDENT = "  "
_QUOTE_PREFIX = "  | "
"""Prefix for every line from the model, so that a call cannot imitate the prompt."""
_MIN_LINES = 6
_RESERVED_LINES = 12
_DECISION_SOURCES: Mapping[GrantScope, str] = {
    "session": "user_session",
    "local": "user_permanent",
    "user": "user_permanent",
}
_CHOICES = {
    **dict.fromkeys(("o", "once", "y", "yes"), "o"),
    **dict.fromkeys(("a", "always"), "a"),
    **dict.fromkeys(("d", "deny", "n", "no"), "d"),
    **dict.fromkeys(("c", "comment"), "c"),
    **dict.fromkeys(("v", "view"), "v"),
}
_DIFF_COLOURS: Mapping[str, int] = {"added": 32, "removed": 31, "hunk": 36}
_DENIED = Deny(None, "user_reject", stop=True)


@dataclass(slots=True, kw_only=True)
class TerminalApprover:
    """An approver that asks the user at the terminal. Several tasks may call it at once."""

    terminal: Terminal
    permissions: SessionPermissions
    grant_writer: GrantWriter
    profile: Profile
    notify: Callable[[str], Coroutine[None, None, None]] | None = None
    """A function called with the tool name when a question is shown, and cancelled when it is answered."""
    _lock: anyio.Lock = field(default_factory=anyio.Lock)
    _waiting_count: int = 0

    async def __call__(self, request: PermissionRequest, ask: Ask) -> Allow | Deny:
        """Return the user's answer."""
        self._waiting_count += 1
        try:
            async with self._lock:
                if await self.permissions.is_allowed(request, ask):
                    return Allow(None, _DECISION_SOURCES["session"])
                if not self.terminal.is_foreground:
                    return self._deny_unattended(request, ask)
                async with anyio.create_task_group() as group:
                    if self.notify is not None:
                        group.start_soon(self.notify, request.tool)
                    answer = await self._ask_user(request, ask)
                    group.cancel_scope.cancel()
                return answer
        finally:
            self._waiting_count -= 1

    def _deny_unattended(self, request: PermissionRequest, ask: Ask) -> Deny:
        return Deny(approval_message(request, ask, self.profile.refusals), "config", basis=ask.basis)

    async def _ask_user(self, request: PermissionRequest, ask: Ask) -> Allow | Deny:
        try:
            async with self.terminal.begin_question():
                others = self._waiting_count - 1
                title = f"--- {escape_invisible(request.tool)} needs permission "
                right = f" {others} more waiting ---" if others else ""
                line = "-" * max(self.terminal.size.columns - text_width(title) - len(right), 3)
                await self.terminal.write(f"\n{title}{line}{right}\n")
                if request.tool == ASK_USER_QUESTION:
                    answered_input = await ask_questions(request.input, self.terminal.write, self.terminal.read_line)
                    return _DENIED if answered_input is None else Allow(None, "user_temporary", answered_input)
                offer = await self.permissions.find_offer(request, ask)
                subject = preview_request(request, self.profile)
                is_shown = len(self._subject_lines(subject)) <= self._max_lines
                await self.terminal.write(self._format_request(request, ask, subject, offer))
                while True:
                    answer = await self._read_choice(offer, is_shown=is_shown)
                    if isinstance(answer, Allow | Deny):
                        return answer
                    if answer == "view":
                        await self.terminal.write(self._format_request(request, ask, subject, offer, whole=True))
                        is_shown = True
        except OSError:  # the terminal was closed
            return self._deny_unattended(request, ask)

    async def _read_choice(self, offer: GrantOffer | None, *, is_shown: bool) -> Allow | Deny | Literal["view"] | None:
        """Read one answer. Return None if it is invalid or leads back to the menu.

        A call of which lines are not shown can be denied or viewed, but not allowed.
        """
        allowing = ["o once", *(["a always"] if offer else [])] if is_shown else ["v view all"]
        reply = await self.terminal.read_line(f"{', '.join([*allowing, 'd deny', 'c deny with a comment'])} > ")
        if reply is None:
            await self.terminal.write("\nNo answer: denied.\n")
            return _DENIED
        choice, _, rest = reply.partition(" ")
        match _CHOICES.get(choice.lower()):
            case "o" | "a" if not is_shown:
                await self.terminal.write("Not all lines are shown: v shows them, then you can allow it.\n")
                return None
            case "o" if not rest:
                return Allow(None, "user_temporary")
            case "a" if offer is not None and not rest:
                return await self._grant_always(offer)
            case "d" if not rest:
                return _DENIED
            case "d" | "c":
                comment = rest.strip() or await self.terminal.read_line(
                    "What should the model do instead? (empty: back) "
                )
                if comment is None:
                    return _DENIED
                return Deny(comment, "user_reject") if comment else None
            case "v":
                return "view"
            case _:
                return None

    async def _grant_always(self, offer: GrantOffer) -> Allow | None:
        scope = await self._read_scope(offer)
        if scope is None:
            return None
        if scope != "session":
            try:
                message = self.grant_writer.save_grant(offer, scope)
            except ToolspanError as error:
                await self.terminal.write(f"Not saved, so nothing is allowed yet: {escape_invisible(str(error))}\n")
                return None
            await self.terminal.write(f"{escape_invisible(message)}\n")
        self.permissions.add_grant(offer)
        return Allow("; ".join(offer.summary_lines()), _DECISION_SOURCES[scope])

    async def _read_scope(self, offer: GrantOffer) -> GrantScope | None:
        if offer.scopes == ("session",):
            return "session"
        labels = self.grant_writer.scope_labels()
        numbered = {str(number): scope for number, scope in enumerate(offer.scopes, 1)}
        lines = [f"{_INDENT}{number} {escape_invisible(labels[scope])}\n" for number, scope in numbered.items()]
        await self.terminal.write("".join(lines))
        return numbered.get(await self.terminal.read_line("Where? (empty: back) ") or "")

    def _format_request(
        self,
        request: PermissionRequest,
        ask: Ask,
        subject: RequestPreview,
        offer: GrantOffer | None,
        *,
        whole: bool = False,
    ) -> str:
        lines = self._subject_lines(subject)
        if not whole:
            lines = cut_middle(lines, self._max_lines, ", v shows all")
        lines.append("")
        details = [("file", "; ".join([file.path, *file.notes])) for file in subject.files]
        details += [("folder", _abbreviate_home(request.cwd)), ("why", explain_request(request, ask))]
        details += [("always", line) for line in (offer.summary_lines() if offer else ())]
        width = self.terminal.size.columns - len(_INDENT) - 8
        for name, text in details:
            rows = wrap_pieces(split_invisible(text), width)
            wrapped = [style_pieces(row, colours=self.terminal.has_colours) for row in rows]
            # Users who allow something must see the whole file name and rule.
            first, *more = cut_middle(wrapped, _MIN_LINES if name in ("folder", "why") else len(wrapped))
            lines.append(f"{_INDENT}{name:<8}{first}")
            lines += [f"{_INDENT}{'':<8}{line}" for line in more]
        return "".join(f"{line}\n" for line in lines)

    @property
    def _max_lines(self) -> int:
        return max(self.terminal.size.lines - _RESERVED_LINES, _MIN_LINES)

    def _subject_lines(self, subject: RequestPreview) -> list[str]:
        width = self.terminal.size.columns - len(_QUOTE_PREFIX)
        rows = wrap_text(subject.raw_text, width, is_diff=subject.is_diff)
        return [f"{_QUOTE_PREFIX}{self._style_row(row)}" for row in rows]

    def _style_row(self, row: TextRow) -> str:
        colours = self.terminal.has_colours
        text = style_pieces(row.pieces, colours=colours)
        colour = _DIFF_COLOURS.get(row.kind) if colours else None
        return text if colour is None else f"\x1b[{colour}m{text}\x1b[0m"


async def notify_permission_prompt(session: Session, tool: str) -> None:
    """Run the Notification hooks when a permission prompt is shown."""
    fields = {"message": f"Claude needs your permission to use {tool}", "notification_type": "permission_prompt"}
    await session.fire_hook_event(SessionHookEvent(point="Notification", subject="permission_prompt", fields=fields))


def _abbreviate_home(path: Path) -> str:
    home = os.environ.get("HOME")
    if home and path.is_relative_to(home):
        return str(Path("~") / path.relative_to(home))
    return str(path)


# Grants: the answer "always"


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
            "local": f"in this project: {_abbreviate_home(self.settings_path('local'))}",
            "user": f"in all your projects: {_abbreviate_home(self.settings_path('user'))}",
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
        return Allow("; ".join(offer.summary_lines()), _DECISION_SOURCES[scope])
