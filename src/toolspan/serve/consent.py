"""The person behind an MCP client is asked whether a call may run.

In: a question of consent. Out: what the client is sent, an elicitation with a small form, and its
answer as a decision. How it gets there is `service.py`'s business: revisions of the protocol
differ. What is asked about comes from a model and its data, so nothing in it can pass for ours.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mcp_types import ClientCapabilities, ElicitRequestFormParams, ElicitResult

from toolspan.model.decision import Allow, Ask, Deny
from toolspan.permission.decide import Question
from toolspan.permission.suggest import Suggestion, suggestions
from toolspan.profile import Refusals
from toolspan.run.denial import asked_words

_LONGEST = 2_000
"""Characters of one value that are shown."""
_WIDTH = 76
_TOP = 3 * _WIDTH - 60
"""Characters of it that are shown at the top, with the tool's name in three lines."""
_MAIN = ("command", "file_path", "notebook_path", "path", "url", "pattern", "query")
"""What tells most of a call."""
_NO = Deny(None, "user_reject")
_QUICKEST = 0.25
"""Seconds within which nobody has read a form and said no; a program may have."""


class Consent(NamedTuple):
    """A decision, and what is to hold from now on."""

    decision: Allow | Deny
    updates: tuple[Suggestion, ...] = ()
    nobody: bool = False
    """The client could not, or would not, put the question to anybody."""


class Form(NamedTuple):
    """What a person is asked, and what "session" would mean."""

    params: ElicitRequestFormParams
    always: tuple[Suggestion, ...]
    unanswered: Deny

    def read(self, answer: ElicitResult, seconds: float) -> Consent:
        """The answer, which took so long, as a decision; anything but a clear yes is a no.

        Clients without a person in front say `cancel`, or `decline` at once (`codex exec` does).
        """
        if answer.action == "cancel" or (answer.action == "decline" and seconds < _QUICKEST):
            return Consent(self.unanswered, nobody=True)
        if answer.action == "decline" or answer.content is None:
            return Consent(_NO)
        words = answer.content.get("comment")
        comment = words.strip() if isinstance(words, str) else ""
        match answer.content.get("answer"):
            case "once":
                return Consent(Allow(None, "user_temporary"))
            case "session" if self.always:
                return Consent(Allow(None, "user_session"), self.always)
            case _:
                return Consent(Deny(comment or None, "user_reject"))


def can_be_asked(client: ClientCapabilities | None) -> bool:
    """Whether the client can put a form before a person."""
    if client is None or client.elicitation is None:
        return False
    return client.elicitation.form is not None or client.elicitation.url is None


def form_of(question: Question, ask: Ask, refusals: Refusals) -> Form:
    """The question as a form."""
    always = _always(question, ask)
    words = asked_words(question, ask, refusals)
    choices = ["once", *(["session"] if always else []), "deny"]
    schema: dict[str, object] = {
        "type": "object",
        "properties": {
            "answer": {"type": "string", "title": "May it run?", "enum": choices},
            "comment": {
                "type": "string",
                "title": "If not: what the model is told instead",
            },
        },
        "required": ["answer"],
    }
    message = "\n".join(_lines(question, words, always))
    params = ElicitRequestFormParams(message=message, requested_schema=schema)
    return Form(params, always, Deny(words, "config", basis=ask.basis))


def _lines(question: Question, words: str, always: tuple[Suggestion, ...]) -> Iterator[str]:
    """What somebody has to know first: a client may show three lines, cut at its width."""
    main = next((key for key in _MAIN if key in question.input), None)
    value = question.input if main is None else question.input[main]
    about = _in_line(value)
    whole = len(question.input) == 1 and main is not None and len(about) <= _TOP
    length = "" if len(about) <= _TOP else f" ({len(str(value))} characters, below)"
    head = f"{_in_line(question.tool)}{length}: {about[:_TOP]}"
    yield from (head[at : at + _WIDTH] for at in range(0, len(head), _WIDTH))
    yield f"why: {_in_line(words)}"
    rule = f" · session: {', '.join(_told(one) for one in always)}" if always else ""
    yield f"folder: {_in_line(question.cwd)}{rule}"
    for key, value in () if whole else question.input.items():
        yield f"{_in_line(key)}:"
        yield from (f"  | {line}" for line in _plain(value).split("\n"))


def _always(question: Question, ask: Ask) -> tuple[Suggestion, ...]:
    """What answers this question and its like for a session; nothing, where that is no rule."""
    found = suggestions(question, ask)
    if not found or any(one["type"] == "addDirectories" for one in found):
        return ()
    return tuple({**one, "destination": "session"} for one in found)


def _told(one: Suggestion) -> str:
    match one:
        case {"type": "addRules", "rules": list(rules)}:
            return ", ".join(map(_rule, rules))
        case _:
            return "edits in the session's folders"


def _rule(rule: Mapping[str, object]) -> str:
    content = rule.get("ruleContent")
    return _plain(f"{rule['toolName']}({content})" if content else rule["toolName"])


def _in_line(value: object) -> str:
    """For reading, in one line."""
    return _plain(value).replace("\n", " ⏎ ")


def _plain(value: object) -> str:
    """For reading: nothing that a screen would obey, not without end."""
    text = str(value)
    if len(text) > _LONGEST:
        half = _LONGEST // 2
        text = f"{text[:half]}\n[{len(text) - _LONGEST} characters left out]\n{text[-half:]}"
    return "".join(one if one.isprintable() or one == "\n" else repr(one)[1:-1] for one in text)
