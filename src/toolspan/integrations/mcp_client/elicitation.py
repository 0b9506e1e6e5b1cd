"""Input that servers request from the user, asked through the approver as questions. Start at `Elicitor.ask`.

Servers are not trusted: what they write is escaped, shortened and attributed to them, and a server that asks too often
gets no more answers. Without an approver, nobody is asked.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import urlsplit

import anyio

from toolspan.integrations.mcp_client.config import is_safe_url
from toolspan.runtime.hooks.events import HookEffects, SessionHookEvent
from toolspan.runtime.output_limits import sanitize_json
from toolspan.runtime.pending_call import LiveBodyStore
from toolspan.runtime.permissions.decide import Approver, PermissionRequest
from toolspan.types.decision import Allow, Ask, Deny
from toolspan.types.ids import CallId
from toolspan.types.span import Call
from toolspan.types.visible_text import escape_invisible

_Value = TypeVar("_Value")
Action = Literal["accept", "decline", "cancel"]
FireHook = Callable[[SessionHookEvent], Awaitable[HookEffects]]
_QUESTION_TOOL = "AskUserQuestion"
_OPENED = "I have opened it"
_MAX_MESSAGE_CHARS = 1_000
_MAX_TEXT_CHARS = 200
_MAX_URL_CHARS = 2_000
_MAX_FIELDS = 20
_MAX_OPTIONS = 50
_MAX_ATTEMPTS = 3
_MAX_WAITING = 4
"""The number of questions of a server that may wait at the same time."""
_MAX_QUESTIONS = 50
"""The number of questions of a server that are asked during a session."""
_MAX_REFUSALS = 3
"""The number of questions in a row after whose refusal a server gets no more answers."""
_SECRET = re.compile(
    r"pass(?:word|phrase|code|wd)|secret|api.?key|private.?key|token|credential|credit.?card|\b(?:cvv|cvc|pin|ssn|otp)\b",
    re.IGNORECASE,
)
_CAUTION = "CAUTION: this looks like a request for a secret, which a server must not ask for like this."
_LOGGER = logging.getLogger("toolspan.mcp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Elicitation:
    """A server's request for input: a form, or an address that the user should open."""

    server: str
    message: str
    schema: Mapping[str, object] | None = None
    """The schema of the form; None for an address."""
    url: str | None = None
    id: str | None = None

    @property
    def mode(self) -> Literal["form", "url"]:
        """The kind of request."""
        return "form" if self.url is None else "url"


@dataclass(frozen=True, slots=True)
class ElicitationAnswer:
    """The user's answer to a server."""

    action: Action
    content: Mapping[str, object] | None = None


class _UnusableForm(ValueError):  # noqa: N818 - a value
    """Raised if a form cannot be shown."""


@dataclass(slots=True)
class _History:
    waiting: int = 0
    total: int = 0
    refusals: int = 0


