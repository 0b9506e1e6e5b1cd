"""Secrets in text, for redacted exports and telemetry. Start at `find_secrets`.

A secret is recognized by its form (the rules of gitleaks and a few more), by the name before it (`DB_PASS=…`), by the
command that takes it (`mysql -p…`) or by its place in an address or header. High entropy alone is not a reason: it
only decides where a name is ambiguous. Nothing is matched across a line end, except a private key in PEM form.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple

from msgspec import Struct
from msgspec import json as fast

from toolspan.types.secret_names import (
    NameStrength,
    is_secret_value,
    looks_random,
    name_strength,
    plausible_secret,
)


class SecretMatch(NamedTuple):
    """A secret or personal item in a string."""

    start: int
    end: int
    kind: str
    """The word in its placeholder, such as `key` in `[key-1]`."""
    rule: str
    """The rule that recognized it."""


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
    data = (resources.files("toolspan.types") / "secret_rules.json").read_bytes()
    return fast.decode(data, type=RuleSet)


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def entropy(text: str) -> float:
    """Return the Shannon entropy of a string in bits per character."""
    total = len(text)
    return -sum(count / total * math.log2(count / total) for count in Counter(text).values())


def join_hints(parts: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for any of the parts, grouped by their first letters."""
    by_letter: dict[str, list[str]] = {}
    for part in parts:
        first = part[:2] if part[0] == "\\" else part[0]
        by_letter.setdefault(first, []).append(part[len(first) :])
    return re.compile("|".join(f"{first}(?:{'|'.join(rest)})" for first, rest in by_letter.items()))


_START = r"(?<![0-9A-Za-z])"
_KEY_FORMS = re.compile(
    "|".join(
        (
            rf"{_START}sk-[\w-]{{16,}}|sk-(?:admin|ant|or|proj|svcacct)-[\w-]{{12,}}",
            r"[rsp]k_(?:live|test)_\w{8,}|whsec_[\w+/=]{16,}",
            r"gh[oprsu]_[A-Za-z0-9]{16,}|github_pat_\w{16,}",
            r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|oas|ffct)-[\w.-]{12,}",
            rf"{_START}(?:AKIA|ASIA|AROA|AIDA|AGPA)[0-9A-Z]{{12,}}",
            r"AIza[\w-]{20,}|ya29\.[\w-]{16,}|GOCSPX-[\w-]{16,}|1//0[\w-]{30,}",
            r"xox[abeoprs]-[\w-]{8,}|xapp-[\w-]{12,}",
            rf"{_START}(?:npm_[A-Za-z0-9]{{20,}}|pypi-Ag[\w-]{{16,}}|hf_[A-Za-z0-9]{{16,}}|d[oop]+_v1_[0-9a-f]{{32,}})",
            r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{16,}|SG\.[\w-]{16,}\.[\w-]{16,}",
            r"(?<!\d)\d{8,10}:AA[\w-]{32,}",  # Telegram bots
            r"AGE-SECRET-KEY-1[0-9A-Z]{20,}|[xyz]prv[1-9A-HJ-NP-Za-km-z]{100,112}",
            r"eyJ[\w-]{6,}\.[\w-]{4,}(?:\.[\w-]*)*",  # JSON web tokens
            r"(?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2-nistp\d{3}) AAAA[\w+/=]{20,}",
            rf"{_START}(?:SK|AC)[0-9a-f]{{32}}(?![0-9A-Za-z])",  # Twilio
            rf"{_START}[0-9a-f]{{32}}-us\d{{1,2}}(?![0-9A-Za-z])",  # Mailchimp
            rf"{_START}key-[0-9a-f]{{32}}(?![0-9A-Za-z])",  # Mailgun
            rf"{_START}(?:gsk|xai|tvly|r8|fw|nvapi|lsv2_pt|lsv2_sk|phc|phx|sbp|vcp|dckr_pat|tskey|cio|whsec)[-_][\w-]{{20,}}",
            rf"{_START}EAA[A-Za-z][0-9A-Za-z]{{40,}}|{_START}[MNO][\w-]{{23,25}}\.[\w-]{{6}}\.[\w-]{{27,}}",  # Discord
            r"\$(?:2[abxy]\$\d\d\$[./0-9A-Za-z]{53}|apr1\$[^$\s]{1,8}\$[./0-9A-Za-z]{22}"
            r"|[156y]\$[^\s:\"']{0,40}\$[./0-9A-Za-z]{22,}|argon2id?\$[^\s\"']{20,})",  # password hashes
            r"pbkdf2_sha\d+\$\d+\$[^\s\"']{20,}|\{SSHA(?:256|512)?\}[\w+/=]{20,}",
        )
    )
)
_KEY_FORM_HINT = join_hints(
    (
        "sk-", "k_live_", "k_test_", "whsec_", "gh[oprsu]_", "github_pat_", r"gl\w{2,6}-", "akia", "asia", "aroa",
        "aida", "agpa", "aiza", r"ya29\.", "gocspx-", "1//0", "xox", "xapp-", "npm_", "pypi-ag", "hf_", "_v1_",
        r"shp\w\w_", r"sg\.", ":aa", "age-secret-key-1", "prv(?<=[xyz]prv)", "eyj", "aaaa", "sk[0-9a-f]{32}",
        "ac[0-9a-f]{32}", "-us(?<=[0-9a-f]{32}-us)", "key-[0-9a-f]{32}", "eaa[a-z][0-9a-z]{40}",
        r"\.(?<=[\w-]{24}\.)[\w-]{6}\.", r"\$2[abxy]\$", r"\$apr1\$", r"\$[156y]\$", r"\$argon2", "pbkdf2_", r"\{ssha",
        r"gsk[-_]", r"xai[-_]", r"tvly[-_]", r"r8[-_]", r"fw[-_]", r"nvapi[-_]", r"lsv2_(?:pt|sk)[-_]", r"ph[cx][-_]",
        r"sbp[-_]", r"vcp[-_]", r"dckr_pat[-_]", r"tskey[-_]", r"cio[-_]",
    )
)  # fmt: skip
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)

