"""A person at the terminal answers whether a call may run.

In: a question of consent. Out: their answer: once, always (for the session, or written to settings
of theirs), no, or no with a comment that the model reads. One question at a time; what else is to
be asked waits. Without a terminal in front the answer is the one of a session where nobody is.
What is asked comes from a model and its data, so nothing of it reaches the terminal as it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from toolspan.cli.prompt.grants import GrantOffer, GrantScope, GrantWriter, SessionPermissions
from toolspan.cli.prompt.terminal import (
    ASK_USER_QUESTION,
    Terminal,
    ask_questions,
    cut_middle,
    escape_invisible,
    text_width,
    wrap_lines,
)
from toolspan.diffs import unified
from toolspan.diffs.make import make_hunks
from toolspan.errors import ToolspanError
from toolspan.runtime.hooks.events import SessionHookEvent
from toolspan.runtime.outcome import approval_message
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.permissions.rules import command_of
from toolspan.runtime.profiles import FileValues, Profile
from toolspan.session import Session
from toolspan.shell.programs import find_programs
from toolspan.tools.files.notebook import parse_notebook
from toolspan.tools.files.paths import resolve_path
from toolspan.tools.files.safe_read import read_file, stat_path
from toolspan.tools.files.text import (
    Codec,
    DecodedText,
    TextRange,
    decode_text,
    find_occurrences,
    match_quote_style,
    normalize_newlines,
    replace_ranges,
)
from toolspan.types.decision import Allow, Ask, Deny, MissingPermissions

MAX_PREVIEW_BYTES = 4 << 20
"""Bytes of a file that is still compared."""
_ToolInput = Mapping[str, object]


def preview_change(question: PermissionRequest, values: FileValues) -> str | None:
    """The diff; None where there is none to show."""
    previewer = _PREVIEWERS.get(question.tool)
    name = question.input.get("file_path", question.input.get("notebook_path"))
    if previewer is None or not isinstance(name, str):
        return None
    try:
        path = resolve_path(name, question.cwd, question.path_scope().home if values.expands_home else None)
        near = path.is_relative_to(question.cwd)
        display_path = path.relative_to(question.cwd) if near else path
        return previewer(question.input, _TargetFile(str(display_path), _read_current(path), values)) or None
    except (ToolspanError, LookupError, ValueError, OSError):
        return None


def _read_current(path: Path) -> DecodedText | None:
    """The file as it is; None if there is none."""
    return None if stat_path(path) is None else decode_text(read_file(path, MAX_PREVIEW_BYTES).data)


@dataclass(frozen=True, slots=True)
class _TargetFile:
    """What is to be changed."""

    name: str
    current: DecodedText | None
    """None: there is no file yet."""
    values: FileValues

    def diff_to(self, new: str) -> str:
        """From what it is to this."""
        if self.current is None:
            return unified(make_hunks("", new), self.name, change="create")
        return unified(make_hunks(self.current.printable, new), self.name)


def _preview_write(tool_input: _ToolInput, file: _TargetFile) -> str:
    return file.diff_to(normalize_newlines(str(tool_input["content"])))


def _preview_edit(tool_input: _ToolInput, file: _TargetFile) -> str:
    return file.diff_to(_apply_edits(file, [tool_input]).printable)


def _preview_multi_edit(tool_input: _ToolInput, file: _TargetFile) -> str:
    edits = tool_input["edits"]
    return file.diff_to(_apply_edits(file, edits if isinstance(edits, list) else []).printable)


def _apply_edits(file: _TargetFile, edits: Sequence[_ToolInput]) -> DecodedText:
    """The text after the edits.

    Raises:
        LookupError: one of them does not fit.
    """
    text = file.current or DecodedText("", "", Codec("utf-8"))
    for edit in edits:
        old, new = normalize_newlines(str(edit["old_string"])), str(edit["new_string"])
        spans = find_occurrences(text.normalized, old) if old else [TextRange(0, 0)]
        if not spans:
            raise LookupError(old)
        replaced = text.normalized[spans[0].start : spans[0].end]
        targets = spans if edit.get("replace_all") is True else spans[:1]
        new = match_quote_style(new, replaced) if file.values.keeps_curly else new
        text = replace_ranges(text, targets, new)
    return text


def _preview_cell(tool_input: _ToolInput, file: _TargetFile) -> str:
    """The source of the cell before and after: the file around it says nothing to people."""
    if file.current is None:
        raise LookupError(file.name)
    mode, cell_id = tool_input.get("edit_mode") or "replace", tool_input.get("cell_id")
    new = "" if mode == "delete" else str(tool_input.get("new_source", ""))
    old = "" if mode == "insert" else _cell_source(file.current, cell_id)
    return unified(make_hunks(old, new), f"{file.name}#{cell_id or 'first'}")


def _cell_source(text: DecodedText, cell_id: object) -> str:
    cells = parse_notebook(text.raw).cells
    cells_by_id = {f"cell-{at}": cell for at, cell in enumerate(cells)}
    cells_by_id |= {str(cell["id"]): cell for cell in cells if "id" in cell}
    source = cells_by_id[str(cell_id)].get("source", "")
    return "".join(map(str, source)) if isinstance(source, list) else str(source)


_PREVIEWERS: Mapping[str, Callable[[_ToolInput, _TargetFile], str]] = {
    "Edit": _preview_edit,
    "MultiEdit": _preview_multi_edit,
    "NotebookEdit": _preview_cell,
    "Write": _preview_write,
}


_INDENT = "  "
_QUOTE_PREFIX = "  | "
"""Before every line that is not our own: no call can pass its words off as ours."""
_MIN_LINES = 6
"""Lines of what is asked about that are shown on the smallest screen."""
_RESERVED_LINES = 12
"""Lines of a screen that are needed for everything else."""
_DECISION_SOURCES: Mapping[GrantScope, str] = {
    "session": "user_session",
    "local": "user_permanent",
    "user": "user_permanent",
}
_BASIS_TEXTS = {
    "outside": "it is outside of the session's folders",
    "plan": "the session only plans: nothing is to be changed yet",
    "protected": "this file decides what programs do later",
    "unclear": "the command could hide one that is denied or asked about",
}
_CHOICES = {
    **dict.fromkeys(("o", "once", "y", "yes"), "o"),
    **dict.fromkeys(("a", "always"), "a"),
    **dict.fromkeys(("d", "deny", "n", "no"), "d"),
    **dict.fromkeys(("c", "comment"), "c"),
    **dict.fromkeys(("v", "view"), "v"),
}
_DIFF_COLOURS = {"+": 32, "-": 31, "@": 36}
"""Of the lines of a diff, by their first character."""
_DENIED = Deny(None, "user_reject", stop=True)
"""Without a word: the rest of what was asked for is not wanted either."""


@dataclass(slots=True, kw_only=True)
class TerminalApprover:
    """Asks the person at the terminal. An `Approver`: may be called by several tasks at once."""

    terminal: Terminal
    permissions: SessionPermissions
    grant_writer: GrantWriter
    profile: Profile
    notify: Callable[[str], Coroutine[None, None, None]] | None = None
    """Is told which tool asks while it does, and is ended with the answer."""
    _lock: anyio.Lock = field(default_factory=anyio.Lock)
    _waiting_count: int = 0

    async def __call__(self, question: PermissionRequest, ask: Ask) -> Allow | Deny:
        """The person's answer."""
        self._waiting_count += 1
        try:
            async with self._lock:
                return await self._answer_request(question, ask)
        finally:
            self._waiting_count -= 1

    async def _answer_request(self, question: PermissionRequest, ask: Ask) -> Allow | Deny:
        if await self.permissions.is_allowed(question, ask):
            return Allow(None, _DECISION_SOURCES["session"])
        if not self.terminal.is_foreground:
            return self._deny_unattended(question, ask)
        async with anyio.create_task_group() as group:
            if self.notify is not None:
                group.start_soon(self.notify, question.tool)
            answer = await self._prompt_user(question, ask)
            group.cancel_scope.cancel()
        return answer

    async def _prompt_user(self, question: PermissionRequest, ask: Ask) -> Allow | Deny:
        try:
            async with self.terminal.begin_question():
                return await self._ask_user(question, ask)
        except OSError:  # the terminal went away, and whoever sat there with it
            return self._deny_unattended(question, ask)

    def _deny_unattended(self, question: PermissionRequest, ask: Ask) -> Deny:
        return Deny(approval_message(question, ask, self.profile.refusals), "config", basis=ask.basis)

    async def _ask_user(self, question: PermissionRequest, ask: Ask) -> Allow | Deny:
        await self._write_text(self._format_header(question))
        if question.tool == ASK_USER_QUESTION:
            answered_input = await ask_questions(question.input, self._write_text, self.terminal.read_line)
            return _DENIED if answered_input is None else Allow(None, "user_temporary", answered_input)
        offer = await self.permissions.find_offer(question, ask)
        subject = _PromptSubject.from_request(question, self.profile)
        await self._write_text(self._format_request(question, ask, subject, offer))
        while True:
            answer = await self._read_choice(subject, offer)
            if answer is not None:
                return answer

    async def _read_choice(self, subject: _PromptSubject, offer: GrantOffer | None) -> Allow | Deny | None:
        """One answer; None when it was none, or led back."""
        reply = await self.terminal.read_line(_format_menu(offer, cut_off=self._is_cut(subject)))
        if reply is None:
            await self._write_text("\nNo answer: denied.\n")
            return _DENIED
        word, _, rest = reply.partition(" ")
        match _CHOICES.get(word.lower()):
            case "o" if not rest:
                return Allow(None, "user_temporary")
            case "a" if offer is not None and not rest:
                return await self._grant_always(offer)
            case "d" if not rest:
                return _DENIED
            case "d" | "c":
                return await self._read_comment(rest.strip())
            case "v":
                await self._write_text("".join(f"{line}\n" for line in self._subject_lines(subject)))
                return None
            case _:
                return None

    async def _read_comment(self, comment: str) -> Deny | None:
        reply = comment or await self.terminal.read_line("What shall the model do instead? (empty: back) ")
        if reply is None:
            return _DENIED
        return Deny(reply, "user_reject") if reply else None

    async def _grant_always(self, offer: GrantOffer) -> Allow | None:
        scope = await self._read_scope(offer)
        if scope is None:
            return None
        if scope != "session":
            try:
                message = self.grant_writer.save_grant(offer, scope)
            except ToolspanError as error:
                await self._write_text(f"Not written, nothing is allowed yet: {escape_invisible(str(error))}\n")
                return None
            await self._write_text(f"{escape_invisible(message)}\n")
        self.permissions.add_grant(offer)
        return Allow("; ".join(offer.summary_lines()), _DECISION_SOURCES[scope])

    async def _read_scope(self, offer: GrantOffer) -> GrantScope | None:
        if offer.scopes == ("session",):
            return "session"
        await self._write_text("".join(self._scope_lines(offer)))
        reply = await self.terminal.read_line("Where? (empty: back) ")
        numbered = {str(number): scope for number, scope in enumerate(offer.scopes, 1)}
        return numbered.get(reply or "")

    def _scope_lines(self, offer: GrantOffer) -> Iterator[str]:
        labels: Mapping[GrantScope, str] = {
            "session": "for this session",
            "local": f"in this project: {_abbreviate_home(self.grant_writer.settings_path('local'))}",
            "user": f"in all your projects: {_abbreviate_home(self.grant_writer.settings_path('user'))}",
        }
        for number, scope in enumerate(offer.scopes, 1):
            yield f"{_INDENT}{number} {escape_invisible(labels[scope])}\n"

    # What is shown

    async def _write_text(self, text: str) -> None:
        await self.terminal.write(text)

    def _format_header(self, question: PermissionRequest) -> str:
        width = self.terminal.size.columns
        others = self._waiting_count - 1
        title = f"--- {escape_invisible(question.tool)} asks for consent "
        right = f" {others} more to answer ---" if others else ""
        return f"\n{title}{'-' * max(width - text_width(title) - len(right), 3)}{right}\n"

    def _format_request(
        self, question: PermissionRequest, ask: Ask, subject: _PromptSubject, offer: GrantOffer | None
    ) -> str:
        lines = cut_middle(self._subject_lines(subject), self._max_lines, ", v shows them")
        lines.append("")
        details = [("folder", _abbreviate_home(question.cwd)), ("why", _explain_request(question, ask))]
        details += [("always", line) for line in (offer.summary_lines() if offer else ())]
        width = self.terminal.size.columns - len(_INDENT) - 8
        for name, text in details:
            # Somebody who agrees for good has to read all of it.
            first, *more = cut_middle(list(wrap_lines(text, width)), len(text) if name == "always" else _MIN_LINES)
            lines.append(f"{_INDENT}{name:<8}{first}")
            lines += [f"{_INDENT}{'':<8}{line}" for line in more]
        return "".join(f"{line}\n" for line in lines)

    @property
    def _max_lines(self) -> int:
        return max(self.terminal.size.lines - _RESERVED_LINES, _MIN_LINES)

    def _is_cut(self, subject: _PromptSubject) -> bool:
        return len(self._subject_lines(subject)) > self._max_lines

    def _subject_lines(self, subject: _PromptSubject) -> Sequence[str]:
        width = self.terminal.size.columns - len(_QUOTE_PREFIX)
        return [f"{_QUOTE_PREFIX}{line}" for line in subject.terminal_lines(width, colours=self.terminal.has_colours)]


