"""A handler that is a question to a model, or to an agent: may this be?

In: `Told`, and a function that asks one, which comes from above. The model is to answer with
`{"ok": true}` or `{"ok": false, "reason": "..."}`. Out: the same verdict in the JSON that commands
answer with; an answer that is none is a failure.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from toolspan.errors import words_of
from toolspan.hooks.heard import Heard, Told

AskModel = Callable[[str, str | None], Awaitable[str]]
"""Asks a model: the prompt, and the model's name if one is wanted. Gives its text; may raise."""

_INPUT = "$ARGUMENTS"
_FORM = (
    'Answer with one JSON object and nothing else: {"ok": true} if this may go on, or'
    ' {"ok": false, "reason": "why not"} if it may not.'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptHandler:
    """One question."""

    prompt: str
    model: str | None = None
    acts: bool = False
    """Whoever is asked has tools to look around with."""
    continues: bool = False
    """After a no the model reads why and goes on; else the turn ends."""
    ask: AskModel | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The question."""
        return self.prompt

    @property
    def key(self) -> object:
        """The question and who is asked."""
        return (self.prompt, self.model, self.acts)

    async def run(self, told: Told) -> Heard:
        """Ask."""
        if self.ask is None:
            whom = "agent" if self.acts else "model"
            return Heard(end="failed", problem=f"there is no {whom} here that could be asked")
        given = told.data.decode()
        asked = (
            self.prompt.replace(_INPUT, given)
            if _INPUT in self.prompt
            else f"{self.prompt}\n\n{given}"
        )
        try:
            answer = await self.ask(f"{asked}\n\n{_FORM}", self.model)
        except Exception as error:  # noqa: BLE001 - whatever the model's client raises
            return Heard(end="failed", problem=f"the model was not heard: {words_of(error)}")
        return self._verdict(answer, told)

    def _verdict(self, answer: str, told: Told) -> Heard:
        start, end = answer.find("{"), answer.rfind("}")
        try:
            verdict = json.loads(answer[start : end + 1])
            ok = verdict["ok"]
        except (ValueError, KeyError, TypeError):
            return Heard(end="failed", problem=f"the model gave no verdict: {answer[:200]!r}")
        if ok is True:
            return Heard(stdout="", exit_code=0)
        reason = str(verdict.get("reason") or "A hook's model said no")
        impossible = verdict.get("impossible") is True
        return Heard(stdout=json.dumps(self._no(reason, told, impossible=impossible)), exit_code=0)

    def _no(self, reason: str, told: Told, *, impossible: bool) -> dict[str, object]:
        ends = {} if self.continues else {"continue": False, "stopReason": reason}
        match told.point:
            case "PreToolUse":
                denied = {"permissionDecision": "deny", "permissionDecisionReason": reason}
                return {"hookSpecificOutput": {"hookEventName": told.point, **denied}, **ends}
            case "PermissionRequest":
                return {}
            case "Stop" | "SubagentStop":
                return {} if impossible else {"decision": "block", "reason": reason}
            case "UserPromptSubmit":
                return {"decision": "block", "reason": reason}
            case _:
                return {"decision": "block", "reason": reason, **ends}
