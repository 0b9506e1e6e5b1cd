"""`--redact`: replace secrets and personal data with placeholders such as `[key-1]` or `[email-2]`.

Equal values get equal placeholders throughout the export. Detection is best effort: docs/export.md lists what is
recognized. Start at `SecretRedactor.redact_text`. `secrets.py` and `personal_data.py` find what to replace.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from toolspan.redaction.detectors import ESCAPED_LINE_END, detectors_for, find_in_line, may_have_user
from toolspan.redaction.named_secrets import table_cells
from toolspan.redaction.personal_fields import find_personal_value, has_personal_values
from toolspan.redaction.redactor import R
from toolspan.redaction.rules import SecretMatch, shift
from toolspan.redaction.secret_names import NameStrength, looks_random, name_strength, plausible_secret
from toolspan.redaction.secrets import MAX_LINE_CHARS, find_in_text, find_in_windows
from toolspan.redaction.user_names import NameIndex, find_user_names, first_word, stands_alone, words_in

NOTICE = (
    "Redacted: secrets and personal data that were recognized are replaced by placeholders such as [key-1]. "
    "Recognition is best effort; a person should read this through before it is shared."
)
_FIXED_VALUE_FIELDS = frozenset(
    {"kind", "client", "state", "error_kind", "error_group", "retry", "branch", "wait_certainty", "phase", "type",
     "outcome", "voice", "part", "redacted"}
)  # fmt: skip
"""Fields whose values come from this program, not from a transcript."""
_PLACEHOLDER = re.compile(
    r"\[(?:key|secret|login|email|person|user|ip|mac|host|phone|card|iban|ssn|id|address)-\d{1,9}\]?"
)
_TOO_DEEP = "[nested too deeply]"
_PLAIN_ID = re.compile(
    r"(?:toolu|msg|req|call|fc)_(?!\w*AIza|A(?:KIA|SIA|ROA|IDA|GPA)|SK|AC)[0-9A-Za-z]{16,40}"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|\d{4}-\d\d-\d\dT[\d:.]{5,20}Z"
)
"""Ids and times that clients write, unless they may contain a key.

