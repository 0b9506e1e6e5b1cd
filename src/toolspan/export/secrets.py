"""The forms in which personal data stand in texts, beside those of secrets.

In: a text. Out: where something stands that should not leave, and what it is. A net, not a wall:
it knows addresses, names of people in headers, home folders. Every pattern is bounded, so that a
line of megabytes costs its length and no more. Read `FORMS` first.
"""

import ipaddress
import re

from toolspan.model.secrets import EDGE, SECRETS, Form

_IPV4 = r"(?<![0-9.])(?:\d{1,3}\.){3}\d{1,3}(?![0-9]|\.\d)"
_IPV6 = EDGE + r"(?<![:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![0-9A-Za-z:])"
_EMAIL = r"[\w.%+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}"
_NAME = r"\s/\\\"'`:;,<>|*?$(){}\[\]!#%&=+"
"""What no name of a user has in it."""


def _far_ipv4(text: str) -> bool:
    """An address of a machine; this one itself and none at all tell nothing."""
    return not text.startswith("127.") and text != "0.0.0.0"


def _far_ipv6(text: str) -> bool:
    """The same, where it is an address: times and names in programs have colons, too."""
    try:
        found = ipaddress.IPv6Address(text)
    except ValueError:
        return False
    if "::" in text and not re.search(r"\d|:\w+:", text):
        return False  # `a::b` is as likely a name
    return not (found.is_loopback or found.is_unspecified)


FORMS = (
    *SECRETS,
    Form(
        "person",
        re.compile(
            r"(?im)^\s{0,8}(?:author|committer|co-authored-by|signed-off-by|reviewed-by|from|to|cc)"
            r"\s{0,4}:\s{0,4}(?P<it>[^<>\n:\"\\]{2,80}?)\s{0,4}<[^<>\s]{3,256}>"
        ),
        ("<",),
    ),
    Form("email", re.compile(_EMAIL), ("@",)),
    Form("mac", re.compile(EDGE + r"(?<!:)(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])"), (":",)),
    Form("ip", re.compile(_IPV6), (":",), _far_ipv6),
    Form("ip", re.compile(_IPV4), (".",), _far_ipv4),
)
"""In this order: what is a key as a whole is not also read as a name and its value."""

HOME = re.compile(
    rf"(?i)(?:/(?:home|users)/+(?P<unix>[^{_NAME}]{{0,63}}[^{_NAME}.])"
    r"|\\{1,8}users\\{1,8}"
    rf"(?P<windows>[^/\\\n\"'<>|*?]{{1,64}}(?=\\)|[^{_NAME}]{{0,63}}[^{_NAME}.]))"
)
"""A home folder; the name in it is somebody's."""
