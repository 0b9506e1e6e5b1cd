"""`--redact`: replace secrets and personal data with placeholders such as `[key-1]` or `[email-2]`.

Equal values get equal placeholders throughout the export. Detection is best effort: docs/export.md lists what is
recognized. Start at `SecretRedactor.redact_text`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import partial
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from toolspan.export.records import ExportRecord
from toolspan.types.secrets import SECRET_FIELD_NAME, SECRET_PATTERNS, WORD_START, SensitivePattern, strip_quotes

_IPV4 = r"(?<![0-9.])(?:\d{1,3}\.){3}\d{1,3}(?![0-9]|\.\d)"
_IPV6 = WORD_START + r"(?<![:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![0-9A-Za-z:])"
_EMAIL = r"[\w.%+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}"
_NON_NAME_CHARS = r"\s/\\\"'`:;,<>|*?$(){}\[\]!#%&=+"


def _is_remote_ipv6(text: str) -> bool:
    """Return whether `text` is an IPv6 address that identifies a machine, not a time or an identifier."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return False
    if "::" in text and not re.search(r"\d|:\w+:", text):
        return False  # `a::b` may also be an identifier
    return not (address.is_loopback or address.is_unspecified)


SENSITIVE_FORMS = (
    *SECRET_PATTERNS,
    SensitivePattern(
        "person",
        re.compile(
            r"(?im)^\s{0,8}(?:author|committer|co-authored-by|signed-off-by|reviewed-by|from|to|cc)"
            r"\s{0,4}:\s{0,4}(?P<it>[^<>\n:\"\\]{2,80}?)\s{0,4}<[^<>\s]{3,256}>"
        ),
        ("<",),
    ),
    SensitivePattern("email", re.compile(_EMAIL), ("@",)),
    SensitivePattern("mac", re.compile(WORD_START + r"(?<!:)(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])"), (":",)),
    SensitivePattern("ip", re.compile(_IPV6), (":",), _is_remote_ipv6),
    SensitivePattern("ip", re.compile(_IPV4), (".",), lambda text: not text.startswith("127.") and text != "0.0.0.0"),
)
"""Patterns in order of precedence: a value that is a key as a whole is not split into a name and a value."""

HOME_FOLDER = re.compile(
    rf"(?i)(?:/(?:home|users)/+(?P<unix>[^{_NON_NAME_CHARS}]{{0,63}}[^{_NON_NAME_CHARS}.])"
    r"|\\{1,8}users\\{1,8}"
    rf"(?P<windows>[^/\\\n\"'<>|*?]{{1,64}}(?=\\)|[^{_NON_NAME_CHARS}]{{0,63}}[^{_NON_NAME_CHARS}.]))"
)


R = TypeVar("R", bound=ExportRecord)

_FIXED_VALUE_FIELDS = frozenset(
    {"kind", "dialect", "state", "error_kind", "branch", "wait_certainty", "phase", "type",
     "outcome", "voice", "part"}
)  # fmt: skip
"""Fields whose values come from this program, not from a transcript."""
_GENERIC_USER_NAMES = frozenset(
    {"admin", "administrator", "agent", "app", "appuser", "build", "builder", "ci", "circleci",
     "claude", "codex", "default", "dev", "developer", "docker", "ec2", "guest", "home", "linux",
     "local", "localhost", "me", "name", "nobody", "node", "nonroot", "public", "root", "runner",
     "sandbox", "shared", "test", "ubuntu", "user", "username", "users", "vagrant", "vscode",
     "work", "you", "yourname"}
)  # fmt: skip
"""User names that do not identify a person. They are replaced only in paths."""
_HOME_MARKERS = (b"/home/", b"/Users/", b"Users\\\\", b"/users/", b"users\\\\")
_PLACEHOLDER_KINDS = "|".join({"user", *(form.kind for form in SENSITIVE_FORMS)})
_PLACEHOLDER = re.compile(rf"\[(?:{_PLACEHOLDER_KINDS})-\d{{1,9}}\]?")
_TOO_DEEP = "[nested too deeply]"


