"""Personal data and internal addresses in a line: mail, people, phone, card and account numbers, hosts.

A number is recognized if its checksum is correct (cards, IBAN), if its form is unmistakable, or if a word such as
"phone" precedes it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from toolspan.redaction.personal_fields import find_labelled, label_hints
from toolspan.redaction.secret_forms import SecretMatch, join_hints

_START = r"(?<![0-9A-Za-z])"
_END = r"(?![0-9A-Za-z])"
_IMPERSONAL_MAILBOXES = re.compile(
    r"(?i)\A(?:git|no-?reply|[%+]+)@|@(?:openssh\.com|libssh\.org)\Z|@[\w.-]*\.(?:png|jpe?g|gif|svg|webp|ico|tsx?|jsx?|json|ya?ml|toml|txt)\Z"
)
_KNOWN_HOSTS = frozenset(
    {"host.docker.internal", "gateway.docker.internal", "kubernetes.docker.internal", "metadata.google.internal",
     "kubernetes.default.svc.cluster.local", "settings.local", "localhost.localdomain"}
)  # fmt: skip
_KNOWN_IPS = frozenset(
    {"0.0.0.0", "255.255.255.255", "255.255.255.0", "255.255.0.0", "255.0.0.0", "169.254.169.254", "8.8.8.8", "8.8.4.4",
     "1.1.1.1", "1.0.0.1", "9.9.9.9"}
)  # fmt: skip
_SERVICE_LABEL = re.compile(
    r"(?:api|artifactory|auth|bitbucket|build|ci|confluence|consul|db|dns|elastic|git|gitea|gitlab|grafana|intranet|jenkins"
    r"|jira|kafka|kibana|ldap|mail|mysql|nas|nexus|portal|postgres|printer|prod|prometheus|proxy|redis|registry|router|smtp"
    r"|sso|staging|vault|vpn|wiki)\Z"
)
_IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "CH": 21,
    "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FO": 18,
    "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23,
    "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "MC": 27,
    "MD": 24, "ME": 22, "MK": 19, "MT": 31, "NL": 18, "NO": 15, "PK": 24, "PL": 28, "PT": 25, "QA": 29, "RO": 24,
    "RS": 22, "SA": 24, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "TN": 24, "TR": 26, "UA": 29, "XK": 20,
}  # fmt: skip


def _is_card(text: str) -> bool:
    digits = re.sub(r"\D", "", text)
    if len(set(digits)) < 2 or not re.match(r"4|5[1-5]|2[2-7]|3[4-7]|30|6011|65|62", digits):
        return False
    if len(digits) != {"34": 15, "37": 15, "36": 14, "30": 14}.get(digits[:2], 16):
        return False
    doubled = (int(digit) * (2 if n % 2 else 1) for n, digit in enumerate(reversed(digits)))
    return sum(digit - 9 if digit > 9 else digit for digit in doubled) % 10 == 0


def _iban_length(text: str) -> int:
    """Return the length of the valid IBAN at the beginning of `text`, or 0 if there is none."""
    length = _IBAN_LENGTHS.get(text[:2], 0)
    at = chars = 0
    while at < len(text) and chars < length:
        chars += text[at] not in " -"
        at += 1
    code = re.sub(r"[ -]", "", text[:at])
    if not length or chars < length or text[at : at + 1].isalnum():
        return 0
    return at if int("".join(str(int(char, 36)) for char in code[4:] + code[:4])) % 97 == 1 else 0


def _is_machine_ipv4(match: re.Match[str]) -> bool:
    """Return whether a match is the address of a machine, not a version number or a well-known address."""
    text, before = match[0], match.string[max(0, match.start() - 24) : match.start()]
    if text in _KNOWN_IPS or text.startswith("127.") or not re.fullmatch(r"[1-9]\d*(?:\.(?:0|[1-9]\d*)){3}", text):
        return False
    if any(int(part) > 255 for part in text.split(".")) or _is_special_network(match):
        return False
    if re.match(r"1\.3\.(?:6|14|36|101|132)\.|2\.5\.(?:4|8|29)\.", text):
        return False  # an object identifier
    is_version = re.search(
        r"(?i)(?:[a-z]|version[\W_]{0,8}|[=~<>!]=\s?|(?:^|[\s\"'(;])(?-i:[A-Z])[a-z]+/|\w-|§|section )\Z", before
    )
    after = match.string[match.end() : match.end() + 8]
    is_release = re.match(r" \(\d{4}-", after)
    is_folder = re.search(r"[^/]/\Z", before) and re.match(r"/[^\W\d]", after)
    return not is_version and not is_release and not is_folder and not re.match(r"-[A-Za-z]", after)


def _is_special_network(match: re.Match[str]) -> bool:
    """Return whether a match is in a range that standards reserve, such as `192.0.2.0/24`."""
    length = re.match(r"/\d{1,3}", match.string[match.end() : match.end() + 4])
    try:
        network = ipaddress.ip_network(match[0] + (length[0] if length else ""))
    except ValueError:
        return False
    return (
        bool(length)
        and not network.is_global
        and not (network.is_private and network.prefixlen > 16 and match[0].startswith(("10.", "172.", "192.168.")))
    )


def _is_machine_ipv6(match: re.Match[str]) -> bool:
    text = match[0]
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return False
    if "::" in text and not re.search(r"\d|:\w+:", text):
        return False  # `a::b` may also be an identifier
    return not (address.is_loopback or address.is_unspecified or _is_special_network(match)) and len(text) > 4


def _is_phone(match: re.Match[str]) -> bool:
    digits = re.sub(r"\D", "", match[0])
    if not 9 <= len(digits) <= 15 or len(set(digits)) < 3 or re.match(r"\+\d{4}-\d\d-\d\d", match[0]):
        return False
    if match[0].startswith("+"):
        at_line_start = not match.string[: match.start()].strip(" \"'")
        return bool(re.search(r"[ ()/.-]", match[0])) or not at_line_start
    return True


def _is_internal_host(match: re.Match[str]) -> bool:
    host = match[0].lower()
    if host in _KNOWN_HOSTS or re.search(r"(?:^|\.)(?:self|this|threading|module|settings|config|window)\.", host):
        return False
    before = match.string[max(0, match.start() - 64) : match.start()]
    after = match.string[match.end() : match.end() + 1]
    if after in ("(", "=", "[") or (before.endswith(("/", ".", "\\", "$")) and not before.endswith("//")):
        return False
    if re.search(r"[=(,\[]\s?\Z", before) and re.fullmatch(r"[a-z_.]+", host) and after != ":":
        return False  # an attribute in code
    labels = host.split(".")
    is_service = bool(_SERVICE_LABEL.match(labels[0]))
    is_marked = (
        is_service or before.endswith(("//", "@")) or after == ":" or bool(re.search(r"(?i)host\w*\W{1,4}\Z", before))
    )
    return (
        is_marked
        or len(labels) > 2
        or bool(re.search(r"[\d-]", labels[0]))
        or labels[-1] in ("lan", "intranet", "corp")
    )


class PersonalHint:
    """Bits for the kinds of personal data that a line may contain, inferred from one of its words."""

    NONE = 0
    MAIL = 1
    NETWORK = 2
    HOST = 4
    NUMBER = 8
    FIELD = 16
    PLACE = 32


FORM_HINTS = (
    (PersonalHint.MAIL, "@", re.compile(r"@(?<=[\w%+.-]@)\w")),
    (PersonalHint.MAIL, "%40", re.compile(r"%40(?<=[\w.-]%40)\w")),
    (PersonalHint.NETWORK, ".", re.compile(r"\d\.\d{1,3}\.\d{1,3}\.\d")),
    (PersonalHint.NETWORK, ":", re.compile(r":(?::|[0-9a-f]{1,4}:[0-9a-f]{1,4}:[0-9a-f]{1,4}:)")),
    (PersonalHint.NETWORK, ".", re.compile(r"\.(?<=[0-9a-f]{4}\.)[0-9a-f]{4}\.[0-9a-f]{4}")),
    (PersonalHint.PLACE, "°", re.compile(r"°")),
    (PersonalHint.PLACE, "/@", re.compile(r"/@-?\d")),
    (PersonalHint.FIELD, ",", re.compile(r"\.\d{3,}°?,")),
    (PersonalHint.FIELD, "", re.compile(r"\d(?<![\w.:/+-]\d)(?:\d{9,10}|\d-\d\d-\d\d)(?![\w.:/-])")),
    (PersonalHint.NUMBER, "0", re.compile(r"0(?<![\w.:/+-]0)(?:[1-79]|[1-7]\d{1,3})(?!\S)")),
    (PersonalHint.NUMBER, "0", re.compile(r"0(?<![\w.:/+-]0)[1-9]\d{0,3}[-/.]\d")),
    (PersonalHint.NUMBER, "756.", re.compile(r"756\.\d{4}\.\d{4}")),
    (PersonalHint.NETWORK, "-", re.compile(r"-[0-9a-f]{2}-[0-9a-f]{2}-[0-9a-f]{2}-[0-9a-f]{2}-")),
    (
        PersonalHint.HOST,
        ".",
        re.compile(
            r"\.(?:internal|local|lan|corp|intra|intranet|intern|priv|private|localdomain|home|int|box|ts|svc)\b"
        ),
    ),
    (PersonalHint.NUMBER, "", re.compile(r"[+(](?<![\w.+-].)(?:(?<=\+)[1-9]|\d{3}\))")),
    (
        PersonalHint.NUMBER,
        "",
        re.compile(
            r"\d(?:\d{2}[-.]\d{3}[-.]\d{4}|\d\d-\d\d-\d{4}|(?<![\w.-]\d)\d{13}|\d{3}-\d{4}-|(?<=[2-6])(?<!\d\d)\d{3}(?!\S)"
            r"|(?<=[\W_][a-z][a-z]\d)\d(?:\s|\Z|[0-9a-z]{11}))"
        ),
    ),
)
"""Patterns for words, each with its bit and a text that every match contains.