async def notify_permission_prompt(session: Session, tool: str) -> None:
    """Tell the hooks that somebody is waited for."""
    fields = {"message": f"Claude needs your permission to use {tool}", "notification_type": "permission_prompt"}
    await session.fire_hook_event(SessionHookEvent(point="Notification", subject="permission_prompt", fields=fields))


@dataclass(frozen=True, slots=True)
class _PromptSubject:
    """What somebody has to see before they can agree to it."""

    text: str
    is_diff: bool = False

    @classmethod
    def from_request(cls, question: PermissionRequest, profile: Profile) -> _PromptSubject:
        """The command, the change to a file, or whatever else the call was given."""
        command = command_of(question)
        if command is not None:
            return cls(command)
        change = preview_change(question, profile.files)
        if change is not None:
            return cls(change.rstrip("\n"), is_diff=True)
        return cls("\n".join(_format_fields(question.input)))

    def terminal_lines(self, width: int, *, colours: bool) -> Iterator[str]:
        """As lines of a terminal."""
        for line in self.text.split("\n"):
            colour = _DIFF_COLOURS.get(line[:1]) if self.is_diff and colours else None
            for piece in wrap_lines(line, width):
                yield piece if colour is None else f"\x1b[{colour}m{piece}\x1b[0m"


def _format_fields(tool_input: Mapping[str, object]) -> Iterator[str]:
    for key, value in tool_input.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
        yield f"{key}: {text}"


