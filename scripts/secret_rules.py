"""Write `src/toolspan/redaction/gitleaks.json` from the rules of gitleaks (MIT licence).

    git clone https://github.com/gitleaks/gitleaks && git -C gitleaks checkout v8.30.1
    python scripts/secret_rules.py gitleaks v8.30.1

The file records version, licence and checksum of its source. The patterns are converted from RE2 to Python's syntax,
and three things are changed: text before the keyword is not matched, because only the secret is replaced; a secret
may be followed by any character that cannot be part of it (gitleaks wants a quote, a space or a semicolon); and rules
for more than one line are left out, because redaction works line by line.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "src/toolspan/redaction/gitleaks.json"
OMITTED = frozenset(
    {
        "generic-api-key",
        "curl-auth-header",
        "curl-auth-user",
        "hashicorp-tf-password",
        "kubernetes-secret-yaml",
        "private-key",
    }
)
"""Rules that `redaction/secret_rules.toml` replaces, which know more about names, commands and placeholders."""
PREFIX = r"[\w.-]{0,50}?"
TERMINATOR = r"""(?:[\x60'"\s;]|\\[nr]|$)"""


def to_python(pattern: str) -> str:
    """Return the RE2 pattern in Python's syntax."""
    pattern = pattern.replace(PREFIX, "", 1).replace("[[:alnum:]]", "[0-9A-Za-z]").replace(r"\z", r"\Z")
    pattern = re.sub(r"\(\?P<\w+>", "(?:", pattern)
    if pattern.endswith(TERMINATOR):
        pattern = pattern.removesuffix(TERMINATOR) + "(?![0-9A-Za-z])"
    pattern = pattern.replace(r"[\s'" + '"' + r"]{0,3}", r"(?:\\*['" + '"' + r"]|[ \t]){0,3}")  # quotes in nested JSON
    pattern = pattern.replace(r"[\x60'" + '"' + r"\s=]{0,5}", r"(?:\\*['" + '"' + r"`]|[ \t=]){0,5}")
    return _scope_flags(pattern)


def _scope_flags(pattern: str) -> str:
    """Turn a flag in the middle of a pattern into a group that ends where the enclosing group does."""
    out: list[str] = []
    open_groups = [0]
    in_class = False
    at = 0
    while at < len(pattern):
        piece = pattern[at : at + 2] if pattern[at] == "\\" else pattern[at]
        if at and not in_class and pattern.startswith("(?i)", at):
            out.append("(?i:")
            open_groups[-1] += 1
            at += 4
            continue
        if in_class:
            in_class = piece != "]"
        elif piece == "[":
            in_class = True
        elif piece == "(":
            open_groups.append(0)
        elif piece == ")":
            out.append(")" * open_groups.pop())
        out.append(piece)
        at += len(piece)
    return "".join(out) + ")" * open_groups[0]


def convert_rule(rule: dict[str, Any]) -> dict[str, object] | None:
    """Return a rule of gitleaks as an entry of the file, or None if it is not for the content of lines."""
    if rule["id"] in OMITTED or "regex" not in rule:
        return None
    pattern = to_python(rule["regex"])
    compiled = re.compile(pattern)
    entry: dict[str, object] = {"id": rule["id"], "keywords": rule["keywords"], "pattern": pattern}
    repeated_group = re.search(r"(?<!\\)\((?!\?)[^()]*\)\{", pattern)
    if compiled.groups and not repeated_group:
        entry["group"] = rule.get("secretGroup", 1)
    if "entropy" in rule:
        entry["entropy"] = rule["entropy"]
    return entry


def main(source: str, version: str) -> None:
    """Convert the rules and write the file, one rule per line."""
    data = (Path(source) / "config/gitleaks.toml").read_bytes()
    rules = [entry for rule in tomllib.loads(data.decode())["rules"] if (entry := convert_rule(rule))]
    head = {
        "source": f"https://github.com/gitleaks/gitleaks/blob/{version}/config/gitleaks.toml",
        "version": version,
        "license": (Path(source) / "LICENSE").read_text(encoding="utf-8"),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    lines = ",\n".join(json.dumps(rule) for rule in rules)
    TARGET.write_text(f'{json.dumps(head)[:-1]}, "rules": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
