"""Personal data that follows a label: `Phone: …`, `"date_of_birth": "…"`, `<td>Passport No</td><td>…</td>`.

Each label belongs to a kind of value, and each kind has a pattern. Label and value are separated as in prose, JSON,
YAML, env files, HTML or query strings. Start at `find_labelled`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import NamedTuple

from toolspan.redaction.rules import SecretMatch, load_data

_MONTH = r"(?i:jan|feb|mar|mär|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[a-zä]{0,7}\.?"
_NOT_A_NAME = re.compile(
    r"(?i)\b(?:test|your|user|names?|first|last|full|string|str|text|optional|none|null|true|false|required|field|column|john"
    r"|jane|doe|foo|bar|any|int|object|unknown|default|type|value|array|list|(?:var)?char|example|label|must|should)\b|(?-i:\w[a-z][A-Z])"
)


class _Value(NamedTuple):
    """A kind of value: the pattern that its values match, and a check."""

    kind: str
    """The name of the kind in placeholders, such as `phone`."""
    pattern: re.Pattern[str]
    accepts: Callable[[str, _Place], bool] = lambda _value, _place: True
    after_space: bool = False
    """True if the value may follow the label without a separator."""


class _Place(NamedTuple):
    label: str
    """The label as written."""
    is_quoted: bool
    follows_space: bool
    """True if there is no separator between the label and the value."""


def _is_phone_number(value: str, _place: _Place) -> bool:
    return 7 <= sum(map(str.isdigit, value)) <= 15


def _is_id(value: str, place: _Place) -> bool:
    digits = sum(map(str.isdigit, value))
    least = 6 if len(place.label) <= 4 or place.follows_space else 4
    return len(value) >= 5 and digits >= least and not re.fullmatch(r"\d+\.\d+|0x[0-9a-f]{1,16}", value)


def _is_person(value: str, place: _Place) -> bool:
    is_code = not place.is_quoted and " " not in value and place.label.rpartition(" ")[2][:1].islower()
    return not is_code and not _NOT_A_NAME.search(value) and not value.isupper()


def _is_address(value: str, place: _Place) -> bool:
    if re.search(r"://|0x|\d\.\d|:\d", value):
        return False
    least = r"\d{1,5}\w?[ ]+(?:\w{1,8}[ ])*[^\W\d_a-z]|[^\W\d_][^\W\d_]{2}.*[ ]\d{1,5}[ ]?[A-Za-z]?\b"
    return bool(re.match(least, value)) and (place.is_quoted or bool(re.search(r"[^\W\d_a-z]\w", value)))


_PHONE = _Value("phone", re.compile(r"\(?\+?\(?\d[\d ()./-]{5,18}\d"), _is_phone_number, after_space=True)
_ID = _Value(
    "id",
    re.compile(
        r"[0-9A-Z](?=[0-9A-Za-z ./-]{0,19}\d)[0-9A-Za-z./-]{0,63}(?:[ ](?=[A-Z./-]{0,4}\d|[A-D]\b|[A-Z][ ]\d)[0-9A-Z./-]{1,9}){0,7}"  # noqa: E501
        r"(?<![./-])(?![\w(\[])"
    ),
    _is_id,
    after_space=True,
)
_BANK = _Value("id", re.compile(r"[A-Z]{6}[0-9A-Z]{2}(?:[0-9A-Z]{3})?(?!\w)"), after_space=True)
_BIRTHDAY = _Value(
    "id",
    re.compile(
        rf"\d{{1,4}}[./ -]\d{{1,2}}[./ -]\d{{2,4}}|\d{{1,2}}(?:st|nd|rd|th|\.)?[ -]{_MONTH}[ ,-]{{1,2}}\d{{4}}"
        rf"|{_MONTH}[ -]\d{{1,2}}(?:st|nd|rd|th)?,?[ ]\d{{4}}|(?:19|20)\d{{6}}\b|(?:19[2-9]|20[01])\d\b"
    ),
    after_space=True,
)
_PERSON = _Value(
    "person", re.compile(r"[^\W\d_a-z][\w'’.-]*\w(?:[ ][^\W\d_a-z][\w'’.-]*){0,3}(?<!\.)(?![\w(\[]|\.\w)"), _is_person
)
_ADDRESS = _Value("address", re.compile(r"[^\"'`\n\\<>|;{}=()\t&]{6,90}"), _is_address)
_POSTCODE = _Value(
    "address",
    re.compile(
        r"(?:\d{4,6}(?:-\d{3,4})?|[A-Z]{1,2}\d[A-Z\d]?[ ]?\d[A-Z]{2}|[A-Z]\d[A-Z][ ]?\d[A-Z]\d|\d{4}[ ]?[A-Z]{2})(?![\w.])"  # noqa: E501
    ),
)
_COORDINATE = _Value("place", re.compile(r"[+-]?\d{1,3}\.\d{4,}"))
_COORDINATES = _Value("place", re.compile(r"[+-]?\d{1,3}\.\d{3,}°?,[ ]?[+-]?\d{1,3}\.\d{3,}°?"), after_space=True)

_VALUES = {
    "phone": _PHONE, "id": _ID, "bank": _BANK, "birthday": _BIRTHDAY, "person": _PERSON, "address": _ADDRESS,
    "postcode": _POSTCODE, "coordinate": _COORDINATE, "coordinates": _COORDINATES,
}  # fmt: skip
"""The kinds of values. Their labels are in words.toml."""
_NUMBER_WORDS = frozenset({"number", "numbers", "nummer", "num", "nr", "no", "id", "code", "value"})
_COMMON_WORDS = frozenset(
    {"first", "last", "full", "given", "family", "middle", "legal", "contact", "billing", "shipping", "home",
     "number", "card", "code", "account", "street", "line", "to", "at", "address", "place", "send", "live", "lives",
     "call", "text", "ring", "next", "point", "post", "policy", "security", "sort", "credit", "of", "me", "on",
     "us", "no", "id", "nr", "file", "name", "holder", "member", "record", "reg", "group"}
)  # fmt: skip
"""Words of labels that occur in too many other lines to be used as hints."""
_WORD = re.compile(r"[A-Z]+(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+(?:'s)?")
_MAX_LABEL = 48
_MAX_WORDS = 4
_SEPARATOR = re.compile(
    r"(?=[\s\\\"'`*\]:=：|#<>,@])(?:(?P<mark>(?<!\\)\\*+[\"'`*\]]{0,3}[ \t]{0,4}(?:=>|[=：|#]|(?<!:):(?!:))(?:</?\w[^<>\n]{0,80}>|[ \t*\\\"'`\[(]){0,6}"  # noqa: E501
    r"|(?:</\w{1,10}>[ ]?){1,2}(?:<\w[^<>\n]{0,80}>[ ]?){1,3}|>(?=[^<>\n]{2,99}</)|[ ](?:is|ist|est)[ ][\"'`]?)"
    r"|(?P<attribute>(?<!\\)\\*+[\"'][ ,][^<>{}\n]{0,80}?\b(?:value|content)\\*[\"']?[ ]?[=:][ ]?\\*[\"'])"
    rf"|(?P<space>\.?[ ])(?=[+(]?[A-Z]{{0,2}}\d|[A-Z]{{6}}|{_MONTH}[ -]\d))"
)


@cache
def _values_by_label() -> dict[str, _Value]:
    table = {}
    for kind, labels in load_data("words.toml")["labels"].items():
        for label in labels.split(","):
            table["".join(label.split()).replace("'", "")] = _VALUES[kind]
    return table


@lru_cache(maxsize=8192)
def _value_of(text: str) -> _Value | None:
    """Return the kind of value for the label at the end of a text, or None if there is none."""
    words = [word.lower() for word in _WORD.findall(text)][-_MAX_WORDS - 1 :]
    table = _values_by_label()
    if words and (stem := re.sub(r"(?<=\w{3})(?:number|nummer)\Z", "", words[-1])):
        words[-1:] = [stem] if stem in table else words[-1:]
    for end in range(len(words), 0, -1):
        for start in range(max(0, end - _MAX_WORDS), end):
            if value := table.get("".join(words[start:end]).replace("'", "")):
                return value
        if words[end - 1] not in _NUMBER_WORDS:
            break
    return None


def label_hints() -> Iterator[str]:
    """Yield patterns for lower-case text, of which at least one matches in every label.

    Coordinates and phone numbers in sentences ("call me at …") have separate hints.
    """
    kinds = load_data("words.toml")["labels"]
    labels = [labels.split(",") for kind, labels in kinds.items() if kind != "coordinates"]
    for label in itertools.chain.from_iterable(labels):
        words = label.split()
        rare = max((word for word in words if word not in _COMMON_WORDS), key=len, default="")
        if len(rare) > 2:
            yield re.escape(rare) + ("" if len(rare) > 4 else rf"(?<![^\W_]{re.escape(rare)})(?![^\W_])")
        if len(words) > 1:
            yield "[_-]?".join(map(re.escape, words))
        elif len(rare) <= 4:
            yield rf"{re.escape(words[0])}(?=[\"']?[:=])"
    yield from (r"address(?![a-z])", "street(?![a-z])", "name:", "code:", "number:", "card:")


def find_labelled(line: str) -> Iterator[SecretMatch]:
    """Yield the personal values in a line that follow a label."""
    end = 0
    for separator in _SEPARATOR.finditer(line):
        if separator.start() < end:
            continue
        label = line[max(end, separator.start() - _MAX_LABEL) : separator.start()]
        value = _value_of(label)
        if value is None or (separator["space"] and not value.after_space):
            continue
        match = value.pattern.match(line, separator.end())
        is_quoted = separator[0][-1:] in "\"'`>" or separator["attribute"] is not None
        place = _Place(label.strip(), is_quoted, separator["space"] is not None)
        if match and value.accepts(match[0], place):
            yield SecretMatch(*match.span(), value.kind, f"{value.kind}-field")
            end = match.end()


def has_personal_values(name: str) -> bool:
    """Return whether the name of a field or column is a label of personal data."""
    return _value_of(name) is not None


def find_personal_value(name: str, value: str) -> SecretMatch | None:
    """Return a match for `value` if it is personal data according to its name, or None."""
    shape = _value_of(name)
    match = shape.pattern.fullmatch(value) if shape else None
    if shape and match and shape.accepts(value, _Place(name, is_quoted=True, follows_space=False)):
        return SecretMatch(*match.span(), shape.kind, f"{shape.kind}-field")
    return None
