"""Secrets in text, for redacted exports and telemetry. Start at `find_secrets`.

A secret is recognized by its form (the rules of gitleaks and a few more), by the name before it (`DB_PASS=…`), by the
command that takes it (`mysql -p…`) or by its place in an address or header. High entropy alone is not a reason: it
only decides where a name is ambiguous. No secret extends over a line end, except a private key in PEM form.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple

from msgspec import Struct
from msgspec import json as fast

from toolspan.redaction.named_secrets import find_named, find_named_values
from toolspan.redaction.secret_forms import (
    CLIENT_CALL,
    COMMANDS,
    KEY_FORM_HINT,
    KEY_FORMS,
    LOGIN_CALL,
    LOGIN_CALL_HINTS,
    LOGIN_COMMAND,
    LOGIN_OPTIONS,
    LOGIN_OPTIONS_HINT,
    SIGNING_CALL,
    TOKEN_OPTION,
    USER_PAIR,
    Command,
    SecretMatch,
    join_hints,
    plausible_matches,
)
from toolspan.redaction.secret_names import (
    FOREIGN_NAMES,
    NameStrength,
    is_certain_secret,
    looks_like_password,
    looks_random,
    plausible_secret,
    split_words,
)


class KeyRule(Struct, frozen=True):
    """A rule of gitleaks: a pattern that is tried only in lines with one of its keywords."""

    id: str
    keywords: tuple[str, ...]
    pattern: str
    group: int = 0
    entropy: float = 0.0

    def find(self, line: str) -> Iterator[SecretMatch]:
        """Yield the secrets of this form in a line."""
        for match in _compiled(self.pattern).finditer(line):
            group = self.group if match[self.group] is not None else match.lastindex or 0
            if line[match.end(group) : match.end(group) + 1] == "(" and match[group].replace(".", "").isalpha():
                continue  # a function
            if entropy(match[group]) >= self.entropy:
                yield SecretMatch(*match.span(group), "key", self.id)


class RuleSet(Struct, frozen=True):
    """The file `secret_rules.json`, which `scripts/secret_rules.py` writes."""

    source: str
    version: str
    license: str
    sha256: str
    rules: tuple[KeyRule, ...]


@cache
def load_key_rules() -> RuleSet:
    """Return the rules of gitleaks that ship with this package."""
    data = (resources.files("toolspan.redaction") / "secret_rules.json").read_bytes()
    return fast.decode(data, type=RuleSet)


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def entropy(text: str) -> float:
    """Return the Shannon entropy of a string in bits per character."""
    total = len(text)
    return -sum(count / total * math.log2(count / total) for count in Counter(text).values())


MAX_LINE_CHARS = 8_192
_WINDOW_CHARS = 4_096
_WINDOW_MARGIN = 1_024
"""The text around a window in which rules may look. Only matches that start in the window count."""
_DATA = re.compile("[0-9A-Za-z+/]*")
"""A part of encoded data. Windows of only these characters are skipped, unless `_KEY_IN_DATA` matches."""
_KEY_IN_DATA = re.compile("AIza|[xyz]prv")
_WORD_REST = re.compile(r"[^\s\"'`<>&,;(){}\[\]|\\]*")
_VALUE_REST = re.compile(r"[^\"'\\]*")
_BREAK = re.compile(r"[\s;]")

_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?=\s|\\|[0-9A-Za-z+/]{4}|\Z).*?"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"
    r"|-----BEGIN OpenVPN Static key V1-----.*?(?:-----END OpenVPN Static key V1-----|\Z)"
    r"|(?<=\$ANSIBLE_VAULT;1\.[12];AES256)[^\n]{0,40}(?:\s+[0-9a-f]{20,80}(?=\s|\Z))+"
    r"|(?<=Private-Lines: )\d{1,3}(?:\r?\n[0-9A-Za-z+/=]+(?=\r?\n|\Z))+",  # PuTTY
    re.DOTALL,
)

_HEADER = re.compile(
    r"(?i)(?<![A-Za-z0-9])(?:proxy-)?(?:authorization|cookie|set-cookie)(?:\\*[\"'])?[ \t]{0,8}[:=][ \t]{0,8}\\*[\"']?"
    r"(?:(?P<scheme>bearer|basic|token|digest|apikey)[ \t]+)?(?P<it>[^\n\"'\\]+)"
)
_COOKIE_ITEMS = re.compile(r"(?i)cookies?\\*[\"']?[ ]?[=:][ ]?\{(?P<items>[^{}\n]{1,400})\}")
"""Cookies as the argument of a function, as in `cookies={"session": "…"}`."""
_COOKIE_WITH_ATTRIBUTES = re.compile(
    r"(?i)(?<![\w.=-])[\w.-]{1,64}=(?P<it>[^\s;,\"'\\]{16,4096}+);[ ]?"
    r"(?:path|domain|expires|max-age|secure|httponly|samesite)\b"
)
_DIGEST = re.compile(r"(?i)\bdigest[ ][^\n]{0,400}?\bresponse=\\*[\"']?(?P<it>[0-9a-f]{32,64})")
_BEARER = re.compile(r"(?i)(?<![A-Za-z0-9-])(?:bearer|basic|token)[ \t]{1,4}(?P<it>[^\s\"'\\,;<>`){}]{8,})")
_SECRET_URL = re.compile(
    r"(?i)(?:https?://)?(?:hooks\.slack\.com/(?:services|workflows|triggers)/[\w+/-]{8,}"
    r"|(?:(?<!\w)\w{1,63}\.)?discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d+/[\w-]+|hooks\.zapier\.com/hooks/catch/[\w/]+"
    r"|(?<![\w.-])[\w.-]{0,253}webhook\.office\.com/webhook\w*/[^\s\"'<>]+|outlook\.office(?:365)?\.com/webhook/[^\s\"'<>]+"
    r"|chat\.googleapis\.com/v1/spaces/[^\s\"'<>]+|api\.telegram\.org/bot[\w:-]+|maker\.ifttt\.com/trigger/[^\s\"'<>]+"
    r"|hook\.\w+\.make\.com/\w+|(?<![\w.-])[\w.-]{1,253}\.logic\.azure\.com[:\w/.-]{0,253}\?[^\s\"'<>]+)"
)
_LOGIN_URL = re.compile(
    r"[a-z][\w+.-]{0,20}:/{1,2}(?P<it>[^/\s@\"'\\<>`]{1,256}(?:@[^/\s@\"'\\<>`,;]{1,64}(?=@))?|[^/\s@:\"'\\<>`]{0,64}(?:@[\w.-]{1,64})?:[^\s@\"'\\<>`]{1,256})@(?=[\w\[$])",
    re.IGNORECASE,
)
_PLAIN_LOGIN = re.compile(
    r"(?<![\w/:.@-])(?!(?:npm|workspace|patch|file|git|portal|link):)[A-Za-z][\w.-]{0,31}:(?P<it>[^\s:@/\"'<>]{6,64})@(?!sha\d|npm:)(?=[\w\[])"
)
_HERE_STRING = re.compile(r"<<<[ ]*[\"']?(?P<it>[^\s\"'|;&$]{6,128})")
_HERE_STRING_READER = re.compile(
    r"(?i)(?<!\w)(?:sudo|su|passwd|chpasswd|kinit|cryptsetup|login|secrets?|pass(?:word|phrase)?\w*|auth|token)(?!\w)"
)
_DATABASE_CLIENT = re.compile(r"(?<![\w-])(?:mysql|mariadb)[\w-]*[ ]")
"""A program whose `-p` takes a password only without a space."""
_VAGUE_PARAMETER = re.compile(r"(?i)[?&;](?:amp;)?(?:key|auth|code|session|sig|appid)=")
_SECRET_LINK = re.compile(
    r"(?i)://[^\s\"'<>]{3,200}?/(?:\w+-)?(?:reset|verify|confirm|activate|invite|invitation|magic|unsubscribe)[\w-]*/(?P<it>[\w.~-]{16,})"
)
"""A link that signs in whoever opens it."""
_LOGIN_FIELDS = re.compile(
    r"(?i)\boracle:(?:thin|oci8?):[\w.-]+/(?P<it>[^\s@\"']{3,128})@"
    r"|^[\w.*-]+:(?:\d{4,5}|\*):[\w*-]+:[\w*-]+:(?=[^:\s]*\d)(?P<pgpass>[^:\s]{4,})$"
)
_URL_PARAMETER = re.compile(
    r"(?i)[?&;](?:amp;)?(?:[\w.-]{0,40}?(?:token|secret|key|password|passwd|pwd|pass|signature|auth)|sig|code|x-amz-[\w-]+|apikey|appid|jwt|otp|session)"
    r"=(?P<it>[^\s&\"'<>`;\\)]{3,})"
)


_REQUEST = re.compile(r"(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS|[Ll]ocation:|path[=:])[ ]?[\"']?/\S*\Z")
"""The beginning of a URL without a host, as in a request or a log."""


_CLOUD_SECRET = re.compile(r"(?<![\w+/=.-])[A-Za-z0-9+/]{40}(?![\w+/=.-])")
_LONG_SECRET = re.compile(r"(?<![\w+/=.-])[A-Za-z0-9+/]{42,86}={1,2}(?![\w+/=])")
_PREFIXED_SECRET = re.compile(
    r"(?<![\w./+-])(?!(?:toolu|srvtoolu|msg|req|call|fc|resp|rs|chatcmpl|run|thread|item|asst|file|event|sha\d{3})[_-])"
    r"[A-Za-z][0-9A-Za-z]{1,11}(?:[_-][0-9a-z]{1,8})?[_-](?P<it>[0-9A-Za-z]{30,})(?![\w+/=-])"
)
"""A key of any vendor, such as `acme_live_…`, but not an id that clients of models write."""
_LONG_CONTEXT = re.compile(r"(?i)azure|fernet|cipher|crypt|account|storage|secret|shared|\bkey\b|aws|credential")

_BARE_HINT = re.compile(r"[a-z0-9+/]{30}(?:(?<=[a-z0-9]{30})|[a-z0-9+/]{10})")
_KEYWORD_FORMS = {"s.": r"s\.[a-z0-9]{24}", "sk": "sk[0-9a-f]{32}", "ey": "ey[a-z0-9]{17}"}
"""Longer patterns, in lower case, for the keywords of gitleaks that occur in many words."""
_WEBHOOK_HINTS = ("webhook", "hook.", "hooks.", "api.telegram", "chat.googleapis", "maker.ifttt", "logic.azure")
_URL_HINTS = (
    ":/", r":[^\s:@/]{6,64}@", ":oci8?:", ":thin:", r":[\d*]{1,5}:[\w*-]+:[\w*-]+:",
    r"\?(?:code|key|sig|token|auth|session)=", *map(re.escape, _WEBHOOK_HINTS),
)  # fmt: skip
_URL_HINT = join_hints(_URL_HINTS)
_NAME_HINTS = (
    *split_words(
        r"""
        pass pwd pw\b secret token key cred auth jwt mnemonic phrase sig\b signature otp\b pin\b cvv cvc salt pepper
        seed\b sessid csrf\b xsrf\b pat\b psk\b masterauth bindpw rootpw identified login setuser sign\b session_?id sid\b
        _session\b \+@[a-z] verification one-time 2fa mfa wifi: securestring sandi khẩu المرور ::add-mask recovery \]:\d answer cookie
        """  # noqa: E501
    ),
    *(name for name in FOREIGN_NAMES if " " not in name),
)
_NAME_HINT = join_hints(_NAME_HINTS)
_HEADER_HINTS = "authorization", "cookie", "bearer", "basic", "httponly", "samesite", "max-age="
_HEADER_HINT = join_hints(_HEADER_HINTS)


def short_hints() -> list[str]:
    """Return patterns for words of any length.

    One of these patterns, or of `long_hints`, matches in every word for which `hints_in` has a result. perf: they are
    strings, so that `join_hints` can combine them with others into one fast pattern.
    """
    parts = [hint for command in COMMANDS for hint in command.hints]
    parts += (LOGIN_OPTIONS_HINT, *LOGIN_CALL_HINTS)
    parts += (*_NAME_HINTS, *_URL_HINTS, *_HEADER_HINTS)
    return parts + [re.escape(keyword) for keyword, rules in _rules_by_keyword() if any(map(_is_named_rule, rules))]


def long_hints() -> list[re.Pattern[str]]:
    """Return the patterns for words of at least 16 characters; see `short_hints`."""
    keywords = [keyword for keyword, rules in _rules_by_keyword() if not all(map(_is_named_rule, rules))]
    return [KEY_FORM_HINT, _BARE_HINT, join_hints(map(_keyword_hint, keywords))]


def _is_named_rule(rule: KeyRule) -> bool:
    """Return whether a rule is for the value of a name, which may be in another word than the keyword."""
    return r"=|>|" in rule.pattern or " " in "".join(rule.keywords)


class SecretHint:
    """Bits for the kinds of rules that may match in a line, inferred from one of its words.

    perf: these are plain integers, because the operators of `IntFlag` take longer than the rules.
    """

    NONE = 0
    FORM = 1
    NAME = 2
    URL = 4
    COMMAND = 8
    HEADER = 16
    BARE = 32
    LOGIN = 64


class LineHints(NamedTuple):
    """The rules to try on a line."""

    secrets: int
    """Bits of `SecretHint`."""
    key_rules: tuple[KeyRule, ...]


def hints_in(text: str) -> LineHints:
    """Return the rules that may match in a line, or in any line that contains the word `text`."""
    low = text.lower()
    hints = SecretHint.NONE
    if KEY_FORM_HINT.search(low) and ("AAAA" in text or KEY_FORMS.search(text)):
        hints |= SecretHint.FORM
    if _NAME_HINT.search(low):
        hints |= SecretHint.NAME
    if _URL_HINT.search(low):
        hints |= SecretHint.URL
    if _command_hints().search(low):
        hints |= SecretHint.COMMAND
    if _login_hints().search(low):
        hints |= SecretHint.LOGIN
    if _HEADER_HINT.search(low):
        hints |= SecretHint.HEADER
    if (
        len(low) >= 30
        and _BARE_HINT.search(low)
        and (_LONG_SECRET.search(text) or next(_find_bare_secrets(text), None))
    ):
        hints |= SecretHint.BARE
    return LineHints(hints, _key_rules_in(text, low))


@cache
def _command_hints() -> re.Pattern[str]:
    return join_hints(hint for command in COMMANDS for hint in command.hints)


@cache
def _commands_by_word() -> tuple[tuple[str, Command], ...]:
    return tuple((word, command) for command in COMMANDS for word in command.words)


@cache
def _login_hints() -> re.Pattern[str]:
    return join_hints((LOGIN_OPTIONS_HINT, *LOGIN_CALL_HINTS))


def find_secrets(text: str) -> list[SecretMatch]:
    """Return the secrets in a text. They may overlap; the first of the overlapping ones determines their kind."""
    findings = [*find_private_keys(text), *find_named_values(text)]
    at = 0
    for line in text.split("\n"):
        findings += (shift(finding, at) for finding in find_in_windows(line, find_in_line))
        at += len(line) + 1
    return findings


def find_in_windows(line: str, find: Callable[[str], Iterable[SecretMatch]]) -> Iterator[SecretMatch]:
    """Yield the matches of `find` in a line. A long line is searched in overlapping windows.

    The windows keep the time proportional to the length of the line, because several rules look at all text before
    or after a match. A match that reaches the end of its window is extended: to the end of the word or, if it contains
    several words, to the next quote.
    """
    if len(line) <= MAX_LINE_CHARS:
        yield from find(line)
        return
    first = 0
    while first < len(line):
        last = min(first + _WINDOW_CHARS, len(line))
        if last < len(line):
            last = max(first + _WINDOW_CHARS // 2, *(line.rfind(mark, first, last) + 1 for mark in ' ",'))
        start, end = max(0, first - _WINDOW_MARGIN), min(last + _WINDOW_MARGIN, len(line))
        if _DATA.fullmatch(line, start, end) and not _KEY_IN_DATA.search(line, start, end):
            first = last
            continue
        searched = last
        for finding in find(line[start:end]):
            match = shift(finding, start)
            if not first <= match.start < last:
                continue
            if match.end == end:
                rest = _VALUE_REST if _BREAK.search(line, match.start, end) else _WORD_REST
                match = match._replace(end=rest.match(line, end).end())  # type: ignore[union-attr]
            searched = max(searched, match.end)
            yield match
        first = searched


def shift(finding: SecretMatch, by: int) -> SecretMatch:
    """Return the match with its offsets increased by `by`."""
    return SecretMatch(finding.start + by, finding.end + by, finding.kind, finding.rule)


def find_private_keys(text: str) -> Iterator[SecretMatch]:
    """Yield the private keys in PEM form, which are the only secrets that extend over several lines."""
    if "-----BEGIN" in text or "Private-Lines: " in text or "$ANSIBLE_VAULT" in text:
        for match in _PEM.finditer(text):
            yield SecretMatch(*match.span(), "key", "private-key")


def _key_rules_in(text: str, low: str) -> tuple[KeyRule, ...]:
    if not _keyword_hints().search(low):
        return ()
    return tuple(
        rule
        for keyword, rules in _rules_by_keyword()
        if keyword in low
        for rule in rules
        if _is_named_rule(rule) or next(rule.find(text), None)  # other rules are for a key in one word
    )


def find_in_line(line: str, hints: LineHints | None = None) -> Iterator[SecretMatch]:
    """Yield the secrets in one line, those with the most certain rules first."""
    low = line.lower()
    secrets, key_rules = hints or hints_in(line)
    if secrets & SecretHint.FORM:
        yield from _all_matches(KEY_FORMS, line, "key", "key-form")
    for rule in key_rules:
        yield from rule.find(line)
    if secrets & SecretHint.URL:
        yield from _find_in_urls(line, low)
    if secrets & SecretHint.HEADER or "token" in low:
        yield from _find_in_headers(line)
    if secrets & SecretHint.NAME:
        yield from find_named(line, low)
    if secrets & SecretHint.LOGIN:
        yield from _find_logins(line)
    if secrets & SecretHint.COMMAND:
        for command in dict.fromkeys([command for word, command in _commands_by_word() if word in low]):
            yield from command.find(line)
    if secrets & SecretHint.BARE:
        yield from _find_bare_secrets(line)


def _find_in_headers(line: str) -> Iterator[SecretMatch]:
    for match in _HEADER.finditer(line):
        value, first = match["it"], match["it"].split(" ")[0]
        if plausible_secret(value) and _is_header_value(value):
            yield SecretMatch(*match.span("it"), "secret", "header")
        elif match["scheme"] and plausible_secret(first) and _is_header_value(first) and re.search(r"\d", first):
            yield SecretMatch(match.start("it"), match.start("it") + len(first), "secret", "header")
    yield from plausible_matches(_DIGEST, line, "secret", "header")
    for match in _COOKIE_WITH_ATTRIBUTES.finditer(line):
        if looks_random(match["it"]) and plausible_secret(match["it"]):
            yield SecretMatch(*match.span("it"), "secret", "cookie")
    for cookies in _COOKIE_ITEMS.finditer(line):
        for item in re.finditer(r":[ ]?\\*[\"']([^\s\"'\\]{16,})", cookies["items"]):
            if looks_random(item[1]):
                start = cookies.start("items") + item.start(1)
                yield SecretMatch(start, start + len(item[1]), "secret", "cookie")
    for match in _BEARER.finditer(line):
        if looks_random(match["it"]) and plausible_secret(match["it"]):
            yield SecretMatch(*match.span("it"), "key", "bearer")


def _find_logins(line: str) -> Iterator[SecretMatch]:
    if "<<<" in line and _HERE_STRING_READER.search(line):
        matches = (match for match in _HERE_STRING.finditer(line) if re.search(r"\d", match["it"]))
        yield from (SecretMatch(*match.span("it"), "secret", "here-string") for match in matches)
    if " -" in line:
        yield from _find_in_options(line)
    for match in LOGIN_COMMAND.finditer(line) if "login " in line.lower() else ():
        group = "it" if match["it"] else "imap"
        if looks_random(match[group]) or (group == "imap" and is_certain_secret(match[group], NameStrength.PASSWORD)):
            yield SecretMatch(*match.span(group), "secret", "login-command")
    if "(" in line:
        for match in CLIENT_CALL.finditer(line):
            if looks_random(match["it"]):
                yield SecretMatch(*match.span("it"), "key", "client-call")
        yield from plausible_matches(LOGIN_CALL, line, "secret", "login-call")
        yield from plausible_matches(SIGNING_CALL, line, "secret", "signing-call")


def _find_in_options(line: str) -> Iterator[SecretMatch]:
    for finding in plausible_matches(LOGIN_OPTIONS, line, "secret", "login-options"):
        is_separate = line[finding.start - 1] in " =" or line[finding.start - 2 : finding.start - 1] in " ="
        if not (is_separate and _DATABASE_CLIENT.search(line, 0, finding.start)):
            yield finding
    yield from plausible_matches(USER_PAIR, line, "secret", "user-option")
    for match in TOKEN_OPTION.finditer(line):
        if looks_random(match["it"]):
            yield SecretMatch(*match.span("it"), "secret", "token-option")


def _all_matches(pattern: re.Pattern[str], line: str, kind: str, rule: str) -> Iterator[SecretMatch]:
    return (SecretMatch(*match.span(), kind, rule) for match in pattern.finditer(line))


@cache
def _rules_by_keyword() -> tuple[tuple[str, tuple[KeyRule, ...]], ...]:
    table: dict[str, list[KeyRule]] = {}
    for rule in load_key_rules().rules:
        for keyword in (keyword.split()[0] for keyword in rule.keywords):
            table.setdefault(keyword, []).append(rule)
    return tuple((keyword, tuple(rules)) for keyword, rules in table.items())


@cache
def _keyword_hints() -> re.Pattern[str]:
    return join_hints(_keyword_hint(keyword) for keyword, _ in _rules_by_keyword())


def _keyword_hint(keyword: str) -> str:
    return _KEYWORD_FORMS.get(keyword, re.escape(keyword))


def _find_in_urls(line: str, low: str) -> Iterator[SecretMatch]:
    if any(hint in low for hint in _WEBHOOK_HINTS):
        yield from _all_matches(_SECRET_URL, line, "key", "webhook")
    yield from plausible_matches(_LOGIN_FIELDS, line, "login", "login-fields")
    if "@" in low:
        yield from (
            SecretMatch(*match.span("it"), "login", "plain-login")
            for match in _PLAIN_LOGIN.finditer(line)
            if looks_like_password(match["it"]) or re.match(r"(?:tcp|unix)\(", line[match.end() :])
        )
    if "@" in low and ":/" in low:
        yield from (
            SecretMatch(*match.span("it"), "login", "login-url")
            for match in _LOGIN_URL.finditer(line)
            if _is_login(*match["it"].partition(":"))
        )
    for match in _SECRET_LINK.finditer(line) if "://" in low else ():
        if looks_random(match["it"]):
            yield SecretMatch(*match.span("it"), "secret", "link")
    if "=" in low and ("?" in low or "&" in low):
        yield from (
            SecretMatch(*match.span("it"), "secret", "url-parameter")
            for match in _URL_PARAMETER.finditer(line)
            if plausible_secret(match["it"])
            and ("://" in line[: match.start()] or _REQUEST.search(line, 0, match.start()))
            and (re.search(r"\d", match["it"]) or len(match["it"]) >= 12 or not _VAGUE_PARAMETER.match(match[0]))
        )


def _is_login(user: str, _: str, word: str) -> bool:
    if word:
        return plausible_secret(word) and not re.match(r"\$[({]", word)
    return plausible_secret(user) and user.lower() not in ("git", "user", "username", "you", "name")


def _find_bare_secrets(line: str) -> Iterator[SecretMatch]:
    for match in _CLOUD_SECRET.finditer(line):
        if _is_random_base64(match[0]):
            yield SecretMatch(*match.span(), "key", "cloud-secret")
    for match in _PREFIXED_SECRET.finditer(line):
        if _is_random_base64(match["it"]) or _is_random_id(match["it"]):
            yield SecretMatch(*match.span(), "key", "prefixed-secret")
    for match in _LONG_SECRET.finditer(line):
        before = line[max(0, match.start() - 80) : match.start()]
        if _LONG_CONTEXT.search(before) and entropy(match[0]) >= 4.2:
            yield SecretMatch(*match.span(), "key", "encoded-secret")


def _is_random_base64(text: str) -> bool:
    """Return whether a string mixes characters as encoded random bytes do, unlike digests, names and paths."""
    changes = sum(a.islower() and b.isupper() for a, b in itertools.pairwise(text))
    has_digit = any(char.isdigit() for char in text)
    return has_digit and changes >= 4 and entropy(text) >= 4.2 and not re.search("[a-z]{10}", text)


def _is_random_id(text: str) -> bool:
    """Return whether a string mixes digits and letters of one case as random keys do, and is not a digest."""
    changes = sum(a.isdigit() != b.isdigit() for a, b in itertools.pairwise(text))
    return changes >= len(text) // 4 and bool(re.search("[g-zG-Z]", text)) and not re.search("[a-z]{8}", text)


def _is_header_value(value: str) -> bool:
    """Return whether a value can be credentials or cookies, as opposed to a sentence or code."""
    value = value.strip()
    if " " not in value and re.fullmatch(r"[^\s()\[\]{}|,]{6,}", value) and not re.fullmatch(r"[A-Za-z_.]+", value):
        return True
    if re.fullmatch(r"[\w.-]+=[^\s;()]+(?:; ?[\w.-]+(?:=[^\s;()]*)?)*;?", value):  # cookies
        return True
    return looks_random(value) and not re.search(r"\(|\)|->| or | and ", value)