perf: they are different each time, so that caching the result for each word does not help.
"""
_EDGES = "\"'`*[],.;!?}"
"""Characters around a word that no rule needs. They are removed, so that `"word"` and `word.` are checked as `word`."""
_MAX_KNOWN_WORDS = 200_000
_MAX_WORD_CHARS = 128
_MAX_KNOWN_TEXTS = 50_000
_MAX_TEXT_CHARS = 256
_BLOCK_CHARS = 50_000
_CONTEXT_CHARS = 80
_NAMES = -1
"""The number that marks a word with a part of a known name, among the numbers of detectors."""


class _Replacement(NamedTuple):
    kind: str
    placeholder: str
    rule: str
    text_line: int
    context: str = ""


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
        self._suspicious_words: dict[str, frozenset[int]] = {}
        """The words that call for detectors, with the numbers of these; see `detectors_for`."""
        self._words_by_part: defaultdict[str, list[str]] = defaultdict(list)
        """The words in both, by their parts without punctuation. A new name removes the words that contain it."""
        self._names = NameIndex()
        self._name_parts: set[str] = set()
        """The first word of each name that is replaced everywhere."""
        self._known_texts: dict[str, tuple[str, tuple[_Replacement, ...]]] = {}
        self._record: object = None
        self._path: list[str] = []
        self.add_names(names)

    def learn_names(self, lines: Iterable[bytes]) -> None:
        """Collect the user names in the home folders that occur in `lines`. These names are replaced everywhere."""
        self.add_names(find_user_names(lines))

    def redact_record(self, record: R) -> R:
        """Return the record with secrets replaced."""
        self._record = record
        before, first = self.counts.total(), len(self.replacements)
        changed = self._redact_fields(record)
        program = changed.get("error_program")  # the shell removes backslashes, which may join a name to other words
        if isinstance(program, str) and any(name in program.lower() for name in self._name_placeholders):
            changed["error_program"] = None
        place = {"session": changed.get("session") or changed.get("id")}
        counts_replacements = "redacted" in record.__struct_fields__  # only records of calls do
        if counts_replacements:
            place["call"] = changed["id"]
        self.replacements[first:] = [replace(item, **place) for item in self.replacements[first:]]
        if counts_replacements:
            changed["redacted"] = self.counts.total() - before
        return replace(record, **changed)

    def redact_text(self, text: str) -> str:
        """Return `text` with secrets replaced."""
        if _PLAIN_ID.fullmatch(text):
            return text
        known = self._known_texts.get(text)
        if known is None:
            name_count = len(self._name_placeholders)
            known = self._redact_new_text(text)
            if name_count < len(self._name_placeholders):  # a name may precede the place that reveals it
                name_count = len(self._name_placeholders)
                known = self._redact_new_text(text)
            if len(text) <= _MAX_TEXT_CHARS and name_count == len(self._name_placeholders):
                if len(self._known_texts) > _MAX_KNOWN_TEXTS:
                    self._known_texts.clear()
                self._known_texts[text] = known
        redacted, replacements = known
        for replacement in replacements:
            self._note(replacement)
        return redacted

    def _redact_new_text(self, text: str) -> tuple[str, tuple[_Replacement, ...]]:
        findings = [*find_in_text(text)]
        for name, value, start in table_cells(text, has_personal_values) if "\n" in text else ():
            findings += (shift(finding, start) for finding in [find_personal_value(name, value)] if finding)
        for start, end in _blocks(text):
            block = text[start:end]
            find = find_in_windows(block, self._find_in_block) if "\n" not in block else self._find_in_block(block)
            findings += (shift(finding, start) for finding in find)
        return self._replace_findings(text, findings) if findings else (text, ())

    def _find_in_block(self, block: str) -> Iterator[SecretMatch]:
        words = set((block.replace("→", " ") if "→" in block else block).split())  # the arrow follows line numbers
        words -= self._harmless_words
        suspicious = self._find_suspicious(words) if words else {}
        numbers_by_line: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        for word, numbers in suspicious.items():
            at = block.find(word) if "\n" in block else 0
            while at >= 0:
                end = block.find("\n", at)
                line = block.rfind("\n", 0, at) + 1, len(block) if end < 0 else end
                numbers_by_line[line] |= numbers
                at = block.find(word, line[1])
        for (start, end), line_numbers in sorted(numbers_by_line.items(), key=itemgetter(0)):
            yield from (shift(finding, start) for finding in self._find_in_line(block[start:end], line_numbers))

    def _find_suspicious(self, words: set[str]) -> dict[str, frozenset[int]]:
        """Return the words that call for detectors. The results are cached.

        perf: most words of a transcript occur many times, and the new ones are searched together. Without this, a
        redacted export takes several times as long.
        """
        suspicious = {word: numbers for word in words if (numbers := self._suspicious_words.get(word))}
        raw_words: dict[str, list[str]] = {}
        for word in words.difference(suspicious):
            bare = word.strip(_EDGES)
            is_plain = bare[-1:].isalpha() and "$" not in bare  # the dot may belong to a hash
            raw_words.setdefault(bare if is_plain else word, []).append(word)
        for bare in self._harmless_words.intersection(raw_words):
            self._remember(raw_words.pop(bare), words_in(bare.lower()), frozenset())
        if not raw_words:
            return suspicious
        if len(self._harmless_words) + len(self._suspicious_words) > _MAX_KNOWN_WORDS:
            self._harmless_words.clear()
            self._suspicious_words.clear()
            self._words_by_part.clear()
        texts = [ESCAPED_LINE_END.sub(" ", word) if "\\" in word else word for word in raw_words]
        called = detectors_for(texts, [text.lower() for text in texts])
        for (bare, raw), text in zip(raw_words.items(), texts, strict=True):
            parts = words_in(bare.lower())
            numbers = called.get(text, frozenset())
            if not self._name_parts.isdisjoint(parts):
                numbers |= {_NAMES}
            if numbers:
                suspicious |= dict.fromkeys(raw, numbers)
            if len(bare) <= _MAX_WORD_CHARS:
                self._remember(raw if numbers else [bare, *raw], parts, numbers)
        return suspicious

    def _remember(self, words: list[str], parts: Iterable[str], numbers: frozenset[int]) -> None:
        if numbers:
            self._suspicious_words |= dict.fromkeys(words, numbers)
        else:
            self._harmless_words.update(words)
        for part in parts:
            self._words_by_part[part] += words

    def _find_in_line(self, line: str, numbers: set[int]) -> Iterator[SecretMatch]:
        for finding in find_in_line(line, numbers - {_NAMES}):
            if finding.rule == "home-folder":
                self.add_names((line[finding.start : finding.end],))
            yield finding
        if _NAMES in numbers or may_have_user(numbers):
            low = line.lower() if len(line.lower()) == len(line) else line
            for pattern in self._names.patterns_in(low):
                yield from (SecretMatch(*match.span(), "user", "name") for match in pattern.finditer(low))

    def _replace_findings(self, text: str, findings: list[SecretMatch]) -> tuple[str, tuple[_Replacement, ...]]:
        """Replace the findings. Overlapping findings are merged, and the first one determines their kind."""
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
        replacements: list[_Replacement] = []
        places: list[int] = []
        at = length = counted = 0
        text_line = int(self._keep_report)
        for start, end, kind, rule in merged:
            placeholder = self._placeholder(kind, text[start:end])
            text_line += text.count("\n", counted, start) if self._keep_report else 0
            counted = start
            replacements.append(_Replacement(kind, placeholder, rule, text_line))
            pieces += (text[at:start], placeholder)
            places.append(length + start - at)
            length += start - at + len(placeholder)
            at = end
        redacted = "".join((*pieces, text[at:]))
        if self._keep_report:
            replacements = [
                item._replace(context=_line_around(redacted, place))
                for item, place in zip(replacements, places, strict=True)
            ]
        return redacted, tuple(replacements)

    def _placeholder(self, kind: str, value: str) -> str:
        if kind in ("user", "person"):
            name = value.lower()
            if kind == "person":
                self.add_names((value,), kind)
            return self._name_placeholders.get(name) or self._placeholder_for(kind, name)
        return self._placeholder_for(kind, value)

    def _note(self, replacement: _Replacement) -> None:
        kind, placeholder, rule, text_line, context = replacement
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
                context=context,
            )
        )

    def add_names(self, names: Iterable[str], kind: str = "user") -> None:
        """Replace these names from now on, as separate words and as parts of folder names."""
        new = {name for name in map(str.lower, names) if name and name not in self._name_placeholders}
        new = {name for name in new if not _PLACEHOLDER.fullmatch(name)}
        if not new:
            return
        for name in sorted(new):
            placeholder = self._placeholder_for(kind, name)
            for form in (name, re.sub(r"[^0-9a-z]", "-", name)):  # as written, and as in folder names of Claude Code
                if form not in self._name_placeholders:
                    self._name_placeholders[form] = placeholder
                    self._names.add(form)
                part = first_word(form) if stands_alone(form) else ""
                if part and part not in self._name_parts:
                    self._name_parts.add(part)
                    for word in self._words_by_part.pop(part, ()):
                        self._harmless_words.discard(word)
                        self._suspicious_words.pop(word, None)
        self._known_texts.clear()

    def _placeholder_for(self, kind: str, value: str) -> str:
        placeholder = self._placeholders.get((kind, value))
        if placeholder is None:
            self._placeholder_counts[kind] += 1
            placeholder = self._placeholders[kind, value] = f"[{kind}-{self._placeholder_counts[kind]}]"
        return placeholder

    def _redact_fields(self, record: Struct) -> dict[str, object]:
        changed: dict[str, object] = {}
        for name in record.__struct_fields__:
            value = getattr(record, name)
            if value is None or isinstance(value, (int, float)) or name in _FIXED_VALUE_FIELDS:
                continue
            depth = len(self._path)
            try:
                changed[name] = self._redact_at(name, value)
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
        if isinstance(value, str) and (finding := find_personal_value(key, value)):
            placeholder = self._placeholder(finding.kind, value)
            self._path.append(name)
            self._note(_Replacement(finding.kind, placeholder, finding.rule, 0))
            self._path.pop()
            return name, placeholder
        if strength is NameStrength.NONE or (
            strength is NameStrength.WEAK and not (isinstance(value, str) and len(value) < 512 and looks_random(value))
        ):
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
                self._note(_Replacement("secret", placeholder, "name " + ".".join(self._path[-1:]), 0))
                return placeholder


def _line_around(text: str, place: int) -> str:
    """Return the line that contains an offset, truncated to the part around the offset."""
    first = max(0, place - _CONTEXT_CHARS)
    start = max(text.rfind("\n", first, place) + 1, first)
    return text[start : place + _CONTEXT_CHARS].partition("\n")[0]


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of blocks of whole lines, which limit the work for each word. A long line is one block."""
    start = 0
    while start < len(text):
        end = len(text) if len(text) - start <= _BLOCK_CHARS else text.rfind("\n", start, start + _BLOCK_CHARS)
        line = start
        while line + MAX_LINE_CHARS < (end if end >= 0 else len(text)):
            line_end = text.rfind("\n", line, line + MAX_LINE_CHARS + 1)
            if line_end < 0:  # a long line
                end = line - 1 if line > start else text.find("\n", line)
                break
            line = line_end + 1
        end = len(text) if end < 0 else end
        yield start, end
        start = end + 1
