"""The checks of the rules for personal data and internal addresses, which are in personal_rules.toml.

A number is recognized if its checksum is correct (cards, IBAN), if its form is unmistakable, or if a word such as
"phone" precedes it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import cache

from toolspan.redaction.rules import Check, Span, load_data
from toolspan.redaction.user_names import GENERIC_USER_NAMES, is_home_folder

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


@cache
def _iban_lengths() -> dict[str, int]:
    countries = load_data("words.toml")["iban_countries"]
    return {country: int(length) for length, codes in countries.items() for country in codes.split()}


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
    length = _iban_lengths().get(text[:2], 0)
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


def _check_iban(match: re.Match[str], start: int, _end: int) -> Iterator[Span]:
    if length := _iban_length(match[0]):
        yield start, start + length


def _check_user_name(match: re.Match[str], start: int, end: int) -> Iterator[Span]:
    name = match.string[start:end]
    if name.lower() not in GENERIC_USER_NAMES and not name.startswith("_"):
        yield start, end


def _is_home(match: re.Match[str]) -> bool:
    before = match.string[max(0, match.start() - 20) : match.start()]
    return match["value"] is None or is_home_folder(match[0].encode(), before.encode())


def _check_match(accepts: Callable[[re.Match[str]], bool]) -> Check:
    def check(match: re.Match[str], start: int, end: int) -> Iterator[Span]:
        if accepts(match):
            yield start, end

    return check


PERSONAL_CHECKS: dict[str, Check] = {
    "any": _check_match(lambda _: True),
    "author": _check_match(lambda match: not re.search(r"(?i)no-?reply@anthropic", match[0])),
    "email": _check_match(lambda match: not _IMPERSONAL_MAILBOXES.search(match[0])),
    "ipv4": _check_match(_is_machine_ipv4),
    "ipv6": _check_match(_is_machine_ipv6),
    "internal_host": _check_match(_is_internal_host),
    "phone": _check_match(_is_phone),
    "card": _check_match(lambda match: _is_card(match[0])),
    "iban": _check_iban,
    "git_user": _check_match(
        lambda match: not re.search(r"(?i)\b(?:test|your|user|name|bot|agent|ci)\b", match["value"])
    ),
    "user_name": _check_user_name,
    "home_folder": _check_match(_is_home),
}