_QUOTED = r"""\\*"(?P<double>(?:[^"\\\n]|\\[^"\n])*(?:\\"(?:[^"\\\n]|\\[^"\n])+)*)|\\*'(?P<single>[^'\n]*)|`(?P<tick>[^`\n]*)`"""  # noqa: E501
_NESTED = r"""(?P<slashes>\\+)"(?P<nested>(?:[^"\\\n]|\\[^"\n])*)"""
_BARE = r"""(?P<bare>[^\s"'`<>][^\s"'`<>&]*)"""
_VALUE = rf"(?:{_NESTED}|{_QUOTED}|{_BARE})"
_CORE = (
    r"passw(?:or)?d|passphrase|passcode|passwort|kennwort|contraseña|mot de passe|senha|пароль|密码|pass|pwd|pw(?=\W)"
    r"|secret access key|secret|security token|credential|creds|(?:api|access|account|private|encryption|license) key"
    r"|(?:auth|access|api|refresh|bearer|bot) token|token|key|auth|jwt|mnemonic|(?:seed|recovery|secret) phrase"
    r"|signature|sig(?=\W)|otp(?=\W)|totp|pin(?=\W)|cvv|cvc"
)
_ASSIGNMENT = re.compile(
    rf"(?i)(?:{_CORE})(?P<tail>[\w.-]{{0,40}})(?P<close>\\*[\"'`\]]{{0,2}}|(?:\s(?:\[[^\]\n]{{0,40}}\]))?)"
    rf"(?P<gap>[ \t]{{0,8}})(?P<sep>:=|\|\|=|\?=|=>|=(?!=)|:(?!:)|>)[ \t]{{0,8}}{_VALUE}"
)
_CALL_ARGUMENT = re.compile(
    rf"(?i)(?:{_CORE})(?P<tail>[\w.-]{{0,40}})(?P<close>[\"'])(?P<gap>)(?P<sep>,)[ \t]{{0,4}}{_VALUE}"
)
_OPTION = re.compile(rf"(?i)(?:{_CORE})(?P<tail>[\w-]{{0,40}})(?P<close>)(?P<gap>)(?P<sep>[ \t]{{1,4}}){_VALUE}")
_NAME_CORE = re.compile(_CORE)
_SENTENCE = re.compile(
    r"(?i)(?<![\w-])(?:passw(?:or)?d|passcode|passphrase|passwort|kennwort|pwd|pin|secret|token|(?:api|access) key)[ \t]"  # noqa: E501
    r"(?:is|was|=|:|to|ist|lautet|est)[ \t]{1,2}[\"'`]?(?P<it>[^\s\"'`<>]{4,})"
)
_NETRC = re.compile(r"(?i)(?<![\w-])login[ \t]+\S+[ \t]+password[ \t]+(?P<it>\S+)")
_ATTRIBUTE = re.compile(
    rf"(?i)(?:{_CORE})(?P<tail>[\w.-]{{0,40}})[\"'][^<>\n]{{0,120}}?(?P<close>)(?P<gap>)"
    rf"\b(?:value|content|default)(?P<sep>=){_VALUE}"
)
_NAME_ATTRIBUTE = re.compile(r"(?:name|key|id)=\\*[\"']\Z")
_HEADER = re.compile(
    r"(?i)(?<![A-Za-z0-9])(?:proxy-)?(?:authorization|cookie|set-cookie)(?:\\*[\"'])?[ \t]{0,8}[:=][ \t]{0,8}\\*[\"']?"
    r"(?:(?:bearer|basic|token|digest|apikey)[ \t]+)?(?P<it>[^\n\"'\\]+)"
)
_BEARER = re.compile(r"(?i)(?<![A-Za-z0-9-])(?:bearer|basic|token)[ \t]{1,4}(?P<it>[^\s\"'\\,;<>`){}]{8,})")
_SECRET_URL = re.compile(
    r"(?i)(?:https?://)?(?:hooks\.slack\.com/(?:services|workflows|triggers)/[\w+/-]{8,}"
    r"|(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\d+/[\w-]+|hooks\.zapier\.com/hooks/catch/[\w/]+"
    r"|[\w.-]*webhook\.office\.com/webhook\w*/[^\s\"'<>]+|outlook\.office(?:365)?\.com/webhook/[^\s\"'<>]+"
    r"|chat\.googleapis\.com/v1/spaces/[^\s\"'<>]+|api\.telegram\.org/bot[\w:-]+|maker\.ifttt\.com/trigger/[^\s\"'<>]+"
    r"|hook\.\w+\.make\.com/\w+|[\w.-]+\.logic\.azure\.com[:\w/.-]*\?[^\s\"'<>]+)"
)
_LOGIN_URL = re.compile(
    r"[a-z][\w+.-]{0,20}:/{1,2}(?P<it>[^/\s@\"'\\<>`]{1,256}|[^/\s@:\"'\\<>`]{0,64}:[^\s@\"'\\<>`]{1,256})@(?=[\w\[$])",
    re.IGNORECASE,
)
_URL_PARAMETER = re.compile(
    r"(?i)[?&;](?:amp;)?(?:[\w.-]{0,40}?(?:token|secret|key|password|passwd|pwd|pass|signature|auth)|sig|code|x-amz-[\w-]+|apikey|jwt|otp|session)"
    r"=(?P<it>[^\s&\"'<>`;\\)]{3,})"
)


