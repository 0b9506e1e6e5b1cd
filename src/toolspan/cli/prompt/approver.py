"""A person at the terminal answers whether a call may run.

In: a question of consent. Out: their answer: once, always (for the session, or written to settings
of theirs), no, or no with a comment that the model reads. One question at a time; what else is to
be asked waits. Without a terminal in front the answer is the one of a session where nobody is.
What is asked comes from a model and its data, so nothing of it reaches the terminal as it is.
"""

import json
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from toolspan.cli.prompt.change import change_of
from toolspan.cli.prompt.grants import Keeper, Offer, Standing, Where
from toolspan.cli.prompt.questions import TOOL, answers
from toolspan.cli.prompt.text import columns, cut, folded, visible
from toolspan.cli.prompt.tty import Terminal
from toolspan.errors import ToolspanError
from toolspan.hooks.points import Occasion
from toolspan.model.decision import Allow, Ask, Deny, Needs
from toolspan.permission.decide import Question
from toolspan.permission.rules import command_of
from toolspan.profile import Profile
from toolspan.run.denial import asked_words
from toolspan.session import Session
from toolspan.shell.seen import see

_INDENT = "  "
_QUOTED = "  | "
"""Before every line that is not our own: no call can pass its words off as ours."""
_LEAST = 6
"""Lines of what is asked about that are shown on the smallest screen."""
_REST = 12
"""Lines of a screen that are needed for everything else."""
_SOURCES: Mapping[Where, str] = {
    "session": "user_session",
    "local": "user_permanent",
    "user": "user_permanent",
}
_BASES = {
    "outside": "it is outside of the session's folders",
    "plan": "the session only plans: nothing is to be changed yet",
    "protected": "this file decides what programs do later",
    "unclear": "the command could hide one that is denied or asked about",
}
_WORDS = {
    **dict.fromkeys(("o", "once", "y", "yes"), "o"),
    **dict.fromkeys(("a", "always"), "a"),
    **dict.fromkeys(("d", "deny", "n", "no"), "d"),
    **dict.fromkeys(("c", "comment"), "c"),
    **dict.fromkeys(("v", "view"), "v"),
}
_COLOURS = {"+": 32, "-": 31, "@": 36}
"""Of the lines of a diff, by their first character."""
_NO = Deny(None, "user_reject", stop=True)
"""Without a word: the rest of what was asked for is not wanted either."""


@dataclass(slots=True, kw_only=True)
class TerminalApprover:
    """Asks the person at the terminal. An `Approver`: may be called by several tasks at once."""

    terminal: Terminal
    standing: Standing
    keeper: Keeper
    profile: Profile
    notify: Callable[[str], Coroutine[None, None, None]] | None = None
    """Is told which tool asks while it does, and is ended with the answer."""
    _turn: anyio.Lock = field(default_factory=anyio.Lock)
    _waiting: int = 0

    async def __call__(self, question: Question, ask: Ask) -> Allow | Deny:
        """The person's answer."""
        self._waiting += 1
        try:
            async with self._turn:
                return await self._answer(question, ask)
        finally:
            self._waiting -= 1

    async def _answer(self, question: Question, ask: Ask) -> Allow | Deny:
        if await self.standing.allows(question, ask):
            return Allow(None, _SOURCES["session"])
        if not self.terminal.listens_to_us:
            return self._nobody(question, ask)
        async with anyio.create_task_group() as group:
            if self.notify is not None:
                group.start_soon(self.notify, question.tool)
            answer = await self._heard(question, ask)
            group.cancel_scope.cancel()
        return answer

    async def _heard(self, question: Question, ask: Ask) -> Allow | Deny:
        try:
            async with self.terminal.asking():
                return await self._asked(question, ask)
        except OSError:  # the terminal went away, and whoever sat there with it
            return self._nobody(question, ask)

    def _nobody(self, question: Question, ask: Ask) -> Deny:
        return Deny(asked_words(question, ask, self.profile.refusals), "config", basis=ask.basis)

    async def _asked(self, question: Question, ask: Ask) -> Allow | Deny:
        await self._say(self._head(question))
        if question.tool == TOOL:
            given = await answers(question.input, self._say, self.terminal.line)
            return _NO if given is None else Allow(None, "user_temporary", given)
        offer = await self.standing.offer(question, ask)
        shown = _Shown.of(question, self.profile)
        await self._say(self._told(question, ask, shown, offer))
        while True:
            answer = await self._choice(shown, offer)
            if answer is not None:
                return answer

    async def _choice(self, shown: "_Shown", offer: Offer | None) -> Allow | Deny | None:
        """One answer; None when it was none, or led back."""
        said = await self.terminal.line(_menu(offer, cut_off=self._is_cut(shown)))
        if said is None:
            await self._say("\nNo answer: denied.\n")
            return _NO
        word, _, rest = said.partition(" ")
        match _WORDS.get(word.lower()):
            case "o" if not rest:
                return Allow(None, "user_temporary")
            case "a" if offer is not None and not rest:
                return await self._always(offer)
            case "d" if not rest:
                return _NO
            case "d" | "c":
                return await self._comment(rest.strip())
            case "v":
                await self._say("".join(f"{line}\n" for line in self._lines(shown)))
                return None
            case _:
                return None

    async def _comment(self, words: str) -> Deny | None:
        said = words or await self.terminal.line("What shall the model do instead? (empty: back) ")
        if said is None:
            return _NO
        return Deny(said, "user_reject") if said else None

    async def _always(self, offer: Offer) -> Allow | None:
        where = await self._where(offer)
        if where is None:
            return None
        if where != "session":
            try:
                told = self.keeper.keep(offer, where)
            except ToolspanError as error:
                await self._say(f"Not written, nothing is allowed yet: {visible(str(error))}\n")
                return None
            await self._say(f"{visible(told)}\n")
        self.standing.add(offer)
        return Allow("; ".join(offer.lines()), _SOURCES[where])

    async def _where(self, offer: Offer) -> Where | None:
        if offer.places == ("session",):
            return "session"
        await self._say("".join(self._where_lines(offer)))
        said = await self.terminal.line("Where? (empty: back) ")
        numbered = {str(number): where for number, where in enumerate(offer.places, 1)}
        return numbered.get(said or "")

    def _where_lines(self, offer: Offer) -> Iterator[str]:
        words: Mapping[Where, str] = {
            "session": "for this session",
            "local": f"in this project: {_at_home(self.keeper.path('local'))}",
            "user": f"in all your projects: {_at_home(self.keeper.path('user'))}",
        }
        for number, where in enumerate(offer.places, 1):
            yield f"{_INDENT}{number} {visible(words[where])}\n"

    # What is shown

    async def _say(self, text: str) -> None:
        await self.terminal.write(text)

    def _head(self, question: Question) -> str:
        width = self.terminal.size.columns
        others = self._waiting - 1
        left = f"--- {visible(question.tool)} asks for consent "
        right = f" {others} more to answer ---" if others else ""
        return f"\n{left}{'-' * max(width - columns(left) - len(right), 3)}{right}\n"

    def _told(self, question: Question, ask: Ask, shown: "_Shown", offer: Offer | None) -> str:
        lines = cut(self._lines(shown), self._most, ", v shows them")
        lines.append("")
        about = [("folder", _at_home(question.cwd)), ("why", _why(question, ask))]
        about += [("always", line) for line in (offer.lines() if offer else ())]
        width = self.terminal.size.columns - len(_INDENT) - 8
        for name, text in about:
            # Somebody who agrees for good has to read all of it.
            first, *more = cut(list(folded(text, width)), len(text) if name == "always" else _LEAST)
            lines.append(f"{_INDENT}{name:<8}{first}")
            lines += [f"{_INDENT}{'':<8}{line}" for line in more]
        return "".join(f"{line}\n" for line in lines)

    @property
    def _most(self) -> int:
        return max(self.terminal.size.lines - _REST, _LEAST)

    def _is_cut(self, shown: "_Shown") -> bool:
        return len(self._lines(shown)) > self._most

    def _lines(self, shown: "_Shown") -> Sequence[str]:
        width = self.terminal.size.columns - len(_QUOTED)
        return [f"{_QUOTED}{line}" for line in shown.lines(width, colours=self.terminal.colours)]


