"""Patterns for secrets in text, used by exports and telemetry.

They cover common key formats and common names for secrets, not every secret. Every pattern is
bounded, so that a line of several megabytes takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

WORD_START = r"(?:(?<![0-9A-Za-z])|(?<=\\[nrt]))"
"""A word boundary, also after an escaped newline."""
_KEY_PATTERN = "|".join(
    (
        WORD_START + r"sk-[\w-]{12,}|sk-(?:admin|ant|or|proj|svcacct)-[\w-]{12,}",
        r"[rsp]k_(?:live|test)_\w{8,}|whsec_\w{16,}",  # payments
        r"gh[oprsu]_[A-Za-z0-9]{16,}|github_pat_\w{16,}",
        r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent)-[\w.-]{12,}",
        r"(?:AKIA|ASIA|AROA|AIDA|AGPA)[0-9A-Z]{12,}",
        r"AIza[\w-]{20,}|ya29\.[\w-]{16,}|GOCSPX-[\w-]{16,}",
        r"xox[abeoprs]-[\w-]{8,}|xapp-[\w-]{12,}",
        r"npm_[A-Za-z0-9]{20,}|pypi-Ag[\w-]{16,}|hf_[A-Za-z0-9]{16,}|dop_v1_[0-9a-f]{32,}",
        r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{16,}|SG\.[\w-]{16,}\.[\w-]{16,}",
        r"(?<!\d)\d{8,10}:AA[\w-]{32,}",  # bots
        r"AGE-SECRET-KEY-1[0-9A-Z]{20,}",
        r"eyJ[\w-]{6,}\.[\w-]{4,}(?:\.[\w-]*)?",
        r"(?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2-nistp\d{3}) AAAA[\w+/=]{20,}",
    )
)
_KEY_HINTS = (
    "sk-", "k_live_", "k_test_", "whsec_", "gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_pat_",
    "glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "glimt-", "glagent-",
    "akia", "asia", "aroa", "aida", "agpa", "aiza", "ya29.", "gocspx-", "xox", "xapp-", "npm_",
    "pypi-ag", "hf_", "dop_v1_", "shpat_", "shpca_", "shppa_", "shpss_", "sg.", ":aa",
    "age-secret-key-1", "eyj", "aaaa",
)  # fmt: skip
_SECRET_NAME = (
    r"(?:api[_-]?key|secret|token(?!s)|passw(?:or)?d|passphrase|credential|private[_-]?key"
    r"|access[_-]?key|authorization|cookie|[_-]pwd|[_-]auth(?!or)|[_-]key)"
)
_NAME_HINTS = (
    "api", "secret", "token", "passw", "passphrase", "credential", "key", "authorization", "cookie",
    "pwd", "auth",
)  # fmt: skip
_SECRET_VALUE = r"""(?:"(?:[^"\\]|\\.)+|\\+"(?:[^"\\]|\\[^"])+|'[^']+|[^\s"'&;}\])]+)"""
"""A quoted value, a nested quoted value, or text up to a space."""

SECRET_FIELD_NAME = re.compile(rf"(?i)\A[\w.-]{{0,64}}{_SECRET_NAME}[\w.-]{{0,64}}\Z")
"""A key whose value is a secret."""


def strip_quotes(value: str) -> str:
    """Remove the leading quotes from a value."""
    return value.lstrip("\"'\\")


class SensitivePattern(NamedTuple):
    """A pattern for one kind of secret."""

    kind: str
    """The name to show in the placeholder."""
    pattern: re.Pattern[str]
    """The pattern; its group `it` is replaced, or the whole match if there is no such group."""
    hints: tuple[str, ...] = ()
    """Lower-case substrings, one of which every match contains, so that other text can be skipped."""
    is_sensitive: Callable[[str], bool] = lambda _: True

    def may_occur_in(self, low: str) -> bool:
        """Return whether the lower-case string `low` may contain a match."""
        return not self.hints or any(hint in low for hint in self.hints)

    def replace_matches(self, text: str, name: Callable[[str], str | None]) -> str:
        """Replace each match with `name(match)`, or keep the match if that is None."""
        group = "it" if "it" in self.pattern.groupindex else 0

        def substitute(matched: re.Match[str]) -> str:
            whole, value = matched[0], matched[group]
            replacement = name(value) if self.is_sensitive(value) else None
            if replacement is None:
                return whole
            at = matched.end(group) - matched.start()
            return whole[: at - len(strip_quotes(value))] + replacement + whole[at:]

        return self.pattern.sub(substitute, text)


_NAME_PREFIX = r"(?<![\w.-])[\w.-]{0,64}?"
_EQUALS = r"\s{0,8}=\s{0,8}"

SECRET_PATTERNS = (
    SensitivePattern(
        "key",
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
            re.DOTALL,
        ),
        ("-----begin ",),
    ),
    SensitivePattern("key", re.compile(_KEY_PATTERN), _KEY_HINTS),
    SensitivePattern("key", re.compile(WORD_START + r"(?:SK|AC)[0-9a-f]{32}")),
    SensitivePattern(
        "login",
        re.compile(r":/{1,2}(?P<it>[^/\s@\"'\\<>]{1,256}|[^/\s@:\"'\\<>]{1,64}:[^\s@\"'\\<>]{1,256})@"),
        (":/",),
    ),
    SensitivePattern(
        "key", re.compile(r"(?i)\b(?:bearer|basic)\s{1,4}(?P<it>[^\s\"'\\,;<>]{8,})"), ("bearer", "basic")
    ),
    SensitivePattern(  # the rest of the line
        "secret",
        re.compile(r"(?i)(?:authorization|cookie)(?:\\*[\"'])?\s{0,8}[:=]\s{0,8}(?P<it>[^\n\"']+)"),
        ("authorization", "cookie"),
    ),
    SensitivePattern(  # password=…, "apiKey": "…", Authorization: …
        "secret",
        re.compile(
            rf"(?i){_NAME_PREFIX}{_SECRET_NAME}[\w.-]{{0,64}}(?:\\*[\"'])?\s{{0,8}}[:=]\s{{0,8}}"
            rf"(?P<it>{_SECRET_VALUE})"
        ),
        _NAME_HINTS,
    ),
    SensitivePattern(  # SIGNING_KEY=…, MY_KEY_2=…
        "secret", re.compile(rf"{_NAME_PREFIX}KEY[A-Z0-9_]{{0,64}}{_EQUALS}(?P<it>{_SECRET_VALUE})"), ("key",)
    ),
    SensitivePattern(  # --password …, --token …
        "secret",
        re.compile(rf"(?i)--?[\w-]{{0,64}}?{_SECRET_NAME}[\w-]{{0,64}}\s{{1,8}}(?P<it>{_SECRET_VALUE})"),
        _NAME_HINTS,
    ),
)
"""The patterns in the order in which they are applied: whole keys before name-value pairs."""