class _Command(NamedTuple):
    """A command with an option that takes a secret."""

    words: tuple[str, ...]
    """The literal beginnings of its name."""
    hints: tuple[str, ...]
    """Patterns for these words in lower-case text, which begin with a fixed character."""
    pattern: re.Pattern[str]

    @classmethod
    def make(cls, names: str, rest: str, option: str, argument: str) -> _Command:
        """Return the command with one of these names; `*` is for the rest of a name."""
        words = [name.rstrip("*") for name in names.split()]
        end = r"(?![\w.:/-])"
        hints = [
            rf"{re.escape(word)}(?<![\w.-]{re.escape(word)})" + ("" if "*" in name else end)
            for name, word in zip(names.split(), words, strict=True)
        ]
        heads = "|".join(re.escape(name).replace(r"\*", r"\w*") for name in names.split())
        pattern = rf"(?<![\w.-])(?:{heads}){end}{rest}[^\n]{{0,400}}?[ \t](?:{option}){argument}"
        return cls(tuple(words), tuple(hints), re.compile(pattern))


_USER_OPTION = r"(?P<it>\"[^\"\n]+\"|'[^'\n]+'|[^\s\"']+:[^\s\"']*|[^\s\"']+)"
_ARGUMENT = r"(?P<it>\"[^\"\n]+\"|'[^'\n]+'|[^\s\"';|&`]+)"
_COMMANDS = tuple(
    _Command.make(*row)
    for row in (  # words that begin the command, what follows them, options, value
        ("curl", "", r"(?:-u|--user|--proxy-user|-U)(?:[ =]|(?=\S))", r"(?P<it>\"[^\"\n]*:[^\"\n]*\"|'[^'\n]*:[^'\n]*'|[^\s\"'-][^\s\"':]*:[^\s\"']+)"),  # noqa: E501
        ("http https httpie", "", r"(?:-a|--auth)[ =]?", _USER_OPTION),
        ("wget", "", r"--(?:http-|ftp-)?(?:user|password)[ =]", _ARGUMENT),
        ("mysql* mariadb*", "", r"(?:-p(?!\s)|--password=)", _ARGUMENT),
        ("sshpass", "", r"-p[ ]?", _ARGUMENT),
        ("redis-cli", "", r"(?:-a|--pass)[ ]", _ARGUMENT),
        ("docker podman helm az oc buildah skopeo", r" [^\n]{0,80}?login", r"(?:-p|--password)[ =]", _ARGUMENT),
        ("htpasswd", "", r"-\w*b\w*[ ]+[^\s]+[ ]+[^\s]+[ ]+", _ARGUMENT),
        ("openssl", "", r"-(?:pass(?:in|out)?[ ]+pass:|k[ ]|K[ ])", _ARGUMENT),
        ("mongo*", "", r"(?:-p|--password)[ =]?", _ARGUMENT),
        ("ldap*", "", r"-w[ ]?", _ARGUMENT),
        ("smbclient", "", r"-U[ ]?[^\s%]+%", _ARGUMENT),
        ("zip unzip", "", r"-P[ ]?", _ARGUMENT),
        ("7z 7za 7zr", "", r"-p", _ARGUMENT),
        ("rar unrar", "", r"-h?p", _ARGUMENT),
        ("gpg gpg2", "", r"--passphrase[ =]", _ARGUMENT),
        ("lftp", "", r"-u[ ]?", _ARGUMENT),
        ("sqlcmd bcp", "", r"-P[ ]?", _ARGUMENT),
        ("cqlsh", "", r"-p[ ]?", _ARGUMENT),
        ("clickhouse clickhouse-client", "", r"--password[ =]", _ARGUMENT),
        ("mosquitto*", "", r"-P[ ]?", _ARGUMENT),
        ("keytool jarsigner", "", r"-(?:store|key)pass[ ]", _ARGUMENT),
        ("ssh-keygen", "", r"-[NP][ ]", _ARGUMENT),
        ("xfreerdp* freerdp*", "", r"/p:", _ARGUMENT),
        ("net", " use", r"(?:/user:\S+[ ]|\S+[ ](?=\S+[ ]/user))", _ARGUMENT),
        ("rsync", "", r"--password=", _ARGUMENT),
        ("kubectl", "", r"--from-literal[ =][^\s=]+=", _ARGUMENT),
        ("vault", "", r"(?:kv put|write)[ ]+\S+[ ]+[\w-]+=", _ARGUMENT),
        ("gh", " secret set", r"(?:-b|--body)[ =]?", _ARGUMENT),
        ("aws", " configure set", r"\w*(?:key|token)[ ]+", _ARGUMENT),
        ("ipmitool", "", r"-P[ ]?", _ARGUMENT),
        ("snmp*", "", r"-(?:c|A|X)[ ]", _ARGUMENT),
        ("echo", "", r"(?=[^\n]{1,80}\|[ ]*(?:sudo[ ]-S|docker[ ]login|passwd|chpasswd|su[ ]))", _ARGUMENT),
    )
)  # fmt: skip
_CLOUD_SECRET = re.compile(r"(?<![\w+/=.-])[A-Za-z0-9+/]{40}(?![\w+/=.-])")
_LONG_SECRET = re.compile(r"(?<![\w+/=.-])[A-Za-z0-9+/]{42,86}={1,2}(?![\w+/=])")
_LONG_CONTEXT = re.compile(r"(?i)azure|account|storage|secret|shared|\bkey\b|aws|credential")
_SQL_PASSWORD = re.compile(r"(?i)(?:identified[ ]by(?:[ ]password)?|(?:encrypted[ ])?password)[ ]+'(?P<it>[^'\n]{3,})'")