class SecretRedactor:
    """A redactor for secrets and personal data in records."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """Create a redactor that also replaces `names`, such as those of users, machines or companies."""
        self._placeholders: dict[tuple[str, str], str] = {}
        self._placeholder_counts: dict[str, int] = {}
        self._name_placeholders: dict[str, str] = {}
        self._names_pattern: re.Pattern[str] | None = None
        self._add_names(names)

    def learn_names(self, lines: Iterable[bytes]) -> None:
        """Collect the user names in the home folders that occur in `lines`. These names are replaced everywhere."""
        for line in lines:
            if any(home in line for home in _HOME_MARKERS):
                text = line.decode("utf-8", "replace")
                self._add_names({match["unix"] or match["windows"] for match in HOME_FOLDER.finditer(text)})

    def redact_record(self, record: R) -> R:
        """Return the record with secrets replaced."""
        changed: dict[str, object] = {}
        for name in record.__struct_fields__:
            if name not in _FIXED_VALUE_FIELDS:
                try:
                    changed[name] = self._redact_any(getattr(record, name))
                except RecursionError:
                    changed[name] = _TOO_DEEP
        return replace(record, **changed)

    def redact_text(self, text: str) -> str:
        """Return `text` with secrets replaced."""
        low = text.lower()
        for form in SENSITIVE_FORMS:
            if form.may_occur_in(low):
                text = form.replace_matches(text, partial(self._secret_placeholder, form))
        if "/" in text or "\\" in text:
            text = HOME_FOLDER.sub(self._redact_home, text)
        if self._names_pattern is not None:
            text = self._names_pattern.sub(lambda match: self._name_placeholders[match[0].casefold()], text)
        return text

    def _secret_placeholder(self, form: SensitivePattern, value: str) -> str | None:
        if _PLACEHOLDER.fullmatch(value):
            return None
        name = self._placeholder_for(form.kind, strip_quotes(value).rstrip(",."))
        if form.kind == "person":
            self._name_placeholders.setdefault(strip_quotes(value).casefold(), name)
            self._compile_names_pattern()
        return name

    def _redact_home(self, match: re.Match[str]) -> str:
        whole, name = match[0], match["unix"] or match["windows"]
        if _PLACEHOLDER.fullmatch(name):
            return whole
        self._add_names((name,))
        return whole[: -len(name)] + self._placeholder_for("user", name.casefold())

    def _add_names(self, names: Iterable[str]) -> None:
        """Replace these names from now on, whether they stand alone or are part of a folder name."""
        new = {name.casefold() for name in names} - set(self._name_placeholders)
        new = {name for name in new if name and not _PLACEHOLDER.fullmatch(name)}
        if not new:
            return
        for name in sorted(new):
            self._name_placeholders[name] = self._placeholder_for("user", name)
        self._compile_names_pattern()

    def _compile_names_pattern(self) -> None:
        alone = [name for name in self._name_placeholders if len(name) >= 3 and name not in _GENERIC_USER_NAMES]
        self._names_pattern = re.compile(
            rf"(?i)(?<=-home-)(?:{_names_alternation(self._name_placeholders)})(?![A-Za-z0-9])"
            rf"|(?<=-Users-)(?:{_names_alternation(self._name_placeholders)})(?![A-Za-z0-9])"
            rf"|{WORD_START}(?:{_names_alternation(alone)})(?![A-Za-z0-9])"
        )

    def _placeholder_for(self, kind: str, value: str) -> str:
        placeholder = self._placeholders.get((kind, value))
        if placeholder is None:
            self._placeholder_counts[kind] = self._placeholder_counts.get(kind, 0) + 1
            placeholder = self._placeholders[kind, value] = f"[{kind}-{self._placeholder_counts[kind]}]"
        return placeholder

    def _redact_any(self, value: object) -> object:
        match value:
            case str():
                return self.redact_text(value)
            case dict():
                secret_keys = {key for key in value if isinstance(key, str) and SECRET_FIELD_NAME.match(key)}
                return {
                    self.redact_text(str(key)): self._hide_value(item) if key in secret_keys else self._redact_any(item)
                    for key, item in value.items()
                }
            case list():
                return [self._redact_any(item) for item in value]
            case tuple():
                return tuple(self._redact_any(item) for item in value)
            case Struct():
                return self.redact_record(value)  # type: ignore[type-var]
            case None | bool() | int() | float():
                return value
            case _:
                return self.redact_text(str(value))

    def _hide_value(self, value: object) -> object:
        match value:
            case None | bool() | "":
                return value
            case dict():
                return {self.redact_text(str(key)): self._hide_value(item) for key, item in value.items()}
            case list():
                return [self._hide_value(item) for item in value]
            case _:
                return self._placeholder_for("secret", str(value))


def _names_alternation(names: Iterable[str]) -> str:
    """Return a pattern that matches any of `names`. If there are none, it never matches."""
    longest_first = sorted(names, key=len, reverse=True)
    return "|".join(re.escape(name) for name in longest_first) or r"(?!)"


class Redactor(Protocol):
    """A filter for data that must not be exported. Its methods never raise."""

    def learn_names(self, lines: Iterable[bytes]) -> None:
        """Learn names from the raw lines of a session, before any of its records are redacted."""
        ...

    def redact_record(self, record: R) -> R:
        """Return the record without data that must not be exported."""
        ...


class NoRedaction:
    """A redactor that changes nothing."""

    def learn_names(self, lines: Iterable[bytes]) -> None:
        """Do nothing."""

    def redact_record(self, record: R) -> R:
        """Return the record unchanged."""
        return record
