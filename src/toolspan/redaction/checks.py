"""The checks of the rules for secrets: functions that decide whether a matched value is a secret.

`CHECKS` has one for each `check` in secret_rules.toml. Each gets a match and the place of the value in it, and returns
the parts to be replaced: usually the value or nothing.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator

from toolspan.redaction.rules import Check, Span
from toolspan.redaction.secret_names import (
    PASSWORD_WORD,
    NameStrength,
    has_mixed_characters,
    is_certain_secret,
    is_secret_value,
    is_sentence_value,
    looks_like_password,
    looks_random,
    name_strength,
    plausible_secret,
)

_DIGIT = re.compile(r"\d")
_LETTER = re.compile(r"[^\W\d_]")
_HERE_STRING_READER = re.compile(
    r"(?i)(?<!\w)(?:sudo|su|passwd|chpasswd|kinit|cryptsetup|login|secrets?|pass(?:word|phrase)?\w*|auth|token)(?!\w)"
)
_DATABASE_CLIENT = re.compile(r"(?<![\w-])(?:mysql|mariadb)[\w-]*[ ]")
"""A program whose `-p` takes a password only without a space."""
_VAGUE_PARAMETER = re.compile(r"(?i)[?&;](?:amp;)?(?:key|auth|code|session|sig|appid)=")
_REQUEST = re.compile(r"(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS|[Ll]ocation:|path[=:])[ ]?[\"']?/\S*\Z")
"""The beginning of a URL without a host, as in a request or a log."""
_SECRET_CONTEXT = re.compile(r"(?i)azure|fernet|cipher|crypt|account|storage|secret|shared|\bkey\b|aws|credential")
_NAME_LINE = re.compile(
    r"(?i)(?:name|key|variable|id)\\*[\"']?[ \t]*[:= ][ \t]*\\*[\"']?(?P<name>[\w.-]{3,64})\\*[\"']?[ \t]*[,{]?\s*\Z"
)
_KEY_LINE = re.compile(r"[0-9A-Za-z+/=]{8,80}(?:\\{1,8}[nr]?|\s){0,40}\Z")
"""A line of a private key. Escaped line ends may follow it."""
_MAX_KEY_LINES = 400
_IDENTIFIER_TEXT = re.compile(r"[^\W\d]+(?:[ .,:'-]+[^\W\d]+)*[.!?:]?")


def entropy(text: str) -> float:
    """Return the Shannon entropy of a string in bits per character."""
    total = len(text)
    return -sum(count / total * math.log2(count / total) for count in Counter(text).values())


def make_key_check(least_entropy: float) -> Check:
    """Return a check for keys that accepts the names of functions no more than text of low entropy."""

    def check(match: re.Match[str], start: int, end: int) -> Iterator[Span]:
        value = match.string[start:end]
        is_function = match.string[end : end + 1] == "(" and value.replace(".", "").isalpha()
        if not is_function and entropy(value) >= least_entropy:
            yield start, end

    return check


def _check_value(accepts: Callable[[str], bool]) -> Check:
    def check(match: re.Match[str], start: int, end: int) -> Iterator[Span]:
        if accepts(match.string[start:end]):
            yield start, end

    return check


def _check_named(accepts: Callable[[str, str, NameStrength], bool]) -> Check:
    """Return a check of a value and the name that the match contains."""

    def check(match: re.Match[str], start: int, end: int) -> Iterator[Span]:
        strength = name_strength(match["name"])
        if strength and accepts(match.string[start:end], match["name"], strength):
            yield start, end

    return check


def is_value_of(value: str, name: str, strength: NameStrength) -> bool:
    """Return whether the value of a name is a secret, if it cannot be code."""
    return is_secret_value(value, name, strength, quoted=True, certain=True, whole_line=True)


def _is_cell_value(value: str, _name: str, strength: NameStrength) -> bool:
    is_secret = looks_random(value) if strength is NameStrength.WEAK else plausible_secret(value)
    return is_secret and not _IDENTIFIER_TEXT.fullmatch(value.strip())


def is_random_base64(text: str) -> bool:
    """Return whether a string mixes characters as encoded random bytes do, unlike digests, names and paths."""
    changes = sum(a.islower() and b.isupper() for a, b in itertools.pairwise(text))
    return bool(_DIGIT.search(text)) and changes >= 4 and entropy(text) >= 4.2 and not re.search("[a-z]{10}", text)


def _is_random_id(text: str) -> bool:
    """Return whether a string mixes digits and letters of one case as random keys do, and is not a digest."""
    changes = sum(a.isdigit() != b.isdigit() for a, b in itertools.pairwise(text))
    return changes >= len(text) // 4 and bool(re.search("[g-zG-Z]", text)) and not re.search("[a-z]{8}", text)


def _check_prefixed(match: re.Match[str], start: int, end: int) -> Iterator[Span]:
    """Accept a key of any vendor, such as `acme_live_…`; its prefix is replaced too."""
    value = match.string[start:end]
    if is_random_base64(value) or _is_random_id(value):
        yield match.span()


def _check_encoded(match: re.Match[str], start: int, end: int) -> Iterator[Span]:
    """Accept base64 after a word such as `storage` or `key`."""
    if _SECRET_CONTEXT.search(match.string, max(0, start - 80), start) and entropy(match[0]) >= 4.2:
        yield start, end


def is_mixed(value: str) -> bool:
    """Return whether a value has digits and letters."""
    return bool(_DIGIT.search(value) and _LETTER.search(value))


def _check_sentence(match: re.Match[str], start: int, end: int) -> Iterator[Span]:
    value = match.string[start:end].rstrip(".,;:!?)")
    if is_mixed(value) and len(value) >= 6 and is_sentence_value(value) and not PASSWORD_WORD.match(value):
        yield start, start + len(value)


def _check_codes(match: re.Match[str], start: int, _end: int) -> Iterator[Span]:
    codes = match["value"].replace(",", " ").split()
    if _DIGIT.search(match["value"]) and all(_DIGIT.search(code) or "-" in code for code in codes):
        yield start, start + len(match["value"].rstrip())


def _check_here_string(match: re.Match[str], start: int, end: int) -> Iterator[Span]:
    if _DIGIT.search(match["value"]) and _HERE_STRING_READER.search(match.string):
        yield start, end


def _check_login_options(match: re.Match[str], start: int, end: int) -> Iterator[Span]:
    line = match.string
    is_separate = line[start - 1] in " =" or line[start - 2 : start - 1] in " ="
    is_plausible = plausible_secret(line[start:end])
    if is_plausible and not (is_separate and _DATABASE_CLIENT.search(line, 0, start)):
        yield start, end


def _check_login_command(match: re.Match[str], start: int, end: int) -> Iterator[Span]:
    value = match.string[start:end]
    is_mail = match["value"] is None  # the protocol IMAP
    if looks_random(value) or (is_mail and is_certain_secret(value, NameStrength.PASSWORD)):
        yield start, end


def _is_login(login: str) -> bool:
    user, _, word = login.partition(":")
    if word:
        return plausible_secret(word) and not re.match(r"\$[({]", word)
    return plausible_secret(user) and user.lower() not in ("git", "user", "username", "you", "name")


def _check_url_parameter(match: re.Match[str], start: int, end: int) -> Iterator[Span]:
    value, line = match["value"], match.string
    is_url = "://" in line[: match.start()] or _REQUEST.search(line, 0, match.start())
    is_clear = _DIGIT.search(value) or len(value) >= 12 or not _VAGUE_PARAMETER.match(match[0])
    if is_url and is_clear and plausible_secret(value):
        yield start, end


def _check_header(match: re.Match[str], start: int, end: int) -> Iterator[Span]:
    value, first = match["value"], match["value"].split(" ")[0]
    if plausible_secret(value) and _is_header_value(value):
        yield start, end
    elif match["scheme"] and plausible_secret(first) and _is_header_value(first) and _DIGIT.search(first):
        yield start, start + len(first)


def _is_header_value(value: str) -> bool:
    """Return whether a value can be credentials or cookies, as opposed to a sentence or code."""
    value = value.strip()
    if " " not in value and re.fullmatch(r"[^\s()\[\]{}|,]{6,}", value) and not re.fullmatch(r"[A-Za-z_.]+", value):
        return True
    if re.fullmatch(r"[\w.-]+=[^\s;()]+(?:; ?[\w.-]+(?:=[^\s;()]*)?)*;?", value):  # cookies
        return True
    return looks_random(value) and not re.search(r"\(|\)|->| or | and ", value)


def _check_cookie_items(match: re.Match[str], start: int, end: int) -> Iterator[Span]:
    """Accept cookies as the argument of a function, as in `cookies={"session": "…"}`."""
    for item in re.finditer(r":[ ]?\\*[\"']([^\s\"'\\]{16,})", match.string[start:end]):
        if looks_random(item[1]):
            yield start + item.start(1), start + item.end(1)


def _check_sql_insert(match: re.Match[str], start: int, _end: int) -> Iterator[Span]:
    """Accept the values that a statement inserts into columns for passwords."""
    columns = [name_strength(column.strip(" `\"[]'")) for column in match["name"].split(",")]
    values = re.finditer(r"'((?:[^'\n]|'')*)'|[^,()\s]+", match["value"])
    for strength, value in zip(columns, values, strict=False):
        if strength >= NameStrength.STRONG and value[1] and plausible_secret(value[1]):
            yield start + value.start(1), start + value.end(1)


def _check_key_end(match: re.Match[str], start: int, end: int) -> Iterator[Span]:
    """Accept a private key whose beginning is cut off, with the lines of base64 before its end."""
    at = start
    for _ in range(_MAX_KEY_LINES):
        if line := _KEY_LINE.search(match.string, max(0, at - 160), at):
            at = line.start()
    if at < start:
        yield at, end


def _check_value_line(match: re.Match[str], start: int, end: int) -> Iterator[Span]:
    """Accept the value of a name in one of the four lines before, as in Terraform."""
    lines = match.string[max(0, match.start() - 400) : match.start()].split("\n")[:-1]
    for line in reversed(lines[-4:]):
        if name := _NAME_LINE.search(line):
            strength = name_strength(name["name"])
            if strength and is_value_of(match["value"], name["name"], strength):
                yield start, end
        if name or not line.strip(" \t{}[],-"):
            return


CHECKS: dict[str, Check] = {
    "any": _check_value(lambda _: True),
    "plausible": _check_value(plausible_secret),
    "random": _check_value(looks_random),
    "random_secret": _check_value(lambda value: looks_random(value) and plausible_secret(value)),
    "random_base64": _check_value(is_random_base64),
    "certain": _check_value(lambda value: is_certain_secret(value, NameStrength.PASSWORD)),
    "label": _check_value(lambda value: has_mixed_characters(value) and is_sentence_value(value.replace("(", ""))),
    "password": _check_value(looks_like_password),
    "login_url": _check_value(_is_login),
    "named": _check_named(is_value_of),
    "named_certain": _check_named(lambda value, _, strength: is_certain_secret(value, strength)),
    "named_random": _check_named(lambda value, _, strength: strength >= NameStrength.STRONG and looks_random(value)),
    "cell": _check_named(_is_cell_value),
    "prefixed": _check_prefixed,
    "encoded": _check_encoded,
    "sentence": _check_sentence,
    "codes": _check_codes,
    "here_string": _check_here_string,
    "login_options": _check_login_options,
    "login_command": _check_login_command,
    "url_parameter": _check_url_parameter,
    "header": _check_header,
    "cookie_items": _check_cookie_items,
    "sql_insert": _check_sql_insert,
    "key_end": _check_key_end,
    "value_line": _check_value_line,
}