class Elicitor:
    """Asks the user on behalf of servers, one question at a time."""

    def __init__(self, cwd: Path) -> None:
        self.approver: Approver | None = None
        """Asked with a request of the tool `AskUserQuestion`, whose input also has the `elicitation`."""
        self.fire_hook: FireHook | None = None
        """Runs the hooks `Elicitation` and `ElicitationResult`."""
        self._cwd = cwd
        self._lock = anyio.Lock()
        self._histories: defaultdict[str, _History] = defaultdict(_History)

    async def ask(self, elicitation: Elicitation) -> ElicitationAnswer:
        """Return the answer of a hook or of the user. It is `cancel` if nobody can be asked."""
        history = self._histories[elicitation.server]
        is_muted = history.refusals >= _MAX_REFUSALS or history.total >= _MAX_QUESTIONS
        if is_muted or history.waiting >= _MAX_WAITING:
            return ElicitationAnswer("cancel")
        history.waiting += 1
        try:
            async with self._lock:
                answer = await self._run_hooks(elicitation)
                if answer is None:
                    history.total += 1
                    answer = await self._ask_user(elicitation)
                    history.refusals = 0 if answer.action == "accept" else history.refusals + 1
                return await self._report_answer(elicitation, answer)
        finally:
            history.waiting -= 1

    async def _run_hooks(self, elicitation: Elicitation) -> ElicitationAnswer | None:
        fields: dict[str, object] = {
            "mcp_server_name": elicitation.server, "message": elicitation.message, "mode": elicitation.mode,
            "url": elicitation.url, "elicitation_id": elicitation.id, "requested_schema": elicitation.schema,
        }  # fmt: skip
        return await self._fire("Elicitation", elicitation, fields)

    async def _report_answer(self, elicitation: Elicitation, answer: ElicitationAnswer) -> ElicitationAnswer:
        fields: dict[str, object] = {
            "mcp_server_name": elicitation.server, "action": answer.action, "mode": elicitation.mode,
            "elicitation_id": elicitation.id, "content": answer.content,
        }  # fmt: skip
        return await self._fire("ElicitationResult", elicitation, fields) or answer

    async def _fire(
        self, point: Literal["Elicitation", "ElicitationResult"], elicitation: Elicitation, fields: dict[str, object]
    ) -> ElicitationAnswer | None:
        if self.fire_hook is None:
            return None
        present = {name: value for name, value in fields.items() if value is not None}
        effects = await self.fire_hook(SessionHookEvent(point=point, subject=elicitation.server, fields=present))
        if effects.feedback or effects.stop:
            return ElicitationAnswer("decline")
        match effects.output.structured if effects.output else None:
            case {"action": ("accept" | "decline" | "cancel") as action, **rest}:
                content = rest.get("content")
                return ElicitationAnswer(action, content if isinstance(content, Mapping) else None)
            case _:
                return None

    async def _ask_user(self, elicitation: Elicitation) -> ElicitationAnswer:
        if self.approver is None:
            return ElicitationAnswer("cancel")
        try:
            form = _make_form(elicitation)
        except _UnusableForm as error:
            _LOGGER.warning("MCP server %r asked for input that cannot be shown: %s", elicitation.server, error)
            return ElicitationAnswer("cancel")
        problem = ""
        for _ in range(_MAX_ATTEMPTS):
            decision = await self._call_approver(elicitation, form.questions(problem))
            if not isinstance(decision, Allow):
                refused = isinstance(decision, Deny) and decision.source == "user_reject"
                return ElicitationAnswer("decline" if refused else "cancel")
            answers = (decision.input or {}).get("answers")
            if not isinstance(answers, Mapping):  # an approver that allows everything has not answered
                return ElicitationAnswer("cancel")
            try:
                return form.read_answers(answers, problem)
            except ValueError as error:
                problem = str(error)
        return ElicitationAnswer("cancel")

    async def _call_approver(
        self, elicitation: Elicitation, questions: Sequence[Mapping[str, object]]
    ) -> Allow | Deny | None:
        assert self.approver is not None
        described = {
            "server": elicitation.server, "mode": elicitation.mode, "message": elicitation.message,
            "requested_schema": elicitation.schema, "url": elicitation.url,
        }  # fmt: skip
        value = {"questions": list(questions), "elicitation": described}
        call_id = CallId(f"elicitation_{sum(history.total for history in self._histories.values())}")
        call = Call(id=call_id, tool=_QUESTION_TOOL, at=0, requested_at=None, target=None,
                    body_store=LiveBodyStore(value))  # fmt: skip
        request = PermissionRequest(call=call, input=value, cwd=self._cwd, project=self._cwd)
        ask = Ask(f"The MCP server {escape_invisible(elicitation.server)} asks for input")
        try:
            decision = self.approver(request, ask)
            return await decision if inspect.isawaitable(decision) else decision
        except Exception:  # the approver's code must not end the connection
            _LOGGER.exception("the approver failed")
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """A field of a form."""

    name: str
    text: str
    kind: Literal["string", "number", "integer", "boolean"] = "string"
    choices: Mapping[str, object] | None = None
    """The values by the label that the user sees; None for any value."""
    several: bool = False
    optional: bool = False
    default: object = None
    limits: Mapping[str, object] = field(default_factory=dict)

    def question(self) -> dict[str, object]:
        options = [{"label": label, "description": ""} for label in self.choices or ()]
        return {
            "question": self.text,
            "header": self.name[:12],
            "options": options,
            "multiSelect": self.several,
            "optional": self.optional,
        }

    def read(self, answer: str) -> object:
        """Return the value that the user entered. Raise ValueError if the form does not accept it."""
        if self.choices is not None and not self.several:
            if answer not in self.choices:
                raise ValueError(f"{self.name}: choose one of the options")
            return self.choices[answer]
        if self.choices is not None:
            return self._read_several(answer)
        if self.kind == "string":
            return self._check_limits(answer, len(answer), "minLength", "maxLength", " characters")
        try:
            number = int(answer) if self.kind == "integer" else float(answer)
        except ValueError:
            raise ValueError(f"{self.name}: must be {'a whole' if self.kind == 'integer' else 'a'} number") from None
        return self._check_limits(number, number, "minimum", "maximum", "")

    def _read_several(self, answer: str) -> list[object]:
        values, rest = [], answer
        for label in sorted(self.choices or (), key=len, reverse=True):  # labels may contain commas
            if re.search(rf"(?:^|, ){re.escape(label)}(?:$|(?=, ))", rest):
                values.append(label)
                rest = rest.replace(label, "", 1)
        if rest.strip(", "):
            raise ValueError(f"{self.name}: choose from the options")
        selected = [value for label, value in (self.choices or {}).items() if label in values]
        return self._check_limits(selected, len(selected), "minItems", "maxItems", " options")

    def _check_limits(self, value: _Value, size: float, low: str, high: str, unit: str) -> _Value:
        least, most = self.limits.get(low), self.limits.get(high)
        if isinstance(least, int | float) and size < least:
            raise ValueError(f"{self.name}: at least {least:g}{unit}")
        if isinstance(most, int | float) and size > most:
            raise ValueError(f"{self.name}: at most {most:g}{unit}")
        return value


