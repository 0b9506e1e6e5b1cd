"""What a person's "always" means: which rules, from when on, and where they are kept.

In: the suggestions for a question, and where somebody wants them. Out: a session in which they
hold from now on, and, where that was chosen, a settings file that has them. Nobody is asked here.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from toolspan.model.decision import Allow, Ask, Decision
from toolspan.permission import Permissions, Policy, Rules, decide
from toolspan.permission.decide import Question
from toolspan.permission.modes import MODES, Mode
from toolspan.permission.suggest import Suggestion, suggestions
from toolspan.settings import Places, TrustStore, change_own, grant

LONGEST = 300
MOST = 5
"""Characters and lines of what is offered: nobody agrees for good to what they do not read."""
Where = Literal["session", "local", "user"]
Opinion = Decision | Awaitable[Decision | None] | None


@dataclass(frozen=True, slots=True)
class Offer:
    """What would answer a question and those like it."""

    rules: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    mode: Mode | None = None

    @classmethod
    def of(cls, found: Iterable[Suggestion]) -> "Offer":
        """What suggestions come to together."""
        rules: list[str] = []
        folders: list[str] = []
        mode: Mode | None = None
        for one in found:
            match one:
                case {"type": "addRules", "rules": list(given)}:
                    rules += [_rule_text(rule) for rule in given]
                case {"type": "addDirectories", "directories": list(given)}:
                    folders += map(str, given)
                case {"type": "setMode", "mode": wanted}:
                    mode = next((known for known in MODES if known == wanted), None)
                case _:
                    pass
        return cls(tuple(rules), tuple(folders), mode)

    def lines(self) -> Sequence[str]:
        """What it is, for a person."""
        lines = [*self.rules, *(f"work in {folder}, too" for folder in self.folders)]
        if self.mode == "acceptEdits":
            lines.append("edits in the session's folders, also by mkdir touch rm rmdir mv cp sed")
        return lines

    @property
    def places(self) -> tuple[Where, ...]:
        """Where it can be kept: a mode is the session's alone."""
        return ("session",) if self.mode is not None else ("session", "local", "user")

    def added_to(self, permissions: Permissions) -> Permissions:
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


class Standing:
    """The permissions of a session, to which a person adds while it lasts."""

    def __init__(self, permissions: Permissions) -> None:
        self.set_mode: Callable[[Mode], None] = lambda _mode: None
        """Tells the session which mode it is in."""
        self._grown = False
        self._hold(permissions)

    def _hold(self, permissions: Permissions) -> None:
        self.permissions = permissions
        self._ruling, self._guarding = permissions.policies
        self._last = permissions.fallback

    @property
    def policies(self) -> Sequence[Policy]:
        """As those of the permissions, whatever these are by then."""
        return (self._rule, self._guard)

    def _rule(self, question: Question) -> Opinion:
        return self._ruling(question)

    def _guard(self, question: Question) -> Opinion:
        return self._guarding(question)

    def fallback(self, question: Question) -> Opinion:
        """As that of the permissions."""
        return self._last(question)

    async def offer(self, question: Question, ask: Ask) -> Offer | None:
        """What would answer this question for good; None when nothing would."""
        found = Offer.of(suggestions(question, ask))
        lines = found.lines()
        if not lines or len(lines) > MOST or max(map(len, lines)) > LONGEST:
            return None
        asked = replace(question, mode=found.mode or question.mode)
        answer = await _answer(found.added_to(self.permissions), asked)
        return found if isinstance(answer, Allow) else None

    def add(self, offer: Offer) -> None:
        """It holds from now on."""
        self._hold(offer.added_to(self.permissions))
        self._grown = True
        if offer.mode is not None:
            self.set_mode(offer.mode)

    async def allows(self, question: Question, ask: Ask) -> bool:
        """Whether what was added since the question came up answers it."""
        if not self._grown or ask.source != "config":
            return False
        mode = self.permissions.mode if question.mode is None else question.mode
        answer = await _answer(self.permissions, replace(question, mode=mode))
        return isinstance(answer, Allow)


async def _answer(permissions: Permissions, question: Question) -> Decision | None:
    ruled = await decide(permissions.policies, question)
    return ruled or await decide((permissions.fallback,), question)


@dataclass(frozen=True, slots=True)
class Keeper:
    """Puts down for good what a person allows."""

    places: Places
    store: TrustStore

    def path(self, where: Where) -> Path:
        """The file."""
        return self.places.local if where == "local" else self.places.own

    def keep(self, offer: Offer, where: Where) -> str:
        """Write it down; what to tell the person.

        Raises:
            ToolspanError: the file cannot be changed; it is as it was.
        """
        path = self.path(where)
        if where == "user":
            grant(path, allow=offer.rules, folders=offer.folders)
            return f"Written to {path}"

        def change() -> bool:
            within = self.places.project
            return grant(path, allow=offer.rules, folders=offer.folders, within=within)

        if change_own(self.places, self.store, change):
            return f"Written to {path}"
        return f"Written to {path}; it counts there once you have run `toolspan trust`"