_ENVIRONMENT = ("export", "-e", "--env", "set", "env", "ARG", "ENV", "-D", "--set")
_BARE_HINT = re.compile(r"[a-z0-9+/]{40}")
_WEBHOOK_HINTS = ("webhook", "hook.", "hooks.", "api.telegram", "chat.googleapis", "maker.ifttt", "logic.azure")
_URL_HINT = re.compile("|".join((":/", *map(re.escape, _WEBHOOK_HINTS))))
_NAME_HINT = re.compile(
    r"pass|pwd|pw\b|secret|token|key|cred|auth|jwt|mnemonic|phrase|sig\b|signature|otp\b|pin\b|cvv|cvc|kennwort|contrase"
    r"|senha|пароль|密码|identified|login"
)
_HEADER_HINT = re.compile(r"authorization|cookie|bearer|basic")


def short_hints() -> list[str]:
    """Return patterns for words of any length, of which one matches wherever `hints_in` returns anything.

    perf: each begins with a letter, so that they can be joined to one fast pattern with `join_hints`.
    """
    parts = [hint for command in _COMMANDS for hint in command.hints]
    parts += (part for pattern in (_NAME_HINT, _URL_HINT, _HEADER_HINT) for part in pattern.pattern.split("|"))
    return parts + [re.escape(keyword) for keyword, rules in _rules_by_keyword() if any(map(_is_named_rule, rules))]