@dataclass(frozen=True, slots=True)
class _Form:
    """The questions for one request."""

    introduction: str
    fields: Sequence[_Field]
    is_url: bool = False

    def questions(self, problem: str) -> list[dict[str, object]]:
        """Return the questions, the first with the introduction and the problem of the last answers."""
        questions = [item.question() for item in self.fields]
        questions[0]["question"] = f"{self._prefix(problem)}{questions[0]['question']}"
        return questions

    def read_answers(self, answers: Mapping[str, object], problem: str) -> ElicitationAnswer:
        """Return the answers by the names of the fields. Raise ValueError if the form does not accept them."""
        content: dict[str, object] = {}
        for number, item in enumerate(self.fields):
            answer = str(answers.get(item.text if number else f"{self._prefix(problem)}{item.text}") or "").strip()
            if self.is_url:
                return ElicitationAnswer("accept" if answer == _OPENED else "decline")
            if answer:
                content[item.name] = item.read(answer)
            elif not item.optional:
                raise ValueError(f"{item.name}: an answer is needed")
            elif item.default is not None:
                content[item.name] = item.default
        return ElicitationAnswer("accept", content)

    def _prefix(self, problem: str) -> str:
        return f"{self.introduction} {f'({problem}) ' if problem else ''}"


def _make_form(elicitation: Elicitation) -> _Form:
    """Return the questions for a request. Raise _UnusableForm if it cannot be shown."""
    server = _clean(elicitation.server, _MAX_TEXT_CHARS)
    message = _clean(elicitation.message, _MAX_MESSAGE_CHARS)
    if elicitation.url is not None:
        return _make_url_form(server, message, elicitation.url)
    schema = elicitation.schema or {}
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or len(properties) > _MAX_FIELDS:
        raise _UnusableForm(f"its form must have at most {_MAX_FIELDS} fields")
    required = schema.get("required")
    names = frozenset(map(str, required)) if isinstance(required, list) else frozenset()
    fields = [_read_field(str(name), definition, names) for name, definition in properties.items()]
    if len({item.text for item in fields}) < len(fields):
        raise _UnusableForm("several of its fields have the same text")
    caution = any(map(_SECRET.search, [elicitation.message, *(f"{item.name} {item.text}" for item in fields)]))
    introduction = f"The MCP server {server} asks: {message}{f' {_CAUTION}' if caution else ''}"
    if not fields:  # only a confirmation
        return _Form(introduction, [_Field(name="confirm", text="Confirm?", choices={"yes": True}, optional=True)])
    return _Form(introduction, fields)


