"""Messages about command lines that are not allowed, by client version."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.runtime.permissions.requests import bash_request, decide_request, make_request
from toolspan.runtime.outcome import approval_message
from toolspan.runtime.permissions import Permissions, Rules
from toolspan.runtime.profiles import profile
from toolspan.types.decision import Ask

NEEDS = "This Bash command contains multiple operations. The following"


@requirement("permission.refusal-texts")
@pytest.mark.parametrize(
    ("version", "command", "message"),
    [
        ("2.1.327", "touch y", "touch in '{p}/y' needs approval."),
        ("2.0.65", "touch y", "This command requires approval"),
        ("2.1.327", "cat /etc/hostname", "cat in '/etc/hostname' was blocked."),
        ("2.0.65", "cat /etc/hostname", "cat in '/etc/hostname' was blocked."),
        ("2.1.327", "echo x > f", "Output redirection to '{p}/f' needs approval."),
        ("2.1.327", "cd /tmp && ls", f"{NEEDS} parts require approval: cd /tmp, ls"),
        ("2.0.65", "cd /tmp && ls", "cd in '/tmp' was blocked."),
        ("2.0.65", "ls && rm -rf x", f"{NEEDS} part requires approval: rm -rf x"),
        ("2.0.65", "npm run x; touch y", f"{NEEDS} parts require approval: npm run x, touch y"),
        ("2.1.327", "make", "This command requires approval"),
    ],
)
def test_the_message_is_that_of_the_client(tmp_path: Path, version: str, command: str, message: str) -> None:
    refusals = profile(version).refusals
    request = bash_request(command, tmp_path)
    decision = decide_request(Permissions(refusals=refusals), request)

    assert isinstance(decision, Ask)
    assert approval_message(request, decision, refusals) == message.format(p=tmp_path)


@requirement("permission.refusal-texts")
@pytest.mark.parametrize(
    ("version", "tool", "path", "message"),
    [
        ("2.1.327", "Read", "a.txt", "to use Read,"),
        ("2.1.327", "Read", "/etc/hostname", "to read from /etc/hostname,"),
        ("2.1.327", "Write", "a.txt", "to write to {p}/a.txt,"),
        ("2.0.65", "Read", "/etc/hostname", "to use Read,"),
        ("2.0.65", "Write", "a.txt", "to use Write,"),
    ],
)
def test_a_question_of_a_rule_for_a_whole_tool_names_the_tool_or_the_file(
    tmp_path: Path, version: str, tool: str, path: str, message: str
) -> None:
    refusals = profile(version).refusals
    request = make_request(tool, tmp_path, file_path=path, content="x")
    decision = decide_request(Permissions(Rules(ask=[tool]), refusals=refusals), request)

    assert isinstance(decision, Ask)
    expected = f"Claude requested permissions {message.format(p=tmp_path)} but you haven't granted it yet."
    assert approval_message(request, decision, refusals) == expected