perf: each pattern begins with one character or class, which makes the search fast.
"""
_STREET_HINTS = (
    "avenue", r"road\b", "boulevard", r"lane\b", "terrace", r"drive\b", r"court\b", r"ave\b(?<![a-z]ave)", "blvd", r"str\.", "allee", "platz",  # noqa: E501
    r"weg\b", "gasse",
)  # fmt: skip
FIELD_HINTS = (*label_hints(), *_STREET_HINTS, r"user\.name", r"pan\b")
"""Patterns for the words of labels: at least one of them matches in every label."""


@cache
def _field_hints() -> re.Pattern[str]:
    return join_hints(FIELD_HINTS)


def personal_hints(word: str, low: str, forms: int) -> int:
    """Return the bits of `PersonalHint` for a word in which the patterns with the bits `forms` match."""
    hints = forms
    if _field_hints().search(low):
        hints |= PersonalHint.FIELD
    if hints & PersonalHint.NETWORK and not any(
        next(_find_form(form, word), None) for form in _FORMS if form.hint == PersonalHint.NETWORK
    ):
        hints &= ~PersonalHint.NETWORK
    return hints


class _Form(NamedTuple):
    kind: str
    rule: str
    hint: int
    pattern: re.Pattern[str]
    accepts: Callable[[re.Match[str]], bool] = lambda _: True


_FORMS = (
    _Form(
        "person",
        "author",
        PersonalHint.MAIL,
        re.compile(
            r"(?im)(?:^|\\n|[\s*>])(?:author|committer|co-authored-by|signed-off-by|reviewed-by|tested-by|acked-by|from|to|cc)"
            r"[ \t]{0,4}:[ \t]{0,4}(?P<it>[^<>\n:\"\\]{2,80}?)[ \t]{0,4}<[^<>\s]{3,256}>"
        ),
        lambda match: not re.search(r"(?i)no-?reply@anthropic", match[0]),
    ),
    _Form(
        "email",
        "email",
        PersonalHint.MAIL,
        re.compile(r"(?<![\w.%+-])[\w%+](?:[\w.%+-]{0,62}[\w%+-])?(?:@|%40)(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![0-9A-Za-z(])"),
        lambda match: not _IMPERSONAL_MAILBOXES.search(match[0]),
    ),
    _Form(  # mira@laptop:~$, scp file mira@host:/tmp, ssh mira@host
        "login",
        "remote-login",
        PersonalHint.MAIL,
        re.compile(
            r"(?<![\w./:@-])(?P<it>(?!(?:git|user|username|you)@)[A-Za-z_][\w.-]{0,31}@[A-Za-z0-9][\w.-]{0,63})(?=:[~/])"
            r"|(?<![\w-])(?:ssh|sftp|scp|rsync|mosh|ssh-copy-id)[ \t][^\n@]{0,120}?(?<![\w./:@-])(?P<ssh>(?!(?:git|user|username|you)@)[A-Za-z_][\w.-]{0,31}@[A-Za-z0-9][\w.-]{0,63})"  # noqa: E501
        ),
    ),
    _Form("mac", "mac", PersonalHint.NETWORK, re.compile(rf"{_START}(?<!:)(?:[0-9A-Fa-f]{{2}}:){{5}}[0-9A-Fa-f]{{2}}(?![\w:])")),  # noqa: E501
    _Form("mac", "mac", PersonalHint.NETWORK, re.compile(r"(?<![\w.-])(?=[0-9.]*[a-f])(?=[a-f.]*\d)(?:[0-9a-f]{4}\.){2}[0-9a-f]{4}(?![\w.-])")),  # noqa: E501
    _Form("mac", "mac", PersonalHint.NETWORK, re.compile(rf"{_START}(?<!-)(?=[0-9-]*[A-Fa-f])(?:[0-9A-Fa-f]{{2}}-){{5}}[0-9A-Fa-f]{{2}}(?![\w-])")),  # noqa: E501
    _Form(
        "ip",
        "ipv6",
        PersonalHint.NETWORK,
        re.compile(rf"{_START}(?<![:.])(?:[0-9A-Fa-f]{{0,4}}:){{2,7}}[0-9A-Fa-f]{{0,4}}(?![0-9A-Za-z:])"),
        _is_machine_ipv6,
    ),
    _Form("ip", "ipv4", PersonalHint.NETWORK, re.compile(r"(?<![0-9.])(?:\d{1,3}\.){3}\d{1,3}(?![0-9]|\.\d)"), _is_machine_ipv4),  # noqa: E501
    _Form(
        "host",
        "internal-host",
        PersonalHint.HOST,
        re.compile(
            r"(?i)(?<![\w.-])(?:[a-z0-9](?:[\w-]{0,61}[a-z0-9])?\.){1,6}"
            r"(?:(?:internal|local|lan|corp|intra|intranet|localdomain|private|(?<=[a-z0-9]\.)svc)(?![\w-]|\.\w)"
            r"|(?:corp|internal|intra|intranet|intern|priv|int)\.(?:[a-z0-9-]{1,40}\.){1,3}[a-z]{2,10}(?![\w.(-])|home\.arpa|fritz\.box|ts\.net|home(?=:\d))"
        ),
        _is_internal_host,
    ),
    _Form(
        "phone",
        "phone",
        PersonalHint.NUMBER,
        re.compile(
            r"(?<![\w.+-])(?:\+[1-9]\d{0,2}[ .\-/]?(?:\(0?\d{1,4}\)[ .\-/]?)?\d(?:[ .\-/]?\d){6,12}"
            r"|\(\d{3}\)[ ]?\d{3}[-. ]\d{4}|\(\d\d\)[ ]?9?\d{4}-\d{4}|0[1-79](?:[ .]\d\d){4}(?![ .]\d)|07\d{3}[ ]\d{3}[ ]?\d{3}|07\d[ ]\d{3}[ ]\d\d[ ]\d\d"  # noqa: E501
            r"|0(?:20|1\d{2,3})[ ]\d{3,4}[ ]\d{3,4}|01[567]\d{1,2}[ /-]\d{6,8}|04\d\d[ ]\d{3}[ ]\d{3}|0[789]0-\d{4}-\d{4}|06-\d{8}"  # noqa: E501
            r"|(?<!\d[ .-])[2-9]\d{2}[-.][1-9]\d{2}[-.]\d{4})(?![\w-]|\.\d)"
        ),
        _is_phone,
    ),
    _Form("id", "social-insurance", PersonalHint.NUMBER, re.compile(r"(?<![\w.-])756\.\d{4}\.\d{4}\.\d{2}(?![\w-]|\.\d)")),  # noqa: E501
    _Form(
        "place",
        "coordinates",
        PersonalHint.PLACE,
        re.compile(
            r"\d{1,3}(?:\.\d+)?°[ ]?(?:\d{1,2}(?:\.\d+)?['′’][ ]?(?:\d{1,2}(?:\.\d+)?[\"″”][ ]?)?)?[NS][, ]{1,3}\d{1,3}(?:\.\d+)?°[ ]?"  # noqa: E501
            r"(?:\d{1,2}(?:\.\d+)?['′’][ ]?(?:\d{1,2}(?:\.\d+)?[\"″”][ ]?)?)?[EW]\b|(?<=/@)-?\d{1,3}\.\d{3,},-?\d{1,3}\.\d{3,}"  # noqa: E501
        ),
    ),
    _Form(
        "person",
        "name-and-mail",
        PersonalHint.MAIL,
        re.compile(r"\b[Nn]ame[ ]?[:=][ ]?(?P<it>[^\W\d_a-z][\w'’.-]+(?:[ ][^\W\d_a-z][\w'’.-]*){0,3})[ ,;|]{1,3}[Ee]-?mail"),  # noqa: E501
    ),
    _Form("card", "card", PersonalHint.NUMBER, re.compile(r"(?<![\w.-])(?:\d[ -]?){13,15}\d(?![\w-]|\.\d)"), lambda match: _is_card(match[0])),  # noqa: E501
    _Form("ssn", "ssn", PersonalHint.NUMBER, re.compile(r"(?<![\w.-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-]|\.\d)")),  # noqa: E501
    _Form("id", "tax-number", PersonalHint.FIELD, re.compile(r"\bPAN\b[^\w\n]{1,5}(?P<it>[A-Z]{5}\d{4}[A-Z])(?!\w)")),
    _Form(
        "user",
        "git-user",
        PersonalHint.FIELD,
        re.compile(r"\buser\.name[ ]?=?[ ]?\\*[\"'](?P<it>[A-Z][^\W\d_]+(?:[ ][A-Z][\w.'-]+){1,3})\\*[\"']"),
        lambda match: not re.search(r"(?i)\b(?:test|your|user|name|bot|agent|ci)\b", match["it"]),
    ),
    _Form(
        "address",
        "street",
        PersonalHint.FIELD,
        re.compile(
            r"(?<![\w.,-])\d{1,5}[A-Za-z]?[ ](?:[NSEW]\.?[ ])?(?:[A-Z][a-z'-]+[ ]){1,3}(?:Street|Avenue|Road|Boulevard|Lane|Terrace|Drive|Court|St\.|Ave\.|Rd\.|Blvd\.?|Ave|St|Rd)"  # noqa: E501
            r"(?=,|[ ]#|[ ]Apt|\s*\Z)"
            r"|(?<![\w-])[A-ZÄÖÜ][a-zäöüß-]*(?:straße|strasse|str\.|allee|platz|weg|gasse)[ ]\d{1,4}[ ]?[a-h]?(?![\w.])"
        ),
    ),
)  # fmt: skip
_IBAN = re.compile(rf"{_START}[A-Z]{{2}}\d{{2}}[ -]?(?:[0-9A-Z][ -]?){{11,32}}")


_LONG_NUMBER = re.compile(r"\d(?:[ .()/-]{0,3}\d){8}|[A-Z]{2}\d\d[ -]?[0-9A-Z]{3}")
"""A pattern that matches in every phone, card and account number."""


def _find_form(form: _Form, line: str) -> Iterator[SecretMatch]:
    for match in form.pattern.finditer(line):
        group = next((name for name in form.pattern.groupindex if match[name] is not None), 0)
        if form.accepts(match):
            yield SecretMatch(*match.span(group), form.kind, form.rule)


def find_personal_data(line: str, hints: int) -> Iterator[SecretMatch]:
    """Yield the personal data and internal addresses in a line. `hints` are the combined hints of its words."""
    if hints & PersonalHint.NUMBER and not _LONG_NUMBER.search(line):
        hints &= ~PersonalHint.NUMBER
    for form in _FORMS:
        if form.hint & hints:
            yield from _find_form(form, line)
    if hints & (PersonalHint.FIELD | PersonalHint.NUMBER):
        yield from find_labelled(line)
    if hints & PersonalHint.NUMBER:
        for match in _IBAN.finditer(line):
            if length := _iban_length(match[0]):
                yield SecretMatch(match.start(), match.start() + length, "iban", "iban")