def _make_url_form(server: str, message: str, url: str) -> _Form:
    try:
        host = (urlsplit(url).hostname or "").encode("idna").decode("ascii")
    except (UnicodeError, ValueError) as error:
        raise _UnusableForm("its address is not valid") from error
    if not is_safe_url(url) or len(url) > _MAX_URL_CHARS or not url.isprintable() or " " in url:
        raise _UnusableForm("its address must begin with https://")
    text = f"Open this address of {host} in your browser, if you trust it: {escape_invisible(url)}"
    opened = _Field(name="url", text=text, choices={_OPENED: True, "No": False})
    return _Form(f"The MCP server {server} asks: {message}", [opened], is_url=True)


def _read_field(name: str, definition: object, required: frozenset[str]) -> _Field:
    if not isinstance(definition, Mapping):
        raise _UnusableForm(f"its field {_clean(name, _MAX_TEXT_CHARS)} has no definition")
    kind = definition.get("type", "string")
    several = kind == "array"
    source = definition.get("items") if several else definition
    choices = _read_choices(source if isinstance(source, Mapping) else {})
    if kind == "boolean":
        choices = {"yes": True, "no": False}
    if kind not in ("string", "number", "integer", "boolean", "array") or (several and not choices):
        raise _UnusableForm(f"its field {_clean(name, _MAX_TEXT_CHARS)} has a type that forms do not have")
    texts = (_clean(str(definition[key]), _MAX_TEXT_CHARS) for key in ("title", "description") if definition.get(key))
    text = f"{_clean(name, _MAX_TEXT_CHARS)}: {'. '.join(texts)}".rstrip(": ")
    default = sanitize_json(definition.get("default"))
    optional = name not in required or default is not None
    if optional:
        shown = f"empty: {_clean(str(default), _MAX_TEXT_CHARS)}" if default is not None else "may stay empty"
        text = f"{text} ({shown})"
    return _Field(
        name=name,
        text=text,
        kind=kind if kind in ("number", "integer", "boolean") else "string",
        choices=choices,
        several=several,
        optional=optional,
        default=default,
        limits=definition,
    )


def _read_choices(source: Mapping[str, object]) -> dict[str, object] | None:
    """Return the values of an enumeration by their labels; None if any value is possible."""
    values: list[tuple[object, object]] = []
    enum, names = source.get("enum"), source.get("enumNames")
    if isinstance(enum, list):
        labels = names if isinstance(names, list) and len(names) == len(enum) else enum
        values = list(zip(labels, enum, strict=True))
    for key in ("oneOf", "anyOf"):
        options = source.get(key)
        if isinstance(options, list):
            values = [(item.get("title") or item.get("const"), item.get("const")) for item in options
                      if isinstance(item, Mapping)]  # fmt: skip
    choices = {_clean(str(label), _MAX_TEXT_CHARS): value for label, value in values}
    if len(values) > _MAX_OPTIONS or len(choices) < len(values):
        raise _UnusableForm(f"a choice must have at most {_MAX_OPTIONS} different options")
    return choices or None


def _clean(text: str, limit: int) -> str:
    """Return a server's text as one line that cannot imitate anything else, shortened."""
    line = " ".join(escape_invisible(" ".join(text[: 2 * limit].split())).split())
    return line if len(line) <= limit else f"{line[:limit]} ... (shortened)"