def long_hints() -> list[re.Pattern[str]]:
    """Return the other patterns, for words of at least 16 characters."""
    keywords = (re.escape(keyword) for keyword, rules in _rules_by_keyword() if not all(map(_is_named_rule, rules)))
    return [_KEY_FORM_HINT, _BARE_HINT, join_hints(keywords)]


def _is_named_rule(rule: KeyRule) -> bool:
    """Return whether a rule is for the value of a name, which may be in another word than the keyword."""
    return r"=|>|" in rule.pattern or " " in "".join(rule.keywords)


class SecretHint:
    """Bits for the kinds of rules that may find something in a line, by one of its words.

    perf: plain numbers, because the operators of `IntFlag` take longer than the rules.
    """

    NONE = 0
    FORM = 1
    NAME = 2
    URL = 4
    COMMAND = 8
    HEADER = 16
    BARE = 32


class LineHints(NamedTuple):
    """The rules to try on a line."""

    secrets: int
    """Bits of `SecretHint`."""
    key_rules: tuple[KeyRule, ...]


def hints_in(text: str) -> LineHints:
    """Return the rules that may match in a line, or in a line with this word."""
    low = text.lower()
    hints = SecretHint.NONE
    if _KEY_FORM_HINT.search(low) and ("AAAA" in text or _KEY_FORMS.search(text)):
        hints |= SecretHint.FORM
    if _NAME_HINT.search(low):
        hints |= SecretHint.NAME
    if _URL_HINT.search(low):
        hints |= SecretHint.URL
    if _command_hints().search(low):
        hints |= SecretHint.COMMAND
    if _HEADER_HINT.search(low):
        hints |= SecretHint.HEADER
    if _BARE_HINT.search(low) and (_LONG_SECRET.search(text) or next(_find_bare_secrets(text), None)):
        hints |= SecretHint.BARE
    return LineHints(hints, _key_rules_in(text, low))


@cache
def _command_hints() -> re.Pattern[str]:
    return join_hints(hint for command in _COMMANDS for hint in command.hints)


def find_secrets(text: str) -> list[SecretMatch]:
    """Return the secrets in a text, which may overlap. The first of those that overlap names the kind."""
    findings = list(find_private_keys(text))
    at = 0
    for line in text.split("\n"):
        findings += (shift(finding, at) for finding in find_in_line(line))
        at += len(line) + 1
    return findings


def shift(finding: SecretMatch, by: int) -> SecretMatch:
    """Return the finding at a place `by` characters later."""
    return SecretMatch(finding.start + by, finding.end + by, finding.kind, finding.rule)


