"""`--redact`: replace secrets and personal data with placeholders such as `[key-1]` or `[email-2]`.

Equal values get equal placeholders throughout the export. Detection is best effort: docs/export.md lists what is
recognized. Start at `SecretRedactor.redact_text`. `types/secrets.py` and `personal_data.py` find what to replace.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from toolspan.export.personal_data import FIELD_HINTS, HINT_PATTERNS, PersonalHint, find_personal_data, personal_hints
from toolspan.export.records import CallRecord, ExportRecord
from toolspan.types.secret_names import NameStrength, looks_random, name_strength, plausible_secret
from toolspan.types.secrets import (
    KeyRule,
    LineHints,
    SecretHint,
    SecretMatch,
    find_in_line,
    find_private_keys,
    hints_in,
    join_hints,
    long_hints,
    shift,
    short_hints,
)

R = TypeVar("R", bound=ExportRecord)

NOTICE = (
    "Redacted: secrets and personal data that were recognized are replaced by placeholders such as [key-1]. "
    "Recognition is best effort; a person should read this through before it is shared."
)
_NON_NAME_CHARS = r"\s/\\\"'`:;,<>|*?$(){}\[\]!#%&=+@"
HOME_FOLDER = re.compile(
    rf"(?:[/\\]|%2F|^)(?:home|[Uu]sers)(?:\\?/|%2F)+(?P<unix>[^{_NON_NAME_CHARS}]{{0,63}}[^{_NON_NAME_CHARS}.])"
    r"|\\{1,8}[Uu]sers\\{1,8}"
    rf"(?P<windows>[^/\\\n\"'<>|*?]{{1,64}}(?=\\)|[^{_NON_NAME_CHARS}]{{0,63}}[^{_NON_NAME_CHARS}.])"
    r"|(?<!\w)-(?:home|Users)-(?P<encoded>[0-9A-Za-z]{1,63})(?=-)"
)
_RAW_NAME = rb"([^\s/\\\"'`:;,<>|*?$(){}\[\]!#%&=+@]{1,64})"
_RAW_HOME_FOLDERS = (  # perf: patterns that begin with fixed characters are fast
    re.compile(rb"/home\\?/+" + _RAW_NAME),
    re.compile(rb"/Users\\?/+" + _RAW_NAME),
    re.compile(rb"/users\\?/+" + _RAW_NAME),
    re.compile(rb"Users\\{1,8}([^/\\\n\"'<>|*?]{1,64})\\"),
    re.compile(rb"%2F(?:home|Users)%2F([^\s%\"]{1,64})"),
)
_FIXED_VALUE_FIELDS = frozenset(
    {"kind", "dialect", "state", "error_kind", "branch", "wait_certainty", "phase", "type",
     "outcome", "voice", "part", "redacted"}
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
_PLACEHOLDER = re.compile(r"\[(?:key|secret|login|email|person|user|ip|mac|host|phone|card|iban|ssn|id)-\d{1,9}\]?")
_TOO_DEEP = "[nested too deeply]"
_PLAIN_ID = re.compile(
    r"(?:toolu|msg|req|call|fc)_(?!\w*AIza|A(?:KIA|SIA|ROA|IDA|GPA)|SK|AC)[0-9A-Za-z]{16,40}"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|\d{4}-\d\d-\d\dT[\d:.]{5,20}Z"
)
"""Ids and times that clients write, unless a key may be in them.

perf: they are always new, so remembering words does not help.
"""
_ESCAPED_LINE_END = re.compile(r"\\+[nrt]")
_MAX_KNOWN_WORDS = 200_000
_MAX_WORD_CHARS = 64
_CONTEXT_CHARS = 80


def format_counts(counts: Mapping[str, int]) -> str:
    """Return the number of replacements by kind, such as `3 key, 1 email`, the most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {kind}" for kind, count in ordered) or "nothing"


class _WordHints(NamedTuple):
    secrets: LineHints
    personal: int
    is_named: bool
    """The word may contain a user name or a home folder."""


class Redaction(Struct, frozen=True, kw_only=True):
    """One replacement and its place in the transcript."""

    session: str | None
    line: int | None
    """The line of the transcript; None for messages and facts about the session."""
    call: str | None
    field: str
    """The field of the record, such as `input.command`, and the line in it, such as `result:12`."""
    kind: str
    placeholder: str
    rule: str
    """The rule that recognized the value."""
    context: str = ""
    """The text around the placeholder, redacted."""


