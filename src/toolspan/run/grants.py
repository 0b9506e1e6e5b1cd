"""What a consent changes for the calls after it: rules and the mode of the session.

In: updates in the client's words, as a hook sends them with its consent. Out: the desk, changed,
and the updates that are not done: nothing is written to settings files, and nobody gets a mode in
which everything may run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from toolspan.errors import ToolspanError
from toolspan.permission.rules import Rules
from toolspan.run.desk import Desk

_MODES = frozenset({"default", "acceptEdits", "plan", "dontAsk"})


def apply(updates: Sequence[Mapping[str, object]], desk: Desk) -> list[str]:
    """Change the session; what could not be done is told."""
    return [told for update in updates if (told := _one(update, desk)) is not None]


def _one(update: Mapping[str, object], desk: Desk) -> str | None:
    if update.get("destination", "session") != "session":
        return f"{update.get('type')}: only the session is changed, not {update['destination']}"
    match update:
        case {"type": "setMode", "mode": str(mode)} if mode in _MODES:
            values = {**desk.context.values, "permission_mode": mode}
            desk.context = replace(desk.context, values=values)
            return None
        case {"type": "addRules", "behavior": "allow" | "ask" | "deny" as behavior}:
            return _add_rules(update.get("rules"), behavior, desk)
        case _:
            return f"{update.get('type')}: not done"


def _add_rules(given: object, behavior: str, desk: Desk) -> str | None:
    rules = given if isinstance(given, list) else []
    texts = [_text(rule) for rule in rules if isinstance(rule, Mapping)]
    try:
        added = Rules(
            allow=texts if behavior == "allow" else (),
            ask=texts if behavior == "ask" else (),
            deny=texts if behavior == "deny" else (),
        )
    except ToolspanError as error:
        return f"addRules: {error}"
    desk.policies = (*desk.policies, added)
    return None


def _text(rule: Mapping[str, object]) -> str:
    content = rule.get("ruleContent")
    name = str(rule.get("toolName", ""))
    return f"{name}({content})" if content else name
