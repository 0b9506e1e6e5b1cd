"""The profile for macOS, as text. It is not run: these tests read it as `sandbox-exec` would."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from toolspan.runtime.sandbox.backend import FileAccess, NetworkAccess
from toolspan.runtime.sandbox.seatbelt import SeatbeltBackend, quote_string, seatbelt_profile

Expression = list["Expression | str"]
TOKEN = re.compile(r'\s*(?:([()])|(#?"(?:\\.|[^"\\])*")|([^\s()"]+))', re.DOTALL)
PROJECT = Path("/Users/me/my project")
FILES = FileAccess(
    writable=(PROJECT, Path("/Users/me/hidden/open")),
    read_only=(PROJECT / ".git/hooks", PROJECT / ".claude/settings.json"),
    hidden=(Path("/Users/me/.ssh"), Path("/Users/me/hidden")),
    temporary=Path("/private/tmp/toolspan-1"),
)


def parse(text: str) -> Expression:
    """Parse a profile into nested lists; strings keep their first quotation mark."""
    stack: list[Expression] = [[]]
    position = 0
    while match := TOKEN.match(text, position):
        position = match.end()
        if match[1] == "(":
            stack.append([])
        elif match[1] == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(_unescape(match[2]) if match[2] else match[3])
    assert not text[position:].strip()
    assert len(stack) == 1, "parentheses are balanced"
    return stack[0]


def _unescape(literal: str) -> str:
    return '"' + re.sub(
        r"\\(?:x([0-9a-f]{2})|(.))", lambda match: chr(int(match[1], 16)) if match[1] else match[2], literal[1:-1]
    )


def decide(profile: Expression, operation: str, path: str) -> bool:
    """Return whether the last rule that matches allows an operation on a path."""
    decision = False
    for rule in profile:
        assert isinstance(rule, list)
        operations = [item for item in rule[1:] if isinstance(item, str)]
        filters = [item for item in rule[1:] if isinstance(item, list)]
        applies = any(operation == item or (item[-1] == "*" and operation.startswith(item[:-1])) for item in operations)
        if applies and (not filters or any(_matches(item, path) for item in filters)):
            decision = rule[0] == "allow"
    return decision


def _matches(rule_filter: Expression, path: str) -> bool:
    kind, value = rule_filter[0], rule_filter[1]
    if not isinstance(value, str):
        return False
    if kind == "literal":
        return path == value[1:]
    return kind == "subpath" and PurePosixPath(path).is_relative_to(value[1:])


def test_the_longest_path_decides_about_a_file() -> None:
    profile = parse(seatbelt_profile(FILES, NetworkAccess()))
    writes = {
        "/Users/me/my project/a": True,
        "/Users/me/my project/.git/index": True,
        "/Users/me/my project/.git/hooks/pre-commit": False,
        "/Users/me/my project/.claude/settings.json": False,
        "/Users/me/my project2/a": False,
        "/Users/me/.zshrc": False,
        "/Users/me/hidden/open/a": True,
        "/private/tmp/toolspan-1/tmp/a": True,
        "/private/tmp/a": False,
        "/dev/null": True,
    }
    reads = {
        "/etc/hosts": True,
        "/Users/me/.ssh/id": False,
        "/Users/me/hidden/a": False,
        "/Users/me/hidden/open/a": True,
    }
    assert {path: decide(profile, "file-write-data", path) for path in writes} == writes
    assert {path: decide(profile, "file-read-data", path) for path in reads} == reads


def test_a_folder_with_protected_files_cannot_be_renamed() -> None:
    profile = parse(seatbelt_profile(FILES, NetworkAccess()))
    assert not decide(profile, "file-write-unlink", "/Users/me/my project/.git")
    assert decide(profile, "file-write-unlink", "/Users/me/my project/.git/index.lock")
    assert decide(profile, "file-write-unlink", "/Users/me/my project/src")


def test_the_network_is_denied_except_for_the_proxy_and_named_sockets() -> None:
    closed = seatbelt_profile(FILES, NetworkAccess())
    assert "network" not in closed
    network = NetworkAccess(proxy_port=4711, unix_sockets=(Path("/var/run/docker.sock"),), local_binding=True)
    rules = [rule for rule in parse(seatbelt_profile(FILES, network)) if "network" in str(rule)]
    assert rules == [
        ["allow", "network-outbound", ["remote", "ip", '"localhost:4711']],
        ["allow", "network-bind", "network-inbound", ["local", "ip", '"localhost:*']],
        ["allow", "network-outbound", ["literal", '"/var/run/docker.sock']],
    ]


def test_without_limits_for_files_only_the_network_is_restricted() -> None:
    files = FileAccess(temporary=Path("/private/tmp/toolspan-1"), unrestricted=True)
    profile = parse(seatbelt_profile(files, NetworkAccess()))
    assert decide(profile, "file-write-data", "/Users/me/.zshrc")
    assert not decide(profile, "network-outbound", "/")


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_no_path_can_add_a_rule(name: str) -> None:
    assert parse(f"(allow (subpath {quote_string(name)}) end)") == [["allow", ["subpath", '"' + name], "end"]]


def test_the_command_line_carries_the_profile_and_the_private_folder() -> None:
    wrapped = SeatbeltBackend().wrap(["bash", "-c", "true"], PROJECT, FILES, NetworkAccess())
    profile = seatbelt_profile(FILES, NetworkAccess())
    assert wrapped.argv == ["/usr/bin/sandbox-exec", "-p", profile, "bash", "-c", "true"]
    assert wrapped.env == {"TMPDIR": "/private/tmp/toolspan-1/tmp"}
