"""The approver that asks the user at the terminal.

Only one question is asked at a time. If the process is not in the foreground of a terminal, requests are decided as
if there were no user. All model output is escaped before it is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Literal

import anyio

from toolspan.cli.prompt.terminal import Terminal, ask_questions, cut_middle, style_pieces
from toolspan.errors import ToolspanError
from toolspan.integrations.grants import DECISION_SOURCES, GrantOffer, GrantWriter, SessionPermissions, abbreviate_home
from toolspan.integrations.web_approver import GrantScope
from toolspan.runtime.outcome import approval_message
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.profiles import Profile
from toolspan.tools.request_preview import RequestPreview, explain_request, preview_request
from toolspan.types.decision import Allow, Ask, Deny
from toolspan.types.visible_text import TextRow, escape_invisible, split_invisible, text_width, wrap_pieces, wrap_text

_INDENT = "  "
_QUOTE_PREFIX = "  | "
"""Prefix for every line from the model, so that a call cannot imitate the prompt."""
_MIN_LINES = 6
_RESERVED_LINES = 12
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
                    return Allow(None, DECISION_SOURCES["session"])
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
                if request.kind == "question":
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
        return Allow("; ".join(offer.summary_lines()), DECISION_SOURCES[scope])

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
        details += [("folder", abbreviate_home(request.cwd)), ("why", explain_request(request, ask))]
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