class SecretRedactor:
    """A redactor for secrets and personal data in records."""

    notice = NOTICE

    def __init__(self, names: Iterable[str] = (), *, keep_report: bool = False) -> None:
        """Create a redactor that also replaces `names`, such as those of users, machines or companies.

        With `keep_report`, every replacement is kept in `replacements`.
        """
        self.counts: Counter[str] = Counter()
        """The number of replacements by kind."""
        self.replacements: list[Redaction] = []
        self._keep_report = keep_report
        self._placeholders: dict[tuple[str, str], str] = {}
        self._placeholder_counts: Counter[str] = Counter()
        self._name_placeholders: dict[str, str] = {}
        self._harmless_words: set[str] = set()
        self._suspicious_words: dict[str, _WordHints] = {}
        self._name_hints = _name_hint_pattern(())
        self._record: object = None
        self._path: list[str] = []
        self._add_names(names)

    def learn_names(self, lines: Iterable[bytes]) -> None:
        """Collect the user names in the home folders that occur in `lines`. These names are replaced everywhere."""
        raw: set[bytes] = set()
        for line in lines:
            for pattern in _RAW_HOME_FOLDERS:
                raw.update(pattern.findall(line))
        self._add_names(name.decode("utf-8", "replace").rstrip(".") for name in raw)

    def redact_record(self, record: R) -> R:
        """Return the record with secrets replaced."""
        self._record = record
        before, first = self.counts.total(), len(self.replacements)
        changed = self._redact_fields(record)
        place = {"session": changed.get("session") or changed.get("id")}
        if isinstance(record, CallRecord):
            place["call"] = changed["id"]
        self.replacements[first:] = [replace(item, **place) for item in self.replacements[first:]]
        if isinstance(record, CallRecord):
            changed["redacted"] = self.counts.total() - before
        return replace(record, **changed)

    def redact_text(self, text: str) -> str:
        """Return `text` with secrets replaced."""
        if _PLAIN_ID.fullmatch(text):
            return text
        words = set(text.split())
        words -= self._harmless_words
        if not words:
            return text
        suspicious = self._suspicious_among(words)
        if not suspicious:
            return text
        findings = list(find_private_keys(text))
        at = 0
        for line in text.split("\n"):
            hints = [suspicious[word] for word in line.split() if word in suspicious]
            if hints:
                findings += (shift(finding, at) for finding in self._find_in_line(line, hints))
            at += len(line) + 1
        return self._replace_findings(text, findings) if findings else text

    def _suspicious_among(self, words: set[str]) -> dict[str, _WordHints]:
        """Return the words that rules may match, with these rules, and remember the others.

        perf: most words of a transcript repeat, so that few are new, and those are searched together. Without this, a
        redacted export takes several times as long.
        """
        suspicious = {word: hints for word in words if (hints := self._suspicious_words.get(word))}
        new_words = list(words.difference(suspicious))
        if not new_words:
            return suspicious
        joined = "\n".join(new_words).lower()
        matched = set(_matching_lines((self._name_hints, *_hint_patterns()), f"\n{joined}\n"))
        long_words = "\n".join(word for word in new_words if len(word) >= 16).lower()
        matched.update(_matching_lines(_long_hint_patterns(), long_words))
        if len(self._harmless_words) + len(self._suspicious_words) > _MAX_KNOWN_WORDS:
            self._harmless_words.clear()
            self._suspicious_words.clear()
        for word, low in zip(new_words, joined.split("\n"), strict=True):
            if low in matched:
                is_named = bool(self._name_hints.search(low))
                suspicious[word] = _WordHints(hints_in(low), personal_hints(low), is_named)
                if len(word) <= _MAX_WORD_CHARS:
                    self._suspicious_words[word] = suspicious[word]
            elif len(word) <= _MAX_WORD_CHARS:
                self._harmless_words.add(word)
        return suspicious

    def _find_in_line(self, line: str, word_hints: list[_WordHints]) -> Iterator[SecretMatch]:
        secrets, personal, key_rules = SecretHint.NONE, PersonalHint.NONE, dict[KeyRule, None]()
        for hints in word_hints:
            secrets |= hints.secrets.secrets
            personal |= hints.personal
            key_rules |= dict.fromkeys(hints.secrets.key_rules)
        line_hints = LineHints(secrets, tuple(key_rules))
        if secrets or personal or key_rules:
            at = 0
            pieces = [match.span() for match in _ESCAPED_LINE_END.finditer(line)] if "\\" in line else []
            for start, end in (*pieces, (len(line), len(line))):
                piece = line[at:start]
                yield from (shift(finding, at) for finding in find_in_line(piece, line_hints))
                yield from (shift(finding, at) for finding in find_personal_data(piece, personal))
                at = end
        if not any(hints.is_named for hints in word_hints):
            return
        for match in HOME_FOLDER.finditer(line):
            group = next(name for name in ("unix", "windows", "encoded") if match[name] is not None)
            if not _PLACEHOLDER.fullmatch(match[group]):
                self._add_names((match[group],))
                yield SecretMatch(*match.span(group), "user", "home-folder")
        yield from self._find_names(line)

    def _find_names(self, line: str) -> Iterator[SecretMatch]:
        """Yield the known names in a line: generic and very short ones only in the names of encoded folders."""
        low = line.lower() if len(line.lower()) == len(line) else line
        for name in self._name_placeholders:
            start = low.find(name)
            while start >= 0:
                end = start + len(name)
                before = low[max(0, start - 7) : start]
                is_word = not before[-1:].isalnum() or before[-2:] in ("\\n", "\\r", "\\t")
                is_known = (len(name) >= 3 and name not in _GENERIC_USER_NAMES) or before.endswith(
                    ("-home-", "-users-")
                )
                if is_word and is_known and not low[end : end + 1].isalnum():
                    yield SecretMatch(start, end, "user", "name")
                start = low.find(name, end)

    def _replace_findings(self, text: str, findings: list[SecretMatch]) -> str:
        """Replace the findings. Those that overlap are one, of the kind of the first rule that found it."""
        order = {id(finding): n for n, finding in enumerate(findings)}
        merged: list[SecretMatch] = []
        for finding in sorted(findings, key=lambda finding: (finding.start, order[id(finding)])):
            if _PLACEHOLDER.fullmatch(text, finding.start, finding.end) or finding.start == finding.end:
                continue
            if not merged or finding.start >= merged[-1].end:
                merged.append(finding)
                continue
            last = merged[-1]
            named_by = min(last, finding, key=lambda item: order[id(item)])
            union = SecretMatch(last.start, max(last.end, finding.end), named_by.kind, named_by.rule)
            order[id(union)] = order[id(named_by)]
            merged[-1] = union
        pieces: list[str] = []
        places: list[int] = []
        at = length = 0
        for start, end, kind, rule in merged:
            placeholder = self._placeholder(kind, text[start:end])
            self._note(kind, placeholder, rule, text.count("\n", 0, start) + 1 if self._keep_report else 0)
            pieces += (text[at:start], placeholder)
            places.append(length + start - at)
            length += start - at + len(placeholder)
            at = end
        redacted = "".join((*pieces, text[at:]))
        if self._keep_report and places:
            self.replacements[-len(places) :] = [
                replace(item, context=_line_around(redacted, place))
                for item, place in zip(self.replacements[-len(places) :], places, strict=True)
            ]
        return redacted

    def _placeholder(self, kind: str, value: str) -> str:
        if kind in ("user", "person"):
            name = value.lower()
            self._add_names((value,) if kind == "person" else (), kind)
            return self._name_placeholders.get(name) or self._placeholder_for(kind, name)
        return self._placeholder_for(kind, value)

    def _note(self, kind: str, placeholder: str, rule: str, text_line: int = 0) -> None:
        self.counts[kind] += 1
        if not self._keep_report:
            return
        record = self._record
        self.replacements.append(
            Redaction(
                session=None,  # set when the record is complete, because ids may have to be redacted too
                line=getattr(record, "line", None),
                call=None,
                field=".".join(self._path) + (f":{text_line}" if text_line else ""),
                kind=kind,
                placeholder=placeholder,
                rule=rule,
            )
        )

    def _add_names(self, names: Iterable[str], kind: str = "user") -> None:
        """Replace these names from now on, whether they stand alone or are part of a folder name."""
        new = {name for name in map(str.lower, names) if name and name not in self._name_placeholders}
        new = {name for name in new if not _PLACEHOLDER.fullmatch(name)}
        if not new:
            return
        for name in sorted(new):
            placeholder = self._placeholder_for(kind, name)
            self._name_placeholders[name] = placeholder
            encoded = re.sub(r"[^0-9a-z]", "-", name)  # as in the folder names of Claude Code
            self._name_placeholders.setdefault(encoded, placeholder)
        known = self._name_placeholders
        alone = [name for name in known if len(name) >= 3 and name not in _GENERIC_USER_NAMES and name.strip("-")]
        parts = {re.split(r"[\s-]", name.strip("-"))[0] for name in alone}
        self._name_hints = _name_hint_pattern(parts)
        self._harmless_words = {word for word in self._harmless_words if not self._name_hints.search(word.lower())}
        self._suspicious_words.clear()

    def _placeholder_for(self, kind: str, value: str) -> str:
        placeholder = self._placeholders.get((kind, value))
        if placeholder is None:
            self._placeholder_counts[kind] += 1
            placeholder = self._placeholders[kind, value] = f"[{kind}-{self._placeholder_counts[kind]}]"
        return placeholder

    def _redact_fields(self, record: Struct) -> dict[str, object]:
        changed: dict[str, object] = {}
        for name in record.__struct_fields__:
            if name not in _FIXED_VALUE_FIELDS:
                depth = len(self._path)
                try:
                    changed[name] = self._redact_at(name, getattr(record, name))
                except RecursionError:
                    del self._path[depth:]
                    changed[name] = _TOO_DEEP
        return changed

    def _redact_at(self, name: str, value: object) -> object:
        self._path.append(name)
        redacted = self._redact_any(value)
        self._path.pop()
        return redacted

    def _redact_any(self, value: object) -> object:
        match value:
            case str():
                return self.redact_text(value)
            case dict():
                return dict(self._redact_item(str(key), item) for key, item in value.items())
            case list():
                return [self._redact_any(item) for item in value]
            case tuple():
                return tuple(self._redact_any(item) for item in value)
            case Struct():
                return replace(value, **self._redact_fields(value))
            case None | bool() | int() | float():
                return value
            case _:
                return self.redact_text(str(value))

    def _redact_item(self, key: str, value: object) -> tuple[str, object]:
        strength = name_strength(key)
        name = self.redact_text(key)
        if strength is NameStrength.NONE or (strength is NameStrength.WEAK and not _is_random_text(value)):
            return name, self._redact_at(name, value)
        self._path.append(name)
        hidden = self._hide_value(value)
        self._path.pop()
        return name, hidden

    def _hide_value(self, value: object) -> object:
        match value:
            case None | bool() | "":
                return value
            case str() if len(value) > 3 and (not plausible_secret(value) or "\n" in value):
                return self.redact_text(value)
            case dict():
                return {self.redact_text(str(key)): self._hide_value(item) for key, item in value.items()}
            case list():
                return [self._hide_value(item) for item in value]
            case _:
                placeholder = self._placeholder_for("secret", str(value))
                self._note("secret", placeholder, "name " + ".".join(self._path[-1:]))
                return placeholder


