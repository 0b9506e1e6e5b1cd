"""Permission modes: what happens when no rule and no hook has an opinion."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from toolspan.model.decision import Allow, Ask, Decision, Deny
from toolspan.model.toolkind import tool_kind
from toolspan.permission.decide import Question

Mode = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]
MODES: tuple[Mode, ...] = get_args(Mode)

PLAN = "plan"
"""The reason of a question that only plan mode asks."""

_HARMLESS = frozenset({"plan", "question", "other"})


def mode_policy(mode: Mode) -> Callable[[Question], Decision]:
    """The last word of a mode, for calls nobody else has an opinion on."""

    def decide(question: Question) -> Decision:
        now = question.mode or mode
        if now == "bypassPermissions" or _harmless(question):
            return Allow(None, "config")
        if now == "acceptEdits" and _edits_inside(question):
            return Allow(None, "config")
        if now == "plan" and tool_kind(question.tool) in ("edit", "write"):
            return Ask(PLAN, "mode")
        if now == "dontAsk":
            return Deny("dontAsk", "mode")
        return Ask(None, "config")

    return decide


def _harmless(question: Question) -> bool:
    """It reads inside the project, or only talks to the person."""
    kind = tool_kind(question.tool)
    if kind in ("read", "search"):
        return _inside(question)
    return question.read_only and kind in ("shell", *_HARMLESS)


def _edits_inside(question: Question) -> bool:
    return tool_kind(question.tool) in ("edit", "write") and _inside(question)


def _inside(question: Question) -> bool:
    """Every path the call names, and what it leads to, is in the project."""
    for key in ("file_path", "notebook_path", "path"):
        value = question.input.get(key)
        if isinstance(value, str):
            path = question.cwd / Path(value).expanduser()
            if not path.resolve().is_relative_to(question.project.resolve()):
                return False
    return True
