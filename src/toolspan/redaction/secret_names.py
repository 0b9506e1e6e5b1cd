"""Classify names and values: `api_key` is the name of a secret, but `str` and `${TOKEN}` are not secret values.

`name_strength` examines the last noun of a name: `DB_PASSWORD` is strong, `token` is weak, and `token_count` is not the
name of a secret. The value of a weak name must look random. The value of a strong name may be anything except code and
placeholders.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

from toolspan.redaction.rules import load_data, load_words


class NameStrength(IntEnum):
    """The likelihood that the value of a name is a secret."""

    NONE = 0
    WEAK = 1
    """A secret if the value looks random."""
    STRONG = 2
    """A secret unless the value is code or a placeholder."""
    PASSWORD = 3
    """Like `STRONG`, but the value may also be an ordinary word."""


FOREIGN_PASSWORDS = load_words("names", "foreign_passwords")
FOREIGN_SECRETS = load_words("names", "foreign_secrets")
FOREIGN_KEYS = load_words("names", "foreign_keys")
FOREIGN_PHRASES: tuple[str, ...] = tuple(load_data("words.toml")["names"]["foreign_phrases"])
"""Names that consist of several words. Their last word alone need not be a name."""
FOREIGN_NAMES = (*FOREIGN_PHRASES, *sorted(FOREIGN_PASSWORDS | FOREIGN_SECRETS | FOREIGN_KEYS, key=len, reverse=True))
_PASSWORDS = FOREIGN_PASSWORDS | load_words("names", "passwords")
_STRONG = FOREIGN_SECRETS | load_words("names", "strong")
_NUMERIC = load_words("names", "numeric")
_WEAK = FOREIGN_KEYS | load_words("names", "weak")
_TOKEN_OWNERS = load_words("names", "token_owners")
_KEY_OWNERS = load_words("names", "key_owners")
_SUFFIXES = load_words("names", "suffixes")
_OTHER_NOUNS = load_words("names", "other_nouns")
_VERBS = load_words("names", "verbs")
_GENERIC_VALUES = load_words("values", "generic")
_STRONG_ENDING = re.compile(
    r"(?:password|passwd|apikey|secret|passphrase|(?<!by)(?<!com)(?<!tres)(?<!sur)(?<!over)(?<!under)pass|[a-z]pwd|[a-z]sess(?:ion)?id)\Z"
)
_NAME_WORDS = re.compile(r"[A-Z]+(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_PLACEHOLDER_VALUE = re.compile(
    r"""(?ix)\A(?:
    <[^<>]*>? | \$\{?[A-Za-z_(][^\s]* | \{\{?[^{}]*\}?\}? | %\(?[A-Za-z_]+\)?[sd%]? | %[sdr] | @[A-Z_]+@ | \#\{.*
    | \$\{\{.* | \$\(.* | [,;)\]}](?:\s.*)? | .*\(\?[:=!<].* | [*•·x.…_?#-]+ | \[[^\[\]]*\] | \(.*\) | your[\W_].* | my[\W_](?:secret|password|token|key|api)\S* | \.\.\..* | … | \.\w+\(.* | ![01]\b.*
    | (?:insert|enter|replace|change|put|add)[\W_]\S* | redacted\S* | \S*redacted\S* | \S+[…]
    | os\.\S+ | process\.env\S* | (?:self|this|cls|config|settings|args|opts|options|env|ctx|request|req|props|state|params|data)\.\S+
    )\Z"""  # noqa: E501
)
_RULE = re.compile(
    r"required|string|nullable|null|undefined|sometimes|confirmed|bail|filled|present|prohibited|exclude|text|varchar"
    r"|char|str|int|integer|numeric|number|bool|boolean|array|object|uuid|ulid|email|url|date|json|file|image|ascii"
    r"|alpha|alpha_num|alpha_dash|alphanum|lowercase|uppercase|current_password|optional|omitempty|hashed|encrypted"
    r"|(?:min|max|size|digits|between|digits_between|min_length|max_length|len|gte?|lte?)[:=]\d{1,6}(?:,\d{1,6})?"
    r"|(?:same|different|required_with|required_without|eqfield|nefield)[:=]"
    r"(?:(?:new_|current_|old_|confirm_)?password|password_confirmation|(?:New|Current|Old|Confirm)?Password)"
)
"""A rule for a value, or a type of it. Rules with free text, such as `regex:`, are not listed: it may be a secret."""
_SINGLE_RULE = re.compile(r"(?:min|max)[:=]\d{1,3}|nullable|confirmed|varchar|hashed|encrypted")
_RULE_SEPARATOR = re.compile(r"[ ]?\|[ ]?")
_CODE = re.compile(r"[()]|=>|->|::|&&|\|\||^[!&*@|]|\?\.|\[\w{0,64}\]|^[\w.]+\[|^f[\"']|^[A-Z]\{[\w.]+\}")
_IDENTIFIER = re.compile(r"[^\W\d][^\W\d]*(?:[.\-/ ][^\W\d]+)*\Z")
_FILE_NAME = re.compile(r"\A(?:[~.]{0,2}/|[A-Z]:)|\.(?:pem|key|json|ya?ml|toml|txt|env|crt|p12|pub|md)\Z")
PASSWORD_WORD = re.compile(
    r"(?i)(?:sha|md|base|utf|aes|rfc|pbkdf|http|oauth|argon|v|step|test|field|column|line|option|page)[_-]?\d"
)
"""The beginning of a word with a number that is not a password, such as `sha256` or `step-2`."""
_DIGIT = re.compile(r"\d")
_LETTER = re.compile(r"[^\W\d_]")
_UPPER_INSIDE = re.compile("[a-z][A-Z]")
_DIGIT_CHANGE = re.compile(r"\d(?=\D)|\D(?=\d)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}:\d\d")


@lru_cache(maxsize=8192)
def name_strength(name: str) -> NameStrength:
    """Return the likelihood that the value of a name such as `dbPassword` or `API_KEY_2` is a secret."""
    words = [word.lower() for word in _NAME_WORDS.findall(name)]
    while len(words) > 1 and (words[-1].isdigit() or words[-1] in _SUFFIXES):
        words.pop()
    is_function = len(words) > 1 and words[-2] in _VERBS and words[-1] != "salt" and not name.isupper()
    if not words or words[-1] in _OTHER_NOUNS or is_function:
        return NameStrength.STRONG if name.lower() in FOREIGN_PHRASES else NameStrength.NONE
    last, owner = words[-1], words[-2] if len(words) > 1 else ""
    is_constant = name.isupper()
    if last in _PASSWORDS:
        return (
            NameStrength.PASSWORD
            if last not in ("pass", "pw") or not owner or owner not in ("by", "first", "second")
            else NameStrength.NONE
        )
    if last in _STRONG or _STRONG_ENDING.search(last) or name.lower() in FOREIGN_PHRASES:
        return NameStrength.STRONG
    if last in _NUMERIC:
        return NameStrength.STRONG if len(words) == 1 or is_constant else NameStrength.NONE
    if last == "token" or last.endswith("token"):
        return NameStrength.STRONG if owner in _TOKEN_OWNERS or (is_constant and owner) else NameStrength.WEAK
    if last == "tokens":
        return NameStrength.WEAK if owner in _TOKEN_OWNERS else NameStrength.NONE
    if last.endswith(("key", "keys")):
        return NameStrength.STRONG if owner in _KEY_OWNERS and last == "key" else NameStrength.WEAK
    if last in _WEAK:
        return NameStrength.WEAK
    heads = set(words)
    if heads & _PASSWORDS and (is_constant or len(words) <= 3):
        return NameStrength.STRONG if is_constant else NameStrength.WEAK
    if heads & (_STRONG | _WEAK):
        return NameStrength.WEAK
    return NameStrength.NONE


def plausible_secret(value: str) -> bool:
    """Return whether a value can be a secret, as opposed to a placeholder, a rule, a variable or code."""
    return (
        len(value) >= 3
        and not _PLACEHOLDER_VALUE.match(value)
        and value.lower().rstrip(".…]") not in _GENERIC_VALUES
        and not _is_validation(value)
    )


def _is_validation(value: str) -> bool:
    """Return whether a value consists of rules, as in `required|string|min:8`. With any other word, it may be a secret.

    The rules are matched one by one, so that the time grows with the length of the value.
    """
    rules = _RULE_SEPARATOR.split(value) if "|" in value else value.split(",")
    if len(rules) == 1:
        return bool(_SINGLE_RULE.fullmatch(value))
    return all(_RULE.fullmatch(rule) for rule in rules)


def looks_random(value: str, least: int = 8) -> bool:
    """Return whether a value looks as if it were generated: letters mixed with digits, no words, paths or dates."""
    if len(value) < least or "://" in value or _DATE.match(value):
        return False
    if not _DIGIT.search(value):
        return len(value) >= 20 and _is_mixed_case(value)
    if not _LETTER.search(value):
        return len(value) >= 12 and value.isdigit()
    parts = re.split(r"[^0-9A-Za-z]+", value)
    if re.fullmatch(r"(?:[0-9A-Z]{3,8}-){2,}[0-9A-Z]{3,8}", value):
        return True  # a licence key
    return any(_is_mixed(part) for part in parts) or _has_symbols(value)


def looks_like_password(value: str) -> bool:
    """Return whether a value looks chosen or generated as a password: letters with digits, and not a name or a path."""
    if not 8 <= len(value) <= 128 or not re.search(r"\d", value) or not re.search(r"[^\W\d_]", value):
        return False
    if (
        not plausible_secret(value)
        or _FILE_NAME.search(value)
        or re.search(r"[()\[\]{}<>=,;|]|://|^[\d.:-]+\w?$|^v?\d+\.", value)
    ):
        return False
    words = {word.lower() for word in _NAME_WORDS.findall(value)}
    return looks_random(value) or (
        not words & {"sha", "md", "utf", "ascii", "aes", "http", "oauth", "base", "test", "id"}
        and bool(re.search(r"[^\w./:@-]|[_-]", value))
        and not value.islower()
    )


def is_sentence_value(value: str) -> bool:
    """Return whether a word of a sentence can be a password, not code or an ordinal."""
    return plausible_secret(value) and not re.search(r"[()\[\]{}=/]|\d(?:st|nd|rd|th)\b|^\d+[a-z]{1,2}$", value)


def is_certain_secret(value: str, strength: NameStrength) -> bool:
    """Return whether a value looks so much like a secret that it need only be near a name, not directly after it."""
    if not plausible_secret(value) or _FILE_NAME.search(value) or "://" in value or _DATE.match(value):
        return False
    if re.search(r"(?:Key|Token|Secret|Password|Credential|Type|Error|Exception)s?\Z", value):
        return False  # a type
    if strength is NameStrength.WEAK:
        return looks_random(value, 16) and not re.search(r"[(){}\[\];]", value)
    if looks_like_password(value) or (looks_random(value, 10) and not re.search(r"[(){}\[\]=]", value)):
        return True
    is_word = 6 <= len(value) <= 64 and bool(re.search(r"\d", value) and re.search(r"[^\W\d_]", value))
    is_other = PASSWORD_WORD.match(value) or re.search(r"[<>,;|/\\]|^\W", value)
    return strength is NameStrength.PASSWORD and is_word and is_sentence_value(value) and not is_other


def has_mixed_characters(value: str) -> bool:
    """Return whether a value has characters of at least three kinds: lower and upper case, digits, symbols."""
    return sum(bool(re.search(kind, value)) for kind in (r"[a-z]", r"[A-Z]", r"\d", r"[^\w./:-]")) >= 3


def _is_mixed_case(value: str) -> bool:
    """Return whether letters change their case as often as in random text, unlike in the names of a program."""
    return len(_UPPER_INSIDE.findall(value)) >= 4 and value.isascii() and not re.search(r"[a-z]{5}|[^\w-]", value)


def _is_noise(value: str) -> bool:
    """Return whether a value has as many kinds of characters as generated salts have, perhaps with spaces."""
    symbols = set(re.findall(r"[^\w\s]", value))
    return (
        len(value) >= 32
        and len(symbols) >= 8
        and bool(re.search(r"\d", value) and re.search("[A-Z]", value) and re.search("[a-z]", value))
        and not re.search("[a-z]{5}", value)
    )


def _is_mixed(part: str) -> bool:
    if len(part) < 6:
        return False
    changes = len(_DIGIT_CHANGE.findall(part))
    return changes >= 3 or (changes == 2 and (len(part) >= 10 or bool(_UPPER_INSIDE.search(part))))


def _has_symbols(value: str) -> bool:
    """Return whether a value is a password such as `Tr0ub4dor&3` or `hunter2!`."""
    return (
        bool(re.search(r"[!@#$%^&*+?~]", value))
        and bool(re.search(r"\d", value))
        and bool(re.search("[A-Za-z]", value))
    )


def is_secret_value(
    value: str, name: str, strength: NameStrength, *, quoted: bool, certain: bool, whole_line: bool
) -> bool:
    """Return whether the value of a name is a secret.

    Set `certain` if the value cannot be an expression, as in an environment variable or a query string, and
    `whole_line` if the line consists only of the name and the value.
    """
    if not plausible_secret(value) or "://" in value:
        return False
    if quoted and (_is_noise(value) or (len(value) >= 20 and _is_mixed_case(value))):
        return True
    if not quoted and (value == name or re.search("(?:Public|Private)Key", value)):
        return False  # an argument or a type
    if not quoted and not certain and _CODE.search(value) and not looks_random(value):
        return False
    if strength == NameStrength.WEAK:
        if re.search(r"[{}();]|,\w+:" if not quoted else r"\|", value) or _FILE_NAME.search(value):
            return False
        if re.search(r"(?i)(?:session(?:_?id)?|sid)\Z", name) and not (
            len(value) >= 32 and re.search("[a-z][A-Z]|[A-Z][a-z]", value)
        ):
            return False  # most of these are ids that do not grant access
        is_literal = certain and "token" in name.lower() and len(value) >= 8 and not _IDENTIFIER.match(value)
        return looks_random(value) or is_literal
    if name.lower().endswith(tuple(_NUMERIC)):
        return value.isdigit() and 3 <= len(value) <= 8
    words = [word.lower() for word in _NAME_WORDS.findall(value)]
    if not _IDENTIFIER.match(value) or re.fullmatch("[a-z]{4}(?: [a-z]{4}){3}", value):
        return _is_secret_text(value, name, strength, quoted=quoted)
    if set(words) & (_PASSWORDS | _STRONG | _WEAK | {"keys", "tokens"}) or (" " in value and len(words) > 3):
        return strength == NameStrength.PASSWORD and certain and len(words) > 1
    if quoted:
        return strength == NameStrength.PASSWORD or (certain and len(value) >= 6)
    is_type = value[0].isupper() and not value.isupper() and "-" not in value
    return certain or (strength == NameStrength.PASSWORD and whole_line and not is_type and "." not in value)


def _is_secret_text(value: str, name: str, strength: NameStrength, *, quoted: bool) -> bool:
    if " " in value.strip():
        if quoted and re.fullmatch(r"[a-z]{4}(?: [a-z]{4}){3}|[\w.@-]{2,40} ?[/:] ?(?=\S*\d)\S{6,64}", value):
            return True  # a user and a password
        if quoted and any(len(word) >= 24 and looks_random(word) for word in value.split()):
            return True
        is_short = len(value.split()) <= 4 or bool(re.search(r"(?i)phrase\Z", name) and len(value.split()) <= 24)
        return quoted and strength == NameStrength.PASSWORD and is_short and not value.endswith(".")
    if not _DIGIT.search(value):
        is_text = not quoted or re.fullmatch(r"[\w./:\\-]*", value)
        return not is_text or (strength == NameStrength.PASSWORD and bool(re.search(r"[^\w./\\:-]", value)))
    if value.isdigit() or re.fullmatch(r"[\d.,_]+", value):
        return strength == NameStrength.PASSWORD and len(value) >= 4
    if _FILE_NAME.search(value) and not looks_random(value) and strength != NameStrength.PASSWORD:
        return False
    return len(value) >= 4 and not re.match(r"(?i)(?:md5|sha-?\d|utf|ascii)", value)