def find_private_keys(text: str) -> Iterator[SecretMatch]:
    """Yield the private keys in PEM form, the only secrets with more than one line."""
    if "-----BEGIN" in text:
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
        yield from _all_matches(_KEY_FORMS, line, "key", "key-form")
    for rule in key_rules:
        yield from rule.find(line)
    if secrets & SecretHint.URL:
        yield from _find_in_urls(line, low)
    if secrets & SecretHint.HEADER:
        yield from _plausible_matches(_HEADER, line, "secret", "header")
    if secrets & SecretHint.HEADER or "token" in low:
        yield from (
            SecretMatch(*match.span("it"), "key", "bearer")
            for match in _BEARER.finditer(line)
            if looks_random(match["it"]) and plausible_secret(match["it"])
        )
    if secrets & SecretHint.NAME:
        yield from _find_named(line, low)
    if secrets & SecretHint.COMMAND:
        for command in _COMMANDS:
            if any(word in low for word in command.words):
                yield from _plausible_matches(command.pattern, line, "secret", f"command {command.words[0]}")
    if secrets & SecretHint.BARE:
        yield from _find_bare_secrets(line)


def _all_matches(pattern: re.Pattern[str], line: str, kind: str, rule: str) -> Iterator[SecretMatch]:
    return (SecretMatch(*match.span(), kind, rule) for match in pattern.finditer(line))


def _plausible_matches(pattern: re.Pattern[str], line: str, kind: str, rule: str) -> Iterator[SecretMatch]:
    for match in pattern.finditer(line):
        start, end = match.span("it")
        if match["it"][0] in "\"'":
            start, end = start + 1, end - 1
        if plausible_secret(line[start:end]):
            yield SecretMatch(start, end, kind, rule)


@cache
def _rules_by_keyword() -> tuple[tuple[str, tuple[KeyRule, ...]], ...]:
    table: dict[str, list[KeyRule]] = {}
    for rule in load_key_rules().rules:
        for keyword in (keyword.split()[0] for keyword in rule.keywords):
            table.setdefault(keyword, []).append(rule)
    return tuple((keyword, tuple(rules)) for keyword, rules in table.items())


@cache
def _keyword_hints() -> re.Pattern[str]:
    return join_hints(re.escape(keyword) for keyword, _ in _rules_by_keyword())


def _find_in_urls(line: str, low: str) -> Iterator[SecretMatch]:
    if any(hint in low for hint in _WEBHOOK_HINTS):
        yield from _all_matches(_SECRET_URL, line, "key", "webhook")
    if "@" in low and ":/" in low:
        yield from (
            SecretMatch(*match.span("it"), "login", "login-url")
            for match in _LOGIN_URL.finditer(line)
            if _is_login(*match["it"].partition(":"))
        )
    if "=" in low and ("?" in low or "&" in low):
        yield from (
            SecretMatch(*match.span("it"), "secret", "url-parameter")
            for match in _URL_PARAMETER.finditer(line)
            if plausible_secret(match["it"]) and "://" in line[: match.start()]
        )


def _is_login(user: str, _: str, word: str) -> bool:
    if word:
        return plausible_secret(word) and not re.match(r"\$[({]", word)
    return plausible_secret(user) and user != "git"


def _find_bare_secrets(line: str) -> Iterator[SecretMatch]:
    for match in _CLOUD_SECRET.finditer(line):
        if _is_random_base64(match[0]):
            yield SecretMatch(*match.span(), "key", "cloud-secret")
    for match in _LONG_SECRET.finditer(line):
        before = line[max(0, match.start() - 80) : match.start()]
        if _LONG_CONTEXT.search(before) and entropy(match[0]) >= 4.2:
            yield SecretMatch(*match.span(), "key", "encoded-secret")


def _is_random_base64(text: str) -> bool:
    """Return whether a string has the mixture of characters that random bytes have, unlike digests, names and paths."""
    changes = sum(a.islower() and b.isupper() for a, b in itertools.pairwise(text))
    has_digit = any(char.isdigit() for char in text)
    return has_digit and changes >= 4 and entropy(text) >= 4.2 and not re.search("[a-z]{8}", text)


