"""`--redact`: secrets and personal data give way to placeholders, everything else stays.

In: records. Out: the same with keys, tokens, passwords, addresses, names of people and home folders
replaced by `[key-1]`, `[email-2]`, …; the same thing has the same placeholder in the whole export.
A net, not a wall: see docs/export.md for what it knows. Read `Redaction.text` first.
"""

import re
from collections.abc import Iterable
from functools import partial
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import fields, replace

from toolspan.export.record import Record
from toolspan.export.secrets import FORMS, HOME
from toolspan.model.secrets import EDGE, SECRET_KEY, Form, bare

R = TypeVar("R", bound=Record)

_CLOSED = frozenset(
    {"kind", "dialect", "state", "error_kind", "branch", "wait_certainty", "phase", "type",
     "outcome", "voice", "part"}
)  # fmt: skip
"""Fields whose words come from this program, not from a transcript."""
_EVERYBODY = frozenset(
    {"admin", "administrator", "agent", "app", "appuser", "build", "builder", "ci", "circleci",
     "claude", "codex", "default", "dev", "developer", "docker", "ec2", "guest", "home", "linux",
     "local", "localhost", "me", "name", "nobody", "node", "nonroot", "public", "root", "runner",
     "sandbox", "shared", "test", "ubuntu", "user", "username", "users", "vagrant", "vscode",
     "work", "you", "yourname"}
)  # fmt: skip
"""Names of homes that are nobody's: replaced in paths, left alone where they stand alone."""
_HOMES = (b"/home/", b"/Users/", b"Users\\\\", b"/users/", b"users\\\\")
_KINDS = "|".join({"user", *(form.kind for form in FORMS)})
_PLACEHOLDER = re.compile(rf"\[(?:{_KINDS})-\d{{1,9}}\]?")
_TOO_DEEP = "[nested too deeply]"


class Redaction:
    """Takes secrets and personal data out of records."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """`names` are words that are taken out as well: of users, machines, firms."""
        self._places: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        self._learn(names)

    def meet(self, lines: Iterable[bytes]) -> None:
        """Whose homes the lines name: these names are taken out wherever they stand."""
        for line in lines:
            if any(home in line for home in _HOMES):
                text = line.decode("utf-8", "replace")
                self._learn({found["unix"] or found["windows"] for found in HOME.finditer(text)})

    def over(self, record: R) -> R:
        """The record without them."""
        return self._struct(record)

    def text(self, text: str) -> str:
        """A text without them."""
        low = text.lower()
        for form in FORMS:
            if form.may_be_in(low):
                text = form.replaced(text, partial(self._name, form))
        if "/" in text or "\\" in text:
            text = HOME.sub(self._home, text)
        if self._pattern is not None:
            text = self._pattern.sub(lambda found: self._names[found[0].casefold()], text)
        return text

    def _name(self, form: Form, value: str) -> str | None:
        """The placeholder of a value; None when it is one."""
        if _PLACEHOLDER.fullmatch(value):
            return None
        name = self._placeholder(form.kind, bare(value).rstrip(",."))
        if form.kind == "person":
            self._names.setdefault(bare(value).casefold(), name)
            self._remember()
        return name

    def _home(self, found: re.Match[str]) -> str:
        whole, name = found[0], found["unix"] or found["windows"]
        if _PLACEHOLDER.fullmatch(name):
            return whole
        self._learn((name,))
        return whole[: -len(name)] + self._placeholder("user", name.casefold())

    def _learn(self, names: Iterable[str]) -> None:
        """Names that are taken out from now on, by themselves or in the name of a folder."""
        new = {name.casefold() for name in names} - set(self._names)
        new = {name for name in new if name and not _PLACEHOLDER.fullmatch(name)}
        if not new:
            return
        for name in sorted(new):
            self._names[name] = self._placeholder("user", name)
        self._remember()

    def _remember(self) -> None:
        alone = [name for name in self._names if len(name) >= 3 and name not in _EVERYBODY]
        self._pattern = re.compile(
            rf"(?i)(?<=-home-)(?:{_either(self._names)})(?![A-Za-z0-9])"
            rf"|(?<=-Users-)(?:{_either(self._names)})(?![A-Za-z0-9])"
            rf"|{EDGE}(?:{_either(alone)})(?![A-Za-z0-9])"
        )

    def _placeholder(self, kind: str, value: str) -> str:
        known = self._places.get((kind, value))
        if known is None:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            known = self._places[kind, value] = f"[{kind}-{self._counts[kind]}]"
        return known

    def _struct(self, record: R) -> R:
        changed = {
            field.name: self._value(getattr(record, field.name))
            for field in fields(record)
            if field.name not in _CLOSED
        }
        return replace(record, **changed)

    def _value(self, value: object) -> object:
        try:
            return self._any(value)
        except RecursionError:
            return _TOO_DEEP

    def _any(self, value: object) -> object:
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(str(key)): self._named(key, one) for key, one in value.items()}
            case list():
                return [self._any(one) for one in value]
            case tuple():
                return tuple(self._any(one) for one in value)
            case Struct():
                return self._struct(value)  # type: ignore[type-var]
            case None | bool() | int() | float():
                return value
            case _:
                return self.text(str(value))

    def _named(self, key: object, value: object) -> object:
        """A value; where its name says that it is a secret, nothing of it."""
        secret = isinstance(key, str) and SECRET_KEY.match(key)
        return self._hidden(value) if secret else self._any(value)

    def _hidden(self, value: object) -> object:
        match value:
            case None | bool() | "":
                return value
            case dict():
                return {self.text(str(key)): self._hidden(one) for key, one in value.items()}
            case list():
                return [self._hidden(one) for one in value]
            case _:
                return self._placeholder("secret", str(value))


def _either(names: Iterable[str]) -> str:
    """A pattern of any of these; what matches nothing when there are none."""
    longest_first = sorted(names, key=len, reverse=True)
    return "|".join(re.escape(name) for name in longest_first) or r"(?!)"
