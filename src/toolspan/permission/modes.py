"""Permission modes: what happens when no rule and no hook has an opinion.

In: a question, the rules (a command line may be allowed partly by them), the session's folders.
Out: a decision, always. `guard` stands before the modes: what no rule and no mode allows by itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from toolspan.model.decision import Allow, Ask, Decision, Deny, Needs
from toolspan.model.toolkind import tool_kind
from toolspan.permission.command import opened
from toolspan.permission.decide import Policy, Question
from toolspan.permission.ground import is_critical
from toolspan.permission.rules import Rules, command_of, paths_of
from toolspan.profile.refusals import Refusals
from toolspan.shell.inside import base, plain
from toolspan.shell.seen import see

Mode = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]
"""What happens to calls that no rule and no hook speaks of."""
MODES: tuple[Mode, ...] = get_args(Mode)
"""Every mode."""

PLAN = "plan"
"""The reason of a question that only plan mode asks."""

_HARMLESS = frozenset({"agent", "plan", "question", "other"})
_EDITS = frozenset({"edit", "write"})
_MODE = Allow(None, "config", basis="mode")


@dataclass(frozen=True, slots=True)
class Permissions:
    """All that a person has said about what may run: rules, mode, folders."""

    rules: Rules = field(default_factory=Rules)
    mode: Mode = "default"
    folders: tuple[Path, ...] = ()
    """Where the session works beside its project."""
    refusals: Refusals = field(default_factory=Refusals)

    @property
    def policies(self) -> Sequence[Policy]:
        """The opinions that come before a hook's consent."""
        return (self._on_ground(self.rules), self._on_ground(guard(self.mode)))

    @property
    def fallback(self) -> Policy:
        """The last word."""
        last = mode_policy(self.mode, rules=self.rules, refusals=self.refusals)
        return self._on_ground(last)

    def _on_ground(self, policy: Callable[[Question], Decision | None]) -> Policy:
        def decide(question: Question) -> Decision | None:
            if question.folders != self.folders:
                question = replace(question, folders=self.folders)
            return policy(question)

        return decide


def mode_policy(
    mode: Mode, *, rules: Rules | None = None, refusals: Refusals | None = None
) -> Callable[[Question], Decision]:
    """The last word of a mode, for calls nobody else has an opinion on."""
    stance = _Stance(rules or Rules(), refusals or Refusals())

    def decide(question: Question) -> Decision:
        now = question.mode or mode
        if now == "bypassPermissions":
            return _MODE
        decision = stance.on(question, now)
        if now == "dontAsk" and isinstance(decision, Ask):
            return Deny("dontAsk", "mode", basis="mode")
        return decision

    return decide


@dataclass(frozen=True, slots=True)
class _Stance:
    """What a mode that asks makes of calls."""

    rules: Rules
    refusals: Refusals

    def on(self, question: Question, mode: str) -> Decision:
        command = command_of(question)
        if command is not None:
            return self._on_line(command, question, mode)
        kind = tool_kind(question.tool)
        if kind in _EDITS:
            return _on_edit(question, mode)
        if kind in ("read", "search"):
            return (
                _MODE if _inside(question, reading=True) else Ask(None, "config", basis="outside")
            )
        if question.read_only and kind in ("shell", *_HARMLESS):
            return Allow(None, "config")
        return Ask(None, "config")

    def _on_line(self, command: str, question: Question, mode: str) -> Decision:
        verdict = self.rules.verdict(
            command,
            question,
            edits=mode == "acceptEdits",
            redirects=self.refusals.free_redirects,
        )
        needs = verdict.needs
        if needs is None and self.refusals.asks_about:
            needs = self._needs_all_the_same(command, question)
        if needs is None:
            return Allow(None, "config", basis="parts")
        if mode == "plan" and self.refusals.plan_shell:
            return Deny(self.refusals.plan_shell, "config", basis="classifier")
        return Ask(None, "config", needs=needs)

    def _needs_all_the_same(self, command: str, question: Question) -> Needs | None:
        """What a client version asks about though it only reads, unless a rule allows it."""
        allows = self.rules.freedom(question.ground(), edits=False, redirects=False).rule
        programs = see(command).programs
        asked = [one for one in programs if plain(one).name in self.refusals.asks_about]
        parts = tuple(one.text for one in asked if allows(one) is None)
        return Needs(parts=parts, of=len(programs)) if parts else None


def _on_edit(question: Question, mode: str) -> Decision:
    if mode == "plan":
        return Ask(PLAN, "mode", basis="plan")
    if not _inside(question):
        return Ask(None, "config", basis="outside")
    if mode == "acceptEdits" and not _protected(question):
        return _MODE
    return Ask(None, "config")


def _protected(question: Question) -> bool:
    return any(map(question.ground().is_protected, paths_of(question)))


def _inside(question: Question, *, reading: bool = False) -> bool:
    """Every path the call names, and what it leads to, is in the session's folders."""
    ground = question.ground()
    return all(ground.inside(path, reading=reading) for path in paths_of(question))


def guard(mode: Mode) -> Callable[[Question], Decision | None]:
    """What is asked about whatever a rule or a hook allows: protected files, costly removals."""

    def decide(question: Question) -> Decision | None:
        command = command_of(question)
        if command is not None:
            costly = _costly(command, question) if "rm" in command else None
            if costly is None:
                return None
            words = f"{costly} could remove far more than is meant, and is always asked about."
            return Ask(words, "config", basis="critical")
        now = question.mode or mode
        if now == "bypassPermissions" or tool_kind(question.tool) not in _EDITS:
            return None
        if now != "plan" and _protected(question):
            if now == "dontAsk":
                return Deny("dontAsk", "mode", basis="mode")
            return Ask(None, "config", basis="protected")
        return None

    return decide


def _costly(command: str, question: Question) -> str | None:
    """The removal in a command line that could cost everything."""
    ground = question.ground()
    for found in opened(command).found:
        program = found.program
        if base(program.name) in ("rm", "rmdir"):
            words = [word.text for word in program.words[1:] if word.text[:1] != "-"]
            if any(is_critical(word, ground) for word in words):
                return program.text
    return None