def _find_named(line: str, low: str) -> Iterator[SecretMatch]:
    patterns = [_ASSIGNMENT] if ":" in line or "=" in line or ">" in line else []
    if "-" in line or "/" in line:
        patterns.append(_OPTION)
    if "," in line:
        patterns.append(_CALL_ARGUMENT)
    if "value=" in low or "content=" in low or "default=" in low:
        patterns.append(_ATTRIBUTE)
    end = 0
    for core in _NAME_CORE.finditer(low if len(low) == len(line) else line):
        if core.start() < end:
            continue
        for pattern in patterns:
            match = pattern.match(line, core.start())
            finding = _named_finding(line, match) if match else None
            if finding:
                yield finding
                end = finding.end
                break
    for match in _SENTENCE.finditer(line):
        value = match["it"].rstrip(".,;:!?)")
        if re.search(r"\d", value) and re.search(r"[^\W\d_]", value) and _is_sentence_value(value):
            yield SecretMatch(match.start("it"), match.start("it") + len(value), "secret", "sentence")
    if "login" in low:
        yield from _plausible_matches(_NETRC, line, "secret", "netrc")
    if "password" in low or "identified" in low:
        yield from _plausible_matches(_SQL_PASSWORD, line, "secret", "sql-password")


def _is_sentence_value(value: str) -> bool:
    return plausible_secret(value) and not re.search(r"[()\[\]{}=/]|\d(?:st|nd|rd|th)\b|^\d+[a-z]{1,2}$", value)


def _value_group(match: re.Match[str]) -> str:
    return next((name for name in ("nested", "double", "single", "tick", "bare") if match[name] is not None), "bare")


def _named_finding(line: str, match: re.Match[str]) -> SecretMatch | None:
    """Return the value of a name if the name says that it is secret and the value can be one."""
    group = _value_group(match)
    value = match[group] or ""
    start = match.start(group)
    if group == "bare":
        value = _trim_bare(value)
    if not value:
        return None
    name_start = match.start()
    while (
        name_start > 0
        and match.start() - name_start < 64
        and (line[name_start - 1].isalnum() or line[name_start - 1] in "_-.")
    ):
        name_start -= 1
    name = line[name_start : match.end("tail")]
    if (
        match.re is _OPTION
        and not name.startswith("-")
        and "--" not in name
        and line[name_start - 1 : name_start] != "/"
    ):
        return None
    name = name.rpartition("--")[2].lstrip("-.")
    strength = name_strength(name)
    if match.re is _OPTION and name.lower().endswith("token"):
        strength = NameStrength.STRONG
    if strength is NameStrength.NONE:
        return None
    before, after = line[:name_start].rstrip(), line[start + len(value) :].strip()
    if _is_other_name(name, value, before, match):
        return None
    whole_line = not after and before in ("", "-", "#", "//", "+", ">", "*", "{")
    is_element = match["sep"] == ">" and after.startswith("</")
    if match["sep"] == ">" and not (is_element and (not match["close"] or _NAME_ATTRIBUTE.search(before))):
        return None
    is_assignment = match["sep"] == "=" and not match["gap"] and match.end("sep") == match.start(group)
    is_secret = is_secret_value(
        value,
        name,
        strength,
        quoted=group != "bare",
        certain=is_element
        or (is_assignment and (whole_line or name.isupper() or before[-1:] in "?&;" or before.endswith(_ENVIRONMENT))),
        whole_line=whole_line,
    )
    if not is_secret or (match["sep"] == "," and value.replace("_", "").isalpha()):  # a list of words
        return None
    return SecretMatch(start, start + len(value), "secret", f"name {name}"[:60])


def _is_other_name(name: str, value: str, before: str, match: re.Match[str]) -> bool:
    """Return whether a name is about something else, as in `"Low Pass": …`, `x ? "PASS" : …` or `--pass: #a0b0c0`."""
    if name.lower() == "pass":
        is_last_word = bool(match["close"]) and match.string[match.start() - 1 : match.start()] == " "
        return is_last_word or bool(re.search(r"\?\s*[\"']\Z", before) or re.match(r"#[0-9A-Fa-f]{3,8}\b", value))
    return before.endswith("${") and value.startswith("?")


def _trim_bare(value: str) -> str:
    """Return an unquoted value without the punctuation and escapes that follow it."""
    value = re.split(r"\\[nrt]|\\+$|;(?=\s|$)|</|\x1b", value, maxsplit=1)[0]
    while value and (
        value[-1] in ",;"
        or (value[-1] in ")]}" and value.count(value[-1]) > value.count("([{"[")]}".index(value[-1])]))
    ):
        value = value[:-1]
    return value