def _format_menu(offer: GrantOffer | None, *, cut_off: bool) -> str:
    choices = ["o once", *(["a always"] if offer else []), "d deny", "c deny with a comment"]
    choices += ["v view all"] if cut_off else []
    return f"{', '.join(choices)} > "


def _explain_request(question: PermissionRequest, ask: Ask) -> str:
    if ask.source == "hook":
        return f"a hook asks: {ask.reason or 'it gives no reason'}"
    if ask.rule is not None:
        return f"the rule {ask.rule} asks" + (f" ({ask.origin})" if ask.origin else "")
    if ask.needs is not None and ask.basis is None:
        unclear = find_programs(command_of(question) or "").uncertainties
        return "it is not clear what the line would run" if unclear else _explain_missing_permission(ask.needs)
    basis_text = _BASIS_TEXTS.get(ask.basis or "")
    return basis_text or ask.reason or "no rule allows it"


def _explain_missing_permission(needs: MissingPermissions) -> str:
    reach = needs.reach
    if reach is not None:
        what = f"{reach.program} reaches" if reach.program else "output goes to"
        side = "" if reach.inside else ", outside of the session's folders"
        return f"{what} {reach.path}{side}"
    return f"no rule allows {'; '.join(needs.parts)}" if needs.of > 1 else "no rule allows it"


def _abbreviate_home(path: Path) -> str:
    home = os.environ.get("HOME")
    if home and path.is_relative_to(home):
        return str(Path("~") / path.relative_to(home))
    return str(path)