async def notice_of_question(session: Session, tool: str) -> None:
    """Tell the hooks that somebody is waited for."""
    fields = {
        "message": f"Claude needs your permission to use {tool}",
        "notification_type": "permission_prompt",
    }
    await session.fire(Occasion(point="Notification", about="permission_prompt", fields=fields))


@dataclass(frozen=True, slots=True)
class _Shown:
    """What somebody has to see before they can agree to it."""

    text: str
    is_diff: bool = False

    @classmethod
    def of(cls, question: Question, profile: Profile) -> "_Shown":
        """The command, the change to a file, or whatever else the call was given."""
        command = command_of(question)
        if command is not None:
            return cls(command)
        change = change_of(question, profile.files)
        if change is not None:
            return cls(change.rstrip("\n"), is_diff=True)
        return cls("\n".join(_fields(question.input)))

    def lines(self, width: int, *, colours: bool) -> Iterator[str]:
        """As lines of a terminal."""
        for line in self.text.split("\n"):
            colour = _COLOURS.get(line[:1]) if self.is_diff and colours else None
            for piece in folded(line, width):
                yield piece if colour is None else f"\x1b[{colour}m{piece}\x1b[0m"


def _fields(given: Mapping[str, object]) -> Iterator[str]:
    for key, value in given.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
        yield f"{key}: {text}"


def _menu(offer: Offer | None, *, cut_off: bool) -> str:
    choices = ["o once", *(["a always"] if offer else []), "d deny", "c deny with a comment"]
    choices += ["v view all"] if cut_off else []
    return f"{', '.join(choices)} > "


def _why(question: Question, ask: Ask) -> str:
    if ask.source == "hook":
        return f"a hook asks: {ask.reason or 'it gives no reason'}"
    if ask.rule is not None:
        return f"the rule {ask.rule} asks" + (f" ({ask.origin})" if ask.origin else "")
    if ask.needs is not None and ask.basis is None:
        unclear = see(command_of(question) or "").unclear
        return "it is not clear what the line would run" if unclear else _lacking(ask.needs)
    known = _BASES.get(ask.basis or "")
    return known or ask.reason or "no rule allows it"


def _lacking(needs: Needs) -> str:
    reach = needs.reach
    if reach is not None:
        what = f"{reach.program} reaches" if reach.program else "output goes to"
        side = "" if reach.inside else ", outside of the session's folders"
        return f"{what} {reach.path}{side}"
    return f"no rule allows {'; '.join(needs.parts)}" if needs.of > 1 else "no rule allows it"


def _at_home(path: Path) -> str:
    home = os.environ.get("HOME")
    if home and path.is_relative_to(home):
        return str(Path("~") / path.relative_to(home))
    return str(path)