def _line_around(text: str, place: int) -> str:
    """Return the line at a place, shortened around it."""
    start = max(text.rfind("\n", 0, place) + 1, place - _CONTEXT_CHARS)
    return text[start : place + _CONTEXT_CHARS].partition("\n")[0]


def _is_random_text(value: object) -> bool:
    return isinstance(value, str) and looks_random(value) and len(value) < 512


def _name_hint_pattern(names: Iterable[str]) -> re.Pattern[str]:
    whole_names = (rf"{re.escape(name)}(?![0-9a-z])(?<![0-9a-z]{re.escape(name)})" for name in sorted(names))
    return re.compile("|".join((r"home[/\\%-]|users[/\\%-]|home$|users$", *whole_names)))


@cache
def _hint_patterns() -> tuple[re.Pattern[str], ...]:
    return (join_hints((*short_hints(), *FIELD_HINTS)), *HINT_PATTERNS)


@cache
def _long_hint_patterns() -> tuple[re.Pattern[str], ...]:
    return tuple(long_hints())


def _matching_lines(patterns: Iterable[re.Pattern[str]], text: str) -> Iterator[str]:
    for pattern in patterns:
        for match in pattern.finditer(text):
            end = text.find("\n", match.start())
            yield text[text.rfind("\n", 0, match.start()) + 1 : len(text) if end < 0 else end]


class Redactor(Protocol):
    """A filter for data that must not be exported. Its methods never raise."""

    @property
    def notice(self) -> str | None:
        """A sentence for readers of the export about what it lacks; None if it is complete."""
        ...

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of replacements so far, by kind."""
        ...

    def learn_names(self, lines: Iterable[bytes]) -> None:
        """Learn names from the raw lines of a session, before any of its records are redacted."""
        ...

    def redact_record(self, record: R) -> R:
        """Return the record without data that must not be exported."""
        ...


class NoRedaction:
    """A redactor that changes nothing."""

    notice: str | None = None
    counts: Mapping[str, int] = {}

    def learn_names(self, lines: Iterable[bytes]) -> None:
        """Do nothing."""

    def redact_record(self, record: R) -> R:
        """Return the record unchanged."""
        return record
