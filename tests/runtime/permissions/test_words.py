"""What is said when a command line is not granted, by client version."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.runtime.permissions.asked import decided, line
from toolspan.runtime.outcome import approval_message
from toolspan.runtime.permissions import Permissions
from toolspan.runtime.profiles import profile
from toolspan.types.decision import Ask

NEEDS = "This Bash command contains multiple operations. The following"


@requirement("permission.words")
@pytest.mark.parametrize(
    ("version", "command", "says"),
    [
        ("2.1.325", "touch y", "touch in '{p}/y' needs approval."),
        ("2.1.197", "touch y", "touch in '{p}/y' was blocked."),
        ("2.0.65", "touch y", "This command requires approval"),
        ("2.1.325", "cat /etc/hostname", "cat in '/etc/hostname' was blocked."),
        ("2.0.65", "cat /etc/hostname", "cat in '/etc/hostname' was blocked."),
        ("2.1.325", "echo x > f", "Output redirection to '{p}/f' needs approval."),
        ("2.1.197", "echo x > f", "Output redirection to '{p}/f' was blocked."),
        ("2.1.325", "cd /tmp && ls", f"{NEEDS} parts require approval: cd /tmp, ls"),
        ("2.1.197", "cd /tmp && ls", "cd in '/tmp' was blocked."),
        ("2.0.65", "ls && rm -rf x", f"{NEEDS} part requires approval: rm -rf x"),
        ("2.0.65", "npm run x; touch y", f"{NEEDS} parts require approval: npm run x, touch y"),
        ("2.1.325", "make", "This command requires approval"),
    ],
)
def test_the_words_are_those_of_the_client(tmp_path: Path, version: str, command: str, says: str) -> None:
    refusals = profile(version).refusals
    asked = line(command, tmp_path)
    decision = decided(Permissions(refusals=refusals), asked)

    assert isinstance(decision, Ask)
    assert approval_message(asked, decision, refusals) == says.format(p=tmp_path)


@requirement("permission.words")
def test_the_oldest_client_lets_output_go_to_files_in_the_project(tmp_path: Path) -> None:
    old = Permissions(refusals=profile("2.0.65").refusals)

    assert not isinstance(decided(old, line("echo x > f", tmp_path)), Ask)
    assert isinstance(decided(old, line("echo x > /tmp/f", tmp_path)), Ask)
