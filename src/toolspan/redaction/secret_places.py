"""Secrets recognized by position instead of by name, such as in `redis-cli AUTH …`, `.netrc` and cookie files.

`named_secrets.py` finds the values that follow a name. Start at `find_by_place`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolspan.redaction.secret_forms import SecretMatch, plausible_matches
from toolspan.redaction.secret_names import (
    FOREIGN_PASSWORDS,
    NameStrength,
    has_mixed_characters,
    is_certain_secret,
    is_sentence_value,
    name_strength,
)

_DIGIT = re.compile(r"\d")
_ONE_TIME_CODE = re.compile(
    r"(?i)(?<![\w-])(?:(?:one-time|verification|2fa|mfa|otp)[ ](?:pass)?(?:code|word)|pin(?:[ -]?code)?|passcode)[ ]?(?:is(?:t)?|est|es|was|:|=|(?=[ ]\d))[ ]{1,2}(?P<it>\d{4,8})(?![\w-]|\.\d)"  # noqa: E501
)
_REDIS_PASSWORD = re.compile(
    r"(?:(?i:redis-cli)[ ][^\n|;&]{0,200}?(?:AUTH|auth)|\d>[ ](?:AUTH|auth))[ ](?:[\w-]+[ ](?=[^\s|;&]))?[\"']?(?P<it>[^\s\"'|;&\\]{3,128})"  # noqa: E501
    r"|(?:^|\\n|[\"'])AUTH[ ](?:[\w-]{1,64}[ ])?[\"']?(?=[^\s\"'\\]{0,128}\d)(?P<line>[^\s\"'\\]{4,128})(?=[\"'\\\s]|$)"
    r"|(?:(?i:ACL[ ]SETUSER)[ ]|^user[ ](?=\S+[ ](?:on|off)[ ]))[^\n]{0,200}?[ ][\"']?>(?P<rule>[^\s\"'\\]{3,128})"
)
_PROCESS_SUBSTITUTION = re.compile(
    r"(?i)(?:pass|secret|token|key)[\w-]{0,40}(?:[ ][^\n<>|;&]{1,60}?)?[ =]<\((?:echo|printf)[ ]+(?:-\w+[ ]+)?(?:[\"']?%s[\\n]*[\"']?[ ]+)?"  # noqa: E501
    r"(?P<it>\"[^\"\n]+\"|'[^'\n]+'|[^\s\"');|&`]+)"
)
_SEED_PHRASE = re.compile(
    r"(?i)(?:mnemonic|paper[ _-]?key|(?:seed|recovery|secret|backup)[ _-]?(?:phrase|words))\w{0,20}\\*[\"']?[ ]?(?:is|:|=|[ ])[ ]?"  # noqa: E501
    r"\\*[\"']?(?P<it>(?:[a-z]{3,8}[ ,]{1,2}){11,23}[a-z]{3,8})(?![a-z])"
)
_LABEL = re.compile(
    rf"(?i)(?<![\w-])(?:passw(?:or)?d|passphrase|passcode|pin|pw|{'|'.join(sorted(FOREIGN_PASSWORDS))})[ ][^\n:=\"'`(){{}}]{{2,60}}:[ ]"  # noqa: E501
    r"[\"'`]?(?P<it>[^\s\"'`]{6,64})[\"'`]?\s*\Z"
)
"""A password at the end of a line, as in "A temporary password is generated for root@localhost: …"."""
_DEFAULT = re.compile(
    r"(?P<user>[\w.-]{2,60})[\"']?[ ]?[:=][^\n]{0,120}?\|[ ]?default\([ ]?(?P<it>\"[^\"\n]{4,}\"|'[^'\n]{4,}')"
)
_FIELD_CALL = re.compile(
    r"(?i)(?:passw(?:or)?d|passphrase|passcode|pwd|secret|token)[\w-]{0,20}[\"'\])]{1,6}\.(?:type|fill|send_?keys|set_?value|press_?sequentially)"
    r"\([ ]?(?P<it>\"[^\"\n]{4,}\"|'[^'\n]{4,}')"
)
"""A value that a test types into a field, as in `get("#password").type("…")`."""
_MASK = re.compile(r"::add-mask::(?P<it>[^\s\"']{4,})")
_COOKIE_LINE = re.compile(r"\t(?:TRUE|FALSE)\t/\S*\t(?:TRUE|FALSE)\t\d+\t\S+\t(?P<it>\S{8,})")
_WIFI = re.compile(r"(?i)(?<!\w)wifi:[^\n]{0,200}?(?<=[:;])p:(?P<it>[^;\n]{3,128});")
_RECOVERY_CODES = re.compile(
    r"(?i)(?:recovery|backup|scratch|rescue)[ _-]?codes?\W{1,6}(?P<it>(?:[0-9a-z]{4,10}(?:-[0-9a-z]{4,10}){0,3}(?:[ ,]{1,2}|\Z)){1,20})"  # noqa: E501
)
_REGISTRY_VALUE = re.compile(
    r"(?i)(?<!\w)/v[ ][\"']?(?P<user>[\w.-]{2,60})[\"']?[ ][^\n]{0,60}?/d[ ](?P<it>\"[^\"\n]+\"|[^\s\"]+)"
)
_SENT = re.compile(
    r"(?i)expect[ ][^\n]{0,60}?pass[^\n]{0,80}?send[ ](?:--[ ])?[\"'](?P<it>[^\"'\n]{4,}?)(?:\\[rn])*[\"']"
)
_RELAY_LOGIN = re.compile(r"^\[?[\w.-]+\]?(?::\d+)?[ \t]+[\w.@+-]{1,64}:(?=[^\s:]*\d)(?P<it>[^\s:/]{6,64})[ \t]*\Z")
_NETRC = re.compile(
    r"(?i)(?<![\w-])login[ \t]+\S+[ \t]+password[ \t]+(?P<it>\S+)"
    r"|^[ \t]*(?:password|requirepass|masterauth|bindpw|rootpw)[ \t]+(?:--\w+[ ])?[\"']?(?=\D*\d)(?P<line>[^\s\"']{4,})[\"']?[ \t]*$"  # noqa: E501
)
_SQL_PASSWORD = re.compile(
    r"(?i)(?:identified[ ]by|user[ ]\w+[ ]using)[ ](?P<bare>\"[^\"\n]{3,}\"|(?=[^\s;]*\d)[^\s;'\"]{4,64})(?=[\s;]|\Z)"
    r"|(?:identified[ ](?:with[ ]\S{1,60}[ ])?(?:by|as)(?:[ ]password)?|(?:encrypted[ ])?(?<![\"'])password|=[ ]?password\()[ ]*'(?!(?<=\wpassword')[ =:,;)\]}])(?P<it>[^'\n]{3,})'"  # noqa: E501
)
"""A password in a statement. The quote after `new_password` in `'new_password' => '…'` does not begin a value."""
_PIPED_PASSWORD = re.compile(r"(?i)(?P<it>\"[^\"\n]{4,}\"|'[^'\n]{4,}')[ ]?\|[ ]?ConvertTo-SecureString(?!\w)")
_NETRC_LINES = re.compile(r"login[ \t]+\S{1,128}[ \t]*\r?\n[ \t]*password[ \t]+(?P<it>\S{3,256})[ \t]*(?=\r?\n|\Z)")
_NET_USE = re.compile(
    r"(?i)(?<![\w.-])net(?:\.exe)?[ ]+use[ ]+(?:(?:[a-z]:|\*)[ ]+)?(?:\"[^\"\n]{1,256}\"|\\[^\s\"]{1,256})[ ]+"
    r"(?:(?P<it>\"[^\"\n]+\"|[^\s\"/*][^\s\"]*)(?=(?:[ ]+/\S{1,64}){0,4}?[ ]+/user:)"
    r"|(?:/\S{1,64}[ ]+){0,4}?/user:\S{1,64}[ ]+(?P<after>\"[^\"\n]+\"|[^\s\"/*][^\s\"]*))"
)
"""The password of a network share. It is searched for in whole lines: `\\\\nas\\temp`
seems to contain escaped line ends.
"""
_LOGIN_PAIR = re.compile(
    r"(?i)(?:user(?:[ ]?name)?|login|e-?mail)[ ]?/[ ]?(?:passw(?:or)?d|pass|pw)[ ]?(?:is|are|:|=)[ ]{0,2}"
    r"[\w.@-]{2,64}[ ]?/[ ]?(?P<it>[^\s/,;\"'`<>]{4,64})"
)
_PLACES = (
    (("/pass", "/pw", "/ p"), _LOGIN_PAIR, "login-pair"),
    (("securestring",), _PIPED_PASSWORD, "secure-string"),
    (("pass", "auth", "pw"), _NETRC, "netrc"),
    (("password", "identified", " using "), _SQL_PASSWORD, "sql-password"),
    (("pin", "code", "word"), _ONE_TIME_CODE, "code"),
    (("auth", "setuser", "+@"), _REDIS_PASSWORD, "redis"),
    (("<(",), _PROCESS_SUBSTITUTION, "process-substitution"),
    (("mnemonic", "phrase", "paper"), _SEED_PHRASE, "seed-phrase"),
    ((").",), _FIELD_CALL, "field"),
    (("::add-mask",), _MASK, "mask"),
    (("]:",), _RELAY_LOGIN, "relay"),
    (("expect",), _SENT, "expect"),
    (("wifi:",), _WIFI, "wifi"),
)
"""For each rule: texts of which a lower-case line must contain one, the pattern, and the name of the rule."""


def find_by_place(line: str, low: str) -> Iterator[SecretMatch]:
    """Yield the secrets at positions where a command or a file format expects one without a name."""
    for parts, pattern, rule in _PLACES:
        for part in parts:  # perf: `any` takes twice as long
            if part in low:
                yield from plausible_matches(pattern, line, "secret", rule)
                break
    for match in _DEFAULT.finditer(line) if "default(" in low else ():
        if name_strength(match["user"]) >= NameStrength.STRONG:
            yield SecretMatch(match.start("it") + 1, match.end("it") - 1, "secret", "default")
    for match in _LABEL.finditer(line) if ": " in line and _DIGIT.search(line) else ():
        if has_mixed_characters(match["it"]) and is_sentence_value(match["it"].replace("(", "")):
            yield SecretMatch(*match.span("it"), "secret", "label")
    for match in _RECOVERY_CODES.finditer(line) if "code" in low else ():
        codes = match["it"].replace(",", " ").split()
        if _DIGIT.search(match["it"]) and all(_DIGIT.search(code) or "-" in code for code in codes):
            yield SecretMatch(match.start("it"), match.start("it") + len(match["it"].rstrip()), "secret", "codes")
    for match in _REGISTRY_VALUE.finditer(line) if "/v " in low and "/d " in low else ():
        if (strength := name_strength(match["user"])) and is_certain_secret(match["it"].strip('"'), strength):
            start, end = match.span("it")
            quoted = match["it"][0] == '"'
            yield SecretMatch(start + quoted, end - quoted, "secret", f"name {match['user']}")


def find_in_whole_lines(text: str) -> Iterator[SecretMatch]:
    """Yield the passwords of network shares, and the values in the cookie files of curl and browser extensions."""
    if "login " in text and "password " in text:
        yield from plausible_matches(_NETRC_LINES, text, "secret", "netrc")
    if "/user:" in text or "/USER:" in text:
        yield from plausible_matches(_NET_USE, text, "secret", "net-use")
    if "\tTRUE\t" in text or "\tFALSE\t" in text:
        yield from plausible_matches(_COOKIE_LINE, text, "secret", "cookie")
